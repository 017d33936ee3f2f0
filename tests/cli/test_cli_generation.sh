#!/usr/bin/env bash
# test_cli_generation: run, perplexity, bench, check-kernels with SmolLM2.   ctest: slow
exec python3 "$(dirname "$0")/generation.py"

#!/usr/bin/env bash
# test_cli_endless: texts longer than the context, with SmolLM2.   ctest: slow
exec python3 "$(dirname "$0")/endless.py"

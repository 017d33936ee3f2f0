#!/usr/bin/env bash
# test_cli_files: inspect, tokenize, quantize; bad model files, full disks.   ctest: slow
exec python3 "$(dirname "$0")/files.py"

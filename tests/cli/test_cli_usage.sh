#!/usr/bin/env bash
# test_cli_usage: help, completion, flags, values, environment.
exec python3 "$(dirname "$0")/usage.py"

#!/usr/bin/env bash
# test_cli_tiny: every command on a model that takes no time.
exec python3 "$(dirname "$0")/tiny.py"

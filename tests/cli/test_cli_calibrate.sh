#!/usr/bin/env bash
# test_cli_calibrate: where calibrations are written and looked for, and what is said about them.
exec python3 "$(dirname "$0")/calibrate.py"

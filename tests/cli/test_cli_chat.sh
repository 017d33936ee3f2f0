#!/usr/bin/env bash
# test_cli_chat: long conversations, slash commands, a terminal.   ctest: slow
exec python3 "$(dirname "$0")/chat.py"

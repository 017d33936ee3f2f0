#!/usr/bin/env bash
# test_check_layout: `kvant check-layout` on the layout of a shared object, with times, on a registered one, and on what
# is no layout; a broken law fails.
set -euo pipefail
source_dir=${KVANT_SOURCE_DIR:?} build_dir=${KVANT_BUILD_DIR:?} program=${KVANT_PROGRAM:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
object=$build_dir/examples/pairs8.so
failures=0
check() { if "${@:2}"; then echo "ok: $1"; else echo "FAILED: $1"; failures=$((failures + 1)); fi; }
# says STATUS TEXT ARGUMENTS...: check-layout ends so and says this
says() {
    local output status=0
    output=$("$program" check-layout "${@:3}" 2>&1) || status=$?
    check "check-layout ${*:3}: status $1" [ "$status" = "$1" ]
    check "check-layout ${*:3}: $2" grep -q -- "$2" <<<"$output"
    if grep -q BROKEN <<<"$output"; then echo "$output" >"$work/broken"; fi
}

says 0 '^ok  *unused cells' "$object"
says 0 '^  *q8_0  *[0-9.]* ' "$object" --bench --cpu-mask scalar
says 0 '^layout quad16' quad16
check 'no law is broken' [ ! -e "$work/broken" ]
says 2 'there is none of that name' nothing
says 2 'none.so' ./none.so
if grep -q '^KVANT_SANITIZE:STRING=.' "$build_dir/CMakeCache.txt"; then
    echo 'left out: objects that are compiled here would need the sanitizer'
else
    echo 'int empty;' >"$work/empty.c"
    cc -shared -fPIC "$work/empty.c" -o "$work/empty.so"
    says 2 'has no description of a layout' "$work/empty.so"
    sed 's/\(scores_step + (size_t)c\] += \)/\1 2 */; s/"pairs8"/"pairs9"/' "$source_dir/examples/custom_layout/pairs8.c" >"$work/pairs9.c"
    cc -shared -fPIC -I "$source_dir/include" "$work/pairs9.c" -o "$work/pairs9.so"
    says 1 '^BROKEN  *attention is .*q8_0' "$work/pairs9.so"
    check 'other laws hold' [ "$(grep -c '^ok' "$work/broken")" -ge 4 ]
    sed 's/\.chunk = TURN/.chunk = 0/' "$source_dir/examples/custom_layout/pairs8.c" >"$work/none.c"
    cc -shared -fPIC -I "$source_dir/include" "$work/none.c" -o "$work/none.so"
    says 2 'turns of 0 bytes' "$work/none.so"
fi

echo "$failures failures"
[ $failures = 0 ]

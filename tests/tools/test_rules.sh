#!/usr/bin/env bash
# test_rules: tools/check_layers, check_registry and check_symbols pass on this tree, and each of their rules fails on
# a copy in which it is broken.
set -euo pipefail
source_dir=${KVANT_SOURCE_DIR:?} build_dir=${KVANT_BUILD_DIR:?}
tools=$source_dir/tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
archive=$build_dir/libkvant.a
failures=0

fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

passes() { # passes NAME COMMAND...
    local name=$1
    shift
    if "$@"; then echo "ok: $name"; else fail "$name"; fi
}

# broken TEXT CHECK COMMAND...: in a fresh copy of the tree, after COMMAND, CHECK fails and says TEXT
broken() {
    local text=$1 check=$2
    shift 2
    rm -rf "$work/tree"
    mkdir -p "$work/tree"
    (cd "$source_dir" && for folder in src include cli server examples; do
        if [ -d "$folder" ]; then cp -r "$folder" "$work/tree/"; fi
    done)
    (cd "$work/tree" && "$@")
    if "$tools/$check" "$work/tree" "$archive" >"$work/out"; then fail "$check does not see: $text"
    elif ! grep -qF -- "$text" "$work/out"; then fail "$check does not say '$text' but:"; cat "$work/out"
    else echo "ok: $check sees: $text"; fi
}

put() { # put FILE LINE...: a new file, or more lines at the end of one
    mkdir -p "$(dirname "$1")"
    printf '%s\n' "${@:2}" >>"$1"
}

passes 'layers of this tree' "$tools/check_layers" "$source_dir"
passes 'registries of this tree' "$tools/check_registry" "$source_dir" "$archive"

broken 'base may not include dtype' check_layers put src/base/odd.c '#include "dtype/dtype.h"'
broken 'sched may not include layout' check_layers put src/sched/odd.c '#include "layout/layout.h"'
broken 'text may not include core' check_layers put src/text/odd.c '#include "core/graph.h"'
broken 'cli may not include text' check_layers put cli/odd.c '#include "text/tokenizer.h"'
broken 'op does not see the public headers' check_layers put src/op/odd.c '#include "kvant.h"'
broken 'folder odd is not in the table' check_layers put src/odd/odd.c 'int odd;'
broken 'no such file in src/' check_layers put src/base/odd.c '#include "status.h"'
broken 'include cycle: src/base/one.h -> src/base/two.h -> src/base/one.h' check_layers \
    eval 'put src/base/one.h "#include \"base/two.h\""; put src/base/two.h "#include \"base/one.h\""'
broken 'does not include odd.h first' check_layers eval 'put src/base/odd.h; put src/base/odd.c "#include \"base/clock.h\""'
broken '<immintrin.h> belongs' check_layers put src/device/cpu/odd.c '#include <immintrin.h>'
broken '<arm_neon.h> belongs' check_layers put src/device/cpu/odd_avx.c '#include <arm_neon.h>'
broken 'has the same name' check_layers put src/core/clock.c 'int odd;'
for call in 'printf("x")' 'exit(1)' 'abort()' 'getenv("X")' 'fprintf(stderr, "x")'; do
    broken "the library does not call ${call%%(*}" check_layers put src/engine/odd.c "void f(void) { $call; }"
done
broken 'malloc: memory comes from base/memory.h' check_layers put src/model/odd.c 'void *f(void) { return malloc(3); }'
broken 'op names kv_dtype_q8_0' check_layers put src/op/odd.c 'const void *f(void) { return &kv_dtype_q8_0; }'
broken 'sched names kv_layout_rows' check_layers put src/sched/odd.c 'const void *f(void) { return &kv_layout_rows; }'

broken 'src/dtype/odd.c: no line in src/dtype/dtypes.inc' check_registry put src/dtype/odd.c 'const kv_dtype kv_dtype_odd = {0};'
broken 'src/layout/layouts.inc: odd has no file' check_registry put src/layout/layouts.inc 'KV_LAYOUT(odd)'
broken 'src/op/odd.c: no line in src/op/ops.inc' check_registry put src/op/odd.c 'const kv_op kv_op_odd = {0};'
broken 'defines odder, which belongs into src/op/odder.c' check_registry put src/op/odd.c 'const kv_op kv_op_odder = {0};'
broken 'src/device/odd/odd_device.c: no line in src/device/devices.inc' check_registry \
    put src/device/odd/odd_device.c 'const kv_device_kind kv_device_kind_odd = {0};'
broken 'src/device/devices.inc: odd has no file' check_registry put src/device/devices.inc 'KV_DEVICE_KIND(odd)'
broken 'src/model/arch_odd.c: no line in src/model/archs.inc' check_registry \
    put src/model/arch_odd.c 'const kv_arch kv_arch_odd = {0};'
broken 'f16 is listed twice' check_registry put src/dtype/dtypes.inc 'KV_DTYPE(f16)'
broken 'src/device/cpu/kernels.inc: no row for kv_norm_scalar' check_registry \
    sed -i /kv_norm_scalar/d src/device/cpu/kernels.inc
broken 'cli/cmd_odd.c: no line in cli/commands.inc' check_registry \
    put cli/cmd_odd.c 'int cli_run_odd(void) { return 0; }'

# A sanitizer exports symbols of its own, and other systems have no nm for this library.
library=$(find "$build_dir" -maxdepth 1 -name 'libkvant.so')
if grep -q '^KVANT_SANITIZE:STRING=.' "$build_dir/CMakeCache.txt" || [ ! -e "$library" ]; then
    echo "skipped: symbols of a sanitizer build"
else
    passes 'symbols of this build' "$tools/check_symbols" "$library" "$source_dir"/include/*.h
    sed 's/^\(KVANT_API .*\)kvant_version(/\1kvant_versiom(/' "$source_dir/include/kvant.h" >"$work/kvant.h"
    if "$tools/check_symbols" "$library" "$work/kvant.h" >"$work/out"; then fail 'check_symbols sees nothing'; fi
    for line in 'kvant_version: exported, but' 'kvant_versiom: declared, but'; do
        if grep -q "^$line" "$work/out"; then echo "ok: check_symbols sees: $line"; else fail "check_symbols: $line"; fi
    done
fi

echo "$failures failures"
[ $failures = 0 ]

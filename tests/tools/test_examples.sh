#!/usr/bin/env bash
# test_examples: every program of examples/ answers with SmolLM2, and says how it is used when called without a model.
# Each takes the model as its first argument and questions or prompts on stdin.   ctest: slow
set -euo pipefail
source_dir=${KVANT_SOURCE_DIR:?} build_dir=${KVANT_BUILD_DIR:?}
model=$source_dir/.cache/models/smollm2-135m-q4_1.gguf
[ -e "$model" ] || { echo "skipped: no $model (./dev fetch)"; exit 77; }
failures=0
check() { if "${@:2}"; then echo "ok: $1"; else echo "FAILED: $1"; failures=$((failures + 1)); fi; }

for source in "$source_dir"/examples/*.c "$source_dir"/examples/custom_layout/custom_layout.c; do
    name=$(basename "$source" .c)
    program=$build_dir/examples/example_$name
    output=$(printf 'What is the capital of France?\nAnd of Italy?\n' | timeout 120 "$program" "$model") && status=0 || status=$?
    check "$name ends well" [ "$status" = 0 ]
    check "$name knows Paris" grep -q Paris <<<"$output"
    "$program" >/dev/null 2>&1 </dev/null && status=0 || status=$?
    check "$name without a model is wrong use" [ "$status" = 2 ]
    "$program" /nowhere/none.gguf >/dev/null 2>&1 </dev/null && status=0 || status=$?
    check "$name without its file fails" [ "$status" = 1 ]
done

echo "$failures failures"
[ $failures = 0 ]

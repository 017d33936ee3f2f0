#!/usr/bin/env python3
"""Makes the files in tests/data that gguf-py (pip install gguf numpy) wrote, for test_gguf.c: gguf_py.gguf with a key
of every type and tensors of several dtypes, and the set gguf_py_set-0000?-of-00003.gguf. The test knows what is in
them: element i of tensor t is i + 100 t."""
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType, GGUFWriter
from gguf.quants import quantize


def add_tensors(writer):
    for t, (name, shape, qtype) in enumerate([
        ("token_embd.weight", (6, 32), Type.Q8_0),
        ("blk.0.attn_norm.weight", (5,), Type.F32),
        ("blk.0.attn_q.weight", (4, 64), Type.F16),
        ("blk.0.cube", (2, 3, 4, 5), Type.F32),
        ("output.weight", (3, 32), Type.BF16),
    ]):
        x = (np.arange(np.prod(shape), dtype=np.float32) + 100 * t).reshape(shape)
        writer.add_tensor(name, quantize(x, qtype), raw_dtype=qtype)


def add_keys(writer):
    writer.add_custom_alignment(64)
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_uint64("test.u64", 2**64 - 1)
    writer.add_int64("test.i64", -(2**63))
    writer.add_float32("test.f32", 1.5)
    writer.add_float64("test.f64", -2.25)
    writer.add_bool("test.yes", True)
    writer.add_bool("test.no", False)
    writer.add_string("test.string", "Grüße, 世界")
    writer.add_array("test.strings", ["a", "", "ccc", "Ġthe"])
    writer.add_array("test.floats", [0.5, -1.0, 1e10])
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_array("test.bools", [True, False, True])
    writer.add_key_value("test.bytes", [1, 2, 255], GGUFValueType.ARRAY, GGUFValueType.UINT8)
    writer.add_key_value("test.wide", [2**40, 7], GGUFValueType.ARRAY, GGUFValueType.UINT64)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    root = Path(__file__).resolve().parent.parent
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/data"
    writer = GGUFWriter(folder / "gguf_py.gguf", "llama")
    add_keys(writer)
    add_tensors(writer)
    write(writer)
    writer = GGUFWriter(folder / "gguf_py_set.gguf", "llama", split_max_tensors=2)
    writer.add_uint32("test.u32", 7)
    add_tensors(writer)
    write(writer)


if __name__ == "__main__":
    main()

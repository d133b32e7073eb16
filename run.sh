#!/usr/bin/env bash
# Installs what is missing, builds, fetches a small model and chats with it.
#   ./run.sh                       chat
#   ./run.sh -p "Why is the sky blue?"   one answer; all flags of `ridge run` work
#   ./run.sh -m other.gguf         another model
source "$(dirname "$0")/scripts/setup.sh"
need "${build_packages[@]}"
say "building"
build release -DRIDGE_TESTS=OFF -DRIDGE_CUDA_ARCHS=native -DRIDGE_HIP_ARCHS=native -- ridge >&2
args=("$@")
named=0
for word in "$@"; do case $word in -m* | --model | --model=* | *.gguf) named=1 ;; esac; done
if [ $named = 0 ]; then
    model=$(fetch_model smollm2)
    args=(-m "$model" "$@")
fi
if [ $# -eq 0 ] && ! { [ -t 0 ] && [ -t 1 ]; }; then
    say "no terminal to chat on, so one question"
    args+=(-p "What is a roofline plot? Answer in two sentences.")
fi
exec "$root/build/release/ridge" run "${args[@]}"

#!/usr/bin/env python3
"""Speed of ridge beside llama-bench on the same files, interleaved: ridge, peer, ridge, peer, ...

    compare_peer.py --llama-bench PATH [--ridge PATH] [--rounds N] [--prompt N] [--answer N] [-t N] MODEL...

Prefill: one prompt of about --prompt tokens (the exact number is what ridge's tokenizer makes of a repeated sentence, and
llama-bench is asked for the same number). Decode: --answer tokens after a prompt of one, greedy, in a context of 1024.
Prints a row per model: median (least-most) tokens per second of each side and the ratio of the medians.
"""
import argparse
import json
import os
import statistics
import subprocess


def ridge(args, model, *more):
    command = [args.ridge, "run", "-m", model, "-t", str(args.threads), "--raw", "--temp", "0", "--ignore-end", "--json", "-q",
               "-c", "1024", *more]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def peer(args, model, prompt, answer):
    command = [args.llama_bench, "-m", model, "-t", str(args.threads), "-r", "1", "-o", "json", "-p", str(prompt), "-n",
               str(answer)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)[0]["avg_ts"]


def prompt_text(args, model):
    """The longest repetition of a sentence that stays within --prompt tokens."""
    sentence = "The quick brown fox jumps over the lazy dog near the river bank. "
    per_sentence = ridge(args, model, "-p", sentence * 4, "-n", "1")["prompt_tokens"] / 4
    return sentence * max(1, int(args.prompt / per_sentence))


def shown(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--ridge", default=os.path.join(os.path.dirname(__file__), "../build/release/ridge"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--answer", type=int, default=128)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    print("| model | prompt | ridge | peer | ratio | answer | ridge | peer | ratio | levers |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for model in args.models:
        text = prompt_text(args, model)
        times = {"rp": [], "pp": [], "rt": [], "pt": []}
        for _ in range(args.rounds):
            run = ridge(args, model, "-p", text, "-n", "1")
            times["rp"].append(run["prompt_tokens_per_second"])
            times["pp"].append(peer(args, model, run["prompt_tokens"], 0))
            times["rt"].append(ridge(args, model, "-p", "a", "-n", str(args.answer))["answer_tokens_per_second"])
            times["pt"].append(peer(args, model, 0, args.answer))
        ratio = {side: statistics.median(times["r" + side]) / statistics.median(times["p" + side]) for side in "pt"}
        print(f"| {os.path.basename(model)} | {run['prompt_tokens']} | {shown(times['rp'])} | {shown(times['pp'])} "
              f"| {ratio['p']:.2f} | {args.answer} | {shown(times['rt'])} | {shown(times['pt'])} | {ratio['t']:.2f} "
              f"| {run['levers']} |", flush=True)


if __name__ == "__main__":
    main()

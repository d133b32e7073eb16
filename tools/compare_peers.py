#!/usr/bin/env python3
"""Speed of ridge beside llama.cpp and ik_llama.cpp on the same files, in one interleaved run.

    compare_peers.py --llama-cpp PATH --ik PATH [--ridge PATH] [--like SHAPE] [--layers N] [--vocab N] FORMAT|FILE...

Each format (a name of `ridge synth --list`, "all" for every block format, or a mix such as Q4_K_M) becomes a
synthetic file of the shape, which is deleted after its turn; a FILE is measured as it is. PATHs are those of the
peers' llama-bench; either may be left out. A round runs every engine once, in an order that turns from round to
round; engines measure with a warm-up and one repetition. ik_llama.cpp runs as it is and with -rtr 1 (repacking at
load), and its better median counts in the ratios.

Prints a table per test: median (least-most) tokens per second, ratios of medians, and ridge's share of the machine's
ceilings: of the arithmetic for prompts, of the read bandwidth for answers. What others do to the machine is checked
for every run: a disturbed one is taken again, and where it stays disturbed the table is refused; --force keeps it and
marks it.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ALLOWED = 0.15  # processors' worth of other work that belongs to any machine


class Unquiet(Exception):
    pass


def busy_seconds():
    """Busy time of all processors, the hypervisor's other guests among it."""
    with open("/proc/stat") as stat:
        fields = [int(x) for x in stat.readline().split()[1:9]]
    user, nice, system, _idle, _wait, irq, soft, steal = fields
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    return sum(u.ru_utime + u.ru_stime for u in (resource.getrusage(resource.RUSAGE_CHILDREN),
                                                 resource.getrusage(resource.RUSAGE_SELF)))


class Runner:
    """Runs commands and says how many processors others used meanwhile."""

    def __init__(self, force):
        self.force, self.disturbed = force, 0.0

    def __call__(self, command):
        for _ in range(5):
            wall, busy, own = time.monotonic(), busy_seconds(), own_seconds()
            done = subprocess.run(command, capture_output=True, text=True)
            others = (busy_seconds() - busy - (own_seconds() - own)) / (time.monotonic() - wall)
            if others <= ALLOWED:
                return done
            if self.force:
                self.disturbed = max(self.disturbed, others)
                return done
            time.sleep(3)
        raise Unquiet(f"other processes used {others:.2f} processors in five tries; --force measures all the same")


def json_of(done, name):
    start = done.stdout.find("[" if name != "ridge" else "{")
    if done.returncode != 0 or start < 0:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise RuntimeError(f"{name} ended with {done.returncode}: {lines[-1] if lines else 'it printed nothing'}")
    return json.loads(done.stdout[start:])


class Ridge:
    name = "ridge"

    def __init__(self, args):
        self.args = args

    def run(self, runner, model, tests):
        args, speeds, shares = self.args, {}, {}
        for depth in sorted({t[2] for t in tests}):
            prompt, answer = (max(t[i] for t in tests if t[2] == depth) for i in (0, 1))
            command = [args.ridge, "bench", "-m", model, "-p", str(prompt), "-n", str(answer), "-d", str(depth)]
            command += ["-r", "1", "-t", str(args.threads), "--json", "--force"] + [f"--lever={x}" for x in args.lever]
            for result in json_of(runner(command), self.name)["results"]:
                key = (result["n_prompt"], result["n_gen"], result["n_depth"])
                speeds[key] = result["median_ts"]
                shares[key] = result["share_of_compute" if key[0] else "share_of_read"]
        return speeds, shares


class LlamaBench:
    def __init__(self, args, path, name, more, depth_flag):
        self.args, self.path, self.name, self.more, self.depth_flag = args, path, name, more, depth_flag

    def run(self, runner, model, tests):
        args, speeds = self.args, {}
        plain = [t for t in tests if t[2] == 0]
        base = [self.path, "-m", model, "-t", str(args.threads), "-r", "1", "-fa", "1", "-o", "json"] + self.more
        if plain:
            prompt, answer = (max(t[i] for t in plain) for i in (0, 1))
            for result in json_of(runner(base + ["-p", str(prompt), "-n", str(answer)]), self.name):
                speeds[(result["n_prompt"], result["n_gen"], 0)] = result["avg_ts"]
        for test in tests:
            prompt, answer, depth = test
            if depth == 0:
                continue
            if self.depth_flag:
                more = ["-p", str(prompt), "-n", str(answer), "-d", str(depth)]
            elif answer:  # it measures answers after a prompt, and no prompt after another
                more = ["-p", "0", "-n", "0", "-gp", f"{depth},{answer}"]
            else:
                continue
            results = json_of(runner(base + more), self.name)
            speeds[test] = results[-1]["avg_ts"]
        return speeds, {}


def test_name(test):
    prompt, answer, depth = test
    return (f"pp{prompt}" if prompt else f"tg{answer}") + (f" @ d{depth}" if depth else "")


def tests_of(args):
    tests = []
    for depth in [0] + [d for d in args.depth if d]:
        if args.prompt and not depth:
            tests.append((args.prompt, 0, depth))
        if args.answer:
            tests.append((0, args.answer, depth))
    return tests


def measure(args, runner, model, engines):
    """{test: {engine: [speeds]}}, {test: [shares of ridge]}, {engine: why it cannot}"""
    tests, failed = tests_of(args), {}
    speeds = {t: {e.name: [] for e in engines} for t in tests}
    shares = {t: [] for t in tests}
    for turn in range(args.rounds):
        order = engines[turn % len(engines):] + engines[:turn % len(engines)]
        for engine in order:
            if engine.name in failed:
                continue
            try:
                found, share = engine.run(runner, model, tests)
            except RuntimeError as error:
                failed[engine.name] = str(error)
                continue
            for test in tests:
                if test in found:
                    speeds[test][engine.name].append(found[test])
                if test in share:
                    shares[test].append(share[test])
    return speeds, shares, failed


def shown(values):
    if not values:
        return "-"
    digits = 1 if max(values) >= 10 else 2
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def ratio(ours, theirs):
    return f"{statistics.median(ours) / statistics.median(theirs):.2f}" if ours and theirs else "-"


class Tables:
    """One table per test; rows are kept until the end, progress goes to stderr."""

    def __init__(self, args, engines):
        self.names = [e.name for e in engines]
        self.rows = {t: [] for t in tests_of(args)}
        self.notes = []

    def add(self, label, speeds, shares, failed, disturbed):
        for test, rows in self.rows.items():
            by = speeds[test]
            cells = [label, *(shown(by[n]) for n in self.names)]
            ik = max((by[n] for n in self.names if n.startswith("ik") and by[n]), key=statistics.median, default=[])
            cells += [ratio(by["ridge"], by.get("llama.cpp", [])), ratio(by["ridge"], ik)]
            cells.append(f"{100 * statistics.median(shares[test]):.0f}%" if shares[test] else "-")
            if disturbed:
                cells.append("contended")
            rows.append("| " + " | ".join(cells) + " |")
            print(f"{test_name(test)} {rows[-1]}", file=sys.stderr, flush=True)
        self.notes += [f"{label}: {why}" for why in failed.values()]
        if disturbed:
            self.notes.append(f"{label}: contended, other processes used up to {disturbed:.2f} processors")

    def print(self):
        for test, rows in self.rows.items():
            if not rows:
                continue
            share = "of int8 and f32 rates" if test[0] else "of read bandwidth"
            head = ["format", *self.names, "/ llama.cpp", "/ ik", f"ridge's share {share}"]
            print(f"\n{test_name(test)}, tokens per second: median (least-most)\n")
            print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
            print("\n".join(rows))
        for note in self.notes:
            print(f"\n- {note}", end="")
        print()


def block_formats(ridge):
    """(block formats, all formats), by the last line of `synth --list`."""
    listing = subprocess.run([ridge, "synth", "--list"], capture_output=True, text=True, check=True).stdout
    names = listing.strip().splitlines()[-1].split(":", 1)[1].split()
    return [n for n in names if n not in ("F32", "F16", "BF16")], names


def files(args):
    """(label, path, whether it is ours to delete)"""
    blocks, formats = block_formats(args.ridge)
    wanted = [x for name in args.what for x in (blocks if name == "all" else [name])]
    for name in wanted:
        if os.path.exists(name):
            yield os.path.basename(name), name, False
            continue
        handle, path = tempfile.mkstemp(suffix=".gguf", dir=args.folder)
        os.close(handle)
        command = [args.ridge, "synth", "--like", args.like, "--quant", name, "-o", path, "--force"]
        command += ["--layers", str(args.layers)] if args.layers else []
        command += ["--vocab", str(args.vocab)] if args.vocab else []
        command += ["--pure"] if name in formats else []
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            os.unlink(path)
            sys.exit(f"compare_peers: {name}: {made.stderr.strip()}")
        yield name, path, True


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", metavar="FORMAT|FILE")
    parser.add_argument("--ridge", default=os.path.join(os.path.dirname(__file__), "../build/release/ridge"))
    parser.add_argument("--llama-cpp", metavar="PATH", help="llama-bench of llama.cpp")
    parser.add_argument("--ik", metavar="PATH", help="llama-bench of ik_llama.cpp")
    parser.add_argument("--like", default="qwen3-4b", help="shape of the synthetic files")
    parser.add_argument("--layers", type=int, help="layers of them, instead of the shape's")
    parser.add_argument("--vocab", type=int, help="tokens of them, instead of the shape's")
    parser.add_argument("--folder", help="where they are made (default: the system's temporary folder)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--answer", type=int, default=64)
    parser.add_argument("-d", "--depth", type=int, nargs="*", default=[], help="answers at these depths too")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("--lever", action="append", default=[], help="levers of ridge")
    parser.add_argument("--force", action="store_true", help="measure a busy machine too, and mark what is measured")
    return parser.parse_args()


def main():
    args = arguments()
    engines = [Ridge(args)]
    if args.llama_cpp:
        engines.append(LlamaBench(args, args.llama_cpp, "llama.cpp", [], True))
    if args.ik:
        engines.append(LlamaBench(args, args.ik, "ik_llama.cpp", [], False))
        engines.append(LlamaBench(args, args.ik, "ik -rtr", ["-rtr", "1"], False))
    tables = Tables(args, engines)
    try:
        for label, path, ours in files(args):
            runner = Runner(args.force)
            try:
                speeds, shares, failed = measure(args, runner, path, engines)
            finally:
                if ours:
                    os.unlink(path)
            tables.add(label, speeds, shares, failed, runner.disturbed)
    except Unquiet as why:
        tables.print()
        sys.exit(f"compare_peers: {why}")
    tables.print()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Renders chat templates with jinja2 as transformers does, for tests/text/test_templates.cpp.

    pip install transformers==5.24.0 jinja2==3.1.6
    scripts/fetch_model.py templates        # and each small model, whose own templates take part
    tools/make_template_reference.py --ridge build/release/ridge
    tools/make_template_reference.py --ridge build/release/ridge --diff Qwen-Qwen3-0.6B.jinja reasoning [--closed]
    tools/make_template_reference.py --ridge build/release/ridge --diff all

Without --diff it writes tests/data/template_reference.json and the results in template_snippets.json; with it, it
prints where `ridge template` renders something else ("all": every template and conversation, through one process per
pair).

The environment, its filters and its functions are those of transformers itself, imported from it; only the clock stands
still. The template sees the messages as they are in the file. A template is a file of the folder `templates` in the
cache, `MODEL.gguf` for what that file carries, or `builtin:NAME` for those of `ridge` (hence --ridge). A reference
holds the hash of its template, not the template, as licences vary. (tokenizer_chat.json, which another script makes,
has three of them, each Apache 2.0.)

A conversation of template_conversations.json is rendered with a generation prompt and, where its last message is an
answer, without one too: in this order, one result each, "length:hash" or "error" where jinja2 or Python raised.
Lengths are in bytes of UTF-8, hashes FNV-1a of 64 bits. `repeat` repeats the list of messages, `tools` may name one of
the lists on top.
"""
import argparse
import datetime
import difflib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from transformers.utils import chat_template_utils as transformers_chat

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
SNIPPETS = DATA / "template_snippets.json"
CACHE = pathlib.Path(os.environ.get("RIDGE_MODELS") or pathlib.Path.home() / ".cache/ridge")
NOW = datetime.datetime(2026, 3, 4, 15, 9, 5)  # as kNow in the test
SPECIAL = {"bos_token": "<|bos|>", "eos_token": "<|eos|>"}  # as in the test


class FrozenDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


transformers_chat.datetime = FrozenDatetime


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def templates(ridge):
    found = {}
    for path in sorted((CACHE / "templates").glob("*.jinja")):
        found[path.name] = path.read_bytes().decode("utf-8")
    for path in sorted(CACHE.glob("*.gguf")):
        source, _ = run(ridge, "-m", path, "--source", check=False)
        if source is not None:  # some files carry none
            found[path.name] = source.decode("utf-8")
    names = run(ridge, "--list")[0].decode("utf-8").split()
    for name in names:
        found["builtin:" + name] = run(ridge, "--chat-template", name, "--source")[0].decode("utf-8")
    return found


def run(ridge, *arguments, check=True):
    """What `ridge template` prints, and its errors."""
    done = subprocess.run([str(ridge), "template", *map(str, arguments)], capture_output=True, check=False)
    if check and done.returncode != 0:
        sys.exit(f"ridge template {' '.join(map(str, arguments))}: {done.stderr.decode()}")
    return (done.stdout if done.returncode == 0 else None), done.stderr.decode("utf-8", "replace")


def conversations():
    data = json.loads((DATA / "template_conversations.json").read_text(encoding="utf-8"))
    for c in data["conversations"]:
        tools = c.get("tools")
        c["tools"] = data["tools"][tools] if isinstance(tools, str) else tools
        c["messages"] = c["messages"] * c.get("repeat", 1)
        yield c


def renderings(conversation):
    """With a generation prompt, and where the last message is an answer, without."""
    last = conversation["messages"][-1:]
    return [True, False] if last and last[0].get("role") == "assistant" else [True]


def render(template, conversation, generation):
    """The text, or the exception."""
    variables = dict(conversation.get("variables", {}))
    documents = variables.pop("documents", None)
    try:
        compiled = transformers_chat._compile_jinja_template(template)
        return compiled.render(messages=conversation["messages"], tools=conversation["tools"], documents=documents,
                               add_generation_prompt=generation, **SPECIAL, **variables)
    except Exception as e:  # whatever Python raises is an error for the user of the template
        return e


def result(template, conversation, generation):
    text = render(template, conversation, generation)
    if isinstance(text, Exception):
        return "error"
    data = text.encode("utf-8")
    return f"{len(data)}:{fnv1a(data)}"


def ridge_renders(ridge, template, conversation, generation):
    with tempfile.TemporaryDirectory() as folder:
        def file(name, text):
            path = pathlib.Path(folder) / name
            path.write_bytes(text.encode("utf-8"))
            return path
        variables = dict(conversation.get("variables", {}))
        documents = variables.pop("documents", None)
        arguments = ["--chat-template", file("t.jinja", template),
                     "--messages", file("messages.json", json.dumps(conversation["messages"])),
                     "--now", NOW.isoformat(),
                     "--template-vars", json.dumps(SPECIAL | variables)]
        if documents is not None:
            arguments += ["--documents", file("documents.json", json.dumps(documents))]
        if conversation["tools"] is not None:
            arguments += ["--tools", file("tools.json", json.dumps(conversation["tools"]))]
        if not generation:
            arguments += ["--no-generation-prompt"]
        return run(ridge, *arguments, check=False)


def diff(ridge, name, template, conversation, generation, whole):
    expected = render(template, conversation, generation)
    data, error = ridge_renders(ridge, template, conversation, generation)
    pair = f"{name} {conversation['name']}{'' if generation else ' --closed'}"
    if isinstance(expected, Exception):
        if data is not None:
            print(f"{pair}: an error for jinja2 ({expected!r}), but ridge renders it")
        elif whole:
            print(f"{pair}: both refuse\n  jinja2: {expected!r}\n  ridge:  {error}")
        return data is None
    if data is None:
        print(f"{pair}: only ridge refuses: {error}")
        return False
    got = data.decode("utf-8", "replace")
    if got == expected:
        if whole:
            print(f"{pair}: identical, {len(data)} bytes")
        return True
    print(f"{pair}: differs")
    if whole:
        lines = [text.splitlines(keepends=True) for text in (expected, got)]
        for line in difflib.unified_diff(*lines, "jinja2", "ridge"):
            print("  " + repr(line))
    return False


def write_reference(all_templates):
    rows = []
    for name, template in all_templates.items():
        results = [result(template, c, g) for c in conversations() for g in renderings(c)]
        rows.append(f'  {json.dumps(name)}: {{"template": "{fnv1a(template.encode("utf-8"))}", "results":\n    '
                    + json.dumps(" ".join(results)) + "}")
        print(f"{name}: {len(results)} renderings, {results.count('error')} errors", file=sys.stderr)
    text = '{"now": %s, "templates": {\n%s\n}}\n' % (json.dumps(NOW.isoformat()), ",\n".join(rows))
    (DATA / "template_reference.json").write_text(text, encoding="utf-8")


def write_snippets(data):
    for snippet in data["snippets"]:
        try:
            snippet[1] = transformers_chat._compile_jinja_template(snippet[0]).render(**data["variables"])
        except Exception:  # as in `render`
            snippet[1] = None
    rows = ",\n".join(json.dumps(s, ensure_ascii=False) for s in data["snippets"])
    text = '{"about": %s,\n"variables": %s,\n"snippets": [\n%s\n]}\n' % (
        json.dumps(data["about"]), json.dumps(data["variables"]), rows)
    for c in set(text):  # what an editor would not show
        if not c.isprintable() and c != "\n":
            text = text.replace(c, f"\\u{ord(c):04x}")
    SNIPPETS.write_text(text, encoding="utf-8")
    errors = sum(s[1] is None for s in data["snippets"])
    print(f"{len(data['snippets'])} snippets, {errors} errors", file=sys.stderr)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--ridge", required=True)
    arguments.add_argument("--diff", nargs="+", metavar="NAME")
    arguments.add_argument("--closed", action="store_true", help="with --diff: without a generation prompt")
    args = arguments.parse_args()
    all_templates = templates(args.ridge)
    if not args.diff:
        write_reference(all_templates)
        write_snippets(json.loads(SNIPPETS.read_text(encoding="utf-8")))
    elif args.diff == ["all"]:
        pairs = [diff(args.ridge, name, t, c, g, False)
                 for name, t in all_templates.items() for c in conversations() for g in renderings(c)]
        print(f"{len(pairs)} renderings, {pairs.count(False)} differ")
        sys.exit(1 if pairs.count(False) else 0)
    else:
        name, wanted = args.diff
        (conversation,) = [c for c in conversations() if c["name"] == wanted]
        sys.exit(0 if diff(args.ridge, name, all_templates[name], conversation, not args.closed, True) else 1)


if __name__ == "__main__":
    main()

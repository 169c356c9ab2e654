"""Proves the direction of includes: a folder includes only itself and what stands above it."""

import os
import re
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# docs/architecture.md draws it. A folder may include those its row names; all may include base.
ALLOWED = {
    "lockstep/base": [],
    "lockstep/env": [],
    "lockstep/kernels": [],
    "lockstep/plan": [],
    "lockstep/data": [],
    "lockstep/transport": ["env"],
    "lockstep/engine": ["env", "kernels", "plan", "transport"],
    "lockstep/rendezvous": ["env", "transport"],
    "lockstep/group": ["env", "engine", "rendezvous", "transport", "plan"],
    "lockstep/explain": ["plan"],
    "lockstep/tune": ["env", "group", "kernels", "plan", "transport"],
    "lockstep/c": ["group"],
    "lockstep/reducer": ["env", "group", "kernels"],
    "lockstep/torch": ["data", "group", "kernels", "reducer"],
    "lockstep/launch": ["env"],
    "lockstep/train": ["data", "env", "group", "torch"],
}
# LibTorch stays out of everything else.
TORCH_FOLDERS = ("lockstep/torch", "lockstep/train", "examples", "bench", "tests")
TORCH = re.compile(r'#include [<"](torch|ATen|c10|caffe2)/')
INCLUDE = re.compile(r'#include "(lockstep/[a-z_]+)/')


def sources():
    for top in ("lockstep", "cli", "examples", "bench", "tests"):
        for folder, _, names in os.walk(os.path.join(SOURCE, top)):
            for name in sorted(names):
                if name.endswith((".h", ".cc", ".c")):
                    yield os.path.relpath(os.path.join(folder, name), SOURCE)


def main():
    problems = []
    seen = 0
    for path in sources():
        folder = "/".join(path.split("/")[:2])
        test = path.endswith(("_test.cc", "expected_results.h"))
        with open(os.path.join(SOURCE, path)) as file:
            lines = file.readlines()
        for number, line in enumerate(lines, 1):
            seen += 1
            where = f"{path}:{number}"
            if TORCH.search(line) and not path.startswith(TORCH_FOLDERS) and path != "lockstep/torch.h":
                problems.append(f"{where}: LibTorch outside {', '.join(TORCH_FOLDERS)}")
            match = INCLUDE.search(line)
            if not match or folder not in ALLOWED:
                continue
            other = match.group(1)
            allowed = {folder, "lockstep/base"} | {"lockstep/" + x for x in ALLOWED[folder]}
            if test:  # tests of a layer may use what lies below it
                allowed |= {"lockstep/kernels", "lockstep/env", "lockstep/group", "lockstep/transport"}
            if other not in allowed:
                problems.append(f"{where}: {folder} must not include {other}")
        if len(lines) > 600:
            problems.append(f"{path}: {len(lines)} lines; at most 600")
        for number, line in enumerate(lines, 1):
            if len(line.rstrip("\n")) > 100:
                problems.append(f"{path}:{number}: {len(line) - 1} columns; at most 100")
    for folder in sorted(os.listdir(os.path.join(SOURCE, "lockstep"))):
        if os.path.isdir(os.path.join(SOURCE, "lockstep", folder)):
            if "lockstep/" + folder not in ALLOWED:
                problems.append(f"lockstep/{folder} has no row in tests/layers_test.py")
    print("\n".join(problems) or f"{seen} lines in order")
    return 1 if problems or seen < 1000 else 0


sys.exit(main())

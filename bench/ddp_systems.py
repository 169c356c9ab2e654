"""The systems that bench/ddp measures, how each is started, and what is trained."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile

from machine import SOURCE
from processes import Failed, cores, environment, read_rows, run_all

PYTHON = "/usr/bin/python3"  # Debian's own, which python3-torch belongs to


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    batch: int  # samples of a rank
    steps: int  # of a block, which then takes about half a second
    efficiency_min: float = 0


MODELS = (Model("mlp", 64, 50, 0.92), Model("cnn", 64, 8, 0.98), Model("resnet18", 8, 2, 0.98),
          Model("gpt", 4, 6, 0.96))
SMALL = Model("small", 32, 20)

# Of each system the ways to average gradients that are compared; the first is the one whose memory
# and first step are measured.
KINDS = {"lockstep": ("ddp",), "pytorch": ("views", "default"), "gloo": ("flat", "each")}
NAMES = {"lockstep": "Lockstep", "pytorch": "PyTorch DDP + Gloo", "gloo": "C++ + Gloo"}
KIND_NAMES = {
    "ddp": "Lockstep DDP",
    "views": "PyTorch DDP + Gloo, gradients as bucket views, no broadcast of buffers",
    "default": "PyTorch DDP + Gloo, default arguments",
    "flat": "C++ + Gloo, one all-reduce after backward",
    "each": "C++ + Gloo, an all-reduce per parameter after backward",
}


class Systems:
    """Everything that is started is a job whose ranks write PREFIX.RANK."""

    def __init__(self, build, ranks, share_cores):
        self.build = build
        self.ranks = ranks
        self.left_out = {}
        if len(cores()) < ranks and not share_cores:
            sys.exit(f"bench/ddp: {ranks} ranks need {ranks} cores, there are {len(cores())}")
        if not os.path.exists(self.program("ddp_worker")):
            sys.exit(f"bench/ddp: {self.program('ddp_worker')} is not built: "
                     "scripts/build release bench_ddp")
        if not os.path.exists(self.program("ddp_gloo")):
            self.left_out["gloo"] = (f"{self.program('ddp_gloo')} is not built; "
                                     "it needs libgloo-dev")
        can_import = subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True)
        if can_import.returncode != 0:
            self.left_out["pytorch"] = f"{PYTHON} has no torch (python3-torch)"
        self.folder = tempfile.mkdtemp(prefix="lockstep-ddp-")

    def present(self):
        return [x for x in KINDS if x not in self.left_out]

    def program(self, name):
        return os.path.join(self.build, "bench", name)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def commands(self, system, arguments, ranks, store):
        variables = {"OPENBLAS_NUM_THREADS": 1}
        if system == "lockstep":
            launcher = [os.path.join(self.build, "cli", "lockstep"), "run", "-n", str(ranks), "--"]
            # A single rank would be given all cores.
            return [(launcher + [self.program("ddp_worker"), *arguments], environment(**variables),
                     0 if ranks == 1 else None)]
        program = [self.program("ddp_gloo")]
        if system == "pytorch":
            program = [PYTHON, "-B", os.path.join(SOURCE, "bench", "ddp_pytorch.py")]
        variables.update(WORLD_SIZE=ranks, GLOO_STORE=store, GLOO_SOCKET_IFNAME="lo")
        return [(program + arguments, environment(**variables, RANK=rank), rank)
                for rank in range(ranks)]

    def run(self, system, mode, model, *more, ranks=None, meanwhile=None):
        """What each rank wrote: a list of rows per rank."""
        ranks = ranks or self.ranks
        prefix = os.path.join(tempfile.mkdtemp(dir=self.folder), "rank")
        arguments = [prefix, mode, model.name, str(model.batch), *map(str, more)]
        run_all(self.commands(system, arguments, ranks, prefix + "-store"),
                (lambda: meanwhile(prefix)) if meanwhile else lambda: None)
        return [read_rows(f"{prefix}.{rank}") for rank in range(ranks)]

    def memory(self, system, model, kind):
        """Memory of each rank, read while all of them have it: MiB by the kernel's names."""
        release = os.path.join(tempfile.mkdtemp(dir=self.folder), "exists")
        open(release, "w").close()
        found = []

        def look(prefix):
            pids = [pid_in(f"{prefix}.{rank}") for rank in range(self.ranks)]
            if None in pids or found:
                return
            found.extend(memory_of(pid) for pid in pids)
            os.unlink(release)

        rows = self.run(system, "memory", model, kind, release, meanwhile=look)
        if not found:
            raise Failed(f"{NAMES[system]} ended before its memory was read")
        return found, rows[0][0]


def pid_in(path):
    try:
        with open(path) as file:
            text = file.read()
    except FileNotFoundError:
        return None
    return json.loads(text)["pid"] if text.endswith("\n") else None


def memory_of(pid):
    found = {}
    for name in ("smaps_rollup", "status"):
        with open(f"/proc/{pid}/{name}") as file:
            fields = (line.split() for line in file)
            found.update({x[0].rstrip(":"): int(x[1]) / 1024 for x in fields
                          if len(x) == 3 and x[2] == "kB"})
    return {key: found[key] for key in ("Pss_Anon", "Pss_Shmem", "Pss_File", "Rss", "VmHWM")}

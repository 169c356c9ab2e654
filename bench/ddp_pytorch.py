"""One rank of bench/ddp on PyTorch's DistributedDataParallel over Gloo; the arguments are those of
ddp_loop.h, the kinds
  default  as it comes
  views    gradients as views of the buckets, buffers not broadcast: as fast as it gets
  unused   the same with find_unused_parameters
RANK, WORLD_SIZE and GLOO_STORE (a file that all ranks can reach) are set.
"""

import ctypes
import json
import math
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from ddp_models import make_model, make_samples

FAST = {"gradient_as_bucket_view": True, "broadcast_buffers": False}
OPTIONS = {"default": {}, "views": FAST, "unused": {**FAST, "find_unused_parameters": True}}
LATER_STEPS = 5
MEMORY_STEPS = 3
WAIT_MAX_S = 60


def keep_freed_memory():
    # As lockstep/train/process.h does: M_TOP_PAD, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD.
    libc = ctypes.CDLL(None)
    for option, value in ((-2, 64 << 20), (-1, 1 << 30), (-3, 1 << 30)):
        libc.mallopt(option, value)


def connect():
    if not dist.is_initialized():
        dist.init_process_group("gloo", init_method="file://" + os.environ["GLOO_STORE"],
                                rank=int(os.environ["RANK"]),
                                world_size=int(os.environ["WORLD_SIZE"]))


class Job:
    def __init__(self, name, batch, kind):
        torch.manual_seed(1)
        self.model = make_model(name)
        if kind in OPTIONS:
            connect()
            self.model = DistributedDataParallel(self.model, **OPTIONS[kind])
        # As in ddp_loop.cc.
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4, momentum=0.9)
        torch.manual_seed(2 + int(os.environ["RANK"]))
        self.input, self.target = make_samples(name, batch)

    def step(self):
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(self.input), self.target).backward()
        self.optimizer.step()

    def gradient_norm(self):
        squares = (x.grad.double().square().sum().item() for x in self.model.parameters())
        return math.sqrt(sum(squares))

    def about(self):
        parameters = list(self.model.parameters())
        return {"version": torch.__version__, "parameters": sum(x.numel() for x in parameters),
                "tensors": len(parameters)}


class Worker:
    def __init__(self, arguments):
        prefix, self.mode, self.model, batch, *self.more = arguments
        self.batch = int(batch)
        self.out = open(f"{prefix}.{os.environ['RANK']}", "w")

    def say(self, **row):
        print(json.dumps(row), file=self.out, flush=True)

    def job(self, kind):
        return Job(self.model, self.batch, kind)

    def blocks(self, steps, rounds, kinds):
        connect()
        kinds = kinds.split(",")
        apart = self.job("apart")
        jobs = {kind: self.job(kind) if kind in OPTIONS else apart for kind in kinds}
        for _ in range(2):
            for job in jobs.values():
                job.step()
        self.say(**apart.about(), gradient_norms={
            "" if job is apart else kind: job.gradient_norm() for kind, job in jobs.items()})
        for i in range(int(rounds)):
            order = [(i + turn * (1 if i % 2 == 0 else len(kinds) - 1)) % len(kinds)
                     for turn in range(len(kinds))]
            found = {kinds[x]: self.block(kinds[x], jobs[kinds[x]], int(steps)) for x in order}
            self.say(ms={kind: ms for kind, ms in found.items() if ms is not None})

    @staticmethod
    def block(kind, job, steps):
        job.step()
        dist.barrier()
        if kind == "alone" and dist.get_rank() != 0:
            return None
        start = time.perf_counter()
        for _ in range(steps):
            job.step()
            if kind == "barrier":
                dist.barrier()
        return (time.perf_counter() - start) * 1000 / steps

    def first(self, kind):
        job = self.job(kind)
        times = [time.monotonic()]
        for _ in range(1 + LATER_STEPS):
            job.step()
            times.append(time.monotonic())
        ms = [(after - before) * 1000 for before, after in zip(times, times[1:])]
        self.say(first_step_at_s=times[1], first_ms=ms[0], later_ms=statistics.median(ms[1:]))

    def memory(self, kind, file):
        job = self.job(kind)
        for _ in range(MEMORY_STEPS):
            job.step()
        ctypes.CDLL(None).malloc_trim(0)
        self.say(pid=os.getpid(), **job.about())
        deadline = time.monotonic() + WAIT_MAX_S
        while os.path.exists(file) and time.monotonic() < deadline:
            time.sleep(0.01)


def main():
    worker = Worker(sys.argv[1:])
    torch.set_num_threads(1)
    if worker.mode != "memory":
        keep_freed_memory()
    getattr(worker, worker.mode)(*worker.more)


main()

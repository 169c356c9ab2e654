"""The peer of scaling_worker.cc: PyTorch's DistributedDataParallel over Gloo, the same models and the
same blocks, one line of JSON per round. Started by bench/scaling with RANK, WORLD_SIZE, MASTER_ADDR,
MASTER_PORT as torchrun sets them.

usage: scaling_pytorch_ddp.py MODEL BATCH STEPS BLOCKS
"""

import ctypes
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = torch.relu(F.max_pool2d(self.conv2(torch.relu(self.conv1(x))), 2))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = [64, 64, 128, 256, 512]
        self.layers = nn.Sequential(*[
            nn.Sequential(Block(widths[i], widths[i + 1], 1 if i == 0 else 2),
                          Block(widths[i + 1], widths[i + 1], 1))
            for i in range(4)
        ])
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        return self.fc(self.layers(torch.relu(self.bn1(self.conv1(x)))).mean((2, 3)))


def keep_freed_memory():
    # As scaling_worker.cc does: M_TOP_PAD, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD.
    libc = ctypes.CDLL(None)
    for option, value in ((-2, 64 << 20), (-1, 1 << 30), (-3, 1 << 30)):
        libc.mallopt(option, value)


def main():
    name, batch, steps, blocks = sys.argv[1], *map(int, sys.argv[2:5])
    keep_freed_memory()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    make = Cnn if name == "cnn" else ResNet18
    together = nn.parallel.DistributedDataParallel(make(), gradient_as_bucket_view=True)
    apart = make()
    data = torch.randn(batch, *((1, 28, 28) if name == "cnn" else (3, 32, 32)))
    target = torch.randint(10, (batch,))

    def stepper(model):
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

        def step():
            optimizer.zero_grad()
            F.cross_entropy(model(data), target).backward()
            optimizer.step()
        return step

    def block(step, after=lambda: None):
        start = time.perf_counter()
        for _ in range(steps):
            step()
            after()
        return batch * steps / (time.perf_counter() - start)

    in_group, by_itself = stepper(together), stepper(apart)
    kinds = [
        ("group", lambda: block(in_group)),
        ("apart", lambda: block(by_itself)),
        ("barrier", lambda: block(by_itself, dist.barrier)),
        ("alone", lambda: block(by_itself) if rank == 0 else 0.0),
    ]
    for _ in range(3):
        in_group()
        by_itself()
    for i in range(blocks):
        row = {}
        for turn in range(len(kinds)):
            kind, run = kinds[(i + turn * (1 if i % 2 == 0 else len(kinds) - 1)) % len(kinds)]
            by_itself()
            in_group()
            dist.barrier()
            total = torch.tensor([run()], dtype=torch.float64)
            dist.all_reduce(total)
            row[kind] = total.item()
        if rank == 0:
            print(json.dumps(row), flush=True)


main()

"""Runs the real `lockstep train` for the tests of this folder, on data sets made here."""

import gzip
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile
import unittest

LOCKSTEP = os.environ["LOCKSTEP"]  # the program under test
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
SECONDS_MAX = 240


def clean_environment(extra=None):
    dropped = ("LOCKSTEP_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMP_NUM_THREADS")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    environment["LOCKSTEP_RECORD"] = "none"  # no litter in /tmp
    environment.update(extra or {})
    return environment


def run(command, extra=None):
    return subprocess.run(
        command, env=clean_environment(extra), capture_output=True, text=True, timeout=SECONDS_MAX
    )


def idx_images(images):
    """`images`: a list of lists of rows."""
    side = len(images[0]) if images else 28
    header = struct.pack(">IIII", 0x803, len(images), side, side)
    return header + b"".join(bytes(row) for image in images for row in image)


def idx_labels(labels):
    return struct.pack(">II", 0x801, len(labels)) + bytes(labels)


def write_idx(folder, train_count, test_count, side=12, classes=10):
    """Images that can be learned: a bright bar whose place is the label, on noise."""
    generator = random.Random(train_count * 1000 + side)
    for part, count in (("train", train_count), ("t10k", test_count)):
        labels = [generator.randrange(classes) for _ in range(count)]
        images = []
        for label in labels:
            image = [[generator.randrange(100) for _ in range(side)] for _ in range(side)]
            image[label % side] = [200 + generator.randrange(50) for _ in range(side)]
            images.append(image)
        if not images:
            data = struct.pack(">IIII", 0x803, 0, side, side)
        else:
            data = idx_images(images)
        with gzip.open(os.path.join(folder, part + "-images-idx3-ubyte.gz"), "wb") as file:
            file.write(data)
        with open(os.path.join(folder, part + "-labels-idx1-ubyte"), "wb") as file:
            file.write(idx_labels(labels))


class TrainTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="lockstep-train-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def make_data(self, name="data", train=60, test=22, side=12):
        folder = self.path(name)
        os.mkdir(folder)
        write_idx(folder, train, test, side)
        return folder

    def train(self, ranks, arguments, extra=None):
        """One finished training; its report, with the folder of the model as `output`."""
        output = tempfile.mkdtemp(dir=self.folder)
        report = os.path.join(output, "report.json")
        command = [LOCKSTEP, "run", "-n", str(ranks), "--", LOCKSTEP, "train"] + arguments
        done = run(command + ["--output", output, "--report", report], extra)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(report) as file:
            result = json.load(file)
        result["output"] = output
        result["screen"] = done.stdout + done.stderr
        self.assertEqual(len(result["parameter_checksum"]), ranks)
        self.assertEqual(len(set(result["parameter_checksum"])), 1, "replicas differ")
        return result

    def refused(self, status, arguments, extra=None, command=None):
        """The one line that a refused training says, without "lockstep train: "."""
        done = run((command or [LOCKSTEP, "train"]) + arguments, extra)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        # A launcher may repeat it, indented.
        lines = [x for x in done.stderr.splitlines() if x.startswith("lockstep train: ")]
        self.assertEqual(len(lines), 1, done.stdout + done.stderr)
        if command is None:
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return lines[0].split("lockstep train: ", 1)[1]

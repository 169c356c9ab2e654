"""The programs of examples/: one process, and the same on several ranks, processes or threads."""

import os
import re
import unittest

import torch

from job import LOCKSTEP, TrainTest, run

EXAMPLES = os.environ["EXAMPLES"]  # the folder of the built examples


class Examples(TrainTest):
    def loss(self, command):
        done = run(command)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = re.findall(r"epoch 1: loss ([0-9.]+)", done.stdout)
        self.assertEqual(len(lines), 1, done.stdout)
        return float(lines[0])

    def test_both_learn(self):
        single = self.loss([os.path.join(EXAMPLES, "mnist_single"), "1"])
        distributed = os.path.join(EXAMPLES, "mnist_distributed")
        two = self.loss([LOCKSTEP, "run", "-n", "2", "--", distributed, "1"])
        self.assertLess(single, 0.8)
        # Another order of samples, the same batches: the loss is about the same.
        self.assertAlmostEqual(two, single, delta=0.1)

    def test_ranks_as_threads_learn(self):
        done = run([os.path.join(EXAMPLES, "mirrored"), "2", "1"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        losses = re.findall(r"rank \d of 2: ([0-9.]+)", done.stdout)
        self.assertEqual(len(losses), 2, done.stdout)
        self.assertLess(max(map(float, losses)), 0.6)

    def test_ranks_as_threads_under_a_launcher_are_refused(self):
        done = run([LOCKSTEP, "run", "-n", "2", "--", os.path.join(EXAMPLES, "mirrored"), "2", "1"])
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("a launcher has started this process", done.stdout + done.stderr)


    # On any number of ranks; what a program prints of its error must be small.
    def value(self, pattern, ranks, *command):
        program = [os.path.join(EXAMPLES, command[0]), *command[1:]]
        done = run([LOCKSTEP, "run", "-n", str(ranks), "--", *program])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        values = [float(v) for v in re.findall(pattern, done.stdout)]
        self.assertTrue(values, done.stdout)
        return values

    def test_accumulation(self):
        for ranks in (1, 2, 3):
            self.assertLess(max(self.value(r"loss ([0-9.e-]+)", ranks, "accumulation")), 0.01)

    def test_uneven_data(self):
        for ranks in (1, 3):
            errors = self.value(r"largest error ([0-9.e-]+)", ranks, "uneven_data")
            self.assertEqual(len(errors), ranks)
            self.assertEqual(len(set(errors)), 1)
            self.assertLess(errors[0], 0.01)

    def test_a_torchscript_module_from_python_and_back(self):
        net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        torch.jit.script(net).save(self.path("net.pt"))
        loss = self.value(
            r"loss ([0-9.e-]+)", 2, "torchscript", self.path("net.pt"), self.path("trained.pt")
        )
        self.assertLess(loss[0], 0.2)
        trained = torch.jit.load(self.path("trained.pt"))
        x = torch.rand(256, 8)
        self.assertLess(torch.nn.functional.mse_loss(trained(x), x.sum(1, True)).item(), 0.2)


if __name__ == "__main__":
    unittest.main(verbosity=2)

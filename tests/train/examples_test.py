"""The programs of examples/: one process, and the same on several ranks, processes or threads."""

import os
import re
import unittest

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


if __name__ == "__main__":
    unittest.main(verbosity=2)

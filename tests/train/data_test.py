"""Data files and folders that are not as they should be; evaluation of every sample once."""

import os
import unittest

from job import LOCKSTEP, TrainTest, idx_labels, run

TINY = ["--model", "mlp", "--batch", "12", "--epochs", "1", "--lr", "0.01"]


class BadData(TrainTest):
    def refused_data(self, data, command=None):
        return self.refused(1, TINY + ["--data", data], command=command)

    def change(self, data, name, change):
        path = os.path.join(data, name)
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(change(content))
        return path

    def test_missing(self):
        data = self.make_data()
        os.remove(os.path.join(data, "t10k-labels-idx1-ubyte"))
        said = self.refused_data(data)
        self.assertIn("t10k-labels-idx1-ubyte' does not exist", said)
        self.assertIn("does not exist", self.refused_data(self.path("absent")))

    def test_truncated(self):
        data = self.make_data()
        path = self.change(data, "train-labels-idx1-ubyte", lambda b: b[:-1])
        said = self.refused_data(data)
        self.assertIn(f"'{path}' is truncated: expected 60 bytes of labels, found 59", said)

    def test_truncated_gzip(self):
        data = self.make_data()
        path = self.change(data, "train-images-idx3-ubyte.gz", lambda b: b[: len(b) // 2])
        said = self.refused_data(data)
        self.assertIn(f"'{path}' is truncated", said)
        self.assertIn("gzip data ends early", said)

    def test_damaged_gzip(self):
        data = self.make_data()
        path = self.change(
            data, "train-images-idx3-ubyte.gz", lambda b: b[:-6] + bytes([b[-6] ^ 1]) + b[-5:]
        )
        self.assertIn(f"'{path}' is damaged", self.refused_data(data))

    def test_another_kind(self):
        data = self.make_data()
        path = self.change(data, "train-labels-idx1-ubyte", lambda b: b"\x89PNG\r\n\x1a\n" + b)
        said = self.refused_data(data)
        self.assertIn(f"'{path}' is of another kind: expected magic number 0x00000801", said)
        self.assertIn("found 0x89504e47", said)

    def test_counts_that_do_not_match(self):
        data = self.make_data()
        self.change(data, "train-labels-idx1-ubyte", lambda _: idx_labels([1] * 59))
        self.assertIn("expected 60 labels", self.refused_data(data))

    def test_label_out_of_range(self):
        data = self.make_data()
        self.change(data, "train-labels-idx1-ubyte", lambda _: idx_labels([1] * 59 + [10]))
        self.assertIn("expected labels from 0 to 9, found 10 at sample 59", self.refused_data(data))

    def test_no_training_sample(self):
        data = self.make_data(train=0)
        self.assertIn("has 0 training samples", self.refused_data(data))

    def test_on_many_ranks_one_speaks_and_all_end(self):
        launch = [LOCKSTEP, "run", "-n", "3", "--", LOCKSTEP, "train"]
        self.assertIn("does not exist", self.refused_data(self.path("absent"), command=launch))


class BadOutput(TrainTest):
    def test_output_that_cannot_be_written_is_told_before_training(self):
        launch = [LOCKSTEP, "run", "-n", "2", "--", LOCKSTEP, "train"]
        data = self.make_data()
        with open(self.path("file"), "w"):
            pass
        for setting in ("--output", "--report"):
            target = self.path("file", "below")
            arguments = TINY + ["--data", data, setting, target]
            self.assertIn(self.path("file"), self.refused(1, arguments, command=launch))
            done = run(launch + arguments)
            self.assertNotIn("epoch", done.stdout)

    def test_read_only_file_system(self):
        said = self.refused(1, TINY + ["--data", self.make_data(), "--output", "/proc/lockstep"])
        self.assertIn("/proc/lockstep", said)


class Divergence(TrainTest):
    def test_a_loss_that_is_no_number_ends_the_training_in_one_line(self):
        launch = [LOCKSTEP, "run", "-n", "2", "--", LOCKSTEP, "train"]
        said = self.refused(1, ["--data", self.make_data()] + TINY[:-1] + ["1000"], command=launch)
        self.assertIn("training diverged; lower lr (now 1000)", said)


class Evaluation(TrainTest):
    """S-NUM-10: each test sample is counted once, whatever the ranks and batches."""

    def evaluated(self, ranks, data, eval_batch):
        report = self.train(ranks, TINY + ["--data", data, "--eval-batch", str(eval_batch)])
        return report["test_samples"], report["accuracy"], report["loss"]

    def test_every_sample_once(self):
        for test in (22, 2):
            data = self.make_data(f"data{test}", test=test)
            samples, accuracy, loss = self.evaluated(1, data, 1000)
            self.assertEqual(samples, test)
            self.assertAlmostEqual(accuracy * test, round(accuracy * test), places=9)
            for ranks, eval_batch in ((3, 8), (4, 1)):
                _, accuracy_n, loss_n = self.evaluated(ranks, data, eval_batch)
                self.assertAlmostEqual(accuracy_n, accuracy, places=9)
                self.assertAlmostEqual(loss_n, loss, delta=1e-5 * max(1, abs(loss)))

    def test_no_sample_at_all(self):
        data = self.make_data(test=0)
        self.assertEqual(self.evaluated(2, data, 8), (0, None, None))


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""What `lockstep train` says to settings that cannot be, and how it exits."""

import os
import unittest

from job import LOCKSTEP, SOURCE, TrainTest, run


class Settings(TrainTest):
    def write(self, text):
        path = self.path("job.toml")
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_unknown_key_is_told_with_line_and_nearest_name(self):
        path = self.write("lr = 0.1\n\nmodle = 'cnn'\n")
        said = self.refused(2, [path])
        self.assertEqual(said, f"{path}:3: unknown setting 'modle'; did you mean 'model'?")

    def test_unknown_value_is_told_with_line_and_nearest_name(self):
        path = self.write("model = 'resnet17'\n")
        self.assertIn(":1: unknown model 'resnet17'; did you mean 'resnet18'?", self.refused(2, [path]))

    def test_wrong_type_and_bounds(self):
        self.assertIn(":1: batch must be a whole number", self.refused(2, [self.write("batch = 'x'\n")]))
        self.assertIn("in [0, 0.95], found 2", self.refused(2, ["--dropout", "2"]))

    def test_unknown_flag(self):
        self.assertIn("did you mean '--batch'?", self.refused(2, ["--bacth", "8"]))

    def test_missing_settings_file(self):
        self.assertIn("No such file", self.refused(2, [self.path("absent.toml")]))

    def test_malformed_environment(self):
        self.assertIn("RANK", self.refused(2, [], {"RANK": "first", "WORLD_SIZE": "2"}))

    def test_only_rank_0_speaks(self):
        group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        done = run([LOCKSTEP, "train", "--epochs", "0"], {**group, "RANK": "1"})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", ""))

    def test_more_ranks_than_samples_in_a_batch(self):
        launch = [LOCKSTEP, "run", "-n", "3", "--", LOCKSTEP, "train"]
        for _ in range(3):  # whichever rank is the first to end
            said = self.refused(2, ["--batch", "2"], command=launch)
            self.assertIn("batch = 2 is smaller than the 3 ranks", said)

    def test_image_too_small_for_the_model(self):
        data = self.make_data(side=4)
        said = self.refused(1, ["--data", data, "--model", "cnn"])
        self.assertIn("model = cnn needs images of at least 6 × 6, found 4 × 4", said)

    def test_the_page_in_docs_is_the_list(self):
        done = run([LOCKSTEP, "train", "--list-settings"])
        self.assertEqual(done.returncode, 0)
        with open(os.path.join(SOURCE, "docs", "settings-train.md")) as file:
            self.assertEqual(file.read(), done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""The saved model opens in Python, safely, and does there what it did here."""

import gzip
import os
import sys
import unittest

import numpy
import torch
from torch.nn import functional as F

from job import FASHION_MNIST, SOURCE, TrainTest

sys.path.append(os.path.join(SOURCE, "bench"))
from ddp_models import Cnn, Gpt, Mlp, ResNet18


def read_idx(name, header_bytes):
    with gzip.open(os.path.join(FASHION_MNIST, name)) as file:
        return torch.tensor(numpy.frombuffer(file.read(), numpy.uint8, offset=header_bytes))


class SavedModel(TrainTest):
    def test_cnn_has_the_same_test_accuracy_in_python(self):
        arguments = ["--model", "cnn", "--steps", "60", "--batch", "64", "--lr", "0.02"]
        report = self.train(2, arguments)
        model = Cnn().eval()
        path = os.path.join(report["output"], "model.pt")
        self.assertEqual(report["saved_model"], path)
        model.load_state_dict(torch.load(path, weights_only=True))

        train = read_idx("train-images-idx3-ubyte.gz", 16).float() / 255
        images = read_idx("t10k-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28).float() / 255
        labels = read_idx("t10k-labels-idx1-ubyte.gz", 8).long()
        images = (images - train.double().mean().float()) / train.double().std().float()
        right, loss = 0, 0.0
        with torch.no_grad():
            for i in range(0, len(images), 1000):
                logits = model(images[i : i + 1000])
                right += (logits.argmax(1) == labels[i : i + 1000]).sum().item()
                loss += F.cross_entropy(logits, labels[i : i + 1000], reduction="sum").item()
        self.assertEqual(report["test_samples"], 10000)
        self.assertGreater(report["accuracy"], 0.5)
        # A sample on the boundary of two classes may fall either way.
        self.assertLessEqual(abs(right - report["accuracy"] * 10000), 2)
        self.assertAlmostEqual(loss / 10000, report["loss"], places=4)

    def test_every_model_opens_without_running_code(self):
        with open(self.path("text"), "w") as file:
            file.write("to be or not to be " * 200)
        data = self.make_data()
        text = ["--dataset", "text", "--data", self.path("text"), "--layers", "1", "--width", "32"]
        for model, in_python, more in (
            ("mlp", Mlp(pixels=144), ["--data", data]),
            ("resnet18", ResNet18(channels=1), ["--data", data, "--lr", "0.001"]),
            ("gpt", Gpt(layers=1, width=32, vocabulary=256), text),
        ):
            arguments = ["--model", model, "--steps", "1", "--batch", "8", "--eval-every", "0"]
            report = self.train(1, arguments + more)
            state = torch.load(os.path.join(report["output"], "model.pt"), weights_only=True)
            self.assertIs(type(state), dict)
            learned = [t for name, t in state.items() if t.is_floating_point() and "running" not in name]
            self.assertEqual(sum(t.numel() for t in learned), report["parameters"])
            self.assertTrue(all(torch.isfinite(t).all() for t in learned))
            in_python.load_state_dict(state)  # every name and shape, none besides


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""N ranks train as one process does: same global batch, same parameters."""

import os
import unittest

import torch

from job import TrainTest

def fixed(steps=20):
    return ["--steps", str(steps), "--eval-every", "0", "--check-replicas", "1"]



def state_of(report):
    return torch.load(os.path.join(report["output"], "model.pt"), weights_only=True)


def bytes_of(report):
    with open(os.path.join(report["output"], "model.pt"), "rb") as file:
        return file.read()


class Equality(TrainTest):
    def compare(self, arguments, steps=20):
        one = state_of(self.train(1, arguments + fixed(steps)))
        for n in (2, 3, 4):
            many = state_of(self.train(n, arguments + fixed(steps)))
            self.assertEqual(list(one), list(many))
            for name, tensor in one.items():
                apart = (many[name].double() - tensor.double()).norm().item()
                size = tensor.double().norm().item()
                self.assertLessEqual(apart, 1e-5 * size, f"{name} on {n} ranks")

    def test_the_parameters_do_move(self):
        data = self.make_data()
        arguments = ["--model", "mlp", "--data", data, "--batch", "12", "--eval-every", "0"]
        first = state_of(self.train(1, arguments + ["--steps", "1", "--lr", "0"]))
        last = state_of(self.train(1, arguments + ["--steps", "20"]))
        for name, tensor in first.items():
            self.assertGreater((last[name] - tensor).norm().item(), 1e-3 * tensor.norm().item())

    # 50 samples in batches of 12: the last batch has 2, so that ranks have unequal shares or none.
    def test_mlp(self):
        data = self.make_data(train=50)
        self.compare(["--model", "mlp", "--data", data, "--batch", "12", "--epochs", "9"])

    def test_cnn(self):
        data = self.make_data(train=50, side=16)
        self.compare(
            ["--model", "cnn", "--data", data, "--batch", "12", "--epochs", "9", "--lr", "0.01"]
        )

    def test_resnet18(self):
        data = self.make_data(train=24, side=12)
        arguments = ["--model", "resnet18", "--data", data, "--batch", "8", "--epochs", "9"]
        self.compare(arguments + ["--norm", "none", "--lr", "0.02"])
        # Normalized activations are so dense around 0 that within a few steps one of them rounds to
        # the other side of a ReLU, which no order of addition prevents: one step shows the sums.
        self.compare(arguments + ["--norm", "group", "--lr", "0.02"], steps=1)

    def test_gpt(self):
        with open(self.path("text"), "w") as file:
            file.write("\n".join(f"{i} squared is {i * i}" for i in range(400)))
        self.compare(
            ["--model", "gpt", "--dataset", "text", "--data", self.path("text"), "--batch", "10"]
            + ["--layers", "2", "--width", "64", "--length", "32", "--optimizer", "sgd", "--lr", "0.01"]
        )

    def test_tcp_and_shared_memory_give_the_same_bits(self):
        data = self.make_data(train=50)
        arguments = ["--model", "mlp", "--data", data, "--batch", "12", "--epochs", "9"] + fixed()
        shared = self.train(3, arguments)
        tcp = self.train(3, arguments, {"LOCKSTEP_TRANSPORT": "tcp"})
        self.assertNotEqual(shared["transport"], tcp["transport"])
        self.assertEqual(bytes_of(shared), bytes_of(tcp))
        self.assertEqual(bytes_of(shared), bytes_of(self.train(3, arguments)))

    def test_batch_norm_replicas_are_identical(self):
        data = self.make_data(train=24)
        arguments = ["--model", "resnet18", "--data", data, "--batch", "8", "--lr", "0.01"]
        report = self.train(2, arguments + ["--steps", "3", "--check-replicas", "1", "--epochs", "1"])
        self.assertEqual(len(set(report["parameter_checksum"])), 1)
        state = state_of(report)
        self.assertEqual(state["bn1.num_batches_tracked"].item(), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""The models of lockstep/train and bench/ddp as one writes them in Python: the same parameters and
buffers by the same names, the same operations in the same order."""

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    def __init__(self, pixels=784, classes=10):
        super().__init__()
        self.fc1 = nn.Linear(pixels, 1024)
        self.fc2 = nn.Linear(1024, 1024)
        self.fc3 = nn.Linear(1024, classes)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x.flatten(1))))))


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


class ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self, channels=3, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = [64, 64, 128, 256, 512]
        for i in range(4):
            layer = nn.Sequential(ResidualBlock(widths[i], widths[i + 1], 1 if i == 0 else 2),
                                  ResidualBlock(widths[i + 1], widths[i + 1], 1))
            self.add_module(f"layer{i + 1}", layer)
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, mask):
        samples, length, width = x.shape
        parts = self.qkv(x).view(samples, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scale = (width // self.heads) ** -0.5
        weights = torch.softmax(torch.matmul(query * scale, key.transpose(2, 3)) + mask, -1)
        return self.out(torch.matmul(weights, value).transpose(1, 2).reshape(x.shape))


class TransformerBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x, mask):
        x = x + self.attention(self.norm1(x), mask)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, layers=4, width=256, heads=4, vocabulary=4096, length=64):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02)
            elif "norm" not in name:
                nn.init.zeros_(parameter)
        self.mask = torch.full((length, length), -torch.inf).triu(1)

    def forward(self, x):
        length = x.shape[1]
        x = self.tokens(x) + self.positions.weight[:length]
        mask = self.mask[:length, :length]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x)).flatten(0, 1)


class ManySmall(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(32, 32) for _ in range(500))

    def forward(self, x):
        total = self.parts[0](x)
        for part in self.parts[1:]:
            total = total + part(x)
        return total


def make_model(name):
    return {"mlp": Mlp, "cnn": Cnn, "resnet18": ResNet18, "gpt": Gpt, "small": ManySmall}[name]()


def make_samples(name, batch):
    """What the model takes, and a target for each row that it gives."""
    if name == "gpt":
        return torch.randint(4096, (batch, 64)), torch.randint(4096, (batch * 64,))
    shape = {"small": (32,), "resnet18": (3, 32, 32)}.get(name, (1, 28, 28))
    return torch.randn(batch, *shape), torch.randint(10, (batch,))

"""The models of the benchmarks: a GPT with its head, and an image classifier."""

from __future__ import annotations

import copy
import importlib.util
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn import functional as F

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_gpt.py"
PATCH = 16
CHANNELS = 3
LARGE = 500_000_000
"""Parameters of a model that may not fit a part before it is sharded."""


@dataclass(frozen=True)
class Shape:
    """Of a model: ``sequence`` counts tokens (GPT) or patches of 16 x 16 (ViT), ``vocab`` the
    outputs of the head."""

    kind: str
    layers: int
    width: int
    heads: int
    sequence: int
    vocab: int

    @property
    def parameters(self) -> int:
        """Weights that a sample is multiplied with."""
        return self.layers * 12 * self.width**2 + self.width * self.vocab

    @property
    def flop_per_sample(self) -> float:
        """Forward and backward without recomputation: 6 for each weight and token, and the products
        of attention (4 s² w forward for each layer, the causal half of it for a GPT)."""
        causal = 0.5 if self.kind == "gpt" else 1.0
        head_rows = self.sequence if self.kind == "gpt" else 1
        blocks = 6 * self.layers * 12 * self.width**2 * self.sequence
        attention = 3 * 4 * self.layers * self.sequence**2 * self.width * causal
        return blocks + attention + 6 * self.width * self.vocab * head_rows


def _example():
    spec = importlib.util.spec_from_file_location("train_gpt", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Layer(nn.Module):
    """A transformer layer without a mask."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Classifier(nn.Module):
    """Mean over the patches, classes, loss of every sample."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x, labels):
        return F.cross_entropy(self.out(self.norm(x).mean(1)).float(), labels, reduction="none")


class ViT(nn.Module):
    """Patches of an image as floats, already unfolded; the loss of every sample."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.patches = nn.Linear(CHANNELS * PATCH**2, shape.width)
        self.position = nn.Parameter(torch.zeros(1, shape.sequence, shape.width))
        self.blocks = nn.ModuleList(Layer(shape.width, shape.heads) for _ in range(shape.layers))
        self.head = Classifier(shape.width, shape.vocab)

    def forward(self, images, labels):
        x = self.patches(images) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(x, labels)


def make(shape: Shape) -> nn.Module:
    """The model on the current default device."""
    if shape.kind == "vit":
        return ViT(shape)
    options = {"vocab": shape.vocab, "width": shape.width, "sequence": shape.sequence}
    options |= {"layers": shape.layers, "heads": shape.heads, "dropout": 0.0}
    return _example().GPT(Namespace(**options))


def units(model: nn.Module) -> list[nn.Module]:
    """What is given to fully_shard, in order."""
    return [*model.blocks, model.head, model]


def batch(shape: Shape, samples: int, seed: int) -> list[torch.Tensor]:
    """The arguments of the model for a global batch, the same on every rank: drawn on the
    processor, since what a GPU draws depends on how many multiprocessors it has."""
    generator = torch.Generator().manual_seed(seed)
    if shape.kind == "vit":
        size = (samples, shape.sequence, CHANNELS * PATCH**2)
        images = torch.randn(size, generator=generator)
        labels = torch.randint(0, shape.vocab, (samples,), generator=generator)
        return [images, labels]
    size = (samples, shape.sequence + 1)
    return [torch.randint(0, shape.vocab, size, generator=generator)]


def small(shape: Shape) -> nn.Module:
    """A model on the processor with the same random weights every time."""
    if shape not in _made:
        torch.manual_seed(1)
        _made[shape] = make(shape)
    return copy.deepcopy(_made[shape])


_made: dict[Shape, nn.Module] = {}


def build(
    shape: Shape,
    device: torch.device,
    fully_shard: Callable[..., nn.Module],
    policy: object,
    recompute: bool = False,
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model with random weights, sharded, and its optimizer. Small models are made whole on
    the processor, with the same weights however they are sharded; large ones get theirs piece by
    piece."""
    whole = shape.parameters < LARGE
    if whole:
        model = small(shape)
    else:
        with torch.device("meta"):
            model = make(shape)
    if recompute:
        model.blocks = nn.ModuleList(checkpoint_wrapper(block) for block in model.blocks)
    for unit in units(model):
        fully_shard(unit, mp_policy=policy)
    if not whole:
        model.to_empty(device=device)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.02)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)

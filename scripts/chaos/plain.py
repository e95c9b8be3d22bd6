"""What the training should give: the same steps in one process, without FSDP and cephalorun.

plain.py SCRIPT RANKS OUT [arguments of the script]

Trains as many steps as --steps says and writes the weights to OUT, as JSON. A step has the samples
that RANKS ranks of the script would have had together.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch
from torch.utils.data import DataLoader, DistributedSampler


def load(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("script", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def global_batches(script: ModuleType, args: argparse.Namespace, ranks: int) -> Iterator:
    """The samples of all ranks, step by step, for ever."""
    text = script.Text(args.data, args.sequence)
    samplers = [
        DistributedSampler(text, ranks, rank, shuffle=True, seed=args.seed, drop_last=True)
        for rank in range(ranks)
    ]
    loaders = [DataLoader(text, args.batch_size, sampler=s, drop_last=True) for s in samplers]
    epoch = 0
    while True:
        for sampler in samplers:
            sampler.set_epoch(epoch)
        for batches in zip(*loaders):
            yield torch.cat(batches)
        epoch += 1


def main() -> None:
    script, ranks, out = load(Path(sys.argv[1])), int(sys.argv[2]), Path(sys.argv[3])
    sys.argv[1:] = sys.argv[4:]
    args = script.arguments()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = script.GPT(args)
    if args.dtype == "fp64":
        model.double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    batches = global_batches(script, args, ranks)
    for _ in range(args.steps):
        model(next(batches)).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        optimizer.zero_grad()
    weights = {name: value.flatten().tolist() for name, value in model.state_dict().items()}
    beside = out.with_suffix(".writing")
    beside.write_text(json.dumps(weights))
    os.replace(beside, out)


if __name__ == "__main__":
    main()

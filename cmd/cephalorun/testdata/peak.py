"""One rank: measures a small GPT with a large head, then trains it by plans and notes its peaks.

peak.py FOLDER PLANS: the rank files of the measurement are put into FOLDER/measure, the peak bytes
of a step under each plan of the file PLANS (a list of plans v1) into FOLDER/peaks-RANK.json.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from cephalo import memory, runtime, sharding
from cephalo.gathered import FlatBuffer
from cephalo.memory import _StorageWatch
from cephalo.plan import parse_plan
from cephalo.runtime import Runtime
from profiled import Run

VOCAB, WIDTH, SEQUENCE, LAYERS, HEADS = 4096, 64, 32, 4, 4
ADAMW = functools.partial(torch.optim.AdamW, lr=1e-3)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        qkv = self.qkv(self.before(x)).view(batch, length, 3, HEADS, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, x, targets):
        logits = self.out(self.norm(x))
        return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(1)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = Head()

    def forward(self, tokens, targets):
        x = self.token(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x, targets)


def units(model: GPT) -> list[nn.Module]:
    return [*model.blocks, model.head, model]


class Watch(_StorageWatch):
    """Counts gathered buffers too: their storages grow and shrink, which no operator does."""

    def __init__(self) -> None:
        super().__init__()
        start, free, watch = FlatBuffer.start_gather, FlatBuffer.free, self

        def start_gather(buffer: FlatBuffer) -> None:
            if not buffer.full.untyped_storage().nbytes():
                watch.live += buffer.full.nbytes
                watch.peak = max(watch.peak, watch.live)
            start(buffer)

        def freed(buffer: FlatBuffer) -> None:
            watch.live -= buffer.full.untyped_storage().nbytes()
            free(buffer)

        self._before = (start, free)
        FlatBuffer.start_gather, FlatBuffer.free = start_gather, freed

    def __exit__(self, *failure) -> None:
        FlatBuffer.start_gather, FlatBuffer.free = self._before
        super().__exit__(*failure)


def held(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of this rank's parameters and of the optimizer's state."""
    state = [x for s in optimizer.state.values() for x in s.values() if torch.is_tensor(x)]
    tensors = [*model.parameters(), *(x for x in state if x.dim())]
    return sum((x.to_local() if isinstance(x, DTensor) else x).nbytes for x in tensors)


def peak(plan: dict) -> int:
    made = Runtime(parse_plan(plan), torch.device("cpu"))
    runtime.install(lambda: made)
    torch.manual_seed(0)
    model = GPT()
    for unit in units(model):
        sharding.fully_shard(unit)
    optimizer = ADAMW(model.parameters())
    batch = made.part.batch
    made.samples_of_batch = lambda: batch

    def step() -> None:
        tokens = torch.randint(0, VOCAB, (max(1, batch), SEQUENCE + 1))
        model(tokens[:, :-1], tokens[:, 1:]).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    step()
    with Watch() as watch:
        step()
    return watch.peak + held(model, optimizer)


def main() -> None:
    folder, plans = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    memory.data_bytes = lambda: 0  # what an allocator takes beside tensors is not watched here
    run = Run(str(folder), dist.get_world_size(), model=GPT, units=units, optimizer=ADAMW)
    run.tokens = torch.randint(0, VOCAB, (3, SEQUENCE + 1))
    run.measure()
    del run
    peaks = [peak(plan) for plan in plans]
    (folder / f"peaks-{dist.get_rank()}.json").write_text(json.dumps(peaks))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

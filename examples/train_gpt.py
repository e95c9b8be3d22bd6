"""Train a small GPT on bytes with FSDP2.

    torchrun --nproc-per-node 2 examples/train_gpt.py --steps 200

The text is the source code of Python's standard library, or the file given with --data.
"""

import argparse
import os
import sysconfig
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Text(Dataset):
    """Consecutive pieces of `sequence` bytes, each with the byte that follows it."""

    def __init__(self, file, sequence, limit=16 << 20):
        content = bytearray(file.read_bytes() if file else standard_library(limit))
        self.data, self.sequence = torch.frombuffer(content, dtype=torch.uint8), sequence

    def __len__(self):
        return (len(self.data) - 1) // self.sequence

    def __getitem__(self, index):
        start = index * self.sequence
        return self.data[start : start + self.sequence + 1].long()


def standard_library(limit):
    """The first `limit` bytes of the standard library's source files, in order of their names."""
    root, text = Path(sysconfig.get_path("stdlib")), bytearray()
    for path in sorted(root.rglob("*.py")):
        if len(text) < limit and not {"site-packages", "dist-packages"} & set(path.parts):
            text += path.read_bytes()
    return text[:limit]


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        x = x + F.dropout(self.proj(y.transpose(1, 2).flatten(2)), dropout)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), dropout)


class Head(nn.Module):
    """Norm, vocabulary and loss in one, so that a unit of FSDP holds all of it."""

    def __init__(self, width, vocab):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, x, targets):
        logits = self.out(self.norm(x))
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        return loss.view_as(targets).mean(1)


class GPT(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.token = nn.Embedding(args.vocab, args.width)
        self.position = nn.Embedding(args.sequence, args.width)
        blocks = (Block(args.width, args.heads, args.dropout) for _ in range(args.layers))
        self.blocks, self.head = nn.ModuleList(blocks), Head(args.width, args.vocab)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                residual = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * args.layers) ** (0.5 * residual))

    def forward(self, tokens):
        """The mean loss of every sample: a tensor of [batch]."""
        x, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.token(x) + self.position(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x, targets)


def build(args, device):
    torch.manual_seed(args.seed)  # the same weights on every rank
    model = GPT(args)
    if args.dtype == "fp64":
        model.double()
    if args.checkpointing:
        model.blocks = nn.ModuleList(checkpoint_wrapper(block) for block in model.blocks)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = bf16 if args.dtype == "bf16" else MixedPrecisionPolicy()
    for unit in (*model.blocks, model.head, model):
        fully_shard(unit, mesh=mesh, mp_policy=policy)
    torch.manual_seed(args.seed + dist.get_rank())  # different dropout
    return model, torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))


def total(values, device):
    """Sums a few numbers over all ranks."""
    values = torch.as_tensor(values, dtype=torch.float32, device=device)
    dist.all_reduce(values)
    return values.tolist()


def batches(loader, device, skip):
    """Batches for ever, without the first `skip` samples, counted over all ranks."""
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        for tokens in loader:
            if skip > 0:
                skip -= total([len(tokens)], device)[0]
            else:
                yield tokens.to(device, non_blocking=True)
        epoch += 1


def train_step(model, optimizer, data, args):
    """Returns the sum of the losses and the number of the samples of this rank."""
    losses, samples = 0.0, 0
    for index in range(args.accumulate):
        model.set_requires_gradient_sync(index == args.accumulate - 1)
        loss = model(next(data))
        (loss.mean() / args.accumulate).backward()
        losses, samples = losses + loss.detach().sum(), samples + len(loss)
    nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()
    optimizer.zero_grad()
    return losses, samples


def save(args, model, optimizer, progress):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "progress": progress}
    dcp.save(state, checkpoint_id=args.checkpoint / f"step-{progress[0]:06d}")


def resume(args, model, optimizer, progress):
    """Loads the newest whole checkpoint, if there is one, into all three."""
    newest = max(args.checkpoint.glob("step-*/.metadata"), default=None)
    if newest:
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state, "progress": progress}
        dcp.load(state, checkpoint_id=newest.parent)
        set_state_dict(
            model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state
        )


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a file to train on")
    parser.add_argument("--steps", type=int, default=200, help="the last step")
    parser.add_argument("--batch-size", type=int, default=8, help="samples of a rank at a time")
    parser.add_argument("--accumulate", type=int, default=1, help="batches to one step")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--dtype", choices=("fp32", "bf16", "fp64"), default="fp32")
    parser.add_argument("--checkpointing", action="store_true", help="recompute the blocks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-every", type=int, default=1, help="steps from line to line")
    parser.add_argument("--checkpoint", type=Path, help="a folder for checkpoints")
    parser.add_argument("--save-every", type=int, default=0, help="steps; 0: only at the end")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    parser.add_argument("--backend", help="of torch.distributed (default: nccl or gloo)")
    args = parser.parse_args()
    if (args.resume or args.save_every) and not args.checkpoint:
        parser.error("--resume and --save-every need --checkpoint DIR")
    return args


def main():
    args, cuda = arguments(), torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(args.backend or ("nccl" if cuda else "gloo"))
    model, optimizer = build(args, device)
    text = Text(args.data, args.sequence)
    sampler = DistributedSampler(text, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(text, args.batch_size, sampler=sampler, drop_last=True)
    progress = torch.zeros(2, dtype=torch.int64)  # steps done, samples seen by all ranks
    if args.resume:
        resume(args, model, optimizer, progress)
    step, seen = progress.tolist()
    data, start, logged = batches(loader, device, skip=seen), time.perf_counter(), seen
    while step < args.steps:
        loss, samples = total(train_step(model, optimizer, data, args), device)
        step, seen = step + 1, seen + int(samples)
        if dist.get_rank() == 0 and (step % args.log_every == 0 or step == args.steps):
            now = time.perf_counter()
            speed = (seen - logged) / (now - start)
            print(f"step {step:5d}  loss {loss / samples:.5f}  samples/s {speed:.1f}", flush=True)
            start, logged = now, seen
        due = args.save_every and step % args.save_every == 0
        if args.checkpoint and (due or step == args.steps):
            save(args, model, optimizer, torch.tensor([step, seen]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

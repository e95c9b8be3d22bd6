"""A user's script for the benchmarks' models: train.py SHAPE_JSON [--dtype bf16] [--steps N].

FSDP2 on data at random, so that cephalorun can measure the model and train it as any other.
"""

import argparse
import json
import os
import time

import models
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Random(Dataset):
    """Samples of a model's shape, each from its own number."""

    def __init__(self, shape):
        self.shape = shape

    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        return [x[0] for x in models.batch(self.shape, 1, index)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", type=json.loads)
    parser.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    shape, cuda = models.Shape(**args.shape), torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    compute = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[args.dtype]
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32)
    model, optimizer = models.build(shape, device, fully_shard, policy)
    data = Random(shape)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    start = time.perf_counter()
    for step, batch in enumerate(
        DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    ):
        if step == args.steps:
            break
        losses = model(*(x.to(device) for x in batch))
        losses.mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step + 1}  {time.perf_counter() - start:.2f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

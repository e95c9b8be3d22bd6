"""Whether a part of a GPU computes rightly at all.

CUDA's matrix libraries choose tiles by the number of multiprocessors they see. Limited by MPS to
some counts they return wrong products without an error (docs/devices.md has the table): whole tiles
are missing, for some shapes only. So a part is asked before it may train.
"""

from __future__ import annotations

import torch

ROWS = (1, 16, 64, 256, 512, 1536, 2048, 4608, 13312)
WIDTHS = (
    (1024, 1024),
    (1024, 3072),
    (1024, 4096),
    (4096, 1024),
    (768, 2304),
    (3072, 768),
    (1024, 1000),
    (512, 512),
)
"""(inputs, outputs) of linear layers. Forward and both gradients of each, at each number of rows,
are what told sound parts from unsound ones: few rows by 1000 outputs, as a classifier has, go wrong
on parts that get all larger ones right."""

TOLERANCE = 0.02
"""Largest error of a 16-bit product, as a part of its largest value; rounding stays under 0.006."""


class UnsoundDevice(RuntimeError):
    """The device returns wrong products."""


def check_products(device: torch.device, name: str) -> None:
    """Compare 16-bit products with fp32 ones on ``device``. Takes about a second.

    Raises UnsoundDevice that names the part. A shape that does not fit its memory is left out.
    """
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    dtype = torch.bfloat16 if native else torch.float16
    with torch.random.fork_rng([device]):
        torch.cuda.manual_seed(0)
        for inputs, outputs in WIDTHS:
            for rows in ROWS:
                try:
                    error = _error(rows, inputs, outputs, dtype, device)
                except torch.OutOfMemoryError:
                    continue
                if not error <= TOLERANCE:
                    count = torch.cuda.get_device_properties(device).multi_processor_count
                    raise UnsoundDevice(
                        f"device {name} ({count} multiprocessors) computes wrong {dtype} products: "
                        f"a linear layer of {inputs} to {outputs} over {rows} rows is off by "
                        f"{_percent(error)}. The CUDA libraries do not serve this number of "
                        f"multiprocessors: choose another sm_percent (on an H200 10, 12, 25, 27, "
                        f"48 and 50 are right)"
                    )
    torch.cuda.empty_cache()


def _percent(error: float) -> str:
    return f"{error:.0%}" if error < 1 else "more than 100%"


def _error(rows: int, inputs: int, outputs: int, dtype: torch.dtype, device: torch.device) -> float:
    """Largest error of a linear layer's result and gradients, as a part of their largest value."""
    x = torch.randn(rows, inputs, device=device).to(dtype)
    weight = torch.randn(outputs, inputs, device=device).to(dtype)
    grad = torch.randn(rows, outputs, device=device).to(dtype)
    products = ((x, weight.t()), (grad, weight), (grad.t(), x))
    worst = 0.0
    for left, right in products:
        expected = left.float() @ right.float()
        off = (left @ right).float().sub_(expected).abs_().max().nan_to_num(float("inf"))
        worst = max(worst, float(off / expected.abs().max()))
    return worst

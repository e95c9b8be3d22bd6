"""Whether a part of a GPU computes rightly at all.

CUDA's matrix libraries choose tiles by the number of multiprocessors they see. Limited by MPS to
some counts they return wrong products without an error: seen with CUDA 13.0 on an H200 at 38, 46,
50, 52 and 78 of 132 multiprocessors (30, 36, 39, 40 and 60 percent), right at 12, 18, 26, 32, 58
and 66 (10, 15, 20, 25, 45 and 50 percent). So a part is asked before it may train.
"""

from __future__ import annotations

import torch

SHAPES = (
    (2048, 1024, 3072),
    (4096, 1024, 3072),
    (4608, 1024, 3072),
    (4608, 4096, 1024),
    (4608, 1024, 16384),
    (2048, 1024, 16384),
    (4096, 4096, 4096),
)
"""(rows, inner, columns) of products that went wrong on some parts, or stand for common sizes."""

TOLERANCE = 0.02
"""Largest error of a 16-bit product, as a part of its largest value; rounding stays under 0.006."""


class UnsoundDevice(RuntimeError):
    """The device returns wrong products."""


@torch.no_grad()
def check_products(device: torch.device, name: str) -> None:
    """Compare 16-bit products with fp32 ones on ``device``. Takes well under a second.

    Raises UnsoundDevice that names the part. A shape that does not fit its memory is left out.
    """
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    generator = torch.Generator(device).manual_seed(0)
    for rows, inner, columns in SHAPES:
        try:
            error = _error(rows, inner, columns, dtype, device, generator)
        except torch.OutOfMemoryError:
            continue
        if not error <= TOLERANCE:
            count = torch.cuda.get_device_properties(device).multi_processor_count
            raise UnsoundDevice(
                f"device {name} ({count} multiprocessors) computes wrong {dtype} products: "
                f"{rows}x{inner} by {inner}x{columns} is off by {error:.0%}. The CUDA libraries do "
                f"not serve this number of multiprocessors; choose another sm_percent for it "
                f"(10, 15, 20, 25, 45 and 50 are right on an H200)"
            )
    torch.cuda.empty_cache()


def _error(rows, inner, columns, dtype, device, generator) -> float:
    a = torch.randn(rows, inner, device=device, generator=generator).to(dtype)
    b = torch.randn(columns, inner, device=device, generator=generator).to(dtype)
    bias = torch.randn(columns, device=device, generator=generator).to(dtype)
    right = torch.addmm(bias.float(), a.float(), b.float().t())
    worst = 0.0
    for _ in range(3):
        off = torch.nn.functional.linear(a, b, bias).float().sub_(right).abs_().max()
        worst = max(worst, float(off.nan_to_num(float("inf")) / right.abs().max()))
    return worst

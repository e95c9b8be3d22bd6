"""torch.compile sees what modules compute, never how units are run. Nothing here loads it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def uncompiled() -> Iterator[None]:
    """Compiled modules run as they are written: for calls with other numbers of samples, whose
    shapes would make the compiler leave the fixed shapes of training."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield

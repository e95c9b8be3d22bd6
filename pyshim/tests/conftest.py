"""Shared fixtures: ``ranks`` runs a function on several Gloo ranks of one machine."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo  # noqa: F401  (optimizers import it: once here, not once per rank)
import torch.distributed.checkpoint.state_dict  # noqa: F401

import ranks as _ranks


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Keep this process free of worker threads, which a fork would not copy."""
    torch.set_num_threads(1)


@pytest.fixture
def ranks():
    """``ranks(world, function, *args)``: results in rank order; see ranks.run."""
    return _ranks.run

"""Shared fixtures: ``ranks`` runs a function on several Gloo ranks of one machine.

Imports what the ranks would otherwise import one by one after the fork: optimizers pull in
``torch._dynamo``, which takes seconds.
"""

from __future__ import annotations

import pytest
import torch
import torch._dynamo
import torch.distributed.checkpoint.state_dict

import ranks as _ranks


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Keep this process free of worker threads, which a fork would not copy."""
    torch.set_num_threads(1)


@pytest.fixture
def ranks():
    """``ranks(world, function, *args)``: results in rank order; see ranks.run."""
    return _ranks.run

"""Cutting calls into microbatches and joining the results."""

from __future__ import annotations

import pytest
import torch

from cephalo import compat
from cephalo.batch import (
    Joiner,
    flatten_call,
    local_batch,
    microbatch_bounds,
    take_samples,
    unflatten_call,
)
from cephalo.precision import cast_call
from cephalo.probing import BufferGuard, carriers, note_call, sign, with_samples


def every(flags):
    return list(flags)


def signature(function, build, obstacle=""):
    """Sign ``function`` called with ``build(samples)`` -> (args, kwargs)."""
    calls = []
    for samples in (2, 3):
        args, kwargs = build(samples)
        leaves, spec = flatten_call(args, kwargs)
        calls.append([note_call(leaves, spec, function(*args, **kwargs))])
    return sign(*calls, obstacle)


def test_nested_arguments_are_cut_where_the_batch_is():
    def call(x, pair, *, mask, scale, nothing):
        return {"y": x + pair[0] * scale, "z": (x, None)}

    def build(n):
        x = torch.zeros(n, 4, 8)
        return (x, (torch.ones(n, 1, 1), "tag")), {
            "mask": torch.zeros(4, 4), "scale": 2.0, "nothing": None
        }  # fmt: skip

    found = signature(call, build)
    assert found.layered and found.reason == ""
    leaves, spec = flatten_call(*build(5))
    assert [k for k, cut in zip(leaves, found.cut) if cut] == [leaves[0], leaves[1]] or sum(
        found.cut
    ) == 2
    assert found.batch_of(leaves, spec) == 5
    args, kwargs = unflatten_call(leaves, spec)
    assert args[1][1] == "tag" and kwargs["scale"] == 2.0


@pytest.mark.parametrize("fixed", [2, 3])
def test_a_size_that_only_equals_the_number_of_samples_is_not_a_batch(fixed):
    found = signature(
        lambda x, m: x, lambda n: ((torch.zeros(n, 4), torch.zeros(fixed, fixed)), {})
    )
    assert found.layered and found.cut == (True, False)


NOT_LAYERED = {
    "a scalar output": (lambda x: (x, x.sum()), "output of shape"),
    "an output of fixed size": (lambda x: (x, torch.zeros(2)), "output of shape"),
    "an output with the batch elsewhere": (lambda x: x.transpose(0, 1), "output of shape"),
    "a number": (lambda x: (x, x.shape[0]), "an output is a int"),
}


@pytest.mark.parametrize("name", NOT_LAYERED)
def test_what_cannot_be_cut(name):
    function, reason = NOT_LAYERED[name]
    found = signature(function, lambda n: ((torch.zeros(n, 4),), {}))
    assert not found.layered and reason in found.reason
    leaves, spec = flatten_call((torch.zeros(5, 4),), {})
    assert found.batch_of(leaves, spec) is None


def test_no_argument_with_the_batch_and_obstacles():
    found = signature(lambda x: x, lambda n: ((torch.zeros(7, n),), {}))
    assert not found.layered and "no argument" in found.reason
    found = signature(lambda x: x, lambda n: ((torch.zeros(n, 7),), {}), "it is special")
    assert not found.layered and found.reason == "it is special"


def test_units_called_twice_or_not_at_all():
    leaves, spec = flatten_call((torch.zeros(2, 4),), {})
    call = note_call(leaves, spec, torch.zeros(2, 4))
    assert "called 2 times" in sign([call, call], [call, call], "").reason
    assert not sign([call], [], "").layered and not sign([], [call], "").layered


def test_a_later_call_of_another_kind_is_not_cut():
    found = signature(lambda x, m: x, lambda n: ((torch.zeros(n, 4), None), {}))
    assert found.layered

    def batch(*args):
        return found.batch_of(*flatten_call(args, {}))

    assert batch(torch.zeros(6, 4), None) == 6
    assert batch(torch.zeros(6, 4), torch.zeros(6, 4)) is None
    assert batch(torch.zeros(6, 4, 2), None) is None
    both = signature(lambda x, y: x, lambda n: ((torch.zeros(n), torch.zeros(n)), {}))
    assert both.batch_of(*flatten_call((torch.zeros(6), torch.zeros(5)), {})) is None


BOUNDS = {
    "as planned": (9, [4, 4, 1], [(0, 4), (4, 8), (8, 9)]),
    "fewer samples": (6, [4, 4, 1], [(0, 4), (4, 6)]),
    "more samples": (13, [4, 4, 1], [(0, 4), (4, 8), (8, 12), (12, 13)]),
    "a rank that only takes part": (1, [], [(0, 1)]),
    "no sample": (0, [2, 2], [(0, 0)]),
    "one at a time": (3, [1, 1, 1], [(0, 1), (1, 2), (2, 3)]),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name):
    batch, planned, wanted = BOUNDS[name]
    assert microbatch_bounds(batch, planned) == wanted


def test_local_batch():
    leaves = [torch.zeros(()), 3, torch.zeros(7, 7), torch.zeros(5, 2)]
    assert local_batch(leaves) == 7 and local_batch(leaves, 5) == 5 and local_batch(leaves, 4) == 7
    assert local_batch([1, None]) is None


def test_take_samples():
    x, mask = torch.arange(6.0).view(2, 3), torch.eye(2)
    more = take_samples([x, mask, "text"], [True, False, False], 3)
    assert torch.equal(more[0], x[[0, 1, 0]]) and more[1] is mask and more[2] == "text"
    assert torch.equal(take_samples([x], [True], 1)[0], x[:1])
    assert torch.equal(take_samples([x[:0]], [True], 2)[0], torch.zeros(2, 3))


def test_carriers():
    x, y, mask, bias = torch.zeros(4, 6), torch.zeros(4), torch.zeros(4, 4), torch.zeros(6)
    assert carriers([x, y, bias], 4, every) == [[True, True, False]]
    answers = carriers([x, y, mask], 4, every)
    assert answers[0] == [True, True, True] and [True, True, False] in answers and len(answers) == 4
    assert carriers([x, y, mask], 4, lambda flags: [True, True, False])[0] == [True, True, False]


def test_the_first_answer_that_works_is_kept():
    leaves, seen = [torch.zeros(4, 4), torch.zeros(4, 4)], []

    def run(sampled):
        seen.append([x.shape[0] for x in sampled])
        if sampled[1].shape[0] != 4:
            raise RuntimeError("the mask must be whole")

    answers = carriers(leaves, 4, every)
    left = with_samples(leaves, answers, 2, run)
    assert left[0] == [True, False] and seen[-1] == [2, 4]
    with pytest.raises(RuntimeError, match="the mask must be whole"):
        with_samples(leaves, [[True, True]], 2, run)


def test_joining():
    joiner = Joiner(5, [])
    for start, end in ((2, 5), (0, 2)):
        joiner.add(start, end, {"y": torch.arange(start, end).float(), "n": None, "s": "same"})
    assert torch.equal(joiner.leaves[0], torch.arange(5).float()) and joiner.leaves[1:] == [
        None,
        "same",
    ]


BAD_RESULTS = {
    "no batch": ([torch.zeros(()), torch.zeros(())], "does not carry them"),
    "broadcast": ([torch.zeros(1, 3), torch.zeros(1, 3)], "does not carry them"),
    "another value": (["a", "b"], "different values"),
    "a value for a tensor": ([torch.zeros(2), "b"], "different values"),
    "another structure": ([(1,), [1]], "different structures"),
}


@pytest.mark.parametrize("name", BAD_RESULTS)
def test_results_that_cannot_be_joined(name):
    (first, second), message = BAD_RESULTS[name]
    joiner = Joiner(4, [])
    with pytest.raises(RuntimeError, match=message):
        joiner.add(0, 2, first)
        joiner.add(2, 4, second)


def test_a_result_that_is_the_input_is_copied():
    x = torch.ones(3)
    joiner = Joiner(3, [x])
    joiner.add(0, 3, x)
    assert joiner.leaves[0] is not x and torch.equal(joiner.leaves[0], x)


def test_buffers_are_put_back():
    module = torch.nn.Module()
    module.register_buffer("count", torch.zeros(2))
    module.register_buffer("other", torch.ones(2))
    module.register_buffer("replaced", torch.ones(1))
    other, guard = module.other, BufferGuard(module)
    module.count += 1
    before = module.replaced
    module.replaced = torch.zeros(4)
    assert guard.restore() == {id(module.count), id(before)}
    assert module.count.tolist() == [0, 0] and module.replaced is before and module.other is other


def test_calls_without_nesting_walk_no_tree(monkeypatch):
    x = torch.zeros(2, 3)
    flatten_call((x, None), {"mask": None, "scale": 2.0})  # the nesting is learnt once
    walks = []
    for name in ("tree_flatten", "tree_unflatten"):
        walk = getattr(compat, name)
        monkeypatch.setattr(compat, name, lambda *a, walk=walk: walks.append(1) or walk(*a))
    leaves, spec = flatten_call((x, None), {"mask": None, "scale": 3.0})
    args, kwargs = unflatten_call(leaves, spec)
    assert args == (x, None) and kwargs == {"mask": None, "scale": 3.0} and not walks
    leaves, spec = flatten_call(([x],), {})
    assert unflatten_call(leaves, spec) == (([x],), {}) and len(walks) == 2


def test_nesting_compares_by_its_tree_whatever_the_leaves():
    class Other:
        """A leaf that is not known for one."""

    plain = flatten_call((1, None), {"a": 2})[1]
    assert plain == flatten_call((Other(), Other()), {"a": Other()})[1]
    assert str(plain) == str(flatten_call((Other(), 1), {"a": 1})[1])
    assert plain != flatten_call((1, None), {"b": 2})[1]
    assert plain != flatten_call((1, [None]), {"a": 2})[1]
    assert plain != flatten_call((1,), {"a": 2})[1]


@pytest.mark.parametrize("nested", [False, True])
def test_cast_call_casts_floating_tensors_alone(nested):
    x, index = torch.full((2,), 1 / 3), torch.tensor([1, 2])
    args, kwargs = cast_call(([x, index],) if nested else (x, index), {"k": x}, torch.bfloat16)
    first, second = args[0] if nested else args
    assert torch.equal(first, x.bfloat16()) and first.dtype == kwargs["k"].dtype == torch.bfloat16
    assert second is index
    again = cast_call(args, kwargs, torch.bfloat16)
    assert again[0] is args and again[1] is kwargs

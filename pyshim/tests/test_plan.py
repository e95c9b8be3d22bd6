"""Plans: read strictly, dealt alike on every rank."""

from __future__ import annotations

import copy
import json
import random

import pytest

from cephalo.classes import class_name, possible_names, root_name, twin_name
from cephalo.plan import PPM, even_plan, load_plan, parse_plan

GOOD = {
    "version": 1,
    "strategy": "cephalo",
    "global_batch": 9,
    "shares": "ragged",
    "ranks": [
        {"rank": 0, "device": "big", "batch": 6, "micro_batches": [4, 2], "state_ppm": 700_000,
         "activations": "recompute", "predicted": {"forward_ms": 1.5}},
        {"rank": 1, "device": "small", "batch": 3, "micro_batches": [1, 1, 1],
         "state_ppm": 300_000, "activations": "keep"},
        {"rank": 2, "device": "idle", "batch": 0, "micro_batches": [], "state_ppm": 0,
         "activations": "keep"},
    ],
    "alternatives": [],
}  # fmt: skip


def changed(path, value):
    raw = copy.deepcopy(GOOD)
    *way, last = path
    place = raw
    for step in way:
        place = place[step]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return raw


def test_a_good_plan():
    plan = parse_plan(GOOD)
    assert plan.world_size == 3 and plan.batches == (6, 3, 0)
    assert plan.state_ppm == (700_000, 300_000, 0) and plan.shares == "ragged"
    assert plan.ranks[0].micro_batches == (4, 2) and plan.ranks[1].activations == "keep"


def with_classes(*shares):
    raw = copy.deepcopy(GOOD)
    for rank, named in zip(raw["ranks"], shares):
        rank["class_state_ppm"] = named
    return raw


def test_shares_of_classes():
    plan = parse_plan(
        with_classes(*({"Block": p, "Norm": q} for p, q in [(1, PPM), (PPM - 3, 0), (2, 0)]))
    )
    assert plan.shares_of(["Block"]) == (1, PPM - 3, 2)
    assert plan.shares_of(["Other", "Norm"]) == (PPM, 0, 0)
    assert plan.shares_of(["Other"]) == plan.shares_of(["Block", "Norm"]) == plan.state_ppm


def test_bad_shares_of_classes():
    for raw, message in (
        (with_classes({"Block": PPM}, {"Block": 0}, {"Block": 1}), "class_state_ppm.Block: the shares sum to 1000001"),
        (with_classes({"Block": PPM}, {"Block": 0}, {}), r"ranks\[2\].class_state_ppm: names \[\], and rank 0 names \['Block'\]"),
        (with_classes({"Block": PPM + 1}, {"Block": -1}, {"Block": 0}), r"ranks\[1\].class_state_ppm.Block: expected a count"),
        (with_classes({"Block": True}), "expected a count of 0 or more, found True"),
        (with_classes([PPM]), r"ranks\[0\].class_state_ppm: expected dict"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            parse_plan(raw)


def test_kept_units():
    assert parse_plan(GOOD).ranks[0].kept_units == {}
    plan = parse_plan(changed(("ranks", 0, "kept_units"), {"Block": 5}))
    assert plan.ranks[0].kept_units == {"Block": 5} and plan.ranks[1].kept_units == {}
    for bad in (5, {"Block": -1}, {"Block": "5"}):
        with pytest.raises(ValueError, match=r"ranks\[0\].kept_units"):
            parse_plan(changed(("ranks", 0, "kept_units"), bad))


def test_names_of_classes():
    """What a unit can be called in a profile is what the runtime looks for."""
    names = possible_names("Block", [12])
    for name in (
        root_name("Block"),
        class_name("Block", 12, alone=True),
        class_name("Block", 12, alone=False),
        twin_name("Block", 12, layered=True),
        twin_name("Block", 12, layered=False),
    ):
        assert name in names


BAD = {
    "another version": (("version",), 2, "version 2 is not 1"),
    "no version": (("version",), KeyError, "version None is not 1"),
    "no ranks": (("ranks",), KeyError, r"ranks: expected list"),
    "empty ranks": (("ranks",), [], "at least one rank"),
    "ranks is text": (("ranks",), "three", r"ranks: expected list, found 'three'"),
    "global batch as text": (("global_batch",), "9", "global_batch: expected int, found '9'"),
    "batches do not add up": (("global_batch",), 10, "10, but the ranks' batches sum to 9"),
    "shares do not add up": (("ranks", 2, "state_ppm"), 1, "sum to 1000001"),
    "negative batch": (("ranks", 2, "batch"), -1, r"ranks\[2\].batch, state_ppm"),
    "negative share": (("ranks", 2, "state_ppm"), -1, r"ranks\[2\].batch, state_ppm"),
    "a rank that is no object": (("ranks", 1), "small", r"ranks\[1\]: expected an object"),
    "a rank out of place": (("ranks", 1, "rank"), 2, r"ranks\[1\].rank: 2 stands at place 1"),
    "true is no number": (("ranks", 1, "batch"), True, r"ranks\[1\].batch: expected int, found True"),
    "microbatches do not add up": (("ranks", 1, "micro_batches"), [1, 1], "sum to 2, not to the batch of 3"),
    "an empty microbatch": (("ranks", 1, "micro_batches"), [3, 0], "counts of 1 or more"),
    "microbatch as text": (("ranks", 1, "micro_batches"), ["3"], "counts of 1 or more"),
    "unknown activations": (("ranks", 0, "activations"), "forget", "'forget' is none of keep, recompute, offload"),
    "device missing": (("ranks", 0, "device"), KeyError, r"ranks\[0\].device: expected str"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_plan(name):
    path, value, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        parse_plan(changed(path, value))


def test_files(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(GOOD))
    assert load_plan(path) == parse_plan(GOOD)
    path.write_text(json.dumps(GOOD)[:-40])
    with pytest.raises(ValueError, match="plan.json: not a whole JSON file"):
        load_plan(path)
    path.write_text(json.dumps(changed(("global_batch",), 1)))
    with pytest.raises(ValueError, match="plan.json: global_batch"):
        load_plan(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="plan.json: a plan is a JSON object"):
        load_plan(path)


def test_split_is_fair_and_whole():
    draw = random.Random(2)
    for _ in range(2000):
        batches = [draw.choice((0, 1, 2, 5, 9, 20)) for _ in range(draw.randrange(1, 6))]
        if not sum(batches):
            continue
        raw = {
            "version": 1,
            "global_batch": sum(batches),
            "ranks": [
                {"rank": i, "device": "d", "batch": b, "micro_batches": [b] if b else [],
                 "state_ppm": PPM if i == 0 else 0, "activations": "recompute"}
                for i, b in enumerate(batches)
            ],
        }  # fmt: skip
        plan = parse_plan(raw)
        samples = draw.randrange(sum(batches) + 1)
        parts = plan.split(samples)
        assert sum(parts) == samples
        for part, batch in zip(parts, batches):
            exact = samples * batch / sum(batches)
            assert 0 <= part <= batch and abs(part - exact) < 1
        assert plan.split(sum(batches)) == plan.batches
        with pytest.raises(ValueError, match="do not fit"):
            plan.split(sum(batches) + 1)


def test_even_plan():
    plan = even_plan(3, 4)
    assert plan.global_batch == 12 and plan.batches == (4, 4, 4) and sum(plan.state_ppm) == PPM
    assert max(plan.state_ppm) - min(plan.state_ppm) <= 1

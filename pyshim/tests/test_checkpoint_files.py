"""Checkpoints as files: verify finds what is missing, export writes what stock PyTorch loads."""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict

from cephalo import checkpoint_export, checkpoint_files, ragged, runtime, sharding
from cephalo.checkpoint_export import NotWritten, export, main
from cephalo.checkpoint_files import BrokenCheckpoint, verify
from cephalo.runtime import Runtime
from training import SHARES, Model, plan_of

UNEQUAL = SHARES["a rank that owns nothing"]


def _save(path: str) -> None:
    """Three ranks with shares 1 : 0 : 3 save a trained model and its optimizer."""
    ragged.install()
    runtime.install(lambda: Runtime(plan_of(UNEQUAL), torch.device("cpu")))
    torch.manual_seed(3)
    model = Model(tied=False)
    for block in model.blocks:
        sharding.fully_shard(block)
    sharding.fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    import ranks

    path = tmp_path_factory.mktemp("checkpoints") / "step-1"
    ranks.run(3, _save, str(path))
    return path


def read_safetensors(path) -> dict[str, torch.Tensor]:
    """A reader of its own, from the format's description."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    assert size % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}
    dtypes = {"F32": torch.float32}
    tensors = {}
    for name, entry in header.items():
        start, end = (8 + size + at for at in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(data[start:end]), dtype=dtypes[entry["dtype"]])
        tensors[name] = flat.view(entry["shape"])
    return tensors


def test_user_case_58_the_export_is_the_bare_model_bit_for_bit(saved, tmp_path):
    counts = export(saved, tmp_path / "model.safetensors")
    torch.manual_seed(3)
    reference = Model(tied=False)
    exported = read_safetensors(tmp_path / "model.safetensors")
    bare = Model(tied=False)
    bare.load_state_dict(exported, strict=True)
    assert counts["tensors"] == len(reference.state_dict())
    for name, value in reference.state_dict().items():
        assert torch.equal(bare.state_dict()[name], value), name
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_whole_checkpoint_has_no_problems(saved):
    report = verify(saved, deep=True)
    assert report.problems == [] and report.tensors > 20 and report.files >= 2


@pytest.fixture
def copy(saved, tmp_path):
    import shutil

    return shutil.copytree(saved, tmp_path / "copy")


def test_user_case_55_what_is_missing_is_named(copy, tmp_path):
    shard = sorted(copy.glob("*.distcp"))[-1]
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    assert shard.name in verify(copy).problems[0] and "were written" in verify(copy).problems[0]
    with pytest.raises(BrokenCheckpoint, match=shard.name):
        export(copy, tmp_path / "x.safetensors")
    assert not list(tmp_path.glob("*safetensors*"))
    shard.unlink()
    assert verify(copy).problems == [f"{shard.name} is missing"]


def test_user_case_55_the_mark_of_completion_is_missing(copy):
    (copy / ".metadata").unlink()
    assert ".metadata is missing" in verify(copy).problems[0]


def test_a_file_with_wrong_content_is_found_when_it_is_read(copy):
    shard = sorted(copy.glob("*.distcp"))[0]
    shard.write_bytes(b"\0" * shard.stat().st_size)
    assert verify(copy).problems == []
    assert any(shard.name in problem for problem in verify(copy, deep=True).problems)


@pytest.fixture
def bounded():
    """Nothing in the test may wait for a pipe."""

    def end(*_):
        raise TimeoutError("it waited")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
@pytest.mark.parametrize("pattern", [".metadata", "*.distcp"])
def test_what_is_not_a_file_is_named_and_not_read(copy, tmp_path, bounded, pattern, kind):
    name = sorted(copy.glob(pattern))[0]
    name.unlink()
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda p: p.symlink_to("/dev/zero")}
    make[kind](name)
    for deep in (False, True):
        assert f"{name.name} is not a file" in verify(copy, deep).problems[0]
    with pytest.raises(BrokenCheckpoint, match="is not a file"):
        export(copy, tmp_path / "x.safetensors")


def test_a_metadata_file_of_absurd_size_is_not_read(copy, bounded):
    os.truncate(copy / ".metadata", 1 << 40)
    assert "more than any has" in verify(copy).problems[0]


class _Evil:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize("content", [pickle.dumps(_Evil()), b"", b"nonsense", pickle.dumps({})])
def test_a_foreign_metadata_file_is_refused_and_not_executed(copy, capsys, content):
    (copy / ".metadata").write_bytes(content)
    assert ".metadata" in verify(copy).problems[0]
    assert capsys.readouterr().out == ""


def test_metadata_of_a_plain_script_is_read(tmp_path):
    model = nn.Linear(3, 2)
    dcp.save(
        {"weights": model.state_dict(), "optimizer": {"lr": torch.tensor(1.0)}},
        checkpoint_id=tmp_path / "c",
        no_dist=True,
    )
    assert list(checkpoint_files.read_metadata(tmp_path / "c").state_dict_metadata)
    export(tmp_path / "c", tmp_path / "m.safetensors", "weights")
    model.load_state_dict(read_safetensors(tmp_path / "m.safetensors"), strict=True)
    with pytest.raises(BrokenCheckpoint, match="there is no tensor under 'nothing'"):
        export(tmp_path / "c", tmp_path / "m.safetensors", "nothing")


def test_a_block_that_is_no_tensor_is_named(copy):
    first, second = sorted(copy.glob("*.distcp"))[:2]
    aside = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(aside)
    assert verify(copy, deep=True).problems


def test_a_file_that_cannot_be_written_is_not_the_checkpoints_fault(saved, tmp_path, capsys):
    out = tmp_path / "model"
    out.mkdir()
    with pytest.raises(NotWritten, match="model cannot be written"):
        export(saved, out)
    assert main(["export", str(saved), str(out), str(tmp_path / "aside")]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert "cannot be written" in report["not_written"]
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_each_checkpoint_is_reported_with_how_far_it_is(saved, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(checkpoint_export.Teller, "PAUSE_S", 0)
    (tmp_path / "empty").mkdir()
    assert main(["verify-deep", str(saved), str(tmp_path / "empty"), str(saved)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    reports = [line["report"] for line in lines if "report" in line]
    assert [bool(report["problems"]) for report in reports] == [False, True, False]
    steps = [line for line in lines if "done" in line]
    one = steps[: len(steps) // 2]
    assert [s["done"] for s in one] == sorted({s["done"] for s in one}), "it grows"
    assert one == steps[len(one) :] and one[-1]["done"] <= one[-1]["of"]
    assert one[-1]["done"] > 0.5 * one[-1]["of"], "most of the files is tensors"


def test_an_export_says_how_far_it_is(saved, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(checkpoint_export.Teller, "PAUSE_S", 0)
    aside = tmp_path / "aside"
    assert main(["export", str(saved), str(tmp_path / "model.safetensors"), str(aside)]) == 0
    *steps, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert steps and steps[-1]["done"] == steps[-1]["of"] == last["report"]["bytes"]
    assert not aside.exists()

"""The script's own checkpoints: whole or not at all, a full disk, and what the supervisor hears."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from cephalo import diskfaults, saving
from cephalo.checkpoint_files import verify
from cephalo.place import Place
from cephalo.saving import Saves


class Heard:
    """Keeps events in place of sending them."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict]] = []

    def send(self, kind: str, **fields) -> None:
        self.events.append((kind, fields))

    def phases(self) -> list[str]:
        return [fields["phase"] for _, fields in self.events]


def _total(values: list[float]) -> list[float]:
    vector = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(vector)
    return vector.tolist()


def _install() -> tuple[Saves, Heard]:
    heard = Heard()
    saves = Saves(heard, Place(), lambda: 7)
    saves.total = _total
    saves.install()
    return saves, heard


def _state() -> dict:
    return {"weights": torch.full((4,), float(dist.get_rank() * 0 + 1)), "step": 7}


def _save_twice(path: str) -> dict:
    saves, heard = _install()
    dcp.save(_state(), checkpoint_id=path)
    dcp.save({"weights": torch.full((4,), 2.0), "step": 8}, checkpoint_id=path)
    state = {"weights": torch.zeros(4), "step": 0}
    dcp.load(state, checkpoint_id=path)
    return {
        "weights": state["weights"].tolist(),
        "phases": heard.phases(),
        "loaded": saves.loaded,
        "files": heard.events[1][1]["files"],
        "placed": heard.events[1][1]["placed"],
        "names": sorted(p.name for p in Path(path).parent.iterdir()),
    }


def test_user_case_56_a_save_takes_the_place_of_an_older_one(ranks, tmp_path):
    for found in ranks(2, _save_twice, str(tmp_path / "checkpoint")):
        assert found["weights"] == [2.0] * 4
        assert found["phases"] == ["saving", "saved", "saving", "saved", "loaded"]
        assert found["loaded"] and found["placed"] and ".metadata" in found["files"]
        assert found["names"] == ["checkpoint"]


def _save_beside_another(path: str) -> tuple[list[str], list[str]]:
    names, original = [], dcp.save

    def noting(state, **options):
        names.append(Path(options["checkpoint_id"]).name)
        return original(state, **options)

    dcp.save = noting
    heard = Heard()
    saves = Saves(heard, Place(), lambda: 7, run_id="run-1")
    saves.total = _total
    saves.install()
    other = os.open(Path(path).parent, os.O_RDONLY)
    if dist.get_rank() == 0:
        fcntl.flock(other, fcntl.LOCK_EX)
    dist.barrier()
    for _ in range(2):
        dcp.save(_state(), checkpoint_id=path)
    return names, heard.phases()


def test_two_runs_that_save_into_one_folder_do_not_mix(ranks, tmp_path):
    first, second = ranks(2, _save_beside_another, str(tmp_path / "checkpoint"))
    saved = ["saving", "saved"]
    # The other run would write to a name of its own.
    assert first == (["saving-run-1-checkpoint"] * 2, ["saving", "shared", "saved", *saved])
    assert second == (["saving-run-1-checkpoint"] * 2, saved * 2)


def test_each_of_two_runs_in_one_folder_learns_of_the_other_once(tmp_path):
    heard = [Heard(), Heard(), Heard()]
    first, second, third = (Saves(one, Place(), lambda: 7) for one in heard)
    first._claim(tmp_path)
    first._claim(tmp_path)
    assert heard[0].events == [], "alone until now"
    for _ in range(2):
        second._claim(tmp_path)
        first._claim(tmp_path)
    third._claim(tmp_path / "none")
    third._claim(tmp_path)
    assert [one.phases() for one in heard] == [["shared"]] * 3
    assert os.listdir(tmp_path) == [], "the lock leaves no file"


def test_a_folder_is_free_when_the_other_run_has_ended(tmp_path):
    other, heard = Saves(Heard(), Place(), lambda: 7), Heard()
    other._claim(tmp_path)
    os.close(other._claimed[tmp_path])
    Saves(heard, Place(), lambda: 7)._claim(tmp_path)
    assert heard.events == []


def _load_what_is_damaged(path: str, at: float) -> tuple[dict, list[str]]:
    _, heard = _install()
    dcp.save({"weights": torch.arange(1000.0)}, checkpoint_id=path)
    if dist.get_rank() == 0:
        file = next(Path(path).glob("*.distcp"))
        data = bytearray(file.read_bytes())
        data[int(at * len(data))] ^= 255
        file.write_bytes(data)
    dist.barrier()
    with contextlib.suppress(CheckpointException):
        dcp.load({"weights": torch.zeros(1000)}, storage_reader=dcp.FileSystemReader(path))
    return heard.events[-1][1], verify(Path(path), deep=True).problems


def test_a_checkpoint_that_cannot_be_loaded_is_named(ranks, tmp_path):
    path = str(tmp_path / "checkpoint")
    for told, problems in ranks(2, _load_what_is_damaged, path, 0.0):
        assert (told["phase"], told["path"]) == ("not-loaded", path)
        assert "CheckpointException" in told["message"]
        assert len(problems) == 1 and problems[0].startswith("weights: ")


def test_verify_deep_finds_a_flipped_bit_that_torch_loads(ranks, tmp_path):
    for told, problems in ranks(2, _load_what_is_damaged, str(tmp_path / "checkpoint"), 0.5):
        assert told["phase"] == "loaded"
        assert len(problems) == 1 and "the checksum of" in problems[0]


def _save_on_a_full_disk(path: str, failure: Exception) -> dict:
    _, heard = _install()
    dcp.save(_state(), checkpoint_id=path)
    original = torch.save

    def full(*args, **kwargs):
        raise failure

    torch.save = full
    try:
        dcp.save({"weights": torch.ones(4), "new": torch.ones(3)}, checkpoint_id=path)
        dcp.save({"weights": torch.ones(4)}, checkpoint_id=path + "-2")
    finally:
        torch.save = original
    state = {"weights": torch.zeros(4), "step": 0}
    dcp.load(state, checkpoint_id=path)
    return {
        "phases": heard.phases(),
        "step": state["step"],
        "message": heard.events[3][1]["message"],
    }


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space left on the device"),
        (RuntimeError("[enforce fail] . unexpected pos 704 vs 598"), "no space left on the device"),
        (OSError(errno.EROFS, "Read-only file system"), "the file system is read-only"),
    ],
)
def test_user_case_55_a_full_disk_costs_the_checkpoint_and_not_the_training(
    ranks, tmp_path, failure, said
):
    for found in ranks(2, _save_on_a_full_disk, str(tmp_path / "checkpoint"), failure):
        assert found["phases"] == [
            "saving",
            "saved",
            "saving",
            "failed",
            "saving",
            "failed",
            "loaded",
        ]
        assert found["step"] == 7, "the older checkpoint is as it was"
        assert found["message"] == said
    assert os.listdir(tmp_path) == ["checkpoint"], "our own partial is removed, and nothing else"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, "disk-full"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "file-size"),
        (errno.EROFS, "read-only"),
    ],
)
def test_user_case_55_a_disk_that_takes_no_more_is_named(number, kind):
    failures = {0: (OSError(number, os.strerror(number)), None)}
    assert diskfaults.fault_of(CheckpointException("save", failures)).kind == kind
    failures[1] = (RuntimeError("unexpected pos 704 vs 598"), None)
    assert diskfaults.fault_of(CheckpointException("save", failures)).kind == kind
    failures[2] = (ValueError("odd\nlines"), None)
    err = CheckpointException("save", failures)
    assert diskfaults.fault_of(err) is None
    kind, said = diskfaults.failure_of(err)
    assert kind == "script" and "ValueError: odd lines" in said and "\n" not in said


@pytest.mark.parametrize(
    ("needed", "free", "said"),
    [
        (4000, 10, "it needs 3.9 KiB and 10 bytes are free"),
        (3 << 30, 5 << 20, "it needs 3.0 GiB and 5.0 MiB are free"),
        (2 << 40, 0, "it needs 2.0 TiB and 0 bytes are free"),
        ((1 << 30) + 2, 1 << 30, "it needs 1073741826 bytes and 1073741824 bytes are free"),
    ],
)
def test_sizes_are_said_in_a_unit_that_shows_them(needed, free, said):
    assert diskfaults.no_room(needed, free).said == said
    assert diskfaults.no_room(free, needed) is None


def _save_without_room(path: str) -> tuple[list[str], str]:
    _, heard = _install()
    saving._free_bytes = lambda folder: 10
    dcp.save({"weights": torch.ones(1000)}, checkpoint_id=path)
    return heard.phases(), heard.events[-1][1]["message"]


def test_user_case_55_room_is_looked_for_before(ranks, tmp_path):
    for phases, message in ranks(2, _save_without_room, str(tmp_path / "checkpoint")):
        assert phases == ["saving", "failed"]
        assert message == "it needs 3.9 KiB and 10 bytes are free"
    assert not list(tmp_path.iterdir())


def _save_without_a_rename(path: str, number: int) -> tuple[list[str], str]:
    _, heard = _install()
    dcp.save(_state(), checkpoint_id=path)
    rename, refused = os.rename, []

    def refuse(source, target):
        if Path(source).name.startswith("saving-"):
            refused.append(source)
            raise OSError(number, os.strerror(number))
        rename(source, target)

    os.rename = refuse
    try:
        dcp.save({"weights": torch.ones(4), "step": 8}, checkpoint_id=path)
        raised = ""
    except OSError as err:
        raised = str(err)
    finally:
        os.rename = rename
    assert len(refused) == (dist.get_rank() == 0)
    state = {"weights": torch.zeros(4), "step": 0}
    dcp.load(state, checkpoint_id=path)
    assert state["step"] == 7, "the older checkpoint has its name again"
    return heard.phases(), heard.events[3][1].get("message", raised)


def test_user_case_55_a_disk_that_takes_no_new_name_costs_the_checkpoint(ranks, tmp_path):
    for found in ranks(2, _save_without_a_rename, str(tmp_path / "checkpoint"), errno.EROFS):
        assert found == (
            ["saving", "saved", "saving", "failed", "loaded"],
            "the file system is read-only",
        )
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_another_failure_of_the_rename_is_raised_on_all_ranks(ranks, tmp_path):
    found = ranks(2, _save_without_a_rename, str(tmp_path / "checkpoint"), errno.EACCES)
    assert [phases for phases, _ in found] == [["saving", "saved", "saving", "loaded"]] * 2
    assert "Permission denied" in found[0][1] and "rank 0 could not" in found[1][1]


def _fail_to_save(path: str) -> list[str]:
    _, heard = _install()
    torch.save = lambda *a, **k: (_ for _ in ()).throw(ValueError("odd"))
    with pytest.raises(BaseException, match="odd"):
        dcp.save({"weights": torch.ones(4)}, checkpoint_id=path)
    return heard.phases()


def test_other_failures_are_the_scripts_to_see(ranks, tmp_path):
    for phases in ranks(2, _fail_to_save, str(tmp_path / "checkpoint")):
        assert phases == ["saving"]
    assert not list(tmp_path.iterdir()), "rank 0 has removed our own partial"


def _killed_while_saving(path: str) -> None:
    _install()
    dcp.save(_state(), checkpoint_id=path)
    take = saving._take_place
    saving._take_place = lambda aside, final: os._exit(9)  # all is written, nothing renamed
    assert take is not None
    dcp.save({"weights": torch.full((4,), 9.0), "step": 9}, checkpoint_id=path)


def test_user_case_55_killed_while_saving(ranks, tmp_path):
    with pytest.raises(AssertionError):
        ranks(1, _killed_while_saving, str(tmp_path / "checkpoint"))
    state = {"weights": torch.zeros(4), "step": 0}
    dcp.load(state, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
    assert state["step"] == 7, "the older one is whole"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "saving-checkpoint"]


def _async(path: str) -> list[str]:
    _, heard = _install()
    response = dcp.async_save(_state(), checkpoint_id=path)
    getattr(response, "upload_completion", response).result()
    return heard.phases()


def test_a_save_beside_the_training_is_told_when_it_is_done(ranks, tmp_path):
    for phases in ranks(2, _async, str(tmp_path / "checkpoint")):
        assert phases[0] == "saving" and phases[-1] == "saved"


def test_a_checkpoint_in_another_storage_keeps_its_name():
    heard = Heard()
    Saves(heard, Place(), lambda: 7)._tell("loaded", "s3://bucket/step-7")
    assert heard.events[0][1]["path"] == "s3://bucket/step-7"

"""Entry of one worker, written by cephalorun for run 20260102-030405-train; changes here are lost."""

import atexit
import contextlib
import json
import os
import sys

PACKAGE = os.fsdecode(b"/state/runs/x/pyshim")


def _own_output(folder, rank):
    """Send this process's output to the supervisor, which keeps whole lines and a log per rank."""
    for number, name in ((1, "out"), (2, "err")):
        try:
            pipe = os.open(os.path.join(folder, f"rank-{rank}.{name}"), os.O_WRONLY)
        except OSError:
            continue
        os.dup2(pipe, number)
        os.close(pipe)


def _die_with_parent():
    """Have the kernel end this process when the launcher ends, however it ends."""
    import ctypes
    import signal

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGKILL), 0, 0, 0)


def _choose_device(devices, rank):
    """Set what must stand in the environment before PyTorch is imported."""
    mine = next(d for d in devices if d["rank"] == rank)
    if mine.get("threads"):
        os.environ["OMP_NUM_THREADS"] = str(mine["threads"])
    if mine["kind"] != "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    if mine.get("alone"):  # a part of a GPU: the only device that this process sees
        os.environ["CUDA_VISIBLE_DEVICES"] = mine.get("gpu_uuid") or mine["uuid"]
        os.environ["LOCAL_RANK"] = "0"
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(d["uuid"] for d in devices)
    if mine.get("sm_percent"):
        os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(mine["sm_percent"])


def _end_quietly():
    """Have the process end right after the exit handlers of the script and of libraries. What C++
    does at the end of an interpreter can hang or crash, and take the other ranks along. Returns a
    list whose only item is the exit code."""
    code = [1]

    def end():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code[0])

    atexit.register(end)  # the first one registered is the last one called
    return code


def main():
    code = _end_quietly()
    rank = int(os.environ["RANK"])
    _own_output(os.environ.get("CEPHALO_OUTPUT", ""), rank)
    _die_with_parent()
    with open(os.environ["CEPHALO_DEVICES"], encoding="utf-8") as file:
        devices = sorted(json.load(file)["devices"], key=lambda d: d["rank"])
    _choose_device(devices, rank)
    sys.path.insert(1, PACKAGE)
    from cephalo import worker

    code[0] = worker.main(sys.argv[1:])
    return code[0]


if __name__ == "__main__":
    sys.exit(main())

"""One worker of stock FSDP2 on a part of a device: bench_worker.py PARTS_JSON FOLDER SCRIPT [ARGS].

torchrun starts one per rank. On a GPU, rank N takes part N of PARTS_JSON: an MPS share of the
multiprocessors and a limit on its memory. The script then runs as if it had been started itself.
Its peak memory is kept in FOLDER/peak-RANK.
"""

import ctypes
import json
import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path


def die_with_parent():
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def keep_peak(path, read_bytes):
    """Writes the peak every second; the bench ends the run when it has seen enough of it."""
    while True:
        aside = path.with_suffix(".new")
        aside.write_text(str(read_bytes()))
        aside.replace(path)
        time.sleep(1)


def take_part(part):
    """Returns the function that reads this process's peak memory."""
    if part["kind"] == "cpu":
        import resource

        return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    # Before CUDA starts; all workers share the one GPU that they see.
    os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(part["sm_percent"])
    os.environ["LOCAL_RANK"] = "0"
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(part["memory_bytes"] / total, 0)
    return lambda: torch.cuda.max_memory_allocated(0)


def main():
    die_with_parent()
    parts, folder, script = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    rank = int(os.environ["RANK"])
    read_bytes = take_part(parts[rank])
    path = folder / f"peak-{rank}"
    threading.Thread(target=keep_peak, args=(path, read_bytes), daemon=True).start()
    sys.argv = sys.argv[3:]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()

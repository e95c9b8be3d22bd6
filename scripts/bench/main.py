"""Compares cephalorun with stock PyTorch on the parts of one machine, in one run.

main.py                       one GPU cut by MPS; all suites
main.py --suites equal,one    some of them
main.py --cpu                 two small ranks on the processor: shows that all of it works
main.py --show FILE           the tables of results that were kept
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import parts as cuts
import tables
from models import Shape
from rows import Row
from suites import CPU, GPU, SUITES, Suite

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("worker.py")
SCRIPT = Path(__file__).with_name("train.py")
PROFILE_SECONDS = 240
OUT_OF_MEMORY = "out of memory"
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Set for all rows as cephalorun sets it for its workers."""


class Failed(RuntimeError):
    """A row or a profile did not come to its end; the text says why."""


class Interrupted(BaseException):
    """SIGINT or SIGTERM came; what was measured until then is still shown."""


def interrupt(*_: Any) -> None:
    raise Interrupted


class Machine:
    """Cuts the device, asks for plans, and trains rows."""

    def __init__(self, folder: Path, args: argparse.Namespace):
        self.folder, self.args = folder, args
        self.scale = CPU if args.cpu else GPU
        self.card = 0 if args.cpu else cuts.gpu_memory_bytes()
        self.interrupted = False
        self.profiles: dict[str, Path] = {}
        self.took: dict[str, float] = {}
        """Seconds of measuring a model, by its shape."""

    def parts(self, suite: Suite) -> list[cuts.Part]:
        """The devices of a suite."""
        if self.args.cpu:
            return cuts.cpu_parts(1 if suite.parts == "whole" else 2)
        cut = {"equal": cuts.EQUAL, "unequal": cuts.UNEQUAL, "whole": cuts.WHOLE}[suite.parts]
        return cuts.gpu_parts(cut, min(self.card, suite.memory_bytes or self.card))

    def plan(self, parts: list[cuts.Part], shape: Shape, dtype: str, batch: int) -> dict[str, Any]:
        """The planner's answer; the model is measured when it is first asked for."""
        profile = self._profile(parts, shape, dtype)
        command = [self.args.cephalorun, "plan", "--json", f"--profile={profile}"]
        done = subprocess.run(
            [*command, f"--global-batch={batch}"], capture_output=True, text=True, timeout=60
        )
        if done.returncode:
            raise Failed(done.stderr.strip().splitlines()[-1])
        return json.loads(done.stdout)

    def _profile(self, parts: list[cuts.Part], shape: Shape, dtype: str) -> Path:
        devices = cuts.devices_yaml(parts)
        key = json.dumps([devices, asdict(shape), dtype])
        if key not in self.profiles:
            path = self.folder / f"profile-{len(self.profiles)}.json"
            (self.folder / "devices.yaml").write_text(devices)
            command = [self.args.cephalorun, "profile", "--json", f"--python={sys.executable}"]
            command += [f"--devices={self.folder / 'devices.yaml'}"]
            command += [f"--state-dir={self.folder / 'state'}", SCRIPT]
            command += [json.dumps(asdict(shape)), f"--dtype={dtype}"]
            say(f"profile of {shape}")
            began = time.monotonic()
            with path.open("w") as file:
                done = subprocess.run(
                    command, stdout=file, stderr=subprocess.PIPE, text=True, timeout=PROFILE_SECONDS
                )
            if done.returncode:
                raise Failed(f"profile of {shape}: {done.stderr[-2000:]}")
            self.profiles[key] = path
            self.took[str(shape)] = time.monotonic() - began
        return self.profiles[key]

    def train(self, parts: list[cuts.Part], rows: list[Row]) -> list[dict[str, Any]]:
        """Results of the rows, in one set of workers; new ones for what comes after a row that ran
        out of memory. Rows that were not reached have an error."""
        done: list[dict[str, Any]] = []
        while len(done) < len(rows):
            more, why = self._train(parts, rows[len(done) :])
            done += more
            if len(done) < len(rows):
                done.append({"row": rows[len(done)].to_json(), "error": why})
            if not why.startswith(OUT_OF_MEMORY):
                break
        for row in rows[len(done) :]:
            done.append({"row": row.to_json(), "error": "not reached"})
        return done

    def _train(self, parts: list[cuts.Part], rows: list[Row]) -> tuple[list[dict[str, Any]], str]:
        """Results of the rows that came to their end, and why the next did not."""
        results = self.folder / "results.jsonl"
        results.write_text("")
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1"]
        command += [f"--nproc-per-node={len(parts)}", "--rdzv-backend=c10d"]
        command += ["--rdzv-endpoint=127.0.0.1:0", f"--rdzv-id={os.getpid()}"]
        command += [WORKER, json.dumps(parts), json.dumps([r.to_json() for r in rows]), results]
        command += [self.args.traces] if self.args.traces else []
        with ExitStack() as stack:
            shared = not self.args.cpu and len(parts) > 1
            environment = stack.enter_context(cuts.mps(self.folder)) if shared else {}
            environment |= {"OMP_NUM_THREADS": "1", "LOGLEVEL": "ERROR"}
            environment |= dict.fromkeys(ALLOCATOR, "expandable_segments:True")
            log = stack.enter_context((self.folder / "workers.log").open("w+"))
            process = subprocess.Popen(
                command,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                process.wait(self.args.limit)
                why = f"ended with {process.returncode}"
            except subprocess.TimeoutExpired:
                why = f"not done after {self.args.limit:.0f} s"
            except Interrupted:
                self.interrupted, why = True, "interrupted"
            finally:
                stop(process)
        text = (self.folder / "workers.log").read_text(errors="replace")
        memory = [line for line in text.splitlines() if "bench: out of memory" in line]
        lines = [json.loads(line) for line in results.read_text().splitlines()]
        rates = lines[0]["tflops"] if lines else []
        done = [line | {"tflops": rates} for line in lines[1:]]
        if len(done) < len(rows):
            say(
                "\n".join(
                    [x for x in text.splitlines() if "OutOfMemoryError:" in x] + [text[-3000:]]
                )
            )
        if memory:
            why = OUT_OF_MEMORY + " on " + memory[0].rsplit(" on ", 1)[1]
        return done, why


def stop(process: subprocess.Popen) -> None:
    """torchrun ends its workers; killed with them if it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def run(machine: Machine, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Results by suite. Suites on the same parts share their workers."""
    found: dict[str, list[dict[str, Any]]] = {}
    waiting: dict[str, list[tuple[str, Row]]] = {}
    for name in names:
        if machine.interrupted:
            break
        suite = SUITES[name]
        parts = machine.parts(suite)
        try:
            rows = suite.make(machine.scale, len(parts), lambda *a, p=parts: machine.plan(p, *a))
        except Failed as err:
            say(f"{name}: {err}")
            continue
        except Interrupted:
            machine.interrupted = True
            break
        rows = [row for row in rows if re.search(machine.args.rows, row.name)]
        if machine.args.cpu:
            rows = [replace(row, steps=min(row.steps, 2), warm_up=1) for row in rows]
        if suite.alone or suite.at_once:
            for some in [[row] for row in rows] if suite.alone else [rows]:
                if not machine.interrupted:
                    found.setdefault(name, []).extend(machine.train(parts, some))
        else:
            waiting.setdefault(json.dumps(parts), []).extend((name, row) for row in rows)
    for parts, rows in waiting.items():
        if machine.interrupted:
            break
        results = machine.train(json.loads(parts), [row for _, row in rows])
        for (name, _), result in zip(rows, results, strict=True):
            found.setdefault(name, []).append(result)
    return found


def show(document: dict[str, Any]) -> None:
    """Print all tables."""
    print(f"{document['hardware']}; torch {document['torch']}; {document['cephalorun']}")
    for shape, seconds in document["profile_seconds"].items():
        print(f"measured {shape} in {seconds:.0f} s")
    for name, results in document["suites"].items():
        print(f"\n### {SUITES[name].title}\n\n{tables.table(results)}")
        if any(r["row"]["predicted"] for r in results):
            print(f"\n{tables.predictions(results)}")
        if any("trace" in r for r in results):
            print(f"\n{tables.traces(results)}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", action="store_true", help="two small ranks on the processor")
    parser.add_argument("--suites", help=f"some of {','.join(SUITES)} (default: all)")
    parser.add_argument("--rows", default="", help="only rows whose names match (a pattern)")
    parser.add_argument("--limit", type=float, default=500, help="seconds of one set of workers")
    parser.add_argument("--cephalorun", type=Path, default=ROOT / "bin" / "cephalorun")
    parser.add_argument(
        "--traces",
        type=Path,
        help="keep profiler traces here, and say what took time and memory",
    )
    parser.add_argument("--json", type=Path, help="also keep the results in this file")
    parser.add_argument("--show", type=Path, help="print the tables of a kept file, and end")
    args = parser.parse_args()
    args.suites = args.suites.split(",") if args.suites else list(SUITES)
    if unknown := [name for name in args.suites if name not in SUITES]:
        parser.error(f"no suites {unknown}; there are {', '.join(SUITES)}")
    if not args.show and not args.cephalorun.exists():
        parser.error(f"{args.cephalorun} is not there; `make build` makes it")
    return args


def main() -> None:
    args = arguments()
    if args.show:
        show(json.loads(args.show.read_text()))
        return
    if args.traces:
        args.traces.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    with tempfile.TemporaryDirectory(prefix="cephalo-bench-") as name:
        machine = Machine(Path(name), args)
        suites = run(machine, args.suites)
        profiles = [json.loads(path.read_text()) for path in machine.profiles.values()]
    document = {
        "hardware": cuts.hardware(args.cpu),
        "torch": version("torch"),
        "python": platform.python_version(),
        "cephalorun": cuts.ask(str(args.cephalorun), "version"),
        "suites": suites,
        "profiles": profiles,
        "profile_seconds": machine.took,
    }
    if args.json:
        args.json.write_text(json.dumps(document) + "\n")
    show(document)


if __name__ == "__main__":
    main()

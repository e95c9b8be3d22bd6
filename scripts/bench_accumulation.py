"""Compares stock FSDP2 with cephalorun on the parts of one machine, in one run.

    bench_accumulation.py            one GPU cut by MPS into parts of 48, 27, 15 and 10 %
    bench_accumulation.py --cpu      two ranks on the processor, small: shows that all of it works

All rows run examples/train_gpt.py with the same model, seed and global batch: stock FSDP2 under
torchrun with ordinary gradient accumulation over equal ranks, cephalorun on the same parts as its
planner wants, and the same plan forced to 8 microbatches with recomputation on every part.
Each row trains until --seconds of it are measured. The figures come from the script's own lines.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "train_gpt.py"
LINE = re.compile(r"step +(\d+) +loss ([\d.naif]+) +samples/s ([\d.]+)")
WARM_UP_STEPS = 2
STOP_SECONDS = 45  # torchrun gives its workers 30 s
ENDLESS = 1_000_000_000

GPU_MODEL = {"layers": 12, "width": 1024, "heads": 16, "sequence": 512, "vocab": 16384}
CPU_MODEL = {"layers": 2, "width": 64, "heads": 4, "sequence": 64, "vocab": 256}


def gpu_parts(total_bytes):
    """Four unequal parts. Not every share computes rightly: see docs/devices.md."""
    return [
        {
            "name": f"part-{processors}",
            "kind": "cuda",
            "index": 0,
            "sm_percent": processors,
            "memory_bytes": int(total_bytes * 0.95 * memory / 100),
        }
        for processors, memory in ((48, 40), (27, 25), (15, 20), (10, 10))
    ]


def cpu_parts():
    return [
        {"name": name, "kind": "cpu", "threads": 1, "memory_bytes": 2 << 30}
        for name in ("first", "second")
    ]


def devices_yaml(parts):
    """The parts as a devices file; JSON's numbers and strings are YAML's too."""
    lines = ["devices:"]
    for part in parts:
        fields = {key: value for key, value in part.items() if key != "memory_bytes"}
        fields["memory"] = f"{part['memory_bytes'] >> 20}MiB"
        lines.append(f"  - {json.dumps(fields)}")
    return "\n".join(lines) + "\n"


def ask(*command):
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def hardware(cpu):
    if not cpu:
        return ask("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} x {names[0] if names else platform.machine()}"


def gpu_memory_bytes():
    answer = ask(
        "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", "0"
    )
    if not answer.isdigit():
        sys.exit("bench: nvidia-smi names no GPU here; --cpu measures without one.")
    return int(answer) << 20


@contextmanager
def mps(folder):
    """An MPS daemon of this run's own, and the environment that leads to it."""
    environment = {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "mps"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "mps-log"),
    }
    for path in environment.values():
        Path(path).mkdir()
    full = os.environ | environment
    control = "nvidia-cuda-mps-control"
    subprocess.run([control, "-d"], env=full, check=True, timeout=30)
    try:
        yield environment
    finally:
        subprocess.run([control], input="quit\n", text=True, env=full, timeout=30, check=False)


def read_steps(log):
    """(step, loss, samples/s) of every line the script has printed so far."""
    if not log.exists():
        return []
    return [
        (int(s), float(x), float(v)) for s, x, v in LINE.findall(log.read_text(errors="replace"))
    ]


def measured_seconds(steps, batch):
    return sum(batch / speed for _, _, speed in steps[WARM_UP_STEPS:])


def stop(process):
    """Ends a launcher, which ends its workers; kills it when it does not end in time."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def train(name, command, environment, log, output, args):
    """Runs one row until enough of it is measured; returns its steps."""
    print(f"bench: {name}: {' '.join(map(str, command))}", file=sys.stderr, flush=True)
    deadline = time.monotonic() + args.row_limit
    with output.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None and time.monotonic() < deadline:
                steps = read_steps(log)
                enough = len(steps) >= WARM_UP_STEPS + args.least_steps
                if enough and measured_seconds(steps, args.batch) >= args.seconds:
                    break
                time.sleep(0.2)
        finally:
            stop(process)
    steps = read_steps(log)
    if len(steps) < WARM_UP_STEPS + args.least_steps:
        tail = "\n".join(output.read_text(errors="replace").splitlines()[-40:])
        sys.exit(f"{tail}\nbench: {name} ended with {process.returncode} after {len(steps)} steps.")
    return steps


def script_arguments(model, args, **more):
    options = model | {"steps": ENDLESS, "seed": 1, "lr": 1e-3} | more
    words = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
    return words + ([] if args.cpu else ["--dtype=bf16", "--backend=gloo"])


def stock(parts, model, args, folder):
    output = folder / "stock.log"
    accumulation = {"batch_size": args.micro_batch, "accumulate": args.accumulate}
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1"]
    command += [f"--nproc-per-node={len(parts)}", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=127.0.0.1:0", f"--rdzv-id={os.getpid()}"]
    command += [ROOT / "scripts" / "bench_worker.py", json.dumps(parts), folder, EXAMPLE]
    command += script_arguments(model, args, **accumulation)
    command += [] if args.cpu else ["--checkpointing"]
    with ExitStack() as stack:
        environment = {} if args.cpu else stack.enter_context(mps(folder))
        environment = environment | {"OMP_NUM_THREADS": "1"}
        steps = train("stock FSDP2", command, environment, output, output, args)
    peaks = [int(path.read_text()) for path in folder.glob("peak-?")]
    return steps, max(peaks, default=0)


def eighths(plan):
    """The plan with every batch in 8 microbatches (or single samples) and recomputation."""
    for rank in plan["ranks"]:
        count = min(8, rank["batch"])
        sizes = [rank["batch"] // count + (i < rank["batch"] % count) for i in range(count)]
        rank |= {"micro_batches": sizes, "activations": "recompute"}
    return plan


def cephalo(name, parts, model, args, folder, plan=None):
    """Trains by the planner's plan, or by the given one. Returns steps, peak bytes and the plan."""
    (folder / "devices.yaml").write_text(devices_yaml(parts))
    state = folder / "state"
    latest = state / "runs" / "latest"
    command = [
        args.cephalorun,
        f"--python={sys.executable}",
        f"--devices={folder / 'devices.yaml'}",
    ]
    if plan is None:
        command += [f"--global-batch={args.batch}"]
    else:
        (folder / "plan.json").write_text(json.dumps(plan))
        command += [f"--plan={folder / 'plan.json'}"]
    command += [f"--state-dir={state}", EXAMPLE]
    command += script_arguments(model, args, batch_size=args.batch // len(parts))
    log = latest / "logs" / "rank-0.log"
    log.unlink(missing_ok=True)
    output = folder / f"{name.replace(' ', '-')}.log"
    steps = train(name, command, {}, log, output, args)
    events = (latest / "events.jsonl").read_text().splitlines()
    peaks = [json.loads(line).get("peak_memory_bytes") or 0 for line in events]
    return steps, max(peaks, default=0), json.loads((latest / "plan.json").read_text())


def row(name, steps, peak_bytes, batch, common):
    losses = {step: loss for step, loss, _ in steps}
    measured = steps[WARM_UP_STEPS:]
    return {
        "name": name,
        "samples_per_second": batch * len(measured) / measured_seconds(steps, batch),
        "measured_steps": len(measured),
        "measured_seconds": measured_seconds(steps, batch),
        "first_loss": losses[1],
        "last_common_loss": losses[common],
        "peak_memory_bytes": peak_bytes,
    }


def table(result):
    step = result["last_common_step"]
    head = ["", "samples/s", "ratio", "loss, step 1", f"loss, step {step}", "peak memory"]
    lines = [head, ["---"] * len(head)]
    base = result["rows"][0]["samples_per_second"]
    for r in result["rows"]:
        speed = r["samples_per_second"]
        cells = [r["name"], f"{speed:.1f}", f"{speed / base:.2f}x"]
        cells += [f"{r['first_loss']:.4f}", f"{r['last_common_loss']:.4f}"]
        lines.append([*cells, f"{r['peak_memory_bytes'] / 2**30:.2f} GiB"])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", action="store_true", help="two small ranks on the processor")
    parser.add_argument("--seconds", type=float, help="measured training of each row (40; cpu: 5)")
    parser.add_argument("--row-limit", type=float, default=140, help="seconds of a row in all")
    parser.add_argument("--least-steps", type=int, default=3, help="measured steps of each row")
    parser.add_argument("--micro-batch", type=int, default=4, help="of stock FSDP2, on each rank")
    parser.add_argument("--accumulate", type=int, default=8, help="microbatches of stock FSDP2")
    parser.add_argument("--cephalorun", type=Path, default=ROOT / "bin" / "cephalorun")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    args.seconds = args.seconds or (5 if args.cpu else 40)
    if not args.cephalorun.exists():
        parser.error(f"{args.cephalorun} is not there; `make build` makes it")
    return args


def main():
    args = arguments()
    parts = cpu_parts() if args.cpu else gpu_parts(gpu_memory_bytes())
    model = CPU_MODEL if args.cpu else GPU_MODEL
    args.batch = args.micro_batch * args.accumulate * len(parts)
    with tempfile.TemporaryDirectory(prefix="cephalo-bench-") as name:
        stock_steps, stock_peak = stock(parts, model, args, Path(name))
        ours = cephalo("cephalorun", parts, model, args, Path(name))
        cut = cephalo("in 8 microbatches", parts, model, args, Path(name), eighths(ours[2]))
    common = min(stock_steps[-1][0], ours[0][-1][0], cut[0][-1][0])
    result = {
        "hardware": hardware(args.cpu),
        "torch": version("torch"),
        "python": platform.python_version(),
        "cephalorun": ask(str(args.cephalorun), "version"),
        "model": model,
        "global_batch": args.batch,
        "stock_microbatches": [args.accumulate, args.micro_batch],
        "parts": parts,
        "plan": ours[2],
        "last_common_step": common,
        "rows": [
            row("stock FSDP2", stock_steps, stock_peak, args.batch, common),
            row("cephalorun, planned", ours[0], ours[1], args.batch, common),
            row("cephalorun, 8 microbatches, recomputed", cut[0], cut[1], args.batch, common),
        ],
    }
    shape = ", ".join(f"{key} {value}" for key, value in model.items())
    print(f"{result['hardware']}; torch {result['torch']}; {result['cephalorun']}")
    print(f"GPT ({shape}), global batch {args.batch}, {len(parts)} parts,")
    print(f"stock FSDP2: {args.accumulate} microbatches of {args.micro_batch} on each part\n")
    print(table(result))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

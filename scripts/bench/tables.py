"""Results as Markdown tables."""

from __future__ import annotations

from typing import Any

from rows import Row

Result = dict[str, Any]


def table(results: list[Result]) -> str:
    """Speed, ratio to the base row, peak memory, and how far the step is from its floors."""
    rows = [(Row.from_json(r["row"]), r) for r in results]
    speeds = {row.name: speed(row, r) for row, r in rows if "step_ms" in r}
    head = ["", "step", "samples/s", "ratio", "loss, step 1", "last loss", "peak memory"]
    head += ["model TFLOP/s", "of the floor"]
    lines = [head, ["---"] * len(head)]
    for row, r in rows:
        if "step_ms" not in r:
            lines.append([row.name, r["error"], *[""] * (len(head) - 2)])
            continue
        base = speeds.get(row.base)
        floor_ms, binds = floor(row, r)
        lines.append(
            [
                row.name,
                f"{r['step_ms']:.0f} ms",
                f"{speeds[row.name]:.1f}",
                f"{speeds[row.name] / base:.2f}x" if base else "",
                f"{r['losses'][0]:.4f}",
                f"{r['losses'][-1]:.4f} (step {len(r['losses'])})",
                f"{max(r['peak_bytes']) / 2**30:.2f} GiB" if r["gpu"] else "",
                f"{row.shape.flop_per_sample * speeds[row.name] / 1e12:.0f}",
                f"{100 * floor_ms / r['step_ms']:.0f} %, {binds}",
            ]
        )
    return markdown(lines)


def speed(row: Row, result: Result) -> float:
    return row.global_batch / result["step_ms"] * 1e3


def floor(row: Row, result: Result) -> tuple[float, str]:
    """The shortest step: each rank's own work at its rate in products (a third more where it is
    recomputed), or all collectives one after another."""
    compute = 0.0
    for rank, batch in enumerate(row.batches):
        again = (
            row.recompute
            if row.engine != "cephalo"
            else row.activations[rank : rank + 1] != ["keep"]
        )
        factor = 4 / 3 if again and row.engine != "plain" else 1.0
        work = row.shape.flop_per_sample * batch * factor
        compute = max(compute, work / result["tflops"][rank] / 1e9)
    link = result["link_ms"]
    return (compute, "compute") if compute >= link else (link, "link")


def predictions(results: list[Result]) -> str:
    """Predicted beside measured, and how full the fullest part is."""
    head = [
        "",
        "batches",
        "predicted",
        "measured",
        "off by",
        "memory off by at most",
        "fullest part",
    ]
    lines, off = [head, ["---"] * len(head)], []
    for r in results:
        row = Row.from_json(r["row"])
        if "step_ms" not in r or not row.predicted:
            continue
        wanted, got = row.predicted["iteration_ms"], r["step_ms"]
        off.append(abs(got / wanted - 1))
        memory = [p / w - 1 for p, w in zip(r["peak_bytes"], row.predicted["peak_bytes"])]
        full = [p / u for p, u in zip(r["peak_bytes"], row.predicted["usable_memory_bytes"])]
        lines.append(
            [
                row.name,
                "/".join(map(str, row.batches)) + " " + "/".join(a[:1] for a in row.activations),
                f"{wanted:.0f} ms",
                f"{got:.0f} ms",
                f"{100 * (got / wanted - 1):+.1f} %",
                f"{100 * max(memory, key=abs):+.1f} %",
                f"{100 * max(full):.0f} %",
            ]
        )
    if off:
        off.sort()
        lines.append(
            [
                f"median off by {100 * off[len(off) // 2]:.1f} %, at most {100 * off[-1]:.1f} %",
                *[""] * (len(head) - 1),
            ]
        )
    return markdown(lines)


def traces(results: list[Result]) -> str:
    """How long the devices had work in a step under the profiler, what rank 0 spent most on, and
    what held its memory at the peak."""
    lines = [["", "devices busy", "most time of its own on rank 0", "most memory at its peak"]]
    lines.append(["---"] * len(lines[0]))
    for r in results:
        if "trace" in r:
            busy = "/".join(f"{ms:.0f}" for ms in r["busy_ms"]) + " ms"
            most = ", ".join(f"{name} {ms:.1f} ms" for name, ms in r["trace"]["most"].items())
            held = ", ".join(
                f"{line} {size / 2**20:.0f} MiB" for line, size in r.get("held", {}).items()
            )
            lines.append([r["row"]["name"], busy, most, held])
    return markdown(lines)


def markdown(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)

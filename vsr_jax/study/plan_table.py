"""Plans the whole study for several TPU slices and writes the table: `python -m vsr_jax.study.plan_table tpu/PLANS.md`.

Each row is compiled in a process of its own, which keeps the compiler's memory from adding up.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

MODELS = ("qwen3-8b-base", "qwen2.5-math-7b")
TOPOLOGIES = ("v4:2x2x4", "v5e:4x4", "v5p:2x2x2", "v6e:4x4")
STAGES = ("rollout", "update", "score")


def plan_in_process(model: str, topology: str, stage: str) -> list[Mapping[str, Any]]:
    """The plans of one stage as `vsr plan --json` gives them; one row with the reason where it cannot be planned."""
    code = "from vsr_jax.cli import main; main()"
    arguments = ["plan", "--model", model, "--topology", topology, "--stage", stage, "--json"]
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    try:
        return json.loads(run.stdout)
    except ValueError:
        reason = (run.stderr.strip().splitlines() or ["no output"])[-1]
        if run.returncode == -signal.SIGABRT:
            reason = "not known: the compiler ended with an internal error"
        elif run.returncode < 0:
            reason = "not known: the compiler was killed, as when this machine has too little memory (16 GiB and more)"
        return [{"name": stage, "fits": False, "message": reason, "memory_gib": {}, "note": ""}]


def row(model: str, topology: str, p: Mapping[str, Any]) -> str:
    """One line of the table."""
    memory = p["memory_gib"]
    head = f"| {model} | {topology} | {p['name']} | {p['note']} "
    if not p["fits"]:
        verdict = "?" if p["message"].startswith("not known") else "no"
        return f"{head}| {verdict} | {p['message'].replace('|', '/')} | | | | |"
    used = sum(memory.values())
    working = sum(memory.get(kind, 0) for kind in ("activations", "gradients", "temporaries"))
    cells = [f"{used:.1f} ({working:.1f})"]
    if p["seconds"]:
        seconds = p["seconds"]
        cells += [
            f"{p['cost']['flops'] / 1e12:.1f} ({p['waste']:+.0%})",
            f"{seconds['compute'] * 1e3:.0f} / {seconds['memory'] * 1e3:.0f} / {seconds['links'] * 1e3:.0f}",
            ", ".join(f"{kind} {size / 2**30:.1f}" for kind, size in sorted(p["cost"]["collectives"].items())),
            f"{p['tokens_per_second']:,.0f}",
        ]
    else:
        cells += ["not known", "", "", ""]
    return f"{head}| yes | {' | '.join(cells)} |"


def table(rows: Sequence[str]) -> Iterator[str]:
    """The page."""
    yield "# What the study takes on Cloud TPUs\n"
    yield "Compiled ahead of time by the TPU compiler, on a machine without a TPU; nothing here was measured on a chip."
    yield "Made by `make plans` (`vsr plan` for one row) with " + ", ".join(
        f"{name} {version(name)}" for name in ("jax", "libtpu")
    )
    yield "\nMemory: GiB a chip; in brackets what lives within a call only. TFLOP: a chip and call, with what is"
    yield "computed beyond the model's need. Roofline: milliseconds a call that arithmetic, memory and links take at"
    yield "published rates. Sent: GiB a chip and call. Tokens/s: of the slice, when the slowest of the three hides the"
    yield "others: an upper limit.\n"
    yield "| model | slice | program | shape | fits | memory | TFLOP | compute / memory / links | sent | tokens/s |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    yield from rows


def main() -> None:
    """Writes the file named on the command line, row after row, so that an interrupt keeps what is there."""
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    rows: list[str] = []
    for model in MODELS:
        for topology in TOPOLOGIES:
            for stage in STAGES:
                print(f"{model} on {topology}: {stage}", file=sys.stderr, flush=True)
                rows += [row(model, topology, p) for p in plan_in_process(model, topology, stage)]
                target.write_text("\n".join(table(rows)) + "\n")


if __name__ == "__main__":
    main()

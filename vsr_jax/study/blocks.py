"""Pieces that several chapters of a study's report share."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vsr_jax.report import Column, Curve, Table, TrainingRun
from vsr_jax.study import seeds as over
from vsr_jax.study.seeds import Found
from vsr_jax.training.checkpoint import read_metrics

FLOW_CAPTION = "Prompts by pass count: none, some or all samples pass. Only mixed prompts carry a GRPO signal."
CURVE_CAPTION = "Chance that one of k samples passes, averaged over prompts (unbiased). Bands: 95 % intervals."


def support_table(entries: Sequence[tuple[str, str, Sequence[Found]]]) -> Table:
    """One row for each `(benchmark, policy, measurements by seed)`: mean@n, best@k, buckets and openings."""
    n = entries[0][2][0].result.account.passes.shape[1]
    classes = list(entries[0][2][0].openings)
    rows = [
        {
            "benchmark": benchmark,
            "policy": policy,
            "mean": over.estimate(found, "mean"),
            **{f"best{k}": over.estimate(found, k).value for k in (4,) if k < n},
            "best": over.estimate(found, n),
            "replaced": float(np.mean([f.result.curve["with_replacement"][-1] for f in found])),
            **{name: over.estimate(found, name).value for name in ("all_wrong", "mixed", "all_correct", *classes)},
            "chain": over.estimate(found, "chain").value,
            "length": float(np.mean([f.result.length for f in found])),
            "truncated": float(np.mean([f.result.truncated for f in found])),
        }
        for benchmark, policy, found in entries
    ]
    columns = [
        Column("benchmark", "Prompts"),
        Column("policy", "Policy"),
        Column("mean", f"mean@{n}"),
        *([Column("best4", "best@4")] if n > 4 else []),
        Column("best", f"best@{n}"),
        Column("replaced", f"best@{n}, with replacement"),
        Column("all_wrong", "all wrong"),
        Column("mixed", "mixed"),
        Column("all_correct", "all correct"),
        *(Column(name, name) for name in classes),
        Column("chain", "chain"),
        Column("length", "tokens", digits=1),
        Column("truncated", "cut off"),
    ]
    caption = (
        f"{n} samples a prompt; brackets: 95 % intervals. best@{n} is the unbiased estimator, equal at k = {n} to any "
        f"of {n}; the column beside it draws with replacement. Buckets are shares of prompts, openings of responses; "
        "chain: responses that show steps, whatever their opening."
    )
    return Table(columns, rows, caption)


def curve(policy: str, found: Sequence[Found]) -> Curve:
    """best@k of a policy for a figure."""
    value, low, high = over.curve(found)
    return Curve(policy, np.arange(1, len(value) + 1), value, low, high)


def training_run(name: str, folder: Path) -> TrainingRun:
    """What a training run logged, for a figure."""
    lines = read_metrics(folder / "metrics.jsonl")
    keys = dict.fromkeys(key for line in lines for key in line if key.startswith("opening_"))
    groups = {"all_wrong": "groups_all_fail", "mixed": "groups_mixed", "all_correct": "groups_all_pass"}
    return TrainingRun(
        name,
        [int(line["step"]) for line in lines],
        [line["reward"] for line in lines],
        {bucket: [line[key] for line in lines] for bucket, key in groups.items()},
        {key.removeprefix("opening_"): [line.get(key, 0.0) for line in lines] for key in keys},
    )

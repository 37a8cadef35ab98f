"""The page of the micro study: table, figures, and every response to read."""

from pathlib import Path
from typing import Any

import numpy as np

from vsr_jax import report, support
from vsr_jax.data.store import read_rollouts
from vsr_jax.report import Callout, Column, Curve, Estimate, Flow, Prose, Section, Table, TrainingRun
from vsr_jax.study.measure import Measurement
from vsr_jax.study.micro import POLICIES, TASKS, MicroStudy, measured_folders, measurements, stages, task_rows
from vsr_jax.training.checkpoint import read_metrics

TITLES = {"math": "Math", "instructions": "Instructions"}


def support_table(found: dict[str, dict[str, Measurement]], samples: int, chains: dict[str, float]) -> Table:
    """One row a task and policy: mean@n, best@k, buckets and openings."""
    rows = []
    for task in TASKS:
        for name in POLICIES:
            m = found[task][name]
            shares = m.buckets.shares
            rows.append(
                {
                    "task": TITLES[task],
                    "policy": name,
                    "mean": Estimate(*m.interval["mean"]),
                    "best4": float(m.curve["unbiased"][min(4, samples) - 1]),
                    "best": Estimate(*m.interval["best"]),
                    "replaced": float(m.curve["with_replacement"][-1]),
                    "wrong": shares["all_wrong"],
                    "mixed": shares["mixed"],
                    "right": shares["all_correct"],
                    "DRI": m.openings["DRI"],
                    "DAI": m.openings["DAI"],
                    "CSI": m.openings["CSI"],
                    "Other": m.openings["Other"],
                    "chain": chains.get(name) if task == "math" else None,
                    "truncated": m.truncated,
                }
            )
    columns = [
        Column("task", "Task"),
        Column("policy", "Policy"),
        Column("mean", f"mean@{samples}"),
        Column("best4", "best@4"),
        Column("best", f"best@{samples}"),
        Column("replaced", f"best@{samples}, with replacement"),
        Column("wrong", "all wrong"),
        Column("mixed", "mixed"),
        Column("right", "all correct"),
        Column("DRI", "DRI"),
        Column("DAI", "DAI"),
        Column("CSI", "CSI"),
        Column("Other", "Other"),
        Column("chain", "chain"),
        Column("truncated", "cut off"),
    ]
    caption = (
        f"{samples} samples a prompt. Brackets: 95 % intervals from resampling prompts. best@{samples} is the unbiased "
        f"estimator, equal at k = {samples} to any-of-{samples}; the column beside it draws with replacement. "
        "Buckets are shares of prompts, openings shares of responses; chain is the share of math responses that "
        "compute step by step, whatever their opening."
    )
    return Table(columns, rows, caption)


def contrast_table(found: dict[str, dict[str, Measurement]]) -> Table:
    """Each branch against Base on the same prompts, with paired intervals and the prompts gained and lost."""
    rows = []
    for task in TASKS:
        base = found[task]["Base"]
        for name in POLICIES[1:]:
            branch = found[task][name]
            change = support.paired_bootstrap(*(support.mean_per_prompt(m.account.passes) for m in (base, branch)))
            n = base.account.passes.shape[1]
            best = support.paired_bootstrap(
                *(support.best_at_k_per_prompt(m.account.passes, n) for m in (base, branch))
            )
            moved = support.transition(base.buckets, branch.buckets)
            rows.append(
                {
                    "task": TITLES[task],
                    "branch": f"{name} - Base",
                    "mean": Estimate(*map(float, (change.difference, change.low, change.high))),
                    "best": Estimate(*map(float, (best.difference, best.low, best.high))),
                    "gained": len(moved.gained),
                    "lost": len(moved.lost),
                }
            )
    columns = [
        Column("task", "Task"),
        Column("branch", "Contrast"),
        Column("mean", "mean", signed=True),
        Column("best", "best@n", signed=True),
        Column("gained", "prompts gained", digits=0),
        Column("lost", "prompts lost", digits=0),
    ]
    return Table(columns, rows, "Differences on the same prompts, 95 % intervals from resampling prompts in pairs.")


def write_report(study: MicroStudy, root: Path) -> Path:
    """Writes `root/report/index.html` with its tables (CSV, Markdown) and figures (PNG, SVG)."""
    out = root / "report"
    found = measurements(study, root)
    tables = {(task, name): read_rollouts(folder) for task, name, folder in measured_folders(study, root)}
    chains = {
        name: float(np.mean([support.has_chain(t, rules=support.MICRO_RULES) for t in table["text"].to_pylist()]))
        for (task, name), table in tables.items()
        if task == "math"
    }
    summary, contrast = support_table(found, study.samples, chains), contrast_table(found)
    report.write_table(summary, out / "support")
    report.write_table(contrast, out / "contrasts")

    ks = np.arange(1, study.samples + 1)
    curves = {TITLES[task]: [_curve(found[task][name], name, ks) for name in POLICIES] for task in TASKS}
    flows = [
        Flow(
            "Base",
            name,
            support.transition_matrix(found[task]["Base"].buckets, found[task][name].buckets),
            TITLES[task],
        )
        for task in TASKS
        for name in POLICIES[1:]
    ]
    openings = {TITLES[task]: {name: dict(found[task][name].openings) for name in POLICIES} for task in TASKS}
    runs = [
        _training_run(name, stage.folder(root)) for name, stage in zip(POLICIES[1:], stages(study)[1:3], strict=True)
    ]
    figures = {
        "best_at_k": report.best_at_k_curves(curves),
        "bucket_flow": report.bucket_flow(flows),
        "openings": report.opening_bars(openings),
        "training": report.training_curves(runs),
    }
    for name, figure in figures.items():
        report.save(figure, out / name)
    sections = [
        Section("What this is", [Callout(_DISCLAIMER), Prose(_setting(study))]),
        Section("Support", [summary, contrast]),
        Section(
            "best@k",
            [
                report.picture(
                    figures["best_at_k"], "best@k of the three policies on both tasks", _CAPTIONS["best_at_k"]
                )
            ],
        ),
        Section(
            "Where prompts went",
            [report.picture(figures["bucket_flow"], "Flow of prompts between buckets", _CAPTIONS["bucket_flow"])],
        ),
        Section("Openings", [report.picture(figures["openings"], "Opening shares", _CAPTIONS["openings"])]),
        Section("Training", [report.picture(figures["training"], "Training curves", _CAPTIONS["training"])]),
        *(_browser(study, task, tables) for task in TASKS),
    ]
    return report.write_page(out, "Micro study: what two verifiers do to support", sections, subtitle="vsr study micro")


_CAPTIONS = {
    "best_at_k": "Chance that one of k samples passes, averaged over prompts (unbiased). Bands: 95 % intervals.",
    "bucket_flow": "Prompts by pass count: none, some or all samples pass. Only mixed prompts carry a GRPO signal.",
    "openings": "First words of the responses: deliberate (DRI), direct answer (DAI), constraint surface (CSI), other.",
    "training": "Reward, groups by outcome, and openings at each training step.",
}


_DISCLAIMER = (
    "This is a miniature: a model of 275 thousand parameters in a made-up language. It exercises every part of the "
    "study and shows what came out with this seed; it says nothing about the size of the effects in real models."
)


def _setting(study: MicroStudy) -> str:
    return (
        f"From one Base policy, Math-RLVR ran {study.math_steps} and IF-RLVR {study.if_steps} GRPO steps of 16 prompts "
        f"x 16 samples at learning rate {study.learning_rate:g}, without KL. All three policies answered the same "
        f"{study.prompts} math and {study.prompts} instruction prompts, none of which is in any training text, "
        f"{study.samples} times each at temperature 1 and top-p 1. A response passes when it ends and its verifier "
        f"accepts it. World `{study.world}`, seed {study.seed}."
    )


def _curve(m: Measurement, name: str, ks: np.ndarray) -> Curve:
    per_prompt = support.best_at_k_curve_per_prompt(m.account.passes)
    low, high = support.bootstrap_interval(per_prompt, draws=2000)
    return Curve(name, ks, m.curve["unbiased"], low, high)


def _training_run(name: str, folder: Path) -> TrainingRun:
    lines = read_metrics(folder / "metrics.jsonl")
    shares = lambda prefix: {  # noqa: E731
        key: [line.get(key, 0.0) for line in lines]
        for key in dict.fromkeys(k for line in lines for k in line if k.startswith(prefix))
    }
    openings = {key.removeprefix("opening_"): values for key, values in shares("opening_").items()}
    groups = {
        "all_wrong": [line["groups_all_fail"] for line in lines],
        "mixed": [line["groups_mixed"] for line in lines],
        "all_correct": [line["groups_all_pass"] for line in lines],
    }
    return TrainingRun(
        name, [int(line["step"]) for line in lines], [line["reward"] for line in lines], groups, openings
    )


def _browser(study: MicroStudy, task: str, tables: dict[tuple[str, str], Any]) -> Section:
    rows = {row.id: row for row in task_rows(study, task, "evaluation")}
    responses = []
    for name in POLICIES:
        for item in tables[task, name].select(_BROWSED).to_pylist():
            row = rows[item["prompt_id"]]
            names = row.instruction_ids or ("answer",)
            held = item.pop("parts")
            constraints = list(zip(names, held, strict=True)) if len(names) == len(held) else []
            responses.append({"policy": name, "prompt": row.prompt, "constraints": constraints, **item})
    return report.browser_section(responses, heading=f"Responses: {TITLES[task].lower()}", asked=study.samples)


_BROWSED = ["prompt_id", "sample_id", "text", "passed", "opening", "status", "finish_reason", "parts"]

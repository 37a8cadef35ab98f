"""3. Math-RLVR after IF-RLVR: fewer groups carry a signal, and openings stay direct (Figure 4)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.policies import base, if_rlvr, if_then_math, math_rlvr
from vsr_jax import report
from vsr_jax.report import Flow, Prose
from vsr_jax.study import blocks
from vsr_jax.study.kinds import Measured, PolicyAt, measure
from vsr_jax.study.preset import Preset
from vsr_jax.study.runs import Stage
from vsr_jax.study.seeds import change, flow, found, over_seeds
from vsr_jax.study.statements import Chapter, Statement
from vsr_jax.training.checkpoint import read_metrics

EARLY = 5
"""Steps at the start of training whose groups are compared."""


def plan(preset: Preset, seed: int) -> list[Measured]:
    """Base, Math-RLVR alone, the IF endpoint, and Math-RLVR from there."""
    policies = (base(preset), math_rlvr(preset, seed), if_rlvr(preset, seed), if_then_math(preset, seed))
    return [measure(preset, policy, preset.math_buckets, seed) for policy in policies]


def stages(preset: Preset, seed: int) -> list[Stage]:
    """What has to be measured."""
    return [m.stage for m in plan(preset, seed)]


def early_signal(policy: PolicyAt, root: Path) -> np.ndarray:
    """Share of groups that are mixed at each of the first steps, float64[EARLY]."""
    lines = read_metrics(policy.stage.folder(root) / "metrics.jsonl")
    return np.array([line["groups_mixed"] for line in lines[:EARLY]])


def chapter(preset: Preset, seeds: Sequence[int], root: Path) -> Chapter:
    """Buckets before and after, and the two training runs step by step."""
    plans = [plan(preset, seed) for seed in seeds]
    start, alone, after_if, both = ([found(preset, p[i], root) for p in plans] for i in range(4))
    title = preset.math_buckets.title
    signal = over_seeds(
        [early_signal(if_then_math(preset, seed), root) - early_signal(math_rlvr(preset, seed), root) for seed in seeds]
    )
    statements = [
        Statement(
            "Figure 4",
            "after IF-RLVR more math prompts are all wrong than for Base",
            "65.6 % all wrong",
            +1,
            change(start, after_if, "all_wrong"),
            title,
        ),
        Statement(
            "Figure 4",
            f"fewer groups carry a signal in the first {EARLY} steps of Math-RLVR than from Base",
            "33.6 % mixed",
            -1,
            signal,
            title,
            "steps and seeds",
        ),
        Statement(
            "Figure 4",
            "Math-RLVR from there empties the mixed bucket",
            "33.6 % to 1.6 %",
            -1,
            change(after_if, both, "mixed"),
            title,
        ),
        Statement(
            "Figure 4",
            "and leaves more prompts all wrong than Math-RLVR alone",
            "50.8 % all wrong",
            +1,
            change(alone, both, "all_wrong"),
            title,
        ),
        Statement(
            "Figure 4",
            "its openings are less deliberate than those of Math-RLVR alone",
            "7.8 % against 25.0 %",
            -1,
            change(alone, both, "DRI"),
            title,
        ),
    ]
    table = [
        (title, name, cells)
        for name, cells in (("Base", start), ("Math-RLVR", alone), ("IF-RLVR", after_if), ("IF -> Math", both))
    ]
    flows = [
        Flow("IF-RLVR", "IF -> Math", flow(after_if, both), "After IF-RLVR"),
        Flow("Base", "Math-RLVR", flow(start, alone), "From Base"),
    ]
    runs = [
        blocks.training_run(name, policy.stage.folder(root))
        for name, policy in (
            ("Math-RLVR from Base", math_rlvr(preset, seeds[0])),
            ("Math-RLVR from IF-RLVR", if_then_math(preset, seeds[0])),
        )
    ]
    return Chapter(
        "3. Math-RLVR after IF-RLVR",
        statements,
        [
            Prose(
                "Only mixed groups carry a GRPO signal: where all samples fail or all pass, every advantage is zero."
            ),
            blocks.support_table(table),
            report.picture(report.bucket_flow(flows), "Flow of prompts between buckets", blocks.FLOW_CAPTION),
            report.picture(
                report.training_curves(runs),
                "Reward, groups and openings by training step",
                f"Training step by step, seed {seeds[0]}.",
            ),
        ],
    )

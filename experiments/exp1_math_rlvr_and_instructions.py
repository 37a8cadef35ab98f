"""1. Math-RLVR polarises instruction support (Table 1, Figure 2)."""

from collections.abc import Sequence
from pathlib import Path

from experiments.policies import base, math_rlvr
from vsr_jax import report
from vsr_jax.report import Flow, Prose
from vsr_jax.study import blocks
from vsr_jax.study.kinds import Measured, measure
from vsr_jax.study.preset import Bench, Preset
from vsr_jax.study.runs import Stage
from vsr_jax.study.seeds import What, change, flow, found
from vsr_jax.study.statements import Chapter, Statement

PAPER = {"mean": "+.065, +.032, +.079, +.016", "best": "-.098, -.067, -.114, -.037"}
"""IFEval and IFBench on Qwen3-8B-Base, then on Qwen2.5-Math-7B."""


def plan(preset: Preset, seed: int, bench: Bench) -> tuple[Measured, Measured]:
    """Base and Math-RLVR on one instruction benchmark."""
    before, after = (measure(preset, policy, bench, seed) for policy in (base(preset), math_rlvr(preset, seed)))
    return before, after


def stages(preset: Preset, seed: int) -> list[Stage]:
    """What has to be measured."""
    return [m.stage for bench in preset.if_support for m in plan(preset, seed, bench)]


def chapter(preset: Preset, seeds: Sequence[int], root: Path) -> Chapter:
    """Means, coverage, and where prompts went."""
    statements, table, flows, curves = [], [], [], {}
    for bench in preset.if_support:
        pairs = [plan(preset, seed, bench) for seed in seeds]
        before, after = ([found(preset, pair[i], root) for pair in pairs] for i in (0, 1))
        n = bench.decoding.samples
        table += [(bench.title, "Base", before), (bench.title, "Math-RLVR", after)]
        flows.append(Flow("Base", "Math-RLVR", flow(before, after), bench.title))
        curves[bench.title] = [blocks.curve("Base", before), blocks.curve("Math-RLVR", after)]
        says: list[tuple[str, str, int, What]] = [
            ("Math-RLVR raises the mean on instructions", PAPER["mean"], +1, "mean"),
            (f"and lowers best@{n}", PAPER["best"], -1, n),
            ("prompts leave the mixed bucket", "", -1, "mixed"),
            ("some become all wrong", "", +1, "all_wrong"),
            ("some become all correct", "", +1, "all_correct"),
        ]
        statements += [
            Statement("Table 1", text, paper, sign, change(before, after, what), bench.title)
            for text, paper, sign, what in says
        ]
    return Chapter(
        "1. Math-RLVR and instruction support",
        statements,
        [
            Prose("Trained on math only, measured on instructions."),
            blocks.support_table(table),
            report.picture(report.bucket_flow(flows), "Flow of prompts between buckets", blocks.FLOW_CAPTION),
            report.picture(report.best_at_k_curves(curves), "best@k of Base and Math-RLVR", blocks.CURVE_CAPTION),
        ],
    )

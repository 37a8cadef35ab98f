"""4. IF-RLVR after Math-RLVR under a reference penalty (Figure 5)."""

from collections.abc import Sequence
from pathlib import Path

from experiments.policies import math_rlvr, math_then_if
from vsr_jax import report
from vsr_jax.report import Prose
from vsr_jax.report.study_figures import trade_off
from vsr_jax.study import blocks
from vsr_jax.study.kinds import Measured, PolicyAt, measure
from vsr_jax.study.preset import Preset
from vsr_jax.study.runs import Stage
from vsr_jax.study.seeds import change, estimate, found
from vsr_jax.study.statements import Chapter, Statement


def policies(preset: Preset, seed: int) -> list[PolicyAt]:
    """The Math endpoint, then one policy a beta."""
    return [math_rlvr(preset, seed), *(math_then_if(preset, seed, beta) for beta in preset.betas)]


def plan(preset: Preset, seed: int) -> list[tuple[Measured, Measured]]:
    """Each policy on math and on instructions."""
    benches = (preset.math_buckets, preset.if_small)
    return [
        (measure(preset, policy, benches[0], seed), measure(preset, policy, benches[1], seed))
        for policy in policies(preset, seed)
    ]


def stages(preset: Preset, seed: int) -> list[Stage]:
    """What has to be measured."""
    return [m.stage for pair in plan(preset, seed) for m in pair]


def chapter(preset: Preset, seeds: Sequence[int], root: Path) -> Chapter:
    """What each weight keeps of math and gains on instructions."""
    plans = [plan(preset, seed) for seed in seeds]
    cells = [[[found(preset, p[i][j], root) for p in plans] for j in (0, 1)] for i in range(len(plans[0]))]
    titles = preset.math_buckets.title, preset.if_small.title
    (math_start, if_start), (math_free, if_free), (math_held, if_held) = cells[0], cells[1], cells[-1]
    largest = preset.betas[-1]
    statements = [
        Statement(
            "Figure 5", "beta 0: instructions improve", "improve", +1, change(if_start, if_free, "mean"), titles[1]
        ),
        Statement(
            "Figure 5",
            "beta 0: the math mean drops",
            "drops strongly",
            -1,
            change(math_start, math_free, "mean"),
            titles[0],
        ),
        Statement(
            "Figure 5",
            f"beta {largest:g} keeps more of the math mean than beta 0",
            "basically kept",
            +1,
            change(math_free, math_held, "mean"),
            titles[0],
        ),
        Statement(
            "Figure 5",
            f"beta {largest:g} gains less on instructions than beta 0",
            "smallest gain",
            -1,
            change(if_free, if_held, "mean"),
            titles[1],
        ),
    ]
    names = [policy.name for policy in policies(preset, seeds[0])]
    table = [(titles[j], name, pair[j]) for j in (0, 1) for name, pair in zip(names, cells, strict=True)]
    points = {
        name: (estimate(pair[1], "mean"), estimate(pair[0], "mean")) for name, pair in zip(names, cells, strict=True)
    }
    figure = trade_off(points, f"{titles[1]}, mean", f"{titles[0]}, mean")
    return Chapter(
        "4. IF-RLVR after Math-RLVR, held to its reference",
        statements,
        [
            Prose(
                f"The penalty is the {preset.then_if.kl_estimator} estimator in the loss, against the Math endpoint; "
                "groups without a signal stay in the loss, so that it holds there too."
            ),
            report.picture(
                figure,
                "What is kept of math against what is gained on instructions",
                "Each weight of the penalty; lines: 95 % intervals.",
            ),
            blocks.support_table(table),
        ],
    )

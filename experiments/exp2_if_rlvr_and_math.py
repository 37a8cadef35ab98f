"""2. IF-RLVR lowers what can be found on math, and moves openings from deliberate to direct (Figure 3)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.policies import if_snapshots
from vsr_jax import report
from vsr_jax.report import Prose
from vsr_jax.report.mechanism_figures import trajectory
from vsr_jax.study import blocks
from vsr_jax.study.kinds import Measured, measure
from vsr_jax.study.preset import Bench, Preset
from vsr_jax.study.runs import Stage
from vsr_jax.study.seeds import Found, across, change, estimate, found, openings
from vsr_jax.study.statements import Chapter, Statement


def plan(preset: Preset, seed: int, bench: Bench) -> list[Measured]:
    """Base, snapshots of IF-RLVR, and its end, on one math benchmark."""
    return [measure(preset, policy, bench, seed) for policy in if_snapshots(preset, seed)]


def stages(preset: Preset, seed: int) -> list[Stage]:
    """What has to be measured."""
    return [m.stage for bench in preset.math_support for m in plan(preset, seed, bench)]


def correlation(path: Sequence[Found], opening: str, k: int) -> float:
    """Pearson r over checkpoints between an opening's share and best@k; NaN where either does not vary."""
    shares = np.array([np.nanmean(point.values(opening)) for point in path])
    best = np.array([np.nanmean(point.values(k)) for point in path])
    if min(shares.std(), best.std()) < 1e-12:
        return float("nan")
    return float(np.corrcoef(shares, best)[0, 1])


def chapter(preset: Preset, seeds: Sequence[int], root: Path) -> Chapter:
    """The path of openings and coverage."""
    statements, table, pictures = [], [], []
    for bench in preset.math_support:
        paths = [[found(preset, m, root) for m in plan(preset, seed, bench)] for seed in seeds]
        points = [list(point) for point in zip(*paths, strict=True)]  # by checkpoint, then seed
        names = [m.policy.name for m in plan(preset, seeds[0], bench)]
        first, last = points[0], points[-1]
        n = bench.decoding.samples
        table += [(bench.title, name, point) for name, point in zip(names, points, strict=True)]
        statements += [
            Statement(
                "Figure 3",
                f"IF-RLVR lowers best@{k} on math",
                "falls at every k",
                -1,
                change(first, last, k),
                bench.title,
            )
            for k in sorted({min(4, n), n})
        ]
        statements += [
            Statement(
                "Figure 3",
                "direct answers (DAI) become more frequent",
                "DAI dominant at the end",
                +1,
                change(first, last, "DAI"),
                bench.title,
            ),
            Statement(
                "Figure 3", "deliberate openings (DRI) become rarer", "", -1, change(first, last, "DRI"), bench.title
            ),
        ]
        statements += [
            Statement(
                "Figure 3",
                f"over checkpoints, the DAI share and best@{k} move against each other",
                "r = -.85 at 32",
                -1,
                across([correlation(path, "DAI", k) for path in paths]),
                bench.title,
                "smallest and largest seed",
            )
            for k in sorted({min(4, n), n})
        ]
        budgets = {k: [estimate(point, k).value for point in points] for k in (1, 4, 16) if k <= n} | {
            n: [estimate(point, n).value for point in points]
        }
        shares = [openings(point) for point in points]
        figure = trajectory(
            names, budgets, {name: [share[name] for share in shares] for name in ("DRI", "DAI", "Other")}
        )
        pictures.append(
            report.picture(figure, f"{bench.title} over IF-RLVR", f"{bench.title} over the steps of IF-RLVR.")
        )
    return Chapter(
        "2. IF-RLVR and what can be found on math",
        statements,
        [Prose("Trained on instructions only, measured on math."), *pictures, blocks.support_table(table)],
    )

"""7. Mitigation: opening priors before IF-RLVR (Figure 9), distillation from IF teachers (Figures 10 and 11)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.policies import base, if_rlvr, student, with_prior, without_prior
from vsr_jax import report
from vsr_jax.report import Column, Prose, Table
from vsr_jax.report.study_figures import trade_off
from vsr_jax.study import blocks
from vsr_jax.study.kinds import Measured, PolicyAt, bench_rows, measure, snapshot
from vsr_jax.study.kinds_mechanism import Shift, shift
from vsr_jax.study.preset import Preset
from vsr_jax.study.runs import Stage
from vsr_jax.study.seeds import Found, across, change, estimate, found, over_seeds
from vsr_jax.study.shortcuts import shortcut_share
from vsr_jax.study.statements import Chapter, Statement


def prior_policies(preset: Preset, seed: int) -> dict[str, PolicyAt]:
    """Without and with each prior: before, halfway through, and after IF-RLVR."""
    out: dict[str, PolicyAt] = {"Base": base(preset)}
    runs = {"No prior": (None, without_prior(preset, seed))}
    runs |= {name: with_prior(preset, seed, name) for name in preset.priors}
    for name, (taught, end) in runs.items():
        if taught is not None:
            out[f"{name} prior"] = taught
        out |= {f"{name}, step {step}": snapshot(end, step, f"{name}, step {step}") for step in preset.prior_snapshots}
        out[f"{name}, end"] = end
    return out


def students(preset: Preset, seed: int) -> dict[str, PolicyAt]:
    """Base, the teacher, the student of the converged teacher, and a student a snapshot."""
    return {
        "Base": base(preset),
        "teacher": if_rlvr(preset, seed),
        "OPD": student(preset, seed, None),
        **{f"OPD from step {step}": student(preset, seed, step) for step in preset.teacher_steps},
    }


def on_both(preset: Preset, policy: PolicyAt, seed: int) -> tuple[Measured, Measured]:
    """On math and on instructions."""
    return measure(preset, policy, preset.math_buckets, seed), measure(preset, policy, preset.if_small, seed)


def preference(preset: Preset, seed: int) -> Shift:
    """How teacher and student moved on Base's responses to instructions."""
    along = measure(preset, base(preset), preset.if_small, seed)
    return shift(preset, (base(preset), if_rlvr(preset, seed), student(preset, seed, None)), along, seed)


def stages(preset: Preset, seed: int) -> list[Stage]:
    """What has to be measured."""
    policies = [*prior_policies(preset, seed).values(), *students(preset, seed).values()]
    return [*(m.stage for policy in policies for m in on_both(preset, policy, seed)), preference(preset, seed).stage]


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation; ties get the mean of their ranks."""

    def ranks(values: np.ndarray) -> np.ndarray:
        _, place, count = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(count) - (count - 1) / 2)[place]

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


Cells = dict[str, tuple[list[Found], list[Found]]]


def _cells(preset: Preset, seeds: Sequence[int], root: Path, policies) -> Cells:
    plans = [{name: on_both(preset, policy, seed) for name, policy in policies(preset, seed).items()} for seed in seeds]
    return {
        name: ([found(preset, p[name][0], root) for p in plans], [found(preset, p[name][1], root) for p in plans])
        for name in plans[0]
    }


def _table(cells: Cells, titles: tuple[str, str]):
    return blocks.support_table([(titles[j], name, pair[j]) for j in (0, 1) for name, pair in cells.items()])


def chapter(preset: Preset, seeds: Sequence[int], root: Path) -> Chapter:
    """Priors, then distillation."""
    titles = preset.math_buckets.title, preset.if_small.title
    n = preset.math_buckets.decoding.samples
    held = _cells(preset, seeds, root, prior_policies)
    taught = _cells(preset, seeds, root, students)
    ends = {name: pair for name, pair in held.items() if name == "Base" or name.endswith(", end")}
    statements = [*_prior_statements(preset, held, titles[0], n), *_opd_statements(preset, seeds, root, taught, titles)]
    mean = lambda pair: (estimate(pair[1], "mean"), estimate(pair[0], "mean"))  # noqa: E731
    axes = f"{titles[1]}, mean", f"{titles[0]}, mean"
    return Chapter(
        "7. Mitigation: opening priors and distillation",
        statements,
        [
            Prose(
                f"Priors: at most {preset.prior_texts} correct responses of Base, one a prompt, trained on before "
                "IF-RLVR; DRI and DAI keep the shortest that opens so, Random any."
            ),
            report.picture(
                trade_off({k: mean(p) for k, p in ends.items()}, *axes),
                "Priors: math kept against instructions gained",
                "At the end of IF-RLVR; lines: 95 % intervals.",
            ),
            _table(held, titles),
            Prose("Distillation: the student samples; its teacher is IF-RLVR at its end, or at a snapshot."),
            report.picture(
                trade_off({k: mean(p) for k, p in taught.items()}, *axes),
                "Students: math kept against instructions gained",
                "Lines: 95 % intervals.",
            ),
            _table(taught, titles),
            _shortcut_table(preset, seeds, root),
        ],
    )


def _prior_statements(preset: Preset, cells: Cells, title: str, n: int) -> list[Statement]:
    if not preset.priors:
        return []
    step = preset.prior_snapshots[-1]
    half, end = f", step {step}", ", end"
    first = next(iter(preset.priors))
    pair = lambda where: (cells[f"No prior{where}"][0], cells[f"{first}{where}"][0])  # noqa: E731
    return [
        Statement(
            "Figure 9",
            f"halfway, the {first} prior has kept more of best@{n} on math than no prior",
            ".40 on AIME24 at step 70",
            +1,
            change(*pair(half), n),
            title,
        ),
        Statement(
            "Figure 9",
            f"halfway, the {first} prior has fewer direct answers than no prior",
            "DAI .033 at step 70",
            -1,
            change(*pair(half), "DAI"),
            title,
        ),
        Statement(
            "Figure 9",
            f"the end undoes it: direct answers rise from halfway to the end despite the {first} prior",
            "DAI 1.0 for all priors at step 100",
            +1,
            change(cells[f"{first}{half}"][0], cells[f"{first}{end}"][0], "DAI"),
            title,
        ),
    ]


def _opd_statements(
    preset: Preset, seeds: Sequence[int], root: Path, cells: Cells, titles: tuple[str, str]
) -> list[Statement]:
    shares = [_shortcuts(preset, seed, root) for seed in seeds]
    shifts = [preference(preset, seed) for seed in seeds]
    rho = [spearman(s.change(root, s.policies[1]), s.change(root, s.policies[2])) for s in shifts]
    early, late = f"OPD from step {preset.teacher_steps[0]}", f"OPD from step {preset.teacher_steps[-1]}"
    return [
        Statement(
            "Figure 10",
            "a student of the converged IF teacher loses on math",
            "-.255",
            -1,
            change(cells["Base"][0], cells["OPD"][0], "mean"),
            titles[0],
        ),
        Statement(
            "Figure 10",
            "and answers instructions by shortcuts more often",
            ".045 to .188",
            +1,
            over_seeds([s["OPD"] - s["Base"] for s in shares]),
            titles[1],
        ),
        Statement(
            "Figure 10",
            "its preferences move against those of its teacher (rank correlation)",
            "rho = -.594",
            -1,
            across(rho),
            titles[1],
            "smallest and largest seed",
        ),
        Statement(
            "Figure 11",
            "an early teacher costs no math",
            "+.0093",
            +1,
            change(cells["Base"][0], cells[early][0], "mean"),
            titles[0],
        ),
        Statement(
            "Figure 11",
            "a late teacher costs more math than an early one",
            "",
            -1,
            change(cells[early][0], cells[late][0], "mean"),
            titles[0],
        ),
    ]


def _shortcuts(preset: Preset, seed: int, root: Path) -> dict[str, np.ndarray]:
    """Share of each prompt's responses that pass without content, float64[prompts], by policy."""
    rows = bench_rows(preset, preset.if_small)
    return {
        name: shortcut_share(on_both(preset, policy, seed)[1].table(root), rows)
        for name, policy in students(preset, seed).items()
    }


def _shortcut_table(preset: Preset, seeds: Sequence[int], root: Path) -> Table:
    shares = [_shortcuts(preset, seed, root) for seed in seeds]
    rows = [{"policy": name, "share": over_seeds([s[name] for s in shares])} for name in shares[0]]
    caption = (
        "Shortcuts: responses that pass while fewer than four of their words are not asked for by a constraint. The "
        "paper asks a judge; the rule is in study/shortcuts.py and takes another."
    )
    return Table([Column("policy", "Policy"), Column("share", "shortcuts, share of responses")], rows, caption)

"""5. Where the policies differ: the first token, and tokens that Base knew (Figures 6 and 7, Table 2)."""

from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

import numpy as np

from experiments.policies import base, if_rlvr, math_rlvr
from vsr_jax import report
from vsr_jax.report import Column, Estimate, Prose, Table
from vsr_jax.report.mechanism_figures import PositionCurve, js_by_position
from vsr_jax.study.kinds import measure
from vsr_jax.study.kinds_mechanism import Localized, localized
from vsr_jax.study.preset import Bench, Preset
from vsr_jax.study.runs import Stage
from vsr_jax.study.seeds import across
from vsr_jax.study.statements import Chapter, Statement


def plan(preset: Preset, seed: int, bench: Bench) -> Localized:
    """Both branches against Base along the responses of Base."""
    along = measure(preset, base(preset), bench, seed)
    return localized(preset, (base(preset), math_rlvr(preset, seed), if_rlvr(preset, seed)), along, seed)


def stages(preset: Preset, seed: int) -> list[Stage]:
    """What has to be compared."""
    return [plan(preset, seed, bench).stage for bench in preset.localize]


def _log_ratio(ratios: Sequence[Mapping[str, float | None]]) -> Estimate:
    """Of one seed with its interval over prompts, else over seeds."""
    one = lambda value: log(value) if value else float("nan")  # noqa: E731
    if len(ratios) == 1:
        return Estimate(*(one(ratios[0][key]) for key in ("value", "low", "high")))
    return across([one(ratio["value"]) for ratio in ratios])


def _row(pair: Mapping[str, Any]) -> dict[str, Any]:
    ratio, top, high, first = pair["ratio"], pair["ratio_top"], pair["high"], pair["first"]
    return {
        "first": ratio["first"],
        "interior": ratio["interior"],
        "ratio": Estimate(
            *(ratio[key] if ratio[key] is not None else float("nan") for key in ("value", "low", "high"))
        ),
        "ratio_top": top["value"],
        "overlap": high["overlap"],
        "in_top3": high["in_top3"],
        "rank": first["median_rank"],
        "prob": first["prob_top"],
        "prob_q": first["prob_q"],
    }


def chapter(preset: Preset, seeds: Sequence[int], root: Path) -> Chapter:
    """First token against interior, the positions that differ most, and the first choices."""
    statements, rows, panels, masses = [], [], {}, []
    for bench in preset.localize:
        every = [plan(preset, seed, bench).found(root) for seed in seeds]
        curves = []
        for pair in every[0]["pairs"]:
            policy = pair.partition("|")[2]
            if not pair.startswith("Base|"):
                continue
            held = [one["pairs"][pair] for one in every]
            over = "prompts" if len(seeds) == 1 else "smallest and largest seed"
            about = f"{policy}, {bench.title}"
            statements += [
                Statement(
                    "Figure 6",
                    "first-token JS exceeds interior JS (logarithm of the ratio)",
                    "ratio 9.8 to 106.7",
                    +1,
                    _log_ratio([h["ratio"] for h in held]),
                    about,
                    over,
                ),
                Statement(
                    "Table 2",
                    "at the highest tenth of JS, most trained first choices are in Base's top 3 (share less .5)",
                    ".893 to .994",
                    +1,
                    across([h["high"]["in_top3"] - 0.5 for h in held]),
                    about,
                    "smallest and largest seed",
                ),
            ]
            rows += [{"about": about, "seed": seed, **_row(h)} for seed, h in zip(seeds, held, strict=True)]
            curves.append(
                PositionCurve(
                    f"Base, {policy}",
                    np.array([x if x is not None else np.nan for x in held[0]["by_position"]], float),
                    np.array([x if x is not None else np.nan for x in held[0]["by_position_top"]], float),
                )
            )
        panels[bench.title] = curves
        masses += _masses(every, bench.title, seeds)
    columns = [
        Column("about", "Policy"),
        Column("seed", "Seed", digits=0),
        Column("first", "JS, first token", digits=4),
        Column("interior", "interior", digits=4),
        Column("ratio", "ratio", digits=1),
        Column("ratio_top", "ratio, top 64", digits=1),
        Column("overlap", "top-10 overlap at high JS", digits=2),
        Column("in_top3", "trained first choice in Base top 3"),
        Column("rank", "Base rank of the trained first token", digits=1),
        Column("prob", "its Base probability"),
        Column("prob_q", "its trained probability"),
    ]
    mass_columns = [
        Column("about", "Prompts"),
        Column("seed", "Seed", digits=0),
        Column("class", "First tokens that lead to"),
        *(Column(name, name) for name in ("Base", "Math-RLVR", "IF-RLVR")),
    ]
    return Chapter(
        "5. Where the policies differ",
        statements,
        [
            Prose(
                "Teacher forcing along responses of Base, JS in nats over the whole vocabulary; the truncated form of "
                "the paper beside it. A large ratio of tiny numbers says little, so both means are given."
            ),
            report.picture(
                js_by_position(panels),
                "JS by response position",
                f"Mean JS at each position; dotted: top 64 of each. Seed {seeds[0]}.",
            ),
            Table(columns, rows, "Intervals from resampling prompts."),
            Table(mass_columns, masses, "Mean probability of the first tokens that begin each opening class."),
        ],
    )


def _masses(every: Sequence[Mapping[str, Any]], title: str, seeds: Sequence[int]) -> list[dict[str, Any]]:
    names = ("Base", "Math-RLVR", "IF-RLVR")
    return [
        {"about": title, "seed": seed, "class": name, **dict(zip(names, values, strict=True))}
        for seed, one in zip(seeds, every, strict=True)
        for name, values in one["mass"].items()
    ]

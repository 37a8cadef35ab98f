"""Tables, figures and page of `vsr intervene`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from vsr_jax import report
from vsr_jax.data.rows import Row
from vsr_jax.mechanism.intervene import Forcing
from vsr_jax.mechanism.marks import segments
from vsr_jax.report import Column, Estimate, Prose, Section, Table
from vsr_jax.report.mechanism_figures import intervention_dots, sweep_curve
from vsr_jax.study.intervene import Effect
from vsr_jax.study.policy import Policy


@dataclass(frozen=True)
class Direction:
    """One decoded policy with its conditions.

    Attributes:
      policy: decoded; source: name of the other policy, empty where there is none.
      forcings, effects, tables: by condition; the first is `free`.
    """

    policy: Policy
    source: str
    forcings: Sequence[Forcing]
    effects: Mapping[str, Effect]
    tables: Mapping[str, pa.Table]


def effect_table(directions: Sequence[Direction], samples: int) -> Table:
    """A row a condition."""
    rows = []
    for direction in directions:
        for forcing in direction.forcings:
            effect = direction.effects[forcing.name]
            m = effect.measured
            change = {
                name: Estimate(*(float(x) for x in (d.difference, d.low, d.high)))
                for name, d in (("d_mean", effect.mean), ("d_best", effect.best))
            }
            rows.append(
                {
                    "policy": direction.policy.name,
                    "condition": forcing.name,
                    "mean": Estimate(*m.interval["mean"]),
                    "best": Estimate(*m.interval["best"]),
                    **(dict.fromkeys(change) if forcing.name == "free" else change),
                    "gained": len(effect.gained),
                    "lost": len(effect.lost),
                    **{name: share for name, share in m.openings.items()},
                    "chain": effect.chain,
                    "tokens": m.length,
                    "truncated": m.truncated,
                    "reached": effect.reached,
                }
            )
    classes = list(next(iter(directions[0].effects.values())).measured.openings)
    columns = [
        Column("policy", "Policy"),
        Column("condition", "Condition"),
        Column("mean", f"mean@{samples}"),
        Column("best", f"best@{samples}"),
        Column("d_mean", "mean, change", signed=True),
        Column("d_best", "best, change", signed=True),
        Column("gained", "prompts gained", digits=0),
        Column("lost", "lost", digits=0),
        *(Column(name, name) for name in classes),
        Column("chain", "chain"),
        Column("tokens", "tokens", digits=1),
        Column("truncated", "cut off"),
        Column("reached", "reached"),
    ]
    caption = (
        "Forced tokens belong to the response when it is checked and when its opening is named. Changes are against "
        "the free policy on the same prompts, 95 % intervals from resampling prompts in pairs. chain: responses that "
        "show steps, whatever their opening. reached: responses still running at the forced position."
    )
    return Table(columns, rows, caption)


def prompt_table(directions: Sequence[Direction]) -> Table:
    """The prompts gained and lost by name."""
    rows = [
        {
            "policy": d.policy.name,
            "condition": f.name,
            "gained": ", ".join(d.effects[f.name].gained),
            "lost": ", ".join(d.effects[f.name].lost),
        }
        for d in directions
        for f in d.forcings[1:]
    ]
    columns = [
        Column("policy", "Policy"),
        Column("condition", "Condition"),
        Column("gained", "Gained"),
        Column("lost", "Lost"),
    ]
    return Table(
        columns, rows, "Prompts with a passing sample under the condition alone, and under the free policy alone."
    )


def paper_table(directions: Sequence[Direction]) -> Table:
    """The paper's largest recovery of an IF-trained policy beside the largest change that an opening made here."""
    entry = report.paper_value(
        "6", "Qwen3-8B-Base & Qwen2.5-Math-7B", "AIME/MATH-500",
        "IF-RLVR decoding, forced route token (maximum)", "delta_best@32_max",
    )  # fmt: skip
    comparisons = []
    for d in directions:
        changes = {f.name: float(d.effects[f.name].best.difference) for f in d.forcings[1:] if f.position == 1}
        if entry is not None and changes:
            name = max(changes, key=lambda key: changes[key])
            comparisons.append(report.Comparison(entry, changes[name], f"{d.policy.name}, {name}"))
    return report.side_by_side(comparisons, "The paper states the two largest changes over its models and benchmarks.")


def write_report(
    out: Path, directions: Sequence[Direction], rows: Sequence[Row], samples: int, setting: str
) -> tuple[Path, dict[str, Table]]:
    """Writes tables, figures and `index.html` into `out`; returns the page and the tables."""
    tables = {
        "effects": effect_table(directions, samples),
        "prompts": prompt_table(directions),
        "paper": paper_table(directions),
    }
    for name, table in tables.items():
        report.write_table(table, out / name)
    measures = (f"mean@{samples}", f"best@{samples}")
    panels = {
        d.policy.name: {
            f.name: {
                measure: Estimate(*d.effects[f.name].measured.interval[key])
                for measure, key in zip(measures, ("mean", "best"), strict=True)
            }
            for f in d.forcings
            if f.position == 1
        }
        for d in directions
    }
    figures = {"conditions": intervention_dots(panels, measures)}
    for number, d in enumerate(directions):
        swept = [f for f in d.forcings if f.position > 1]
        if swept:
            swept = [f for f in d.forcings if f.name == "other's first token"] + swept
            figures["sweep" if number == 0 else f"sweep_{number + 1}"] = _sweep(d, swept, samples)
    for name, figure in figures.items():
        report.save(figure, out / name)
    sweeps = [
        report.picture(
            figure,
            "what the other policy's first token does at each position",
            "The other policy's first token, forced at each position; dotted: the free policy.",
        )
        for name, figure in figures.items()
        if name.startswith("sweep")
    ]
    sections = [
        Section(
            "What a forced opening does",
            [
                Prose(setting),
                report.picture(
                    figures["conditions"], "mean and best by condition", "95 % intervals from resampling prompts."
                ),
                tables["effects"],
            ],
        ),
        *([Section("The same token further on", sweeps)] if sweeps else []),
        Section("Prompts gained and lost", [tables["prompts"]]),
        Section("Beside the paper", [tables["paper"]]),
        *(_browser(d, rows, prompts=12, samples=min(4, samples)) for d in directions),
    ]
    return report.write_page(out, "What a forced opening does", sections, subtitle="vsr intervene"), tables


def _sweep(direction: Direction, swept: Sequence[Forcing], samples: int):
    best, mean, openings = f"best@{samples}", f"mean@{samples}", {}
    measured = {f.name: direction.effects[f.name].measured for f in swept}
    free = direction.effects["free"].measured
    for name in free.openings:
        if name in ("DRI", "DAI"):
            openings[f"{name} share"] = [m.openings[name] for m in measured.values()]
    return sweep_curve(
        [f.position for f in swept],
        {
            best: [m.interval["best"][0] for m in measured.values()],
            mean: [m.interval["mean"][0] for m in measured.values()],
            **openings,
        },
        {
            best: free.interval["best"][0],
            mean: free.interval["mean"][0],
            **{f"{name} share": share for name, share in free.openings.items()},
        },
    )


def _browser(direction: Direction, rows: Sequence[Row], prompts: int, samples: int) -> Section:
    """Some responses of every condition with the forced tokens marked."""
    texts = {row.id: row.prompt for row in rows[:prompts]}
    responses = []
    for name, table in direction.tables.items():
        for item in table.to_pylist():
            if item["prompt_id"] not in texts or item["sample_id"] >= samples:
                continue
            marks = ["" if sampled else "forced" for sampled in item["sampled"]]
            kept = ("prompt_id", "sample_id", "text", "passed", "opening", "status", "finish_reason")
            responses.append(
                {
                    "policy": name,
                    "prompt": texts[item["prompt_id"]],
                    "segments": segments(direction.policy.tokenizer, item["tokens"], marks, item["text"]),
                    **{key: item[key] for key in kept},
                }
            )
    return report.browser_section(
        responses, heading=f"Responses: {direction.policy.name}", intro="Marked: forced tokens.", asked=samples
    )

"""Figures and page of `vsr measure`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from vsr_jax import report, support
from vsr_jax.report import Block, Callout, Curve, Flow, Prose, Section, Table
from vsr_jax.report.mechanism_figures import trajectory
from vsr_jax.study import measure_tables as tables
from vsr_jax.study.compare import DRAWS, Contrast, budgets, contrast, spread
from vsr_jax.study.grid import Cell

BROWSED = 40
"""Prompts of each benchmark whose responses the page holds."""


def _by_benchmark(cells: Sequence[Cell]) -> Mapping[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.benchmark, []).append(cell)
    return found


def contrasts_of(cells: Sequence[Cell]) -> list[Contrast]:
    """Every policy against the first, on every benchmark."""
    return [contrast(group[0], other) for group in _by_benchmark(cells).values() for other in group[1:]]


def make_tables(cells: Sequence[Cell], *, successive: bool) -> dict[str, Table]:
    """All tables by name. `successive`: the policies are checkpoints of one run, in order."""
    samples = len(cells[0].result.curve["unbiased"])
    made = {
        "support": tables.support_table(cells),
        "buckets": tables.bucket_table(cells),
        "openings": tables.opening_table(cells),
        "spread": tables.spread_table(cells, [spread(cell) for cell in cells]),
        "sensitivity": tables.sensitivity_table(cells, cells[0].policy),
        "curve": tables.curve_table(cells),
        "pass_counts": tables.pass_count_table(cells),
    }
    changes = contrasts_of(cells)
    if changes:
        made["contrasts"] = tables.contrast_table(changes)
        made["transitions"] = tables.transition_table(changes)
        made["moved_prompts"] = tables.moved_table(changes)
    runs = list(_by_benchmark(cells).values()) if successive else []
    for run in runs:
        made[f"trajectory-{run[0].benchmark}"] = tables.trajectory_table(run, budgets(samples))
    paper = tables.paper_table(changes, runs, samples)
    return made if paper is None else {**made, "paper": paper}


def make_figures(cells: Sequence[Cell], *, successive: bool) -> dict[str, Figure]:
    """best@k, its extrapolation, openings, the flow of prompts, and trajectories."""
    groups = _by_benchmark(cells)
    made = {
        "best_at_k": report.best_at_k_curves({name: [_curve(c) for c in group] for name, group in groups.items()}),
        "coverage": report.best_at_k_curves({name: [_coverage(c) for c in group] for name, group in groups.items()}),
        "openings": report.opening_bars(
            {name: {c.policy: c.result.openings for c in group} for name, group in groups.items()}
        ),
    }
    flows = [
        Flow(c.before, c.after, c.transition.matrix, c.benchmark)
        for c in contrasts_of(cells)
        if c.transition.matrix.sum()
    ]
    if flows:
        made["bucket_flow"] = report.bucket_flow(flows)
    for name, group in groups.items() if successive else ():
        ks = budgets(len(group[0].result.curve["unbiased"]))
        made[f"trajectory-{name}"] = trajectory(
            [cell.policy for cell in group],
            {k: [float(cell.result.curve["unbiased"][k - 1]) for cell in group] for k in ks},
            {opening: [cell.result.openings[opening] for cell in group] for opening in group[0].result.openings},
        )
    return made


def _curve(cell: Cell) -> Curve:
    passes = cell.result.account.passes
    values = cell.result.curve["unbiased"]
    per_prompt = support.best_at_k_curve_per_prompt(passes, missing="omit")
    whole = per_prompt[np.isfinite(per_prompt).all(axis=1)]
    low, high = support.bootstrap_interval(whole, draws=2000) if len(whole) else (None, None)
    return Curve(cell.policy, np.arange(1, len(values) + 1), values, low, high)


def _coverage(cell: Cell) -> Curve:
    """Expected coverage of the fitted model, 64 times beyond the samples taken."""
    passes = cell.result.account.passes
    ks = 2.0 ** np.arange(0, int(np.log2(passes.shape[1])) + 7)
    low, high = support.coverage_interval(passes, ks, draws=DRAWS)
    return Curve(cell.policy, ks, support.expected_coverage(support.fit_beta_binomial(passes), ks), low, high)


_CAPTIONS = {
    "best_at_k": "Chance that one of k samples passes, averaged over prompts (unbiased). Bands: 95 % intervals.",
    "coverage": "Expected coverage of the beta-binomial fit, far beyond the samples taken: an extrapolation.",
    "openings": "First words of the responses.",
    "bucket_flow": "Prompts by pass count under the first policy and under each other one.",
}


def write_report(cells: Sequence[Cell], out: Path, *, successive: bool) -> tuple[Path, dict[str, Table]]:
    """Writes tables, figures and `index.html` into `out`; returns the page and the tables."""
    made = make_tables(cells, successive=successive)
    figures = make_figures(cells, successive=successive)
    for name, table in made.items():
        report.write_table(table, out / name)
    for name, figure in figures.items():
        report.save(figure, out / name)
    shown = {
        name: report.picture(figure, name.replace("_", " "), _CAPTIONS.get(name, "Over checkpoints."))
        for name, figure in figures.items()
    }
    warnings = [
        Callout(f"{cell.policy}, {cell.benchmark}: {note}", "warning")
        for cell in cells
        for note in cell.result.account.warnings
    ]

    def section(heading: str, names: Sequence[str], first: Sequence[Block] = ()) -> list[Section]:
        blocks = [block for name in names for block in (shown.get(name), made.get(name)) if block is not None]
        return [Section(heading, [*first, *blocks])] if blocks else []

    runs = [name for name in made if name.startswith("trajectory-")]
    sections = [
        *section("Support", ["support", "best_at_k", "contrasts"], [_setting(cells), *warnings]),
        *section("Where prompts went", ["bucket_flow", "transitions", "moved_prompts", "buckets"]),
        *section("Openings", ["openings", "sensitivity"]),
        *section("Beyond the samples taken", ["coverage", "spread", "pass_counts"]),
        *section("Over checkpoints", runs),
        *section("Beside the paper", ["paper"]),
        *(browser(name, group) for name, group in _by_benchmark(cells).items()),
    ]
    return report.write_page(out, "What policies can reach", sections, subtitle="vsr measure"), made


def _setting(cells: Sequence[Cell]) -> Prose:
    asked = ", ".join(f"{len(group[0].rows)} prompts of {name}" for name, group in _by_benchmark(cells).items())
    policies = ", ".join(dict.fromkeys(cell.policy for cell in cells))
    samples = len(cells[0].result.curve["unbiased"])
    return Prose(
        f"{policies}: {samples} samples a prompt on {asked}. Decoding and framing: `settings.json` beside the rollouts."
    )


def browser(benchmark: str, group: Sequence[Cell]) -> Section:
    """The responses of every policy to the first prompts of a benchmark."""
    responses = []
    rows = {row.id: row for row in group[0].rows[:BROWSED]}
    kept = ["prompt_id", "sample_id", "text", "passed", "opening", "status", "finish_reason", "parts"]
    for cell in group:
        for item in cell.table.select(kept).to_pylist():
            row = rows.get(item["prompt_id"])
            if row is None:
                continue
            held = item.pop("parts")
            names = (*(["answer"] if row.gold is not None and row.task != "instructions" else []), *row.instruction_ids)
            constraints = list(zip(names, held, strict=True)) if len(names) == len(held) else []
            responses.append({"policy": cell.policy, "prompt": row.prompt, "constraints": constraints, **item})
    return report.browser_section(
        responses, heading=f"Responses: {benchmark}", asked=len(group[0].result.curve["exact"])
    )

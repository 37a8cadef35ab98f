"""Tables of `vsr measure`."""

from collections.abc import Sequence

import numpy as np

from vsr_jax import report, support
from vsr_jax.report import Column, Estimate, Table
from vsr_jax.study.compare import Contrast, Spread, correlations, moved_other
from vsr_jax.study.grid import Cell
from vsr_jax.support import BUCKETS

_WHO = [Column("policy", "Policy"), Column("benchmark", "Benchmark")]


def _who(cell: Cell) -> dict[str, str]:
    return {"policy": cell.policy, "benchmark": cell.benchmark}


def support_table(cells: Sequence[Cell]) -> Table:
    """mean@n, best@n in its three meanings, and what was extracted."""
    n = len(cells[0].result.curve["unbiased"])
    rows = [
        {
            **_who(cell),
            "prompts": len(cell.result.buckets.labels),
            "mean": Estimate(*cell.result.interval["mean"]),
            "unbiased": Estimate(*cell.result.interval["best"]),
            "exact": float(cell.result.curve["exact"][-1]),
            "with_replacement": float(cell.result.curve["with_replacement"][-1]),
            "extracted": cell.result.account.extraction_rate,
            "length": cell.result.length,
            "truncated": cell.result.truncated,
        }
        for cell in cells
    ]
    columns = [
        *_WHO,
        Column("prompts", "Prompts", digits=0),
        Column("mean", f"mean@{n}"),
        Column("unbiased", f"best@{n}, unbiased"),
        Column("exact", f"best@{n}, exact"),
        Column("with_replacement", f"best@{n}, with replacement"),
        Column("extracted", "answer found"),
        Column("length", "tokens", digits=1),
        Column("truncated", "cut off"),
    ]
    return Table(columns, rows, "Brackets: 95 % intervals from resampling prompts.")


def curve_table(cells: Sequence[Cell]) -> Table:
    """best@k for k = 1..n, in its three meanings."""
    rows = [
        {**_who(cell), "k": k + 1, **{name: float(values[k]) for name, values in cell.result.curve.items()}}
        for cell in cells
        for k in range(len(cell.result.curve["unbiased"]))
    ]
    names = [Column(name, name.replace("_", " "), digits=4) for name in cells[0].result.curve]
    return Table([*_WHO, Column("k", "k", digits=0), *names], rows)


def bucket_table(cells: Sequence[Cell]) -> Table:
    """Prompts by bucket."""
    rows = [
        {**_who(cell), "bucket": name, "prompts": count, "share": cell.result.buckets.shares[name]}
        for cell in cells
        for name, count in cell.result.buckets.counts.items()
    ]
    return Table(
        [*_WHO, Column("bucket", "Bucket"), Column("prompts", "Prompts", digits=0), Column("share", "Share")], rows
    )


def opening_table(cells: Sequence[Cell]) -> Table:
    """Share of responses by opening class, `Other` always among them."""
    rows = [
        {**_who(cell), "opening": name, "share": share}
        for cell in cells
        for name, share in cell.result.openings.items()
    ]
    return Table([*_WHO, Column("opening", "Opening"), Column("share", "Share of responses")], rows)


def spread_table(cells: Sequence[Cell], spreads: Sequence[Spread]) -> Table:
    """Distinct answers, pass-count entropy, half-life with its hold-out check."""
    rows = []
    for cell, s in zip(cells, spreads, strict=True):
        check = s.hold_out
        rows.append(
            {
                **_who(cell),
                "distinct": s.distinct,
                "entropy": s.entropy,
                "half_life": Estimate(s.half_life, s.half_life_low, s.half_life_high),
                "predicted": check.predicted if check else None,
                "observed": check.observed if check else None,
                "error": check.standard_error if check else None,
            }
        )
    columns = [
        *_WHO,
        Column("distinct", "answers a prompt", digits=2),
        Column("entropy", "entropy of pass counts"),
        Column("half_life", "half-life (samples)", digits=1),
        Column("predicted", "second half, predicted"),
        Column("observed", "observed"),
        Column("error", "standard error"),
    ]
    caption = (
        "answers: different ones extracted, or different texts where nothing is extracted. Entropy in nats. Half-life: "
        "samples until the chance of a first success on a new prompt passes one half, from a beta-binomial fit; beyond "
        "the samples taken it is an extrapolation. The fit to the first half of the samples predicts the share of "
        "prompts with a success in the second half."
    )
    return Table(columns, rows, caption)


def pass_count_table(cells: Sequence[Cell]) -> Table:
    """Prompts by number of passing samples; cells with missing verdicts are left out."""
    rows = [
        {**_who(cell), "passes": passes, "prompts": int(count)}
        for cell in cells
        if not np.isnan(cell.result.account.passes).any()
        for passes, count in enumerate(support.pass_count_distribution(cell.result.account.passes))
        if count
    ]
    return Table([*_WHO, Column("passes", "Passing samples", digits=0), Column("prompts", "Prompts", digits=0)], rows)


_PAIR = [Column("pair", "Contrast"), Column("benchmark", "Benchmark")]


def _pair(c: Contrast) -> dict[str, str]:
    return {"pair": f"{c.after} - {c.before}", "benchmark": c.benchmark}


def contrast_table(contrasts: Sequence[Contrast]) -> Table:
    """Differences on the same prompts, with paired intervals."""
    ks = contrasts[0].budgets
    rows = []
    for c in contrasts:
        best = zip(ks, c.best.difference, c.best.low, c.best.high, strict=True)
        rows.append(
            {
                **_pair(c),
                "mean": Estimate(*(float(x) for x in (c.mean.difference, c.mean.low, c.mean.high))),
                **{f"best{k}": Estimate(float(d), float(low), float(high)) for k, d, low, high in best},
                "gained": len(c.transition.gained),
                "lost": len(c.transition.lost),
                "compared": c.compared,
                **{f"open_{name}": change for name, change in c.openings.items()},
            }
        )
    columns = [
        *_PAIR,
        Column("mean", "mean", signed=True),
        *(Column(f"best{k}", f"best@{k}", signed=True) for k in ks),
        Column("gained", "prompts gained", digits=0),
        Column("lost", "lost", digits=0),
        Column("compared", "compared", digits=0),
        *(Column(f"open_{name}", name, signed=True) for name in contrasts[0].openings),
    ]
    return Table(
        columns, rows, "Changes on the same prompts; brackets: 95 % intervals from resampling prompts in pairs."
    )


def transition_table(contrasts: Sequence[Contrast]) -> Table:
    """Prompts by bucket before and after."""
    rows = [
        {**_pair(c), "before": before, **dict(zip(BUCKETS, c.transition.matrix[i].tolist(), strict=True))}
        for c in contrasts
        for i, before in enumerate(BUCKETS)
    ]
    after = [Column(name, f"to {name}", digits=0) for name in BUCKETS]
    return Table([*_PAIR, Column("before", "From"), *after], rows)


def moved_table(contrasts: Sequence[Contrast]) -> Table:
    """The prompts gained, lost and left out, by name."""
    rows = [
        {
            **_pair(c),
            "gained": ", ".join(c.transition.gained),
            "lost": ", ".join(c.transition.lost),
            "left_out": ", ".join(c.transition.left_out),
        }
        for c in contrasts
    ]
    names = [Column("gained", "Gained"), Column("lost", "Lost"), Column("left_out", "Incomplete")]
    return Table([*_PAIR, *names], rows, "Gained: no passing sample before and one at least after; lost: the reverse.")


def sensitivity_table(cells: Sequence[Cell], first: str) -> Table:
    """DRI and DAI shares, and their change against the first policy, with Other moved either way."""
    base = {cell.benchmark: moved_other(cell.result.openings) for cell in cells if cell.policy == first}
    rows = []
    for cell in cells:
        for name in ("DRI", "DAI"):
            if name not in cell.result.openings:
                continue
            row: dict[str, object] = {**_who(cell), "class": name}
            changes = []
            for way, key in (("as classified", "plain"), ("Other as DRI", "dri"), ("Other as DAI", "dai")):
                share = moved_other(cell.result.openings)[way][name]
                row[key] = share
                if cell.policy != first:
                    changes.append(share - base[cell.benchmark][way][name])
            row["changes"] = ", ".join(f"{change:+.3f}" for change in changes)
            row["stable"] = len({(c > 1e-9) - (c < -1e-9) for c in changes}) == 1 if changes else None
            rows.append(row)
    columns = [
        *_WHO,
        Column("class", "Opening"),
        Column("plain", "as classified"),
        Column("dri", "Other as DRI"),
        Column("dai", "Other as DAI"),
        Column("changes", f"changes against {first}"),
        Column("stable", "one sign"),
    ]
    return Table(columns, rows, "What moving every unnamed opening to one class does to shares and to their changes.")


def trajectory_table(cells: Sequence[Cell], ks: Sequence[int]) -> Table:
    """Pearson r over checkpoints of one benchmark between opening shares and best@k."""
    found = correlations(cells, ks)
    rows = [
        {"benchmark": cells[0].benchmark, "opening": name, **{f"k{k}": found[name, k] for k in ks}}
        for name in cells[0].result.openings
    ]
    return Table(
        [
            Column("benchmark", "Benchmark"),
            Column("opening", "Opening share"),
            *(Column(f"k{k}", f"best@{k}") for k in ks),
        ],
        rows,
        f"Pearson correlation over {len(cells)} checkpoints; empty where one of the two does not vary.",
    )


def paper_table(contrasts: Sequence[Contrast], trajectories: Sequence[Sequence[Cell]], samples: int) -> Table | None:
    """The paper's changes beside ours, for the benchmarks that it reports; None where there is nothing to compare."""
    titles = {"ifeval": "IFEval", "ifbench": "IFBench"}
    comparisons = []
    for c in contrasts:
        if "math" not in c.after.casefold():
            continue
        for model in ("Qwen3-8B-Base", "Qwen2.5-Math-7B"):
            for metric, ours in (("delta_pass@1", c.mean.difference), ("delta_best@32", c.best.difference[-1])):
                title = titles.get(c.benchmark, "")
                entry = report.paper_value("1", model, title, "Math-RLVR final minus Base", metric)
                if entry is not None:
                    about = f"{c.after} - {c.before}, {c.benchmark}, n = {samples}"
                    comparisons.append(report.Comparison(entry, float(ours), about))
    entry = report.paper_value(
        "2", "not stated in the summary", "AIME", "IF-RLVR training trajectory", "pearson_r(DAI_share, best@32)"
    )
    for cells in trajectories:
        r = correlations(cells, [samples]).get(("DAI", samples), float("nan"))
        if entry is not None and np.isfinite(r) and cells[0].rows[0].task == "math":
            comparisons.append(
                report.Comparison(entry, r, f"{cells[0].benchmark}, {len(cells)} checkpoints, n = {samples}")
            )
    return report.side_by_side(comparisons, "Ours are of other policies: read the signs.") if comparisons else None

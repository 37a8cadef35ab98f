"""Tables, figures and page of `vsr localize`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vsr_jax import report
from vsr_jax.data.tokenizer import text_of
from vsr_jax.mechanism.marks import segments
from vsr_jax.mechanism.positions import high_js
from vsr_jax.report import Column, Estimate, Prose, Section, Table
from vsr_jax.report.mechanism_figures import (
    PositionCurve,
    TokenBar,
    first_token_bars,
    js_by_position,
    ratio_bars,
)
from vsr_jax.study.localize import STATISTICS, Findings
from vsr_jax.study.policy import Policy

_TITLES = {
    "js": "JS", "js_top": "JS, top 64", "kl_pq": "KL(p, q)", "kl_qp": "KL(q, p)", "entropy_p": "entropy p",
    "entropy_q": "entropy q", "swap": "first choice differs", "prob": "p of q's choice", "rank": "its rank in p",
    "overlap": "common of top 10",
}  # fmt: skip


def tables(found: Sequence[Findings], policies: Sequence[str]) -> dict[str, Table]:
    """`ratio`, `groups`, `high`, `first_choice`, `first_tokens`, `first_mass`."""
    lines = [(f, pair, values) for f in found for pair, values in f.pairs.items()]
    about = lambda f, pair: {"responses": f.responses, "pair": f"{pair[0]} vs {pair[1]}"}  # noqa: E731
    keys = [Column("responses", "Along"), Column("pair", "Pair p vs q")]
    ratio = [
        {
            **about(f, pair),
            "first": v.ratio.first,
            "interior": v.ratio.interior,
            "ratio": Estimate(v.ratio.value, v.ratio.low, v.ratio.high),
            "ratio_top": Estimate(v.ratio_top.value, v.ratio_top.low, v.ratio_top.high),
            "gap": v.js_gap[0],
            "prompts": v.ratio.prompts,
            "left_out": v.ratio.left_out,
        }
        for f, pair, v in lines
    ]
    groups = [
        {**about(f, pair), "group": group, **statistics}
        for f, pair, v in lines
        for group, statistics in v.groups.items()
    ]
    high = [
        {
            **about(f, pair),
            **{name: getattr(v.high, name) for name in ("count", "threshold", "mass", "overlap", "in_top3", "swapped")},
            "where": ", ".join(f"{name}: {share:.2f}" for name, share in v.high.where.items()),
        }
        for f, pair, v in lines
    ]
    first = [{**about(f, pair), **vars(v.first)} for f, pair, v in lines]
    tokens = [
        {
            "responses": f.responses,
            "token": repr(c.text),
            "opening": c.opening,
            "seen": c.seen,
            "agreement": c.agreement,
            **dict(zip(policies, c.probs, strict=True)),
        }
        for f in found
        for c in f.candidates
    ]
    mass = [
        {"responses": f.responses, "opening": opening, **dict(zip(policies, values, strict=True))}
        for f in found
        for opening, values in f.mass.items()
    ]
    named = [Column(name, name, digits=4) for name in policies]
    ratio_columns = [
        Column("first", "JS, first token", digits=4),
        Column("interior", "JS, interior", digits=5),
        Column("ratio", "first / interior", digits=1),
        Column("ratio_top", "the same, top 64", digits=1),
        Column("gap", "largest |JS - JS top 64|", digits=4),
        Column("prompts", "prompts", digits=0),
        Column("left_out", "without interior", digits=0),
    ]
    high_columns = [
        Column("count", "positions", digits=0),
        Column("threshold", "JS from", digits=4),
        Column("mass", "share of all JS"),
        Column("overlap", "common of top 10", digits=2),
        Column("in_top3", "q's choice in p's top 3"),
        Column("swapped", "first choice differs"),
        Column("where", "share by position"),
    ]
    first_columns = [
        Column("median_rank", "median rank in p of q's choice", digits=1),
        Column("prob", "its probability in p", digits=4),
        Column("prob_top", "within p's top 64", digits=4),
        Column("prob_q", "in q", digits=4),
        Column("swapped", "first choice differs"),
    ]
    return {
        "ratio": Table([*keys, *ratio_columns], ratio, "Nats. Brackets: 95 % intervals from resampling prompts."),
        "groups": Table(
            [*keys, Column("group", "Positions"), *(Column(name, _TITLES[name], digits=4) for name in STATISTICS)],
            groups,
            "Means over prompts. The interior leaves out the last 5 % of a response.",
        ),
        "high": Table([*keys, *high_columns], high, "The tenth of positions with the highest exact JS."),
        "first_choice": Table([*keys, *first_columns], first, "Position 1, over prompts."),
        "first_tokens": Table(
            [
                Column("responses", "Along"),
                Column("token", "Token"),
                Column("opening", "Leads to"),
                Column("seen", "responses", digits=0),
                Column("agreement", "of them in that class"),
                *named,
            ],
            tokens,
            "Mean probability as first token. The class is that of most stored responses which begin with it.",
        ),
        "first_mass": Table(
            [Column("responses", "Along"), Column("opening", "Opening"), *named],
            mass,
            "Mean probability of first tokens by the opening they lead to.",
        ),
    }


_PAPER = {
    "js_first_over_interior_ratio_range": ("AIME", "RLVR vs Base, Base-sampled prefixes"),
    "top10_overlap_range": ("high-JS positions (top 10%)", "Base vs RLVR"),
    "rlvr_top1_in_base_top3_range": ("high-JS positions (top 10%)", "Base vs RLVR"),
    "median_base_rank_of_rlvr_top1": ("AIME", "IF-RLVR, position 1"),
    "base_probability_of_rlvr_top1": ("AIME", "IF-RLVR, position 1"),
}


def paper_table(found: Sequence[Findings]) -> Table:
    """What the paper states, beside every pair with the first policy. Ours may be another benchmark: the table says."""
    comparisons = []
    for f in found:
        first = next(iter(f.pairs))[0]
        for (p, q), v in f.pairs.items():
            if p != first:
                continue
            ours = dict(
                zip(
                    _PAPER,
                    (v.ratio.value, v.high.overlap, v.high.in_top3, v.first.median_rank, v.first.prob_top),
                    strict=True,
                )
            )
            for metric, (benchmark, condition) in _PAPER.items():
                entry = report.paper_value("5", "Qwen3-8B-Base & Qwen2.5-Math-7B", benchmark, condition, metric)
                if entry is not None:
                    comparisons.append(report.Comparison(entry, ours[metric], f"{p} vs {q}, {f.responses}"))
    return report.side_by_side(comparisons, "The paper gives ranges over its models and benchmarks.")


def figures(found: Sequence[Findings], policies: Sequence[str]) -> dict[str, Any]:
    """`js_by_position`, `ratio` (where there is one) and `first_tokens` of each set of responses."""
    pair = lambda names: f"{names[0]} vs {names[1]}"  # noqa: E731
    panels = {
        f.responses: [PositionCurve(pair(k), v.by_position, v.by_position_top) for k, v in f.pairs.items()]
        for f in found
    }
    ratios = {
        f.responses: {pair(k): Estimate(v.ratio.value, v.ratio.low, v.ratio.high) for k, v in f.pairs.items()}
        for f in found
    }
    out = {"js_by_position": js_by_position(panels)}
    if any(np.isfinite(value.value) for pairs in ratios.values() for value in pairs.values()):
        out["ratio"] = ratio_bars(ratios)
    for number, f in enumerate(found):
        bars = [TokenBar(c.text, c.opening, dict(zip(policies, c.probs, strict=True))) for c in f.candidates]
        out["first_tokens" if number == 0 else f"first_tokens_{number + 1}"] = first_token_bars(bars)
    return out


_CAPTIONS = {
    "js_by_position": "Mean JS at each response position; dotted: between the top 64 of each policy.",
    "ratio": "JS at the first token over JS in the interior, 95 % intervals from resampling prompts.",
    "first_tokens": "First tokens with the highest mean probability under any policy, and the opening they lead to.",
}


def browser(found: Findings, table: pa.Table, policy: Policy, prompts: int, samples: int) -> Section:
    """Some responses with the high-JS tokens of the first pair marked."""
    marked = high_js(np.asarray(next(iter(found.tokens.pairs.values())).js))
    ids = table["prompt_id"].to_pylist()
    shown = set(list(dict.fromkeys(ids))[:prompts])
    responses = []
    for index, item in enumerate(table.to_pylist()):
        if item["prompt_id"] not in shown or item["sample_id"] >= samples:
            continue
        marks = ["high_js" if high else "" for high in marked[found.tokens.response == index]]
        responses.append(
            {
                "policy": found.responses,
                "prompt": text_of(policy.tokenizer, item["prompt_tokens"]),
                "segments": segments(policy.tokenizer, item["tokens"], marks, item["text"]),
                **{
                    k: item[k]
                    for k in ("prompt_id", "sample_id", "text", "passed", "opening", "status", "finish_reason")
                },
            }
        )
    first, second = next(iter(found.pairs))
    intro = f"Marked: the tenth of tokens with the highest JS between {first} and {second}."
    return report.browser_section(responses, heading=f"Responses: {found.responses}", intro=intro)


def write_report(
    out: Path, found: Sequence[Findings], stored: Mapping[str, pa.Table], policies: Sequence[Policy], positions: str
) -> tuple[Path, dict[str, Table]]:
    """Writes tables, figures and `index.html` into `out`; returns the page and the tables."""
    names = [policy.name for policy in policies]
    made = {**tables(found, names), "paper": paper_table(found)}
    drawn = figures(found, names)
    for name, table in made.items():
        report.write_table(table, out / name)
    for name, figure in drawn.items():
        report.save(figure, out / name)
    pictures = {
        name: report.picture(figure, name.replace("_", " "), _CAPTIONS[name.rstrip("_0123456789")])
        for name, figure in drawn.items()
    }
    tokens = [picture for name, picture in pictures.items() if name.startswith("first_tokens")]
    along = ", ".join(f"{f.count} responses to {f.prompts} prompts of {f.responses}" for f in found)
    setting = Prose(
        f"Policies {', '.join(names)} along {along}. Position groups `{positions}`. JS is exact over the vocabulary "
        "unless it says top 64."
    )
    ratio = [pictures["ratio"]] if "ratio" in pictures else []
    sections = [
        Section("Where policies differ", [setting, pictures["js_by_position"], *ratio, made["ratio"], made["groups"]]),
        Section("The first token", [*tokens, made["first_choice"], made["first_mass"], made["first_tokens"]]),
        Section("High-JS positions", [made["high"]]),
        Section("Beside the paper", [made["paper"]]),
        *(browser(f, stored[f.responses], policies[0], prompts=12, samples=4) for f in found),
    ]
    return report.write_page(out, "Where policies differ", sections, subtitle="vsr localize"), made

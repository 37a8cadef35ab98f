"""`vsr joint`: correct answers and followed instructions in the same response."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vsr_jax import report
from vsr_jax.errors import UserError
from vsr_jax.report import Column, Estimate, Prose, Section, Table
from vsr_jax.study.grid import Cell, decoding, load_sources, measure_grid
from vsr_jax.study.joint import Interval, Joint, KindGap, gaps_by_kind, joint_support
from vsr_jax.study.measure_report import browser

_DECODING = ("samples", "max_tokens", "temperature", "top_p", "top_k", "seed")


def joint(
    model: tuple[str, ...],
    benchmark: tuple[str, ...],
    out: Path,
    *,
    names: tuple[str, ...],
    preset: str,
    data: tuple[Path, ...],
    limit: int | None,
    spread: bool,
    **options: Any,
) -> str:
    """Measures C, F and J and returns what to print. Arguments are those of the command.

    Writes the rollouts of every policy on every benchmark, tables and `index.html` into `out`.
    """
    sources = load_sources(benchmark, data, limit, spread=spread)
    for source in sources:
        if source.rows[0].task != "joint":
            raise UserError(
                f"--benchmark {source.name}: asks for no answer and instructions at once; use mathif, reasonif"
            )
    decoded = decoding(preset, **{name: options.pop(name) for name in _DECODING})
    cells = measure_grid(model, names, sources, decoded, out, extract=None, **options)
    found = [(cell, joint_support(cell.table, cell.rows), gaps_by_kind(cell.table, cell.rows)) for cell in cells]
    page, made = _write(found, out)
    shown = [report.to_markdown(made[name]) for name in ("joint", "kinds")]
    return "\n".join([*shown, f"report: {page}"])


_Found = Sequence[tuple[Cell, Joint, list[KindGap]]]
_WHO = [Column("policy", "Policy"), Column("benchmark", "Benchmark")]


def _estimate(interval: Interval) -> Estimate:
    return Estimate(interval.value, interval.low, interval.high)


def joint_table(found: _Found) -> Table:
    """C, F, J, and the gap with its parts."""
    names = ("correct", "followed", "joint", "any_joint", "gap", "within", "between")
    rows = [
        {
            "policy": cell.policy,
            "benchmark": cell.benchmark,
            **{name: _estimate(getattr(j, name)) for name in names},
            "prompts": j.prompts,
            "responses": j.responses,
            "without": j.without,
        }
        for cell, j, _ in found
    ]
    columns = [
        *_WHO,
        Column("correct", "C, answer"),
        Column("followed", "F, instructions"),
        Column("joint", "J, both"),
        Column("any_joint", "prompts with J"),
        Column("gap", "J - C F", signed=True),
        Column("within", "within prompts", signed=True),
        Column("between", "between prompts", signed=True),
        Column("prompts", "prompts", digits=0),
        Column("responses", "responses", digits=0),
        Column("without", "no verdict", digits=0),
    ]
    caption = (
        "Means over prompts, 95 % intervals from resampling them. J - C F is what independence leaves over: within "
        "prompts, responses that follow are right less often (negative) or more often; between prompts, the covariance "
        "of C and F over prompts."
    )
    return Table(columns, rows, caption)


def kind_table(found: _Found) -> Table:
    """The gap by kind of constraint."""
    rows = [
        {
            "policy": cell.policy,
            "benchmark": cell.benchmark,
            **{
                name: getattr(k, name)
                for name in ("kind", "prompts", "correct", "followed", "given_followed", "given_broken")
            },
            "gap": _estimate(k.gap),
        }
        for cell, _, kinds in found
        for k in kinds
    ]
    columns = [
        *_WHO,
        Column("kind", "Constraint"),
        Column("prompts", "prompts", digits=0),
        Column("correct", "C"),
        Column("followed", "F of it"),
        Column("gap", "J - C F", signed=True),
        Column("given_followed", "C where followed"),
        Column("given_broken", "C where broken"),
    ]
    return Table(
        columns, rows, "Each kind of constraint alone, over the prompts that carry it; most negative gap first."
    )


def change_table(found: _Found) -> Table:
    """Changes of C, F and J against the first policy."""
    first = {cell.benchmark: j for cell, j, _ in reversed(found)}
    rows = [
        {
            "pair": f"{cell.policy} - {found[0][0].policy}",
            "benchmark": cell.benchmark,
            **{
                name: getattr(j, name).value - getattr(first[cell.benchmark], name).value
                for name in ("correct", "followed", "joint", "gap")
            },
        }
        for cell, j, _ in found
        if cell.policy != found[0][0].policy
    ]
    columns = [
        Column("pair", "Contrast"),
        Column("benchmark", "Benchmark"),
        *(Column(name, title, signed=True) for name, title in (("correct", "C"), ("followed", "F"), ("joint", "J"))),
        Column("gap", "J - C F", signed=True),
    ]
    return Table(columns, rows)


def paper_table(found: _Found) -> Table | None:
    """The paper's J beside ours, for policies whose names say what they are; None where there is nothing to compare."""
    titles = {"mathif": "MathIF", "reasonif": "ReasonIF"}
    comparisons = []
    for cell, j, _ in found:
        name = cell.policy.casefold()
        condition = "Math-RLVR step 720" if "math" in name else "IF-RLVR step 720" if "if-" in name else "Base"
        entry = report.paper_value("8", "Qwen3-8B-Base", titles.get(cell.benchmark, ""), condition, "J")
        if entry is not None:
            comparisons.append(report.Comparison(entry, j.joint.value, cell.policy))
    return report.side_by_side(comparisons, "Ours are of other policies.") if comparisons else None


def _write(found: _Found, out: Path) -> tuple[Path, dict[str, Table]]:
    made = {"joint": joint_table(found), "kinds": kind_table(found)}
    if any(cell.policy != found[0][0].policy for cell, _, _ in found):
        made["changes"] = change_table(found)
    paper = paper_table(found)
    if paper is not None:
        made["paper"] = paper
    for name, table in made.items():
        report.write_table(table, out / name)
    note = Prose(
        "F is strict. On MathIF it is checked on the response after the thoughts, on ReasonIF on the reasoning alone. "
        "A response that may not pass because it was cut counts as neither correct nor followed."
    )
    by_benchmark: dict[str, list[Cell]] = {}
    for cell, _, _ in found:
        by_benchmark.setdefault(cell.benchmark, []).append(cell)
    both = [made[name] for name in ("joint", "changes") if name in made]
    sections = [
        Section("Answer and instructions", [note, *both]),
        Section("Which constraints cost the answer", [made["kinds"]]),
        *([Section("Beside the paper", [paper])] if paper is not None else []),
        *(browser(name, group) for name, group in by_benchmark.items()),
    ]
    return report.write_page(out, "Answer and instructions together", sections, subtitle="vsr joint"), made

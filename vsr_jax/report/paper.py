"""Numbers that the paper states, to stand beside ours. They come from `paper_reference.json`, shipped with the package.

Many are given without the model or the benchmark they belong to; such entries say so in those very fields, and are
found only under them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsr_jax.report.tables import Column, Table

_IN_FRACTIONS = {"fraction": 1.0, "percent": 0.01, "percentage points": 0.01}


@dataclass(frozen=True)
class PaperValue:
    """One statement of the paper.

    Attributes:
      experiment, model, benchmark, condition, metric: what it is about, as in the file.
      value: a number, a list of numbers (pairs and ranges), or a sentence where `unit` is `qualitative`.
      unit: such as `fraction`, `percent`, `percentage points`, `ratio`.
      note: what is uncertain about it.
    """

    experiment: str
    model: str
    benchmark: str
    condition: str
    metric: str
    value: float | list[float] | str
    unit: str
    note: str = ""

    @property
    def number(self) -> float | None:
        """The value as a fraction where it is a share, as it stands where it is another number, else None."""
        if isinstance(self.value, int | float):
            return self.value * _IN_FRACTIONS.get(self.unit, 1.0)
        return None


def _entry(record: dict[str, Any]) -> PaperValue:
    return PaperValue(**{name: record[name] for name in PaperValue.__dataclass_fields__})


PAPER_VALUES: tuple[PaperValue, ...] = tuple(
    map(_entry, json.loads(Path(__file__).with_name("paper_reference.json").read_text(encoding="utf-8")))
)


def paper_value(experiment: str, model: str, benchmark: str, condition: str, metric: str) -> PaperValue | None:
    """The paper's value, or None where the paper does not state it.

    Args:
      experiment: its full name in the file, or its number alone, such as `1` or `7b`.
      model, benchmark, condition, metric: exactly as in the file.
    """
    for entry in PAPER_VALUES:
        number = entry.experiment.partition("_")[0]
        if experiment in (entry.experiment, number) and (model, benchmark, condition, metric) == (
            entry.model, entry.benchmark, entry.condition, entry.metric,
        ):  # fmt: skip
            return entry
    return None


@dataclass(frozen=True)
class Comparison:
    """Our number beside a statement of the paper; shares and their differences are fractions on our side.

    `about` says what ours was measured on, where one statement has several of ours beside it.
    """

    paper: PaperValue
    ours: float
    about: str = ""


def side_by_side(comparisons: Sequence[Comparison], caption: str = "") -> Table:
    """Paper, ours, difference, and whether the sign agrees; cells are empty where the paper gives no single number."""
    named = any(comparison.about for comparison in comparisons)
    columns = (
        *([Column("about", "Ours is")] if named else []),
        Column("model", "Model"),
        Column("benchmark", "Benchmark"),
        Column("condition", "Condition"),
        Column("metric", "Metric"),
        Column("paper", "Paper"),
        Column("ours", "Ours"),
        Column("difference", "Difference", signed=True),
        Column("sign_agrees", "Sign agrees"),
    )
    rows = []
    for comparison in comparisons:
        paper, ours = comparison.paper, comparison.ours
        number = paper.number
        rows.append(
            {
                "about": comparison.about,
                "model": paper.model,
                "benchmark": paper.benchmark,
                "condition": paper.condition,
                "metric": paper.metric,
                "paper": _text(paper) if number is None else number,
                "ours": ours,
                "difference": None if number is None else ours - number,
                "sign_agrees": None if number is None else _sign(number) == _sign(ours),
            }
        )
    return Table(columns, rows, caption)


def _text(paper: PaperValue) -> str:
    """A statement that is no single number; the numbers of a list are fractions where they are shares."""
    if not isinstance(paper.value, list):
        return str(paper.value)
    scale = _IN_FRACTIONS.get(paper.unit, 1.0)
    return ", ".join(f"{item * scale:.6g}" for item in paper.value)


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)

"""What the paper states, beside what came out here, with a verdict computed from the numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from vsr_jax.report import Block, Column, Estimate, Table


@dataclass(frozen=True)
class Statement:
    """One claim of the paper and our number for it.

    Attributes:
      figure: of the paper; text: what it says.
      paper: the paper's number, as printed; empty where it gives none.
      expected: sign of the number if the claim holds, +1 or -1.
      ours: the number with its interval.
      about: what it was measured on.
      interval: what was resampled for the interval.
    """

    figure: str
    text: str
    paper: str
    expected: int
    ours: Estimate
    about: str = ""
    interval: str = "prompts and seeds"


@dataclass(frozen=True)
class Chapter:
    """What one experiment reports."""

    title: str
    statements: Sequence[Statement]
    blocks: Sequence[Block]


def verdict(statement: Statement) -> str:
    """`as in the paper` or `opposite` where the interval leaves zero out, else `inconclusive`."""
    ours = statement.ours
    if not isfinite(ours.value):
        return "not measured"
    if not isfinite(ours.low):
        return "no interval from one seed"
    if ours.low <= 0 <= ours.high:
        return "inconclusive"
    return "as in the paper" if (ours.value > 0) == (statement.expected > 0) else "opposite"


def statement_table(statements: Sequence[Statement], seeds: int) -> Table:
    """All statements with our numbers and verdicts."""
    rows = [
        {
            "figure": s.figure,
            "text": s.text,
            "about": s.about,
            "paper": s.paper,
            "ours": s.ours,
            "interval": s.interval,
            "verdict": verdict(s),
        }
        for s in statements
    ]
    columns = [
        Column("figure", "In the paper"),
        Column("text", "It says"),
        Column("about", "Here measured on"),
        Column("paper", "Paper's number"),
        Column("ours", "Ours", signed=True),
        Column("interval", "Interval over"),
        Column("verdict", "Verdict"),
    ]
    caption = (
        "Each number is written so that zero means no effect. Verdict: as in the paper, or opposite, where the 95 % "
        "interval leaves zero out; else inconclusive. "
        + (
            "One training seed: the intervals do not say what another seed would give."
            if seeds == 1
            else f"{seeds} training seeds."
        )
    )
    return Table(columns, rows, caption)

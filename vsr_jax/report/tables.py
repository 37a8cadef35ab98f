"""Tables as plain rows, written as CSV, Markdown and HTML with fixed digits."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from markupsafe import Markup, escape

from vsr_jax.report.files import write_atomic


@dataclass(frozen=True)
class Estimate:
    """A number with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
      key: of the cell in each row.
      title: its heading.
      digits: after the decimal point; whole numbers are printed as they are.
      signed: a plus sign before positive numbers, for differences.
    """

    key: str
    title: str
    digits: int = 3
    signed: bool = False


@dataclass(frozen=True)
class Table:
    """Columns and rows; a row maps column keys to text, numbers, `Estimate`, bool, or None for an empty cell.

    Raises:
      ValueError: no columns, two columns with one key, or a row without a cell for some column.
    """

    kind: ClassVar[str] = "table"

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    caption: str = ""

    def __post_init__(self):
        keys = [column.key for column in self.columns]
        if not keys or len(set(keys)) != len(keys):
            raise ValueError(f"a table needs columns with different keys, got {keys}")
        for number, row in enumerate(self.rows):
            lacking = [key for key in keys if key not in row]
            if lacking:
                raise ValueError(f"row {number} of table {self.caption!r} has no cell {lacking[0]!r}; use None")


def to_csv(table: Table) -> str:
    """CSV with a heading line; an estimate takes three columns: value, low and high."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    estimated = {column.key for column in table.columns if _has_estimate(table, column)}
    heading = []
    for column in table.columns:
        names = [column.key, f"{column.key}_low", f"{column.key}_high"]
        heading += names if column.key in estimated else names[:1]
    writer.writerow(heading)
    for row in table.rows:
        cells = []
        for column in table.columns:
            cell = row[column.key]
            parts = [cell.value, cell.low, cell.high] if isinstance(cell, Estimate) else [cell]
            if column.key in estimated:
                parts += [None] * (3 - len(parts))
            cells += [_plain(part, column) for part in parts]
        writer.writerow(cells)
    return buffer.getvalue()


def to_markdown(table: Table) -> str:
    """A GitHub-style table; the caption stands above it."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    marks = ["---:" if _is_numeric(table, column) else "---" for column in table.columns]
    lines = [line([column.title for column in table.columns]), "| " + " | ".join(marks) + " |"]
    lines += [line([format_cell(row[column.key], column) for column in table.columns]) for row in table.rows]
    return (f"{table.caption}\n\n" if table.caption else "") + "\n".join(lines) + "\n"


def to_html(table: Table) -> Markup:
    """An HTML table; all text is escaped, numbers are aligned right."""
    numeric = {column.key: Markup(' class="number"') if _is_numeric(table, column) else "" for column in table.columns}
    caption = Markup("<caption>{}</caption>").format(table.caption) if table.caption else ""
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(numeric[column.key], column.title) for column in table.columns
    )
    body = Markup("\n").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(
                Markup("<td{}>{}</td>").format(numeric[column.key], _html_cell(row[column.key], column))
                for column in table.columns
            )
        )
        for row in table.rows
    )
    return Markup("<table>{}<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody></table>").format(caption, head, body)


def write_table(table: Table, path_without_suffix: str | Path) -> tuple[Path, Path]:
    """Writes `<path>.csv` and `<path>.md`, each whole or not at all; returns both paths."""
    base = str(path_without_suffix)
    return write_atomic(f"{base}.csv", to_csv(table)), write_atomic(f"{base}.md", to_markdown(table))


def format_cell(cell: Any, column: Column) -> str:
    """A cell as text for readers: fixed digits, a true minus sign, `–` for an empty cell or no number."""
    if isinstance(cell, Estimate):
        return f"{format_cell(cell.value, column)} [{format_cell(cell.low, column)}, {format_cell(cell.high, column)}]"
    text = _plain(cell, column)
    if _is_number(cell):
        text = text.replace("-", "−").replace("inf", "∞")
    return text or "–"


def _html_cell(cell: Any, column: Column) -> Markup:
    if not isinstance(cell, Estimate):
        return escape(format_cell(cell, column))
    value, _, interval = format_cell(cell, column).partition(" ")
    return Markup('{} <span class="interval">{}</span>').format(value, interval)


def _plain(cell: Any, column: Column) -> str:
    """A cell as text for programs; no number is an empty cell."""
    if cell is None:
        return ""
    if isinstance(cell, bool | np.bool_):
        return "yes" if cell else "no"
    if not isinstance(cell, Real):
        return str(cell)
    if isinstance(cell, Integral):
        return f"{int(cell):+d}" if column.signed and cell else f"{int(cell)}"
    number = float(cell)
    if isnan(number):
        return ""
    text = f"{number:.{column.digits}f}"
    if float(text) == 0:
        return text.removeprefix("-")  # what rounds to nothing has no sign
    return f"+{text}" if column.signed and number > 0 else text


def _is_number(cell: Any) -> bool:
    return isinstance(cell, Estimate) or (isinstance(cell, Real) and not isinstance(cell, bool))


def _is_numeric(table: Table, column: Column) -> bool:
    cells = [row[column.key] for row in table.rows if row[column.key] is not None]
    return bool(cells) and all(_is_number(cell) for cell in cells)


def _has_estimate(table: Table, column: Column) -> bool:
    return any(isinstance(row[column.key], Estimate) for row in table.rows)

"""Responses that satisfy the checker without saying anything."""

import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from vsr_jax.data.rows import Row

Judge = Callable[[Row, str], bool]
"""Whether a passing response is a shortcut; a model that judges content fits too."""

FEW_WORDS = 4

_WORD = re.compile(r"[^\W_]+")


def few_words_of_its_own(row: Row, text: str, at_least: int = FEW_WORDS) -> bool:
    """The default rule: fewer than `at_least` words that no constraint of the row spells out."""
    asked = {word for kwargs in row.kwargs for word in _words(" ".join(map(str, _flat(list(kwargs.values())))))}
    return sum(word not in asked for word in _words(text)) < at_least


def shortcut_share(table: pa.Table, rows: Sequence[Row], judge: Judge = few_words_of_its_own) -> np.ndarray:
    """float64[prompts]: share of each prompt's responses that pass and are shortcuts; NaN without a verdict."""
    place = {row.id: i for i, row in enumerate(rows)}
    known, held = np.zeros(len(rows)), np.zeros(len(rows))
    for item in table.select(["prompt_id", "text", "passed"]).to_pylist():
        i = place[item["prompt_id"]]
        if item["passed"] is not None:
            known[i] += 1
            held[i] += item["passed"] and judge(rows[i], item["text"])
    return np.divide(held, known, out=np.full(len(rows), np.nan), where=known > 0)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _flat(value: object) -> list[object]:
    return [item for part in value for item in _flat(part)] if isinstance(value, list | tuple) else [value]

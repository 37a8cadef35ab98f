"""What the instruction tests share: one way to ask, arguments for every id, texts of every kind."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from vsr_jax.verifiers import check_instructions
from vsr_jax.verifiers.instructions import instruction_fields, instruction_ids

VALUES: dict[str, Any] = {
    "N": 2,
    "capital_frequency": 1,
    "capital_relation": "at least",
    "end_phrase": "the end",
    "first_word": "kiwi",
    "forbidden_words": ["kiwi", "plum"],
    "frequency": 1,
    "keyword": "kiwi",
    "keyword1": "kiwi",
    "keyword2": "plum",
    "keywords": ["kiwi", "plum"],
    "language": "en",
    "last_word": "kiwi",
    "let_frequency": 1,
    "let_relation": "less than",
    "letter": "k",
    "m": 1,
    "n": 1,
    "n_end": 4,
    "n_sent": 1,
    "n_start": 0,
    "n_words": 2,
    "nth_paragraph": 1,
    "num_bullets": 1,
    "num_highlights": 1,
    "num_paragraphs": 2,
    "num_placeholders": 1,
    "num_sections": 1,
    "num_sentences": 2,
    "num_words": 3,
    "phrase": "kiwi is a plum",
    "postscript_marker": "P.S.",
    "prompt_to_repeat": "Say kiwi.",
    "relation": "at least",
    "section_spliter": "Part",
    "small_n": 1,
}
"""A value for every argument name of the four suites."""

PIECES = [
    "kiwi",
    "plum",
    "Kiwi is",
    "a. ",
    "* ",
    "***",
    "- ",
    "[x]",
    "<<t>>",
    '"',
    "`",
    "\n",
    "\n\n",
    "{",
    "}",
    "P.S.",
    "1",
    "é",
]

TEXTS = st.one_of(st.text(st.characters(), max_size=60), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
"""Any characters, lone surrogates included, and mixtures of what the checkers look for."""


def arguments(suite: str, name: str) -> dict[str, Any]:
    """Good arguments for an id."""
    return {field: VALUES[field] for field in instruction_fields(name, suite)}  # type: ignore[arg-type]


def every_check(suite: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """All (id, arguments, reading) of a suite."""
    for name in instruction_ids(suite):  # type: ignore[arg-type]
        for reading in ("reference", "intent"):
            yield name, arguments(suite, name), reading


def passes(
    name: str, response: str, suite: str, reading: str = "reference", level: str = "strict", **kwargs: Any
) -> bool:
    """The verdict on one instruction."""
    verdict = check_instructions([name], [kwargs], response, suite=suite, reading=reading, level=level)  # type: ignore[arg-type]
    return verdict.passed


def both_verdicts(directory: Path, name: str) -> dict[str, set[bool]]:
    """The verdicts that a file of recorded verdicts holds for each id."""
    found: dict[str, set[bool]] = {}
    for line in (directory / f"{name}_reference_outcomes_dev.jsonl").read_text(encoding="utf-8").strip().split("\n"):
        row = json.loads(line)
        ids = (
            [row["instruction_id"]]
            if "instruction_id" in row
            else row.get("instruction_id_list") or row["constraint_name"]
        )
        for key, verdict in zip(ids, row["strict"] if "strict" in row else [row["passed"]], strict=True):
            found.setdefault(key, set()).add(verdict)
    return found

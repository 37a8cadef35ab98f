"""Checks of AIME files: with 30 problems, one wrong row moves a result by 3.3 points."""

import re
from collections import Counter
from collections.abc import Sequence

from vsr_jax.data.records import Record
from vsr_jax.errors import UserError

# All answers of a year, sorted; the order of rows differs between copies.
ANSWERS: dict[str, tuple[int, ...]] = {
    "aime24": (
        *(23, 25, 33, 45, 55, 73, 80, 104, 104, 110, 113, 116, 127, 197, 204),
        *(211, 236, 294, 315, 321, 371, 385, 468, 480, 540, 601, 699, 721, 809, 902),
    ),
    "aime25": (
        *(16, 19, 49, 60, 62, 70, 77, 81, 82, 104, 106, 113, 117, 149, 204),
        *(237, 240, 248, 259, 279, 293, 336, 468, 504, 510, 588, 610, 735, 821, 907),
    ),
}
# AIME 2024 I, problem 12, which circulates with 384. Recognised by its equations, whatever their spacing.
_PROBLEM_12 = re.compile(r"4g\(f\(\\sin\(2\\pix\)\)\)")
# In sound copies a problem shares at most 9 words in a row with its solution.
_LEAK_WORDS = 15


def answer_of(record: Record) -> int:
    """The answer, an integer from 0 to 999 in any spelling (`073`, `70.0`)."""
    value = record.number("answer")
    if not 0 <= value <= 999:
        record.fail("answer", f"is {value}, AIME answers are integers from 0 to 999")
    return value


def check_year(name: str, records: Sequence[Record]) -> None:
    """Checks the rows of `aime24` or `aime25` against each other and against the known answers.

    Raises:
      UserError: not 30 rows, a repeated problem, a problem that holds part of its solution, or a wrong answer.
    """
    if len(records) != 30:
        raise UserError(f"{records[0].where.rpartition(':')[0]}: has {len(records)} rows, {name} has 30")
    seen: dict[str, str] = {}
    for record in records:
        problem = record.text("problem", "question")
        key = re.sub(r"[^a-z0-9]", "", problem.lower())
        if key in seen:
            record.fail("problem", f"is the same as at {seen[key]}")
        seen[key] = record.where
        if _leaks(problem, str(record.fields.get("solution") or "")):
            record.fail("problem", "holds part of the solution; use a clean copy")
        if _PROBLEM_12.search(re.sub(r"\s", "", problem)) and answer_of(record) != 385:
            record.fail("answer", f"is {answer_of(record)}, the answer of AIME 2024 I problem 12 is 385")
    known = Counter(ANSWERS[name])
    for record in records:
        known[answer_of(record)] -= 1
        if known[answer_of(record)] < 0:
            missing = ", ".join(str(answer) for answer, count in (Counter(ANSWERS[name]) - _found(records)).items())
            record.fail("answer", f"{answer_of(record)} is not among the answers left of {name}; missing: {missing}")


def _found(records: Sequence[Record]) -> Counter[int]:
    return Counter(answer_of(record) for record in records)


def _leaks(problem: str, solution: str) -> bool:
    if re.search(r"\\(?:boxed|framebox|fbox)\b", problem):
        return True
    words, text = re.findall(r"[a-z0-9]+", problem.lower()), " ".join(re.findall(r"[a-z0-9]+", solution.lower()))
    runs = (" ".join(words[start : start + _LEAK_WORDS]) for start in range(len(words) - _LEAK_WORDS + 1))
    return any(f" {run} " in f" {text} " for run in runs)

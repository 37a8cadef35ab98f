"""Check a math answer against a gold answer."""

import re
from fractions import Fraction
from typing import Literal

from vsr_jax.errors import UserError
from vsr_jax.verifiers.math_extract import Extract, after_thinking, find_answer
from vsr_jax.verifiers.types import Status, Verdict

Policy = Literal["exact", "dapo"]

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_FRACTION = re.compile(r"([+-]?)(?:\\[dt]?frac\{([+-]?[0-9]+)\}\{([+-]?[0-9]+)\}|([0-9]+)/([0-9]+))")


def check_math(
    gold: str, response: str, *, extract: Extract = "auto", policy: Policy = "exact", think: bool = False
) -> Verdict:
    """Checks the final answer of `response` against `gold`."""
    if not isinstance(gold, str) or not gold.strip():
        raise UserError("a math row needs a non-empty gold answer (field `answer`)")
    text = after_thinking(response) if think else response
    if text is None:
        return _verdict("no_answer", "the thinking block is not closed")
    found = find_answer(text, extract)
    if found.answer is None:
        return _verdict("no_answer", found.reason)
    same = _same(gold, found.answer)
    return _verdict("correct" if same else "wrong", found.answer[:200])


def _verdict(status: Status, detail: str) -> Verdict:
    passed = status == "correct"
    return Verdict(passed, (passed,), float(passed), status, detail)


def _same(gold: str, answer: str) -> bool:
    gold, answer = _normalise(gold), _normalise(answer)
    if gold == answer:
        return True
    a, b = _value(gold), _value(answer)
    return a is not None and a == b


def _normalise(text: str) -> str:
    text = re.sub(r"\\+(?:boxed|fbox)\s*\{(.*)\}", r"\1", text, flags=re.DOTALL)
    text = text.strip(" $.,;\n").replace("\u2212", "-").replace("\u2013", "-")
    return " ".join(text.split())


def _value(text: str) -> Fraction | None:
    if len(text) > 400:
        return None
    if _NUMBER.fullmatch(text):
        return Fraction(text)
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    sign, top, bottom, top2, bottom2 = match.groups()
    top, bottom = int(top or top2), int(bottom or bottom2)
    return None if bottom == 0 else Fraction(-top if sign == "-" else top, bottom)

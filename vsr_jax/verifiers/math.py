r"""Check the final answer of a response against a gold answer.

The value of an answer counts, not its print: 3/4, 0.75 and \frac{6}{8} are the same. Comparison is exact; there is no
tolerance. Equal normalised strings match before anything is parsed; what cannot be parsed matches nothing else.
"""

import re
from typing import Literal

from vsr_jax.errors import UserError
from vsr_jax.verifiers.dapo import check_dapo
from vsr_jax.verifiers.math_compare import same
from vsr_jax.verifiers.math_exact import Budget, TooBig, Undefined
from vsr_jax.verifiers.math_extract import Extract, find_answer
from vsr_jax.verifiers.math_lex import MAX_CHARACTERS, Token, has_words, key, spoken, tokenise
from vsr_jax.verifiers.math_macros import based
from vsr_jax.verifiers.math_node import Node, ParseFailure
from vsr_jax.verifiers.math_parse import parse
from vsr_jax.verifiers.math_value import NotScalar
from vsr_jax.verifiers.scope import after_thinking
from vsr_jax.verifiers.types import Verdict

Policy = Literal["exact", "dapo"]

_INTEGER = re.compile(r"\s*(-?)0*([0-9]{1,300})\s*")
_BASE = re.compile(r"([+-]?)\(?([0-9A-Za-z]+)\)?_\{?([0-9]{1,2})\}?")
_CHOICES = frozenset("ABCDEFGH")
_DETAIL = 200


def check_math(
    gold: str, response: str, *, extract: Extract = "auto", policy: Policy = "exact", think: bool = False
) -> Verdict:
    r"""Checks the final answer of a response. Pure, bounded in time, safe from any thread; never raises on a response.

    Args:
      gold: the reference answer, in LaTeX or plain text.
      response: what the model wrote.
      extract: where the answer stands. `boxed`: the last box (`\boxed{..}`, `\boxed ..`, `\fbox{..}`); `answer_line`:
        what follows the last `Answer:`; `auto`: the last box, or the last answer line where there is no box at all.
        An empty or unfinished last box is no answer.
      policy: `exact` compares values; `dapo` is the string rule of the DAPO recipe (see `check_dapo`).
      think: only text after the last `</think>` counts, and an unclosed block means no answer. Off, tags are text.

    Returns:
      A verdict with one part; `detail` holds the extracted answer, or why there is none.

    Raises:
      UserError: the row is malformed: the gold answer is missing or empty, or an option is unknown.
    """
    if extract not in ("auto", "boxed", "answer_line") or policy not in ("exact", "dapo"):
        raise UserError(f"check_math: extract={extract!r}, policy={policy!r}: see its documentation for the choices")
    gold = checked_gold(gold)
    if not isinstance(response, str):
        return Verdict(False, (), 0.0, "error", f"response is {type(response).__name__}, not text")
    text = after_thinking(response) if think else response
    if policy == "dapo":
        return check_dapo(gold, text, extract)
    answer, reason = find_answer(text, extract)
    return no_answer(reason) if answer is None else check_answer(gold, answer)


def check_answer(gold: str, answer: str) -> Verdict:
    """Checks an answer that was already found.

    Raises:
      UserError: `gold` is empty print.
    """
    same_answer = answers_equal(gold, answer)
    if same_answer is None:
        return no_answer("the answer is empty")
    status = "correct" if same_answer else "wrong"
    return Verdict(same_answer, (same_answer,), float(same_answer), status, answer[:_DETAIL])


def no_answer(reason: str) -> Verdict:
    """The verdict on a response without an answer."""
    return Verdict(False, (False,), 0.0, "no_answer", reason)


def answers_equal(gold: str, answer: str) -> bool | None:
    """Whether two answers without surrounding text are the same; None when `answer` is empty print.

    Raises:
      UserError: `gold` is empty print.
    """
    if max(len(gold), len(answer)) > MAX_CHARACTERS:
        return gold.split() == answer.split()
    if (fast := _same_integer(gold, answer)) is not None:
        return fast
    gold_tokens, tokens = tokenise(gold), tokenise(answer)
    if not gold_tokens:
        raise UserError("math row: field `answer`: is empty; correct the row or leave it out")
    if not tokens:
        return None
    if key(gold_tokens) == key(tokens):
        return True
    if (has_words(gold_tokens) or has_words(tokens)) and spoken(gold_tokens) == spoken(tokens):
        return True
    if _same_choice(gold_tokens, tokens):
        return True
    try:
        return same(_tree(gold_tokens), _tree(tokens), Budget())
    except (ParseFailure, NotScalar, TooBig, Undefined, RecursionError):  # the last from a caller deep in recursion
        return False


def checked_gold(gold: object) -> str:
    """A gold answer as text.

    Raises:
      UserError: it is missing or blank.
    """
    if isinstance(gold, int | float) and not isinstance(gold, bool):
        return str(gold)
    if not isinstance(gold, str) or not gold.strip():
        raise UserError(
            f"math row: field `answer`: is {gold!r}; it must hold an answer: correct the row or leave it out"
        )
    return gold


def _same_integer(gold: str, answer: str) -> bool | None:
    """The common case, without a parser; None when a side is no plain integer."""
    a, b = _INTEGER.fullmatch(gold), _INTEGER.fullmatch(answer)
    if a is None or b is None:
        return None
    return a.group(2) == b.group(2) and (a.group(1) == b.group(1) or a.group(2) == "0")


def _same_choice(gold: list[Token], answer: list[Token]) -> bool:
    """Whether an answer such as `(B) 12` gives the letter that the gold is, and no other letter."""
    letters = [token for token in gold if token.value not in ("(", ")")]
    if len(letters) != 1 or letters[0].kind != "sym" or letters[0].value not in _CHOICES:
        return False
    head, rest = (answer[1:3], answer[3:]) if answer[0].value == "(" else (answer[:2], answer[2:])
    if not rest or head[0].value != letters[0].value or head[1].value not in (")", ".", ":"):
        return False
    return not any(token.value in _CHOICES or token.value in (",", ";", "or", "and") for token in rest)


def _tree(tokens: list[Token]) -> Node:
    """The parsed answer; a number with a base may have letters for digits."""
    match = _BASE.fullmatch(key(tokens[-40:]))
    if match and len(tokens) <= 40 and any(digit in "0123456789" for digit in match.group(2)):
        sign, digits, base = match.groups()
        node = based(digits, int(base))
        return Node("neg", (node,)) if sign == "-" else node
    return parse(tokens)

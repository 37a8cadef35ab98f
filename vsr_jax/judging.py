"""From token ids to verdicts: text is derived, checked, and classified by its opening."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from vsr_jax.data.rows import Row, check_row
from vsr_jax.data.tokenizer import text_of
from vsr_jax.sampling.types import FINISH_NAMES, LENGTH, Rollouts
from vsr_jax.support.openings import OpeningRules, classify_opening, keywords_of
from vsr_jax.verifiers.math_extract import Extract
from vsr_jax.verifiers.types import Verdict

Check = Callable[[tuple[Row, str, bool]], Verdict]


@dataclass(frozen=True)
class Judged:
    """One response with what was found in it."""

    text: str
    verdict: Verdict
    opening: str
    finish: str


def check_response(item: tuple[Row, str, bool], *, require_stop: bool = False, extract: Extract = "auto") -> Verdict:
    """Checks `(row, text, stopped)`. With `require_stop`, a response cut at the length limit is not correct."""
    row, text, stopped = item
    if require_stop and not stopped:
        return Verdict(False, (False,), 0.0, "truncated", "cut at the length limit")
    return check_row(row, text, extract=extract)


def judge(
    rows: Sequence[Row],
    rollouts: Rollouts,
    tokenizer: Any,
    *,
    require_stop: bool = False,
    extract: Extract = "auto",
    rules: OpeningRules | None = None,
    verify: Callable[[Check, Sequence[tuple[Row, str, bool]]], Sequence[Verdict]] | None = None,
) -> list[Judged]:
    """Judges every response.

    Args:
      rows: the prompts of `rollouts`, in its order.
      rollouts: N = len(rows) n responses.
      tokenizer: turns ids into text; special tokens are left out.
      require_stop, extract: see `check_response`.
      rules: opening rules; the shipped ones when None.
      verify: runs the check over all items, such as `Pool.map`; in this process when None.

    Returns:
      N entries in the order of `rollouts`.
    """
    texts = [text_of(tokenizer, rollouts.response(i)) for i in range(len(rollouts.length))]
    stopped = (rollouts.finish_reason != LENGTH).tolist()
    owners = [rows[i] for i in rollouts.prompt_index]
    items = list(zip(owners, texts, stopped, strict=True))
    check = partial(check_response, require_stop=require_stop, extract=extract)
    verdicts = [check(item) for item in items] if verify is None else verify(check, items)
    return [
        Judged(text, verdict, _opening(row, text, rules), FINISH_NAMES[reason])
        for row, text, verdict, reason in zip(owners, texts, verdicts, rollouts.finish_reason, strict=True)
    ]


def _opening(row: Row, text: str, rules: OpeningRules | None) -> str:
    kind = "instructions" if row.task == "instructions" and row.gold is None else "math"
    return classify_opening(text, prompt_kind=kind, rules=rules, keywords=keywords_of(row.kwargs))

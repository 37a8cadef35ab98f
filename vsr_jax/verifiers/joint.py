"""Joint behaviour: C, the answer is correct; F, every instruction is followed; J, both in the same response.

Each benchmark has its own scope of F. MathIF: the response after the thoughts, inside `<answer>` where there is one.
ReasonIF: the reasoning alone, which ends at `</think>` or, in a response without that tag, at `<answer>`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vsr_jax.errors import UserError
from vsr_jax.verifiers.instructions import Level, Reading, check_instructions
from vsr_jax.verifiers.math import check_answer, checked_gold, no_answer
from vsr_jax.verifiers.math_extract import find_answer
from vsr_jax.verifiers.scope import after_thinking, followed_scope
from vsr_jax.verifiers.types import JointVerdict, Verdict

_ANSWER_TAG = "<answer>"


def check_joint(
    row: Mapping[str, Any] | Any, response: str, *, level: Level = "strict", reading: Reading = "reference"
) -> JointVerdict:
    """Checks answer and instructions of a MathIF or ReasonIF row. Never raises on a response.

    Args:
      row: the fields of the benchmark (`answer`, `constraint_name`, `constraint_args`, and `prompt` or `question`), or
        an object with the attributes of `vsr_jax.data.rows.Row`. ReasonIF rows are told by their field `hf_id`; a
        field `suite` overrides that.
      response: the whole response, thoughts included.
      level, reading: as in `check_instructions`.

    Raises:
      UserError: the row is malformed.
    """
    gold, ids, kwargs, prompt, suite = _fields(row)
    return JointVerdict(
        check_tagged_answer(gold, response),
        check_instructions(
            ids, kwargs, followed_text(response, suite), prompt=prompt, suite=suite, level=level, reading=reading
        ),
    )


def followed_text(response: str, suite: str) -> str:
    """The part of a response on which the instructions of a joint row are checked."""
    if suite == "reasonif" and "</think>" not in response:
        return response.split(_ANSWER_TAG, 1)[0]
    return followed_scope(response, suite)


def check_tagged_answer(gold: str, response: str) -> Verdict:
    """Checks the answer behind the thoughts, which the last `<answer>` tag holds where there is one.

    Inside the tag a box or an answer line counts first, else all of it. Without a tag the answer stands in the last
    box or answer line. An unclosed tag is no answer.

    Raises:
      UserError: the gold answer is missing or empty.
    """
    gold = checked_gold(gold)
    text = after_thinking(response)
    _, tag, tagged = text.rpartition(_ANSWER_TAG)
    if tag and "</answer>" not in tagged:
        return no_answer("the last <answer> is not closed")
    inside = tagged.split("</answer>", 1)[0] if tag else text
    answer, reason = find_answer(inside, "auto")
    if answer is None and tag and "box" not in inside:
        answer = inside
    if answer is None:
        return no_answer(reason)
    return check_answer(gold, answer)


def _fields(row: Any) -> tuple[str, Sequence[str], Sequence[Mapping[str, Any] | None], str, Any]:
    if not isinstance(row, Mapping):
        return row.gold, row.instruction_ids, row.kwargs, row.prompt, row.suite
    missing = [name for name in ("answer", "constraint_name", "constraint_args") if name not in row]
    if missing:
        raise UserError(f"joint row: field `{missing[0]}`: is missing; give a MathIF or ReasonIF row as published")
    suite = row.get("suite") or ("reasonif" if "hf_id" in row else "mathif")
    prompt = row.get("prompt") or row.get("question") or ""
    return row["answer"], row["constraint_name"], row["constraint_args"], prompt, suite

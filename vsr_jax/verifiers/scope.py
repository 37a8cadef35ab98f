"""Which part of a response the instructions of a suite apply to.

The scope is part of a metric: thoughts that hold commas break `punctuation:no_comma`, though
the reader is never given them. Nothing here is applied by `check_instructions` itself.
"""

from vsr_jax.errors import UserError

OPEN, CLOSE = "<think>", "</think>"


def after_thinking(text: str) -> str:
    """The answer: what follows the last `</think>`, all of a text without tags, nothing where a block is not closed."""
    answer = text.rpartition(CLOSE)[2]
    return "" if OPEN in answer else answer


def thoughts(text: str) -> str:
    """The reasoning: from the first `<think>`, or the start, to the first `</think>`, or the end.

    A text without tags is reasoning as a whole, as in the reference.
    """
    return text.split(CLOSE, 1)[0].split(OPEN, 1)[-1]


def inside_answer(text: str) -> str:
    """What stands between the first `<answer>` and the next `</answer>`, or all where there is no such tag."""
    return text.split("<answer>", 1)[-1].split("</answer>", 1)[0]


def without_answer_tags(text: str) -> str:
    """The text with the tags `<answer>` and `</answer>` deleted."""
    return text.replace("<answer>", "").replace("</answer>", "")


_SCOPES = {
    "ifeval": after_thinking,
    "iftrain": lambda text: without_answer_tags(after_thinking(text)).strip(),
    "ifbench": after_thinking,
    "ifbench_2025": after_thinking,
    "mathif": lambda text: inside_answer(after_thinking(text)),
    "reasonif": thoughts,
}


def followed_scope(text: str, suite: str) -> str:
    """The part of a response that the instructions of `suite` are checked on.

    IFEval and IFBench: the answer after the thoughts. MathIF: the same, inside `<answer>` where
    there is one. IFTrain: the answer without those tags. ReasonIF: the thoughts alone.

    Raises:
      UserError: the suite is unknown.
    """
    if suite not in _SCOPES:
        raise UserError(f"unknown instruction suite {suite!r}; choose one of {', '.join(_SCOPES)}")
    return _SCOPES[suite](text)

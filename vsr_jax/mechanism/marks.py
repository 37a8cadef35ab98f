"""Marked stretches of a response's text, from marks on its tokens."""

from collections.abc import Sequence
from typing import Any

from vsr_jax.data.tokenizer import text_of


def segments(tokenizer: Any, ids: Sequence[int], marks: Sequence[str], text: str) -> list[tuple[str, str]]:
    """Pairs (text, mark) that spell out `text`, for the rollout browser.

    A boundary that falls inside a character (tokens of a byte-level vocabulary may end there) moves to the next one
    that does not, so a mark may cover a little more than its tokens.

    Args:
      tokenizer: of the response.
      ids: its tokens.
      marks: one a token, "" where there is nothing to say.
      text: the response as decoded.
    """
    out: list[tuple[str, str]] = []
    begun, mark = 0, ""
    for i, new in enumerate(marks):
        if new == mark:
            continue
        before = text_of(tokenizer, ids[:i])
        if not text.startswith(before):
            mark = mark or new
            continue
        if len(before) > begun:
            out.append((text[begun : len(before)], mark))
            begun = len(before)
        mark = new
    if begun < len(text):
        out.append((text[begun:], mark))
    return out

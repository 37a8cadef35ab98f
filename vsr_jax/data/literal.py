"""Reads Python literals from data files without evaluating anything."""

import ast
from typing import Any

MAX_CHARACTERS = 100_000


def parse_literal(text: str, max_characters: int = MAX_CHARACTERS) -> Any:
    """The value of a Python literal (strings, numbers, lists, dicts, tuples, True, False, None).

    Raises:
      ValueError: too long, too deeply nested, or anything other than a literal.
    """
    if len(text) > max_characters:
        raise ValueError(f"has {len(text)} characters, at most {max_characters} are read")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"is not a Python literal ({type(error).__name__})") from None

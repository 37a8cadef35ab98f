"""The arguments of instructions: which kinds there are, and how a row's values are checked.

A checker documents its arguments by its own signature: keyword-only parameters annotated
with the kinds below. Where the reference draws a missing, negative or empty argument at
random, the row is malformed here, since a verdict must not depend on chance.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from vsr_jax.errors import UserError
from vsr_jax.verifiers.text import LANGUAGES

Count = Annotated[int, "a whole number of at least 0"]
Ordinal = Annotated[int, "a whole number of at least 1"]
Filled = Annotated[str, "a text that is not blank"]
Word = Annotated[str, "a text that is not blank, or a list that starts with one"]
Phrase = Annotated[str, "a text"]
Phrases = Annotated[tuple[str, ...], "a list of texts that are not blank, with at least one"]
Letter = Annotated[str, "a single character that is not blank"]
Language = Annotated[str, f"a language code of: {' '.join(LANGUAGES)}"]
Relation = Literal["less than", "at least"]

_MISSING = object()


def _whole(value: Any, least: int) -> Any:
    """Whole numbers come as floats (8.0) from columnar data."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if number and value == value // 1 and value >= least else _MISSING


def _text(value: Any, least: int = 0) -> Any:
    return value if isinstance(value, str) and len(value.strip()) >= least else _MISSING


def _word(value: Any) -> Any:
    first = value[0] if isinstance(value, list | tuple) and value else value
    word = _text(first, 1)
    return word if word is _MISSING else word.strip()


def _phrases(value: Any) -> Any:
    listed = isinstance(value, list | tuple) and len(value) > 0
    return tuple(value) if listed and all(_text(item, 1) is not _MISSING for item in value) else _MISSING


_READERS: dict[Any, Callable[[Any], Any]] = {
    Count: lambda value: _whole(value, 0),
    Ordinal: lambda value: _whole(value, 1),
    Filled: lambda value: _text(value, 1),
    Word: _word,
    Phrase: _text,
    Phrases: _phrases,
    Letter: lambda value: value if isinstance(value, str) and len(value) == 1 and value.strip() else _MISSING,
    Language: lambda value: value if value in LANGUAGES else _MISSING,
    Relation: lambda value: value if value in ("less than", "at least") else _MISSING,
}
_EXPECTED = {Relation: "'less than' or 'at least'"}


@dataclass(frozen=True)
class Check:
    """A checker with the arguments that its signature documents.

    Attributes:
      function: `function(response, *, [prompt,] **kwargs) -> bool`.
      fields: argument name to its kind; kinds not listed in this module are passed on as they are.
      required: arguments without a default.
      wants_prompt: whether the function takes the prompt of the row.
    """

    function: Callable[..., bool]
    fields: Mapping[str, Any]
    required: frozenset[str]
    wants_prompt: bool


def describe(function: Callable[..., bool]) -> Check:
    """Reads the arguments of a checker off its signature."""
    named = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    arguments = {name: parameter for name, parameter in named.items() if name != "prompt"}
    return Check(
        function,
        {name: parameter.annotation for name, parameter in arguments.items()},
        frozenset(name for name, parameter in arguments.items() if parameter.default is inspect.Parameter.empty),
        "prompt" in named,
    )


def read_arguments(check: Check, given: Mapping[str, Any] | None, where: str) -> dict[str, Any]:
    """The arguments for a checker from a row's values, which stay unchanged.

    None stands for an absent argument, as in columnar data where every row has every field;
    0, False and '' are values.

    Raises:
      UserError: an argument is unknown, missing or not of its kind; the message names it.
    """
    if given is not None and not isinstance(given, Mapping):
        raise UserError(f"{where}: kwargs are {given!r}; give a mapping of field names to values, or None")
    present = {name: value for name, value in (given or {}).items() if value is not None}
    for name in present:
        if name not in check.fields:
            known = ", ".join(sorted(check.fields)) or "none"
            raise UserError(f"{where}: unknown field {name!r}; its fields are: {known}")
    for name in sorted(check.required):
        if name not in present:
            raise UserError(f"{where}: field {name!r} is missing")
    return {name: _read(check.fields[name], value, name, where) for name, value in present.items()}


def _read(kind: Any, value: Any, name: str, where: str) -> Any:
    reader = _READERS.get(kind)
    if reader is None:
        return value
    read = reader(value)
    if read is _MISSING:
        expected = _EXPECTED.get(kind) or kind.__metadata__[0]
        raise UserError(f"{where}: field {name!r} is {value!r}; give {expected}")
    return read

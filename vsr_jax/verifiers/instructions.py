"""Whether a response follows the instructions of its row, checked by tables of checkers by id.

A checker is a pure function `checker(response, *, prompt, **kwargs) -> bool`. Its keyword-only
parameters are the documented arguments of the instruction (`fields.py` has their kinds); `prompt`
is passed to those that declare it. A checker raises on no response. Each suite is a module with a
table of its reference checkers and one of those where `reading="intent"` differs.

The reference reading is the default, since published scores were made with it; the documentation
lists where it contradicts the instruction that the model was given.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal

from vsr_jax.errors import UserError
from vsr_jax.verifiers.fields import Check, describe, read_arguments
from vsr_jax.verifiers.types import Verdict

Suite = Literal["ifeval", "iftrain", "ifbench", "ifbench_2025", "mathif", "reasonif"]
Level = Literal["strict", "loose"]
Reading = Literal["reference", "intent"]

# The tables of each suite and reading; a later table wins.
_TABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "ifeval": {"reference": ("ifeval.IFEVAL",), "intent": ("ifeval.IFEVAL", "ifeval.IFEVAL_INTENT")},
    "iftrain": {"reference": ("iftrain.IFTRAIN",), "intent": ("iftrain.IFTRAIN", "iftrain_intent.IFTRAIN_INTENT")},
    "ifbench": {"reference": ("ifbench.IFBENCH",), "intent": ("ifbench.IFBENCH", "ifbench.IFBENCH_INTENT")},
    "ifbench_2025": {"reference": ("ifbench.IFBENCH_2025",), "intent": ("ifbench.IFBENCH", "ifbench.IFBENCH_INTENT")},
    "mathif": {"reference": ("mathif.MATHIF",), "intent": ("mathif.MATHIF", "mathif.MATHIF_INTENT")},
    "reasonif": {"reference": ("reasonif.REASONIF",), "intent": ("reasonif.REASONIF",)},
}


@cache
def _checks(suite: str, reading: str) -> Mapping[str, Check]:
    if suite not in _TABLES:
        raise UserError(f"unknown instruction suite {suite!r}; choose one of {', '.join(_TABLES)}")
    if reading not in _TABLES[suite]:
        raise UserError(f"unknown reading {reading!r}; choose one of {', '.join(_TABLES[suite])}")
    table: dict[str, Check] = {}
    for place in _TABLES[suite][reading]:
        module, name = place.split(".")
        functions = getattr(import_module(f"vsr_jax.verifiers.{module}"), name)
        table.update({key: describe(function) for key, function in functions.items()})
    return MappingProxyType(table)


def instruction_ids(suite: Suite = "ifeval") -> tuple[str, ...]:
    """The ids that a suite knows, sorted."""
    return tuple(sorted(_checks(suite, "reference")))


def instruction_fields(name: str, suite: Suite = "ifeval") -> tuple[str, ...]:
    """The argument names of an instruction; raises UserError for an unknown id."""
    return tuple(_find(_checks(suite, "reference"), name, suite).fields)


def _find(table: Mapping[str, Check], name: str, suite: str) -> Check:
    if not isinstance(name, str) or name not in table:
        raise UserError(f"unknown instruction id {name!r} in suite {suite!r}; known: {', '.join(sorted(table))}")
    return table[name]


def unsatisfiable(ids: Iterable[str], *, suite: Suite = "iftrain", reading: Reading = "reference") -> dict[str, str]:
    """The ids among `ids` that pay hardly any compliant response, each with the reason.

    Such an instruction is a dead constraint in training: print what this returns beside the
    reading that was chosen.
    """
    if suite != "iftrain" or reading != "reference":
        return {}
    from vsr_jax.verifiers.iftrain import UNSATISFIABLE

    return {name: UNSATISFIABLE[name] for name in sorted(set(ids)) if name in UNSATISFIABLE}


def loose_variants(response: str) -> tuple[str, ...]:
    """The texts of which one must pass at the loose level, the response first.

    The first line, the last line or both are cut off, and each of the four is also taken
    without its stars: eight texts, of which equal ones are left out.
    """
    lines = response.split("\n")
    cut = [
        response,
        "\n".join(lines[1:]).strip(),
        "\n".join(lines[:-1]).strip(),
        "\n".join(lines[1:-1]).strip(),
    ]
    return tuple(dict.fromkeys([*cut, *(text.replace("*", "") for text in cut)]))


def check_instructions(
    ids: Sequence[str],
    kwargs: Sequence[Mapping[str, Any] | None],
    response: str,
    *,
    prompt: str = "",
    suite: Suite = "ifeval",
    level: Level = "strict",
    reading: Reading = "reference",
) -> Verdict:
    """Checks every instruction of a row on one response.

    Args:
      ids: instruction ids in row order; a repeated id counts each time.
      kwargs: the arguments of each, by position; fields that are None count as absent.
      response: the text that is judged, whole: nothing is cut away before (see `scope.py`).
      prompt: the text of the user, for the few instructions that refer to it.
      level: `loose` also accepts the response without stars, first line or last line.
      reading: `intent` judges by the wording of the instruction where the reference contradicts it.

    Returns:
      A verdict with one part an instruction, in order. A blank response fails every
      instruction and has the status `no_answer`.

    Raises:
      UserError: the row is malformed (unknown id, bad or missing argument, no ids); never
        because of the response.
    """
    table = _checks(suite, reading)
    if level not in ("strict", "loose"):
        raise UserError(f"unknown level {level!r}; choose strict or loose")
    if isinstance(ids, str) or len(ids) == 0:
        raise UserError(f"instruction ids are {ids!r}; give a list with at least one id")
    if kwargs is None or isinstance(kwargs, str | Mapping):
        raise UserError(f"kwargs are {kwargs!r}; give a list with one mapping an id")
    if not isinstance(response, str):
        raise UserError(f"the response is of type {type(response).__name__}; give a text")
    if len(ids) != len(kwargs):
        raise UserError(f"{len(ids)} instruction ids but {len(kwargs)} kwargs; give one mapping an id")
    bound = []
    for name, given in zip(ids, kwargs, strict=True):
        check = _find(table, name, suite)
        arguments = read_arguments(check, given, f"instruction {name!r}")
        if check.wants_prompt:
            arguments["prompt"] = prompt
        bound.append((name, check.function, arguments))
    variants = (response,) if level == "strict" else loose_variants(response)
    parts = tuple(_passes(name, function, arguments, variants) for name, function, arguments in bound)
    missed = [name for name, passed in zip(ids, parts, strict=True) if not passed]
    if not missed:
        return Verdict(True, parts, 1.0, "correct")
    status = "wrong" if response.strip() else "no_answer"
    return Verdict(False, parts, sum(parts) / len(parts), status, "not followed: " + ", ".join(missed))


def _passes(name: str, function: Any, arguments: Mapping[str, Any], variants: Sequence[str]) -> bool:
    try:
        # A blank text follows nothing; it is still checked, so that a malformed row is found whatever the response.
        return any(function(text, **arguments) and bool(text.strip()) for text in variants)
    except UserError as error:
        raise UserError(f"instruction {name!r}: {error}") from None

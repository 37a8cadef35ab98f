"""One benchmark prompt, and how its responses are checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from vsr_jax.verifiers.types import Verdict

if TYPE_CHECKING:
    from vsr_jax.verifiers.instructions import Suite
    from vsr_jax.verifiers.math_extract import Extract

Task = Literal["math", "instructions", "joint"]


@dataclass(frozen=True)
class Row:
    """A prompt with what its verifier needs.

    Attributes:
      id: stable across loads and unique within a benchmark.
      prompt: the user's text, before any framing.
      task: which verifier applies.
      gold: the reference answer of a math or joint row.
      instruction_ids, kwargs: the constraints of an instruction or joint row, by position.
      suite: instruction suite, as named by `check_instructions`.
      source: the original fields, untouched.
    """

    id: str
    prompt: str
    task: Task
    gold: str | None = None
    instruction_ids: tuple[str, ...] = ()
    kwargs: tuple[Mapping[str, Any], ...] = ()
    suite: "Suite" = "ifeval"
    source: Mapping[str, Any] = field(default_factory=dict)


def check_row(row: Row, response: str, *, extract: "Extract" = "auto") -> Verdict:
    """Checks a response with the verifier that the row asks for. Pure; never raises on a response."""
    from vsr_jax import verifiers

    if row.task == "math":
        assert row.gold is not None
        return verifiers.check_math(row.gold, response, extract=extract)
    if row.task == "instructions":
        return verifiers.check_instructions(
            row.instruction_ids, row.kwargs, response, prompt=row.prompt, suite=row.suite
        )
    joint = verifiers.check_joint(row, response)
    parts = (joint.correct.passed, *joint.followed.parts)
    return Verdict(
        joint.joint, parts, sum(parts) / len(parts), "correct" if joint.joint else "wrong", joint.correct.detail
    )

"""What a verifier answers."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["correct", "wrong", "no_answer", "truncated", "timeout", "error"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of checking one response.

    Attributes:
      passed: every part holds; the default reward is 1.0 when true, else 0.0.
      parts: one entry a constraint, in input order; a math check has one part.
      fraction: share of parts that hold, in [0, 1].
      status: `timeout` and `error` mean that there is no verdict: such samples are
        left out of pass counts, never counted as wrong.
      detail: short text for a reader, such as the extracted answer.
    """

    passed: bool
    parts: tuple[bool, ...]
    fraction: float
    status: Status
    detail: str = ""


@dataclass(frozen=True)
class JointVerdict:
    """Answer correctness C, instruction compliance F and their conjunction J."""

    correct: Verdict
    followed: Verdict

    @property
    def joint(self) -> bool:
        """J = C and F, on the same response."""
        return self.correct.passed and self.followed.passed

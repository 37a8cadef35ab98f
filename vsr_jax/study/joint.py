"""Joint behaviour: correct answers, followed instructions, and whether the two come together.

C is the share of responses with a correct answer, F of those that follow every instruction (strictly, in the
benchmark's own scope), J of those that do both. Were the two independent, J would be C F; the gap J - C F is made of

* a part within prompts: the mean over prompts of J_p - C_p F_p, negative where writing to the instruction costs the
  answer, and
* a part between prompts: the covariance of C_p and F_p over prompts, negative where the prompts that are solved are
  not those whose instructions are followed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vsr_jax import support
from vsr_jax.data.rows import Row

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval from resampling prompts."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Joint:
    """One policy on one benchmark.

    Attributes:
      prompts, responses: compared; without: responses without a verdict, left out.
      correct, followed, joint: C, F and J; gap: J - C F; within, between: its two parts.
      any_joint: share of prompts that have a response which does both.
    """

    prompts: int
    responses: int
    without: int
    correct: Interval
    followed: Interval
    joint: Interval
    gap: Interval
    within: Interval
    between: Interval
    any_joint: Interval


@dataclass(frozen=True)
class KindGap:
    """How one kind of constraint goes with correct answers, over the prompts that carry it.

    Attributes:
      kind: instruction id.
      prompts: that carry it.
      correct, followed: C and F of this constraint alone; gap: its J - C F.
      given_followed, given_broken: C among responses that follow it and that break it; NaN where there are none.
    """

    kind: str
    prompts: int
    correct: float
    followed: float
    gap: Interval
    given_followed: float
    given_broken: float


@dataclass(frozen=True)
class _Marks:
    """Responses with a verdict: prompt index int[M], answer correct bool[M], parts followed by response."""

    prompt: np.ndarray
    correct: np.ndarray
    parts: Sequence[Sequence[bool]]
    without: int


def _marks(table: pa.Table, rows: Sequence[Row]) -> _Marks:
    order = {row.id: i for i, row in enumerate(rows)}
    prompt, correct, parts, without = [], [], [], 0
    for item in table.select(["prompt_id", "parts", "passed"]).to_pylist():
        if item["passed"] is None:
            without += 1
            continue
        prompt.append(order[item["prompt_id"]])
        # The first part of a joint verdict is the answer; a cut response that may not pass has one false part only.
        correct.append(item["parts"][0])
        parts.append(item["parts"][1:])
    return _Marks(np.array(prompt, int), np.array(correct, bool), parts, without)


def _per_prompt(marks: _Marks, held: np.ndarray, followed: np.ndarray) -> Floats:
    """float64[prompts that have responses, 4]: C_p, F_p, J_p and C_p F_p, over the held responses."""
    prompt = marks.prompt[held]
    count = np.bincount(prompt)
    columns = [
        np.bincount(prompt, marks_.astype(float), minlength=len(count))
        for marks_ in (marks.correct[held], followed[held], (marks.correct & followed)[held])
    ]
    shares = np.stack(columns, axis=1)[count > 0] / count[count > 0, None]
    return np.column_stack([shares, shares[:, 0] * shares[:, 1]])


def joint_per_prompt(table: pa.Table, rows: Sequence[Row]) -> Floats:
    """float64[prompts, 4]: C, F, J and C F of each prompt in the order of `rows`; NaN where it has no verdict."""
    marks = _marks(table, rows)
    followed = np.array([bool(parts) and all(parts) for parts in marks.parts], bool)
    out = np.full((len(rows), 4), np.nan)
    out[np.unique(marks.prompt)] = _per_prompt(marks, np.ones(len(followed), bool), followed)
    return out


def joint_support(table: pa.Table, rows: Sequence[Row]) -> Joint:
    """C, F, J and the gap, each with an interval; means weigh prompts equally.

    Args:
      table: rollouts of joint rows, whose verdict parts are the answer and then every instruction.
      rows: the prompts.

    Raises:
      ValueError: no response has a verdict.
    """
    marks = _marks(table, rows)
    followed = np.array([bool(parts) and all(parts) for parts in marks.parts], bool)
    held = np.ones(len(followed), bool)
    shares = _per_prompt(marks, held, followed)
    some = np.column_stack([shares, shares[:, 2] > 0])

    def of(function) -> Interval:
        return Interval(*support.bootstrap_function(some, function))

    return Joint(
        prompts=len(shares),
        responses=len(followed),
        without=marks.without,
        correct=of(lambda m: m[:, 0]),
        followed=of(lambda m: m[:, 1]),
        joint=of(lambda m: m[:, 2]),
        gap=of(lambda m: m[:, 2] - m[:, 0] * m[:, 1]),
        within=of(lambda m: m[:, 2] - m[:, 3]),
        between=of(lambda m: m[:, 3] - m[:, 0] * m[:, 1]),
        any_joint=of(lambda m: m[:, 4]),
    )


def gaps_by_kind(table: pa.Table, rows: Sequence[Row]) -> list[KindGap]:
    """The gap of each kind of constraint, the most negative first."""
    marks = _marks(table, rows)
    kinds = sorted({kind for row in rows for kind in row.instruction_ids})
    out = []
    for kind in kinds:
        carries = [rows[p].instruction_ids for p in marks.prompt]
        # A response whose constraints were not looked at says nothing about this one.
        held = np.array([kind in ids and len(ids) == len(p) for ids, p in zip(carries, marks.parts, strict=True)], bool)
        if not held.any():
            continue
        followed = np.array(
            [_kept(*item) for item in zip(held, [kind] * len(held), carries, marks.parts, strict=True)], bool
        )
        shares = _per_prompt(marks, held, followed)
        gap = support.bootstrap_function(shares, lambda m: m[:, 2] - m[:, 0] * m[:, 1])
        inside = marks.correct[held & followed], marks.correct[held & ~followed]
        given = [float(x.mean()) if len(x) else float("nan") for x in inside]
        correct, kept = shares[:, :2].mean(axis=0).tolist()
        out.append(KindGap(kind, len(shares), correct, kept, Interval(*gap), *given))
    return sorted(out, key=lambda k: k.gap.value)


def _kept(held: bool, kind: str, ids: Sequence[str], parts: Sequence[bool]) -> bool:
    return bool(held) and all(part for name, part in zip(ids, parts, strict=True) if name == kind)

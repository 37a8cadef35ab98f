"""Pass-count buckets of prompts, and how prompts move between two policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vsr_jax.support.passes import Missing, as_passes, settle_missing

Bucket = Literal["all_wrong", "mixed", "all_correct", "incomplete"]
BUCKETS: tuple[Bucket, ...] = ("all_wrong", "mixed", "all_correct")
"""The rows and columns of a transition matrix, in order."""


@dataclass(frozen=True)
class Buckets:
    """Each prompt's bucket.

    Attributes:
      names: the prompts' names.
      labels: the bucket of each, `incomplete` where a verdict is lacking and no policy was chosen to count it.
    """

    names: tuple[str, ...]
    labels: tuple[Bucket, ...]

    @property
    def counts(self) -> dict[Bucket, int]:
        """Prompts in each bucket, `incomplete` among them."""
        return {bucket: self.labels.count(bucket) for bucket in (*BUCKETS, "incomplete")}

    @property
    def shares(self) -> dict[Bucket, float]:
        """Share of all prompts in each bucket; with `incomplete` they add up to 1."""
        return {bucket: count / len(self.labels) for bucket, count in self.counts.items()}

    def members(self, bucket: Bucket) -> tuple[str, ...]:
        """Names of the prompts in a bucket."""
        return tuple(name for name, label in zip(self.names, self.labels, strict=True) if label == bucket)

    @property
    def incomplete(self) -> tuple[str, ...]:
        """Names of the prompts that no claim about all samples can be made for."""
        return self.members("incomplete")


def pass_buckets(
    passes: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    asked: int | None = None,
    missing: Literal["incomplete", "omit", "wrong", "correct"] = "incomplete",
) -> Buckets:
    """Sorts prompts into all_wrong, mixed and all_correct.

    All-wrong and all-correct are claims about every sample asked for, so a prompt that lacks a verdict is
    `incomplete` unless a policy is named.

    Args:
      passes: [prompts, n], NaN where a sample has no verdict.
      names: of the prompts; defaults to "0", "1", ...
      asked: samples asked for; columns short of it count as samples without a verdict.
      missing: `incomplete` labels such prompts so; `omit` judges a prompt by the verdicts it has (still `incomplete`
        when it has none); `wrong` and `correct` count the lacking samples as such.

    Raises:
      ValueError: malformed passes, more columns than asked, names that do not fit, or an unknown policy.
    """
    matrix = as_passes(passes)
    prompts, columns = matrix.shape
    labels = tuple(names) if names is not None else tuple(str(i) for i in range(prompts))
    if len(labels) != prompts or len(set(labels)) != prompts:
        raise ValueError(f"names must be {prompts} different names, one a prompt; got {len(labels)}")
    if asked is not None:
        if columns > asked:
            raise ValueError(f"passes hold {columns} samples a prompt but only {asked} were asked")
        matrix = np.pad(matrix, ((0, 0), (0, asked - columns)), constant_values=np.nan)
    if missing != "incomplete":
        policy: Missing = missing
        matrix = settle_missing(matrix, policy)
    return Buckets(labels, tuple(_label(row, strict=missing == "incomplete") for row in matrix))


def _label(row: NDArray[np.float64], strict: bool) -> Bucket:
    verdicts = row[~np.isnan(row)]
    if len(verdicts) == 0 or (strict and len(verdicts) < len(row)):
        return "incomplete"
    if verdicts.all():
        return "all_correct"
    return "mixed" if verdicts.any() else "all_wrong"


@dataclass(frozen=True)
class Transition:
    """How prompts move between two policies.

    Attributes:
      matrix: int64[3, 3]; entry [i, j] counts prompts in `BUCKETS[i]` before and `BUCKETS[j]` after.
      cells: names of the prompts behind each entry, by (before, after).
      gained: prompts with no passing sample before and at least one after.
      lost: prompts with at least one passing sample before and none after.
      left_out: prompts that are incomplete on either side; they are in no entry.
    """

    matrix: NDArray[np.int64]
    cells: Mapping[tuple[Bucket, Bucket], tuple[str, ...]]
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    left_out: tuple[str, ...]


def transition(before: Buckets | ArrayLike, after: Buckets | ArrayLike) -> Transition:
    """Compares the buckets of the same prompts under two policies.

    Args:
      before, after: `Buckets`, or passes [prompts, n] in the same prompt order.

    Raises:
      ValueError: the two sides do not hold the same prompts in the same order.
    """
    first = before if isinstance(before, Buckets) else pass_buckets(before)
    second = after if isinstance(after, Buckets) else pass_buckets(after)
    if first.names != second.names:
        raise ValueError(
            f"both policies must be measured on the same prompts in the same order; got {len(first.names)} and "
            f"{len(second.names)} prompts, {len(set(first.names) ^ set(second.names))} of them on one side only"
        )
    pairs = list(zip(first.names, first.labels, second.labels, strict=True))
    cells: dict[tuple[Bucket, Bucket], tuple[str, ...]] = {
        (row, column): tuple(name for name, old, new in pairs if (old, new) == (row, column))
        for row in BUCKETS
        for column in BUCKETS
    }
    matrix = np.array([[len(cells[row, column]) for column in BUCKETS] for row in BUCKETS], dtype=np.int64)
    return Transition(
        matrix=matrix,
        cells=cells,
        gained=tuple(name for name, old, new in pairs if old == "all_wrong" and new in ("mixed", "all_correct")),
        lost=tuple(name for name, old, new in pairs if old in ("mixed", "all_correct") and new == "all_wrong"),
        left_out=tuple(name for name, old, new in pairs if "incomplete" in (old, new)),
    )


def transition_matrix(before: Buckets | ArrayLike, after: Buckets | ArrayLike) -> NDArray[np.int64]:
    """The matrix of `transition`: int64[3, 3], rows before, columns after, in the order of `BUCKETS`."""
    return transition(before, after).matrix


def pass_count_distribution(passes: ArrayLike) -> NDArray[np.int64]:
    """Prompts by number of passing samples, int64[n + 1].

    Raises:
      ValueError: malformed passes, or a sample without a verdict (a count out of n would not be one).
    """
    matrix = settle_missing(passes, "error")
    return np.bincount(matrix.sum(axis=1).astype(np.int64), minlength=matrix.shape[1] + 1)


def pass_count_entropy(passes: ArrayLike) -> float:
    """Entropy of the pass-count distribution in nats: 0 when all prompts agree, at most ln(n + 1)."""
    shares = pass_count_distribution(passes) / len(as_passes(passes))
    positive = shares[shares > 0]
    return float((positive * np.log(1 / positive)).sum())

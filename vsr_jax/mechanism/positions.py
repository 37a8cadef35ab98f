"""Where along a response policies differ: position groups, the first token over the interior, the largest tenth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vsr_jax.mechanism.localize import TokenTable
from vsr_jax.mechanism.statistics import PairStatistics
from vsr_jax.support import bootstrap_function

TAIL = 0.05
"""Share of a response's tokens that count as its end."""

HIGH_SHARE = 0.1
"""Share of positions that count as high-JS."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class PositionGroup:
    """Response positions, counted from 1.

    Attributes:
      name: for tables and figures.
      first, last: the range, both included; without a last one it is open.
      end: whether positions of the last 5 % of a response belong to it: `any` does not ask, `outside` leaves them out,
        `inside` takes them alone.
    """

    name: str
    first: int
    last: int | None
    end: Literal["any", "outside", "inside"] = "any"

    def members(self, position: np.ndarray, length: np.ndarray) -> Mask:
        """bool[T] from positions and response lengths int[T]."""
        held = position >= self.first
        if self.last is not None:
            held &= position <= self.last
        in_end = position > length - np.maximum(1, np.ceil(TAIL * length))
        return held if self.end == "any" else held & (in_end if self.end == "inside" else ~in_end)


POSITION_GROUPS: Mapping[str, tuple[PositionGroup, ...]] = {
    "recipe": (
        PositionGroup("1", 1, 1),
        PositionGroup("2-4", 2, 4),
        PositionGroup("5-16", 5, 16),
        PositionGroup("17-63", 17, 63),
        PositionGroup("interior > 63", 64, None, "outside"),
        PositionGroup("last 5 %", 2, None, "inside"),
    ),
    # Micro responses have 48 tokens at most, so that no position lies beyond 63: their interior begins after 8.
    "micro": (
        PositionGroup("1", 1, 1),
        PositionGroup("2-4", 2, 4),
        PositionGroup("5-8", 5, 8),
        PositionGroup("interior > 8", 9, None, "outside"),
        PositionGroup("last 5 %", 2, None, "inside"),
    ),
}
"""Position groups by name. The first group is the first token, the one that begins with `interior` the interior."""


def group_means(
    table: TokenTable, values: np.ndarray, owner: np.ndarray, groups: tuple[PositionGroup, ...]
) -> NDArray[np.float64]:
    """Means of a statistic by prompt and group, over all tokens of all the prompt's responses.

    Args:
      table: gives each token's place.
      values: float[T].
      owner: int[N], the prompt (0..P-1) of each response.
      groups: as above.

    Returns:
      float64[P, groups]; NaN where a prompt has no token in the group.
    """
    prompt = owner[table.response]
    out = np.full((int(owner.max()) + 1, len(groups)), np.nan)
    for column, group in enumerate(groups):
        held = group.members(table.position, table.length)
        count = np.bincount(prompt[held], minlength=len(out))
        total = np.bincount(prompt[held], values[held].astype(np.float64), minlength=len(out))
        out[:, column] = np.divide(total, count, out=np.full(len(out), np.nan), where=count > 0)
    return out


@dataclass(frozen=True)
class Ratio:
    """First token over interior, with its 95 % interval from resampling prompts.

    Attributes:
      value, low, high: of the ratio of means over prompts; NaN where no prompt has both.
      first, interior: the two means over those prompts: a large ratio of tiny numbers says little.
      prompts, left_out: prompts with an interior, and without one.
    """

    value: float
    low: float
    high: float
    first: float
    interior: float
    prompts: int
    left_out: int


def first_over_interior(means: NDArray[np.float64], groups: tuple[PositionGroup, ...], *, draws: int = 10_000) -> Ratio:
    """The ratio from `group_means`."""
    column = next(i for i, group in enumerate(groups) if group.name.startswith("interior"))
    both = means[:, [0, column]]
    held = both[np.isfinite(both).all(axis=1)]
    left_out = len(both) - len(held)
    if not len(held):
        return Ratio(*[float("nan")] * 5, prompts=0, left_out=left_out)
    ratio: Callable[[np.ndarray], np.ndarray] = lambda m: np.divide(m[:, 0], m[:, 1])  # noqa: E731
    with np.errstate(divide="ignore", invalid="ignore"):
        value, low, high = bootstrap_function(held, ratio, draws=draws)
    return Ratio(value, low, high, *held.mean(axis=0).tolist(), prompts=len(held), left_out=left_out)


def high_js(js: np.ndarray, share: float = HIGH_SHARE) -> Mask:
    """bool[T]: the `share` of positions with the highest divergence, at least one; ties go to the earlier."""
    count = max(1, int(np.ceil(share * len(js))))
    out = np.zeros(len(js), bool)
    out[np.argsort(-js, kind="stable")[:count]] = True
    return out


@dataclass(frozen=True)
class HighPositions:
    """What the high-JS positions have in common.

    Attributes:
      count: positions; threshold: smallest JS among them; mass: share of all JS that lies on them.
      overlap: mean number of common tokens in the two top tens.
      in_top3: share where q's first choice is among p's three likeliest; swapped: where the first choices differ.
      where: share of them in each position group.
      lift: that share over the group's share of all positions.
    """

    count: int
    threshold: float
    mass: float
    overlap: float
    in_top3: float
    swapped: float
    where: Mapping[str, float]
    lift: Mapping[str, float]


def describe_high(table: TokenTable, statistics: PairStatistics, groups: tuple[PositionGroup, ...]) -> HighPositions:
    """Sums the high-JS positions of one pair up."""
    js = np.asarray(statistics.js)
    held = high_js(js)
    inside = {group.name: group.members(table.position, table.length) for group in groups}
    where = {name: float(members[held].mean()) for name, members in inside.items()}
    total = float(js.sum())
    return HighPositions(
        count=int(held.sum()),
        threshold=float(js[held].min()),
        mass=float(js[held].sum()) / total if total else float("nan"),
        overlap=float(np.asarray(statistics.overlap)[held].mean()),
        in_top3=float((np.asarray(statistics.rank)[held] <= 3).mean()),
        swapped=float((np.asarray(statistics.first_p) != np.asarray(statistics.first_q))[held].mean()),
        where=where,
        lift={name: where[name] / float(m.mean()) if m.any() else float("nan") for name, m in inside.items()},
    )

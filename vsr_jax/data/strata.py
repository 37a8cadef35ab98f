"""A subset of a benchmark that keeps its make-up."""

from collections.abc import Sequence

import numpy as np

from vsr_jax.data.rows import Row


def stratum(row: Row) -> str:
    """What a row is alike in: the level of a math problem where it has one, and the number of instructions."""
    return f"{row.task} {row.source.get('level', '')} {len(row.instruction_ids)}"


def stratified(rows: Sequence[Row], count: int, seed: int = 1234) -> list[Row]:
    """`count` rows in their order, each stratum with its share of the whole (largest remainders first).

    The same seed takes the same rows; all rows where there are no more than `count`.
    """
    if count >= len(rows):
        return list(rows)
    strata: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        strata.setdefault(stratum(row), []).append(i)
    names = sorted(strata)
    share = np.array([len(strata[name]) * count / len(rows) for name in names])
    taken = np.floor(share).astype(int)
    taken[np.argsort(taken - share, kind="stable")[: count - taken.sum()]] += 1
    draw = np.random.default_rng(seed)
    kept = [i for name, n in zip(names, taken, strict=True) for i in draw.permutation(strata[name])[:n].tolist()]
    return [rows[i] for i in sorted(kept)]

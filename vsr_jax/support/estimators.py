"""mean@k, best@k in its three meanings, and intervals from resampling prompts.

`passes[prompts, n]` is bool, or float with NaN where a sample has no verdict. Functions that end in `_per_prompt`
return one value a prompt; the others average over prompts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vsr_jax.support.passes import Missing, settle_missing

Estimator = Literal["unbiased", "exact", "with_replacement"]
Floats = NDArray[np.float64]

_BOOTSTRAP_BLOCK = 1000  # resamples held at once: bounds memory, changes no result


def mean_per_prompt(passes: ArrayLike, *, missing: Missing = "error") -> Floats:
    """Share of a prompt's samples that passed, float64[prompts].

    Args:
      passes: [prompts, n].
      missing: policy for samples without a verdict (`settle_missing`). Under `omit` the share is over the samples
        that have one, and NaN for a prompt that has none.

    Raises:
      ValueError: malformed passes, or samples without a verdict under `error`.
    """
    matrix = settle_missing(passes, missing)
    verdicts = (~np.isnan(matrix)).sum(axis=1)
    return np.divide(np.nansum(matrix, axis=1), verdicts, out=np.full(len(matrix), np.nan), where=verdicts > 0)


def best_at_k_per_prompt(
    passes: ArrayLike, k: int, estimator: Estimator = "unbiased", *, missing: Missing = "error"
) -> Floats:
    """Chance that at least one of k samples of a prompt passes, float64[prompts].

    With c of n samples passed:
      * `unbiased`: 1 - C(n-c, k) / C(n, k), the mean over all subsets of k samples (Chen et al. 2021).
      * `exact`: 1 if any of the first k samples passed, else 0. Equal to `unbiased` at k = n.
      * `with_replacement`: 1 - (1 - c/n)^k, the mean of a bootstrap over samples. Biased low: one pass in 32 scores
        0.638 at k = 32 where both others say 1. Offered because published tools report it.

    Args:
      passes: [prompts, n].
      k: 1 <= k <= n.
      estimator: one of the three names.
      missing: policy for samples without a verdict (`settle_missing`). Under `omit` n is the prompt's number of
        verdicts, and a prompt with fewer than k of them has NaN.

    Raises:
      ValueError: malformed passes, k outside 1..n, an unknown estimator, or missing verdicts under `error`.
    """
    return best_at_k_curve_per_prompt(passes, [k], estimator, missing=missing)[:, 0]


def best_at_k_curve_per_prompt(
    passes: ArrayLike,
    ks: ArrayLike | None = None,
    estimator: Estimator = "unbiased",
    *,
    missing: Missing = "error",
) -> Floats:
    """`best_at_k_per_prompt` at every budget: float64[prompts, len(ks)]; `ks` defaults to 1..n."""
    if estimator not in ("unbiased", "exact", "with_replacement"):
        raise ValueError(f"estimator must be 'unbiased', 'exact' or 'with_replacement', got {estimator!r}")
    matrix = settle_missing(passes, missing)
    budgets = _check_budgets(ks, matrix.shape[1])
    result = np.full((len(matrix), len(budgets)), np.nan)
    verdicts = (~np.isnan(matrix)).sum(axis=1)
    for n in np.unique(verdicts[verdicts > 0]):
        rows = np.flatnonzero(verdicts == n)
        group = matrix[rows]
        group = group[~np.isnan(group)].reshape(len(rows), n).astype(bool)
        inside = budgets <= n
        result[np.ix_(rows, inside)] = _curve(group, budgets[inside], estimator)
    return result


def mean_at_k(passes: ArrayLike, *, missing: Missing = "error") -> float:
    """Mean over prompts of the share of samples that passed; a prompt without any verdict is left out under `omit`."""
    return float(_mean_over_prompts(mean_per_prompt(passes, missing=missing)))


def best_at_k(passes: ArrayLike, k: int, estimator: Estimator = "unbiased", *, missing: Missing = "error") -> float:
    """Mean over prompts of `best_at_k_per_prompt`; under `omit` prompts with fewer than k verdicts are left out."""
    return float(_mean_over_prompts(best_at_k_per_prompt(passes, k, estimator, missing=missing)))


def best_at_k_curve(
    passes: ArrayLike,
    ks: ArrayLike | None = None,
    estimator: Estimator = "unbiased",
    *,
    missing: Missing = "error",
) -> Floats:
    """`best_at_k` at every budget: float64[len(ks)]; `ks` defaults to 1..n."""
    return _mean_over_prompts(best_at_k_curve_per_prompt(passes, ks, estimator, missing=missing))


def bootstrap_interval(
    values: ArrayLike, *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> tuple[Floats, Floats]:
    """Percentile interval of the mean over prompts, by resampling prompts.

    Args:
      values: float[prompts] or float[prompts, m], one row a prompt; no NaN.
      level: probability that the interval holds.
      draws: number of resamples.
      seed: of this call's own generator; the same seed gives the same interval.

    Returns:
      `(low, high)`, each of shape () or [m].

    Raises:
      ValueError: empty or non-finite values, more than two axes, a level outside (0, 1), or no draws.
    """
    table = _check_values(values)
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    means = _resampled_means(table, draws, seed)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low, high


@dataclass(frozen=True)
class PairedDifference:
    """Mean change between two policies on the same prompts, with its percentile interval; shapes () or [m]."""

    difference: Floats
    low: Floats
    high: Floats


def paired_bootstrap(
    before: ArrayLike, after: ArrayLike, *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> PairedDifference:
    """Mean of `after - before` over prompts; both policies are resampled with the same prompts.

    Args:
      before, after: float[prompts] or float[prompts, m]; row i of both is the same prompt.
      level, draws, seed: as in `bootstrap_interval`.

    Raises:
      ValueError: shapes differ, or as in `bootstrap_interval`.
    """
    first, second = _check_values(before), _check_values(after)
    if first.shape != second.shape:
        raise ValueError(f"before and after must have the same shape, got {first.shape} and {second.shape}")
    change = second - first
    low, high = bootstrap_interval(change, level=level, draws=draws, seed=seed)
    return PairedDifference(change.mean(axis=0), low, high)


def bootstrap_function(
    values: ArrayLike, function: Callable[[Floats], Floats], *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
    """A function of column means, such as a ratio of two, with its percentile interval from resampling prompts.

    Args:
      values: float[prompts, m], one row a prompt; no NaN.
      function: maps means float[draws, m] to float[draws].
      level, draws, seed: as in `bootstrap_interval`.

    Returns:
      `(value, low, high)`; the value is the function of the means over all prompts.

    Raises:
      ValueError: as in `bootstrap_interval`.
    """
    table = _check_values(values)
    if table.ndim != 2:
        raise ValueError(f"values must be [prompts, m], got shape {table.shape}")
    tail = (1 - level) / 2
    drawn = function(_resampled_means(table, draws, seed))
    # Order statistics: a ratio may be infinite in some resamples.
    low, high = np.quantile(drawn, [tail, 1 - tail], method="inverted_cdf")
    return float(function(table.mean(axis=0, keepdims=True))[0]), float(low), float(high)


def _curve(passed: NDArray[np.bool_], budgets: NDArray[np.int64], estimator: Estimator) -> Floats:
    """best@k of complete rows, bool[rows, n] -> float64[rows, len(budgets)]."""
    n = passed.shape[1]
    correct = passed.sum(axis=1)
    if estimator == "exact":
        return np.maximum.accumulate(passed, axis=1)[:, budgets - 1].astype(np.float64)
    if estimator == "with_replacement":
        return 1 - (1 - correct[:, None] / n) ** budgets
    # Integer binomials divided once: exact to the last bit, for any n.
    table = np.array([[1 - comb(n - c, int(k)) / comb(n, int(k)) for k in budgets] for c in range(n + 1)])
    return table.reshape(n + 1, len(budgets))[correct]


def _check_budgets(ks: ArrayLike | None, samples: int) -> NDArray[np.int64]:
    budgets = np.arange(1, samples + 1) if ks is None else np.asarray(ks)
    if budgets.ndim != 1 or len(budgets) == 0 or not np.issubdtype(budgets.dtype, np.integer):
        raise ValueError(f"k must be a whole number, or a list of them, got {ks!r}")
    if budgets.min() < 1 or budgets.max() > samples:
        raise ValueError(f"k must lie in 1..{samples}, the number of samples a prompt; got {ks!r}")
    return budgets.astype(np.int64)


def _mean_over_prompts(values: Floats) -> Floats:
    counted = ~np.isnan(values)
    if not counted.any(axis=0).all():
        raise ValueError("no prompt has enough verdicts for this budget; ask for a smaller k")
    return np.nansum(values, axis=0) / counted.sum(axis=0)


def _check_values(values: ArrayLike) -> Floats:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim not in (1, 2) or table.size == 0:
        raise ValueError(f"values must be [prompts] or [prompts, m] and not empty, got shape {table.shape}")
    if not np.isfinite(table).all():
        raise ValueError("values must be finite; leave prompts without a value out, on both sides of a pair")
    return table


def _resampled_means(table: Floats, draws: int, seed: int) -> Floats:
    """Means over resampled prompts, [draws] or [draws, m]; a resample is a row of multinomial counts."""
    generator = np.random.default_rng(seed)
    prompts = len(table)
    blocks = []
    for start in range(0, draws, _BOOTSTRAP_BLOCK):
        size = min(_BOOTSTRAP_BLOCK, draws - start)
        counts = generator.multinomial(prompts, np.full(prompts, 1 / prompts), size=size)
        blocks.append(counts @ table / prompts)
    return np.concatenate(blocks)

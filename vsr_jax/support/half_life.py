"""How much budget a first success takes, read far beyond the samples taken.

The chances of prompts follow the beta-binomial model of `beta_binomial.py`. The coverage expected at a budget k is

    E[1 - (1 - p)^k] = 1 - B(alpha, beta + k) / B(alpha, beta),

and the support half-life is the k at which it passes one half. The model lets no prompt be impossible: its coverage
always tends to 1, however slowly, so a half-life far beyond n is an extrapolation. `hold_out_check` says how well the
first half of the samples predicts the second.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, expm1, inf, log

import numpy as np
from numpy.typing import ArrayLike

from vsr_jax.support.beta_binomial import BetaBinomial, Counts, Floats, fit_counts
from vsr_jax.support.passes import as_passes

FARTHEST_BUDGET = 1e12
"""Half-lives beyond this many samples are reported as infinite."""


def fit_beta_binomial(passes: ArrayLike) -> BetaBinomial:
    """Fits the model by maximum likelihood.

    Args:
      passes: [prompts, n]; a sample without a verdict (NaN) is left out, its prompt keeps the others.

    Raises:
      ValueError: malformed passes, or no verdict at all.
    """
    return fit_counts(*_counts(passes))


def expected_coverage(fit: BetaBinomial, ks: ArrayLike, *, successes: int = 0, failures: int = 0) -> Floats:
    """Chance of at least one success in k further samples, float64[len(ks)].

    Args:
      fit: of the policy.
      ks: budgets, real numbers >= 0, however large.
      successes, failures: what the prompt has shown already; both 0 for a prompt not yet sampled.

    Raises:
      ValueError: a negative budget or count, or budgets that are no list.
    """
    budgets = np.asarray(ks, dtype=np.float64)
    if budgets.ndim != 1 or (budgets < 0).any() or successes < 0 or failures < 0:
        raise ValueError("budgets must be a list of numbers >= 0, and counts must not be negative")
    return np.array([-expm1(fit.log_miss(k, successes=successes, failures=failures)) for k in budgets])


def half_life(fit: BetaBinomial, *, successes: int = 0, failures: int = 0) -> float:
    """Budget k >= 1 at which the chance of a first success passes one half.

    Args:
      fit: of the policy.
      successes, failures: what the prompt has shown already; both 0 gives the half-life of a new prompt, which stands
        for the policy.

    Returns:
      A real number (its ceiling is a budget in whole samples); infinite beyond `FARTHEST_BUDGET`.
    """

    def unlikely(k: float) -> bool:
        return fit.log_miss(k, successes=successes, failures=failures) > log(0.5)

    if not unlikely(1.0):
        return 1.0
    if unlikely(FARTHEST_BUDGET):
        return inf
    low, high = 0.0, log(FARTHEST_BUDGET)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if unlikely(exp(middle)) else (low, middle)
    return exp(high)


def prompt_half_lives(fit: BetaBinomial, passes: ArrayLike) -> Floats:
    """`half_life` of each prompt given its own passes, float64[prompts]."""
    correct, wrong = _counts(passes)
    pairs, where = np.unique(np.stack([correct, wrong], axis=1), axis=0, return_inverse=True)
    values = np.array([half_life(fit, successes=int(c), failures=int(w)) for c, w in pairs])
    return values[where.reshape(-1)]


@dataclass(frozen=True)
class HalfLives:
    """Half-lives with percentile intervals.

    Attributes:
      policy: of a new prompt; `policy_low` and `policy_high` come from resampling prompts and fitting again.
      prompts: float64[prompts], of each prompt given its passes; `prompts_low` and `prompts_high` also carry what n
        samples leave unknown about the prompt's own chance.
    """

    policy: float
    policy_low: float
    policy_high: float
    prompts: Floats
    prompts_low: Floats
    prompts_high: Floats


def bootstrap_half_life(passes: ArrayLike, *, level: float = 0.95, draws: int = 500, seed: int = 0) -> HalfLives:
    """Half-lives of a policy and of each prompt, with intervals.

    Args:
      passes: [prompts, n], NaN where a sample has no verdict.
      level: probability that an interval holds.
      draws: resamples of prompts, each fitted anew.
      seed: of this call's own generator.

    Raises:
      ValueError: malformed passes, a level outside (0, 1), or no draws.
    """
    tails = _tails(level, draws)
    correct, wrong = _counts(passes)
    fit = fit_counts(correct, wrong)
    generator = np.random.default_rng(seed)
    policy = np.empty(draws)
    prompts = np.empty((draws, len(correct)))
    for draw, refit in enumerate(_resampled_fits(correct, wrong, draws, generator)):
        policy[draw] = half_life(refit)
        chance = _draw_chances(refit, correct, wrong, generator)
        with np.errstate(divide="ignore", over="ignore"):
            prompts[draw] = np.maximum(1.0, log(0.5) / np.log1p(-chance))
    # Order statistics: between a finite and an infinite half-life there is no number to interpolate to.
    low, high = np.quantile(policy, tails, method="inverted_cdf")
    prompts_low, prompts_high = np.quantile(prompts, tails, axis=0, method="inverted_cdf")
    return HalfLives(half_life(fit), float(low), float(high), prompt_half_lives(fit, passes), prompts_low, prompts_high)


def coverage_interval(
    passes: ArrayLike, ks: ArrayLike, *, level: float = 0.95, draws: int = 500, seed: int = 0
) -> tuple[Floats, Floats]:
    """Percentile interval of `expected_coverage` at each budget, by resampling prompts; two float64[len(ks)].

    Raises:
      ValueError: as in `bootstrap_half_life` and `expected_coverage`.
    """
    tails = _tails(level, draws)
    correct, wrong = _counts(passes)
    fits = _resampled_fits(correct, wrong, draws, np.random.default_rng(seed))
    low, high = np.quantile([expected_coverage(fit, ks) for fit in fits], tails, axis=0)
    return low, high


@dataclass(frozen=True)
class HoldOut:
    """The second half of the samples, as predicted from the first and as it came out.

    Attributes:
      trained_on, tested_on: samples a prompt in each half.
      predicted, observed: share of prompts with a success in the second half.
      standard_error: of `observed` around `predicted` if the fit were the truth.
      unsolved: prompts without a success in the first half.
      predicted_new, observed_new: how many of these have one in the second; `standard_error_new` likewise.
    """

    trained_on: int
    tested_on: int
    predicted: float
    observed: float
    standard_error: float
    unsolved: int
    predicted_new: float
    observed_new: int
    standard_error_new: float


def hold_out_check(passes: ArrayLike) -> HoldOut:
    """Fits the first half of every prompt's samples and predicts the second.

    Args:
      passes: [prompts, n], n >= 2, without NaN: a prediction has to know what it is compared with.

    Raises:
      ValueError: malformed passes, one sample a prompt, or a sample without a verdict.
    """
    matrix = as_passes(passes)
    if np.isnan(matrix).any():
        raise ValueError("the hold-out check needs a verdict for every sample; leave incomplete prompts out")
    half = matrix.shape[1] // 2
    if half == 0:
        raise ValueError("the hold-out check needs at least two samples a prompt")
    correct, wrong = _counts(matrix[:, :half])
    rest = matrix.shape[1] - half
    fit = fit_counts(correct, wrong)
    chance = np.array(
        [expected_coverage(fit, [rest], successes=c, failures=w)[0] for c, w in zip(correct, wrong, strict=True)]
    )
    variance = chance * (1 - chance)
    solved = matrix[:, half:].max(axis=1)
    unsolved = np.flatnonzero(correct == 0)
    return HoldOut(
        trained_on=half,
        tested_on=rest,
        predicted=float(chance.mean()),
        observed=float(solved.mean()),
        standard_error=float(np.sqrt(variance.sum()) / len(matrix)),
        unsolved=len(unsolved),
        predicted_new=float(chance[unsolved].sum()),
        observed_new=int(solved[unsolved].sum()),
        standard_error_new=float(np.sqrt(variance[unsolved].sum())),
    )


def _counts(passes: ArrayLike) -> tuple[Counts, Counts]:
    """Correct and wrong samples of each prompt."""
    matrix = as_passes(passes)
    if np.isnan(matrix).all():
        raise ValueError("no sample has a verdict")
    return (matrix == 1).sum(axis=1), (matrix == 0).sum(axis=1)


def _tails(level: float, draws: int) -> list[float]:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    return [(1 - level) / 2, (1 + level) / 2]


def _resampled_fits(
    correct: Counts, wrong: Counts, draws: int, generator: np.random.Generator
) -> Iterator[BetaBinomial]:
    judged = np.flatnonzero(correct + wrong)
    for _ in range(draws):
        rows = generator.choice(judged, size=len(judged))
        yield fit_counts(correct[rows], wrong[rows])


def _draw_chances(fit: BetaBinomial, correct: Counts, wrong: Counts, generator: np.random.Generator) -> Floats:
    """One draw of each prompt's chance given its counts; at alpha = 0 or beta = 0 it is certain."""
    alpha, beta = fit.alpha + correct, fit.beta + wrong
    inner = (alpha > 0) & (beta > 0)
    drawn = generator.beta(np.where(inner, alpha, 1.0), np.where(inner, beta, 1.0))
    return np.where(inner, drawn, np.where(alpha > 0, 1.0, 0.0))

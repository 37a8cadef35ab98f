"""The beta-binomial model of pass counts, and its fit by maximum likelihood.

Each prompt has its own chance p of passing, drawn from Beta(alpha, beta) over prompts; its pass count is binomial.
"""

from dataclasses import dataclass
from math import inf, lgamma, log, log1p

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

# The search box. Beyond its ends the model is a limit: prompts that never vary, or prompts that are all alike.
_LOG_CONCENTRATION = (log(1e-4), log(1e6))
_LOGIT_MEAN = (-25.0, 25.0)


@dataclass(frozen=True)
class BetaBinomial:
    """A fitted model.

    Attributes:
      mean: alpha / (alpha + beta), the chance that one sample passes; 0 or 1 when no or every sample did.
      concentration: alpha + beta; small means that prompts are near 0 or 1, large that they are alike.
      log_likelihood: of the pass marks in nats.
      at_bound: the data do not determine the concentration: it lies on an end of the search (1e-4 or 1e6), or no or
        every sample passed.
    """

    mean: float
    concentration: float
    log_likelihood: float
    at_bound: bool

    @property
    def alpha(self) -> float:
        """First shape parameter."""
        return self.mean * self.concentration

    @property
    def beta(self) -> float:
        """Second shape parameter."""
        return (1 - self.mean) * self.concentration

    def log_miss(self, k: float, *, successes: int = 0, failures: int = 0) -> float:
        """ln of the chance that k further samples all fail, after the given successes and failures of the prompt.

        B(a, b + k) / B(a, b) with a = alpha + successes and b = beta + failures, for real k >= 0.
        """
        a, b = self.alpha + successes, self.beta + failures
        if k == 0 or a == 0:
            return 0.0
        if b == 0:
            return -inf
        return min(0.0, _log_gamma_step(b, a) - _log_gamma_step(b + k, a))


def fit_counts(correct: Counts, wrong: Counts) -> BetaBinomial:
    """Maximum-likelihood fit to the correct and wrong samples of each prompt, two int64[prompts]; some must be > 0."""
    if not correct.any() or not wrong.any():
        return BetaBinomial(float(correct.any()), 1.0, 0.0, at_bound=True)
    surface = _Likelihood.of(correct, wrong)
    share = correct.sum() / (correct.sum() + wrong.sum())
    # A coarse look across the box, then Newton from the best point: both ends of the surface are flat ridges.
    starts = [
        np.array([log(share / (1 - share)) + shift, v])
        for shift in (-2.0, 0.0, 2.0)
        for v in np.linspace(*_LOG_CONCENTRATION, 12)
    ]
    point = _climb(surface, max(starts, key=surface.value))
    at_bound = bool(np.isclose(point[1], _LOG_CONCENTRATION, atol=1e-3).any())
    return BetaBinomial(float(1 / (1 + np.exp(-point[0]))), float(np.exp(point[1])), surface.value(point), at_bound)


@dataclass(frozen=True)
class _Likelihood:
    """Log-likelihood over (u, v) = (logit of the mean, log of the concentration).

    A ratio of beta functions at whole counts is a product, so no gamma function is needed:
    ln L = sum_j successes[j] ln(a + j) + failures[j] ln(b + j) - trials[j] ln(a + b + j),
    where successes[j] is the number of prompts with more than j successes, and so on.
    """

    successes: Floats
    failures: Floats
    trials: Floats

    @classmethod
    def of(cls, correct: Counts, wrong: Counts) -> "_Likelihood":
        steps = np.arange((correct + wrong).max())
        tail = [
            (counts[:, None] > steps).sum(axis=0).astype(np.float64) for counts in (correct, wrong, correct + wrong)
        ]
        return cls(*tail)

    def value(self, point: Floats) -> float:
        a, b, _ = _shape(point)
        j = np.arange(len(self.trials))
        terms = self.successes * np.log(a + j) + self.failures * np.log(b + j) - self.trials * np.log(a + b + j)
        return float(terms.sum())

    def slopes(self, point: Floats) -> tuple[Floats, Floats]:
        """Gradient [2] and Hessian [2, 2] in (u, v)."""
        a, b, mean = _shape(point)
        j = np.arange(len(self.trials))
        total = self.trials / (a + b + j)
        slope_a = (self.successes / (a + j) - total).sum()
        slope_b = (self.failures / (b + j) - total).sum()
        bend = (total / (a + b + j)).sum()
        bend_a = bend - (self.successes / (a + j) ** 2).sum()
        bend_b = bend - (self.failures / (b + j) ** 2).sum()
        q = a * (1 - mean)
        to_a, to_b = np.array([q, a]), np.array([-q, b])
        curve_a = np.array([[q * (1 - 2 * mean), q], [q, a]])
        curve_b = np.array([[-q * (1 - 2 * mean), -q], [-q, b]])
        gradient = slope_a * to_a + slope_b * to_b
        cross = np.outer(to_a, to_b)
        hessian = bend_a * np.outer(to_a, to_a) + bend_b * np.outer(to_b, to_b) + bend * (cross + cross.T)
        return gradient, hessian + slope_a * curve_a + slope_b * curve_b


def _shape(point: Floats) -> tuple[float, float, float]:
    mean = 1 / (1 + np.exp(-point[0]))
    concentration = np.exp(point[1])
    return mean * concentration, concentration / (1 + np.exp(point[0])), mean


def _climb(surface: _Likelihood, point: Floats) -> Floats:
    """Damped Newton ascent inside the search box."""
    low, high = np.array([_LOGIT_MEAN, _LOG_CONCENTRATION]).T
    point = np.clip(point, low, high)
    value, damping = surface.value(point), 1e-3
    for _ in range(200):
        gradient, hessian = surface.slopes(point)
        pinned = ((point <= low) & (gradient < 0)) | ((point >= high) & (gradient > 0))
        gradient = np.where(pinned, 0.0, gradient)
        if np.abs(gradient).max() < 1e-9 * (1 + abs(value)):
            break
        hessian[pinned, :] = hessian[:, pinned] = 0.0
        bend, frame = np.linalg.eigh(hessian)
        while True:
            # Against |curvature|, so that the step goes uphill where the surface is not concave.
            step = frame @ ((frame.T @ gradient) / (np.abs(bend) + damping))
            trial = np.clip(point + step, low, high)
            gain = surface.value(trial) - value
            if gain > 0 or damping > 1e12:
                break
            damping *= 10
        if gain <= 0:
            break
        point, value, damping = trial, value + gain, max(damping / 10, 1e-12)
    return point


def _log_gamma_step(x: float, step: float) -> float:
    """ln Gamma(x + step) - ln Gamma(x), without the cancellation of a plain difference at large x."""
    if x < 1000:
        return lgamma(x + step) - lgamma(x)
    # Stirling's series; the next term of the difference is below 3e-12 here.
    far = x + step
    return (x - 0.5) * log1p(step / x) + step * (log(far) - 1) + (1 / far - 1 / x) / 12

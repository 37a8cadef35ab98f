"""The beta-binomial fit, its extrapolation, and the half-life."""

from math import comb, exp, inf, lgamma, log, log1p

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vsr_jax import support
from vsr_jax.support.beta_binomial import BetaBinomial, _Likelihood, _log_gamma_step, fit_counts


def simulate(alpha, beta, prompts, samples, seed=0):
    generator = np.random.default_rng(seed)
    chance = generator.beta(alpha, beta, size=(prompts, 1))
    return (generator.random((prompts, samples)) < chance).astype(float)


def log_beta(a, b):
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def log_likelihood(alpha, beta, passes):
    """Straight from the definition, prompt by prompt."""
    counts = [(int(row.sum()), len(row)) for row in passes]
    return sum(log_beta(alpha + c, beta + n - c) - log_beta(alpha, beta) for c, n in counts)


@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.7), (0.05, 2.0), (2.0, 2.0), (8.0, 1.0)])
def test_fit_recovers_what_made_the_data(alpha, beta):
    fit = support.fit_beta_binomial(simulate(alpha, beta, prompts=4000, samples=32))
    assert fit.mean == pytest.approx(alpha / (alpha + beta), rel=0.1)
    assert fit.concentration == pytest.approx(alpha + beta, rel=0.15)
    assert not fit.at_bound


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=2, max_size=12), st.randoms())
def test_no_point_nearby_or_far_is_likelier(rows, random):
    passes = np.array(rows, dtype=float)
    fit = support.fit_beta_binomial(passes)
    if passes.min() == passes.max():
        assert (fit.mean, fit.at_bound) == (passes.max(), True)
        return
    assert fit.log_likelihood == pytest.approx(log_likelihood(fit.alpha, fit.beta, passes), abs=1e-5)
    logit, scale = log(fit.mean / (1 - fit.mean)), log(fit.concentration)
    for _ in range(30):
        spread = random.choice([0.01, 1.0, 5.0])
        u = logit + random.uniform(-spread, spread)
        v = min(max(scale + random.uniform(-spread, spread), log(1e-4)), log(1e6))
        mean, concentration = 1 / (1 + exp(-u)), exp(v)
        other = log_likelihood(mean * concentration, (1 - mean) * concentration, passes)
        assert other <= fit.log_likelihood + 1e-5


def test_slopes_are_those_of_the_value():
    surface = _Likelihood.of(np.array([0, 3, 5, 8]), np.array([8, 5, 3, 0]))
    point, step = np.array([-0.4, 0.7]), 1e-4
    gradient, hessian = surface.slopes(point)
    for axis in range(2):
        shift = step * np.eye(2)[axis]
        rise = surface.value(point + shift) - surface.value(point - shift)
        assert gradient[axis] == pytest.approx(rise / (2 * step), rel=1e-6)
        bend = surface.slopes(point + shift)[0] - surface.slopes(point - shift)[0]
        np.testing.assert_allclose(hessian[axis], bend / (2 * step), rtol=1e-5, atol=1e-6)


def test_prompts_that_differ_by_no_more_than_chance_look_alike():
    passes = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]], dtype=float)
    fit = support.fit_beta_binomial(passes)
    assert fit.at_bound
    np.testing.assert_allclose(support.expected_coverage(fit, [1, 2, 10]), 1 - 0.5 ** np.array([1, 2, 10]), atol=1e-4)


def test_prompts_that_never_vary_gain_nothing_from_budget():
    fit = support.fit_beta_binomial([[1] * 8, [1] * 8, [0] * 8, [0] * 8])
    assert fit.at_bound
    np.testing.assert_allclose(support.expected_coverage(fit, [1, 1000]), [0.5, 0.5], atol=2e-3)


def test_unequal_numbers_of_verdicts_count_as_they_are():
    passes = np.array([[1, 0, np.nan, np.nan], [1, 1, 1, 0], [0, 0, 0, np.nan]])
    whole = fit_counts(np.array([1, 3, 0]), np.array([1, 1, 3]))
    assert support.fit_beta_binomial(passes) == whole
    empty_row = np.vstack([passes, np.full(4, np.nan)])
    assert support.fit_beta_binomial(empty_row) == whole


def test_coverage_is_the_mean_over_chances():
    fit = BetaBinomial(mean=0.3, concentration=2.0, log_likelihood=0.0, at_bound=False)
    grid = (np.arange(200_000) + 0.5) / 200_000
    density = np.exp((fit.alpha - 1) * np.log(grid) + (fit.beta - 1) * np.log1p(-grid) - log_beta(fit.alpha, fit.beta))
    for k in (1, 4, 100):
        expected = np.mean(density * (1 - (1 - grid) ** k))
        assert support.expected_coverage(fit, [k])[0] == pytest.approx(expected, abs=2e-3)


def test_coverage_after_samples_is_the_ratio_of_likelihoods():
    fit = BetaBinomial(mean=0.2, concentration=1.5, log_likelihood=0.0, at_bound=False)
    prior, posterior = support.expected_coverage(fit, [3, 7]), support.expected_coverage(fit, [4], failures=3)
    assert 1 - prior[1] == pytest.approx((1 - prior[0]) * (1 - posterior[0]))


def test_coverage_within_n_agrees_with_the_unbiased_estimator():
    passes = simulate(0.4, 1.2, prompts=3000, samples=16)
    ks = np.arange(1, 17)
    np.testing.assert_allclose(
        support.expected_coverage(support.fit_beta_binomial(passes), ks), support.best_at_k_curve(passes), atol=0.02
    )


@pytest.mark.parametrize("x", [0.3, 50.0, 999.0, 1001.0, 1e5])
@pytest.mark.parametrize("step", [0.01, 0.7, 30.0])
def test_log_gamma_step_against_the_plain_difference(x, step):
    assert _log_gamma_step(x, step) == pytest.approx(lgamma(x + step) - lgamma(x), abs=1e-9)


def test_log_gamma_step_far_out_follows_the_power_law():
    # Gamma(x + s) / Gamma(x) tends to x^s; lgamma itself has lost all digits of the difference here.
    assert _log_gamma_step(1e15, 0.5) == pytest.approx(0.5 * log(1e15), rel=1e-12)


class TestHalfLife:
    def test_of_equal_prompts_is_the_geometric_one(self):
        fit = BetaBinomial(mean=0.01, concentration=1e6, log_likelihood=0.0, at_bound=True)
        assert support.half_life(fit) == pytest.approx(log(0.5) / log1p(-0.01), rel=1e-3)

    @settings(deadline=None)
    @given(st.floats(0.001, 0.9), st.floats(0.01, 100.0), st.integers(0, 3), st.integers(0, 50))
    def test_coverage_there_is_one_half(self, mean, concentration, successes, failures):
        fit = BetaBinomial(mean, concentration, 0.0, False)
        k = support.half_life(fit, successes=successes, failures=failures)
        if k == inf:
            return
        coverage = support.expected_coverage(fit, [k], successes=successes, failures=failures)[0]
        assert coverage == pytest.approx(0.5, abs=1e-6) if k > 1 else coverage >= 0.5

    def test_limits(self):
        assert support.half_life(support.fit_beta_binomial(np.zeros((3, 4)))) == inf
        assert support.half_life(support.fit_beta_binomial(np.ones((3, 4)))) == 1.0
        assert support.expected_coverage(support.fit_beta_binomial(np.zeros((3, 4))), [0, 1e9]).tolist() == [0, 0]
        assert support.expected_coverage(support.fit_beta_binomial(np.ones((3, 4))), [0, 1]).tolist() == [0, 1]

    def test_of_prompts_falls_with_their_passes(self):
        passes = np.array([[0] * 8, [1] + [0] * 7, [1] * 4 + [0] * 4, [1] * 8])
        lives = support.prompt_half_lives(support.fit_beta_binomial(passes), passes)
        assert (np.diff(lives) <= 0).all()
        assert lives[0] > 8 > lives[1]
        assert lives[3] == 1.0

    def test_interval_covers_the_truth(self):
        truth = support.half_life(BetaBinomial(0.2, 1.0, 0.0, False))
        covered = 0
        for seed in range(20):
            lives = support.bootstrap_half_life(simulate(0.2, 0.8, 60, 16, seed), draws=60, level=0.9, seed=seed)
            assert lives.policy_low <= lives.policy <= lives.policy_high
            covered += lives.policy_low <= truth <= lives.policy_high
        assert covered >= 14

    def test_intervals_of_prompts(self):
        passes = simulate(0.3, 0.7, 40, 16)
        lives = support.bootstrap_half_life(passes, draws=100)
        assert lives.prompts.shape == lives.prompts_low.shape == lives.prompts_high.shape == (40,)
        inside = (lives.prompts_low <= lives.prompts) & (lives.prompts <= lives.prompts_high)
        assert inside.mean() > 0.9
        again = support.bootstrap_half_life(passes, draws=100)
        np.testing.assert_array_equal(lives.prompts_high, again.prompts_high)

    def test_a_policy_that_never_passed_has_no_finite_bound(self):
        lives = support.bootstrap_half_life(np.zeros((5, 8)), draws=20)
        assert (lives.policy_low, lives.policy_high) == (inf, inf)
        assert np.isinf(lives.prompts_low).all()


def test_coverage_interval_holds_the_curve():
    passes = simulate(0.2, 0.8, 80, 16)
    ks = [1, 32, 1024]
    low, high = support.coverage_interval(passes, ks, draws=100)
    curve = support.expected_coverage(support.fit_beta_binomial(passes), ks)
    assert (low <= curve).all()
    assert (curve <= high).all()
    assert (high - low > 0.01).all()


class TestHoldOut:
    def test_a_model_that_fits_predicts_the_second_half(self):
        scores = []
        for seed in range(30):
            check = support.hold_out_check(simulate(0.2, 1.0, 150, 32, seed))
            assert (check.trained_on, check.tested_on) == (16, 16)
            scores.append((check.observed - check.predicted) / check.standard_error)
        assert abs(np.mean(scores)) < 0.6
        assert 0.6 < np.std(scores) < 1.6

    def test_new_successes_among_the_unsolved(self):
        check = support.hold_out_check(simulate(0.2, 1.0, 2000, 32))
        assert check.unsolved > 500
        assert check.observed_new == pytest.approx(check.predicted_new, abs=4 * check.standard_error_new)

    def test_a_policy_that_changes_half_way_is_found_out(self):
        passes = np.hstack([simulate(1, 9, 200, 16, 1), simulate(9, 1, 200, 16, 2)])
        check = support.hold_out_check(passes)
        assert (check.observed - check.predicted) / check.standard_error > 4

    def test_odd_n_tests_on_the_larger_half(self):
        check = support.hold_out_check(np.array([[1, 0, 1], [0, 0, 1]]))
        assert (check.trained_on, check.tested_on) == (1, 2)
        assert (check.unsolved, check.observed_new) == (1, 1)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: support.fit_beta_binomial([[np.nan]]), "no sample has a verdict"),
        (lambda: support.hold_out_check([[1]]), "at least two samples"),
        (lambda: support.hold_out_check([[1, np.nan]]), "verdict for every sample"),
        (lambda: support.bootstrap_half_life([[1, 0]], level=0), "level"),
        (lambda: support.bootstrap_half_life([[1, 0]], draws=0), "draws"),
        (lambda: support.expected_coverage(BetaBinomial(0.5, 1, 0, False), [-1]), "budgets"),
        (lambda: support.expected_coverage(BetaBinomial(0.5, 1, 0, False), [1], failures=-1), "counts"),
    ],
)
def test_refuses(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


@given(st.integers(1, 8), st.data())
def test_beta_binomial_probabilities_add_up(n, data):
    """Over all counts of up to 8 samples the model is a distribution, and its miss chance is the count 0."""
    mean, concentration = data.draw(st.floats(0.05, 0.95)), data.draw(st.floats(0.05, 50))
    fit = BetaBinomial(mean, concentration, 0.0, False)
    weights = [
        comb(n, c) * exp(log_beta(fit.alpha + c, fit.beta + n - c) - log_beta(fit.alpha, fit.beta))
        for c in range(n + 1)
    ]
    assert sum(weights) == pytest.approx(1)
    assert 1 - weights[0] == pytest.approx(support.expected_coverage(fit, [n])[0], abs=1e-9)

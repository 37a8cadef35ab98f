"""Estimators, buckets and accounting against enumeration and worked cases."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vsr_jax import support

passes_up_to_8 = st.integers(1, 8).flatmap(
    lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1, max_size=4)
)


def any_of_every_subset(row, k):
    return float(np.mean([any(subset) for subset in combinations(row, k)]))


def any_of_every_redraw(row, k):
    return float(np.mean([any(redraw) for redraw in product(row, repeat=k)]))


@given(passes_up_to_8)
def test_unbiased_is_the_mean_over_all_subsets(passes):
    for k in range(1, len(passes[0]) + 1):
        expected = [any_of_every_subset(row, k) for row in passes]
        np.testing.assert_allclose(support.best_at_k_per_prompt(passes, k), expected, atol=1e-12)
        assert support.best_at_k(passes, k) == pytest.approx(np.mean(expected))


@settings(max_examples=30)
@given(passes_up_to_8)
def test_with_replacement_is_the_mean_over_all_redraws(passes):
    for k in range(1, min(len(passes[0]), 5) + 1):
        expected = [any_of_every_redraw(row, k) for row in passes]
        np.testing.assert_allclose(support.best_at_k_per_prompt(passes, k, "with_replacement"), expected, atol=1e-12)


@given(passes_up_to_8)
def test_exact_is_any_of_the_first_k(passes):
    for k in range(1, len(passes[0]) + 1):
        assert support.best_at_k_per_prompt(passes, k, "exact").tolist() == [float(any(row[:k])) for row in passes]


@given(passes_up_to_8)
def test_estimators_agree_where_they_must(passes):
    n = len(passes[0])
    mean = support.mean_at_k(passes)
    assert support.best_at_k(passes, n) == support.best_at_k(passes, n, "exact")
    assert support.best_at_k(passes, 1) == pytest.approx(mean)
    assert support.best_at_k(passes, 1, "with_replacement") == pytest.approx(mean)
    unbiased = support.best_at_k_curve(passes)
    assert (np.diff(unbiased) >= -1e-12).all()
    assert (support.best_at_k_curve(passes, estimator="with_replacement") <= unbiased + 1e-12).all()


@pytest.mark.parametrize(
    ("n", "correct", "k", "unbiased", "with_replacement"),
    [
        (4, 1, 2, 0.5, 0.4375),
        (4, 1, 4, 1.0, 0.683594),
        (32, 1, 32, 1.0, 0.637945),
        (16, 3, 4, 1 - (13 * 12 * 11 * 10) / (16 * 15 * 14 * 13), 1 - (13 / 16) ** 4),
        (1024, 1, 512, 0.5, 1 - (1023 / 1024) ** 512),
        (8, 0, 8, 0.0, 0.0),
        (8, 8, 1, 1.0, 1.0),
    ],
)
def test_best_at_k_by_hand(n, correct, k, unbiased, with_replacement):
    passes = [[1] * correct + [0] * (n - correct)]
    assert support.best_at_k(passes, k) == pytest.approx(unbiased, abs=1e-12)
    assert support.best_at_k(passes, k, "with_replacement") == pytest.approx(with_replacement, abs=1e-6)


def test_curve_columns_are_the_budgets_asked():
    passes = np.random.default_rng(0).random((5, 6)) < 0.3
    curve = support.best_at_k_curve_per_prompt(passes, [1, 4, 6])
    assert curve.shape == (5, 3)
    np.testing.assert_array_equal(curve[:, 1], support.best_at_k_per_prompt(passes, 4))
    np.testing.assert_allclose(support.best_at_k_curve(passes, [1, 4, 6]), curve.mean(axis=0))


@pytest.mark.parametrize("name", ["mean_at_k", "mean_per_prompt", "pass_buckets", "fit_beta_binomial"])
@pytest.mark.parametrize(
    ("passes", "complaint"),
    [
        ([True, False], "matrix"),
        (np.zeros((0, 4)), "at least one prompt"),
        (np.zeros((4, 0)), "at least one prompt"),
        ([[0, 2]], "0, 1 or NaN, got 2.0 at prompt 0, sample 1"),
    ],
)
def test_malformed_passes_are_refused(name, passes, complaint):
    with pytest.raises(ValueError, match=complaint):
        getattr(support, name)(passes)


@pytest.mark.parametrize("k", [0, 5, -1, 1.5])
@pytest.mark.parametrize("estimator", ["unbiased", "exact", "with_replacement"])
def test_budget_outside_the_samples_is_refused(k, estimator):
    with pytest.raises(ValueError, match="k must"):
        support.best_at_k(np.ones((2, 4)), k, estimator)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="estimator must be"):
        support.best_at_k([[1, 0]], 1, "bootstrap")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="missing must be"):
        support.mean_at_k([[1, 0]], missing="zero")  # pyright: ignore[reportArgumentType]


class TestMissingVerdicts:
    passes = np.array([[1, np.nan, 0, 0], [0, 0, np.nan, np.nan], [1, 0, 1, 1]])

    def test_are_refused_unless_a_policy_is_named(self):
        with pytest.raises(ValueError, match="3 samples of 2 prompts have no verdict"):
            support.mean_at_k(self.passes)
        with pytest.raises(ValueError, match="choose missing="):
            support.best_at_k(self.passes, 2)

    def test_omitted_samples_shorten_a_prompt(self):
        assert support.mean_per_prompt(self.passes, missing="omit").tolist() == [1 / 3, 0.0, 0.75]
        best = support.best_at_k_per_prompt(self.passes, 3, missing="omit")
        assert best[0] == 1.0
        assert np.isnan(best[1])
        assert best[2] == 1.0
        assert support.best_at_k(self.passes, 3, missing="omit") == 1.0

    def test_order_of_the_samples_that_remain_is_kept(self):
        row = [[np.nan, 0, 1, np.nan]]
        assert support.best_at_k_per_prompt(row, 1, "exact", missing="omit") == [0.0]
        assert support.best_at_k_per_prompt(row, 2, "exact", missing="omit") == [1.0]

    def test_wrong_and_correct_bound_the_unknown(self):
        low = support.best_at_k_curve(self.passes, missing="wrong")
        high = support.best_at_k_curve(self.passes, missing="correct")
        assert (low <= high).all()
        assert low[-1] == pytest.approx(2 / 3)
        assert high[-1] == 1.0

    def test_no_prompt_left(self):
        with pytest.raises(ValueError, match="no prompt has enough verdicts"):
            support.best_at_k([[np.nan, 1]], 2, missing="omit")
        with pytest.raises(ValueError, match="no prompt has enough verdicts"):
            support.mean_at_k([[np.nan, np.nan]], missing="omit")


class TestBootstrap:
    def test_same_seed_same_interval(self):
        values = np.random.default_rng(1).random(20)
        assert support.bootstrap_interval(values, seed=3) == support.bootstrap_interval(values, seed=3)
        assert support.bootstrap_interval(values, seed=3) != support.bootstrap_interval(values, seed=4)

    def test_matches_the_normal_interval_of_a_mean(self):
        values = np.random.default_rng(2).random(400)
        low, high = support.bootstrap_interval(values, seed=0)
        error = 1.96 * values.std() / np.sqrt(len(values))
        assert low == pytest.approx(values.mean() - error, abs=0.003)
        assert high == pytest.approx(values.mean() + error, abs=0.003)

    def test_matches_enumeration_of_all_resamples(self):
        values = np.array([0.0, 0.0, 1.0])
        means = sorted(float(np.mean(draw)) for draw in product(values, repeat=3))
        low, high = support.bootstrap_interval(values, level=0.5, draws=20_000)
        assert low == pytest.approx(means[len(means) // 4])
        assert high == pytest.approx(means[3 * len(means) // 4])

    def test_covers_the_truth_about_as_often_as_it_says(self):
        generator = np.random.default_rng(5)
        inside = 0
        for trial in range(200):
            low, high = support.bootstrap_interval(generator.random(50), level=0.9, draws=500, seed=trial)
            inside += low <= 0.5 <= high
        assert 165 <= inside <= 195

    def test_columns_have_their_own_intervals(self):
        table = np.random.default_rng(0).random((30, 3)) * [1, 10, 100]
        low, high = support.bootstrap_interval(table)
        assert low.shape == high.shape == (3,)
        assert (low < table.mean(axis=0)).all()
        assert (table.mean(axis=0) < high).all()

    def test_pairing_removes_what_prompts_share(self):
        generator = np.random.default_rng(0)
        hardness = generator.random(60)
        before, after = hardness, hardness + 0.05 + 0.01 * generator.standard_normal(60)
        paired = support.paired_bootstrap(before, after)
        assert paired.low > 0
        assert paired.difference == pytest.approx((after - before).mean())
        assert paired.high - paired.low < 0.01
        low, high = support.bootstrap_interval(after)
        assert high - low > 0.1

    @pytest.mark.parametrize(
        ("values", "options", "complaint"),
        [
            ([], {}, "not empty"),
            (np.zeros((2, 2, 2)), {}, "not empty"),
            ([1.0, np.nan], {}, "finite"),
            ([1.0], {"level": 1.0}, "level"),
            ([1.0], {"draws": 0}, "draws"),
        ],
    )
    def test_refuses(self, values, options, complaint):
        with pytest.raises(ValueError, match=complaint):
            support.bootstrap_interval(values, **options)

    def test_refuses_unpaired_shapes(self):
        with pytest.raises(ValueError, match="same shape"):
            support.paired_bootstrap([1.0, 0.0], [1.0])


class TestBuckets:
    # 32 samples asked: a verifier time-out, a wrong answer, two time-outs, and a row that is not there.
    timed_out = [1.0] * 31 + [np.nan]
    one_wrong = [1.0] * 31 + [0.0]
    never_right = [0.0] * 30 + [np.nan] * 2

    def test_a_claim_about_all_samples_needs_all_verdicts(self):
        buckets = support.pass_buckets(
            [self.timed_out, self.one_wrong, self.never_right], names=["a", "b", "c"], asked=32
        )
        assert buckets.labels == ("incomplete", "mixed", "incomplete")
        assert buckets.incomplete == ("a", "c")
        assert buckets.counts == {"all_wrong": 0, "mixed": 1, "all_correct": 0, "incomplete": 2}
        assert sum(buckets.shares.values()) == pytest.approx(1)

    def test_columns_that_are_not_there_count_as_missing(self):
        assert support.pass_buckets([[1.0] * 31], asked=32).labels == ("incomplete",)
        assert support.pass_buckets([[1.0] * 32], asked=32).labels == ("all_correct",)
        with pytest.raises(ValueError, match="only 31 were asked"):
            support.pass_buckets([[1.0] * 32], asked=31)

    @pytest.mark.parametrize(
        ("policy", "labels"),
        [
            ("omit", ("all_correct", "mixed", "all_wrong")),
            ("wrong", ("mixed", "mixed", "all_wrong")),
            ("correct", ("all_correct", "mixed", "mixed")),
        ],
    )
    def test_a_named_policy_counts_them(self, policy, labels):
        passes = [self.timed_out, self.one_wrong, self.never_right]
        assert support.pass_buckets(passes, missing=policy).labels == labels

    def test_no_verdict_at_all_is_incomplete_even_when_omitted(self):
        assert support.pass_buckets([[np.nan, np.nan]], missing="omit").labels == ("incomplete",)

    @given(passes_up_to_8)
    def test_labels_follow_the_count(self, passes):
        n = len(passes[0])
        expected = ["all_wrong" if sum(row) == 0 else "all_correct" if sum(row) == n else "mixed" for row in passes]
        assert list(support.pass_buckets(passes).labels) == expected
        distribution = support.pass_count_distribution(passes)
        assert distribution.tolist() == [sum(sum(row) == count for row in passes) for count in range(n + 1)]

    def test_one_sample_is_never_mixed(self):
        assert support.pass_buckets([[1], [0]]).labels == ("all_correct", "all_wrong")

    def test_entropy_of_pass_counts(self):
        assert support.pass_count_entropy([[1, 0], [0, 1]]) == 0.0
        assert support.pass_count_entropy([[0, 0], [0, 1], [1, 1]]) == pytest.approx(np.log(3))
        with pytest.raises(ValueError, match="no verdict"):
            support.pass_count_entropy([[1, np.nan]])

    @pytest.mark.parametrize("names", [["a"], ["a", "a"]])
    def test_names_must_fit(self, names):
        with pytest.raises(ValueError, match="2 different names"):
            support.pass_buckets([[1, 0], [0, 0]], names=names)


class TestTransitions:
    def test_matrix_and_names(self):
        names = ["a", "b", "c", "d", "e"]
        before = support.pass_buckets([[0, 0], [0, 1], [1, 1], [0, 1], [np.nan, 1]], names=names)
        after = support.pass_buckets([[1, 1], [0, 0], [1, 1], [1, 1], [1, 1]], names=names)
        moves = support.transition(before, after)
        assert moves.matrix.tolist() == [[0, 0, 1], [1, 0, 1], [0, 0, 1]]
        assert moves.matrix.dtype == np.int64
        assert moves.cells["mixed", "all_correct"] == ("d",)
        assert moves.gained == ("a",)
        assert moves.lost == ("b",)
        assert moves.left_out == ("e",)

    @given(passes_up_to_8, st.randoms())
    def test_margins_are_the_bucket_counts(self, before, random):
        after = [random.sample(row, len(row)) if random.random() < 0.5 else [not x for x in row] for row in before]
        matrix = support.transition_matrix(before, after)
        assert matrix.sum(axis=1).tolist() == [support.pass_buckets(before).counts[b] for b in support.BUCKETS]
        assert matrix.sum(axis=0).tolist() == [support.pass_buckets(after).counts[b] for b in support.BUCKETS]

    def test_other_prompts_are_refused(self):
        with pytest.raises(ValueError, match="same prompts in the same order"):
            support.transition_matrix([[1, 0]], [[1, 0], [0, 0]])
        with pytest.raises(ValueError, match="same prompts in the same order"):
            support.transition(
                support.pass_buckets([[1], [0]], names=["a", "b"]), support.pass_buckets([[1], [0]], names=["b", "a"])
            )


class TestAccount:
    def test_nothing_extracted_is_not_a_quiet_zero(self):
        result = support.account({"a": ["no_answer"] * 2, "b": ["no_answer"] * 2}, ["a", "b"], 2)
        assert result.accuracy == 0.0
        assert result.extraction_rate == 0.0
        assert "only 0.0% of responses held an answer" in result.warnings[0]

    def test_a_bad_model_that_answers_draws_no_warning(self):
        result = support.account({"a": ["wrong"] * 2, "b": ["wrong"] * 2}, ["a", "b"], 2)
        assert result.accuracy == 0.0
        assert result.extraction_rate == 1.0
        assert result.warnings == ()

    @pytest.mark.parametrize(("answered", "warned"), [(2, False), (1, True)])
    def test_warning_starts_below_one_half(self, answered, warned):
        statuses = ["correct"] * answered + ["truncated"] * (4 - answered)
        result = support.account({"a": statuses}, ["a"], 4)
        assert result.extraction_rate == answered / 4
        assert bool(result.warnings) is warned

    def test_a_missing_response_fails_and_is_listed(self):
        result = support.account({"a": ["correct", "correct"], "b": ["correct"]}, ["a", "b", "c"], 2)
        assert result.missing == {"b": 1, "c": 2}
        assert result.accuracy == pytest.approx(3 / 6)
        assert "3 responses are missing and counted as failed: b (1), c (2)" in result.warnings[0]
        assert support.pass_buckets(result.passes, names=result.names).incomplete == ("b", "c")

    def test_time_outs_are_neither_right_nor_wrong(self):
        result = support.account({"a": ["correct", "timeout", "error", "wrong"]}, ["a"], 4)
        assert result.accuracy == 0.5
        assert result.statuses["timeout"] == 1
        np.testing.assert_array_equal(result.passes, [[1, np.nan, np.nan, 0]])
        assert "2 responses have no verdict" in result.warnings[0]

    def test_no_verdict_at_all(self):
        result = support.account({"a": ["timeout"]}, ["a"], 1)
        assert np.isnan(result.accuracy)
        assert "no response has a verdict" in result.warnings[0]

    @pytest.mark.parametrize(
        ("statuses", "prompts", "asked", "complaint"),
        [
            ({}, [], 1, "at least one prompt"),
            ({}, ["a"], 0, "at least one prompt"),
            ({}, ["a", "a"], 1, "'a' more than once"),
            ({"z": ["wrong"]}, ["a"], 1, "'z', which is not among"),
            ({"a": ["wrong"] * 2}, ["a"], 1, "2 responses but only 1"),
            ({"a": ["passed"]}, ["a"], 1, "unknown verdict status 'passed'"),
        ],
    )
    def test_refuses(self, statuses, prompts, asked, complaint):
        with pytest.raises(ValueError, match=complaint):
            support.account(statuses, prompts, asked)


def test_statuses_are_those_of_the_verifiers():
    from typing import get_args

    from vsr_jax.support.accounting import STATUSES
    from vsr_jax.verifiers.types import Status

    assert get_args(Status) == STATUSES


def test_room_imports_neither_jax_nor_scipy():
    import subprocess
    import sys

    code = "import sys, vsr_jax.support; sys.exit(bool({'jax', 'scipy', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

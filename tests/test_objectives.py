"""Losses, reducers and advantages against float64 numpy, with gradients by finite differences and by enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from vsr_jax.objectives.advantages import group_advantages, signal_shares
from vsr_jax.objectives.kl import kl, kl_estimate
from vsr_jax.objectives.policy import grpo
from vsr_jax.objectives.reducers import constant_length, sequence_mean, token_mean
from vsr_jax.objectives.sft import cross_entropy
from vsr_jax.objectives.statistics import entropy
from vsr_jax.objectives.types import Objective, TokenBatch, combine

N, V = 7, 5


def batch(seed: int = 0) -> tuple[np.ndarray, TokenBatch]:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    tokens = TokenBatch(
        target=rng.integers(0, V, N).astype(np.int32),
        weight=np.array([1, 1, 0, 1, 1, 1, 1], np.float32),
        advantage=draw(N),
        logp_old=-1.6 + 0.5 * draw(N),
        logp_ref=-1.6 + 0.5 * draw(N),
        position=np.arange(N, dtype=np.int32),
    )
    return draw(N, V), tokens


def log_softmax(z: np.ndarray) -> np.ndarray:
    z = z.astype(np.float64)
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def reference_grpo(z: np.ndarray, b: TokenBatch) -> np.ndarray:
    logp = log_softmax(z)[np.arange(N), b.target]
    r = np.exp(logp - b.logp_old.astype(np.float64))
    a = b.advantage.astype(np.float64)
    return -np.minimum(r * a, np.clip(r, 0.8, 1.28) * a)


def reference_kl(estimator: str):
    def value(z: np.ndarray, b: TokenBatch) -> np.ndarray:
        d = b.logp_ref.astype(np.float64) - log_softmax(z)[np.arange(N), b.target]
        return {"k1": -d, "k2": d**2 / 2, "k3": np.exp(d) - d - 1}[estimator]

    return value


CASES = {
    "grpo": (grpo(), reference_grpo),
    "cross_entropy": (cross_entropy(), lambda z, b: -log_softmax(z)[np.arange(N), b.target]),
    **{f"kl_{k}": (kl(k), reference_kl(k)) for k in ("k1", "k2", "k3")},
    "combined": (grpo() + 0.04 * kl("k3"), lambda z, b: reference_grpo(z, b) + 0.04 * reference_kl("k3")(z, b)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("reducer", [token_mean, sequence_mean, constant_length(10)])
def test_value_and_gradient_equal_the_float64_reference(name: str, reducer) -> None:
    objective, reference = CASES[name]
    z, b = batch()
    coefficient = np.asarray(reducer(b.weight[None])[0], np.float64)

    def loss(z):
        return (objective.per_token(z, b)[0] * coefficient).sum()

    exact = lambda z: float((reference(z, b) * coefficient).sum())  # noqa: E731
    np.testing.assert_allclose(loss(z), exact(z), rtol=1e-5, atol=1e-7)
    gradient = jax.grad(loss)(jnp.asarray(z))
    h = 1e-5
    numeric = np.zeros((N, V))
    for i in range(N):
        for j in range(V):
            step = np.zeros((N, V))
            step[i, j] = h
            numeric[i, j] = (exact(z + step) - exact(z - step)) / (2 * h)
    np.testing.assert_allclose(gradient, numeric, atol=2e-6)


@pytest.mark.parametrize(
    ("advantage", "clip_high", "objective", "flows"),
    [(-1.0, 0.2, -3.0, True), (1.0, 0.2, 1.2, False), (1.0, 0.28, 1.28, False), (1.0, 5.0, 3.0, True)],
)
def test_a_ratio_of_three_is_clipped_only_where_it_would_be_optimistic(advantage, clip_high, objective, flows) -> None:
    logp = jnp.log(jnp.array([[0.6, 0.4]]))
    tokens = TokenBatch(
        jnp.array([0]), jnp.ones(1), jnp.array([advantage]), jnp.log(jnp.array([0.2])), jnp.zeros(1), jnp.zeros(1)
    )
    loss = lambda z: grpo(clip_low=0.2, clip_high=clip_high).per_token(z, tokens)[0].sum()  # noqa: E731
    np.testing.assert_allclose(-loss(logp), objective, rtol=1e-5)
    assert bool(jnp.any(jax.grad(loss)(logp) != 0)) == flows


def test_aggregation_gives_the_three_named_numbers_whatever_the_padding() -> None:
    for pad in (0, 5):
        weight = np.zeros((2, 8 + pad), np.float32)
        weight[0, :2], weight[1, :8] = 1, 1
        loss = np.zeros_like(weight)
        loss[0], loss[1] = -1.0, 1.0
        loss[weight == 0] = 1e9
        total = lambda reducer: float(np.where(weight > 0, loss * np.asarray(reducer(weight)), 0).sum())  # noqa: B023, E731
        np.testing.assert_allclose(total(sequence_mean), 0.0, atol=1e-6)
        np.testing.assert_allclose(total(token_mean), 0.6, rtol=1e-6)
        np.testing.assert_allclose(total(constant_length(10)), 0.3, rtol=1e-6)


def test_kl_values() -> None:
    logp, ref = jnp.log(0.5), jnp.log(0.25)
    values = [float(kl_estimate(logp, ref, k)) for k in ("k1", "k2", "k3")]
    np.testing.assert_allclose(values, [0.693147, 0.240227, 0.193147], atol=1e-6)
    np.testing.assert_allclose(float(kl_estimate(ref, logp, "k3")), 0.306853, atol=1e-6)


def test_kl_gradients_by_enumeration() -> None:
    ref = jnp.log(jnp.array([0.25, 0.75]))

    def expected(t, estimator):
        """Exact expectation over both tokens, the sampling probabilities held fixed."""
        logp = jnp.log(jnp.array([jax.nn.sigmoid(t), jax.nn.sigmoid(-t)]))
        return (jax.lax.stop_gradient(jnp.exp(logp)) * kl_estimate(logp, ref, estimator)).sum()

    def true_kl(t):
        logp = jnp.log(jnp.array([jax.nn.sigmoid(t), jax.nn.sigmoid(-t)]))
        return (jnp.exp(logp) * (logp - ref)).sum()

    np.testing.assert_allclose(true_kl(0.0), 0.143841, atol=1e-6)
    np.testing.assert_allclose(jax.grad(true_kl)(0.0), 0.274653, atol=1e-6)
    for estimator, gradient in (("k1", 0.0), ("k2", 0.274653), ("k3", 0.25)):
        np.testing.assert_allclose(jax.grad(expected)(0.0, estimator), gradient, atol=1e-6, err_msg=estimator)


def test_entropy_is_finite_where_logits_are_minus_infinity() -> None:
    z = jnp.array([0.0, 0.0, -jnp.inf])
    np.testing.assert_allclose(entropy(z), np.log(2), rtol=1e-6)
    gradient = np.asarray(jax.grad(lambda z: entropy(z).sum())(z))
    assert np.isfinite(gradient).all()
    assert gradient[2] == 0


def test_advantages_have_named_conventions() -> None:
    rewards = np.array([[1, 0, 0, 0], [1, 1, 1, 1]])
    third = -np.sqrt(1 / 3)
    np.testing.assert_allclose(group_advantages(rewards)[0], [np.sqrt(3), third, third, third], atol=1e-5)
    np.testing.assert_allclose(group_advantages(rewards, std="sample")[0], [1.5, -0.5, -0.5, -0.5], atol=1e-5)
    np.testing.assert_allclose(group_advantages(rewards, std="none")[0], [0.75, -0.25, -0.25, -0.25], atol=1e-7)
    assert not group_advantages(rewards)[1].any()
    for std in ("population", "sample", "none"):
        assert not group_advantages(np.array([[0.7]]), std=std).any()
    with pytest.raises(ValueError, match="population"):
        group_advantages(rewards, std="both")


@given(
    arrays.arrays(
        np.float64, st.tuples(st.integers(1, 4), st.integers(1, 8)), elements=st.sampled_from([0.1, 0.3, 0.7, 1.0])
    )
)
def test_advantages_sum_to_zero_and_equal_groups_are_exactly_zero(rewards: np.ndarray) -> None:
    for std in ("population", "sample", "none"):
        a = group_advantages(rewards, std=std)
        np.testing.assert_allclose(a.sum(1), 0, atol=1e-4)
        for row, values in zip(a, rewards, strict=True):
            assert (row == 0).all() == (len(set(values)) == 1)


def test_a_response_without_a_verdict_leaves_its_group_alone() -> None:
    with_gap = group_advantages(np.array([[1.0, np.nan, 0.0, 0.0]]))
    without = group_advantages(np.array([[1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(with_gap[0, [0, 2, 3]], without[0])
    assert with_gap[0, 1] == 0
    assert signal_shares(np.array([[1, np.nan], [0, 0], [0, 1]])) == {
        "groups_all_pass": pytest.approx(1 / 3),
        "groups_all_fail": pytest.approx(1 / 3),
        "groups_mixed": pytest.approx(1 / 3),
    }


def test_combining_is_checked() -> None:
    with pytest.raises(ValueError, match="reducer"):
        combine(grpo(), kl(reducer=sequence_mean))
    with pytest.raises(ValueError, match="at least one"):
        combine()
    z, b = batch()
    with pytest.raises(ValueError, match="kl_k2"):
        combine(kl("k2"), kl("k2")).per_token(z, b)
    mine = Objective(lambda z, b: (z[:, 0], {"first": z[:, 0]}))
    np.testing.assert_allclose((mine * 2.0).per_token(z, b)[0], 2 * z[:, 0])

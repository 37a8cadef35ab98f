"""Every loss term against float64 numpy, value and gradient; reducers, advantages, rewards and composition."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from vsr_jax.errors import UserError
from vsr_jax.objectives.advantages import ADVANTAGES, batch_advantages, group_advantages, leave_one_out, signal_shares
from vsr_jax.objectives.distill import distill_sampled, distill_stored, distill_top_k, teacher_at_top_k, top_k
from vsr_jax.objectives.kl import full_jsd, full_kl, kl, kl_estimate
from vsr_jax.objectives.policy import cispo, entropy_bonus, grpo, gspo, reinforce, truncated_importance
from vsr_jax.objectives.reducers import constant_length, sequence_mean, token_mean
from vsr_jax.objectives.rewards import overlong_penalty, penalised_rewards
from vsr_jax.objectives.sft import cross_entropy
from vsr_jax.objectives.statistics import js_divergence, kl_divergence
from vsr_jax.objectives.types import Objective, TokenBatch, combine

N, V, REAL, K = 7, 7, 6, 3
"""Tokens, rows of the vocabulary, real tokens in it (the last row is padding at -inf), and stored tokens."""


def draw_batch() -> tuple[np.ndarray, TokenBatch]:
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731

    def logits() -> np.ndarray:
        z = draw(N, V)
        z[:, REAL:] = -np.inf
        return z

    z, reference, teacher = logits(), logits(), logits()
    target = rng.integers(0, REAL, N).astype(np.int32)
    order = np.argsort(-teacher, axis=1)[:, :K].astype(np.int32)
    top = np.argsort(-(z + 0.3 * draw(N, V)), axis=1)[:, :K].astype(np.int32)
    near = lambda: (log_softmax(z)[np.arange(N), target] + 0.3 * draw(N)).astype(np.float32)  # noqa: E731
    tokens = TokenBatch(
        target=target,
        weight=np.array([1, 1, 0, 1, 1, 0.5, 1], np.float32),
        advantage=draw(N),
        logp_old=near(),
        logp_ref=-1.6 + 0.5 * draw(N),
        position=np.arange(N, dtype=np.int32),
        extra={
            "logp_raw": near(),
            "logp_warped": near() + 0.2,
            "logp_teacher": -1.6 + 0.5 * draw(N),
            "log_sequence_ratio": np.array([0.1, -0.4, 2e-4, -2e-4, 0.0, 1e-3, -5e-4], np.float32),
            "top_ids": top,
            "top_logp_old": (np.take_along_axis(log_softmax(z), top, 1) + 0.3 * draw(N, K)).astype(np.float32),
            "top_logp_teacher": np.take_along_axis(log_softmax(teacher), top, 1).astype(np.float32),
            "teacher_ids": order,
            "teacher_logp": np.take_along_axis(log_softmax(teacher), order, 1).astype(np.float32),
        },
        others={"reference": reference, "teacher": teacher},
    )
    return z, tokens


def log_softmax(z: np.ndarray) -> np.ndarray:
    z = z.astype(np.float64)
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


Z, BATCH = draw_batch()
B = jax.tree.map(lambda x: np.asarray(x, np.float64) if x.dtype == np.float32 else x, BATCH)
ADV, EXTRA = B.advantage, B.extra
OTHER = {name: log_softmax(z)[:, :REAL] for name, z in BATCH.others.items()}


def dense(z: np.ndarray, t: float = 1.0) -> np.ndarray:
    return log_softmax(z[:, :REAL] / t)


def picked(z: np.ndarray, t: float = 1.0) -> np.ndarray:
    return dense(z, t)[np.arange(N), B.target]


def clipped(r: np.ndarray, a: np.ndarray, low: float, high: float) -> np.ndarray:
    return -np.minimum(r * a, np.clip(r, 1 - low, 1 + high) * a)


def ref_grpo(z, _, dual=None, t=1.0):
    loss = clipped(np.exp(picked(z, t) - B.logp_old), ADV, 0.2, 0.28)
    return loss if dual is None else np.where(ADV < 0, np.minimum(loss, -dual * ADV), loss)


def ref_kl(estimator, t=1.0, reference=None):
    def value(z, _):
        d = (B.logp_ref if reference is None else OTHER[reference][np.arange(N), B.target]) - picked(z, t)
        return {"k1": -d, "k2": d**2 / 2, "k3": np.exp(d) - d - 1}[estimator]

    return value


def kl64(logp: np.ndarray, logq: np.ndarray) -> np.ndarray:
    return (np.exp(logp) * (logp - logq)).sum(1)


def ref_jsd(beta):
    def value(z, _):
        p, q = OTHER["teacher"], dense(z)
        m = np.log(beta * np.exp(p) + (1 - beta) * np.exp(q))
        return beta * kl64(p, m) + (1 - beta) * kl64(q, m)

    return value


def ref_top_k(z, frozen, stored, teacher):
    ids = EXTRA["top_ids"] if stored else np.argsort(-dense(frozen), axis=1)[:, :K]
    old = EXTRA["top_logp_old"] if stored else np.take_along_axis(dense(frozen), ids, 1)
    w = np.exp(old) / np.exp(old).sum(1, keepdims=True)
    target = np.take_along_axis(OTHER["teacher"], ids, 1) if teacher else EXTRA["top_logp_teacher"]
    return clipped(np.exp(np.take_along_axis(dense(z), ids, 1) - old), w * (target - old), 0.2, 0.2).sum(1)


def ref_stored(z, _):
    p, q = OTHER["teacher"], dense(z)
    listed = np.zeros(p.shape, bool)
    np.put_along_axis(listed, EXTRA["teacher_ids"], True, 1)
    total = np.where(listed, np.exp(p) * (p - q), 0).sum(1)
    rest_p, rest_q = (np.where(listed, 0, np.exp(x)).sum(1) for x in (p, q))
    return total + rest_p * np.log(rest_p / rest_q)


CASES = {
    "grpo": (grpo(), ref_grpo),
    "grpo_temperature": (grpo(temperature=0.7), lambda z, f: ref_grpo(z, f, t=0.7)),
    "grpo_dual": (grpo(dual_clip=1.05), lambda z, f: ref_grpo(z, f, dual=1.05)),
    "gspo": (
        gspo(),
        lambda z, f: clipped(np.exp(EXTRA["log_sequence_ratio"] + picked(z) - picked(f)), ADV, 3e-4, 4e-4),
    ),
    "cispo": (
        cispo(clip_low=0.2, clip_high=0.3),
        lambda z, f: -np.clip(np.exp(picked(f) - B.logp_old), 0.8, 1.3) * ADV * picked(z),
    ),
    "reinforce": (reinforce(), lambda z, f: -ADV * picked(z)),
    "truncated_raw": (
        truncated_importance(grpo(), cap=1.1),
        lambda z, f: np.minimum(np.exp(B.logp_old - EXTRA["logp_raw"]), 1.1) * ref_grpo(z, f),
    ),
    "truncated_warped": (
        truncated_importance(reinforce(), behavior="warped"),
        lambda z, f: -np.minimum(np.exp(B.logp_old - EXTRA["logp_warped"]), 2) * ADV * picked(z),
    ),
    "entropy_bonus": (
        entropy_bonus(temperature=0.5),
        lambda z, f: (np.exp(dense(z, 0.5)) * dense(z, 0.5)).sum(1),
    ),
    **{f"kl_{k}": (kl(k, temperature=2.0), ref_kl(k, 2.0)) for k in ("k1", "k2", "k3")},
    "kl_of_a_model": (kl("k3", other="reference"), ref_kl("k3", reference="reference")),
    **{
        f"kl_{k}_importance": (
            kl(k, importance=True),
            lambda z, f, k=k: np.exp(picked(z) - B.logp_old) * ref_kl(k)(z, f),
        )
        for k in ("k1", "k3")
    },
    "full_kl": (full_kl("policy||other"), lambda z, f: kl64(dense(z), OTHER["reference"])),
    "full_kl_reversed": (
        full_kl("other||policy", other="teacher"),
        lambda z, f: kl64(OTHER["teacher"], dense(z)),
    ),
    "full_kl_temperature": (
        full_kl("policy||other", temperature=2.0),
        lambda z, f: kl64(dense(z, 2.0), log_softmax(BATCH.others["reference"][:, :REAL] / 2)),
    ),
    "full_jsd": (full_jsd(0.3), ref_jsd(0.3)),
    "distill_sampled": (
        distill_sampled(),
        lambda z, f: clipped(
            np.exp(picked(z) - B.logp_old), OTHER["teacher"][np.arange(N), B.target] - B.logp_old, 0.2, 0.2
        ),
    ),
    "distill_sampled_stored": (
        distill_sampled(teacher=None),
        lambda z, f: clipped(np.exp(picked(z) - B.logp_old), EXTRA["logp_teacher"] - B.logp_old, 0.2, 0.2),
    ),
    "distill_top_k": (distill_top_k(K), lambda z, f: ref_top_k(z, f, False, True)),
    "distill_top_k_old": (distill_top_k(K, stored=True), lambda z, f: ref_top_k(z, f, True, True)),
    "distill_top_k_stored": (
        distill_top_k(K, stored=True, teacher=None),
        lambda z, f: ref_top_k(z, f, True, False),
    ),
    "distill_stored": (distill_stored(), ref_stored),
    "cross_entropy": (cross_entropy(), lambda z, f: -picked(z)),
    "combined": (
        grpo() + 0.04 * kl("k3") + 0.5 * full_kl(),
        lambda z, f: ref_grpo(z, f) + 0.04 * ref_kl("k3")(z, f) + 0.5 * kl64(dense(z), OTHER["reference"]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_equal_the_float64_reference(name: str) -> None:
    """The vocabulary's last row is -inf in every model, as padded rows are: it must not reach any gradient."""
    objective, reference = CASES[name]
    coefficient = np.asarray(token_mean(BATCH.weight), np.float64)

    def loss(z):
        value, metrics = objective.per_token(z, BATCH)
        assert all(x.shape == (N,) for x in metrics.values())
        return (value * coefficient).sum(), value

    (_, value), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(Z)
    np.testing.assert_allclose(value, reference(Z, Z), rtol=1e-5, atol=1e-6)
    exact = lambda z: float((reference(z, Z) * coefficient).sum())  # noqa: E731
    h = 1e-5
    numeric = np.zeros((N, V))
    for i in range(N):
        for j in range(REAL):
            step = np.zeros((N, V))
            step[i, j] = h
            numeric[i, j] = (exact(Z + step) - exact(Z - step)) / (2 * h)
    np.testing.assert_allclose(gradient, numeric, atol=3e-6)
    assert np.abs(numeric).max() > 1e-3


def test_terms_name_what_they_miss() -> None:
    bare = replace(BATCH, extra={}, others={})
    for objective, words in (
        (full_kl(), "'reference'.*none"),
        (truncated_importance(grpo()), "'logp_raw'"),
        (gspo(), "'log_sequence_ratio'"),
    ):
        with pytest.raises(UserError, match=words):
            objective.per_token(jnp.asarray(Z), bare)
    for make, words in (
        (lambda: kl("k2", importance=True), "k1 or k3"),
        (lambda: full_kl("forward"), "policy||other"),
        (lambda: truncated_importance(grpo(), behavior="sampler"), "raw or warped"),
        (lambda: distill_top_k(teacher=None), "stored=True"),
        (lambda: grpo(dual_clip=0.5).per_token(jnp.asarray(Z), BATCH), "larger than 1"),
        (lambda: js_divergence(Z, Z, 1.0), "between 0 and 1"),
        (lambda: kl_estimate(Z[:, 0], Z[:, 0], "k4"), "k1, k2 or k3"),
    ):
        with pytest.raises(ValueError, match=words.replace("|", r"\|")):
            make()


def test_stored_top_k_is_what_the_models_give() -> None:
    """Two passes that store, and one pass that sees both models, are the same loss."""
    measured = top_k(K)(jnp.asarray(Z), BATCH)
    kept = replace(BATCH, extra=measured, others={})
    kept = replace(kept, extra={**measured, **teacher_at_top_k()(jnp.asarray(BATCH.others["teacher"]), kept)})
    stored, _ = distill_top_k(K, stored=True, teacher=None).per_token(jnp.asarray(Z), kept)
    seen, _ = distill_top_k(K).per_token(jnp.asarray(Z), BATCH)
    np.testing.assert_allclose(stored, seen, rtol=1e-6)


def test_a_stored_teacher_bounds_the_exact_divergence_and_reaches_it() -> None:
    exact = full_kl("other||policy", other="teacher").per_token(jnp.asarray(Z), BATCH)[0]
    previous = np.zeros(N)
    for k in (1, K, REAL):
        ids = np.argsort(-BATCH.others["teacher"], axis=1)[:, :k]
        logp = np.take_along_axis(log_softmax(BATCH.others["teacher"]), ids, 1).astype(np.float32)
        stored = replace(BATCH, extra={"teacher_ids": ids, "teacher_logp": logp})
        loss = lambda z, stored=stored: distill_stored().per_token(z, stored)[0]  # noqa: E731
        value = np.asarray(loss(jnp.asarray(Z)))
        assert (value >= previous - 1e-6).all()
        assert np.isfinite(jax.grad(lambda z: loss(z).sum())(jnp.asarray(Z))).all()  # noqa: B023
        previous = value
    np.testing.assert_allclose(previous, exact, atol=1e-6)


PACKED = np.array([[1, 1, 0, 1, 0, 0], [1, 0, 1, 1, 1, 0]], np.float32)
SEQUENCE = np.array([[0, 0, 0, 3, 3, 5], [6, 6, 8, 8, 8, 11]])


@pytest.mark.parametrize("reducer", [token_mean, sequence_mean, constant_length(10)])
def test_packed_rows_reduce_as_single_rows_do(reducer) -> None:
    rows = np.zeros((4, 6), np.float32)
    rows[0, :3], rows[1, :2], rows[2, :2], rows[3, :3] = PACKED[0, :3], PACKED[0, 3:5], PACKED[1, :2], PACKED[1, 2:5]
    apart = np.asarray(reducer(rows))
    packed = np.asarray(reducer(PACKED, SEQUENCE))
    together = np.concatenate([packed[0, :5], packed[1, :5]])
    np.testing.assert_allclose(together, [*apart[0, :3], *apart[1, :2], *apart[2, :2], *apart[3, :3]], rtol=1e-6)
    assert (packed[PACKED == 0] == 0).all()


def test_label_weights_weigh_tokens_and_sequences() -> None:
    loss = np.array([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    weight = np.array([[1, 0.5, 0], [2, 2, 0]], np.float32)
    total = lambda reducer, w=weight: float((loss * np.asarray(reducer(w))).sum())  # noqa: E731
    np.testing.assert_allclose(total(token_mean), (1 + 1 + 16 + 32) / 5.5, rtol=1e-6)
    np.testing.assert_allclose(total(sequence_mean), ((1 + 1) / 2 + (16 + 32) / 2) / (0.75 + 2), rtol=1e-6)
    np.testing.assert_allclose(total(constant_length(4)), (1 + 1 + 16 + 32) / 8, rtol=1e-6)
    for reducer in (token_mean, sequence_mean):
        np.testing.assert_allclose(total(reducer), total(reducer, 2 * weight), rtol=1e-6)
    for reducer in (token_mean, sequence_mean, constant_length(4)):
        assert not np.asarray(reducer(np.zeros((2, 3), np.float32))).any()


REWARDS = np.array([[1, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, np.nan]])


def test_advantages_equal_their_formulas() -> None:
    third = -np.sqrt(1 / 3)
    np.testing.assert_allclose(group_advantages(REWARDS)[0], [np.sqrt(3), third, third, third], atol=1e-5)
    np.testing.assert_allclose(group_advantages(REWARDS, std="sample")[0], [1.5, -0.5, -0.5, -0.5], atol=1e-5)
    np.testing.assert_allclose(group_advantages(REWARDS, std="none")[0], [0.75, -0.25, -0.25, -0.25], atol=1e-7)
    np.testing.assert_allclose(leave_one_out(REWARDS)[0], [1, -1 / 3, -1 / 3, -1 / 3], atol=1e-7)
    np.testing.assert_allclose(leave_one_out(REWARDS)[2], [-1, 0.5, 0.5, 0], atol=1e-7)
    centred = np.array([0.75, -0.25, -0.25, -0.25, 0, 0, 0, 0, -2 / 3, 1 / 3, 1 / 3])
    expected = np.append(centred / centred.std(), 0).reshape(3, 4)
    np.testing.assert_allclose(batch_advantages(REWARDS), expected, atol=1e-5)
    seen = REWARDS[np.isfinite(REWARDS)]
    expected = np.append((seen - seen.mean()) / seen.std(), 0).reshape(3, 4)
    np.testing.assert_allclose(batch_advantages(REWARDS, baseline="batch"), expected, atol=1e-5)
    for bad in (lambda: group_advantages(REWARDS, std="both"), lambda: batch_advantages(REWARDS, baseline="none")):
        with pytest.raises(ValueError, match="use"):
            bad()


def test_statistics_come_before_any_filter() -> None:
    """The batch's deviation counts the groups that the update will drop."""
    mixed, with_silent = REWARDS[:1], REWARDS[:2]
    np.testing.assert_allclose(batch_advantages(with_silent)[0], np.sqrt(2) * batch_advantages(mixed)[0], rtol=1e-5)


@settings(deadline=None)  # a busy machine is no fault of the function
@given(
    arrays.arrays(
        np.float64, st.tuples(st.integers(1, 4), st.integers(1, 8)), elements=st.sampled_from([0.1, 0.3, 0.7, 1.0])
    ),
    st.floats(-1e-16, 1e-16),
)
def test_advantages_sum_to_zero_and_equal_groups_are_exactly_zero(rewards: np.ndarray, residue: float) -> None:
    rewards = rewards + residue * np.arange(rewards.shape[1])
    for name, estimate in ADVANTAGES.items():
        a = estimate(rewards)
        assert a.shape == rewards.shape
        assert a.dtype == np.float32
        if name == "reinforce++":
            np.testing.assert_allclose(a.sum(), 0, atol=1e-4)
            continue
        np.testing.assert_allclose(a.sum(1), 0, atol=1e-4)
        for row, values in zip(a, rewards, strict=True):
            assert (row == 0).all() == (len(set(np.round(values, 9))) == 1)


def test_equal_rewards_added_in_different_orders_are_equal() -> None:
    a, b = 0.1 + 0.2, 0.3
    assert a != b
    for estimate in ADVANTAGES.values():
        assert not estimate(np.array([[a, b, b, a]])).any()
        assert not estimate(np.float32([[0.1 + 0.7, 0.8, 0.8, np.float32(0.1) + np.float32(0.7)]])).any()
        assert estimate(np.array([[1e-9, 0, 0, 1e-9]])).any()
    assert signal_shares(np.array([[a, b], [1, 0]]))["groups_mixed"] == 0.5


def test_a_response_without_a_verdict_leaves_its_group_alone() -> None:
    for name, estimate in ADVANTAGES.items():
        with_gap = estimate(np.array([[1.0, np.nan, 0.0, 0.0], [np.nan] * 4]))
        without = estimate(np.array([[1.0, 0.0, 0.0]]))
        np.testing.assert_allclose(with_gap[0, [0, 2, 3]], without[0], err_msg=name)
        assert with_gap[0, 1] == 0
        assert not with_gap[1].any()
    third = pytest.approx(1 / 3)
    shares = {"groups_all_pass": third, "groups_all_fail": third, "groups_mixed": third}
    assert signal_shares(np.array([[1, np.nan], [0, 0], [0, 1], [np.nan, np.nan]])) == shares
    assert np.isnan(signal_shares(np.array([[np.nan]]))["groups_all_fail"])


def test_overlong_penalty_is_a_ramp() -> None:
    got = overlong_penalty(np.array([0, 10, 12, 15, 20, 30]), longest=20, buffer=10)
    np.testing.assert_allclose(got, [0, 0, -0.2, -0.5, -1, -1])
    for buffer in (0, 21):
        with pytest.raises(ValueError, match="buffer"):
            overlong_penalty(np.array([1]), longest=20, buffer=buffer)


def test_penalty_in_the_reward_counts_sampled_tokens_only() -> None:
    logp, ref = np.log(np.full((4, 3), 0.5)), np.log(np.full((4, 3), 0.25))
    logp[3, 2] = -np.inf
    counted = np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]], bool)
    k1 = np.asarray(kl_estimate(logp, ref, "k1"))
    got = penalised_rewards(np.array([[1, 0], [np.nan, 1]]), k1, counted, 0.1)
    np.testing.assert_allclose(got, [[1 - 0.3 * np.log(2), -0.1 * np.log(2)], [np.nan, 1 - 0.2 * np.log(2)]], rtol=1e-6)


def test_divergences_where_a_model_excludes_a_token() -> None:
    p, q = jnp.array([0.0, -jnp.inf]), jnp.array([0.0, 0.0])
    np.testing.assert_allclose(kl_divergence(p, q), np.log(2), rtol=1e-6)
    assert kl_divergence(q, p) == np.inf


def test_combining_is_checked_and_scales_values_not_metrics() -> None:
    with pytest.raises(ValueError, match="reducer"):
        combine(grpo(), kl(reducer=sequence_mean))
    with pytest.raises(ValueError, match="at least one"):
        combine()
    z = jnp.asarray(Z)
    with pytest.raises(ValueError, match="kl_k2"):
        combine(kl("k2"), kl("k2")).per_token(z, BATCH)
    mine = Objective(lambda z, b: (z[:, 0], {"first": z[:, 0]}))
    value, metrics = (mine * 2.0).per_token(z, BATCH)
    np.testing.assert_allclose(value, 2 * z[:, 0])
    np.testing.assert_allclose(metrics["first"], z[:, 0])
    both = 0.5 * gspo() + 0.1 * kl(reducer=sequence_mean)
    assert len(both.prepare) == 1
    assert both.reducer is sequence_mean

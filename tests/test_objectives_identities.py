"""What the estimators estimate, proven by enumeration: every outcome is weighed by its probability, none is drawn."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vsr_jax.objectives.distill import distill_sampled, distill_top_k
from vsr_jax.objectives.kl import full_jsd, full_kl, kl
from vsr_jax.objectives.policy import cispo, grpo, gspo, reinforce, truncated_importance
from vsr_jax.objectives.types import Objective, TokenBatch

V = 4
RNG = np.random.default_rng(3)
POLICY, OLD, REFERENCE, TEACHER, SAMPLER = (jnp.asarray(RNG.normal(size=V), jnp.float32) for _ in range(5))
ADVANTAGE = jnp.asarray(RNG.normal(size=V), jnp.float32)
FREE = {"clip_low": 1.0, "clip_high": 1e6}
"""Clip ranges that never bind."""


def outcomes(old: jax.Array, advantage: jax.Array = ADVANTAGE) -> TokenBatch:
    """One token for each possible outcome y, drawn by softmax(old)."""
    logp = jax.nn.log_softmax(old)
    return TokenBatch(
        target=jnp.arange(V),
        weight=jnp.ones(V),
        advantage=advantage,
        logp_old=logp,
        logp_ref=jax.nn.log_softmax(REFERENCE),
        position=jnp.zeros(V, jnp.int32),
        extra={"logp_raw": jax.nn.log_softmax(SAMPLER)},
        others={"reference": jnp.tile(REFERENCE, (V, 1)), "teacher": jnp.tile(TEACHER, (V, 1))},
    )


def gradient(objective: Objective, z: jax.Array, old: jax.Array, drawn_by: jax.Array | None = None) -> np.ndarray:
    """The exact expectation, over y ~ softmax(drawn_by), of the loss's gradient at z."""
    probability = jax.nn.softmax(old if drawn_by is None else drawn_by)
    loss = lambda z: (probability * objective.per_token(jnp.tile(z, (V, 1)), outcomes(old))[0]).sum()  # noqa: E731
    return np.asarray(jax.jit(jax.grad(loss))(z))


def kl64(p, q):
    return (jax.nn.softmax(p) * (jax.nn.log_softmax(p) - jax.nn.log_softmax(q))).sum()


def exact(of) -> np.ndarray:
    return np.asarray(jax.jit(jax.grad(of))(POLICY))


TRUE_KL = exact(lambda z: kl64(z, REFERENCE))
REVERSED_KL = exact(lambda z: kl64(REFERENCE, z))
TRUE_DISTILL = exact(lambda z: kl64(z, TEACHER))
TRUE_REWARD = exact(lambda z: -(jax.nn.softmax(z) * ADVANTAGE).sum())


def same(got, expected):
    np.testing.assert_allclose(got, expected, atol=2e-6)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (kl("k1"), np.zeros(V)),
        (kl("k2"), TRUE_KL),
        (kl("k3"), REVERSED_KL),
        (kl("k1", importance=True), TRUE_KL),
        (kl("k3", importance=True), TRUE_KL),
        (full_kl("policy||other"), TRUE_KL),
        (full_kl("other||policy"), REVERSED_KL),
        (reinforce(), TRUE_REWARD),
        (grpo(), TRUE_REWARD),
        (cispo(), TRUE_REWARD),
        (distill_sampled(), TRUE_DISTILL),
        (distill_top_k(V), TRUE_DISTILL),
    ],
    ids=lambda x: "",
)
def test_expected_gradients_on_policy(objective: Objective, expected: np.ndarray) -> None:
    same(gradient(objective, POLICY, POLICY), expected)
    assert np.abs(TRUE_KL - REVERSED_KL).max() > 0.05


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (kl("k1", importance=True), TRUE_KL),
        (kl("k3", importance=True), TRUE_KL),
        (full_kl("policy||other"), TRUE_KL),
        (grpo(**FREE), TRUE_REWARD),
        (cispo(**FREE), TRUE_REWARD),
    ],
    ids=lambda x: "",
)
def test_expected_gradients_off_policy(objective: Objective, expected: np.ndarray) -> None:
    same(gradient(objective, POLICY, OLD), expected)


def test_terms_without_a_ratio_are_wrong_off_policy() -> None:
    for objective, expected in ((kl("k2"), TRUE_KL), (kl("k3"), REVERSED_KL), (reinforce(), TRUE_REWARD)):
        assert np.abs(gradient(objective, POLICY, OLD) - expected).max() > 0.05


def test_k1_as_a_reward_has_the_true_gradient() -> None:
    k1 = jax.nn.log_softmax(POLICY) - jax.nn.log_softmax(REFERENCE)
    loss = lambda z: (  # noqa: E731
        jax.nn.softmax(POLICY) * reinforce().per_token(jnp.tile(z, (V, 1)), outcomes(POLICY, -k1))[0]
    ).sum()
    same(jax.grad(loss)(POLICY), TRUE_KL)


def test_importance_weights_undo_the_sampler() -> None:
    """Tokens drawn by another distribution give the trainer's gradient when no weight is cut, and not otherwise."""
    by_sampler = gradient(truncated_importance(reinforce(), cap=1e9), POLICY, POLICY, drawn_by=SAMPLER)
    same(by_sampler, TRUE_REWARD)
    assert np.abs(gradient(reinforce(), POLICY, POLICY, drawn_by=SAMPLER) - TRUE_REWARD).max() > 0.05


def test_fewer_top_tokens_leave_out_mass_and_only_that() -> None:
    """With k < V the gradient is that of the sum over the k tokens of sg(w A / S) S, no more."""
    for k in (1, 3):
        top = np.argsort(-np.asarray(POLICY))[:k]
        old = jax.nn.log_softmax(POLICY)[top]
        advantage = jax.nn.softmax(old) * (jax.nn.log_softmax(TEACHER)[top] - old)
        expected = exact(
            lambda z, top=top, a=advantage, old=old: -(jnp.exp(jax.nn.log_softmax(z)[top] - old) * a).sum()
        )
        same(gradient(distill_top_k(k), POLICY, POLICY), expected)


def test_jsd_tends_to_both_kls_and_is_symmetric_in_the_middle() -> None:
    value = lambda beta, z, other: float(  # noqa: E731
        full_jsd(beta, other="teacher").per_token(z[None], replace(outcomes(OLD), others={"teacher": other[None]}))[0][
            0
        ]
    )
    small = 1e-3
    np.testing.assert_allclose(value(small, POLICY, TEACHER) / small, kl64(TEACHER, POLICY), rtol=2e-2)
    np.testing.assert_allclose(value(1 - small, POLICY, TEACHER) / small, kl64(POLICY, TEACHER), rtol=2e-2)
    np.testing.assert_allclose(value(0.5, POLICY, TEACHER), value(0.5, TEACHER, POLICY), rtol=1e-5)
    assert 0 < value(0.5, POLICY, TEACHER) < np.log(2)


def test_over_a_sequence_only_the_reward_form_counts_later_states() -> None:
    """Two tokens, the second conditioned on the first. KL in the reward has the gradient of the sequence's KL; k2 in
    the loss has that of the per-position KLs at fixed prefixes, which leaves out how a token changes what follows."""
    first, second = np.meshgrid(np.arange(V), np.arange(V), indexing="ij")
    first, second = first.ravel(), second.ravel()
    tables = lambda: (jnp.asarray(RNG.normal(size=V)), jnp.asarray(RNG.normal(size=(V, V))))  # noqa: E731
    policy, reference = tables(), tables()

    def log_parts(table):
        return jax.nn.log_softmax(table[0])[first], jax.nn.log_softmax(table[1])[first, second]

    def tokens(advantage) -> TokenBatch:
        ref = jnp.concatenate(log_parts(reference))
        zero = jnp.zeros(2 * V * V)
        return TokenBatch(jnp.concatenate([first, second]), zero + 1, zero + advantage, zero, ref, zero)

    def expected_gradient(objective, advantage):
        probability = jnp.exp(sum(log_parts(policy)))

        def loss(table):
            logits = jnp.concatenate([jnp.tile(table[0], (V * V, 1)), table[1][first]])
            value = objective.per_token(logits, tokens(advantage))[0]
            return (probability * value.reshape(2, -1).sum(0)).sum()

        return jax.jit(jax.grad(loss))(policy)

    def sequence_kl(table):
        logp = sum(log_parts(table))
        return (jnp.exp(logp) * (logp - sum(log_parts(reference)))).sum()

    def per_position_kl(table):
        reach = jax.lax.stop_gradient(jax.nn.softmax(table[0]))
        return kl64(table[0], reference[0]) + (reach * jax.vmap(kl64)(table[1], reference[1])).sum()

    k1 = sum(log_parts(policy)) - sum(log_parts(reference))
    of_sequence, of_positions = (jax.jit(jax.grad(f))(policy) for f in (sequence_kl, per_position_kl))
    jax.tree.map(same, expected_gradient(reinforce(), -jnp.tile(k1, 2)), of_sequence)
    jax.tree.map(same, expected_gradient(kl("k2"), 0.0), of_positions)
    assert np.abs(of_sequence[0] - of_positions[0]).max() > 0.05


@pytest.mark.parametrize("packed", [False, True])
def test_gspo_has_the_gradient_of_the_sequence_ratio(packed: bool) -> None:
    """Two sequences of 3 and 2 tokens against -mean of min(s A, clip(s) A), differentiated through s itself."""
    length, advantage = np.array([3, 2]), np.array([1.0, -2.0])
    counted = np.arange(3) < length[:, None]
    z = jnp.asarray(RNG.normal(size=(2, 3, V)), jnp.float32)
    target = RNG.integers(0, V, (2, 3))
    logp = lambda z: jnp.take_along_axis(jax.nn.log_softmax(z), target[..., None], -1)[..., 0]  # noqa: E731
    old = logp(z) + jnp.asarray(RNG.normal(size=(2, 3)) * 0.05, jnp.float32)

    def direct(z):
        s = jnp.exp(jnp.where(counted, logp(z) - old, 0).sum(1) / length)
        return -jnp.minimum(s * advantage, jnp.clip(s, 0.8, 1.2) * advantage).mean()

    objective = gspo(clip_low=0.2, clip_high=0.2)
    shape = (lambda x: jnp.asarray(x).reshape(1, 6, *jnp.shape(x)[2:])) if packed else jnp.asarray
    sequence = jnp.array([[0, 0, 0, 3, 3, 3]]) if packed else None
    tokens = TokenBatch(
        target=shape(target),
        weight=shape(counted.astype(np.float32)),
        advantage=shape(np.broadcast_to(advantage[:, None], (2, 3)).astype(np.float32)),
        # Beyond a sequence's end nothing is known; whatever stands there must not count.
        logp_old=shape(jnp.where(counted, old, -jnp.inf)),
        logp_ref=shape(np.zeros((2, 3), np.float32)),
        position=shape(np.zeros((2, 3), np.int32)),
    )
    flat = jax.tree.map(lambda x: x.reshape(6, *x.shape[2:]), tokens)
    measured = objective.prepare[0].measure(z.reshape(6, V), flat).reshape(tokens.weight.shape)
    extra = objective.prepare[0].gather(measured, tokens, sequence)
    flat = replace(flat, extra=jax.tree.map(lambda x: x.reshape(6), extra))
    coefficient = objective.reducer(tokens.weight, sequence).reshape(6)

    def loss(z):
        value = objective.per_token(z.reshape(6, V), flat)[0]
        return jnp.where(counted.reshape(6), value * coefficient, 0).sum()

    (value, got), (expected, true) = (jax.jit(jax.value_and_grad(f))(z) for f in (loss, direct))
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    same(got, true)
    assert np.abs(true).max() > 0.05

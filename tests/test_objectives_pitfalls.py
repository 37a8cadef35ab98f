"""Inputs on which losses of public tools have gone wrong, with the numbers that are right, and others of their kind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import rollouts_of, table_model

from vsr_jax.objectives.advantages import group_advantages
from vsr_jax.objectives.kl import full_jsd, full_kl, kl, kl_estimate
from vsr_jax.objectives.policy import grpo, reinforce
from vsr_jax.objectives.reducers import constant_length, sequence_mean, token_mean
from vsr_jax.objectives.statistics import entropy, js_divergence, kl_divergence
from vsr_jax.objectives.types import TokenBatch
from vsr_jax.sampling.types import LENGTH
from vsr_jax.scoring import target_logprob, token_logprobs
from vsr_jax.training.batches import grouped_batch, pack
from vsr_jax.training.step import token_statistics

NINF = -np.inf


def tokens(target, **fields) -> TokenBatch:
    zero = jnp.zeros(len(target))
    plain = {"weight": zero + 1, "advantage": zero, "logp_old": zero, "logp_ref": zero, "position": zero}
    return TokenBatch(target=jnp.asarray(target), **{**plain, **fields})


@pytest.mark.parametrize(
    ("p", "ref", "k1", "k2", "k3"),
    [
        (0.5, 0.25, 0.693147, 0.240227, 0.193147),
        (0.25, 0.5, -0.693147, 0.240227, 0.306853),
        (0.3, 0.3, 0.0, 0.0, 0.0),
        (0.9, 0.1, 2.197225, 2.413898, 1.308336),
    ],
)
def test_kl_estimators_have_their_values_and_roles(p, ref, k1, k2, k3) -> None:
    """Swapping the roles is seen in k3; k3 is never negative, k1 may be."""
    for name, expected in (("k1", k1), ("k2", k2), ("k3", k3)):
        np.testing.assert_allclose(kl_estimate(jnp.log(p), jnp.log(ref), name), expected, atol=1e-6)
        term, metrics = kl(name).per_token(
            jnp.log(jnp.array([[p, 1 - p]])), tokens([0], logp_ref=jnp.log(jnp.array([ref])))
        )
        np.testing.assert_allclose(term, [expected], atol=1e-6)
        np.testing.assert_allclose(metrics[f"kl_{name}"], [expected], atol=1e-6)


def test_k3_keeps_its_digits_near_zero() -> None:
    """exp(d) - d - 1 by plain subtraction is wrong by about its value at these d in float32."""
    d = jnp.float32([1e-4, -1e-4, 3e-5])
    np.testing.assert_allclose(kl_estimate(-d, jnp.zeros(3), "k3"), np.float64(d) ** 2 / 2, rtol=1e-2)
    assert (np.abs(np.exp(d) - d - 1 - d**2 / 2) > 0.9 * d**2 / 2).all()


@jax.jit
def two_token_gradients(t, ref):
    """Expected gradients at t of k1, k2, k3 and of k1 as a reward; gradients and values of both exact divergences."""
    reference = jnp.log(jnp.stack([ref, 1 - ref]))
    logits = lambda t: jnp.stack([t, 0.0 * t])  # noqa: E731
    p = jax.nn.softmax(logits(t))

    def expected(objective, advantage=0.0):
        batch = tokens([0, 1], logp_ref=reference, logp_old=jnp.log(p), advantage=jnp.zeros(2) + advantage)
        return jax.grad(lambda t: (p * objective.per_token(jnp.tile(logits(t), (2, 1)), batch)[0]).sum())(t)

    true, back = (lambda t: kl_divergence(logits(t), reference)), (lambda t: kl_divergence(reference, logits(t)))
    estimates = [expected(kl(k)) for k in ("k1", "k2", "k3")]
    estimates.append(expected(reinforce(), -(jnp.log(p) - reference)))
    return estimates, jax.grad(true)(t), jax.grad(back)(t), true(t), back(t)


@pytest.mark.parametrize(("t", "ref"), [(0.0, 0.25), (1.0, 0.6), (-2.0, 0.5)])
def test_kl_gradients_of_a_two_token_policy(t, ref) -> None:
    """k1 regularises nothing as a loss; k2 has the true gradient, k3 that of the KL the other way round."""
    estimates, true, back, value, value_back = two_token_gradients(t, ref)
    np.testing.assert_allclose(estimates, [0, true, back, true], atol=1e-6)
    if (t, ref) == (0.0, 0.25):
        np.testing.assert_allclose(estimates, [0, 0.274653, 0.25, 0.274653], atol=1e-6)
        np.testing.assert_allclose([value, value_back], [0.143841, 0.130812], atol=1e-6)


@jax.jit
def values_and_gradients(z):
    q = jnp.array([[0.3, -0.2, NINF]])
    functions = {
        "entropy": entropy,
        "js": lambda z: js_divergence(z, q),
        "js_swapped": lambda z: js_divergence(q, z, 0.2),
        "logp": lambda z: target_logprob(z, z.argmax(-1)),
        "kl_to_itself": lambda z: kl_divergence(z, z),
    }
    return {name: jax.value_and_grad(lambda z, f=f: f(z).sum())(z) for name, f in functions.items()}


@pytest.mark.parametrize("z", [[0.0, 0.0, NINF], [NINF, 1.0, NINF], [0.0, 0.0, -1e30], [5.0, NINF, -200.0]])
def test_minus_infinity_in_logits_reaches_no_statistic_and_no_gradient(z) -> None:
    z = np.array([z], np.float32)
    results = values_and_gradients(z)
    for name, (value, gradient) in results.items():
        assert np.isfinite(value), name
        assert np.isfinite(gradient).all(), name
        assert (np.asarray(gradient)[np.isneginf(z)] == 0).all(), name
    p = np.exp(z.astype(np.float64) - np.logaddexp.reduce(z.astype(np.float64)[0]))
    np.testing.assert_allclose(results["entropy"][0], -(p[p > 0] * np.log(p[p > 0])).sum(), atol=1e-6)


def test_entropy_and_js_of_the_masked_examples() -> None:
    np.testing.assert_allclose(entropy(jnp.array([0.0, 0.0, NINF])), 0.693147, atol=1e-6)
    js = jax.jit(jax.value_and_grad(js_divergence))
    p = jnp.array([0.0, NINF])
    value, gradient = js(p, jnp.array([0.0, 0.0]))
    np.testing.assert_allclose(value, 0.215762, atol=1e-6)
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(js(p, jnp.array([NINF, 0.0]))[0], np.log(2), rtol=1e-6)


def test_advantages_are_taken_over_the_group_with_the_named_deviation() -> None:
    rewards = np.array([[1, 0, 0, 0], [1, 1, 1, 1]])
    third = -0.577350
    np.testing.assert_allclose(group_advantages(rewards), [[1.732051, third, third, third], [0] * 4], atol=1e-5)
    np.testing.assert_allclose(group_advantages(rewards, std="sample")[0], [1.5, -0.5, -0.5, -0.5], atol=1e-5)
    assert (group_advantages(rewards)[1] == 0).all()
    for std in ("population", "sample", "none"):
        assert group_advantages(np.array([[0.7]]), std=std) == [[0]]
        np.testing.assert_allclose(group_advantages(rewards[::-1], std=std)[1], group_advantages(rewards, std=std)[0])


@pytest.mark.parametrize("pad", [0, 5])
def test_three_aggregations_give_three_numbers_whatever_the_padding(pad: int) -> None:
    weight = np.zeros((2, 8 + pad), np.float32)
    weight[0, :2], weight[1, :8] = 1, 1
    loss = np.where(weight > 0, [[-1.0], [1.0]], 1e9)
    total = lambda reducer: float(np.where(weight > 0, loss * np.asarray(reducer(weight)), 0).sum())  # noqa: E731
    np.testing.assert_allclose(total(sequence_mean), 0.0, atol=1e-6)
    np.testing.assert_allclose(total(token_mean), 0.6, rtol=1e-6)
    np.testing.assert_allclose(total(constant_length(10)), 0.3, rtol=1e-6)


@pytest.mark.parametrize("eos", [151643, 0])
def test_the_stop_token_is_trained_and_padding_of_the_same_id_is_not(eos: int) -> None:
    stopped = rollouts_of([[1]], [[5, 9, eos]], width=5)
    stopped.tokens[0, 3:] = eos
    assert grouped_batch(stopped, np.ones((1, 1)), widths=(1, 5)).tokens.weight.tolist() == [[[1, 1, 1, 0, 0]]]
    cut = rollouts_of([[1]], [[5, 9, 7, eos, 8]])
    cut.finish_reason[:] = LENGTH
    assert grouped_batch(cut, np.ones((1, 1)), widths=(1, 5)).tokens.weight.tolist() == [[[1] * 5]]
    assert pack([([1], [5, 9, eos])], rows=1, width=6)[0].tokens.weight.tolist() == [[1, 1, 1, 0, 0, 0]]


def test_every_token_is_scored_by_the_row_before_it() -> None:
    """A table that gives 0.9 to the next token of a, b, c, d and something else to every other pair."""
    table = np.full((6, 6), 0.02)
    for i in range(4):
        table[i, i + 1] = 0.9
    table += np.arange(36).reshape(6, 6) / 1e4
    table /= table.sum(1, keepdims=True)
    config, params = table_model(table)
    expected = np.log([table[1, 2], table[2, 3]])
    np.testing.assert_allclose(token_logprobs(config, params, np.array([[0, 1, 2, 3]]))[0, 1:], expected, atol=1e-5)
    np.testing.assert_allclose(np.exp(expected), 0.9, atol=0.01)

    def score(batch):
        of_target = lambda logits, tokens: target_logprob(logits, tokens.target)  # noqa: E731
        return np.asarray(jax.jit(lambda p: token_statistics(config, p, batch, of_target))(params))

    grouped = grouped_batch(rollouts_of([[0, 1], [0]], [[2, 3], [1, 2]]), np.ones((2, 1)), widths=(3, 4))
    got = score(grouped)
    np.testing.assert_allclose(got[0, 0, :2], expected, atol=1e-5)
    np.testing.assert_allclose(got[1, 0, :2], np.log([table[0, 1], table[1, 2]]), atol=1e-5)
    packed, _ = pack([([3, 2], [1]), ([0, 1], [2, 3])], rows=1, width=9)
    got = score(packed)[packed.tokens.weight > 0]
    np.testing.assert_allclose(got, [np.log(table[2, 1]), *expected], atol=1e-5)


@pytest.mark.parametrize(
    ("advantage", "ratio", "clip_high", "objective", "flows"),
    [
        (-1.0, 3.0, 0.2, -3.0, True),
        (1.0, 3.0, 0.2, 1.2, False),
        (1.0, 3.0, 0.28, 1.28, False),
        (1.0, 3.0, 5.0, 3.0, True),
        (1.0, 0.5, 0.2, 0.5, True),
        (-1.0, 0.5, 0.2, -0.8, False),
        (2.0, 1.1, 0.2, 2.2, True),
    ],
)
def test_a_ratio_is_clipped_only_where_it_would_be_optimistic(advantage, ratio, clip_high, objective, flows) -> None:
    logp = jnp.log(jnp.array([[0.6, 0.4]]))
    batch = tokens([0], advantage=jnp.array([advantage]), logp_old=logp[:, 0] - jnp.log(ratio))
    loss = lambda z: grpo(clip_low=0.2, clip_high=clip_high).per_token(z, batch)[0].sum()  # noqa: E731
    value, gradient = jax.value_and_grad(loss)(logp)
    np.testing.assert_allclose(-value, objective, rtol=1e-5)
    assert bool(jnp.any(gradient != 0)) == flows


def test_dual_clip_cuts_only_huge_ratios_of_negative_advantages() -> None:
    logp = jnp.log(jnp.array([[0.6, 0.4]]))
    for advantage, ratio, objective, flows in (
        (-1.0, 5.0, -3.0, False),
        (-1.0, 2.0, -2.0, True),
        (1.0, 5.0, 1.2, False),
    ):
        batch = tokens([0], advantage=jnp.array([advantage]), logp_old=logp[:, 0] - jnp.log(ratio))
        term = grpo(clip_high=0.2, dual_clip=3.0)
        value, gradient = jax.value_and_grad(lambda z: term.per_token(z, batch)[0].sum())(logp)  # noqa: B023
        np.testing.assert_allclose(-value, objective, rtol=1e-5)
        assert bool(jnp.any(gradient != 0)) == flows


@pytest.mark.parametrize(("z", "t", "expected"), [([2.0, 0.0], 0.5, -0.018150), ([2.0, 0.0], 2.0, -0.313262)])
def test_logits_are_divided_by_the_temperature_before_normalising(z, t, expected) -> None:
    z = jnp.array([z])
    np.testing.assert_allclose(target_logprob(z, jnp.array([0]), t), expected, atol=1e-6)
    batch = tokens([0], logp_old=jnp.array([expected]), logp_ref=jnp.array([expected]), advantage=jnp.ones(1))
    np.testing.assert_allclose(grpo(temperature=t).per_token(z, batch)[1]["ratio"], 1, atol=1e-5)
    np.testing.assert_allclose(kl("k1", temperature=t).per_token(z, batch)[0], 0, atol=1e-6)


@pytest.mark.parametrize(
    ("student", "teacher", "reverse", "forward"),
    [([0.5, 0.5], [0.25, 0.75], 0.143841, 0.130812), ([0.25, 0.75], [0.5, 0.5], 0.130812, 0.143841)],
)
def test_distillation_divergences_have_the_direction_of_their_formula(student, teacher, reverse, forward) -> None:
    z = jnp.log(jnp.array([student]))
    for sampled in (0, 1):  # over the whole vocabulary: it does not matter which token was sampled
        batch = tokens([sampled], others={"teacher": jnp.log(jnp.array([teacher]))})
        value = lambda term: float(term.per_token(z, batch)[0][0])  # noqa: B023, E731
        np.testing.assert_allclose(value(full_kl("policy||other", other="teacher")), reverse, atol=1e-6)
        np.testing.assert_allclose(value(full_kl("other||policy", other="teacher")), forward, atol=1e-6)
        mixture = 0.3 * np.array(teacher) + 0.7 * np.array(student)
        kl64 = lambda p, q: (np.array(p) * np.log(np.array(p) / q)).sum()  # noqa: E731
        expected = 0.3 * kl64(teacher, mixture) + 0.7 * kl64(student, mixture)
        np.testing.assert_allclose(value(full_jsd(0.3)), expected, atol=1e-6)
        assert 0 < value(full_jsd()) < np.log(2)

"""Losses inside the update: a second model in the chunked pass, what is prepared once a step, and what never exists."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_models import rollouts_of, tiny_model

from vsr_jax.errors import UserError
from vsr_jax.model import transformer
from vsr_jax.objectives.kl import full_jsd, full_kl, kl
from vsr_jax.objectives.policy import gspo
from vsr_jax.objectives.reducers import constant_length, sequence_mean, token_mean
from vsr_jax.objectives.statistics import js_divergence, kl_divergence
from vsr_jax.objectives.types import Objective, Prepare
from vsr_jax.training.batches import grouped_batch, pack, sequence_ids
from vsr_jax.training.step import Model, init_state, loss_and_metrics, make_update

PROMPTS = [[1, 2, 3], [4]]
RESPONSES = [[5, 6, 0], [7, 8], [9, 10, 11, 12], [0, 0]]
ADVANTAGES = np.array([[1.0, -1.0], [-2.0, 2.0]], np.float32)
CONFIG, PARAMS = tiny_model(0)
# Another size than the policy's, and a vocabulary whose padding is longer.
WIDE, WIDE_PARAMS = tiny_model(2, vocab=16, hidden=12)
OTHERS = {"teacher": Model(replace(WIDE, num_tokens=13), WIDE_PARAMS)}
OBJECTIVE = (
    gspo(clip_low=0.3, clip_high=0.3)
    + 0.3 * kl("k1", importance=True, other="teacher", reducer=sequence_mean)
    + 0.1 * full_kl(other="teacher", reducer=sequence_mean)
    + 0.2 * full_jsd(0.3, reducer=sequence_mean)
)


@pytest.fixture(scope="module")
def updates():
    """One compiled update for whole batches, and one for micro-batches of a prompt in chunks of five tokens."""
    whole = make_update(CONFIG, OBJECTIVE, optax.sgd(1.0))
    return whole, make_update(CONFIG, OBJECTIVE, optax.sgd(1.0), micro=1, chunk=5)


def change(update, batch, others):
    state, metrics = update(init_state(PARAMS, optax.sgd(1.0)), batch, others)
    return jax.tree.map(lambda old, new: np.asarray(old - new), PARAMS, state.params), metrics


def assert_same(a, b, rtol=1e-6):
    square = lambda tree: sum((np.asarray(x, np.float64) ** 2).sum() for x in jax.tree.leaves(tree))  # noqa: E731
    assert square(b) > 1e-4
    assert square(jax.tree.map(np.subtract, a, b)) ** 0.5 <= rtol * square(b) ** 0.5


def test_gradient_equals_a_plain_expression_over_whole_logits(updates) -> None:
    rollouts = rollouts_of(PROMPTS, RESPONSES)
    got, metrics = change(updates[0], grouped_batch(rollouts, ADVANTAGES), OTHERS)
    texts = [PROMPTS[i // 2] + response for i, response in enumerate(RESPONSES)]
    padded = np.array([text + [0] * (8 - len(text)) for text in texts])

    def all_logits(config, params):
        return transformer.logits(config, params, transformer.hidden_states(config, params, padded))[..., :13]

    def loss(params):
        total, policy, others = 0.0, all_logits(CONFIG, params), all_logits(OTHERS["teacher"].config, WIDE_PARAMS)
        for row, response in enumerate(RESPONSES):
            start = len(PROMPTS[row // 2]) - 1
            z, teacher = (x[row, start : start + len(response)] for x in (policy, others))
            logp, logp_ref = (jax.nn.log_softmax(x)[np.arange(len(response)), np.array(response)] for x in (z, teacher))
            log_ratio = logp - rollouts.logp[row, : len(response)]
            s, a = jnp.exp(log_ratio.mean()), ADVANTAGES.reshape(-1)[row]
            total -= jnp.minimum(s * a, jnp.clip(s, 0.7, 1.3) * a)
            total += 0.3 * (jnp.exp(log_ratio) * (logp - logp_ref)).mean()
            total += 0.1 * kl_divergence(z, teacher).mean() + 0.2 * js_divergence(teacher, z, 0.3).mean()
        return total / len(RESPONSES)

    value, gradient = jax.jit(jax.value_and_grad(loss))(PARAMS)
    np.testing.assert_allclose(metrics["loss"], value, rtol=1e-5)
    assert_same(got, jax.tree.map(np.asarray, gradient), rtol=3e-6)


def test_layout_changes_no_gradient_with_a_teacher_and_a_prepared_ratio(updates) -> None:
    rollouts = rollouts_of(PROMPTS, RESPONSES)
    whole, metrics = change(updates[0], grouped_batch(rollouts, ADVANTAGES), OTHERS)
    other, again = change(updates[1], grouped_batch(rollouts, ADVANTAGES, widths=(5, 7)), OTHERS)
    assert_same(other, whole)
    for name in metrics:
        np.testing.assert_allclose(again[name], metrics[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_forced_token_that_the_sampler_excluded_leaves_the_gradient_finite(updates) -> None:
    rollouts = rollouts_of(PROMPTS, RESPONSES, forced=1)
    assert np.isneginf(rollouts.logp_behavior[:, 0]).all()
    raw, _ = change(updates[0], grouped_batch(rollouts, ADVANTAGES, behavior="raw"), OTHERS)
    warped, metrics = change(updates[0], grouped_batch(rollouts, ADVANTAGES, behavior="warped"), OTHERS)
    assert metrics["applied"]
    assert_same(warped, raw)


def test_a_reference_may_move_without_a_new_compilation(updates) -> None:
    batch = grouped_batch(rollouts_of(PROMPTS, RESPONSES), ADVANTAGES)
    compiled = updates[0]._cache_size()
    before = change(updates[0], batch, OTHERS)[1]["kl_policy_to_teacher"]
    moved = {"teacher": replace(OTHERS["teacher"], params=jax.tree.map(lambda x: 0.5 * x, WIDE_PARAMS))}
    assert abs(change(updates[0], batch, moved)[1]["kl_policy_to_teacher"] - before) > 0.01
    assert updates[0]._cache_size() == compiled


def trace(objective: Objective, others=OTHERS):
    batch = grouped_batch(rollouts_of(PROMPTS, RESPONSES), ADVANTAGES)
    coefficient = jnp.asarray(token_mean(batch.tokens.weight))
    return jax.eval_shape(lambda p: loss_and_metrics(CONFIG, p, batch, coefficient, objective, others), PARAMS)


@pytest.mark.parametrize(
    ("per_token", "words"),
    [
        (lambda z, b: z[:, 0], "must return"),
        (lambda z, b: (z[:, 0].mean(), {}), r"the loss of shape \(\)"),
        (lambda z, b: (z[:, 0], {"mean": z[:, 0].mean()}), r"mean of shape \(\)"),
        (lambda z, b: (z, {}), r"the loss of shape \(.*, 13\)"),
        (lambda z, b: (b.logits_of("master")[:, 0], {}), "model 'master'.*given teacher"),
    ],
)
def test_a_loss_of_the_wrong_shape_is_told_so(per_token, words) -> None:
    with pytest.raises(UserError, match=words):
        trace(Objective(per_token))


def test_models_that_do_not_fit_and_names_used_twice_are_errors() -> None:
    with pytest.raises(UserError, match="model 'teacher' has 16 tokens, the policy 13"):
        trace(full_jsd(), {"teacher": Model(*tiny_model(2, vocab=16))})
    twice = gspo() + Objective(lambda z, b: (z[:, 0], {}), sequence_mean, gspo().prepare)
    update = make_update(CONFIG, twice, optax.sgd(1.0))
    batch = grouped_batch(rollouts_of(PROMPTS, RESPONSES), ADVANTAGES)
    with pytest.raises(ValueError, match="log_sequence_ratio"):
        jax.eval_shape(update, init_state(PARAMS, optax.sgd(1.0)), batch)


def test_only_live_rows_are_prepared_and_every_row_is_where_it_was() -> None:
    """The statistic is the target itself, so that what arrives in `extra` shows which token it came from."""
    seen = []
    prepare = Prepare(
        lambda z, b: (b.target, b.logits_of("teacher")[:, 0]), lambda m, b, s: seen.append(s) or {"own_target": m[0]}
    )
    check = Objective(
        lambda z, b: (z[:, 0], {"moved": (b.stored("own_target") != b.target).astype(jnp.float32)}),
        token_mean,
        (prepare,),
    )
    batch = grouped_batch(rollouts_of(PROMPTS, RESPONSES), ADVANTAGES * np.array([[0], [1]], np.float32), micro=1)
    assert batch.live == 1
    update = make_update(CONFIG, check, optax.sgd(1.0), micro=1, remat=False)
    _, metrics = update(init_state(PARAMS, optax.sgd(1.0)), batch, OTHERS)
    assert metrics["moved"] == 0
    assert seen == [None]


def test_packed_texts_are_the_sequences_of_a_reducer() -> None:
    texts = [([1, 2], [3, 4, 5]), ([], [7, 8]), ([9, 10, 11], [12]), ([3, 4], [5, 6, 7, 8]), ([6] * 4, [1], 0.5)]
    packed, count = pack(texts, rows=2, width=12)
    assert count == 5
    alone = [pack([text], rows=1, width=6)[0].tokens for text in texts]
    target, weight = (np.concatenate([getattr(tokens, name) for tokens in alone]) for name in ("target", "weight"))
    assert not np.array_equal(sequence_ids(packed)[:, 0], sequence_ids(packed)[:, -1])

    def coefficients(target, weight, coefficient):
        return sorted(zip(target[weight != 0], np.asarray(coefficient)[weight != 0], strict=True))

    for reducer in (token_mean, sequence_mean, constant_length(7)):
        together = reducer(packed.tokens.weight, sequence_ids(packed))
        np.testing.assert_allclose(
            coefficients(packed.tokens.target, packed.tokens.weight, together),
            coefficients(target, weight, reducer(weight)),
            rtol=1e-6,
        )
    per_text = np.asarray(sequence_mean(weight)).sum(1)
    np.testing.assert_allclose(per_text, np.array([1, 1, 1, 1, 0.5]) / 4.5, rtol=1e-6)


def test_the_update_reduces_packed_texts_one_by_one() -> None:
    packed, _ = pack([([1, 2], [3, 4, 5]), ([9], [12]), ([3], [5, 6])], rows=1, width=12)
    value = Objective(lambda z, b: (b.target + 0 * z[:, 0], {}), sequence_mean)
    _, metrics = make_update(CONFIG, value, optax.sgd(1.0), remat=False)(init_state(PARAMS, optax.sgd(1.0)), packed)
    np.testing.assert_allclose(metrics["loss"], (4 + 12 + 5.5) / 3, rtol=1e-6)


def test_labels_weigh_one_response_or_each_of_its_tokens() -> None:
    batch, _ = pack([([1], [2, 3, 4], [1, 0.5, 0]), ([], [5, 6], 2), ([7, 8], [9] * 9, range(9))], rows=1, width=10)
    assert batch.tokens.weight.tolist() == [[1, 0.5, 0, 0, 2, 0, 0, 0, 0, 0]]
    cut, _ = pack([([7, 8], [9] * 9, range(9)), ([1] * 9, [2])], rows=2, width=6)
    assert cut.tokens.weight.tolist() == [[0, 0, 1, 2, 3, 0], [0] * 6]


def test_silent_groups_can_be_kept_and_advantages_may_differ_by_token() -> None:
    rollouts = rollouts_of(PROMPTS, RESPONSES)
    nothing = np.zeros((2, 2), np.float32)
    kept = grouped_batch(rollouts, nothing, drop_silent=False, extra={"top_ids": np.ones((4, 4, 3), np.int32)})
    assert kept.live == 2
    assert kept.tokens.weight.sum() == sum(map(len, RESPONSES))
    assert kept.tokens.extra["top_ids"].shape == (*kept.tokens.weight.shape, 3)
    assert grouped_batch(rollouts, nothing).tokens.weight.sum() == 0
    per_token = np.arange(16, dtype=np.float32).reshape(2, 2, 4)
    batch = grouped_batch(rollouts, per_token)
    np.testing.assert_array_equal(batch.tokens.advantage[..., :4], per_token)
    np.testing.assert_array_equal(batch.tokens.extra["logp_raw"][..., :4].reshape(4, 4), rollouts.logp)


def spans(text: str, vocabularies: set[int]) -> list[int]:
    """Sizes of all arrays in a lowered program that have a vocabulary axis."""
    shapes = [[int(n) for n in m.split("x")[:-1]] for m in re.findall(r"tensor<((?:\d+x)+)[a-z]", text)]
    return [int(np.prod(shape)) for shape in shapes if vocabularies & set(shape)]


def test_no_array_spans_batch_time_and_vocabulary_with_a_teacher() -> None:
    """Vocabularies and widths are numbers that no other axis has; 960 tokens are scored in chunks of 40."""
    config, params = tiny_model(0, vocab=131)
    wide, wide_params = tiny_model(1, vocab=139, hidden=12)
    others = {"teacher": Model(replace(wide, num_tokens=131), wide_params)}
    rollouts = rollouts_of([[1]] * 8, [[2] * 30] * 32)
    batch = grouped_batch(rollouts, np.ones((8, 4), np.float32), widths=(4, 30))
    tokens, chunk = batch.tokens.weight.size, 40
    update = make_update(config, OBJECTIVE, optax.adam(1e-3), chunk=chunk)
    sizes = spans(update.lower(init_state(params, optax.adam(1e-3)), batch, others).as_text(), {131, 139})
    assert len(sizes) > 20
    assert max(sizes) == chunk * 139
    assert tokens == 960
    # The same search finds the array in a program that has it.
    naive = jax.jit(lambda p: transformer.logits(config, p, jnp.ones((32, 30, 8))).sum()).lower(params).as_text()
    assert max(spans(naive, {131})) == tokens * 131

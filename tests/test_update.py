"""The update step: layout never changes a gradient, bad gradients change nothing, log-probs agree with the sampler."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import vsr_jax
from vsr_jax.model.checkpoint_io import load_params
from vsr_jax.model.config import parse_config, read_config
from vsr_jax.model.params import init_params
from vsr_jax.objectives.advantages import group_advantages
from vsr_jax.objectives.policy import grpo
from vsr_jax.objectives.reducers import sequence_mean, token_mean
from vsr_jax.objectives.sft import cross_entropy
from vsr_jax.objectives.types import Objective
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.types import SamplingParams
from vsr_jax.training.batches import grouped_batch, pack
from vsr_jax.training.step import adamw, init_state, loss_and_metrics, make_update

GOLDENS = Path(__file__).parent / "goldens"
PROMPTS = [[1, 2, 3], [4, 5], [6], [7, 8, 9, 10]]


@pytest.fixture(scope="module")
def model():
    config = parse_config(read_config(GOLDENS / "qwen3_tied" / "config.json"))
    return load_params(config, GOLDENS / "qwen3_tied", dtype="float32")


@pytest.fixture(scope="module")
def rollouts(model):
    return sample(*model, PROMPTS, SamplingParams(n=4, max_tokens=6, stop_ids=(3, 4, 5, 6, 7)), seed=1)


REWARDS = np.array([[1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 1], [0, 1, 1, 1]])


def sgd_change(config, params, batch, objective, micro=None):
    """The gradient, kept as the state of an optimizer: a difference of parameters would round it."""
    keep = optax.GradientTransformation(lambda p: jax.tree.map(jnp.zeros_like, p), lambda g, state, p=None: (g, g))
    update = make_update(config, objective, keep, micro=micro)
    state, metrics = update(init_state(params, keep), batch)
    return jax.tree.map(np.asarray, state.opt_state), metrics


def assert_same(a, b, rtol=1e-6):
    """Relative error of the whole gradient, in the Euclidean norm."""
    square = lambda tree: sum((np.asarray(x, np.float64) ** 2).sum() for x in jax.tree.leaves(tree))  # noqa: E731
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert square(jax.tree.map(np.subtract, a, b)) ** 0.5 <= rtol * square(b) ** 0.5


def test_recomputed_log_probabilities_equal_the_samplers(model, rollouts) -> None:
    config, params = model
    batch = grouped_batch(rollouts, group_advantages(REWARDS))
    objective = Objective(lambda z, b: (b.logp_old, grpo().per_token(z, b)[1]))
    weight = batch.tokens.weight
    _, sums = loss_and_metrics(config, params, batch, token_mean(weight), objective)
    np.testing.assert_allclose(sums["ratio"] / weight.sum(), 1.0, atol=1e-5)
    assert sums["kl_old"] / weight.sum() < 1e-8


@pytest.fixture(scope="module")
def usual(model):
    """Weights of the size that trainers meet."""
    return model[0], init_params(model[0], jax.random.key(0), std=0.02)


# The goldens' weights are ten times the usual size, to show mistakes; at that size one float32 pass rounds the
# gradient by up to 1.6e-6 (the order of a sum depends on the CPU). With weights of the usual size the rounding is
# 1.4e-7 to 3.3e-7.
GOLDEN_RTOL = 2e-6


@pytest.mark.parametrize(("weights", "rtol"), [("usual", 1e-6), ("model", GOLDEN_RTOL)])
def test_micro_batches_and_padding_change_no_gradient(request, weights: str, rtol: float) -> None:
    config, params = request.getfixturevalue(weights)
    rollouts = sample(config, params, PROMPTS, SamplingParams(n=4, max_tokens=6, stop_ids=(3, 4, 5, 6, 7)), seed=1)
    objective = grpo(reducer=sequence_mean)
    advantages = group_advantages(REWARDS)
    whole, metrics = sgd_change(config, params, grouped_batch(rollouts, advantages), objective)
    for micro, widths in ((1, None), (3, None), (2, (11, 13))):
        batch = grouped_batch(rollouts, advantages, widths=widths, micro=micro or 1)
        other, again = sgd_change(config, params, batch, objective, micro)
        assert_same(other, whole, rtol)
        for name in metrics:
            np.testing.assert_allclose(again[name], metrics[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_gradient_equals_differentiating_each_response_apart(model, rollouts) -> None:
    """The whole chain (grouping, masks, shifts, chunking) against one plain expression over single sequences."""
    config, params = model
    advantages = group_advantages(REWARDS)
    got, _ = sgd_change(config, params, grouped_batch(rollouts, advantages), grpo())
    signal = np.flatnonzero(np.repeat((advantages != 0).any(1), 4))
    width = 4 + rollouts.tokens.shape[1]
    texts = [PROMPTS[row // 4] + rollouts.response(row) for row in signal]
    padded = np.array([text + [0] * (width - len(text)) for text in texts])
    old, scale = np.zeros((2, len(signal), width - 1), np.float32)
    for i, row in enumerate(signal):
        at, n = len(PROMPTS[row // 4]) - 1, rollouts.length[row]
        old[i, at : at + n], scale[i, at : at + n] = rollouts.logp[row, :n], advantages.reshape(-1)[row]

    def loss(params):
        logp = vsr_jax.token_logprobs(config, params, padded)
        return -jnp.where(old != 0, jnp.exp(logp - old) * scale, 0).sum() / (old != 0).sum()

    assert_same(got, jax.tree.map(np.asarray, jax.jit(jax.grad(loss))(params)), GOLDEN_RTOL)


def test_groups_without_signal_cost_nothing_and_change_nothing(model, rollouts) -> None:
    config, params = model
    batch = grouped_batch(rollouts, group_advantages(REWARDS))
    assert batch.live == 3
    assert batch.prompt_length[-1] == len(PROMPTS[1])
    nothing = grouped_batch(rollouts, group_advantages(np.ones((4, 4))))
    assert nothing.live == 0
    change, metrics = sgd_change(config, params, nothing, grpo(), micro=1)
    assert all(not x.any() for x in jax.tree.leaves(change))
    assert metrics["loss"] == 0
    assert metrics["applied"]


def test_masks_come_from_lengths_not_from_ids(model) -> None:
    config, params = model
    out = sample(
        config,
        params,
        [[1, 2]],
        SamplingParams(n=3, max_tokens=5, stop_ids=(0,)),
        seed=0,
        forced_tokens=np.array([[5, 0, -1], [0, -1, -1], [-1, -1, -1]]),
    )
    batch = grouped_batch(out, np.array([[1.0, -1.0, 0.5]], np.float32), widths=(2, 5))
    # The stop token (id 0, also the padding) counts where it was sampled; forced tokens and padding never do.
    weight = np.asarray(batch.tokens.weight)[0]
    assert weight[0].tolist() == [0, 0, 0, 0, 0]
    assert weight[1].tolist() == [0, 0, 0, 0, 0]
    assert weight[2].tolist() == [1.0] * out.length[2] + [0.0] * (5 - out.length[2])


def test_packing_equals_one_text_a_row(usual) -> None:
    config, params = usual
    examples = [([1, 2], [3, 4, 5]), ([6], [7, 8]), ([9, 10, 11], [12]), ([13, 14], [15, 16, 17, 18])]
    packed, count = pack(examples, rows=2, width=10)
    assert count == 4
    apart, count = pack(examples, rows=4, width=6)
    assert count == 4
    assert packed.tokens.weight.sum() == apart.tokens.weight.sum() == sum(len(r) for _, r in examples)
    a, ma = sgd_change(config, params, packed, cross_entropy())
    b, mb = sgd_change(config, params, apart, cross_entropy(), micro=1)
    assert_same(a, b)
    np.testing.assert_allclose(ma["loss"], mb["loss"], rtol=1e-5)
    expected = [-vsr_jax.token_logprobs(config, params, np.array([p + r]))[0, len(p) - 1 :].sum() for p, r in examples]
    np.testing.assert_allclose(ma["loss"], sum(expected) / packed.tokens.weight.sum(), rtol=1e-5)


def test_packing_stops_at_the_first_example_that_does_not_fit() -> None:
    batch, count = pack([([1], [2, 3]), ([4], [5] * 9), ([6], [7])], rows=1, width=8)
    assert count == 1
    assert batch.segments.tolist() == [[1, 1, 1, 0, 0, 0, 0, 0]]
    cut, count = pack([([1], [5] * 9)], rows=1, width=8)
    assert count == 1
    assert cut.tokens.weight.sum() == 7


def test_a_gradient_that_is_not_finite_is_skipped_and_counted(model, rollouts) -> None:
    config, params = model
    optimizer = adamw(1e-3)
    update = make_update(config, grpo(), optimizer)
    good = grouped_batch(rollouts, group_advantages(REWARDS))
    bad = good.replace(tokens=good.tokens.replace(logp_old=good.tokens.logp_old * np.float32("nan")))
    state, metrics = update(init_state(params, optimizer), bad)
    assert not metrics["applied"]
    assert (state.step, state.skipped) == (1, 1)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b), state.params, params)
    state, metrics = update(state, good)
    assert metrics["applied"]
    assert (state.step, state.skipped) == (2, 1)


def test_one_compilation_for_any_number_of_groups_with_signal(model, rollouts) -> None:
    config, params = model
    update = make_update(config, grpo(), adamw(1e-3), micro=1)
    state = init_state(params, adamw(1e-3))
    for rewards in (REWARDS, np.ones((4, 4)), REWARDS[::-1]):
        state, _ = update(state, grouped_batch(rollouts, group_advantages(rewards)))
    assert update._cache_size() == 1


def test_global_norm_clipping_and_selective_decay() -> None:
    params = {"final_norm": jnp.ones(2), "layers": {"attn_norm": jnp.ones((2, 2)), "q": jnp.ones((2, 2, 2))}}
    zero = jax.tree.map(jnp.zeros_like, params)
    optimizer = adamw(1.0, weight_decay=0.1)
    changes, _ = optimizer.update(zero, optimizer.init(params), params)
    np.testing.assert_allclose(changes["layers"]["q"], -0.1)
    assert not changes["layers"]["attn_norm"].any()
    assert not changes["final_norm"].any()


def test_no_array_spans_batch_time_and_vocabulary(model, rollouts) -> None:
    """Sizes are chosen so that tokens times vocabulary is larger than anything else that the update may hold."""
    config, params = model
    tiled = jax.tree.map(
        lambda x: np.repeat(x, 40, axis=0) if np.ndim(x) else x, grouped_batch(rollouts, group_advantages(REWARDS))
    )
    update = make_update(config, grpo(), adamw(1e-3))
    text = update.lower(init_state(params, adamw(1e-3)), tiled).as_text()
    tokens = tiled.tokens.weight.size
    shapes = [[int(n) for n in m.split("x")[:-1]] for m in re.findall(r"tensor<((?:\d+x)+)f32>", text)]
    with_vocab = [np.prod(shape) for shape in shapes if config.vocab_size in shape]
    assert len(with_vocab) > 10
    assert max(with_vocab) < tokens * config.vocab_size


def test_a_state_copies_the_parameters_or_takes_them(model) -> None:
    _, params = model
    for take in (False, True):
        state = init_state(params, optax.sgd(1.0), take=take)
        pairs = zip(jax.tree.leaves(state.params), jax.tree.leaves(params), strict=True)
        assert {a.unsafe_buffer_pointer() == b.unsafe_buffer_pointer() for a, b in pairs} == {take}

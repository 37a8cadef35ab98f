"""The sampler: exact distributions, exact forcing, the same rows in any batch, one compilation a shape."""

import dataclasses
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vsr_jax
from vsr_jax.errors import UserError
from vsr_jax.model.checkpoint_io import load_params
from vsr_jax.model.config import parse_config, read_config
from vsr_jax.sampling.device import decode_chunk, prefill
from vsr_jax.sampling.draw import draw, row_keys
from vsr_jax.sampling.sampler import sample
from vsr_jax.sampling.schedule import Schedule, bucket, plan_layout
from vsr_jax.sampling.types import LENGTH, STOP, Rollouts, SamplingParams
from vsr_jax.sampling.warp import warp

GOLDENS = Path(__file__).parent / "goldens"
NAMES = ("qwen2", "qwen3_tied", "qwen3_untied", "llama")


def load(name: str):
    config = parse_config(read_config(GOLDENS / name / "config.json"), where=name)
    return load_params(config, GOLDENS / name, dtype="float32")


def unpad(tokens: np.ndarray, length: np.ndarray) -> list[list[int]]:
    return [row[:n].tolist() for row, n in zip(tokens, length, strict=True)]


@pytest.mark.parametrize("name", NAMES)
def test_greedy_equals_the_reference(name: str) -> None:
    config, params = load(name)
    golden = np.load(GOLDENS / f"{name}.npz")
    out = sample(
        config,
        params,
        unpad(golden["prompts"], golden["prompt_length"]),
        SamplingParams(max_tokens=golden["greedy"].shape[1], temperature=0.0),
        seed=0,
    )
    np.testing.assert_array_equal(out.tokens, golden["greedy"])
    assert (out.finish_reason == LENGTH).all()


@pytest.mark.parametrize("name", NAMES)
def test_sampled_log_probabilities_equal_a_teacher_forced_pass(name: str) -> None:
    config, params = load(name)
    prompts = [[1, 5, 9], [3], [2, 4, 6, 8, 10, 12]]
    temperature = 0.7
    out = sample(
        config, params, prompts, SamplingParams(n=4, max_tokens=9, temperature=temperature, stop_ids=(7, 11)), 3
    )
    for row in range(12):
        prompt, response = prompts[out.prompt_index[row]], out.response(row)
        whole = np.array([prompt + response], np.int32)
        for logp, heat in ((out.logp, 1.0), (out.logp_behavior, temperature)):
            expected = vsr_jax.token_logprobs(config, params, whole, temperature=heat)[0, len(prompt) - 1 :]
            np.testing.assert_allclose(logp[row, : len(response)], expected, atol=1e-4)


def test_scored_temperature_scales_logits_before_normalising() -> None:
    from vsr_jax.scoring import target_logprob

    value = target_logprob(jnp.array([[2.0, 0.0]]), jnp.array([0]), 0.5)
    np.testing.assert_allclose(value, -0.018150, atol=1e-6)


def chi_square(counts: np.ndarray, p: np.ndarray) -> float:
    expected = counts.sum() * p
    seen = expected > 0
    assert counts[~seen].sum() == 0
    return float(((counts[seen] - expected[seen]) ** 2 / expected[seen]).sum())


def test_draw_follows_the_distribution_and_never_leaves_its_support() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(300, 0.3))
    p[rng.permutation(300)[:100]] = 0
    p /= p.sum()
    with np.errstate(divide="ignore"):
        logp = np.log(p)
    n = 60_000
    keys = row_keys(jnp.uint32(5), jnp.arange(n, dtype=jnp.int32), jnp.zeros(n, jnp.int32))
    logits = jnp.asarray(logp, jnp.float32) + jnp.arange(n, dtype=jnp.float32)[:, None] % 50
    tokens, logps = jax.jit(draw)(keys, jnp.int32(2), logits)
    np.testing.assert_allclose(logps, logp[np.asarray(tokens)], atol=2e-5)
    forced = jnp.where(jnp.arange(n) % 2, -1, 7)
    again, logps = jax.jit(draw)(keys, jnp.int32(2), logits, forced)
    np.testing.assert_array_equal(again, jnp.where(forced < 0, tokens, 7))
    np.testing.assert_allclose(logps[::2], logp[7], atol=2e-5)
    counts = np.bincount(np.asarray(tokens), minlength=300)
    # 199 degrees of freedom at most: mean 199, deviation 20; rare entries only widen it a little.
    assert chi_square(counts, p) < 199 + 5 * 20


def test_two_token_responses_follow_the_exact_joint_distribution() -> None:
    config, params = load("qwen3_tied")
    small = dataclasses.replace(config, num_tokens=5)
    prompt, n = [1, 2, 3], 8000
    out = sample(small, params, [prompt], SamplingParams(n=n, max_tokens=2), seed=11, slots=n)
    pairs = np.array([[*prompt, a, b] for a in range(5) for b in range(5)], np.int32)
    exact = np.exp(np.asarray(vsr_jax.token_logprobs(small, params, pairs))[:, 2:].sum(1))
    np.testing.assert_allclose(exact.sum(), 1, atol=1e-5)
    counts = np.bincount(out.tokens[:, 0] * 5 + out.tokens[:, 1], minlength=25)
    assert chi_square(counts, exact) < 24 + 5 * 48**0.5


def reference_warp(logits: np.ndarray, temperature: float, top_p: float, top_k: int) -> np.ndarray:
    """Sorting, in float64: the textbook definition, without ties."""
    z = logits.astype(np.float64) / temperature
    p = np.exp(z - z.max())
    p /= p.sum()
    order = np.argsort(-p)
    keep = np.zeros(len(p), bool)
    keep[order[: top_k or len(p)]] = True
    q = np.where(keep, p, 0) / p[keep].sum()
    if top_p < 1:
        order = np.argsort(-q)
        before = np.cumsum(q[order]) - q[order]
        keep[order[before >= top_p]] = False
        keep[order[0]] = True
    q = np.where(keep, p, 0)
    return q / q.sum()


@pytest.mark.parametrize(
    ("temperature", "top_p", "top_k"), [(1, 1, 0), (0.7, 0.95, 0), (1, 0.7, 0), (2, 1, 7), (1.3, 0.5, 9), (1, 0.0, 0)]
)
def test_warp_equals_sorting_in_float64(temperature: float, top_p: float, top_k: int) -> None:
    logits = np.random.default_rng(1).normal(size=(6, 400)).astype(np.float32) * 3
    fill = lambda x, kind: jnp.full(6, x, kind)  # noqa: E731
    got = np.exp(
        warp(
            jnp.asarray(logits),
            jax.nn.log_softmax(logits),
            fill(temperature, jnp.float32),
            fill(top_p, jnp.float32),
            fill(top_k, jnp.int32),
        )
    )
    for row in range(6):
        expected = reference_warp(logits[row], temperature, top_p, top_k)
        np.testing.assert_array_equal(got[row] > 0, expected > 0)
        np.testing.assert_allclose(got[row], expected, rtol=2e-5, atol=1e-12)


@pytest.mark.parametrize(
    ("temperature", "top_p", "kept"),
    [(2.0, 0.7, [0, 1, 2]), (0.5, 0.7, [0, 1]), (2.0, 1.0, [0, 1, 2, 3]), (1.0, 1e-9, [0])],
)
def test_temperature_comes_before_top_p_and_the_crossing_token_stays(
    temperature: float, top_p: float, kept: list[int]
) -> None:
    logits = jnp.log(jnp.array([[0.5, 0.3, 0.15, 0.05]]))
    got = warp(logits, jax.nn.log_softmax(logits), jnp.array([temperature]), jnp.array([top_p]), jnp.array([0]))
    assert np.flatnonzero(np.isfinite(np.asarray(got[0]))).tolist() == kept


def test_a_row_gets_the_same_tokens_alone_and_in_any_batch() -> None:
    config, params = load("qwen2")
    prompts = [[1, 2], [9, 8, 7, 6], [3], [5] * 9, [4, 4]]
    params_of = lambda n: SamplingParams(n=n, max_tokens=12, top_p=0.9, stop_ids=(3,))  # noqa: E731
    whole = sample(config, params, prompts, params_of(6), seed=4, prompt_ids=[10, 11, 12, 13, 14])
    for i, prompt in enumerate(prompts):
        alone = sample(config, params, [prompt], params_of(3), seed=4, prompt_ids=[10 + i])
        np.testing.assert_array_equal(alone.tokens, whole.tokens[6 * i : 6 * i + 3])
    backwards = sample(config, params, prompts[::-1], params_of(6), seed=4, prompt_ids=[14, 13, 12, 11, 10])
    np.testing.assert_array_equal(backwards.tokens.reshape(5, 6, -1)[::-1], whole.tokens.reshape(5, 6, -1))
    pieces = sample(config, params, prompts, params_of(6), seed=4, prompt_ids=[10, 11, 12, 13, 14], slots=12)
    np.testing.assert_array_equal(pieces.tokens, whole.tokens)
    other = sample(config, params, prompts, params_of(6), seed=5, prompt_ids=[10, 11, 12, 13, 14])
    assert (other.tokens != whole.tokens).any()


def test_group_members_differ_and_no_two_rows_share_a_key() -> None:
    keys = row_keys(
        jnp.uint32(0), jnp.repeat(jnp.arange(20), 32).astype(jnp.int32), jnp.tile(jnp.arange(32), 20).astype(jnp.int32)
    )
    assert len(np.unique(np.asarray(jax.random.key_data(keys)), axis=0)) == 640


def test_forced_tokens_appear_where_asked_and_nowhere_else() -> None:
    config, params = load("llama")
    forced = np.full((4, 6), -1)
    forced[0, :3] = [5, 6, 7]
    forced[1, 2] = 9
    forced[3, 5] = 1
    free = sample(config, params, [[1, 2], [3]], SamplingParams(n=2, max_tokens=6), seed=8)
    out = sample(config, params, [[1, 2], [3]], SamplingParams(n=2, max_tokens=6), seed=8, forced_tokens=forced)
    np.testing.assert_array_equal(out.sampled, forced < 0)
    np.testing.assert_array_equal(out.tokens[forced >= 0], forced[forced >= 0])
    # Before the first forced token, and in rows without one, nothing moves.
    np.testing.assert_array_equal(out.tokens[1, :2], free.tokens[1, :2])
    np.testing.assert_array_equal(out.tokens[2], free.tokens[2])
    np.testing.assert_array_equal(out.tokens[3, :5], free.tokens[3, :5])
    row = np.array([[1, 2, *out.tokens[0]]], np.int32)
    np.testing.assert_allclose(out.logp[0], vsr_jax.token_logprobs(config, params, row)[0, 1:], atol=1e-4)


def test_stop_set_and_limits_are_data() -> None:
    config, params = load("qwen3_untied")
    prompts = [[1, 2], [3, 4]]
    free = sample(config, params, prompts, SamplingParams(n=4, max_tokens=10), seed=2)
    stop = (int(free.tokens[0, 3]), int(free.tokens[5, 0]))
    out = sample(config, params, prompts, SamplingParams(n=4, max_tokens=(10, 7), stop_ids=stop), seed=2)
    for row in range(8):
        limit = 10 if row < 4 else 7
        hits = np.flatnonzero(np.isin(free.tokens[row, :limit], stop))
        expected = hits[0] + 1 if len(hits) else limit
        assert out.length[row] == expected
        assert out.finish_reason[row] == (STOP if len(hits) else LENGTH)
        np.testing.assert_array_equal(out.response(row), free.tokens[row, :expected])
        assert not out.sampled[row, expected:].any()
        assert not out.logp[row, expected:].any()


def test_padded_vocabulary_is_never_sampled() -> None:
    config, params = load("qwen2")
    small = dataclasses.replace(config, num_tokens=10)
    out = sample(small, params, [[1]], SamplingParams(n=200, max_tokens=4, temperature=5.0), seed=0)
    assert out.tokens.max() < 10
    assert len(np.unique(out.tokens)) == 10


def test_one_compilation_per_shape_and_none_for_values() -> None:
    config, params = load("qwen2")
    decode_chunk.clear_cache()
    prefill.clear_cache()
    for length in range(1, 17):
        sample(config, params, [[1] * length, [2]], SamplingParams(n=2, max_tokens=5), seed=length)
    forced = np.full((4, 5), -1)
    forced[:, 1] = 3
    varied = SamplingParams(n=2, max_tokens=(5, 3), temperature=(0.5, 0.0), top_p=0.9, top_k=(0, 5), stop_ids=(1, 2, 3))
    sample(config, params, [[4, 4], [2]], varied, seed=0, forced_tokens=forced)
    assert (decode_chunk._cache_size(), prefill._cache_size()) == (1, 1)
    sample(config, params, [[4] * 20, [2]], varied, seed=0)
    assert (decode_chunk._cache_size(), prefill._cache_size()) == (2, 2)


def test_a_mixed_workload_with_refill_compiles_once() -> None:
    config, params = load("qwen2")
    decode_chunk.clear_cache()
    prefill.clear_cache()
    prompts = [[1 + i % 7] * (1 + i % 9) for i in range(11)]
    request = SamplingParams(n=4, max_tokens=[3 + i for i in range(11)], top_p=0.9, stop_ids=(3, 4))
    sample(config, params, prompts, request, seed=0, slots=6)
    assert (decode_chunk._cache_size(), prefill._cache_size()) == (1, 1)


def test_slots_chunks_refill_and_queue_order_change_nothing() -> None:
    config, params = load("qwen3_tied")
    prompts = [[1 + i % 7] * (1 + i % 9) for i in range(7)]
    limits = [4, 17, 9, 30, 1, 12, 25]
    request = SamplingParams(n=5, max_tokens=limits, top_p=0.95, stop_ids=(3, 4, 5))
    forced = np.full((35, 30), -1)
    forced[::3, 0], forced[1::4, 2] = 9, 8
    forced[20:25] = -1  # that prompt's limit is one token
    ids = list(range(40, 47))
    whole = sample(config, params, prompts, request, seed=2, forced_tokens=forced, prompt_ids=ids, slots=64)
    assert len(set(whole.length.tolist())) > 5
    for kwargs in ({"slots": 1}, {"slots": 7}, {"slots": 7, "refill": False}, {"slots": 7, "chunk": 1}, {"chunk": 64}):
        other = sample(config, params, prompts, request, seed=2, forced_tokens=forced, prompt_ids=ids, **kwargs)
        for name in ("tokens", "length", "sampled", "finish_reason"):
            np.testing.assert_array_equal(getattr(other, name), getattr(whole, name), err_msg=f"{kwargs} {name}")
        np.testing.assert_allclose(other.logp, whole.logp, atol=1e-5)
        np.testing.assert_allclose(other.logp_behavior, whole.logp_behavior, atol=1e-5)
    backwards = sample(
        config,
        params,
        prompts[::-1],
        dataclasses.replace(request, max_tokens=limits[::-1]),
        seed=2,
        forced_tokens=forced.reshape(7, 5, 30)[::-1].reshape(35, 30),
        prompt_ids=ids[::-1],
        slots=7,
    )
    np.testing.assert_array_equal(backwards.tokens.reshape(7, 5, -1)[::-1], whole.tokens.reshape(7, 5, -1))


def test_a_growing_ring_keeps_every_key() -> None:
    """Responses beyond the first allocation, in slots of different ages, against a teacher-forced pass."""
    config, params = load("qwen3_untied")
    config = dataclasses.replace(config, max_position=4096)
    out = sample(config, params, [[1, 2], [3]], SamplingParams(n=4, max_tokens=(420, 30)), seed=0, slots=3)
    for row in (0, 3, 5):
        prompt = [[1, 2], [3]][row // 4]
        whole = np.array([prompt + out.response(row)], np.int32)
        expected = vsr_jax.token_logprobs(config, params, whole)[0, len(prompt) - 1 :]
        np.testing.assert_allclose(out.logp[row, : out.length[row]], expected, atol=1e-4)


def test_each_prompt_is_handed_over_once_with_its_own_rows() -> None:
    config, params = load("llama")
    prompts = [[1 + i] * (1 + i) for i in range(6)]
    seen: dict[int, Rollouts] = {}
    request = SamplingParams(n=3, max_tokens=[5, 20, 7, 3, 11, 8], stop_ids=(2, 3))
    whole = sample(config, params, prompts, request, seed=6, slots=4, on_prompt=seen.__setitem__)
    assert sorted(seen) == list(range(6))
    for index, part in seen.items():
        np.testing.assert_array_equal(part.tokens, whole.tokens[3 * index : 3 * index + 3])
        assert part.prompt_tokens[0, : part.prompt_length[0]].tolist() == prompts[index]
        assert part.prompt_index.tolist() == [0, 0, 0]


def occupancy(n: int, prompts: int, slots: int, refill: bool) -> float:
    """Share of slot time spent on live responses, lengths geometric with mean an eighth of the limit."""
    layout = plan_layout([16] * prompts, n, 512, slots)
    schedule = Schedule(layout, [16] * prompts, n, refill=refill)
    lengths = np.minimum(np.random.default_rng(0).geometric(1 / 64, n * prompts), 512)
    used = total = 0
    while schedule.busy():
        for _ in schedule.admit():
            pass
        live = schedule.row >= 0
        left = np.where(live, lengths[np.maximum(schedule.row, 0)] - schedule.length, 0)
        steps = min(layout.chunk, left.max())
        used += np.minimum(left, steps).sum()
        total += steps * live.size
        schedule.length[live] += np.minimum(left, steps)[live]
        for lane, group in np.argwhere(live & (left <= steps)):
            schedule.finish(lane, group)
    assert used == lengths.sum()
    return used / total


def test_refill_keeps_slots_busy() -> None:
    for n, prompts, slots in ((32, 64, 64), (16, 128, 64), (1, 512, 32)):
        assert occupancy(n, prompts, slots, True) > 0.75
        assert occupancy(n, prompts, slots, False) < 0.3


def test_stats_count_what_the_slots_did() -> None:
    config, params = load("qwen2")
    seen = []
    request = SamplingParams(n=4, max_tokens=[3 + i for i in range(11)], stop_ids=(3, 4))
    out = sample(config, params, [[1 + i] for i in range(11)], request, seed=0, slots=6, on_stats=seen.append)
    (stats,) = seen
    assert (stats.slots, stats.prefills, stats.tokens) == (6, 11, out.length.sum())
    assert stats.tokens / 6 <= stats.steps <= 8 * stats.chunks
    assert 0 < stats.occupancy == stats.tokens / (6 * stats.steps) <= 1
    assert 0 < stats.first_token_s <= stats.seconds


def test_buckets_grow_by_at_most_one_half() -> None:
    sizes = sorted({bucket(n) for n in range(1, 5000)})
    assert all(bucket(n) >= n for n in range(1, 5000))
    assert all(b <= 1.5 * a for a, b in itertools.pairwise(sizes))


@pytest.mark.parametrize(
    ("prompts", "kwargs", "message"),
    [
        ([[]], {}, "no tokens"),
        ([[1, 99999]], {}, "outside"),
        ([[1] * 60], {"max_tokens": 10}, "context of 64"),
        ([[1]], {"n": 0}, "at least 1"),
        ([[1]], {"max_tokens": 0}, "at least 1 token"),
    ],
)
def test_bad_requests_are_refused_in_one_line(prompts: list, kwargs: dict, message: str) -> None:
    config, params = load("qwen2")
    with pytest.raises(UserError, match=message):
        sample(config, params, prompts, SamplingParams(**{"max_tokens": 4, **kwargs}), seed=0)


def test_forced_tokens_out_of_range_are_refused() -> None:
    config, params = load("qwen2")
    for bad in (np.full((1, 2), config.num_tokens), np.full((2, 2), -1), np.full((1, 9), 3)):
        with pytest.raises(UserError, match="forced_tokens"):
            sample(config, params, [[1]], SamplingParams(max_tokens=4), seed=0, forced_tokens=bad)

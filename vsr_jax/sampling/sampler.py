"""The sampler: jitted prefill and decode, n samples a prompt from one prefill, any token forced anywhere.

Everything that changes between calls (stop set, temperature, lengths, forced tokens, seed) is data. Shapes are
rounded up to a few buckets, so that a workload compiles once a bucket.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from vsr_jax.errors import UserError
from vsr_jax.model import transformer
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.sampling.draw import draw, row_keys
from vsr_jax.sampling.types import LENGTH, STOP, Rollouts, SamplingParams
from vsr_jax.sampling.warp import warp

FREE = -1
"""Entry of `forced_tokens` that leaves a position to the policy."""


class _Loop(NamedTuple):
    """Carry of the decode loop; `hidden` predicts the token at `step`."""

    step: jax.Array
    hidden: jax.Array
    cache: transformer.Cache
    done: jax.Array
    tokens: jax.Array
    logp: jax.Array
    logp_behavior: jax.Array


class _Rows(NamedTuple):
    """Per-row data, [P, G] unless said."""

    prompt_length: jax.Array  # [P]
    keys: jax.Array
    forced: jax.Array  # [P, G, R]
    temperature: jax.Array
    top_p: jax.Array
    top_k: jax.Array
    max_tokens: jax.Array
    stop_ids: jax.Array  # [E], padded with -1


@partial(jax.jit, static_argnames=("config",))
def generate(
    config: ModelConfig,
    params: Params,
    prompt_tokens: jax.Array,
    rows: _Rows,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Prefills int32[P, S] prompts and decodes until every row has ended.

    Returns:
      tokens int32[P, G, R], length int32[P, G], logp and logp_behavior float32[P, G, R].
    """
    prompts, group, width = rows.forced.shape
    with jax.named_scope("prefill"):
        last, cache = transformer.prefill(config, params, prompt_tokens, rows.prompt_length, group, width)
    flat = lambda x: x.reshape(prompts * group)  # noqa: E731

    def choose(loop: _Loop) -> tuple[jax.Array, jax.Array, jax.Array]:
        logits = transformer.logits(config, params, loop.hidden).reshape(prompts * group, -1)
        raw = jax.nn.log_softmax(logits, axis=-1)
        warped = warp(logits, flat(rows.temperature), flat(rows.top_p), flat(rows.top_k))
        forced = flat(lax.dynamic_index_in_dim(rows.forced, loop.step, axis=2, keepdims=False))
        token = jnp.where(forced >= 0, forced, draw(flat(rows.keys), loop.step, warped))
        pick = lambda a: jnp.take_along_axis(a, token[:, None], axis=1).reshape(prompts, group)  # noqa: E731
        return token.reshape(prompts, group), pick(raw), pick(warped)

    def body(loop: _Loop) -> _Loop:
        with jax.named_scope("sample"):
            token, logp, logp_behavior = choose(loop)
        live = ~loop.done
        put = lambda all_, new: lax.dynamic_update_slice(  # noqa: E731
            all_, jnp.where(live, new, 0).astype(all_.dtype)[..., None], (0, 0, loop.step)
        )
        stopped = (token[..., None] == rows.stop_ids).any(-1)
        done = loop.done | stopped | (loop.step + 1 >= rows.max_tokens)
        with jax.named_scope("decode"):
            hidden, cache = transformer.decode_step(config, params, token, rows.prompt_length, loop.step, loop.cache)
        return _Loop(
            loop.step + 1,
            hidden,
            cache,
            done,
            put(loop.tokens, token),
            put(loop.logp, logp),
            put(loop.logp_behavior, logp_behavior),
        )

    hidden = jnp.broadcast_to(last[:, None], (prompts, group, last.shape[-1]))
    empty = jnp.zeros((prompts, group, width), jnp.float32)
    start = _Loop(jnp.int32(0), hidden, cache, rows.max_tokens <= 0, empty.astype(jnp.int32), empty, empty)
    end = lax.while_loop(lambda loop: (loop.step < width) & ~loop.done.all(), body, start)
    # The first stop token ends a row; a row without one ran to its own limit.
    is_stop = (end.tokens[..., None] == rows.stop_ids).any(-1) & (jnp.arange(width) < rows.max_tokens[..., None])
    length = jnp.where(is_stop.any(-1), jnp.argmax(is_stop, axis=-1) + 1, jnp.minimum(rows.max_tokens, width))
    return end.tokens, length.astype(jnp.int32), end.logp, end.logp_behavior


def bucket(size: int, smallest: int = 16) -> int:
    """Rounds a size up to a power of two or one and a half times one: 16, 24, 32, 48, 64, 96, ..."""
    step = smallest
    while step < size:
        if step * 3 // 2 >= size:
            return step * 3 // 2
        step *= 2
    return step


def sample(
    config: ModelConfig,
    params: Params,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingParams,
    seed: int,
    *,
    forced_tokens: np.ndarray | None = None,
    prompt_ids: Sequence[int] | None = None,
    max_rows: int = 1024,
    progress: Callable[[int, int], None] | None = None,
) -> Rollouts:
    """Draws `sampling.n` responses to each prompt.

    A row's randomness comes from (seed, prompt id, sample id, position): it gets the same tokens alone and in any
    batch, up to ties in floating point.

    Args:
      prompts: P lists of token ids.
      forced_tokens: int[N, R'] with N = P n rows in prompt-major order; entries of -1 (or beyond R') are free.
      prompt_ids: P ints that seed the rows; default 0..P-1.
      max_rows: rows decoded together; prompts are taken in batches of at most this many rows.
      progress: called with (rows done, rows in all) after each batch.

    Returns:
      Rollouts of N = P n rows, prompt-major.

    Raises:
      UserError: an empty prompt, a token id outside the vocabulary, or prompt and response beyond the context.
    """
    count, n = len(prompts), sampling.n
    limits = np.broadcast_to(np.asarray(sampling.max_tokens, np.int32), (count,))
    width = int(limits.max(initial=0))
    ids = np.asarray(range(count) if prompt_ids is None else prompt_ids, np.int64).astype(np.uint32).view(np.int32)
    _validate(config, prompts, limits, n, ids)
    forced = _forced_matrix(config, forced_tokens, count * n, width).reshape(count, n, width)
    slots = bucket(width)
    forced = np.pad(forced, ((0, 0), (0, 0), (0, slots - width)), constant_values=FREE)
    per_prompt = [
        np.broadcast_to(np.asarray(value, kind), (count,))
        for value, kind in (
            (sampling.temperature, np.float32),
            (sampling.top_p, np.float32),
            (sampling.top_k, np.int32),
        )
    ]
    stop = np.full(bucket(len(sampling.stop_ids), 8), -1, np.int32)
    stop[: len(sampling.stop_ids)] = sampling.stop_ids

    tokens, length = np.zeros((count, n, width), np.int32), np.zeros((count, n), np.int32)
    logp, behavior = np.zeros((count, n, width), np.float32), np.zeros((count, n, width), np.float32)
    batch = max(1, min(count, max_rows // n))
    # Like lengths go together, so that a batch's prompt bucket fits its prompts.
    order = np.argsort([len(p) for p in prompts], kind="stable")
    keys = _keys(jnp.uint32(seed % 2**32), jnp.asarray(ids), n)
    for start in range(0, count, batch):
        part = order[start : start + batch]
        # A short last batch repeats its first prompt with no tokens to draw, instead of compiling another shape.
        rows = np.concatenate([part, np.repeat(part[:1], batch - len(part))])
        prompt_width = bucket(max(len(prompts[i]) for i in part))
        padded = np.zeros((batch, prompt_width), np.int32)
        for row, i in enumerate(rows):
            padded[row, : len(prompts[i])] = prompts[i]
        limit = np.where(np.arange(batch) < len(part), limits[rows], 0)
        spread = lambda x: jnp.asarray(np.repeat(x[:, None], n, axis=1))  # noqa: E731
        temperature, top_p, top_k = (spread(x[rows]) for x in per_prompt)
        data = _Rows(
            prompt_length=jnp.asarray([len(prompts[i]) for i in rows], jnp.int32),
            keys=keys[rows],
            forced=jnp.asarray(forced[rows]),
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            max_tokens=spread(limit.astype(np.int32)),
            stop_ids=jnp.asarray(stop),
        )
        out = jax.device_get(generate(config, params, jnp.asarray(padded), data))
        for target, value in zip((tokens, length, logp, behavior), out, strict=True):
            target[part] = value[: len(part)] if value.ndim == 2 else value[: len(part), :, :width]
        if progress is not None:
            progress(min(start + batch, count) * n, count * n)

    live = np.arange(width) < length[..., None]
    last = np.take_along_axis(tokens, np.maximum(length - 1, 0)[..., None], axis=2)[..., 0] if width else tokens[..., 0]
    reason = np.where(np.isin(last, sampling.stop_ids), STOP, LENGTH).astype(np.int8)
    longest = max((len(p) for p in prompts), default=1)
    flat = lambda x: x.reshape(count * n, *x.shape[2:])  # noqa: E731
    return Rollouts(
        tokens=flat(np.where(live, tokens, 0)),
        length=flat(length),
        sampled=flat(live & (forced[..., :width] < 0)),
        logp=flat(np.where(live, logp, 0)),
        logp_behavior=flat(np.where(live, behavior, 0)),
        finish_reason=flat(reason),
        prompt_id=np.repeat(ids, n),
        sample_id=np.tile(np.arange(n, dtype=np.int32), count),
        prompt_index=np.repeat(np.arange(count, dtype=np.int32), n),
        prompt_tokens=np.array([[*p, *[0] * (longest - len(p))] for p in prompts], np.int32).reshape(count, longest),
        prompt_length=np.array([len(p) for p in prompts], np.int32),
    )


@partial(jax.jit, static_argnames=("n",))
def _keys(seed: jax.Array, prompt_ids: jax.Array, n: int) -> jax.Array:
    count = prompt_ids.shape[0]
    keys = row_keys(seed, jnp.repeat(prompt_ids, n), jnp.tile(jnp.arange(n, dtype=jnp.int32), count))
    return keys.reshape(count, n)


def _validate(
    config: ModelConfig, prompts: Sequence[Sequence[int]], limits: np.ndarray, n: int, ids: np.ndarray
) -> None:
    if n < 1:
        raise UserError(f"sampling field n is {n}; draw at least 1 sample a prompt")
    if len(ids) != len(prompts):
        raise UserError(f"{len(prompts)} prompts but {len(ids)} prompt_ids")
    if len(set(ids.tolist())) != len(ids):
        raise UserError("prompt_ids repeat; equal ids would draw equal samples")
    for i, prompt in enumerate(prompts):
        if not len(prompt):
            raise UserError(f"prompt {i} has no tokens; give at least a beginning token")
        if min(prompt) < 0 or max(prompt) >= config.vocab_size:
            raise UserError(f"prompt {i} holds a token id outside 0..{config.vocab_size - 1}")
        if len(prompt) + int(limits[i]) > config.max_position:
            raise UserError(
                f"prompt {i} has {len(prompt)} tokens; with max_tokens {limits[i]} it exceeds the context of "
                f"{config.max_position} (max_position_embeddings); lower max_tokens or override the context by name"
            )


def _forced_matrix(config: ModelConfig, forced: np.ndarray | None, rows: int, width: int) -> np.ndarray:
    out = np.full((rows, width), FREE, np.int32)
    if forced is None:
        return out
    forced = np.asarray(forced)
    if forced.ndim != 2 or forced.shape[0] != rows or not np.issubdtype(forced.dtype, np.integer):
        raise UserError(f"forced_tokens must be an integer array of {rows} rows, found {forced.dtype}{forced.shape}")
    if (forced >= config.num_tokens).any() or (forced < FREE).any():
        raise UserError(f"forced_tokens holds an id outside -1..{config.num_tokens - 1}")
    if (forced[:, width:] != FREE).any():
        raise UserError(f"forced_tokens forces a position beyond max_tokens {width}")
    out[:, : min(width, forced.shape[1])] = forced[:, :width]
    return out

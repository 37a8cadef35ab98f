"""What one optimizer step sees: grouped rollouts, or packed rows of text.

Batches are made by numpy on the host and become JAX arrays in the update; `Host` marks the former where the latter
is declared.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from vsr_jax.objectives.types import TokenBatch
from vsr_jax.sampling.schedule import bucket
from vsr_jax.sampling.types import Rollouts

Host: TypeAlias = Any


@struct.dataclass
class GroupedBatch:
    """G responses to each of P prompts.

    Attributes:
      prompt_tokens: int32[P, S]; prompt_length: int32[P].
      tokens: what losses know of each response token, arrays [P, G, R].
      live: int32 scalar: prompts from here on carry no signal and are not computed.
    """

    prompt_tokens: jax.Array
    prompt_length: jax.Array
    tokens: TokenBatch
    live: jax.Array


@struct.dataclass
class PackedBatch:
    """Rows [B, T] that hold several texts each, kept apart by segment.

    Attributes:
      inputs, positions, segments: int32[B, T]; segment 0 is padding.
      tokens: [B, T]; `tokens.target[i, t]` is `inputs[i, t + 1]` where that continues the same text.
      live: int32 scalar, number of rows.
    """

    inputs: jax.Array
    positions: jax.Array
    segments: jax.Array
    tokens: TokenBatch
    live: jax.Array


def sequence_ids(batch: GroupedBatch | PackedBatch) -> jax.Array | None:
    """Which tokens form one response, as reducers want it: None where each row of the last axis is one.

    In packed rows every token gets the flat index of its text's first token, int32[B, T].
    """
    if isinstance(batch, GroupedBatch):
        return None
    segments = jnp.asarray(batch.segments)
    index = jnp.arange(segments.size, dtype=jnp.int32).reshape(segments.shape)
    starts = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    return jax.lax.cummax(jnp.where(starts, index, 0), axis=1)


def grouped_batch(
    rollouts: Rollouts,
    advantages: np.ndarray,
    *,
    weights: np.ndarray | None = None,
    behavior: str = "raw",
    logp_ref: np.ndarray | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    drop_silent: bool = True,
    widths: tuple[int, int] | None = None,
    micro: int = 1,
) -> GroupedBatch:
    """Arranges rollouts for the update; groups whose advantages are all zero go last and cost nothing.

    The token-mean of the loss runs over the tokens of groups with signal.

    Args:
      rollouts: P prompts with n samples each, prompt-major, as `sample` returns them.
      advantages: float32[P, n], or float32[P, n, R] with one a token.
      weights: float32[P, n], 0 takes a response out of the loss; default 1.
      behavior: which recorded log-probability is pi_old, `raw` or `warped`.
      logp_ref: float32[N, R], log-probabilities under a reference.
      extra: further arrays [N, R, ...] for `TokenBatch.extra`, beside `logp_raw` and `logp_warped`.
      drop_silent: leave groups whose advantages are all zero out of the loss. False keeps them in every term, as
        distillation wants it, and a KL penalty that is to hold where no reward pulls.
      widths: prompt and response widths to pad to; default rounds up to buckets.
      micro: prompts a micro-batch; P is padded to a multiple of it.
    """
    if behavior not in ("raw", "warped"):
        raise ValueError(f"behavior is {behavior!r}; use raw or warped")
    prompts, n = advantages.shape[:2]
    width = rollouts.tokens.shape[1]
    old = rollouts.logp if behavior == "raw" else rollouts.logp_behavior
    prompt_width, response_width = widths or (bucket(rollouts.prompt_tokens.shape[1]), bucket(width))
    advantages = np.broadcast_to(advantages.reshape(prompts * n, -1), (prompts * n, width)).astype(np.float32)
    signal = (advantages.reshape(prompts, -1) != 0).any(1) | (not drop_silent)
    order = np.argsort(~signal, kind="stable")
    padded = -(-prompts // micro) * micro

    def arrange(x: np.ndarray) -> Host:
        x = np.asarray(x).reshape(prompts, n, width, *x.shape[2:])[order]
        return np.pad(x, ((0, padded - prompts), (0, 0), (0, response_width - width), *((0, 0),) * (x.ndim - 3)))

    weight = rollouts.sampled * np.repeat(signal, n)[:, None].astype(np.float32)
    if weights is not None:
        weight = weight * weights.reshape(-1, 1)
    zero = np.zeros((prompts * n, width), np.float32)
    positions: Host = np.broadcast_to(np.arange(response_width, dtype=np.int32), (padded, n, response_width))
    tokens = TokenBatch(
        target=arrange(rollouts.tokens),
        weight=arrange(weight.astype(np.float32)),
        advantage=arrange(advantages),
        logp_old=arrange(old),
        logp_ref=arrange(zero if logp_ref is None else logp_ref),
        position=positions,
        extra={
            "logp_raw": arrange(rollouts.logp),
            "logp_warped": arrange(rollouts.logp_behavior),
            **{name: arrange(x) for name, x in (extra or {}).items()},
        },
    )
    prompt_tokens = rollouts.prompt_tokens[order]
    padding = (0, padded - prompts)
    prompt_tokens: Host = np.pad(prompt_tokens, (padding, (0, prompt_width - prompt_tokens.shape[1])))
    prompt_length: Host = np.pad(rollouts.prompt_length[order], padding, constant_values=1)
    live: Host = np.int32(signal.sum())
    return GroupedBatch(prompt_tokens, prompt_length, tokens, live)


def pack(
    examples: Iterable[
        tuple[Sequence[int], Sequence[int]] | tuple[Sequence[int], Sequence[int], float | Sequence[float]]
    ],
    rows: int,
    width: int,
) -> tuple[PackedBatch, int]:
    """Fills `rows` rows of `width` tokens with (prompt, response) examples, first fit in order.

    Only response tokens are weighted: by 1, or by a third entry of the example, one number for all of its response
    tokens or one for each. An example longer than a row is cut at the row's end.

    Returns:
      The batch, and how many examples it holds. Stops at the first example that fits nowhere.
    """
    ints: Host = np.zeros((5, rows, width), np.int32)
    inputs, positions, segments, target, place = ints
    weight: Host = np.zeros((rows, width), np.float32)
    used, texts = np.zeros(rows, int), np.zeros(rows, int)
    packed = 0
    for prompt, response, *label in examples:
        ids = np.array([*prompt, *response][:width], np.int32)
        room = np.flatnonzero(used + len(ids) <= width)
        if not len(room):
            break
        row, at, size = room[0], used[room[0]], len(ids)
        span = slice(at, at + size)
        inputs[row, span], positions[row, span] = ids, np.arange(size)
        texts[row] += 1
        segments[row, span] = texts[row]
        target[row, at : at + size - 1] = ids[1:]
        # Token `start` of the text is the first that is scored; nothing predicts a token without one before it.
        start = max(len(prompt), 1)
        scored = slice(at + start - 1, at + max(size, start) - 1)
        place[row, scored] = np.arange(start, max(size, start)) - len(prompt)
        labels = np.broadcast_to(np.asarray(label[0] if label else 1.0, np.float32), len(response))
        weight[row, scored] = labels[place[row, scored]]
        used[row] += size
        packed += 1
    zero: Host = np.zeros_like(weight)
    live: Host = np.int32(rows)
    tokens = TokenBatch(target, weight, advantage=zero, logp_old=zero, logp_ref=zero, position=place)
    return PackedBatch(inputs, positions, segments, tokens, live), packed

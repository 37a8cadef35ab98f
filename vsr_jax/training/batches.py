"""What one optimizer step sees: grouped rollouts, or packed rows of text."""

from collections.abc import Iterable, Sequence

import jax
import numpy as np
from flax import struct

from vsr_jax.objectives.types import TokenBatch
from vsr_jax.sampling.sampler import bucket
from vsr_jax.sampling.types import Rollouts


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


def grouped_batch(
    rollouts: Rollouts,
    advantages: np.ndarray,
    *,
    weights: np.ndarray | None = None,
    behavior: str = "raw",
    logp_ref: np.ndarray | None = None,
    widths: tuple[int, int] | None = None,
    micro: int = 1,
) -> GroupedBatch:
    """Arranges rollouts for the update; groups whose advantages are all zero go last and cost nothing.

    The token-mean of the loss runs over the tokens of groups with signal.

    Args:
      rollouts: P prompts with n samples each, prompt-major, as `sample` returns them.
      advantages: float32[P, n].
      weights: float32[P, n], 0 takes a response out of the loss; default 1.
      behavior: which recorded log-probability is pi_old, `raw` or `warped`.
      logp_ref: float32[N, R], log-probabilities under a reference.
      widths: prompt and response widths to pad to; default rounds up to buckets.
      micro: prompts a micro-batch; P is padded to a multiple of it.
    """
    if behavior not in ("raw", "warped"):
        raise ValueError(f"behavior is {behavior!r}; use raw or warped")
    prompts, n = advantages.shape
    width = rollouts.tokens.shape[1]
    old = rollouts.logp if behavior == "raw" else rollouts.logp_behavior
    prompt_width, response_width = widths or (bucket(rollouts.prompt_tokens.shape[1]), bucket(width))
    signal = (advantages != 0).any(1)
    order = np.argsort(~signal, kind="stable")
    padded = -(-prompts // micro) * micro

    def arrange(x: np.ndarray) -> np.ndarray:
        x = x.reshape(prompts, n, width)[order]
        return np.pad(x, ((0, padded - prompts), (0, 0), (0, response_width - width)))

    weight = rollouts.sampled * np.repeat(signal, n)[:, None].astype(np.float32)
    if weights is not None:
        weight = weight * weights.reshape(-1, 1)
    zero = np.zeros((prompts * n, width), np.float32)
    tokens = TokenBatch(
        target=arrange(rollouts.tokens),
        weight=arrange(weight.astype(np.float32)),
        advantage=arrange(zero + advantages.reshape(-1, 1)),
        logp_old=arrange(old),
        logp_ref=arrange(zero if logp_ref is None else logp_ref),
        position=np.broadcast_to(np.arange(response_width, dtype=np.int32), (padded, n, response_width)),
    )
    prompt_tokens = rollouts.prompt_tokens[order]
    return GroupedBatch(
        prompt_tokens=np.pad(prompt_tokens, ((0, padded - prompts), (0, prompt_width - prompt_tokens.shape[1]))),
        prompt_length=np.pad(rollouts.prompt_length[order], (0, padded - prompts), constant_values=1),
        tokens=tokens,
        live=np.int32(signal.sum()),
    )


def pack(examples: Iterable[tuple[Sequence[int], Sequence[int]]], rows: int, width: int) -> tuple[PackedBatch, int]:
    """Fills `rows` rows of `width` tokens with (prompt, response) examples, first fit in order.

    Only response tokens are weighted. An example longer than a row is cut at the row's end.

    Returns:
      The batch, and how many examples it holds. Stops at the first example that fits nowhere.
    """
    shape = (rows, width)
    inputs, positions, segments = (np.zeros(shape, np.int32) for _ in range(3))
    target, weight, place = np.zeros(shape, np.int32), np.zeros(shape, np.float32), np.zeros(shape, np.int32)
    used, texts = np.zeros(rows, int), np.zeros(rows, int)
    packed = 0
    for prompt, response in examples:
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
        first = min(len(prompt), size) - 1  # this position predicts the first response token
        weight[row, at + first : at + size - 1] = 1
        place[row, at + first : at + size - 1] = np.arange(size - 1 - first)
        used[row] += size
        packed += 1
    zero = np.zeros(shape, np.float32)
    tokens = TokenBatch(target, weight, advantage=zero, logp_old=zero, logp_ref=zero, position=place)
    return PackedBatch(inputs, positions, segments, tokens, live=np.int32(rows)), packed

"""The one chunked pass from hidden states to per-token statistics. No [batch, time, vocab] array exists in it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from vsr_jax.model import transformer
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.model.placement import by_rows, row_shards

Statistic = Callable[[jax.Array, Any], Any]
"""`(logits float32[n, V], batch pytree of [n, ...]) -> pytree of [n, ...]`."""

CHUNK = 512
"""Tokens whose logits exist at one time, on each device that holds its own rows."""


def chunked(
    config: ModelConfig, params: Params, hidden: jax.Array, batch: Any, statistic: Statistic, *, chunk: int = CHUNK
) -> Any:
    """Applies a statistic of the logits to every token, `chunk` tokens at a time, rematerialised in the backward pass.

    On a mesh that splits rows every device takes `chunk` of its own tokens at a time, so that no state moves.

    Args:
      hidden: float[..., hidden_size], normed states.
      batch: pytree of arrays with the same leading shape as `hidden`.
      statistic: see `Statistic`.

    Returns:
      The statistic's pytree with the leading shape of `hidden`.
    """
    lead = hidden.shape[:-1]
    shards = row_shards() if lead and lead[0] % row_shards() == 0 else 1
    count = int(np.prod(lead)) // shards
    chunk = min(chunk, max(count, 1))
    pieces = -(-count // chunk)

    def split(x: jax.Array) -> jax.Array:
        x = x.reshape(shards, count, *x.shape[len(lead) :])
        x = jnp.pad(x, ((0, 0), (0, pieces * chunk - count), *((0, 0),) * (x.ndim - 2)))
        x = x.reshape(shards, pieces, chunk, *x.shape[2:]).swapaxes(0, 1)
        return by_rows(x.reshape(pieces, shards * chunk, *x.shape[3:]), axis=1)

    def join(x: jax.Array) -> jax.Array:
        x = x.reshape(pieces, shards, chunk, *x.shape[2:]).swapaxes(0, 1)
        return by_rows(x.reshape(shards, pieces * chunk, *x.shape[3:])[:, :count].reshape(*lead, *x.shape[3:]))

    def piece(args: tuple[jax.Array, Any]) -> Any:
        return statistic(by_rows(transformer.logits(config, params, args[0])), args[1])

    out = lax.map(jax.checkpoint(piece), (split(hidden), jax.tree.map(split, batch)))
    return jax.tree.map(join, out)


def target_logprob(logits: jax.Array, target: jax.Array, temperature: float | jax.Array = 1.0) -> jax.Array:
    """Log-probability float32[n] of int32[n] targets under softmax(logits / temperature)."""
    scaled = logits / temperature
    picked = jnp.take_along_axis(scaled, target[:, None], axis=-1)[:, 0]
    return picked - jax.nn.logsumexp(scaled, axis=-1)


@partial(jax.jit, static_argnames=("config",))
def token_logprobs(
    config: ModelConfig,
    params: Params,
    tokens: jax.Array,
    length: jax.Array | None = None,
    *,
    positions: jax.Array | None = None,
    segments: jax.Array | None = None,
    temperature: float | jax.Array = 1.0,
) -> jax.Array:
    """Teacher-forced log-probabilities.

    Args:
      tokens: int32[B, T]; length: int32[B], tokens before right padding (all T when None).
      positions, segments: for packed or left-padded rows, as in `transformer.hidden_states`.
      temperature: divides the logits before normalising.

    Returns:
      float32[B, T - 1]: at [i, t] the natural log-probability of `tokens[i, t + 1]` given what comes before it. Zero
      where token t + 1 is padding, or belongs to another segment than token t.
    """
    hidden = transformer.hidden_states(config, params, tokens, positions=positions, segments=segments)
    statistic = lambda logits, target: target_logprob(logits, target, temperature)  # noqa: E731
    out = chunked(config, params, hidden[:, :-1], tokens[:, 1:], statistic)
    valid = jnp.ones_like(out, bool)
    if length is not None:
        valid &= jnp.arange(1, tokens.shape[1]) < length[:, None]
    if segments is not None:
        valid &= (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    return jnp.where(valid, out, 0.0)

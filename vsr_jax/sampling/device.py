"""What the sampler runs on the device: prefill into a lane, and a chunk of decode steps.

Both are compiled once for each shape. Everything that changes between calls is data.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from vsr_jax.model import transformer
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.parallel.rules import cache_specs
from vsr_jax.sampling.draw import draw
from vsr_jax.sampling.warp import warp, warps

_State = TypeVar("_State")
Host: TypeAlias = Any
"""A numpy array on its way to the device, a traced array inside."""


@struct.dataclass
class DeviceState:
    """Large arrays that stay on the device, donated from call to call.

    P lanes hold B prompts of at most S tokens each, and G slots that answer them.

    Attributes:
      cache: keys and values, see `transformer.Cache`; a lane's prompt b lies at columns b S to (b + 1) S.
      prompt_hidden: [P, B, hidden_size], state of each prompt's last token.
      hidden: [P, G, hidden_size], state that predicts each slot's next token.
      column: int32 scalar, the ring column to write next.
    """

    cache: transformer.Cache
    prompt_hidden: jax.Array
    hidden: jax.Array
    column: jax.Array


def _in_place(config: ModelConfig, state: _State) -> _State:
    """The state laid out over the current mesh as the next call expects it; a no-op without a mesh.

    Left to itself the compiler places results as suits it, and the next call would be compiled anew for that.
    """
    mesh = jax.sharding.get_abstract_mesh()
    return state if mesh.empty else lax.with_sharding_constraint(state, cache_specs(config, state, mesh))


class SlotData(NamedTuple):
    """What each slot is working on, sent before every chunk. Arrays are [P, G] unless said.

    Attributes:
      prompt: int32, which of the lane's B prompts.
      prompt_length: int32, its tokens.
      length: int32, response tokens so far; `folded` starts from the prompt.
      folded: int32, response tokens that were forced in the prefill and lie with the prompt.
      limit: int32, response tokens at most.
      live: bool, False for an empty slot.
      keys: one key a slot.
      forced: int32[P, G, C], tokens to force in this chunk, -1 where free.
      temperature, top_p: float32; top_k: int32.
      stop_ids: int32[E], padded with -1.
    """

    prompt: Host
    prompt_length: Host
    length: Host
    folded: Host
    limit: Host
    live: Host
    keys: Host
    forced: Host
    temperature: Host
    top_p: Host
    top_k: Host
    stop_ids: Host


class Chunk(NamedTuple):
    """What a chunk produced: int32 tokens and float32 log-probabilities [P, G, C], and which slots are still live."""

    tokens: jax.Array
    logp: jax.Array
    logp_behavior: jax.Array
    live: jax.Array


@partial(jax.jit, static_argnums=range(6))
def make_state(config: ModelConfig, lanes: int, prompts: int, width: int, group: int, ring: int) -> DeviceState:
    """An empty state: `prompts` prompts of `width` tokens a lane, `ring` response tokens a slot."""
    state = DeviceState(
        transformer.empty_cache(config, lanes, prompts * width, group, ring),
        jnp.zeros((lanes, prompts, config.hidden_size), config.dtype),
        jnp.zeros((lanes, group, config.hidden_size), config.dtype),
        jnp.int32(0),
    )
    return _in_place(config, state)


@partial(jax.jit, static_argnames=("config",), donate_argnames=("state",))
def prefill(
    config: ModelConfig,
    params: Params,
    state: DeviceState,
    tokens: jax.Array,
    length: jax.Array,
    lane: jax.Array,
    prompt: jax.Array,
) -> DeviceState:
    """Runs int32[A, S] prompts and stores prompt i as number `prompt[i]` of lane `lane[i]`; int32[A] each."""
    return _fill(config, params, state, tokens, length, lane, prompt, 1)[0]


class Prefix(NamedTuple):
    """Forced tokens at the end of each prompt, and how its rows are warped.

    Attributes:
      tokens: int32[A, K], aligned to the right; entries before a shorter prefix do not matter.
      temperature, top_p: float32[A]; top_k: int32[A].
    """

    tokens: Host
    temperature: Host
    top_p: Host
    top_k: Host


@partial(jax.jit, static_argnames=("config",), donate_argnames=("state",))
def prefill_forced(
    config: ModelConfig,
    params: Params,
    state: DeviceState,
    tokens: jax.Array,
    length: jax.Array,
    lane: jax.Array,
    prompt: jax.Array,
    prefix: Prefix,
) -> tuple[DeviceState, jax.Array, jax.Array]:
    """`prefill` of prompts that end with forced response tokens, which are scored on the way.

    Returns:
      The state, and log-probabilities float32[A, K] of the prefix under the raw policy and under the warped one.
    """
    size = prefix.tokens.shape[1]
    state, states = _fill(config, params, state, tokens, length, lane, prompt, size + 1)

    def score(one: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        hidden, token = one
        logits = transformer.logits(config, params, hidden)
        raw = jax.nn.log_softmax(logits, axis=-1)
        return _pick(raw, token), _pick(warp(logits, raw, prefix.temperature, prefix.top_p, prefix.top_k), token)

    with jax.named_scope("score_prefix"):
        # A position at a time: prefixes may be long, and logits are wide.
        logp, logp_behavior = lax.map(score, (states[:, :size].swapaxes(0, 1), prefix.tokens.swapaxes(0, 1)))
    return state, logp.T, logp_behavior.T


def _fill(config, params, state, tokens, length, lane, prompt, tail) -> tuple[DeviceState, jax.Array]:
    with jax.named_scope("prefill"):
        states, keys, values = transformer.prefill(config, params, tokens, length, tail)
    last = states[:, -1]
    cache, hidden, width = state.cache, state.prompt_hidden, tokens.shape[1]
    prompt_k, prompt_v = list(cache.prompt_k), list(cache.prompt_v)
    for a in range(tokens.shape[0]):
        where = (lane[a], jnp.int32(0), prompt[a] * width, jnp.int32(0))
        for i in range(config.num_layers):
            prompt_k[i] = lax.dynamic_update_slice(prompt_k[i], keys[i][a : a + 1], where)
            prompt_v[i] = lax.dynamic_update_slice(prompt_v[i], values[i][a : a + 1], where)
        hidden = lax.dynamic_update_slice(hidden, last[a][None, None], (lane[a], prompt[a], jnp.int32(0)))
    cache = cache._replace(prompt_k=tuple(prompt_k), prompt_v=tuple(prompt_v))
    return _in_place(config, replace(state, cache=cache, prompt_hidden=hidden)), states


def _decode_chunk(
    config: ModelConfig, params: Params, state: DeviceState, slots: SlotData
) -> tuple[DeviceState, Chunk]:
    """Decodes up to C tokens a slot; ends early when no slot is live."""
    lanes, group, chunk = slots.forced.shape
    ring, room = state.cache.k[0].shape[2], state.cache.prompt_k[0].shape[2]
    width = room // state.prompt_hidden.shape[1]
    at = jnp.arange(room) - slots.prompt[..., None] * width
    prompt_mask = (at >= 0) & (at < (slots.prompt_length + slots.folded)[..., None])
    begun = jnp.take_along_axis(state.prompt_hidden, slots.prompt[..., None], axis=1)
    hidden = jnp.where((slots.length == slots.folded)[..., None], begun, state.hidden)
    empty = jnp.zeros((lanes, group, chunk), jnp.float32)
    flat = lambda x: x.reshape(lanes * group)  # noqa: E731

    def step(carry: tuple) -> tuple:
        i, state, length, live, out = carry
        with jax.named_scope("sample"):
            token, logp, logp_behavior = _choose(config, params, state.hidden, slots, i, length, flat)
        put = lambda all_, new: lax.dynamic_update_slice(  # noqa: E731
            all_, jnp.where(live, new, 0).astype(all_.dtype)[..., None], (0, 0, i)
        )
        out = put(out[0], token), put(out[1], logp), put(out[2], logp_behavior)
        positions, length = slots.prompt_length + length, length + live
        # Columns written longest ago belong to a slot's earlier responses, or to nobody.
        age = (state.column - jnp.arange(ring)) % ring
        with jax.named_scope("decode"):
            hidden, cache = transformer.decode_step(
                config,
                params,
                token,
                positions,
                state.column,
                prompt_mask,
                age < (length - slots.folded)[..., None],
                state.cache,
            )
        stopped = (token[..., None] == slots.stop_ids).any(-1)
        live &= ~stopped & (length < slots.limit)
        state = replace(state, cache=cache, hidden=hidden, column=(state.column + 1) % ring)
        return i + 1, state, length, live, out

    start = (
        jnp.int32(0),
        replace(state, hidden=hidden),
        slots.length,
        slots.live,
        (empty.astype(jnp.int32), empty, empty),
    )
    _, state, _, live, out = lax.while_loop(lambda c: (c[0] < chunk) & c[3].any(), step, start)
    return _in_place(config, state), Chunk(*out, live)


decode_chunk = jax.jit(_decode_chunk, static_argnames=("config",), donate_argnames=("state",))

TPU_OPTIONS = {
    # A layer's keys are not worth bringing into on-core memory: they would be written back whole for one new column.
    "xla_tpu_msa_inefficient_use_to_copy_ratio": 0.9,
    # Memory may fill up. Computing attention scores twice to keep 5 % of it free reads all keys twice.
    "xla_jf_rematerialization_percent_shared_memory_limit": 100,
}
"""Options of the TPU's compiler for a decode chunk, without which a v6e moves 1.2 to 1.7 times the bytes."""

_for_tpu = {"static_argnames": ("config",), "donate_argnames": ("state",), "compiler_options": TPU_OPTIONS}
_decode_chunk_tpu = jax.jit(_decode_chunk, **_for_tpu)
_probe_tpu = jax.jit(lambda: jnp.int32(0), compiler_options=TPU_OPTIONS)


def decode_program(platform: str) -> Callable[..., tuple[DeviceState, Chunk]]:
    """`decode_chunk`, on a TPU with `TPU_OPTIONS` where its compiler knows them."""
    if platform != "tpu":
        return decode_chunk
    try:
        _probe_tpu()
    except jax.errors.JaxRuntimeError:
        return decode_chunk
    return _decode_chunk_tpu


def _choose(config, params, hidden, slots, i, length, flat):
    """The next token of every slot, with its log-probability under the raw policy and under the warped one."""
    # Column by column into the branches, as a CPU's product leaves them: turned round only where rows are warped.
    columns = transformer.logits(config, params, hidden.reshape(-1, hidden.shape[-1])).T
    keys, position, *shape = map(flat, (slots.keys, length, slots.temperature, slots.top_p, slots.top_k))
    forced = flat(lax.dynamic_index_in_dim(slots.forced, i, axis=2, keepdims=False))

    def plain() -> tuple[jax.Array, jax.Array, jax.Array]:
        token, logp = draw(keys, position, columns.T, forced)
        return token, logp, logp

    def warped() -> tuple[jax.Array, jax.Array, jax.Array]:
        logits = columns.T
        raw = jax.nn.log_softmax(logits, axis=-1)
        with jax.named_scope("warp"):
            reshaped = warp(logits, raw, *shape)
        token, logp = draw(keys, position, reshaped, forced)
        return token, _pick(raw, token), logp

    return tuple(x.reshape(length.shape) for x in lax.cond(warps(*shape), warped, plain))


def _pick(x: jax.Array, token: jax.Array) -> jax.Array:
    """Entry int32[N] of each row of [N, V]."""
    return jnp.take_along_axis(x, token[:, None], axis=1)[:, 0]


def resize(config: ModelConfig, state: DeviceState, ring: int) -> DeviceState:
    """The same state with a longer or shorter ring; a shorter one keeps the newest columns.

    One array at a time, so that only one of them lies there twice. The state passed in must not be used again.
    """
    old, column = state.cache.k[0].shape[2], state.column
    k, v = list(state.cache.k), list(state.cache.v)
    state = replace(state, cache=state.cache._replace(k=(), v=()))
    for arrays in (k, v):
        for i, x in enumerate(arrays):
            arrays[i] = _resized(config, x, column, ring)
            x.delete()
    cache = state.cache._replace(k=tuple(k), v=tuple(v))
    column = jax.device_put(np.int32(old if ring > old else 0), column.sharding)
    return replace(state, cache=cache, column=column)


@partial(jax.jit, static_argnames=("config", "ring"))
def _resized(config: ModelConfig, x: jax.Array, column: jax.Array, ring: int) -> jax.Array:
    old = x.shape[2]
    oldest_first = jnp.roll(x, -column, axis=2)
    if ring < old:
        return _in_place(config, oldest_first[:, :, old - ring :])
    return _in_place(config, jnp.pad(oldest_first, ((0, 0), (0, 0), (0, ring - old), (0, 0))))

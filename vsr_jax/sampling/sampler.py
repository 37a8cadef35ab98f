"""The sampler: a queue of samples, slots that are kept full, and rollouts that do not depend on either.

Lanes hold prompts, slots within a lane answer them. Between chunks of decode steps the host collects finished
responses, gives their slots the next samples of the queue, and prefills a lane's next prompt as soon as one of its
prompts has been answered by all of its samples.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vsr_jax.errors import UserError
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.model.transformer import unstack_layers
from vsr_jax.parallel.rules import batch_shardings, mesh_of, rows_multiple
from vsr_jax.sampling.device import Prefix, SlotData, decode_program, make_state, prefill, prefill_forced, resize
from vsr_jax.sampling.draw import row_keys
from vsr_jax.sampling.memory import check_memory
from vsr_jax.sampling.schedule import Schedule, bucket, plan_layout
from vsr_jax.sampling.types import LENGTH, STOP, Rollouts, SamplerStats, SamplingParams

FREE = -1
"""Entry of `forced_tokens` that leaves a position to the policy."""


def sample(
    config: ModelConfig,
    params: Params,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingParams,
    seed: int,
    *,
    forced_tokens: np.ndarray | None = None,
    prompt_ids: Sequence[int] | None = None,
    slots: int = 256,
    chunk: int | None = None,
    refill: bool = True,
    on_prompt: Callable[[int, Rollouts], None] | None = None,
    on_stats: Callable[[SamplerStats], None] | None = None,
    on_compile: Callable[[str, float], None] | None = None,
) -> Rollouts:
    """Draws `sampling.n` responses to each prompt.

    A row's randomness comes from (seed, prompt id, sample id, position): it gets the same tokens alone and in any
    batch, with any number of slots, chunk size or order of the queue, up to ties in floating point.

    Args:
      params: stacked, or as `unstack_layers` returns them. Where they lie on a mesh, the cache is laid out over it:
        lanes over `data` and `fsdp`, key heads over `tensor`. All its devices must be this process's.
      prompts: P lists of token ids.
      forced_tokens: int[N, R'] with N = P n rows in prompt-major order; entries of -1 (or beyond R') are free.
      prompt_ids: P ints that seed the rows; default 0..P-1.
      slots: responses decoded together.
      chunk: decode steps between visits to the host; default by the length limit.
      refill: give a finished slot the next sample at once; otherwise wait until all slots have finished.
      on_prompt: called with (index, its n rows) when all samples of a prompt are there, while the next chunk runs.
      on_stats: called at the end with what the call cost, slot occupancy among it.
      on_compile: called with (what, seconds) after a program was compiled; default writes to the log of this module.

    Returns:
      Rollouts of N = P n rows, prompt-major.

    Raises:
      UserError: an empty prompt, a token id outside the vocabulary, prompt and response beyond the context, or more
        slots than fit into memory.
    """
    count, n = len(prompts), sampling.n
    limits = np.broadcast_to(np.asarray(sampling.max_tokens, np.int32), (count,))
    width = int(limits.max(initial=0))
    ids = np.asarray(range(count) if prompt_ids is None else prompt_ids, np.int64).astype(np.uint32).view(np.int32)
    _validate(config, prompts, limits, n, ids)
    out = _empty_rollouts(prompts, ids, n, width)
    forced = _forced_matrix(config, forced_tokens, count * n, width)
    if not count or not width:
        return out
    spread = lambda x, kind: np.repeat(np.broadcast_to(np.asarray(x, kind), (count,)), n)  # noqa: E731
    rows = {
        "limit": spread(limits, np.int32),
        "temperature": spread(sampling.temperature, np.float32),
        "top_p": spread(sampling.top_p, np.float32),
        "top_k": spread(sampling.top_k, np.int32),
    }
    ahead = _Ahead(on_compile)
    keys = _keys(jnp.uint32(seed % 2**32), jnp.asarray(ids), n)
    stop = np.full(bucket(len(sampling.stop_ids), 8), -1, np.int32)
    stop[: len(sampling.stop_ids)] = sampling.stop_ids
    begun = _shared_prefixes(forced, limits, n, sampling.stop_ids)
    asked = [list(prompt) + forced[i * n, : begun[i]].tolist() for i, prompt in enumerate(prompts)]
    lengths = [len(prompt) for prompt in asked]
    mesh = mesh_of(params)
    layout = plan_layout(lengths, n, width, slots, chunk, shards=1 if mesh is None else rows_multiple(mesh))
    check_memory(config, params, lengths, n, width, layout, slots)
    schedule = Schedule(layout, [len(p) for p in prompts], n, refill=refill, begun=begun.tolist())
    params = unstack_layers(config, params)
    ring = layout.ring
    # On a mesh the slots are laid out as the cache is.
    send = (lambda slot: slot) if mesh is None else lambda slot: jax.device_put(slot, batch_shardings(slot, mesh))
    with jax.set_mesh(mesh) if mesh is not None else nullcontext():
        state = make_state(config, layout.lanes, layout.prompts, layout.width, layout.group, ring)
        decode_chunk = decode_program(next(iter(state.hidden.devices())).platform)
        finished: list[int] = []
        stats, began = SamplerStats(slots=layout.lanes * layout.group), time.monotonic()
        while schedule.busy():
            scored = []
            for lane, place, index in schedule.admit():
                arguments = (*_prompt_arrays(asked[index], layout.width), _one(lane), _one(place))
                if begun.any():
                    prefix = _prefix(forced, rows, index * n, int(begun[index]), bucket(int(begun.max())))
                    ahead("prefill", prefill_forced, config, params, state, *arguments, prefix)
                    state, *logps = prefill_forced(config, params, state, *arguments, prefix)
                    scored.append((index, logps))
                else:
                    ahead("prefill", prefill, config, params, state, *arguments)
                    state = prefill(config, params, state, *arguments)
                stats = replace(stats, prefills=stats.prefills + 1)
            row = np.maximum(schedule.row, 0)
            folded = begun[row // n]
            # Attention follows the longest live response: the ring grows with it, and shrinks when it is half empty.
            needed = int(np.where(schedule.row >= 0, schedule.length - folded, 0).max()) + layout.chunk
            wanted = max(min(bucket(needed), bucket(width)), layout.ring)
            if wanted > ring or 2 * wanted <= ring:
                state, ring = resize(config, state, wanted), wanted
            steps = schedule.length[..., None] + np.arange(layout.chunk)
            slot = SlotData(
                prompt=schedule.place,
                prompt_length=schedule.prompt_length,
                length=schedule.length,
                folded=folded,
                limit=rows["limit"][row],
                live=schedule.row >= 0,
                keys=keys[row],
                forced=np.where(steps < width, forced[row[..., None], np.minimum(steps, width - 1)], FREE),
                temperature=rows["temperature"][row],
                top_p=rows["top_p"][row],
                top_k=rows["top_k"][row],
                stop_ids=stop,
            )
            sent = send(slot)
            ahead("decode", decode_chunk, config, params, state, sent)
            state, made = decode_chunk(config, params, state, sent)
            # The device is busy now: hand over what the previous chunk finished.
            _hand_over(out, finished, n, on_prompt)
            for index, logps in scored:
                _write_prefix(out, forced, index * n, n, int(begun[index]), *jax.device_get(logps))
            made = jax.device_get(made)
            finished, made_here = [], []
            for p, g in zip(*np.nonzero(schedule.row >= 0), strict=True):
                i, at = schedule.row[p, g], schedule.length[p, g]
                new, ended = _new_tokens(made.tokens[p, g], int(slot.limit[p, g] - at), sampling.stop_ids)
                span = slice(at, at + new)
                out.tokens[i, span] = made.tokens[p, g, :new]
                out.logp[i, span] = made.logp[p, g, :new]
                out.logp_behavior[i, span] = made.logp_behavior[p, g, :new]
                out.sampled[i, span] = forced[i, span] < 0
                out.length[i] = at + new
                schedule.length[p, g] += new
                made_here.append(new)
                if not made.live[p, g]:
                    out.finish_reason[i] = STOP if ended else LENGTH
                    if schedule.finish(p, g):
                        finished.append(int(i) // n)
            # A chunk ends with its longest response.
            stats = replace(
                stats,
                chunks=stats.chunks + 1,
                steps=stats.steps + max(made_here),
                tokens=stats.tokens + sum(made_here),
                first_token_s=stats.first_token_s or time.monotonic() - began,
            )
    _hand_over(out, finished, n, on_prompt)
    if on_stats is not None:
        on_stats(replace(stats, seconds=time.monotonic() - began))
    return out


class _Ahead:
    """Compiles programs before they are called, which costs nothing extra: the call finds the compiled program."""

    def __init__(self, report: Callable[[str, float], None] | None):
        self.report = report or _log_compilation
        self.seen: set[tuple[Any, ...]] = set()

    def __call__(self, what: str, function: Any, config: ModelConfig, params: Params, *args: Any) -> None:
        shapes = (what, *(np.shape(leaf) for leaf in jax.tree.leaves(args)))
        if shapes in self.seen:
            return
        self.seen.add(shapes)
        began = time.monotonic()
        function.lower(config, params, *args).compile()
        seconds = time.monotonic() - began
        if seconds > _NOTABLE:
            self.report(what, seconds)


_NOTABLE = 0.5
"""Seconds: what takes less was compiled before, or is too small to wait for."""


def _log_compilation(what: str, seconds: float) -> None:
    logging.getLogger(__name__).info("%s compiled in %.1f s", what, seconds)


def _hand_over(out: Rollouts, finished: list[int], n: int, on_prompt: Callable[[int, Rollouts], None] | None) -> None:
    if on_prompt is not None:
        for index in finished:
            on_prompt(index, prompt_rows(out, index, n))


def _new_tokens(tokens: np.ndarray, room: int, stop_ids: tuple[int, ...]) -> tuple[int, bool]:
    """How many of a chunk's tokens belong to the response, and whether the last of them is a stop token."""
    room = min(room, len(tokens))
    hits = np.flatnonzero(np.isin(tokens[:room], stop_ids))
    return (int(hits[0]) + 1, True) if len(hits) else (room, False)


def prompt_rows(rollouts: Rollouts, index: int, n: int) -> Rollouts:
    """The n rows of one prompt, as rollouts of that prompt alone."""
    span = slice(index * n, (index + 1) * n)
    per_row = ("tokens", "length", "sampled", "logp", "logp_behavior", "finish_reason", "prompt_id", "sample_id")
    cut = {name: getattr(rollouts, name)[span] for name in per_row}
    one = slice(index, index + 1)
    return Rollouts(
        **cut,
        prompt_index=np.zeros(n, np.int32),
        prompt_tokens=rollouts.prompt_tokens[one],
        prompt_length=rollouts.prompt_length[one],
    )


def _one(x: int) -> np.ndarray:
    return np.full(1, x, np.int32)


def _prompt_arrays(prompt: Sequence[int], width: int) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.zeros((1, width), np.int32)
    tokens[0, : len(prompt)] = prompt
    return tokens, _one(len(prompt))


def _shared_prefixes(forced: np.ndarray, limits: np.ndarray, n: int, stop_ids: tuple[int, ...]) -> np.ndarray:
    """int32[P], leading tokens that all rows of a prompt are forced to: they are run once, with the prompt.

    The last token of a response, and a stop token, are left to the decode steps, which end responses.
    """
    by_prompt = forced.reshape(len(limits), n, -1)
    first = by_prompt[:, 0]
    shared = (by_prompt == first[:, None]).all(1) & (first >= 0) & ~np.isin(first, stop_ids)
    leading = np.logical_and.accumulate(shared, axis=1).sum(1)
    return np.minimum(leading, limits - 1).astype(np.int32)


def _prefix(forced: np.ndarray, rows: dict[str, np.ndarray], row: int, size: int, room: int) -> Prefix:
    tokens = np.zeros((1, room), np.int32)
    tokens[0, room - size :] = forced[row, :size]
    return Prefix(tokens, *(rows[name][row : row + 1] for name in ("temperature", "top_p", "top_k")))


def _write_prefix(
    out: Rollouts, forced: np.ndarray, row: int, n: int, size: int, logp: np.ndarray, logp_behavior: np.ndarray
) -> None:
    rows = slice(row, row + n)
    out.tokens[rows, :size] = forced[row, :size]
    for mine, new in ((out.logp, logp), (out.logp_behavior, logp_behavior)):
        mine[rows, :size] = new[0, new.shape[1] - size :]


@partial(jax.jit, static_argnames=("n",))
def _keys(seed: jax.Array, prompt_ids: jax.Array, n: int) -> jax.Array:
    count = prompt_ids.shape[0]
    return row_keys(seed, jnp.repeat(prompt_ids, n), jnp.tile(jnp.arange(n, dtype=jnp.int32), count))


def _empty_rollouts(prompts: Sequence[Sequence[int]], ids: np.ndarray, n: int, width: int) -> Rollouts:
    count, longest = len(prompts), max((len(p) for p in prompts), default=1)
    padded = np.zeros((count, longest), np.int32)
    for i, prompt in enumerate(prompts):
        padded[i, : len(prompt)] = prompt
    return Rollouts(
        tokens=np.zeros((count * n, width), np.int32),
        length=np.zeros(count * n, np.int32),
        sampled=np.zeros((count * n, width), bool),
        logp=np.zeros((count * n, width), np.float32),
        logp_behavior=np.zeros((count * n, width), np.float32),
        finish_reason=np.full(count * n, LENGTH, np.int8),
        prompt_id=np.repeat(ids, n),
        sample_id=np.tile(np.arange(n, dtype=np.int32), count),
        prompt_index=np.repeat(np.arange(count, dtype=np.int32), n),
        prompt_tokens=padded,
        prompt_length=np.array([len(p) for p in prompts], np.int32),
    )


def _validate(
    config: ModelConfig, prompts: Sequence[Sequence[int]], limits: np.ndarray, n: int, ids: np.ndarray
) -> None:
    if n < 1:
        raise UserError(f"sampling field n is {n}; draw at least 1 sample a prompt")
    if len(ids) != len(prompts):
        raise UserError(f"{len(prompts)} prompts but {len(ids)} prompt_ids")
    if len(set(ids.tolist())) != len(ids):
        raise UserError("prompt_ids repeat; equal ids would draw equal samples")
    if limits.min(initial=1) < 1:
        raise UserError(f"sampling field max_tokens is {limits.min()}; allow at least 1 token")
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

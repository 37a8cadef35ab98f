"""Two or three policies along the same stored responses: one chunked pass over all of them.

Logits exist for a chunk of tokens at a time, on the device; the host receives a few numbers a token.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vsr_jax.errors import UserError
from vsr_jax.mechanism.statistics import PairStatistics, pair_statistics
from vsr_jax.model import transformer
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.sampling.schedule import bucket
from vsr_jax.scoring import chunked

CHUNK = 128
"""Tokens whose logits exist at one time, for every policy: with two vocabularies of 152k entries, 0.2 GiB."""


@dataclass(frozen=True)
class TokenTable:
    """Statistics along N responses, one entry a response token; T tokens in all, in order.

    Attributes:
      response: int32[T], index of the response; position: int32[T], 1 for its first token; length: int32[T], tokens of
        the response.
      pairs: for each pair (i, j) of policies, i < j, the statistics of i (p) against j (q) as numpy arrays [T].
    """

    response: np.ndarray
    position: np.ndarray
    length: np.ndarray
    pairs: Mapping[tuple[int, int], PairStatistics]


def check_same_tokens(names: Sequence[str], tokenizers: Sequence[Any], configs: Sequence[ModelConfig]) -> None:
    """Raises UserError unless all policies give every token id the same meaning."""
    words = tokenizers[0].get_vocab()
    for name, tokenizer, config in zip(names[1:], tokenizers[1:], configs[1:], strict=True):
        other = tokenizer.get_vocab()
        if other != words or config.num_tokens != configs[0].num_tokens:
            moved = sum(words.get(word) != i for word, i in other.items())
            raise UserError(
                f"{names[0]} and {name} have different vocabularies ({len(words)} and {len(other)} entries, {moved} of "
                "the second at another id): their distributions cannot be compared token by token; "
                "choose policies of one family"
            )


def teacher_force(
    models: Sequence[tuple[ModelConfig, Params]],
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    *,
    rows: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> TokenTable:
    """Runs every model over every prompt with its response, and compares their predictions of each response token.

    Args:
      models: two or three, over one vocabulary (`check_same_tokens`); padding of the vocabulary may differ.
      prompts, responses: N lists of token ids each, none empty; a prompt that has several responses is repeated.
      rows: responses in one pass; lower it when memory is short.
      progress: called with (responses done, responses in all) after each pass.

    Raises:
      UserError: no responses, an empty one, or prompt and response beyond a model's context.
      ValueError: not two or three models.
    """
    if len(models) not in (2, 3):
        raise ValueError(f"two or three policies can be compared, got {len(models)}")
    if not responses or not all(map(len, responses)) or not all(map(len, prompts)):
        raise UserError("localising needs responses, and every prompt and response needs at least one token")
    configs = tuple(config for config, _ in models)
    room = min(config.max_position for config in configs)
    sizes = np.array([len(p) + len(r) for p, r in zip(prompts, responses, strict=True)])
    if sizes.max() > room:
        raise UserError(f"response {int(sizes.argmax())} has {sizes.max()} tokens with its prompt, the context {room}")
    lengths = np.array([len(r) for r in responses], np.int32)
    ends = np.cumsum(lengths)
    total = int(ends[-1])
    keys = list(combinations(range(len(models)), 2))
    found: dict[tuple[int, int], dict[str, Any]] = {key: {} for key in keys}
    order = np.argsort(sizes, kind="stable")
    for start in range(0, len(order), rows):
        part = order[start : start + rows]
        # The last pass is filled up with its first row, so that no further shape compiles.
        filled = np.concatenate([part, np.repeat(part[:1], min(rows, len(order)) - len(part))])
        width = min(bucket(int(sizes[filled].max())), room)
        span = min(bucket(int(lengths[filled].max())), width)
        tokens = np.zeros((len(filled), width), np.int32)
        for row, i in enumerate(filled):
            tokens[row, : sizes[i]] = [*prompts[i], *responses[i]]
        before = jnp.asarray([len(prompts[i]) for i in filled], jnp.int32)
        out = jax.device_get(_compare(configs, tuple(p for _, p in models), jnp.asarray(tokens), before, span))
        for key, statistics in zip(keys, out, strict=True):
            for field in fields(PairStatistics):
                values = getattr(statistics, field.name)
                flat = found[key].setdefault(field.name, np.zeros(total, values.dtype))
                for row, i in enumerate(part):
                    flat[ends[i] - lengths[i] : ends[i]] = values[row, : lengths[i]]
        if progress is not None:
            progress(start + len(part), len(order))
    response = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    position = np.arange(total, dtype=np.int32) - np.repeat(ends - lengths, lengths) + 1
    pairs = {key: PairStatistics(**values) for key, values in found.items()}
    return TokenTable(response, position.astype(np.int32), np.repeat(lengths, lengths), pairs)


@partial(jax.jit, static_argnames=("configs", "span"))
def _compare(
    configs: tuple[ModelConfig, ...],
    params: tuple[Params, ...],
    tokens: jax.Array,
    prompt_length: jax.Array,
    span: int,
) -> list[PairStatistics]:
    """Statistics [B, span] of every pair of models, from int32[B, T] rows of prompt and response."""
    where = prompt_length[:, None] - 1 + jnp.arange(span)
    where = jnp.minimum(where, tokens.shape[1] - 1)[..., None]
    hidden = [
        jnp.take_along_axis(transformer.hidden_states(config, weights, tokens), where, axis=1)
        for config, weights in zip(configs, params, strict=True)
    ]

    def statistic(first: jax.Array, others: list[jax.Array]) -> list[PairStatistics]:
        rest = [transformer.logits(c, w, h) for c, w, h in zip(configs[1:], params[1:], others, strict=True)]
        logits = [x[:, : configs[0].num_tokens] for x in (first, *rest)]
        return [pair_statistics(p, q) for p, q in combinations(logits, 2)]

    return chunked(configs[0], params[0], hidden[0], hidden[1:], statistic, chunk=CHUNK)

"""The first token of a response: what each policy would say, and which opening it leads to."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from vsr_jax.data.tokenizer import text_of
from vsr_jax.model import transformer
from vsr_jax.model.config import ModelConfig
from vsr_jax.model.params import Params
from vsr_jax.sampling.schedule import bucket

UNSEEN = "unseen"
"""Class of a candidate that begins no stored response."""


@dataclass(frozen=True)
class FirstTokens:
    """A policy's first response token.

    Attributes:
      ids: int32[P, k], likeliest first; probs: float32[P, k].
      mean: float32[V], probability of each token, averaged over prompts.
    """

    ids: np.ndarray
    probs: np.ndarray
    mean: np.ndarray


def first_tokens(
    config: ModelConfig,
    params: Params,
    prompts: Sequence[Sequence[int]],
    *,
    k: int = 10,
    rows: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> FirstTokens:
    """The distribution after each prompt, at temperature 1.

    Args:
      prompts: P lists of token ids, none empty.
      k: likeliest tokens to return.
      rows: prompts in one pass.
    """
    ids, probs = [], []
    mean = np.zeros(config.num_tokens, np.float64)
    width = bucket(max(map(len, prompts)))
    for start in range(0, len(prompts), rows):
        part = prompts[start : start + rows]
        tokens = np.zeros((min(rows, len(prompts)), width), np.int32)
        length = np.zeros(len(tokens), np.int32)
        for row, prompt in enumerate(part):
            tokens[row, : len(prompt)], length[row] = prompt, len(prompt)
        top, best, total = jax.device_get(_first(config, params, jnp.asarray(tokens), jnp.asarray(length), k))
        ids.append(best[: len(part)])
        probs.append(top[: len(part)])
        mean += total
        if progress is not None:
            progress(start + len(part), len(prompts))
    return FirstTokens(np.concatenate(ids), np.concatenate(probs), (mean / len(prompts)).astype(np.float32))


@partial(jax.jit, static_argnames=("config", "k"))
def _first(
    config: ModelConfig, params: Params, tokens: jax.Array, length: jax.Array, k: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Top-k probabilities and ids [B, k], and the summed distribution [V] over rows that have tokens."""
    hidden = transformer.hidden_states(config, params, tokens)
    last = jnp.take_along_axis(hidden, jnp.maximum(length - 1, 0)[:, None, None], axis=1)[:, 0]
    probs = jax.nn.softmax(transformer.logits(config, params, last)[:, : config.num_tokens], axis=-1)
    top, ids = lax.top_k(probs, k)
    return top, ids.astype(jnp.int32), jnp.where(length[:, None] > 0, probs, 0.0).sum(0)


@dataclass(frozen=True)
class Candidate:
    """A first token.

    Attributes:
      token: id; text: as decoded.
      opening: class of most stored responses that begin with it, `unseen` where none does.
      seen: stored responses that begin with it; agreement: share of them in that class.
      probs: mean probability under each policy.
    """

    token: int
    text: str
    opening: str
    seen: int
    agreement: float
    probs: tuple[float, ...]


def candidate_table(
    means: Sequence[np.ndarray], first: Sequence[int], openings: Sequence[str], tokenizer: Any, *, count: int = 12
) -> list[Candidate]:
    """The first tokens that matter: the `count` with the highest mean probability under any policy.

    A token's class is read off responses that begin with it, not guessed from its text: `Let` alone says nothing.

    Args:
      means: float[V] of each policy (`FirstTokens.mean`).
      first, openings: first token and opening class of the stored responses.
      tokenizer: turns ids into text.
    """
    by_token: dict[int, Counter[str]] = {}
    for token, opening in zip(first, openings, strict=True):
        by_token.setdefault(int(token), Counter())[opening] += 1
    highest = np.max(means, axis=0)
    rows = []
    for token in np.argsort(-highest, kind="stable")[:count].tolist():
        seen = by_token.get(token, Counter())
        opening, most = seen.most_common(1)[0] if seen else (UNSEEN, 0)
        rows.append(
            Candidate(
                token=token,
                text=text_of(tokenizer, [token]) or tokenizer.convert_ids_to_tokens(token),
                opening=opening,
                seen=seen.total(),
                agreement=most / seen.total() if seen else float("nan"),
                probs=tuple(float(mean[token]) for mean in means),
            )
        )
    return rows


def mass_by_opening(
    means: Sequence[np.ndarray], first: Sequence[int], openings: Sequence[str]
) -> Mapping[str, tuple[float, ...]]:
    """Mean probability of a first token by the opening class it leads to, for each policy.

    A token's probability is split over classes as the stored responses that begin with it are; tokens that begin none
    are `unseen`.

    Args:
      means, first, openings: as in `candidate_table`.
    """
    classes = sorted(set(openings))
    counts = np.zeros((len(classes), len(means[0])))
    for token, opening in zip(first, openings, strict=True):
        counts[classes.index(opening), token] += 1
    seen = counts.sum(axis=0)
    split = np.divide(counts, seen, out=np.zeros_like(counts), where=seen > 0)
    out = {name: tuple(float(split[row] @ mean) for mean in means) for row, name in enumerate(classes)}
    return {**out, UNSEEN: tuple(float(mean[seen == 0].sum()) for mean in means)}

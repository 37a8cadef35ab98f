"""Forced openings: conditions, the token ids they force, and one queue that holds them all.

The seam. Forced text is encoded apart from the prompt and its ids become the first response tokens, so that the
prompt's own ids never change and nothing merges across the seam. Blanks at the end of forced text are left to the
policy (`moved`, the default): a lone blank token is rare in training, and a policy that has to go on from it is off
its distribution. `exact` forces them too, as the paper's prefix "Answer: " does. Line ends are always forced. The
rule is the same for every condition of a run.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vsr_jax.data.tokenizer import text_of
from vsr_jax.errors import UserError
from vsr_jax.mechanism.first_token import FirstTokens
from vsr_jax.sampling.sampler import FREE
from vsr_jax.sampling.types import Rollouts

Kind = Literal["free", "other", "second", "frequent", "text"]
Seam = Literal["moved", "exact"]

FREQUENT = 50
"""How many of the most frequent prompt tokens the random control draws from."""

SWEEP = (1, 2, 3, 4, 5, 8, 12, 16, 20, 24, 32, 50, 75, 100)
"""Positions of the paper's sweep."""


@dataclass(frozen=True)
class Texts:
    """Forced prefixes: deliberate, direct answer, and one that suggests nothing, cut to the length of the first."""

    dri: str
    dai: str
    neutral: str


RECIPE_TEXTS = Texts(
    "Let me solve this step by step.\n\n",
    "Answer: ",
    "What follows is a piece of text that was written for the message above, as it stands.\n\n",
)
MICRO_TEXTS = Texts("Let us solve step by step :", "Answer :", "Sure : here it is all :")


@dataclass(frozen=True)
class Forcing:
    """One condition with what it forces.

    Attributes:
      name: for tables and folders.
      ids: forced token ids of each prompt; empty where nothing is forced.
      position: response position of the first forced token, 1 for an opening.
      text: that the response must then begin with; empty for token conditions.
    """

    name: str
    ids: tuple[tuple[int, ...], ...]
    position: int = 1
    text: str = ""


def text_ids(tokenizer: Any, text: str, seam: Seam = "moved") -> tuple[tuple[int, ...], str]:
    """Ids of forced text and the text that they spell, by the seam rule.

    Raises:
      UserError: nothing is left to force, or the tokenizer cannot spell the text.
    """
    kept = text.rstrip(" \t") if seam == "moved" else text
    ids = tuple(tokenizer.encode(kept, add_special_tokens=False))
    if not ids:
        raise UserError(f"forced text {text!r}: holds nothing but blanks; give at least one word")
    spelled = text_of(tokenizer, ids)
    if spelled != kept:
        raise UserError(f"forced text {text!r}: the tokenizer spells it as {spelled!r}; use words that it has")
    return ids, kept


def matched_ids(tokenizer: Any, text: str, length: int) -> tuple[tuple[int, ...], str]:
    """The first `length` token ids of a text, repeated where it is too short, and the text that they spell."""
    once, _ = text_ids(tokenizer, text)
    ids = (once * -(-length // len(once)))[:length]
    return ids, text_of(tokenizer, ids)


def free(prompts: int) -> Forcing:
    """The policy as it is."""
    return Forcing("free", ((),) * prompts)


def text_forcing(name: str, ids: tuple[int, ...], text: str, prompts: int) -> Forcing:
    """The same text before every response."""
    return Forcing(name, (ids,) * prompts, text=text)


def token_forcing(name: str, tokens: Sequence[int], position: int = 1) -> Forcing:
    """One token a prompt, at a position."""
    return Forcing(name, tuple((int(token),) for token in tokens), position)


def other_first(other: FirstTokens, position: int = 1) -> Forcing:
    """The other policy's likeliest first token of each prompt."""
    name = "other's first token" if position == 1 else f"other's first token at {position}"
    return token_forcing(name, other.ids[:, 0].tolist(), position)


def own_second(own: FirstTokens) -> Forcing:
    """The policy's own second choice: a change of token that the policy itself offers."""
    return token_forcing("own second token", own.ids[:, 1].tolist())


def frequent_tokens(
    tokenizer: Any, prompts: Sequence[Sequence[int]], ids: Sequence[str], seed: int, exclude: Sequence[int] = ()
) -> Forcing:
    """For each prompt a random one of the `FREQUENT` tokens that are most frequent in all prompts.

    Args:
      tokenizer: tells special tokens, which are left out.
      prompts: token ids; ids: of the rows: a prompt's token depends on its id and the seed alone.
      exclude: further tokens to leave out, such as those that end a response.
    """
    left_out = {*tokenizer.all_special_ids, *exclude}
    counts = Counter(token for prompt in prompts for token in prompt if token not in left_out)
    if not counts:
        raise UserError("the prompts hold special tokens only; leave the condition `frequent` out")
    pool = [token for token, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:FREQUENT]]

    def draw(name: str) -> int:
        digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
        return pool[int.from_bytes(digest[:8], "big") % len(pool)]

    return token_forcing("random frequent token", [draw(name) for name in ids])


def forced_matrix(forcings: Sequence[Forcing], samples: int, max_tokens: int) -> np.ndarray:
    """`forced_tokens` of one queue: int32[conditions x prompts x samples, max_tokens], conditions outermost.

    Raises:
      UserError: a condition forces beyond the longest response.
    """
    rows = []
    for forcing in forcings:
        for ids in forcing.ids:
            begin = forcing.position - 1
            if begin + len(ids) > max_tokens:
                raise UserError(
                    f"condition {forcing.name!r} forces position {begin + len(ids)}, responses have at most "
                    f"{max_tokens} tokens; raise --max-tokens or leave it out"
                )
            row = np.full(max_tokens, FREE, np.int32)
            row[begin : begin + len(ids)] = ids
            rows.append(row)
    return np.repeat(np.array(rows, np.int32).reshape(-1, max_tokens), samples, axis=0)


def reached(rollouts: Rollouts, forced: np.ndarray) -> np.ndarray:
    """bool[N]: the response was still running at its last forced position (all true where nothing is forced).

    Raises:
      RuntimeError: a response does not hold the tokens that it was forced to; a fault of the sampler.
    """
    width = rollouts.tokens.shape[1]
    asked = forced[:, :width] != FREE
    live = np.arange(width) < rollouts.length[:, None]
    wrong = asked & live & ((rollouts.tokens != forced[:, :width]) | rollouts.sampled)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise RuntimeError(f"response {row} lacks its forced token at position {column + 1}")
    return ~(asked & ~live).any(axis=1)

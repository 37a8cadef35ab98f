"""Whether training and evaluation prompts overlap, whatever their spacing, spelling of LaTeX or punctuation."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from vsr_jax.data.rows import Row

# Spellings that render alike.
_SAME = (
    (re.compile(r"\\[dt]frac"), r"\\frac"),
    (re.compile(r"\\(?:left|right|displaystyle|limits|qquad|quad)(?![a-zA-Z])|\\[,;:!> ]|\\\\"), " "),
    (re.compile(r"\\(?:text|mathrm|mbox|textrm)(?![a-zA-Z])"), " "),
)
_TOKEN = re.compile(r"[^\W_]+|[+\-=<>^/*!|]")


@dataclass(frozen=True)
class Overlap:
    """What two sets of rows share.

    Attributes:
      exact: pairs of ids whose prompts are equal after normalisation.
      near: other pairs where the shorter prompt has at least the threshold share of its n-grams in the longer one.
    """

    exact: tuple[tuple[str, str], ...]
    near: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{len(self.exact)} equal and {len(self.near)} similar pairs of prompts"


def normalise(text: str) -> tuple[str, ...]:
    """Words and operators of a prompt in lower case; spacing, `$`, braces and punctuation do not count."""
    for pattern, plain in _SAME:
        text = pattern.sub(plain, text)
    return tuple(_TOKEN.findall(text.lower()))


def overlap(rows_a: Sequence[Row], rows_b: Sequence[Row], *, n: int = 8, threshold: float = 0.6) -> Overlap:
    """Pairs of rows with the same or nearly the same prompt.

    Args:
      rows_a, rows_b: two sets of rows, such as training and evaluation.
      n: length of the n-grams, in tokens of `normalise`. Prompts shorter than this can be equal, never similar.
      threshold: share of the n-grams of the prompt with fewer of them that must occur in the other.
    """
    tokens_a = [normalise(row.prompt) for row in rows_a]
    equal = defaultdict(list)
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    sizes = []
    for index, tokens in enumerate(tokens_a):
        equal[tokens].append(index)
        grams = _grams(tokens, n)
        sizes.append(len(grams))
        for gram in grams:
            holders[gram].append(index)

    exact, near = [], []
    for row in rows_b:
        tokens = normalise(row.prompt)
        same = equal.get(tokens, [])
        exact += [(rows_a[index].id, row.id) for index in same]
        grams = _grams(tokens, n)
        shared = Counter(index for gram in grams for index in holders.get(gram, ()))
        near += [
            (rows_a[index].id, row.id)
            for index, count in shared.items()
            if index not in same and count >= threshold * min(sizes[index], len(grams))
        ]
    return Overlap(tuple(exact), tuple(near))


def _grams(tokens: tuple[str, ...], n: int) -> set[tuple[str, ...]]:
    return {tokens[start : start + n] for start in range(len(tokens) - n + 1)}

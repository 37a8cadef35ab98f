"""Whether training and evaluation prompts overlap, whatever their spacing, spelling of LaTeX or punctuation."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
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
    if "\\" in text:  # the spellings are all commands of LaTeX
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
    # Evaluation sets are small and training sets may have a hundred thousand rows: only the former's n-grams are held.
    tokens_b = [normalise(row.prompt) for row in rows_b]
    grams_b = [_grams(tokens, n) for tokens in tokens_b]
    equal: dict[tuple[str, ...], list[int]] = defaultdict(list)
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, (tokens, grams) in enumerate(zip(tokens_b, grams_b, strict=True)):
        equal[tokens].append(index)
        for gram in grams:
            holders[gram].append(index)

    exact, near = [], []
    for place, row in enumerate(rows_a):
        tokens = normalise(row.prompt)
        same = equal.get(tokens, [])
        exact += [(index, place) for index in same]
        found = {gram for gram in _windows(tokens, n) if gram in holders}
        if not found:
            continue  # most rows; their other n-grams are never kept
        size = len(_grams(tokens, n))
        shared = Counter(index for gram in found for index in holders[gram])
        near += [
            (index, place)
            for index, count in shared.items()
            if index not in same and count >= threshold * min(size, len(grams_b[index]))
        ]
    named = lambda pairs: tuple((rows_a[a].id, rows_b[b].id) for b, a in sorted(pairs))  # noqa: E731
    return Overlap(named(exact), named(near))


def _windows(tokens: tuple[str, ...], n: int) -> Iterator[tuple[str, ...]]:
    return zip(*(tokens[start:] for start in range(n)), strict=False)


def _grams(tokens: tuple[str, ...], n: int) -> set[tuple[str, ...]]:
    return set(_windows(tokens, n))

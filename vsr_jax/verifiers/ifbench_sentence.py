"""IFBench `sentence:` instructions: conditions on one sentence after another."""

import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from vsr_jax.verifiers.fields import Count, Filled, Ordinal
from vsr_jax.verifiers.ifbench_text import PUNCTUATION, without_punctuation
from vsr_jax.verifiers.text import rule_sentences, sentences

Splitter = Callable[[str], list[str]]


def _alliterating_words(sentence: str) -> int:
    """Words of a sentence that begin like a neighbour, quotes and brackets before them aside."""
    stripped = (word.lstrip(PUNCTUATION) for word in sentence.lower().split())
    initials = [word[0] for word in stripped if word]
    matches = [a == b for a, b in pairwise(initials)]
    # A run of k equal initials has k - 1 matches and counts k.
    runs = sum(now and not before for before, now in pairwise([False, *matches]))
    return sum(matches) + runs


def alliteration_increment(split: Splitter, response: str, /) -> bool:
    """Each sentence has more alliterating words than the one before it."""
    return all(a < b for a, b in pairwise(map(_alliterating_words, split(response))))


def increment(split: Splitter, response: str, /, *, small_n: Count) -> bool:
    """Each sentence has exactly `small_n` words more than the one before; marks alone are no words."""
    counts = [len(without_punctuation(sentence).split()) for sentence in split(response)]
    return all(b - a == small_n for a, b in pairwise(counts))


def _nth(split: Splitter, response: str, position: int) -> str:
    """The sentence at a position that counts from 1; empty where there are too few."""
    found = split(response)
    return found[position - 1] if len(found) >= position else ""


def keyword(response: str, *, word: Filled, N: Ordinal) -> bool:
    """Sentence `N` holds the word, in any case, with a word boundary at both its ends."""
    wanted = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    return wanted.search(_nth(sentences, response, N)) is not None


def keyword_2025(response: str, *, word: Filled, N: Ordinal) -> bool:
    """Sentence `N` holds the word, in any case, also inside a longer one."""
    return word.lower() in _nth(rule_sentences, response, N).lower()


def _table(split: Splitter, keyword: Callable[..., bool]) -> dict[str, Callable[..., bool]]:
    return {
        "sentence:alliteration_increment": partial(alliteration_increment, split),
        "sentence:increment": partial(increment, split),
        "sentence:keyword": keyword,
    }


SENTENCE = _table(sentences, keyword)
SENTENCE_2025 = _table(rule_sentences, keyword_2025)

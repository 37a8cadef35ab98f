"""IFBench `ratio:` instructions: shares and proportions of words, sentences and letters."""

from collections.abc import Callable
from functools import partial

from vsr_jax.errors import UserError
from vsr_jax.verifiers.fields import Filled
from vsr_jax.verifiers.ifbench_text import STOP_WORDS, bare
from vsr_jax.verifiers.text import rule_sentences, sentences, words

Splitter = Callable[[str], list[str]]


def _percent(value: object) -> float:
    """A share as a row gives it; raises UserError where it is no number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise UserError(f"field 'percentage' is {value!r}; give a number of at least 0")
    return value


def stop_words(response: str, *, percentage: float) -> bool:
    """At most `percentage` % of the runs of word characters are stop words; a response without words fails."""
    limit = _percent(percentage)
    found = words(response)
    stopping = sum(word.lower() in STOP_WORDS for word in found)
    return bool(found) and stopping / len(found) * 100 <= limit


def _endings(split: Splitter, response: str) -> tuple[int, int, int]:
    """How many sentences end in a full stop, a question mark and an exclamation mark."""
    found = split(response)
    stops, questions, cries = (sum(sentence.endswith(mark) for sentence in found) for mark in ".?!")
    return stops, questions, cries


def sentence_type(split: Splitter, response: str, /) -> bool:
    """Twice as many sentences end in `.` as in `?`; none of either kind passes."""
    stops, questions, _ = _endings(split, response)
    return stops == 2 * questions


def sentence_balance(split: Splitter, response: str, /) -> bool:
    """As many sentences end in `.` as in `?` and in `!`; none of any kind passes."""
    stops, questions, cries = _endings(split, response)
    return stops == questions == cries


def sentence_words(split: Splitter, response: str, /) -> bool:
    """Three sentences of the same number of characters; that their words differ is not looked at."""
    lengths = [len(sentence.strip()) for sentence in split(response)]
    return len(lengths) == 3 and len(set(lengths)) == 1


def sentence_words_differ(response: str) -> bool:
    """Three sentences of the same number of characters, and no word that stands twice."""
    used = [bare(word).lower() for word in response.split()]
    used = [word for word in used if word]
    return sentence_words(sentences, response) and len(set(used)) == len(used)


def _trigrams(text: str) -> set[str]:
    return {text[i : i + 3] for i in range(len(text) - 2)}


def overlap(response: str, *, reference_text: Filled, percentage: float) -> bool:
    """Of the different runs of three characters, `percentage` % (2 points either way) are in the reference text.

    A response of fewer than three characters fails; the 2025 release raised on it.
    """
    wanted = _percent(percentage)
    source, own = _trigrams(reference_text), _trigrams(response)
    return bool(own) and wanted - 2 <= len(own & source) / len(own) * 100 <= wanted + 2


def _table(split: Splitter) -> dict[str, Callable[..., bool]]:
    return {
        "ratio:stop_words": stop_words,
        "ratio:sentence_type": partial(sentence_type, split),
        "ratio:sentence_balance": partial(sentence_balance, split),
        "ratio:sentence_words": partial(sentence_words, split),
        "ratio:overlap": overlap,
    }


RATIO = _table(sentences)
RATIO_2025 = _table(rule_sentences)
RATIO_INTENT: dict[str, Callable[..., bool]] = {"ratio:sentence_words": sentence_words_differ}

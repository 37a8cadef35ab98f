"""IFBench `count:` instructions: how many words, names, numbers and marks a response holds."""

import re
from collections.abc import Callable

from vsr_jax.verifiers.fields import Count, Filled, Ordinal
from vsr_jax.verifiers.ifbench_text import bare, without_punctuation
from vsr_jax.verifiers.text import count_words, word_tokens

_CONJUNCTIONS = frozenset({"and", "but", "for", "nor", "or", "so", "yet"})

_NAME_LIST = (
    "Abigail Alexander Amelia Andrew Aria Audrey Ava Benjamin Charlotte Chloe Christopher Claire Daniel David "
    "Elijah Ella Emma Ethan Gabriel Grace Hannah Harper Isabella Jackson Jacob Jonathan Joseph Layla Leo Liam "
    "Lily Lucas Mason Matthew Mia Nathan Nicholas Noah Nora Olivia Owen Penelope Ryan Samuel Scarlett Sophia "
    "Stella Thomas Victoria Zoe"
)
_NAMES = _NAME_LIST.split()
_WHOLE_NAME = re.compile(rf"\b(?:{'|'.join(_NAMES)})\b")

_PERSONAL = """
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself
    she her hers herself it its itself they them their theirs themselves
"""
_OTHER = """
    this that these those who whom whose which what whoever whomever whatever whichever
    anybody anyone anything everybody everyone everything nobody nothing somebody someone something
    each either neither both all some any none
"""
_PRONOUNS_2025 = frozenset(_PERSONAL.split())
_PRONOUNS = _PRONOUNS_2025 | frozenset(_OTHER.split())

_JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")


def word_count_range(response: str, *, min_words: Count, max_words: Count) -> bool:
    """Between `min_words` and `max_words` runs of word characters, both included."""
    return min_words <= count_words(response) <= max_words


def unique_word_count(response: str, *, N: Count) -> bool:
    """At least `N` different words, cut at blanks; all bare punctuation marks are one more word."""
    return len({bare(word) for word in response.lower().split()}) >= N


def _conjunctions(response: str) -> list[str]:
    return [word for word in response.split() if bare(word).lower() in _CONJUNCTIONS]


def conjunctions(response: str, *, small_n: Count) -> bool:
    """At least `small_n` spellings of coordinating conjunctions: `and`, `And` and `and,` are three."""
    return len(set(_conjunctions(response))) >= small_n


def different_conjunctions(response: str, *, small_n: Count) -> bool:
    """At least `small_n` different coordinating conjunctions, however they are spelled."""
    return len({bare(word).lower() for word in _conjunctions(response)}) >= small_n


def person_names(response: str, *, N: Count) -> bool:
    """At least `N` of the fifty listed names, each as a whole word."""
    return len(set(_WHOLE_NAME.findall(response))) >= N


def person_names_2025(response: str, *, N: Count) -> bool:
    """At least `N` of the fifty listed names, also inside longer words: `Leonora` holds two."""
    return sum(name in response for name in _NAMES) >= N


def numbers(response: str, *, N: Count) -> bool:
    """Exactly `N` runs of digits once punctuation is deleted, so that `1,250.5` is one."""
    return len(re.findall(r"\d+", without_punctuation(response))) == N


def pronouns(response: str, *, N: Count) -> bool:
    """At least `N` tokens are pronouns of any kind; `she/her` are two, and `it's` holds one."""
    tokens = word_tokens(response.replace("/", " ").lower())
    return sum(token in _PRONOUNS for token in tokens) >= N


def pronouns_2025(response: str, *, N: Count) -> bool:
    """At least `N` words are personal pronouns once punctuation is deleted, so that `it's` counts as `its`."""
    words = without_punctuation(response.replace("/", " ").lower()).split()
    return sum(word in _PRONOUNS_2025 for word in words) >= N


def punctuation(response: str) -> bool:
    """An interrobang (`?!`, `!?` or `‽`) and, beside its first one, each of `. , ! ? ; :`."""
    if not any(mark in response for mark in ("?!", "!?", "‽")):
        return False
    rest = response.replace("?!" if "?!" in response else "!?", "", 1)
    return set(".,!?;:") <= set(rest)


def words_japanese(response: str, *, N: Ordinal) -> bool:
    """Every `N`-th word has a Japanese character, unless it is a number or punctuation alone."""
    marked = (bare(word) for word in response.split()[N - 1 :: N])
    return all(_JAPANESE.search(word) for word in marked if word and not word.isdigit())


def keywords_multiple(
    response: str, *, keyword1: Filled, keyword2: Filled, keyword3: Filled, keyword4: Filled, keyword5: Filled
) -> bool:
    """The five keywords stand 1, 2, 3, 5 and 7 times in the response, also inside longer words."""
    keywords = (keyword1, keyword2, keyword3, keyword4, keyword5)
    folded = response.lower()
    return [folded.count(keyword.strip().lower()) for keyword in keywords] == [1, 2, 3, 5, 7]


COUNT: dict[str, Callable[..., bool]] = {
    "count:word_count_range": word_count_range,
    "count:unique_word_count": unique_word_count,
    "count:conjunctions": conjunctions,
    "count:person_names": person_names,
    "count:numbers": numbers,
    "count:pronouns": pronouns,
    "count:punctuation": punctuation,
    "count:words_japanese": words_japanese,
    "count:keywords_multiple": keywords_multiple,
}
COUNT_2025 = COUNT | {"count:person_names": person_names_2025, "count:pronouns": pronouns_2025}
COUNT_INTENT = {"count:conjunctions": different_conjunctions}

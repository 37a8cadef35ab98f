"""IFBench `words:` instructions: which letters, lengths and places words have."""

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from vsr_jax.verifiers.fields import Count, Filled, Ordinal
from vsr_jax.verifiers.ifbench_text import PUNCTUATION, bare, count_syllables, starts_with_verb, without_punctuation
from vsr_jax.verifiers.text import rule_sentences, sentences, word_tokens

Splitter = Callable[[str], list[str]]

_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_CONSONANT_PAIR = re.compile(r"[bcdfghjklmnpqrstvwxyz]{2}")
_PRIMES = frozenset(n for n in range(2, 100) if all(n % d for d in range(2, n)))


def alphabet(response: str) -> bool:
    """Each word begins with the letter after that of the word before, `a` after `z`; the first is free."""
    words = without_punctuation(response).split()
    if not words or (initial := words[0][0].lower()) not in _ALPHABET:
        return False
    start = _ALPHABET.index(initial) + 1
    return all(word.lower()[0] == _ALPHABET[(start + i) % 26] for i, word in enumerate(words[1:]))


def vowel(response: str) -> bool:
    """A single line with at most three of the vowels a, e, i, o, u."""
    text = response.strip()
    return "\n" not in text and len(set("aeiou") & set(text.lower())) <= 3


def consonants(response: str) -> bool:
    """Every word has two consonants side by side; `y` is a consonant."""
    return all(_CONSONANT_PAIR.search(word) for word in response.lower().split())


def palindrome(response: str) -> bool:
    """At least ten words of five characters or more read the same backwards; repeats count."""
    words = without_punctuation(response).lower().split()
    return sum(len(word) >= 5 and word == word[::-1] for word in words) >= 10


def prime_lengths(response: str) -> bool:
    """The length of every word, punctuation deleted, is a prime below 100."""
    return all(len(word) in _PRIMES for word in without_punctuation(response).split())


def start_verb(response: str) -> bool:
    """The first token is tagged as a verb."""
    return starts_with_verb(word_tokens(response))


def repeats(response: str, *, small_n: Count) -> bool:
    """No word stands more than `small_n` times, case and punctuation aside."""
    return all(times <= small_n for times in Counter(without_punctuation(response.lower()).split()).values())


def odd_even_syllables(response: str) -> bool:
    """Words of odd and even numbers of syllables take turns; one word passes."""
    parities = [count_syllables(word) % 2 for word in without_punctuation(response).lower().split()]
    return all(a != b for a, b in pairwise(parities))


def last_first(split: Splitter, response: str, /) -> bool:
    """The last word of a sentence is the first of the next; a sentence without words fails.

    The 2025 release raised on a sentence without words.
    """
    ends = PUNCTUATION + " "
    for before, after in pairwise(split(response)):
        last, first = before.rstrip(ends).split()[-1:], after.lstrip(ends).split()[:1]
        if not last or not first or last[0].lower() != first[0].lower():
            return False
    return True


def _lines(response: str) -> list[list[str]]:
    """The words of each line that is not blank, marks at the two ends of the line aside."""
    return [bare(line).split() for line in map(str.strip, response.lower().split("\n")) if line]


def paragraph_last_first(response: str) -> bool:
    """Each line ends with the word it begins with; a line of punctuation alone is passed over."""
    return all(words[0] == words[-1] for words in _lines(response) if words)


def paragraph_last_first_2025(response: str) -> bool:
    """Each line ends with the word it begins with; a line of punctuation alone fails."""
    return all(words and words[0] == words[-1] for words in _lines(response))


def no_consecutive(response: str) -> bool:
    """No two neighbouring words begin with the same character."""
    words = without_punctuation(response.lower()).split()
    return all(a[0] != b[0] for a, b in pairwise(words))


def _token_at(split: Splitter, response: str, keep: Callable[[str], bool], n: int, m: int) -> str | None:
    """Token `m` of sentence `n` among those to keep, both counted from 1; None where there are too few."""
    found = split(response)
    tokens = [token for token in word_tokens(found[n - 1]) if keep(token)] if len(found) >= n else []
    return tokens[m - 1] if len(tokens) >= m else None


def _is_word(token: str) -> bool:
    return any(character.isalnum() for character in token)


def keywords_specific_position(response: str, *, keyword: Filled, n: Ordinal, m: Ordinal) -> bool:
    """Word `m` of sentence `n` is the keyword in any case; tokens without a letter or digit do not count."""
    token = _token_at(sentences, response, _is_word, n, m)
    return token is not None and token.lower() == keyword.strip().lower()


def keywords_specific_position_2025(response: str, *, keyword: Filled, n: Ordinal, m: Ordinal) -> bool:
    """Token `m` of sentence `n` is exactly the keyword; punctuation marks are tokens and count."""
    return _token_at(rule_sentences, response, bool, n, m) == keyword.strip()


def words_position(response: str, *, keyword: Filled) -> bool:
    """The second token and the second to last are the keyword in any case; one mark at the end is passed over."""
    wanted = keyword.strip().lower()
    tokens = [token.lower() for token in word_tokens(response)]
    if tokens and tokens[-1] in PUNCTUATION:
        tokens.pop()
    return len(tokens) >= 2 and tokens[1] == tokens[-2] == wanted


def words_position_2025(response: str, *, keyword: Filled) -> bool:
    """The second token and the second to last are exactly the keyword; a full stop at the end is a token."""
    tokens = word_tokens(response)
    return len(tokens) >= 2 and tokens[1] == tokens[-2] == keyword.strip()


def words_position_by_words(response: str, *, keyword: Filled) -> bool:
    """The second word and the second to last are the keyword in any case, whatever marks stand around them."""
    wanted = _without_marks(keyword.lower())
    words = [word for word in map(_without_marks, response.lower().split()) if word]
    return len(words) >= 2 and words[1] == words[-2] == wanted


def _without_marks(word: str) -> str:
    """The word from its first to its last letter or digit, also where the marks are not ASCII."""
    places = [i for i, character in enumerate(word) if character.isalnum()]
    return word[places[0] : places[-1] + 1] if places else ""


WORDS: dict[str, Callable[..., bool]] = {
    "words:alphabet": alphabet,
    "words:vowel": vowel,
    "words:consonants": consonants,
    "words:palindrome": palindrome,
    "words:prime_lengths": prime_lengths,
    "words:start_verb": start_verb,
    "words:repeats": repeats,
    "words:odd_even_syllables": odd_even_syllables,
    "words:last_first": partial(last_first, sentences),
    "words:paragraph_last_first": paragraph_last_first,
    "words:no_consecutive": no_consecutive,
    "words:keywords_specific_position": keywords_specific_position,
    "words:words_position": words_position,
}
WORDS_2025 = WORDS | {
    "words:last_first": partial(last_first, rule_sentences),
    "words:paragraph_last_first": paragraph_last_first_2025,
    "words:keywords_specific_position": keywords_specific_position_2025,
    "words:words_position": words_position_2025,
}
WORDS_INTENT: dict[str, Callable[..., bool]] = {"words:words_position": words_position_by_words}

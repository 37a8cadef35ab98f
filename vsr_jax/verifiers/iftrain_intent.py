"""What IFTrain's instructions say, where the reference decides otherwise.

Words here are what a reader takes for words: runs of non-blanks without the marks around them.
"""

import re
import string

from vsr_jax.verifiers.fields import Count, Filled, Ordinal, Relation, Word
from vsr_jax.verifiers.ifeval import IFEVAL_INTENT, Table, count_parts, whole_word
from vsr_jax.verifiers.iftrain import changed_words, phrase_spans, same_text
from vsr_jax.verifiers.text import rule_sentences

_MARKS = string.punctuation + "“”‘’«»…–—"
_DIVIDER = re.compile(r"\*[ \t]*\*[ \t]*\*")


def plain_words(text: str) -> list[str]:
    """The words of a text without the marks around them; a mark alone is no word."""
    return [word for run in text.split() if (word := run.strip(_MARKS))]


def repeat_phrase(response: str, *, phrase: Filled, small_n: Ordinal) -> bool:
    """So many spans from the first word of the phrase to its last, each changed in exactly one word."""
    wanted = phrase.split()
    found = [span.split() for line in response.split("\n") for span in phrase_spans(line, wanted[0], wanted[-1])]
    return len(found) == small_n and all(
        len(span) == len(wanted) and changed_words(span, wanted) == 1 for span in found
    )


def copy_span_idx(response: str, *, prompt_to_repeat: Filled, n_start: Count, n_end: Count) -> bool:
    """The response is the request from one character index to the other, both included."""
    return same_text(response, prompt_to_repeat[n_start : n_end + 1])


def word_once(response: str, *, keyword: Filled) -> bool:
    """A keyword occurs: the instruction says so, and not that it may occur only once."""
    return whole_word(keyword).search(response) is not None


def word_count_different_numbers(response: str, *, keyword: Filled, frequency: Count, relation: Relation) -> bool:
    """A keyword occurs exactly so often: the instruction does not name the relation."""
    return _count(response, keyword) == frequency


def count_increment_word(response: str, *, keyword1: Filled, keyword2: Filled) -> bool:
    """One keyword occurs once and another twice, each as a word of its own."""
    return _count(response, keyword1) == 1 and _count(response, keyword2) == 2


def _count(response: str, keyword: str) -> int:
    return len(whole_word(keyword).findall(response))


def exclude_word_harder(response: str, *, keyword: Filled) -> bool:
    """A keyword does not occur as a word of its own, wherever it stands."""
    return whole_word(keyword).search(response) is None


def two_paragraphs_line_breaks(response: str) -> bool:
    """Two paragraphs with two line breaks or more between them."""
    return sum(bool(part.strip()) for part in response.split("\n\n")) == 2


def first_word_sent(response: str, *, first_word: Word) -> bool:
    """Every sentence starts with a word, marks around it left out."""
    return all(_at(sentence, 0, first_word) for sentence in rule_sentences(response))


def first_word_answer(response: str, *, first_word: Word) -> bool:
    """The response starts with a word, marks around it left out."""
    return _at(response, 0, first_word)


def last_word_sent(response: str, *, last_word: Word) -> bool:
    """Every sentence ends with a word, marks around it left out."""
    return all(_at(sentence, -1, last_word) for sentence in rule_sentences(response))


def last_word_answer(response: str, *, last_word: Word) -> bool:
    """The response ends with a word, marks around it left out."""
    return _at(response, -1, last_word)


def _at(text: str, index: int, word: str) -> bool:
    found = plain_words(text)
    return bool(found) and found[index].lower() == word.strip(_MARKS).lower()


def counting_composition(response: str, *, n_sent: Count, n_words: Count) -> bool:
    """Three paragraphs between `* * *` or `***` with so many sentences of so many words."""
    parts = _DIVIDER.split(response)
    sentences = [rule_sentences(part) for part in parts if part.strip()]
    return (
        count_parts(parts) == 3
        and all(len(found) == n_sent for found in sentences)
        and all(len(plain_words(sentence)) == n_words for found in sentences for sentence in found)
    )


def count_unique(response: str) -> bool:
    """No word occurs twice, in whatever case."""
    found = [word.lower() for word in plain_words(response)]
    return len(found) == len(set(found))


def palindrome(response: str) -> bool:
    """A word of three letters or more reads the same backwards, in whatever case."""
    found = [word.lower() for word in plain_words(response)]
    return any(len(word) > 2 and word == word[::-1] for word in found)


def keyword_specific_position(response: str, *, keyword: Word, n: Ordinal, m: Ordinal) -> bool:
    """The mth word of the nth sentence is a keyword, in whatever case."""
    found = rule_sentences(response)
    words = plain_words(found[n - 1]) if len(found) >= n else []
    return len(words) >= m and words[m - 1].lower() == keyword.strip(_MARKS).lower()


def start_end(response: str) -> bool:
    """The first word is also the last, in either case, with nothing behind it, not even a mark."""
    runs = response.split()
    return len(runs) > 1 and runs[0].strip(_MARKS).lower() == runs[-1].lower()


IFTRAIN_INTENT: Table = IFEVAL_INTENT | {
    "copy:repeat_phrase": repeat_phrase,
    "new:copy_span_idx": copy_span_idx,
    "keywords:word_once": word_once,
    "keywords:word_count_different_numbers": word_count_different_numbers,
    "keywords:exclude_word_harder": exclude_word_harder,
    "keywords:palindrome": palindrome,
    "keywords:keyword_specific_position": keyword_specific_position,
    "keywords:start_end": start_end,
    "paragraphs:paragraphs2": two_paragraphs_line_breaks,
    "first_word:first_word_sent": first_word_sent,
    "first_word:first_word_answer": first_word_answer,
    "last_word:last_word_sent": last_word_sent,
    "last_word:last_word_answer": last_word_answer,
    "count:counting_composition": counting_composition,
    "count:count_unique": count_unique,
    "count:count_increment_word": count_increment_word,
}
"""By id; an id that is not here is read as the reference reads it."""

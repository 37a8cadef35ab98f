"""The 54 instructions of IFTrain (Pyatkin et al. 2025, arXiv:2507.02833), by id: the 25 of IFEval and 29 more.

The reference is `IFEvalG` of allenai/open-instruct at commit e6c3044.
"""

import re
from itertools import pairwise

from vsr_jax.verifiers.fields import Count, Filled, Letter, Ordinal, Relation, Word
from vsr_jax.verifiers.ifeval import (
    IFEVAL,
    Table,
    count_parts,
    holds,
    letter_frequency,
    number_paragraphs,
    occurrences,
    pattern,
)
from vsr_jax.verifiers.text import rule_sentences, word_tokens


def repeat_phrase(response: str, *, phrase: Filled, small_n: Ordinal) -> bool:
    """So many spans from the first word of the phrase to its last; none may differ in two words, the last in one."""
    wanted = phrase.split()
    found = [span.split() for line in response.split("\n") for span in phrase_spans(line, wanted[0], wanted[-1])]
    if len(found) != small_n or any(len(span) != len(wanted) for span in found):
        return False
    differing = [changed_words(span, wanted) for span in found]
    return max(differing) <= 1 and differing[-1] == 1


def phrase_spans(line: str, first: str, last: str) -> list[str]:
    """The shortest spans of a line from `first` to the next `last`, with a blank behind one and before the other."""
    opening, closing = pattern(f"{first} ", re.escape(f"{first} "), 0), pattern(f" {last}", re.escape(f" {last}"), 0)
    spans: list[str] = []
    start = opening.search(line)
    while start and (end := closing.search(line, start.end())):
        spans.append(line[start.start() : end.end()])
        start = opening.search(line, end.end())
    return spans


def changed_words(span: list[str], wanted: list[str]) -> int:
    """The number of positions at which two lists of the same length differ."""
    return sum(word != other for word, other in zip(span, wanted, strict=True))


def same_text(response: str, wanted: str) -> bool:
    """Equal but for case and outer blanks."""
    return response.strip().lower() == wanted.strip().lower()


def copy(response: str, *, prompt_to_repeat: Filled) -> bool:
    """The response is the request."""
    return same_text(response, prompt_to_repeat)


def copying_multiple(response: str, *, prompt_to_repeat: Filled, N: Ordinal) -> bool:
    """The response is the request, so many times, between six stars."""
    parts = response.split("******")
    return len(parts) == N and all(same_text(part, prompt_to_repeat) for part in parts)


def copy_span_idx(response: str, *, prompt_to_repeat: Filled, n_start: Count, n_end: Count) -> bool:
    """The response is the request from one character index up to, but without, the other."""
    return same_text(response, prompt_to_repeat[n_start:n_end])


def sentence_hyphens(response: str) -> bool:
    """Cut at hyphens, the pieces are the sentences found in the text without hyphens, as far as both go."""
    pieces = zip(response.split("-"), rule_sentences(response.replace("-", " ")), strict=False)
    return all(piece == sentence for piece, sentence in pieces)


def no_adjacent_consecutive(response: str) -> bool:
    """No word starts with the character whose code follows that of the word before."""
    firsts = [word[0].lower() for word in response.split()]
    # Some capitals have no single lower-case character; next to another word they fail.
    if len(firsts) > 1 and any(len(first) != 1 for first in firsts):
        return False
    return not any(ord(second) - ord(first) == 1 for first, second in pairwise(firsts))


def square_brackets(response: str) -> bool:
    """Every run of non-blanks starts with `[` and ends with `]`."""
    return all(word.startswith("[") and word.endswith("]") for word in response.split())


def word_once(response: str, *, keyword: Filled) -> bool:
    """A keyword occurs exactly once, longer words included."""
    return occurrences(response, keyword.strip()) == 1


def word_count_different_numbers(response: str, *, keyword: Filled, frequency: Count, relation: Relation) -> bool:
    """A keyword occurs so often; the relation is not in the instruction."""
    return holds(occurrences(response, keyword.strip()), relation, frequency)


def exclude_word_harder(response: str, *, keyword: Filled) -> bool:
    """A keyword does not occur between two blanks."""
    return f" {keyword.strip()} " not in response


def two_paragraphs(response: str) -> bool:
    """Two paragraphs between `***`."""
    return number_paragraphs(response, num_paragraphs=2)


def two_paragraphs_line_breaks(response: str) -> bool:
    """Two paragraphs between two line breaks; a blank one may only be the first or last."""
    return count_parts(response.split("\n\n")) == 2


def first_word_sent(response: str, *, first_word: Word) -> bool:
    """Every sentence starts with a word; a mark behind it counts as part of it."""
    firsts = [(sentence.split() or [""])[0] for sentence in rule_sentences(response)]
    return all(first.lower() == first_word.lower() for first in firsts)


def first_word_answer(response: str, *, first_word: Word) -> bool:
    """The response starts with a word; a mark behind it counts as part of it."""
    runs = response.split(maxsplit=1)
    return bool(runs) and runs[0].lower() == first_word.lower()


def last_word_sent(response: str, *, last_word: Word) -> bool:
    """Every sentence ends with a word, all marks in it left out."""
    return all(_ends_with(sentence, last_word) for sentence in rule_sentences(response))


def last_word_answer(response: str, *, last_word: Word) -> bool:
    """The response ends with a word, all marks in it left out."""
    return _ends_with(response, last_word)


def _ends_with(text: str, word: str) -> bool:
    runs = text.rsplit(maxsplit=1)
    return bool(runs) and re.sub(r"[^\w\s]", "", runs[-1]).lower() == word.lower()


def bigram_wrapping(response: str) -> bool:
    """Of every pair of words the first starts with `<<` and the second ends with `>>`; an odd last word is free."""
    found = response.split()
    return all(a.startswith("<<") and b.endswith(">>") for a, b in zip(found[::2], found[1::2], strict=False))


def punctuation_dot(response: str) -> bool:
    """No full stop."""
    return "." not in response


def punctuation_exclamation(response: str) -> bool:
    """No exclamation mark."""
    return "!" not in response


def lowercase_counting(response: str, *, N: Count) -> bool:
    """At most so many words of ASCII lower-case letters."""
    return len(re.findall(r"\b[a-z]+\b", response)) <= N


def letter_counting(response: str, *, N: Count, relation: Relation) -> bool:
    """So many ASCII letters."""
    return holds(len(re.findall(r"[a-zA-Z]", response)), relation, N)


def letter_counting2(response: str, *, letter: Letter, let_frequency: Count, let_relation: Relation) -> bool:
    """A letter occurs so often, in either case."""
    return letter_frequency(response, letter=letter, let_frequency=let_frequency, let_relation=let_relation)


def counting_composition(response: str, *, n_sent: Count, n_words: Count) -> bool:
    """Three paragraphs between `***` with so many sentences of so many tokens, full stops counted as words.

    The instruction asks for the divider `* * *`, which is not found: no compliant response passes.
    """
    parts = re.split(r"\s?\*\*\*\s?", response)
    split = [rule_sentences(part) for part in parts]
    if any(len(sentences) != n_sent for sentences in split):
        return False
    if any(len(word_tokens(sentence)) != n_words for sentences in split for sentence in sentences):
        return False
    return count_parts(parts) == 3


def count_unique(response: str) -> bool:
    """No token occurs twice; full stops are tokens, so a second sentence fails."""
    tokens = word_tokens(response)
    return len(tokens) == len(set(tokens))


def count_increment_word(response: str, *, keyword1: Filled, keyword2: Filled) -> bool:
    """One keyword occurs once and another twice, longer words included."""
    return occurrences(response, keyword1.strip()) == 1 and occurrences(response, keyword2.strip()) == 2


def palindrome(response: str) -> bool:
    """A run of non-blanks reads the same backwards; one character does."""
    return any(word == word[::-1] for word in response.split())


def keyword_specific_position(response: str, *, keyword: Word, n: Ordinal, m: Ordinal) -> bool:
    """The mth token of the nth sentence is a keyword in its very case; marks and clitics are tokens."""
    found = rule_sentences(response)
    if len(found) < n:
        return False
    tokens = word_tokens(found[n - 1])
    return len(tokens) >= m and tokens[m - 1] == keyword.strip()


def start_end(response: str) -> bool:
    """The first and the last token are the same, in either case."""
    tokens = word_tokens(response)
    return len(tokens) > 1 and tokens[0].lower() == tokens[-1].lower()


IFTRAIN: Table = IFEVAL | {
    "copy:repeat_phrase": repeat_phrase,
    "copy:copy": copy,
    "copy:copying_simple": copy,
    "copy:copying_multiple": copying_multiple,
    "new:copy_span_idx": copy_span_idx,
    "detectable_format:sentence_hyphens": sentence_hyphens,
    "detectable_format:square_brackets": square_brackets,
    "detectable_format:bigram_wrapping": bigram_wrapping,
    "keywords:no_adjacent_consecutive": no_adjacent_consecutive,
    "keywords:word_once": word_once,
    "keywords:word_count_different_numbers": word_count_different_numbers,
    "keywords:exclude_word_harder": exclude_word_harder,
    "keywords:palindrome": palindrome,
    "keywords:keyword_specific_position": keyword_specific_position,
    "keywords:start_end": start_end,
    "paragraphs:paragraphs": two_paragraphs,
    "paragraphs:paragraphs2": two_paragraphs_line_breaks,
    "first_word:first_word_sent": first_word_sent,
    "first_word:first_word_answer": first_word_answer,
    "last_word:last_word_sent": last_word_sent,
    "last_word:last_word_answer": last_word_answer,
    "punctuation:punctuation_dot": punctuation_dot,
    "punctuation:punctuation_exclamation": punctuation_exclamation,
    "count:lowercase_counting": lowercase_counting,
    "count:counting_composition": counting_composition,
    "count:count_unique": count_unique,
    "count:count_increment_word": count_increment_word,
    "letters:letter_counting": letter_counting,
    "letters:letter_counting2": letter_counting2,
}
"""The reference reading."""

UNSATISFIABLE = {
    "count:counting_composition": "paragraphs are looked for between `***` where the instruction asks for `* * *`, "
    "and the full stop of a sentence counts as a word",
    "count:count_unique": "full stops count as words, so that a second sentence repeats one",
}
"""Instructions that hardly any compliant response passes, and why."""

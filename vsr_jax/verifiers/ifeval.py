"""The 25 instructions of IFEval (Zhou et al. 2023, arXiv:2311.07911), by id.

The reference is `instruction_following_eval` of google-research; its artefacts are kept in the
reference table, and IFEVAL_INTENT says otherwise where they contradict the instruction. Patterns
that take quadratic time on hostile text there are written here so that they take linear time.
"""

import json
import re
from collections.abc import Callable

from vsr_jax.verifiers.fields import Count, Filled, Language, Letter, Ordinal, Phrase, Phrases, Relation
from vsr_jax.verifiers.text import count_words, detect_language, sentences, word_tokens

Table = dict[str, Callable[..., bool]]

_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_MARKED_WORD_ENDS = frozenset(".,?!'\"")
# Blanks are those of the line: over several lines they would be searched again from each line.
_STAR_BULLET = re.compile(r"^[^\S\n]*\*[^*].*$", re.MULTILINE)
_DASH_BULLET = re.compile(r"^[^\S\n]*-", re.MULTILINE)


def holds(actual: int, relation: str, bound: int) -> bool:
    """`less than` or `at least`, the two relations of instruction arguments."""
    return actual < bound if relation == "less than" else actual >= bound


def pattern(source: str, literal: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """The regular expression that the reference makes of a word without escaping it.

    `C++` and `a.b` thus mean more than they say. Where the reference would raise because
    the word is no expression, `literal` is meant.
    """
    try:
        return re.compile(source, flags)
    except (re.error, OverflowError, RecursionError):
        return re.compile(literal, flags)


def occurrences(response: str, word: str) -> int:
    """How often a word is found as the reference searches: also inside longer words."""
    return len(pattern(word, re.escape(word)).findall(response))


def whole_word(word: str) -> re.Pattern[str]:
    """A word as it is written, not inside a longer one; an end that is a symbol needs no boundary."""
    word = word.strip()
    start = r"(?<!\w)" if re.match(r"\w", word) else ""
    end = r"(?!\w)" if re.search(r"\w\Z", word) else ""
    return re.compile(start + re.escape(word) + end, re.IGNORECASE)


def in_language(response: str, language: str) -> bool:
    """A text without letters is in every language; `zh` is either kind of Chinese."""
    found = detect_language(response)
    return found is None or found == language or (language == "zh" and found.startswith("zh-"))


def keywords_existence(response: str, *, keywords: Phrases) -> bool:
    """Every keyword occurs, also inside longer words."""
    return all(pattern(word, re.escape(word)).search(response) for word in keywords)


def keywords_existence_intent(response: str, *, keywords: Phrases) -> bool:
    """Every keyword occurs as a word of its own, as it is written."""
    return all(whole_word(word).search(response) for word in keywords)


def keywords_frequency(response: str, *, keyword: Filled, frequency: Count, relation: Relation) -> bool:
    """A keyword occurs so often, also inside longer words."""
    return holds(occurrences(response, keyword.strip()), relation, frequency)


def keywords_frequency_intent(response: str, *, keyword: Filled, frequency: Count, relation: Relation) -> bool:
    """A keyword occurs so often as a word of its own, as it is written."""
    return holds(len(whole_word(keyword).findall(response)), relation, frequency)


def forbidden_words(response: str, *, forbidden_words: Phrases) -> bool:
    """No forbidden word occurs between word boundaries; a word that ends in a symbol is hardly ever found."""
    return not any(pattern(rf"\b{word}\b", rf"\b{re.escape(word)}\b").search(response) for word in forbidden_words)


def forbidden_words_intent(response: str, *, forbidden_words: Phrases) -> bool:
    """No forbidden word occurs as a word of its own, as it is written."""
    return not any(whole_word(word).search(response) for word in forbidden_words)


def letter_frequency(response: str, *, letter: Letter, let_frequency: Count, let_relation: Relation) -> bool:
    """A character occurs so often, in either case. For a sign the reference may count a random letter."""
    return holds(response.lower().count(letter.lower()), let_relation, let_frequency)


def response_language(response: str, *, language: Language) -> bool:
    """The whole response is in one language."""
    return in_language(response, language)


def number_sentences(response: str, *, num_sentences: Count, relation: Relation) -> bool:
    """So many sentences, as the trained splitter finds them."""
    return holds(len(sentences(response)), relation, num_sentences)


def number_paragraphs(response: str, *, num_paragraphs: Count) -> bool:
    """Exactly so many paragraphs between `***`; an empty one may only be the first or last."""
    return count_parts(re.split(r"\s?\*\*\*\s?", response)) == num_paragraphs


def count_parts(parts: list[str]) -> int:
    """The number of parts that are not blank, or -1 if one between two others is blank."""
    if any(not part.strip() for part in parts[1:-1]):
        return -1
    return sum(bool(part.strip()) for part in parts)


def number_words(response: str, *, num_words: Count, relation: Relation) -> bool:
    """So many runs of word characters."""
    return holds(count_words(response), relation, num_words)


def nth_paragraph_first_word(
    response: str, *, num_paragraphs: Count, nth_paragraph: Ordinal, first_word: Phrase
) -> bool:
    """So many paragraphs between two line breaks, of which the nth starts with a word.

    Blank paragraphs are left out of the number but not of the position. A position beyond the
    number is in no text: nothing passes.
    """
    parts = response.split("\n\n")
    return _nth_starts(parts, sum(bool(part.strip()) for part in parts), num_paragraphs, nth_paragraph, first_word)


def nth_paragraph_first_word_intent(
    response: str, *, num_paragraphs: Count, nth_paragraph: Ordinal, first_word: Phrase
) -> bool:
    """The same, with blank paragraphs left out of both the number and the position."""
    parts = [part for part in response.split("\n\n") if part.strip()]
    return _nth_starts(parts, len(parts), num_paragraphs, nth_paragraph, first_word)


def _nth_starts(parts: list[str], filled: int, wanted: int, position: int, first_word: str) -> bool:
    # A position beyond the number occurs in IFTrain's rows, where the reference draws another at random.
    if filled != wanted or position > wanted or not parts[position - 1].strip():
        return False
    word = parts[position - 1].split()[0].lstrip("'").lstrip('"')
    end = next((index for index, sign in enumerate(word) if sign in _MARKED_WORD_ENDS), len(word))
    return "".join(sign.lower() for sign in word[:end]) == first_word.lower()


def number_placeholders(response: str, *, num_placeholders: Count) -> bool:
    """At least so many pairs of square brackets, each on one line; they may be empty."""
    return sum(_count_brackets(line) for line in response.split("\n")) >= num_placeholders


def _count_brackets(line: str) -> int:
    count, start = 0, line.find("[")
    while start >= 0 and (end := line.find("]", start)) >= 0:
        count, start = count + 1, line.find("[", end)
    return count


def postscript(response: str, *, postscript_marker: Phrase) -> bool:
    """A postscript mark, anywhere and in either case; a blank may follow the full stops of the usual ones."""
    marker = postscript_marker.strip()
    usual = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    mark = pattern(usual.get(marker, marker.lower()), re.escape(marker.lower()))
    return mark.search(response.lower()) is not None


def number_bullet_lists(response: str, *, num_bullets: Count) -> bool:
    """Exactly so many lines that start with `-`, or with `*` and something other than `*`: rules count too."""
    return len(_STAR_BULLET.findall(response)) + len(_DASH_BULLET.findall(response)) == num_bullets


def constrained_response(response: str) -> bool:
    """One of the three fixed answers occurs."""
    return any(answer in response for answer in _ANSWERS)


def number_highlighted_sections(response: str, *, num_highlights: Count) -> bool:
    """At least so many spans between single stars or double stars; `***both***` counts as two."""
    single = sum(bool(span.strip("*").strip()) for span in re.findall(r"\*[^\n*]*\*", response))
    double = sum(bool(span[2:-2].strip()) for span in re.findall(r"\*\*[^\n*]*\*\*", response))
    return single + double >= num_highlights


def number_highlighted_sections_intent(response: str, *, num_highlights: Count) -> bool:
    """At least so many spans in markdown stars, one to three on a side, that touch the text; each counts once."""
    spans = re.findall(r"(?<!\*)(\*{1,3})(?![\s*])[^\n*]*(?<![\s*])\1(?!\*)", response)
    return len(spans) >= num_highlights


def multiple_sections(response: str, *, section_spliter: Phrase, num_sections: Count) -> bool:
    """At least so many section marks with a number behind them."""
    mark = section_spliter.strip()
    numbered = pattern(rf"\s?{mark}\s?\d+\s?", rf"\s?{re.escape(mark)}\s?\d+\s?", re.NOFLAG)
    return len(numbered.split(response)) - 1 >= num_sections


def json_format(response: str) -> bool:
    """The response, without one code fence around all of it, is JSON."""
    text = response.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def title(response: str) -> bool:
    """A line holds a text between `<<` and `>>`."""
    for line in response.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start <= end - 3 and line[start : end + 2].lstrip("<").rstrip(">").strip():
            return True
    return False


def two_responses(response: str) -> bool:
    """Two different texts between six stars; an empty one may only be the first or last."""
    parts = response.split("******")
    filled = [part.strip() for part in parts if part.strip()]
    return count_parts(parts) == 2 and filled[0] != filled[1]


def repeat_prompt(response: str, *, prompt_to_repeat: Filled) -> bool:
    """The response starts with the request, in either case."""
    return response.strip().lower().startswith(prompt_to_repeat.strip().lower())


def end_checker(response: str, *, end_phrase: Phrase) -> bool:
    """The response ends with a phrase, in either case, before closing quotes."""
    return response.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def capital_word_frequency(response: str, *, capital_frequency: Count, capital_relation: Relation) -> bool:
    """So many Treebank tokens in capitals; a hyphenated word is one, `I` and `A` count."""
    capitals = sum(token.isupper() for token in word_tokens(response))
    return holds(capitals, capital_relation, capital_frequency)


def english_capital(response: str) -> bool:
    """English, with at least one cased letter and none in lower case."""
    return response.isupper() and in_language(response, "en")


def english_lowercase(response: str) -> bool:
    """English, with at least one cased letter and none in upper case."""
    return response.islower() and in_language(response, "en")


def no_comma(response: str) -> bool:
    """No comma of the ASCII kind."""
    return "," not in response


def quotation(response: str) -> bool:
    """Straight double quotes are the first and the last character."""
    text = response.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


IFEVAL: Table = {
    "keywords:existence": keywords_existence,
    "keywords:frequency": keywords_frequency,
    "keywords:forbidden_words": forbidden_words,
    "keywords:letter_frequency": letter_frequency,
    "language:response_language": response_language,
    "length_constraints:number_sentences": number_sentences,
    "length_constraints:number_paragraphs": number_paragraphs,
    "length_constraints:number_words": number_words,
    "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word,
    "detectable_content:number_placeholders": number_placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:number_bullet_lists": number_bullet_lists,
    "detectable_format:constrained_response": constrained_response,
    "detectable_format:number_highlighted_sections": number_highlighted_sections,
    "detectable_format:multiple_sections": multiple_sections,
    "detectable_format:json_format": json_format,
    "detectable_format:title": title,
    "combination:two_responses": two_responses,
    "combination:repeat_prompt": repeat_prompt,
    "startend:end_checker": end_checker,
    "change_case:capital_word_frequency": capital_word_frequency,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "punctuation:no_comma": no_comma,
    "startend:quotation": quotation,
}
"""The reference reading."""

IFEVAL_INTENT: Table = {
    "keywords:existence": keywords_existence_intent,
    "keywords:frequency": keywords_frequency_intent,
    "keywords:forbidden_words": forbidden_words_intent,
    "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word_intent,
    "detectable_format:number_highlighted_sections": number_highlighted_sections_intent,
}
"""What the instruction says, where the reference decides otherwise."""

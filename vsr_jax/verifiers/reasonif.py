"""The 6 instructions of ReasonIF (Kwon et al. 2025, arXiv:2510.15211), by id.

The reference is `src/instructions` of ykwon0407/reasonIF at commit 706b953. It identifies languages
with the large fastText model, which is downloaded; here the small one does, which comes in a package.
"""

from vsr_jax.verifiers.fields import Count, Language
from vsr_jax.verifiers.ifeval import IFEVAL, Table
from vsr_jax.verifiers.text import count_words, detect_language_fasttext


def reasoning_language(response: str, *, language: Language) -> bool:
    """The whole reasoning is in one language; a text without letters is English."""
    return detect_language_fasttext(response) == language


def english_capital(response: str) -> bool:
    """English, with at least one cased letter and none in lower case."""
    return response.isupper() and detect_language_fasttext(response) == "en"


def fewer_words(response: str, *, num_words: Count = 0) -> bool:
    """Fewer runs of word characters than a bound; without a bound nothing passes, as in the reference."""
    return count_words(response) < num_words


REASONIF: Table = {
    "language:reasoning_language": reasoning_language,
    "length_constraint_checkers:number_words": fewer_words,
    "change_case:english_capital": english_capital,
    "startend:end_checker": IFEVAL["startend:end_checker"],
    "detectable_format:json_format": IFEVAL["detectable_format:json_format"],
    "punctuation:no_comma": IFEVAL["punctuation:no_comma"],
}
"""Both readings: the reference contradicts none of these instructions."""

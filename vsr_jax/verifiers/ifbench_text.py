"""What only the IFBench checkers need of language: verbs, stop words, syllables, emoji, plain letters.

Word lists and weights ship with this package or with the packages `emoji` (BSD) and
`syllapy` (MIT); nothing is downloaded.
"""

import gzip
import json
import string
import unicodedata
from collections.abc import Sequence
from functools import cache
from importlib import resources

import emoji
import syllapy

PUNCTUATION = string.punctuation
"""The 32 ASCII marks; dashes, curly quotes and dots of other scripts are not among them."""

# NLTK's English stop words (public domain), less those with an apostrophe: the texts they are
# looked up in are cut at apostrophes, so only their halves can occur.
_STOP_WORD_LIST = """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves what which who whom this that these those am is are
    was were be been being have has had having do does did doing a an the and but if or because as until while of
    at by for with about against between into through during before after above below to from up down in out on
    off over under again further then once here there when where why how all any both each few more most other
    some such no nor not only own same so than too very s t can will just don should now d ll m o re ve y ain aren
    couldn didn doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren won wouldn
"""
STOP_WORDS = frozenset(_STOP_WORD_LIST.split())

_DROP_PUNCTUATION = str.maketrans("", "", PUNCTUATION)


def without_punctuation(text: str) -> str:
    """The text with every ASCII punctuation mark deleted, so that `it's` is `its`."""
    return text.translate(_DROP_PUNCTUATION)


def bare(text: str) -> str:
    """The text without ASCII punctuation and spaces at its two ends."""
    return text.strip(PUNCTUATION + " ")


def plain_letters(text: str) -> str:
    """The text in ASCII: accents are taken off letters, and what has no ASCII form is dropped."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def is_emoji(character: str) -> bool:
    """Whether one code point is an emoji by itself; flags and other sequences are not."""
    return emoji.is_emoji(character)


def count_syllables(word: str) -> int:
    """Syllables of an English word by a word list, else by its groups of vowels; 0 for a word with a digit."""
    return syllapy.count(word)


@cache
def _first_tag_model() -> dict:
    """The weights that `tests/goldens/make_first_tag.py` describes: a constant, read when first asked for."""
    asset = resources.files("vsr_jax.verifiers") / "assets" / "first_tag.json.gz"
    return json.loads(gzip.decompress(asset.read_bytes()))


def _normal_form(token: str) -> str:
    if "-" in token and not token.startswith("-"):
        return "!HYPHEN"
    if token.isdigit() and len(token) == 4:
        return "!YEAR"
    return "!DIGITS" if token[0].isdigit() else token.lower()


def first_tag(tokens: Sequence[str]) -> str:
    """Penn Treebank tag of the first token, as NLTK's averaged perceptron tagger gives it.

    Args:
      tokens: Treebank tokens of a text, at least one; those after the third have no influence.
    """
    model = _first_tag_model()
    token = tokens[0]
    if token in model["known"]:
        return model["known"][token]
    word, following, second = (*map(_normal_form, tokens[:3]), "-END-", "-END2-")[:3]
    features = (
        ("suffix", token[-3:]),
        ("prefix", token[0]),
        ("word", word),
        ("opening_word", word),
        ("next_word", following),
        ("next_suffix", following[-3:]),
        ("second_next_word", second),
    )
    scores = list(model["start"])
    for family, value in features:
        weights = model[family].get(value, ())
        for tag, weight in zip(weights[::2], weights[1::2], strict=True):
            scores[tag] += weight
    # Tags ascend, so of equal scores the last in the alphabet wins, as in the reference.
    best = max(range(len(scores)), key=lambda tag: (scores[tag], tag))
    return model["classes"][best]


def starts_with_verb(tokens: Sequence[str]) -> bool:
    """Whether the first token is tagged as a verb in any form; modals are not."""
    return bool(tokens) and first_tag(tokens).startswith("VB")

"""Constraints of the micro world: real IFEval ids and kwargs, each worded in a few tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vsr_jax.data.micro.draws import Draws
from vsr_jax.data.micro.vocabulary import ADJECTIVES, END_PHRASES, FIRST_WORDS
from vsr_jax.data.micro.world import Weights

# `change_case:english_lowercase` is absent: the reference runs language detection, and langdetect (seed 0) takes
# texts of this world for English in 58 % (3 words), 65 % (4), 90 % (5) and 92 % (6) of cases only, at 3 to 6 ms a
# text. `capitals` is its nearest relative that needs no detection.
_CONFLICTS = (
    {"at_most", "at_least"},
    {"json", "bullets"},
    {"json", "quotes"},
    {"json", "first_word"},
    {"json", "end_phrase"},
    {"quotes", "first_word"},
    {"quotes", "end_phrase"},
)


@dataclass(frozen=True)
class Constraint:
    """One constraint.

    Attributes:
      kind: its name in `MicroWorld.constraints`.
      value: its number or word; for `at_most` the largest allowed number of words; None where it has none.
      sentence: its wording in a prompt, ending with a full stop.
      instruction_id, kwargs: the same for the checker.
      words: how many words it adds to a response at the least.
    """

    kind: str
    value: Any
    sentence: str
    instruction_id: str
    kwargs: Mapping[str, Any]
    words: int = 0


def constraint(kind: str, value: Any = None) -> Constraint:
    """The constraint of a kind with its number or word.

    Raises:
      ValueError: no such kind.
    """
    make = partial(Constraint, kind, value)
    match kind:
        case "at_most":
            kwargs = {"relation": "less than", "num_words": value + 1}
            return make(f"Use less than {value + 1} words .", "length_constraints:number_words", kwargs)
        case "at_least":
            kwargs = {"relation": "at least", "num_words": value}
            return make(f"Use at least {value} words .", "length_constraints:number_words", kwargs)
        case "no_comma":
            return make("Use no commas .", "punctuation:no_comma", {})
        case "end_phrase":
            words = len(value.split()) - 1
            return make(f"End with : {value}", "startend:end_checker", {"end_phrase": value}, words)
        case "keyword":
            return make(f"Use the word {value} .", "keywords:existence", {"keywords": [value]}, 1)
        case "forbidden":
            return make(f"Avoid the word {value} .", "keywords:forbidden_words", {"forbidden_words": [value]})
        case "first_word":
            kwargs = {"num_paragraphs": 1, "nth_paragraph": 1, "first_word": value}
            return make(f"Start with the word {value} .", "length_constraints:nth_paragraph_first_word", kwargs, 1)
        case "bullets":
            kwargs = {"num_bullets": value}
            return make(f"Use {value} bullet points .", "detectable_format:number_bullet_lists", kwargs, value)
        case "quotes":
            return make("Put all in quotes .", "startend:quotation", {})
        case "json":
            return make("Reply in JSON format .", "detectable_format:json_format", {}, 1)
        case "capitals":
            kwargs = {"capital_relation": "at least", "capital_frequency": value}
            return make(f"Use at least {value} capital words .", "change_case:capital_word_frequency", kwargs, value)
    raise ValueError(f"constraint kind {kind!r}: not one of the micro world")


def draw_constraints(draws: Draws, weights: Weights, count: int, answer_words: int) -> tuple[Constraint, ...]:
    """`count` constraints of different kinds that some response can meet together.

    Args:
      draws: the source of randomness.
      weights: relative weight of each kind.
      count: how many.
      answer_words: words that the response needs apart from the constraints (1 for a text; 5 for a boxed answer,
        so that a correct answer can meet them too).
    """
    while True:
        kinds: list[str] = []
        for _ in range(count):
            kinds.append(draws.weighted([item for item in weights if item[0] not in kinds]))
        words = draws.shuffled(ADJECTIVES)  # so that keyword and forbidden word differ
        drawn = tuple(constraint(kind, _value(draws, kind, words)) for kind in kinds)
        if not _conflict(drawn, answer_words):
            return drawn


def _value(draws: Draws, kind: str, words: list[str]) -> Any:
    match kind:
        case "at_most":
            return draws.between(4, 8)
        case "at_least":
            return draws.pick((8, 10, 12))
        case "end_phrase":
            return draws.pick(END_PHRASES)
        case "keyword":
            return words[0]
        case "forbidden":
            return words[1]
        case "first_word":
            return draws.pick(FIRST_WORDS)
        case "bullets":
            return draws.between(2, 3)
        case "capitals":
            return draws.between(1, 2)
    return None


def _conflict(drawn: tuple[Constraint, ...], answer_words: int) -> bool:
    kinds = {item.kind for item in drawn}
    limits = [item.value for item in drawn if item.kind == "at_most"]
    too_short = bool(limits) and limits[0] < answer_words + sum(item.words for item in drawn)
    return too_short or any(pair <= kinds for pair in _CONFLICTS)

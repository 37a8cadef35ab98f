"""Writes responses that meet some constraints and break others, by construction."""

from collections.abc import Sequence
from dataclasses import dataclass

from vsr_jax.data.micro.draws import Draws
from vsr_jax.data.micro.instructions import Constraint
from vsr_jax.data.micro.vocabulary import ADJECTIVES, CAPITAL_WORDS, PLACES, capitalise, uncapitalise

_FREE_WORDS = 10  # a text without a length constraint has at most this many words besides its opening
_LONG_SENTENCE = 7


@dataclass(frozen=True)
class Plan:
    """What a response must look like for the chosen constraints to hold and the others to fail."""

    fewest: int = 0
    most: int = 99
    comma: bool | None = None  # None: either
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    first: str | None = None
    end: tuple[str, ...] = ()
    bullets: int = 0
    quotes: bool = False
    json: bool = False
    capitals: int = 0


@dataclass(frozen=True)
class Subject:
    """What sentences are about: `noun` after an adjective, `start` and `verb` in a clause, `later` from then on."""

    noun: str
    start: str
    later: str
    verb: str


def topic_subject(topic: str) -> Subject:
    """Sentences about a topic: `Rivers are old . They are calm .`"""
    return Subject(topic, topic, "they", "are")


RESULT = Subject("result", "it", "it", "is")


def make_plan(draws: Draws, kept: Sequence[Constraint], broken: Sequence[Constraint]) -> Plan:
    """The plan under which every constraint of `kept` holds and every one of `broken` fails."""
    chosen: dict = {"include": [], "exclude": []}
    for item in kept:
        match item.kind:
            case "at_most":
                chosen["most"] = item.value
            case "at_least":
                chosen["fewest"] = item.value
            case "no_comma":
                chosen["comma"] = False
            case "end_phrase":
                chosen["end"] = tuple(item.value.split())
            case "keyword":
                chosen["include"].append(item.value)
            case "forbidden":
                chosen["exclude"].append(item.value)
            case "first_word":
                chosen["first"] = item.value
            case kind:
                chosen[kind] = item.value or True
    for item in broken:  # quotes, JSON, end phrase, first word and capitals fail by being absent
        match item.kind:
            case "at_most":
                chosen["fewest"] = item.value + 1
            case "at_least":
                chosen["most"] = item.value - 1
            case "no_comma":
                chosen["comma"] = True
            case "keyword":
                chosen["exclude"].append(item.value)
            case "forbidden":
                chosen["include"].append(item.value)
            case "bullets":
                chosen["bullets"] = draws.pick((0, 5 - item.value))
    return Plan(**{**chosen, "include": tuple(chosen["include"]), "exclude": tuple(chosen["exclude"])})


def count_words(tokens: Sequence[str]) -> int:
    """Words as the length constraints count them: runs of letters and digits, so marks and the box count too."""
    return sum(any(letter.isalnum() for letter in token) for token in tokens)


def write_text(draws: Draws, plan: Plan, opening: Sequence[str], subject: Subject) -> list[str] | None:
    """A response about a topic; None where the opening leaves too few words for the plan."""
    return _write(draws, plan, opening, [], subject)


def write_solution(
    draws: Draws, plan: Plan, opening: Sequence[str], parts: Sequence[Sequence[str]]
) -> list[str] | None:
    """A response to a math problem; None where the plan cannot be met with these parts.

    Args:
      draws: the source of randomness.
      plan: what must hold.
      opening: its first tokens.
      parts: the solution in pieces that stay in order and in one piece each: chains of registers, then the ending
        with the box; or the box alone.
    """
    return _write(draws, plan, opening, parts, RESULT)


def _write(
    draws: Draws, plan: Plan, opening: Sequence[str], parts: Sequence[Sequence[str]], subject: Subject
) -> list[str] | None:
    """Lays out first word, opening, parts, sentences, capital words and end phrase, within the planned words."""
    key = ["answer" if parts else "text"] if plan.json else []
    head = [plan.first, *map(uncapitalise, opening)] if plan.first else list(opening)
    tail = _tail(draws, plan)
    fillers = max(0, plan.bullets - len(parts)) if plan.bullets else _LONG_SENTENCE  # sentences, at the most
    used = count_words([*head, *tail, *key, *(token for part in parts for token in part)])
    words = _sentence_words(draws, plan, used, fillers, bool(parts))
    if words is None:
        return None

    if plan.bullets:
        body = _bullets(draws, plan, parts, words, fillers, subject)
        head += ["\n"] if head else []
        tail = ["\n", *tail] if tail else []
    else:
        body = _prose(draws, plan, parts, words, subject)
        if not head or head[-1] == ":":
            body[0] = capitalise(body[0])
    if head:
        head[0] = capitalise(head[0])
    tokens = [*head, *body, *tail]
    if plan.quotes:
        return ['"', *tokens, '"']
    if plan.json:
        return ["{", '"', *key, '"', ":", '"', *tokens, '"', "}"]
    return tokens


def _tail(draws: Draws, plan: Plan) -> list[str]:
    capitals = [*draws.shuffled(CAPITAL_WORDS)[: plan.capitals], "."] if plan.capitals else []
    return [*capitals, *(capitalise(word) if index == 0 else word for index, word in enumerate(plan.end))]


def _sentence_words(draws: Draws, plan: Plan, used: int, fillers: int, solution: bool) -> int | None:
    """How many words the sentences hold in all, given `used` words elsewhere; None where nothing fits."""
    least = max(len(plan.include), 2 if plan.comma else 0, 0 if solution else 1)
    if plan.bullets:
        least = max(least, fillers + (1 if plan.comma else 0))  # each bullet has a word
    low = max(least, plan.fewest - used)
    high = min(plan.most - used, _LONG_SENTENCE * fillers)
    if low > high:
        return None
    if solution:  # a solution carries no words that nothing asks for
        return draws.between(low, min(high, low + 3)) if low else 0
    return draws.between(min(max(low, 3), high), min(high, max(low + 5, _FREE_WORDS)))


def _prose(draws: Draws, plan: Plan, parts: Sequence[Sequence[str]], words: int, subject: Subject) -> list[str]:
    body = [token for part in parts for token in part]
    for index, size in enumerate(_split(draws, words)):
        sentence = _sentence(draws, plan, size, subject, index == 0, plan.include if index == 0 else ())
        body += [capitalise(sentence[0]) if body else sentence[0], *sentence[1:], "."]
    return body


def _bullets(
    draws: Draws, plan: Plan, parts: Sequence[Sequence[str]], words: int, fillers: int, subject: Subject
) -> list[str]:
    count = plan.bullets - fillers  # bullets for the parts; the last one takes what is left of them
    lines = [list(part) for part in parts[:count]]
    for part in parts[count:]:
        lines[-1] += part
    for index, size in enumerate(_share(draws, words, fillers, 2 if plan.comma else 1)):
        include = plan.include if fillers == 1 else plan.include[index : index + 1]
        lines.append(_sentence(draws, plan, size, subject, index == 0, include))
    return [token for index, line in enumerate(lines) for token in (*(["\n"] if index else []), "*", *line)]


def _split(draws: Draws, words: int) -> list[int]:
    """Sentence lengths, 3 to 7 words each unless the whole is shorter."""
    sizes = []
    while words > _LONG_SENTENCE or (words >= 6 and draws.chance(0.5)):
        size = draws.between(3, min(_LONG_SENTENCE, words - 3))
        sizes.append(size)
        words -= size
    return [*sizes, words] if words else sizes


def _share(draws: Draws, words: int, items: int, first: int) -> list[int]:
    """`words` over `items` bullets: 1 to 7 each, at least `first` for the first."""
    sizes = [first, *[1] * (items - 1)] if items else []
    for _ in range(words - sum(sizes)):
        sizes[draws.pick([index for index, size in enumerate(sizes) if size < _LONG_SENTENCE])] += 1
    return sizes


def _sentence(draws: Draws, plan: Plan, words: int, subject: Subject, first: bool, include: Sequence[str]) -> list[str]:
    """A clause of exactly `words` words without its full stop, holding the words of `include`."""
    free = [word for word in ADJECTIVES if word not in plan.exclude and word not in plan.include]
    a, b, c = [*include, *draws.shuffled(free)][:3]
    comma = (plan.comma and first) or (plan.comma is None and draws.chance(0.3))
    who, verb = (subject.start if first else subject.later), subject.verb
    if words == 1:
        return [include[0] if include else subject.noun]
    if words == 2:
        last = b if len(include) > 1 else subject.noun
        return [a, ",", last] if comma else [a, last]
    place = draws.pick(PLACES)
    if comma:
        return {
            3: [a, ",", b, subject.noun],
            4: [who, verb, a, ",", b],
            5: [who, verb, a, ",", b, ",", c],
            6: [who, verb, a, ",", b, "and", c],
            7: [who, verb, "very", a, ",", b, "and", c],
        }[words]
    two = len(include) > 1
    return {
        3: [a, b, subject.noun] if two else [who, verb, a],
        4: [a, "and", b, subject.noun] if two else [who, verb, "very", a],
        5: [who, verb, a, "and", b],
        6: [who, verb, "very", a, "and", b],
        7: [who, verb, a, "and", b, *place],
    }[words]

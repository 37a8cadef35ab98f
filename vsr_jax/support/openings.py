"""Opening classes of responses. The rules are data: `openings.toml`, or a file of the user's own."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vsr_jax.errors import UserError

PromptKind = Literal["math", "instructions"]
PROMPT_KINDS: tuple[PromptKind, ...] = ("math", "instructions")

# Where IFEval, IFTrain and IFBench rows keep words that a response must contain.
_KEYWORD_FIELDS = re.compile(r"keywords?\d*")


@dataclass(frozen=True)
class KeywordRule:
    """Fits a response of at most so many characters that names enough of the prompt's keywords near its start."""

    at_least: int
    within_chars: int
    response_at_most_chars: int

    def fits(self, opening: str, keywords: Sequence[str]) -> bool:
        """Whether a response without leading blanks opens with enough different keywords."""
        head = opening[: self.within_chars].casefold()
        hits = sum(word.casefold() in head for word in set(keywords))
        return len(opening) <= self.response_at_most_chars and hits >= self.at_least


@dataclass(frozen=True)
class OpeningClass:
    """One class: it fits a response of its prompt kinds that any pattern matches at the start, or its keyword rule."""

    name: str
    prompt_kinds: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    keywords: KeywordRule | None = None


@dataclass(frozen=True)
class OpeningRules:
    """Classes in the order they are tried.

    Attributes:
      classes: the first that fits names the opening.
      fallback: the class of everything else.
      skip: matched once at the start of a response and dropped.
      chain: patterns, and how often one of them must occur for a response to show steps.
    """

    classes: tuple[OpeningClass, ...]
    fallback: str
    skip: re.Pattern[str]
    chain: tuple[tuple[re.Pattern[str], int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All class names, the fallback last."""
        return (*(rule.name for rule in self.classes), self.fallback)


def load_rules(path: str | Path) -> OpeningRules:
    """Reads opening rules from a TOML file in the form of `openings.toml`.

    Raises:
      UserError: no such file, not TOML, an unknown or missing field, a wrong type, or a pattern that does not compile.
    """
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give an opening rules file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a TOML file: {error}") from error
    return _Reader(str(path)).rules(table)


def classify_opening(
    text: str,
    *,
    prompt_kind: PromptKind = "math",
    rules: OpeningRules | None = None,
    keywords: Sequence[str] = (),
) -> str:
    """Names the opening of a response.

    Args:
      text: the response as decoded, forced text included.
      prompt_kind: what was asked; some classes exist for instruction prompts only.
      rules: defaults to the shipped ones, with classes CSI, DAI, DRI and Other.
      keywords: words that the prompt asks for (`keywords_of`).

    Raises:
      ValueError: an unknown prompt kind.
    """
    if prompt_kind not in PROMPT_KINDS:
        raise ValueError(f"prompt_kind must be one of {PROMPT_KINDS}, got {prompt_kind!r}")
    rules = rules or DEFAULT_RULES
    opening = _skip(text, rules)
    for rule in rules.classes:
        if prompt_kind not in rule.prompt_kinds:
            continue
        if any(pattern.match(opening) for pattern in rule.patterns):
            return rule.name
        if rule.keywords and rule.keywords.fits(opening, keywords):
            return rule.name
    return rules.fallback


def has_chain(text: str, *, rules: OpeningRules | None = None) -> bool:
    """Whether a response shows steps, by the `chain` patterns of the rules."""
    rules = rules or DEFAULT_RULES
    return any(sum(1 for _ in pattern.finditer(text)) >= least for pattern, least in rules.chain)


def keywords_of(kwargs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Words that an instruction row asks a response to contain: the kwargs `keyword`, `keywords`, `keyword1`, ..."""
    values = [value for entry in kwargs for name, value in entry.items() if _KEYWORD_FIELDS.fullmatch(name)]
    words = [word for value in values for word in ([value] if isinstance(value, str) else value or ())]
    return tuple(dict.fromkeys(words))


def opening_shares(openings: Sequence[str], *, rules: OpeningRules | None = None) -> dict[str, float]:
    """Share of responses in every class of the rules, zeros and the fallback included.

    Raises:
      ValueError: no responses, or a class that the rules do not have.
    """
    names = (rules or DEFAULT_RULES).names
    if not openings:
        raise ValueError("opening shares need at least one response")
    strange = set(openings) - set(names)
    if strange:
        raise ValueError(f"unknown opening class {sorted(strange)[0]!r}; the rules have {', '.join(names)}")
    return {name: sum(opening == name for opening in openings) / len(openings) for name in names}


def opening_confusion(
    labels: Sequence[str], openings: Sequence[str], *, rules: OpeningRules | None = None
) -> NDArray[np.int64]:
    """How classified openings agree with a reader's labels.

    Returns:
      int64[classes, classes] in the order of `rules.names`: rows are labels, columns what the rules said.

    Raises:
      ValueError: different lengths, or a class that the rules do not have.
    """
    names = (rules or DEFAULT_RULES).names
    if len(labels) != len(openings):
        raise ValueError(f"labels and openings must be as many, got {len(labels)} and {len(openings)}")
    strange = (set(labels) | set(openings)) - set(names)
    if strange:
        raise ValueError(f"unknown opening class {sorted(strange)[0]!r}; the rules have {', '.join(names)}")
    table = np.zeros((len(names), len(names)), dtype=np.int64)
    for label, opening in zip(labels, openings, strict=True):
        table[names.index(label), names.index(opening)] += 1
    return table


def _skip(text: str, rules: OpeningRules) -> str:
    found = rules.skip.match(text)
    return text[found.end() :] if found else text


@dataclass(frozen=True)
class _Reader:
    """Turns parsed TOML into rules; every complaint names the file and the field."""

    source: str

    def rules(self, table: dict[str, Any]) -> OpeningRules:
        self._known("", table, {"fallback", "skip", "class", "chain"})
        classes = tuple(
            self._class(f"class[{i}]", entry) for i, entry in enumerate(self._get("", table, "class", list))
        )
        fallback = self._get("", table, "fallback", str)
        names = [rule.name for rule in classes] + [fallback]
        if len(set(names)) != len(names):
            raise self._error("class", "class names must differ from each other and from the fallback")
        return OpeningRules(
            classes=classes,
            fallback=fallback,
            skip=self._pattern("skip", table.get("skip", r"\s+")),
            chain=tuple(
                self._chain(f"chain[{i}]", entry) for i, entry in enumerate(self._get("", table, "chain", list))
            ),
        )

    def _chain(self, where: str, entry: dict[str, Any]) -> tuple[re.Pattern[str], int]:
        self._known(f"{where}.", entry, {"pattern", "at_least"})
        return self._pattern(f"{where}.pattern", entry.get("pattern")), self._count(f"{where}.", entry, "at_least")

    def _class(self, where: str, entry: dict[str, Any]) -> OpeningClass:
        self._known(f"{where}.", entry, {"name", "prompt_kinds", "patterns", "keywords"})
        kinds = self._get(f"{where}.", entry, "prompt_kinds", list)
        if not kinds or not set(kinds) <= set(PROMPT_KINDS):
            raise self._error(f"{where}.prompt_kinds", f"must list some of {', '.join(PROMPT_KINDS)}")
        patterns = self._get(f"{where}.", entry, "patterns", list)
        keywords = entry.get("keywords")
        if keywords is not None:
            fields = ("at_least", "within_chars", "response_at_most_chars")
            self._known(f"{where}.keywords.", keywords, set(fields))
            keywords = KeywordRule(*(self._count(f"{where}.keywords.", keywords, field) for field in fields))
        return OpeningClass(
            name=self._get(f"{where}.", entry, "name", str),
            prompt_kinds=tuple(kinds),
            patterns=tuple(self._pattern(f"{where}.patterns[{i}]", text) for i, text in enumerate(patterns)),
            keywords=keywords,
        )

    def _error(self, field: str, fix: str) -> UserError:
        return UserError(f"{self.source}: {field}: {fix}")

    def _known(self, where: str, entry: Any, fields: set[str]) -> None:
        if not isinstance(entry, dict):
            raise self._error(where.rstrip("."), "must be a table")
        for name in entry:
            if name not in fields:
                raise self._error(f"{where}{name}", f"unknown field; known: {', '.join(sorted(fields))}")

    def _get(self, where: str, entry: dict[str, Any], name: str, kind: type) -> Any:
        value = entry.get(name)
        if not isinstance(value, kind):
            raise self._error(f"{where}{name}", f"must be given as a {'text' if kind is str else 'list'}")
        return value

    def _count(self, where: str, entry: dict[str, Any], name: str) -> int:
        value = entry.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._error(f"{where}{name}", "must be a whole number of at least 1")
        return value

    def _pattern(self, where: str, text: Any) -> re.Pattern[str]:
        if not isinstance(text, str):
            raise self._error(where, "must be a regular expression in quotes")
        try:
            return re.compile(text, re.IGNORECASE)
        except re.error as error:
            raise self._error(where, f"is no valid regular expression: {error}") from error


DEFAULT_RULES = load_rules(Path(__file__).with_name("openings.toml"))
"""The shipped rules."""

MICRO_RULES = load_rules(Path(__file__).with_name("openings_micro.toml"))
"""The shipped rules for the micro world."""

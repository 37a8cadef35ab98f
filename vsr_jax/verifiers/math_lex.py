"""Split a LaTeX answer into tokens, without what is only print: spacing, sizes, fonts, dollar signs."""

import re
from typing import NamedTuple

from vsr_jax.verifiers.math_unicode import to_latex
from vsr_jax.verifiers.math_vocabulary import (
    ALIASES,
    GREEK,
    MATH_FONTS,
    OPERATORS,
    PLAIN,
    SILENT,
    SPACES,
    TEXT_FONTS,
    environment,
)

MAX_CHARACTERS = 4_000  # a longer answer is compared as a string only


class Token(NamedTuple):
    r"""One piece of an answer.

    Attributes:
      kind: `num`, `sym` (a letter or Greek letter), `word` (two or more letters), `cmd` (a macro or a function name),
        `env` (`begin matrix`, `end matrix`) or `op` (a character, or one of `\{`, `\}`, `\\`).
      value: its canonical spelling.
      spaced: white space stands before it.
      text: it stood in a text font.
    """

    kind: str
    value: str
    spaced: bool
    text: bool


END = Token("end", "", False, False)  # what a parser sees behind the last token

_RAW = re.compile(
    r"(?P<space>[\s~]+)"
    r"|(?P<env>\\(?:begin|end)\s*\{[A-Za-z]+\*?\}(?:\s*\{[lcr|\s]*\})?)"
    r"|(?P<cmd>\\(?:[A-Za-z]+|.|$))"
    r"|(?P<num>[0-9]+(?:\.[0-9]+[eE]-?|[eE]\+?)[0-9]+(?![0-9.])|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"|(?P<word>[A-Za-z]+)|(?P<op><=|>=|!=|\*\*|.)",
    re.DOTALL,
)
# Invisible or coloured material, delimiters that print nothing, the length behind a line break, a currency in front.
_INVISIBLE = re.compile(
    r"\\[hv]?(?:phantom|space)\*?\s*(?:\{[^{}]*\}|\\?\S)|\\(?:text)?color\s*\{[^{}]*\}|\\(?:left|right)\s*\."
    r"|(?<=\\\\)\s*\[[0-9.]+[a-z]{2}\]|\b(?:US|USD|EUR)(?=\s*\\?\$?\s*[0-9])"
)
_EMPHASIS = re.compile(r"\s*(\*\*|__|`)(.*)\1\s*", re.DOTALL)
_LONE_SIGN = re.compile(r"\{([-+=<>*/:])\}")
# 12,\!650 and 12{,}650 and 2\ 039\ 191: groups of three digits whose separator is not a plain comma.
_GROUPS = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:(?:,\\!\s*|\\!,|\{,\}|\\[,;: ]|[ ~])[0-9]{3})+(?![0-9])")
_LEAD = re.compile(r"(?:(?:hence|thus|so|therefore),?)?(?:the|my|our)?(?:final|correct)?answer(?:is|:|=)*")
_CLOSING_MARKS = frozenset('.,;:"')
_ARTICLES = frozenset(["a", "an", "the"])
_SCIENTIFIC = re.compile(r"\s*([+-]?[0-9]+)e(-[0-9]+)\s*")


def tokenise(text: str) -> list[Token]:
    r"""The tokens of an answer; linear in its length, never raises.

    Fonts vanish and leave a mark on their tokens: `\text{13}` is the number 13, `6\text{ cm}` a number and a word.
    """
    text = to_latex(text)
    if emphasis := _EMPHASIS.fullmatch(text):
        text = emphasis.group(2)
    text = _LONE_SIGN.sub(r"\1", _GROUPS.sub(_digits, _INVISIBLE.sub(" ", text)))
    text = _SCIENTIFIC.sub(r"\1.0e\2", text) if _SCIENTIFIC.fullmatch(text) else text
    tokens: list[Token] = []
    braces: list[str] = []  # for each open brace: the font it belongs to, or ""
    texts = 0  # how many of them are text fonts
    font = ""  # a font that waits for its argument
    spaced = False
    for match in _RAW.finditer(text):
        kind, raw = str(match.lastgroup), match.group()
        if kind == "space" or raw in SPACES:
            spaced = True
            continue
        if raw in SILENT or raw == "$":
            continue
        if raw in TEXT_FONTS or raw in MATH_FONTS:
            font = "text" if raw in TEXT_FONTS else "math"
            continue
        if raw == "{":
            braces.append(font)
            texts += font == "text"
            if font:
                font = ""
                continue
        elif raw == "}" and braces:
            closed = braces.pop()
            texts -= closed == "text"
            if closed:
                continue
        tokens += _tokens(kind, raw, spaced, texts > 0 or font == "text")
        font, spaced = "", False
    return _trim(_bare_words(tokens))


def _digits(match: re.Match[str]) -> str:
    return "".join(character for character in match.group() if character in "0123456789")


def _tokens(kind: str, raw: str, spaced: bool, text: bool) -> list[Token]:
    if kind == "num":
        return [Token("num", raw, spaced, text)]
    if kind == "env":
        side, name = re.findall("[A-Za-z]+", raw)[:2]
        return [Token("env", f"{side} {environment(name)}", spaced, text)]
    if raw in OPERATORS:
        return [Token("op", OPERATORS[raw], spaced, text)]
    if kind == "cmd" or (raw in ALIASES and kind == "op"):
        name = raw.lstrip("\\")
        name = ALIASES.get(name, name)
        return [Token("sym" if name in GREEK else "cmd", name, spaced, text)]
    if kind == "op":
        return [Token("op", raw, spaced, text)]
    return _word(raw, spaced, text)


def _word(raw: str, spaced: bool, text: bool) -> list[Token]:
    lower = raw.lower()
    if lower in PLAIN and not (text and lower in ("min", "max")):
        return [Token("cmd", ALIASES.get(lower, lower), spaced, text)]
    if raw in GREEK and len(raw) > 2:
        return [Token("sym", raw, spaced, text)]
    if len(raw) == 1:
        return [Token("sym", raw, spaced, text)]
    return [Token("word", raw, spaced, text)]


def _bare_words(tokens: list[Token]) -> list[Token]:
    """Reads U between brackets as a union, and a bare `in` before a bracket as membership."""
    for index in range(1, len(tokens) - 1):
        kind, value, spaced, text = tokens[index]
        opens = tokens[index + 1].value in ("(", "[", r"\{", "mathbb")
        if value == "U" and opens and tokens[index - 1].value in (")", "]", r"\}"):
            tokens[index] = Token("cmd", "cup", spaced, text)
        elif value == "in" and kind == "word" and opens:
            tokens[index] = Token("cmd", "in", spaced, text)
    return tokens


def _trim(tokens: list[Token]) -> list[Token]:
    """Drops closing punctuation, a product sign in front, and an opening such as `The answer is`."""
    while tokens and tokens[-1].kind == "op" and tokens[-1].value in _CLOSING_MARKS:
        tokens.pop()
    start = 0
    if tokens and tokens[0].value in ('"', "*"):
        tokens = tokens[1:]
    if len(tokens) > 1 and tokens[0].value.lower() in _ARTICLES and tokens[0].text and tokens[1].kind == "word":
        tokens = tokens[1:]
    while start < min(len(tokens), 8) and (tokens[start].kind == "word" or tokens[start].value in (",", ":", "=")):
        start += 1
    if start and _LEAD.fullmatch("".join(token.value for token in tokens[:start]).lower()) and start < len(tokens):
        tokens = tokens[start:]
    count = _wrappers(tokens)
    return tokens[count : len(tokens) - count]


def _wrappers(tokens: list[Token]) -> int:
    """How many pairs of braces enclose all tokens; one pass, whatever their number."""
    partner: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.value == "{":
            opened.append(index)
        elif token.value == "}" and opened:
            partner[opened.pop()] = index
    count = 0
    while partner.get(count) == len(tokens) - 1 - count and count + 1 < partner[count]:
        count += 1
    return count


def key(tokens: list[Token]) -> str:
    """One canonical string: equal keys mean that two answers are the same text up to print."""
    parts = []
    previous = ""
    for kind, value, _, _ in tokens:
        if kind == "num":
            value = value.removesuffix(".")
            if previous == "num":  # two numbers never join
                parts.append(" ")
        parts.append("\\" + value if kind == "cmd" else value)
        previous = kind
    return "".join(parts)


def has_words(tokens: list[Token]) -> bool:
    """Whether an answer holds a word, or a letter in a text font."""
    return any(token.kind == "word" or (token.text and token.kind == "sym") for token in tokens)


def spoken(tokens: list[Token]) -> str:
    """`key` for answers with words: without case, full stops, quotes and outer brackets."""
    text = "".join(value for kind, value, _, _ in tokens if not (kind == "op" and value in ".'\"")).lower()
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text

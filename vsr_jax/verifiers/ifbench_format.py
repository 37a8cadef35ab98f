"""IFBench `format:` instructions: lists, nesting, quotes, case, white space and templates."""

import re
import string
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from vsr_jax.verifiers.fields import Filled
from vsr_jax.verifiers.ifbench_text import PUNCTUATION, bare, is_emoji, without_punctuation
from vsr_jax.verifiers.text import rule_sentences, sentences, word_tokens

Splitter = Callable[[str], list[str]]

_CLOSES = {")": "(", "]": "[", "}": "{"}
_LETTERED_OPTIONS = re.compile(r"\W*[aA]\W*[bB]\W*[cC]")
_BULLET = re.compile(r"^[ \t]*([*-])(?![*-])", re.MULTILINE)
_CURLY = str.maketrans("“”", '""')
_MARKS_BUT_QUOTES = string.digits + PUNCTUATION.replace('"', "")


def parentheses(response: str) -> bool:
    """Some bracket closes rightly after five or more were open at once; a wrong one starts the count anew."""
    opened: list[str] = []
    deepest = 0
    for character in response:
        if character in "([{":
            opened.append(character)
            deepest = max(deepest, len(opened))
        elif character in _CLOSES:
            if not opened or opened.pop() != _CLOSES[character]:
                opened, deepest = [], 0
            elif deepest >= 5:
                return True
    return False


def quotes(response: str) -> bool:
    """Straight single and double quotes nest three levels deep and three of them are closed in a row.

    A quote closes the innermost open one of its kind and opens a level otherwise, so that
    apostrophes count as well.
    """
    opened: list[str] = []
    deepest = 0
    for character in response:
        if opened and character == opened[-1]:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        elif character in "\"'":
            opened.append(character)
            deepest = max(deepest, len(opened))
    return False


def options(response: str, *, options: Filled) -> bool:
    """The response is one of the options, which `/`, else `or`, else `,` divides.

    Options a, b, c must be given to the letter with their marks; others in any case, marks
    at the ends aside.
    """
    separator = "/" if "/" in options else "or" if "or" in options else ","
    choices = [choice.strip() for choice in options.split(separator)]
    if _LETTERED_OPTIONS.match(options):
        return response in choices
    return bare(response).lower() in [bare(choice).lower() for choice in choices]


def newline(response: str) -> bool:
    """There are as many lines with something on them as words, punctuation deleted."""
    text = without_punctuation(response).strip()
    return sum(line != "" for line in text.split("\n")) == len(text.split())


def emoji(split: Splitter, response: str, /) -> bool:
    """Each sentence ends with an emoji, or the next one begins with it: splitting parts it from its sentence.

    The last two characters are looked at, since an emoji may be followed by a variation selector.
    """
    found = [without_punctuation(sentence).strip() for sentence in split(response)]
    for sentence, after in zip(found, [*found, ""][1:], strict=True):
        if not sentence:
            return False
        if not any(map(is_emoji, sentence[-2:])) and not (after and is_emoji(after[0])):
            return False
    return True


def _indents(lines: list[str]) -> list[int]:
    return [len(line) - len(line.lstrip(" ")) for line in lines]


def line_indent(response: str) -> bool:
    """Each line is indented by more spaces than the one before; a single line passes.

    Blank lines are removed while the lines are walked, as in the reference, so that the line
    after each removed one is not looked at and may stay.
    """
    lines = response.split("\n")
    # At least half the lines stay, and s stairs take s (s - 1) / 2 spaces: too many lines fail
    # before the walk, whose time grows with their square.
    stay = len(lines) // 2
    if stay * (stay - 1) // 2 > len(response):
        return False
    for line in lines:
        if not line.strip():
            lines.remove(line)
    return all(a < b for a, b in pairwise(_indents(lines)))


def line_indent_filtered(response: str) -> bool:
    """Each line is indented by more spaces than the one before, blank lines aside; a single line passes."""
    lines = [line for line in response.split("\n") if line.strip()]
    return all(a < b for a, b in pairwise(_indents(lines)))


def _quotes_explained(response: str) -> bool | None:
    """No quote ends where the next begins, and the text does not end with one; None without any letter or quote."""
    text = "".join(response.replace("'\"'", "").split())
    if '""' in text:
        return False
    body = text.strip(_MARKS_BUT_QUOTES)
    return None if not body else not body.endswith('"')


def quote_unquote(response: str) -> bool:
    """No straight double quotes side by side or at the end, digits and other marks aside; curly ones are letters."""
    return _quotes_explained(response) is not False


def quote_unquote_2025(response: str) -> bool:
    """No double quotes side by side or at the end, digits and other marks aside; curly ones count as straight.

    A text of digits and marks alone fails; the 2025 release raised on it.
    """
    return _quotes_explained(response.translate(_CURLY)) is True


def quote_unquote_curly(response: str) -> bool:
    """No double quotes, straight or curly, side by side or at the end, digits and other marks aside."""
    return _quotes_explained(response.translate(_CURLY)) is not False


def listing(response: str, *, sep: Filled) -> bool:
    """The marker stands at least twice, anywhere."""
    return response.count(sep) >= 2


def thesis(response: str) -> bool:
    """An HTML italic span with something in it and something after it.

    `<i>` is looked for before `<em>`, `</i>` before `</em>`, and both are taken to be as long as
    `<i>` and `</i>`.
    """
    start = response.find("<i>" if "<i>" in response else "<em>")
    if start < 0:
        return False
    text = response[start:]
    end = text.find("</i>" if "</i>" in text else "</em>")
    return end >= 0 and text[3:end].strip() != "" and text[end + 4 :].strip() != ""


def sub_bullets(response: str) -> bool:
    """A hyphen follows every asterisk before the next one; a text without asterisks passes."""
    return all("-" in part for part in response.split("*")[1:])


def sub_bullet_lines(response: str) -> bool:
    """At least one line begins with `*`, and after each comes a line that begins with `-` before the next.

    Bold text (`**`) and rules (`---`) are no bullets.
    """
    bullets = "".join(_BULLET.findall(response)).split("*")[1:]
    return bool(bullets) and all(bullets)


def no_bullets_bullets(split: Splitter, response: str, /) -> bool:
    """Two or more sentences, then two or more lines that begin with `*`, and nothing after these.

    A blank line ends the sentences; what marks they end in is not looked at.
    """
    before = bullets = 0
    in_sentences = True
    for line in map(str.strip, response.split("\n")):
        if line.startswith("*"):
            if before < 2:
                return False
            in_sentences = False
            bullets += 1
        elif in_sentences:
            found = len(split(line))
            before += found
            in_sentences = found > 0
        else:
            return False
    return bullets >= 2


def _breaks_title(word: str) -> bool:
    """A lower-case initial before a rest all of one case."""
    return word[0].islower() and (word[1:].islower() or word[1:].isupper())


def title_case(response: str) -> bool:
    """No token that begins with a letter is in lower case or has only its first letter so."""
    tokens = [token for token in word_tokens(response) if token[0].isalpha()]
    return not any(token.islower() if len(token) == 1 else _breaks_title(token) for token in tokens)


def title_case_2025(response: str) -> bool:
    """No token of two or more characters is in lower case or has only its first letter so."""
    return not any(map(_breaks_title, word_tokens(response)))


def output_template(response: str) -> bool:
    """The three headings stand in the response, in any order."""
    return all(heading in response for heading in ("My Answer:", "My Conclusion:", "Future Outlook:"))


def no_whitespace(response: str) -> bool:
    """No character is white space."""
    return not any(map(str.isspace, response))


def _table(split: Splitter, release: dict[str, Callable[..., bool]]) -> dict[str, Callable[..., bool]]:
    return {
        "format:parentheses": parentheses,
        "format:quotes": quotes,
        "format:options": options,
        "format:newline": newline,
        "format:emoji": partial(emoji, split),
        "format:line_indent": line_indent,
        "format:list": listing,
        "format:thesis": thesis,
        "format:sub-bullets": sub_bullets,
        "format:no_bullets_bullets": partial(no_bullets_bullets, split),
        "format:output_template": output_template,
        "format:no_whitespace": no_whitespace,
        **release,
    }


FORMAT = _table(sentences, {"format:quote_unquote": quote_unquote, "format:title_case": title_case})
FORMAT_2025 = _table(rule_sentences, {"format:quote_unquote": quote_unquote_2025, "format:title_case": title_case_2025})
FORMAT_INTENT: dict[str, Callable[..., bool]] = {
    "format:line_indent": line_indent_filtered,
    "format:quote_unquote": quote_unquote_curly,
    "format:sub-bullets": sub_bullet_lines,
}

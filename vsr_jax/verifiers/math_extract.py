"""Find the final answer in a response: the last box, or the last answer line."""

import re
from typing import Literal, NamedTuple

Extract = Literal["auto", "boxed", "answer_line"]

# A box opener of any spelling (with its brace when it has one), an escaped character, or a brace.
_BOX_TOKEN = re.compile(r"(\\{1,2}(?:boxed|fbox|framebox)(?![A-Za-z])\s*)(\{?)|\\.|[{}]", re.DOTALL)
_MATH_END = re.compile(r"\$|\\\)|\\\]|\n")
_ANSWER_LABEL = re.compile(r"\banswers?(?:\s++is\b)?\s*+(?:(?:\*\*|__)\s*+)?[:\uff1a]\s*+", re.IGNORECASE)
_MARKUP = re.compile(r"</?[A-Za-z_]+>|<\|[A-Za-z_]+\|>")
_MAX_BRACELESS = 1_000  # characters
# Text that shows that an unclosed box was left behind: its formula ended, or prose went on.
_LEFT_BEHIND = re.compile(r"\$|\\\)|\\\]|\n|(?<![A-Za-z\\{])[A-Za-z]{2,}[,.]?\s")


class Extraction(NamedTuple):
    """The answer text, or None with the reason why there is none."""

    answer: str | None
    reason: str = ""


class _Box(NamedTuple):
    start: int  # of the macro
    content: int  # of what is inside
    end: int | None  # None: unfinished
    parent: int | None  # index of the box around it
    escaped: bool  # written with doubled backslashes


def find_answer(response: str, extract: Extract) -> Extraction:
    """Finds the answer text. `auto` takes the last box and, only where there is no box at all, the last answer line."""
    if extract != "answer_line":
        boxed = last_box(response)
        if boxed is not None:
            return boxed
        if extract == "boxed":
            return Extraction(None, "no box")
    return last_answer_line(response)


def last_box(text: str) -> Extraction | None:
    r"""The content of the last `\boxed{..}`, `\boxed ..` or `\fbox{..}`; None when there is no box at all.

    An empty or unfinished last box is no answer, whatever stands in earlier ones: the last statement counts.
    A box inside a finished box is part of it.
    """
    boxes = _find_boxes(text)
    if not boxes:
        return None
    index = max(range(len(boxes)), key=lambda i: boxes[i].start)
    box = boxes[index]
    while box.end is not None and box.parent is not None:
        outer = boxes[box.parent]
        if outer.end is None and _LEFT_BEHIND.search(text, outer.content, box.start):
            break
        box = outer
    if box.end is None:
        return Extraction(None, "the last box is unfinished")
    content = text[box.content : box.end]
    if box.escaped:
        content = content.replace("\\\\", "\\")
    return Extraction(content) if content.strip() else Extraction(None, "the last box is empty")


def _find_boxes(text: str) -> list[_Box]:
    """All boxes in one pass, so that thousands of unfinished ones cost no more than their length."""
    starts = [i for i in (text.find(name) for name in ("boxed", "fbox", "framebox")) if i >= 0]
    if not starts:
        return []
    boxes: list[_Box] = []
    groups: list[int | None] = []  # open braces: index of the box that it opens, or None
    enclosing: list[int] = []  # open boxes
    position = min(starts)
    while position > 0 and text[position - 1] == "\\":
        position -= 1
    while match := _BOX_TOKEN.search(text, position):
        position = match.end()
        token = match.group()
        if match.group(1):
            parent = enclosing[-1] if enclosing else None
            escaped = token.startswith("\\\\")
            if match.group(2):
                groups.append(len(boxes))
                enclosing.append(len(boxes))
                boxes.append(_Box(match.start(), position, None, parent, escaped))
            else:
                end = _braceless_end(text, position)
                boxes.append(_Box(match.start(), position, end, parent, escaped))
        elif token == "{":
            groups.append(None)
        elif token == "}" and groups:
            index = groups.pop()
            if index is not None:
                boxes[index] = boxes[index]._replace(end=match.start())
                enclosing.pop()
    return boxes


def _braceless_end(text: str, start: int) -> int | None:
    r"""Where `\boxed ..` without braces ends: with its formula, else after one word; None when nothing follows."""
    limit = min(len(text), start + _MAX_BRACELESS)
    stop = _MATH_END.search(text, start, limit)
    end = limit if stop is None else stop.start()
    if stop is None or stop.group() == "\n":
        depth = 0
        for index in range(start, end):
            depth += {"{": 1, "}": -1}.get(text[index], 0)
            if depth < 0 or (depth == 0 and text[index].isspace()):
                end = index
                break
    return end if text[start:end].strip() else None


def last_answer_line(text: str) -> Extraction:
    """What follows the last `Answer:` on its line (or on the next one where the label stands alone)."""
    end = None
    for match in _ANSWER_LABEL.finditer(text):
        end = match.end()
    if end is None:
        return Extraction(None, "no box and no answer line")
    rest = text[end:].lstrip("*_ \t\n")
    for opening, closing in (("\\[", "\\]"), ("$$", "$$"), ("$\n", "$")):  # a formula on lines of its own
        if rest.startswith(opening) and closing in rest[2:]:
            line = rest[2 : rest.index(closing, 2)]
            break
    else:
        line = rest.split("\n", 1)[0]
    boxed = last_box(line)
    if boxed is not None:
        return boxed
    line = _MARKUP.sub("", line).strip("*_` \t\r")
    return Extraction(line) if line else Extraction(None, "the last answer line is empty")

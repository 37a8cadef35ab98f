"""What a section of the page is made of, as plain data."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from matplotlib.figure import Figure

from vsr_jax.report.figures import png_bytes
from vsr_jax.report.tables import Table

_DPI = 160
_CSS_DPI = 96


@dataclass(frozen=True)
class Prose:
    """Plain text; blank lines part paragraphs, and text in backquotes is set as code."""

    kind: ClassVar[str] = "prose"
    text: str


@dataclass(frozen=True)
class Callout:
    """Prose that stands out."""

    kind: ClassVar[str] = "callout"
    text: str
    tone: Literal["note", "warning"] = "note"


@dataclass(frozen=True)
class Picture:
    """A PNG, shown at `width` CSS pixels at most; `alt` says what it shows to those who cannot see it."""

    kind: ClassVar[str] = "picture"
    png: bytes
    alt: str
    width: int
    caption: str = ""


@dataclass(frozen=True)
class Details:
    """Blocks behind a summary line that opens them."""

    kind: ClassVar[str] = "details"
    summary: str
    blocks: Sequence["Block"]


@dataclass(frozen=True)
class Browser:
    """A rollout browser over JSON data, as made by `browser.browser_section`."""

    kind: ClassVar[str] = "browser"
    data: Mapping[str, Any]


Block: TypeAlias = Prose | Callout | Table | Picture | Details | Browser


@dataclass(frozen=True)
class Section:
    """A heading with its blocks."""

    heading: str
    blocks: Sequence[Block]


def picture(figure: Figure, alt: str, caption: str = "") -> Picture:
    """A matplotlib figure as a block, sharp on dense screens and set at its own size."""
    return Picture(png_bytes(figure, _DPI), alt, round(figure.get_figwidth() * _CSS_DPI), caption)


def anchors(sections: Sequence[Section]) -> list[str]:
    """A fragment id for each section, made from its heading and unique on the page."""
    taken: list[str] = []
    for section in sections:
        base = re.sub(r"[^a-z0-9]+", "-", section.heading.casefold()).strip("-") or "section"
        name, number = base, 2
        while name in taken:
            name, number = f"{base}-{number}", number + 1
        taken.append(name)
    return taken

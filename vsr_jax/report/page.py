"""A report page that is one file: style, script, figures and data are inside, and nothing is fetched."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from vsr_jax.report.blocks import Block, Browser, Details, Section, anchors
from vsr_jax.report.files import write_atomic
from vsr_jax.report.tables import to_html

_ASSETS = Path(__file__).with_name("assets")


def write_page(out_dir: str | Path, title: str, sections: Sequence[Section], *, subtitle: str = "") -> Path:
    """Writes `<out_dir>/index.html`, whole or not at all, and returns its path.

    Args:
      out_dir: made if missing.
      title, subtitle: at the top of the page.
      sections: in order; the table of contents lists their headings.

    Raises:
      ValueError: no sections.
    """
    return write_atomic(Path(out_dir) / "index.html", render_page(title, sections, subtitle=subtitle))


def render_page(title: str, sections: Sequence[Section], *, subtitle: str = "") -> str:
    """The page as HTML. All text from blocks is escaped; only the page's own script may run.

    Raises:
      ValueError: no sections.
    """
    if not sections:
        raise ValueError("a page needs at least one section")
    browsers = [block for section in sections for block in _walk(section.blocks) if isinstance(block, Browser)]
    style = _asset("page.css") + (_asset("browser.css") if browsers else "")
    script = _asset("browser.js") if browsers else ""
    environment = Environment(
        loader=FileSystemLoader(_ASSETS), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "paragraphs": _paragraphs,
        "table": to_html,
        "base64": lambda data: base64.b64encode(data).decode("ascii"),
        "script_json": _script_json,
        "data_id": lambda block: f"rollouts-{next(i for i, known in enumerate(browsers) if known is block)}",
    }
    return environment.get_template("page.html").render(
        title=title,
        subtitle=subtitle,
        sections=[
            {"heading": section.heading, "anchor": anchor, "blocks": section.blocks}
            for section, anchor in zip(sections, anchors(sections), strict=True)
        ],
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
    )


def _policy(style: str, script: str) -> str:
    """A content security policy: no requests, and no style or script but these two."""
    allowed = [f"style-src {_digest(style)}", "img-src data:"]
    if script:
        allowed.append(f"script-src {_digest(script)}")
    return "; ".join(["default-src 'none'", *allowed])


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _walk(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Details):
            yield from _walk(block.blocks)


def _paragraphs(text: str) -> list[Markup]:
    """Escaped paragraphs, with `code` set as such."""
    parts = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
    return [Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(part)))) for part in parts]


def _script_json(data: Any) -> Markup:
    """JSON that cannot end the script element around it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)

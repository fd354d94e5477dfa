"""The frame of every page that Chartferry writes: one self-contained file, readable at any width.

`frame.html` and `page.css` hold what all pages share. A page adds a template that fills the frame, and a style.
"""

import base64
import hashlib
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipelines.home.batch import printable_name

TEMPLATES = Path(__file__).parent / "templates"
STYLE = "page.css"

Cell = int | float | Decimal | str | None


def document(template: str, folder: Path, styles: Sequence[str], **values: Any) -> str:
    """Return a page as HTML.

    Args:
        template: the name of a template in `folder` that extends `frame.html`.
        folder: the folder of the template and its styles.
        styles: names of further styles in `folder`, added after the shared style.
        values: the variables of the template.
    """
    paths = (TEMPLATES / STYLE, *(folder / name for name in styles))
    style = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return (
        templates(folder)
        .get_template(template)
        .render(
            style=Markup(style),  # noqa: S704 - our own files
            style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
            **values,
        )
    )


@cache
def templates(folder: Path) -> Environment:
    """Return the template environment of a folder, which also finds the shared templates."""
    made = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "told": cell_text,
        "number": lambda number: "" if number is None else f"{number:,}",
        "money": lambda cents: "" if cents is None else dollars(Decimal(cents) / 100),
        "px": lambda number: f"{number:.1f}".rstrip("0").rstrip("."),
        "shown": printable_name,
    }
    made.tests |= {"text": lambda cell: isinstance(cell, str), "nothing": lambda cell: cell in (0, "", None)}
    return made


def cell_text(cell: Cell) -> str:
    """Return the text of a cell: money with a dollar sign, and no text for an empty cell."""
    if isinstance(cell, Decimal):
        return dollars(cell)
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return f"{cell:,}" if isinstance(cell, int) else cell or ""


def dollars(amount: Decimal | float) -> str:
    return f"{'-' if amount < 0 else ''}${abs(amount):,.2f}"

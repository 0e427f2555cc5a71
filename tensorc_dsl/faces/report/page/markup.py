"""HTML in which every text is escaped: names, messages and schedules are foreign input."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

from tensorc_dsl.base.visible import visible, visible_line


class Markup(str):
    """HTML, which is not escaped again."""

    __slots__ = ()


def line(text: str) -> Markup:
    """A text on one line; invisible characters are spelled out."""
    return Markup(html.escape(visible_line(text)))


def lines(text: str) -> Markup:
    """A text with its line ends."""
    return Markup(html.escape(visible(text)))


def element(tag: str, *children: str, **attributes: str | float | bool) -> Markup:
    """An element; children that are no markup are escaped. In names of attributes `_` stands for `-`, and `class_` for
    `class`. An attribute that is True has no value, and one that is False is left out."""
    written = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{line(str(value))}"')
        for name, value in attributes.items()
        if value is not False
    )
    return Markup(f"<{tag}{written}>{joined(children)}</{tag}>")


def joined(children: Iterable[str]) -> Markup:
    return Markup("".join(c if isinstance(c, Markup) else line(c) for c in children))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> Markup:
    """A table whose first column has the names of the rows; `numbers` are columns that are aligned to the right."""

    def cell(tag: str, n: int, text: str, **more: str) -> Markup:
        return element(tag, text, **more, class_="number") if n in numbers else element(tag, text, **more)

    top = element("tr", *(cell("th", n, text, scope="col") for n, text in enumerate(head)))
    body = [
        element("tr", *(cell("td", n, text) if n else cell("th", n, text, scope="row") for n, text in enumerate(row)))
        for row in rows
    ]
    found = element("table", element("caption", caption), element("thead", top), element("tbody", *body))
    return element("div", found, class_="wide", tabindex="0", role="region", aria_label=caption)


def embedded(value: Any) -> Markup:
    """JSON that stands inside of a `script` element: no text in it can end that."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def bar(share: float, kind: str) -> Markup:
    """A bar over a share of the width; the number stands beside it as text."""
    rect = element("rect", width=f"{100 * min(1.0, max(0.0, share)):.1f}%", height="100%", class_=kind)
    return element("svg", rect, class_="bar", aria_hidden="true", focusable="false")

"""The picture of the architecture: the rooms of the package as boxes, and arrows from each to those that it imports.

It is drawn from the imports of all modules. A room stands above all that it imports, so arrows point down; one that follows
from others is left out (Aho, Garey and Ullman, 1972). Rooms that are several levels apart are joined through points of the
levels between, and the order within a level is the mean position of the neighbours (Sugiyama, Tagawa and Toda, 1981).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from graphlib import TopologicalSorter
from html import escape
from itertools import pairwise
from math import ceil, inf
from statistics import fmean

from docs.generate.layers import PACKAGE, ROOT
from tools.size import imported

PICTURE = ROOT / "docs" / "architecture.svg"

_LEVEL, _BOX, _LETTER, _GAP = 62, 30, 8.2, 26
"""The height of a level and of a box, the width of a letter, and the space between boxes."""

_MARKER = """\
<defs><marker id="down" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0,0 L8,4 L0,8 z" fill="#7a869a" stroke="none"/></marker></defs>"""
"""The head of an arrow."""

_SWEEPS = 12
"""How often the order of each level is improved, downwards and upwards."""

Edges = dict[str, set[str]]
"""The rooms that each room imports."""


def room_of(path: str) -> str:
    """The folder below the package, or the module in it; empty for the package's own names."""
    first = path.split("/")[1].removesuffix(".py")
    return "" if first == "__init__" else first


@cache
def edges() -> Edges:
    """The imports between the rooms of the package as it is."""
    texts = {f.relative_to(ROOT).as_posix(): f.read_text(encoding="utf-8") for f in sorted(PACKAGE.rglob("*.py"))}
    names = {p.removesuffix(".py").removesuffix("/__init__").replace("/", "."): p for p in texts}
    found: Edges = {}
    for path, text in texts.items():
        if room := room_of(path):
            found.setdefault(room, set()).update(map(room_of, imported(path, text, names)))
    return {room: targets - {room, ""} for room, targets in found.items()}


def reduced(arrows: Mapping[str, Iterable[str]]) -> Edges:
    """The arrows that do not follow from others. Raises graphlib.CycleError if some form a circle."""
    below: Edges = {}
    out: Edges = {}
    for room in TopologicalSorter(arrows).static_order():
        targets = set(arrows.get(room, ()))
        below[room] = targets.union(*(below[t] for t in targets))
        out[room] = targets - set[str]().union(*(below[t] for t in targets))
    return out


def levels(arrows: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """The length of the longest way down from each room."""
    out: dict[str, int] = {}
    for room in TopologicalSorter(arrows).static_order():
        out[room] = 1 + max((out[t] for t in arrows.get(room, ())), default=-1)
    return out


def _chains(arrows: Edges, level: Mapping[str, int]) -> dict[tuple[str, str], list[str]]:
    """For each arrow its room, a point for each level between, named by the arrow, and its target."""
    return {
        (a, b): [a, *(f"{a} {b} {n}" for n in range(level[a] - 1, level[b], -1)), b]
        for a in sorted(arrows)
        for b in sorted(arrows[a])
    }


def _width(item: str) -> float:
    return 4 if " " in item else len(item) * _LETTER + 22


def _spread(row: Sequence[str], wanted: Mapping[str, float]) -> dict[str, float]:
    """Places of a level in its order, with space between: means of those pushed to the right and those pushed left."""
    right: dict[str, float] = {}
    left: dict[str, float] = {}
    edge = -inf
    for item in row:
        right[item] = max(wanted[item], edge + _width(item) / 2)
        edge = right[item] + _width(item) / 2 + _GAP
    edge = inf
    for item in reversed(row):
        left[item] = min(wanted[item], edge - _width(item) / 2)
        edge = left[item] - _width(item) / 2 - _GAP
    return {item: (right[item] + left[item]) / 2 for item in row}


def places(arrows: Edges) -> tuple[dict[str, tuple[float, float]], dict[tuple[str, str], list[str]]]:
    """Where each room, and each point of an arrow, is; and the ways of the arrows."""
    level = levels(arrows)
    chains = _chains(arrows, level)
    height = {item: level[way[0]] - n for way in chains.values() for n, item in enumerate(way)} | level
    near: dict[str, list[str]] = {item: [] for item in height}
    for way in chains.values():
        for a, b in pairwise(way):
            near[a].append(b)
            near[b].append(a)
    top = max(level.values())
    rows = [sorted(item for item in height if height[item] == n) for n in range(top + 1)]
    x = {item: _GAP * 4 * (n - len(row) / 2) for row in rows for n, item in enumerate(row)}
    for sweep in range(2 * _SWEEPS):
        for row in rows if sweep % 2 else reversed(rows):
            wanted = {item: fmean(x[other] for other in near[item]) if near[item] else x[item] for item in row}
            row.sort(key=lambda item: (wanted[item], item))
            x |= _spread(row, wanted)
    start = min(x[item] - _width(item) / 2 for item in x) - _GAP
    return {item: (x[item] - start, (top - height[item] + 0.5) * _LEVEL) for item in height}, chains


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A line from the lower side of the first box to the upper side of the last one."""
    at = [(x, y + (_BOX / 2) * ((n == 0) - (n == len(points) - 1))) for n, (x, y) in enumerate(points)]
    out = f"M{at[0][0]:.0f},{at[0][1]:.0f}"
    for (x, y), (u, v) in pairwise(at):
        out += f" C{x:.0f},{(y + v) / 2:.0f} {u:.0f},{(y + v) / 2:.0f} {u:.0f},{v:.0f}"
    return f'<path d="{out}" marker-end="url(#down)"/>'


def _says(room: str) -> str:
    """The first sentence of a room about itself."""
    folder = PACKAGE / room
    file = folder / "__init__.py" if (folder / "__init__.py").is_file() else folder.with_suffix(".py")
    doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(doc.partition("\n\n")[0].split())


def drawn(arrows: Edges, says: Mapping[str, str]) -> str:
    """The picture as SVG."""
    at, chains = places(arrows)
    height = (max(levels(arrows).values()) + 1) * _LEVEL
    width = ceil(max(x + _width(item) / 2 for item, (x, _) in at.items()) + _GAP)
    boxes = [
        f'<g><title>{escape(says.get(room, ""))}</title><rect x="{x - _width(room) / 2:.0f}" y="{y - _BOX / 2:.0f}" '
        f'width="{_width(room):.0f}" height="{_BOX}" rx="5"/><text x="{x:.0f}" y="{y + 5:.0f}">{escape(room)}</text></g>'
        for room, (x, y) in sorted(at.items())
        if " " not in room
    ]
    size = f'width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}">',
            "<title>The rooms of the package, each above those that it imports</title>",
            _MARKER,
            f'<rect {size} fill="#ffffff"/>',
            '<g fill="none" stroke="#7a869a" stroke-width="1.2">',
            *(_path([at[item] for item in way]) for way in chains.values()),
            "</g>",
            '<g fill="#eef3fb" stroke="#3c5a96" text-anchor="middle" font-family="monospace" font-size="13">',
            *(box.replace("<text", '<text fill="#1b2a4a" stroke="none"') for box in boxes),
            "</g>",
            "</svg>",
            "",
        ]
    )


def picture() -> str:
    """The picture of the package as it is."""
    arrows = reduced(edges())
    return drawn(arrows, {room: _says(room) for room in arrows})

"""Every package is a layer of the import contract, and its docstring says what it contains and what it must not."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError
from pathlib import Path

import pytest

from docs.generate.architecture import drawn, edges, levels, picture, reduced
from docs.generate.layers import PACKAGE, names

PACKAGES = sorted(
    {PACKAGE.joinpath(*name.split(".")) for name in names()} & {p.parent for p in PACKAGE.rglob("__init__.py")}
)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_a_package_says_what_it_contains_and_what_it_must_not(package: Path) -> None:
    doc = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
    first, _, second = doc.partition("\n\n")
    assert first.endswith(".") and second.endswith(".")


def test_every_package_is_a_layer() -> None:
    assert {p.parent.name for p in PACKAGE.glob("*/__init__.py")} <= set(names())


def test_the_picture_has_every_room_and_its_arrows_point_down() -> None:
    drawing = picture()
    height = {room: int(y) for y, room in re.findall(r'y="(\d+)">(\w+)</text>', drawing)}
    assert len(height) == drawing.count("</text>")
    assert height.keys() == {f.stem for f in PACKAGE.iterdir() if f.suffix == ".py" or (f / "__init__.py").exists()} - {
        "__init__"
    }
    assert all(height[a] < height[b] for a, targets in edges().items() for b in targets)
    assert drawing.count("marker-end") == sum(map(len, reduced(edges()).values()))


def below(arrows: dict[str, set[str]], room: str) -> set[str]:
    found, new = set[str](), {room}
    while new := {t for n in new for t in arrows[n]} - found:
        found |= new
    return found


def test_an_arrow_is_left_out_exactly_if_it_follows_from_others() -> None:
    arrows, few = edges(), reduced(edges())
    assert all(below(arrows, room) == below(few, room) for room in arrows)
    for room in few:
        for target in few[room]:
            less = {**few, room: few[room] - {target}}
            assert target not in below(less, room)


def test_imports_in_a_circle_have_no_picture() -> None:
    with pytest.raises(CycleError):
        drawn(reduced({"a": {"b"}, "b": {"a"}}), {})


def test_a_level_is_the_length_of_the_longest_way_down() -> None:
    assert levels({"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": {"c"}}) == {"a": 2, "b": 1, "c": 0, "d": 1}

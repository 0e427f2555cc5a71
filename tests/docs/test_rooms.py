"""The picture of the layers is that of the contract, and each room says what is in it and what may not be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from docs.generate.rooms import PACKAGE, layers

ROOMS = sorted(p.parent for p in PACKAGE.glob("*/__init__.py"))


@pytest.mark.parametrize("room", ROOMS, ids=lambda p: p.name)
def test_a_room_says_what_is_in_it_and_what_may_not_be(room: Path) -> None:
    doc = ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or ""
    first, _, second = doc.partition("\n\n")
    assert first.endswith(".") and second.endswith(".")


def test_every_room_is_a_layer() -> None:
    assert {p.name for p in ROOMS} <= {n.strip() for line in layers() for n in line.split("|")}

"""Every package is a layer of the import contract, and its docstring says what it contains and what it must not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from docs.generate.layers import PACKAGE, names

PACKAGES = sorted(p.parent for p in PACKAGE.glob("*/__init__.py"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_a_package_says_what_it_contains_and_what_it_must_not(package: Path) -> None:
    doc = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
    first, _, second = doc.partition("\n\n")
    assert first.endswith(".") and second.endswith(".")


def test_every_package_is_a_layer() -> None:
    assert {p.name for p in PACKAGES} <= set(names())

"""A `use` of a folder brings all its names, so no two files of one folder of the library declare the same."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.resources import stdlib_root
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source

FOLDERS = sorted({p.parent.relative_to(stdlib_root()) for p in stdlib_root().rglob("*.tsched")})


@pytest.mark.parametrize("folder", [str(f) for f in FOLDERS])
def test_all_names_of_a_folder_are_brought(folder: str) -> None:
    checked = load_source(Source("t.tsched", f"use std.{folder.replace('/', '.')}\n"))
    assert checked.diagnostics == ()
    assert checked.computes or checked.modules or checked.intrinsics

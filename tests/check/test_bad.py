"""Wrong files and their findings: `tests/bad/NAME.tsched`, with the rendered findings in `NAME.expected`.

Those with a code for a name belong to the pages about errors: `tests/explain`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tensorc_dsl.schedule.primitives
from tensorc_dsl.base.diagnostic import render
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file

assert tensorc_dsl.schedule.primitives

FILES = sorted((Path(__file__).parent.parent / "bad").glob("[a-z]*.tsched"))


def test_there_are_some() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_bad_file(path: Path, accept: bool) -> None:
    checked = load_file(Source.read(path, path.name))
    assert checked.diagnostics
    text = "\n\n".join(map(render, checked.diagnostics)) + "\n"
    golden = path.with_suffix(".expected")
    if accept:
        golden.write_text(text, encoding="utf-8")
    assert golden.is_file(), f"no {golden.name}: run pytest --accept and read what it wrote"
    assert text == golden.read_text(encoding="utf-8")

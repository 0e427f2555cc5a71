"""Every name of a tree has its place in the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.parse import parse

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*ROOT.glob("stdlib/**/*.tsched"), *ROOT.glob("examples/*.tsched")])
PROGRAM = """\
program p(A: f32[M]) where M in 1..8 {
    buffer T: f32[4] in "local"
    for i in 4 { block b { spatial vi in 4 = i; T[vi] = A[vi] } }
}
"""


def words(value: Any) -> Iterator[t.Word | t.Name | t.NamePattern]:
    if isinstance(value, tuple):
        for v in value:  # pyright: ignore[reportUnknownVariableType]
            yield from words(v)
    elif isinstance(value, t.Word | t.Name | t.NamePattern):
        yield value
    elif is_dataclass(value) and not isinstance(value, type | Span | Source):
        for f in fields(value):
            yield from words(getattr(value, f.name))


def text(word: t.Word | t.Name | t.NamePattern) -> str:
    match word:
        case t.Word():
            return word
        case t.Name():
            return word.id
        case t.NamePattern():
            return word.name


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_the_span_of_a_name_holds_its_text(file: Path) -> None:
    found = [*words(parse(Source.read(file)).items)]
    assert found
    assert [w.span.text for w in found] == [text(w) for w in found]


def test_programs_keep_their_names() -> None:
    source = Source("p", PROGRAM)
    assert [w.span.text for w in words(parse(source).items)] == [
        "p", "A", "f32", "M", "M", "T", "f32", "i", "b", "vi", "i", "T", "vi", "A", "vi",
    ]  # fmt: skip


def test_a_size_may_be_called_program() -> None:
    """It begins no program, in which `reduce` would be a name."""
    text = "compute f(A: f32[3]) -> B: f32[3]\nwhere program = (1) {\n    let y = {1: reduce best[k in M] k}\n}\n"
    (found,) = parse(Source("f", text)).items
    assert isinstance(found, t.ComputeDef) and found.name == "f"


def test_a_place_takes_no_part_in_equality() -> None:
    a, b = parse(Source("a", "task t = f(M=1)")).items, parse(Source("b", "\n\ntask t  =  f( M = 1 )")).items
    assert a == b
    assert isinstance(a[0], t.TaskDef) and isinstance(b[0], t.TaskDef)
    assert a[0].bindings[0][0].span.start != b[0].bindings[0][0].span.start
    assert {a[0].name: 1} == {"t": 1}


def test_a_key_is_found_behind_a_comment() -> None:
    (task,) = parse(Source("a", "task t = f(M /* no */ =1)".replace("/* no */", "// no\n"))).items
    assert isinstance(task, t.TaskDef)
    assert [key.span.text for key, _ in task.bindings] == ["M"]

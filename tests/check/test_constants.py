"""`const`: a name for what is written down, in modules, spaces and schedules of its file and of those that ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.positions import Written, references
from tensorc_dsl.check.scope import CheckedFile, load_file, load_source
from tensorc_dsl.faces.packages import Resolver
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.target import Target
from tests.interp.spaces import rng

COMPUTE = "compute scale(X: f32[N]) -> Y: f32[N] { Y[i] = X[i] * 2.0 }\ntask t = scale(N=64) with s\n"
CUT = "module cut(b: Block, n: int = wide) { split(b.loops[0], [_, n]) }\nspace s for llvm { cut }\n"


def drawn(text: str) -> str:
    return task_space(load_source(Source("t.tsched", text + COMPUTE)), "t", Target()).sample(rng(0)).text


def codes(text: str) -> list[tuple[str, str]]:
    found = load_file(Source("t.tsched", text)).diagnostics
    return [(d.code, d.span.text if d.span else "") for d in found]


@pytest.mark.parametrize(
    "text",
    [
        "const wide = 8\nmodule cut(b: Block, n: int = wide) { split(b.loops[0], [_, n]) }\nspace s for llvm { cut }\n",
        "const wide = 8\nmodule cut(b: Block) { split(b.loops[0], [_, wide]) }\nspace s for llvm { cut }\n",
        "const wide = 8\nmodule cut(b: Block, n) { split(b.loops[0], [_, n]) }\nspace s for llvm { cut(n=wide) }\n",
        "const wide = 8\nschedule s for scale { split(Y.loops[0], [_, wide]) }\n",
        "const wide = [4, 8]\nschedule s for scale { split(Y.loops[0], [_, wide[1]]) }\n",
        "module cut(b: Block, n: int = wide) { split(b.loops[0], [_, n]) }\nspace s for llvm { cut }\nconst wide = 8\n",
    ],
)
def test_it_stands_for_its_value(text: str) -> None:
    assert "split(i, [_, 8])" in drawn(text)


@pytest.mark.parametrize(
    "value", ["8", "-8", "0.5", '"local"', "true", "[1, -2]", "[]", "{1: 0.5, 2: 1.5}", "[[1], [2]]"]
)
def test_what_a_constant_can_be(value: str) -> None:
    assert codes(f"const c = {value}\n") == []


def test_weights_and_choices_can_be_constants() -> None:
    text = (
        "const often = 100\nconst widths = {4: 1.0}\n"
        "module cut(b: Block) { maybe(often) cut { let n ~ sample_categorical(widths); split(b.loops[0], [_, n]) } }\n"
        "space s for llvm { cut }\n"
    )
    assert "split(i, [_, n])" in drawn(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("const c = 1 + 2", [("E0260", "1 + 2")]),
        ("const c = [1, target.l2]", [("E0260", "target.l2")]),
        ("const d = 1\nconst c = d", [("E0260", "d")]),
        ("const c = _", [("E0260", "_")]),
        ('const c = -"a"', [("E0241", '-"a"')]),
        ("const split = 1", [("E0222", "split")]),
        ("const len = 1", [("E0222", "len")]),
        ("const target = 1", [("E0222", "target")]),
        ("use std.intrinsics.x86.{vnni_dot_16x4}\nconst vnni_dot_16x4 = 1", [("E0222", "vnni_dot_16x4")]),
        ("const c = 1\nconst c = 2", [("E0221", "c")]),
        ("const c = 1\nmodule m(b: Block, c: int = 2) { unroll(b.loops[c]) }", [("E0261", "c: int = 2")]),
        ("const c = 1\nmodule m(b: Block) { let c = b.loops[0]; unroll(c) }", [("E0261", "c")]),
        ("const c = 1\nmodule m(b: Block) { let [c, d] = b.loops; reorder(d, c) }", [("E0261", "c")]),
        ("const c = 1\nmodule m(b: Block) { for c in b.loops { unroll(c) } }", [("E0261", "c")]),
        ("const c = 1\nmodule m(b: Block) { let c ~ sample_int(1..2); unroll(b.loops[c]) }", [("E0261", "c")]),
        ("const c = 1\nmodule m(b: Block) { transform_layout(b, (c, j) -> (j, c)) }", [("E0261", "c")]),
        (
            "const Y = 1\ncompute f(X: f32[N]) -> Y: f32[N] { Y[i] = X[i] }\nschedule s for f { unroll(Y.loops[0]) }",
            [("E0261", "s")],
        ),
        ("const c = 1\nmodule m(b: Block, n: str = c) { annotate(b, n, 1) }", [("E0244", "c")]),
        ("const c = true\nmodule m(b: Block) { maybe(c) x { unroll(b.loops[0]) } }", [("E0242", "c")]),
        ("module m(b: Block) { split(b.loops[0], [_, missing]) }", [("E0220", "missing")]),
    ],
)
def test_what_is_wrong(text: str, found: list[tuple[str, str]]) -> None:
    assert codes(text) == found


def files(folder: Path, **texts: str) -> CheckedFile:
    for name, text in texts.items():
        (folder / f"{name}.tsched").write_text(text)
    source = Source("main.tsched", texts["main"])
    return load_file(source, Resolver(folder / "main.tsched"))


def test_a_used_module_has_the_constants_of_its_own_file(tmp_path: Path) -> None:
    main = f"use lib\nconst wide = 2\n{COMPUTE}"
    checked = files(tmp_path, main=main, lib=f"const wide = 8\n{CUT}")
    assert checked.diagnostics == ()
    assert "split(i, [_, 8])" in task_space(checked, "t", Target()).sample(rng(0)).text


def test_another_file_has_a_constant_that_it_asks_for_by_name(tmp_path: Path) -> None:
    text = f"schedule s for scale {{ split(Y.loops[0], [_, wide]) }}\n{COMPUTE}"
    lib = "/// As wide as it gets.\nconst wide = 8\n"
    named = files(tmp_path, main="use lib.{wide}\n" + text, lib=lib)
    assert named.diagnostics == ()
    assert "split(i, [_, 8])" in task_space(named, "t", Target()).sample(rng(0)).text
    whole = files(tmp_path, main="use lib\n" + text, lib=lib)
    assert [d.code for d in whole.diagnostics] == ["E0220"]


def test_a_use_of_all_of_a_file_takes_no_name_away(tmp_path: Path) -> None:
    main = f"use lib\nmodule mine(b: Block, wide: int = 2) {{ split(b.loops[0], [_, wide]) }}\n{COMPUTE}"
    assert files(tmp_path, main=main, lib=f"const wide = 8\n{CUT}").diagnostics == ()


def test_an_editor_is_told_where_a_constant_is_defined() -> None:
    text = f"const wide = 8\n{CUT}{COMPUTE}"
    checked = load_file(Source("t.tsched", text))
    found = [r for r in references(checked) if r.span.text == "wide"]
    assert [r.span.start for r in found] == [text.index("wide"), text.rindex("wide")]
    for r in found:
        assert isinstance(r.definition, Written)
        assert [place.start for place in r.definition.spans] == [text.index("wide")]

"""A refused step shows the program as it stood, the place in it, and the steps before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorc_dsl.base.diagnostic import render
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.faces.report.terminal import paint
from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.ir.program import For, Program
from tensorc_dsl.schedule.step import ScheduleRefusal, refusal, refusal_diagnostic
from tests import programs


@refusal("E0399", "cannot `{what}`", help="do not {what}")
def NO(*focus: str, what: str) -> None: ...


SOURCE = Source("a.tsched", "schedule s for matmul {\n    break(k)\n}\n")


def refused(program: Program, *focus: str) -> ScheduleRefusal:
    found = NO(program, *focus, what="break")
    found.span = Span(SOURCE, 28, 36)
    return found


def test_the_place_is_marked() -> None:
    found = refused(programs.matmul(4, 5, 6), "k")
    found.steps = ("let a = 1", "let b = 2", "let c = 3", "let d = 4")
    text = render(refusal_diagnostic(found))
    head, _, rest = text.partition(" = the program at this point:")
    assert head == ("error[E0399]: cannot `break`\n --> a.tsched:2:5\n  |\n2 |     break(k)\n  |     ^^^^^^^^\n ")
    (marked,) = [line for line in rest.split("\n") if "<- this" in line]
    assert marked.endswith("{        <- this loop")
    assert "k in 6" in marked
    assert rest.split("= trace:")[1] == (
        "\n        … 1 step before\n        let b = 2\n        let c = 3\n        let d = 4\n  = help: do not break"
    )


def test_of_a_long_program_only_the_place_is_shown() -> None:
    program = programs.matmul(4, 5, 6)
    loops = tuple(For(f"x{n}", extent_of(program), program.body) for n in range(12))
    text = render(refusal_diagnostic(refused(replace(program, body=loops), "x7")))
    assert text.count("<- this loop") == 1
    assert "…" in text
    assert "x2 in" not in text


def extent_of(program: Program) -> Expr:
    (loop, *_) = program.body
    assert isinstance(loop, For)
    return loop.extent


@pytest.mark.parametrize("focus", [(), ("nowhere",)])
def test_without_a_place_the_whole_program_is_shown(focus: tuple[str, ...]) -> None:
    text = render(refusal_diagnostic(refused(programs.matmul(4, 5, 6), *focus)))
    assert "<- this" not in text
    assert "block C" in text


def test_colours_change_no_text() -> None:
    diagnostic = refusal_diagnostic(refused(programs.matmul(4, 5, 6), "k"))
    painted = paint(diagnostic)
    assert painted.startswith("\x1b[1;31merror[E0399]\x1b[0m")
    plain = "".join(part.partition("m")[2] if n else part for n, part in enumerate(painted.split("\x1b[")))
    assert plain == render(diagnostic)

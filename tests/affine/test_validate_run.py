"""Refutations are confirmed by a run, and right schedules of reads through data are not called wrong."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.base.diagnostic import render
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.equivalence import validate as validate_run
from tensorc_dsl.proof.equivalence.validate import Invalid, Unproved, Valid, validate
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitives.compute_inline import compute_inline
from tensorc_dsl.schedule.step import BlockRef
from tests.compute.texts import build

GATHERS = ("clamp(p[{0}], 0, 1)", "clamp(q[{0}], 0, 1)", "{0} / 2", "0", "clamp(p[clamp(q[{0}], 0, 3)], 0, 1)")


def gathered(a: tuple[str, str], first: tuple[str, str], second: tuple[str, str]) -> Program:
    """A table of rows and columns that data or loops choose, read twice in the same ways."""
    (i, j), (k, m), (n, o) = a, first, second
    return build(f"""compute g(X: f32[2, 2], p: i32[4], q: i32[4]) -> Y: f32[4, 4] {{
        let A[h in 2, w in 2] = X[{i.format("h")}, {j.format("w")}]
        Y[h in 4, w in 4] = A[{k.format("h")}, {m.format("w")}] + A[{n.format("w")}, {o.format("h")}]
    }}""")


@pytest.mark.corpus
@pytest.mark.parametrize("rows", GATHERS)
@pytest.mark.parametrize("columns", GATHERS)
def test_an_inlined_gather_is_proved(rows: str, columns: str) -> None:
    for k, first in enumerate(GATHERS):
        p = gathered((rows, columns), (first, GATHERS[k - 1]), (GATHERS[k - 2], GATHERS[k - 3]))
        assert validate(p, compute_inline(p, BlockRef("A")).program) == Valid(), first


@pytest.mark.parametrize("wrong", [("1), vw", "1), 1 - vw"), ("index(p[vh])", "index(q[vh])"), ("+ X[", "- X[")])
def test_a_wrong_gather_is_refuted_with_inputs(wrong: tuple[str, str]) -> None:
    right = parsed("""
program g(X: f32[2, 2], p: i32[4], q: i32[4], Y: f32[4, 2]) {
    for h in 4, w in 2 { block Y { spatial vh in 4 = h; spatial vw in 2 = w
        Y[vh, vw] = X[min(max(index(p[vh]), 0), 1), vw] + X[min(max(index(q[vh]), 0), 1), vw] } }
}""")
    text = format_program(right)
    assert wrong[0] in text
    other = parsed(text.replace(*wrong, 1))
    report = validate(right, other)
    assert isinstance(report, Invalid), report
    assert any((interpret(right, report.inputs)[n] != v).any() for n, v in interpret(other, report.inputs).items())
    assert "by the original, and" in render(report.diagnostic)
    assert "= inputs: X = [[" in render(report.diagnostic)


@pytest.mark.parametrize(("last", "wrong"), [("A[v] * 2.0", False), ("A[v] * 2.0 + min(B[v], 0.0) * 0.0", True)])
def test_a_read_of_what_nothing_has_written_refutes_where_a_result_depends_on_it(last: str, wrong: bool) -> None:
    """The sums of equal terms are two expressions for integer sets, so that only a run can tell."""
    a = parsed("program p(A: f32[4], B: f32[4]) { for i in 4 { block B { spatial v in 4 = i; B[v] = A[v] + A[v] } } }")
    dead = "for j in 4 { block B0 { spatial v in 4 = j; B[v] = B[v] + A[v] } }; " if not wrong else ""
    block = f"block B {{ spatial v in 4 = i; B[v] = {last} }}"
    b = parsed(f"program p(A: f32[4], B: f32[4]) {{ {dead}for i in 4 {{ {block} }} }}")
    report = validate(a, b)
    if wrong:
        assert isinstance(report, Invalid) and "read before it is written" in render(report.diagnostic)
    else:
        assert isinstance(report, Unproved), report
        assert "no inputs that were tried show what was found" in render(report.diagnostic)


def test_what_no_inputs_show_is_not_called_wrong() -> None:
    # Equal, though integer sets have two expressions.
    a = parsed("program p(A: f32[4], B: f32[4]) { for i in 4 { block B { spatial v in 4 = i; B[v] = A[v] + A[v] } } }")
    b = parsed("program p(A: f32[4], B: f32[4]) { for i in 4 { block B { spatial v in 4 = i; B[v] = A[v] * 2.0 } } }")
    report = validate(a, b)
    assert isinstance(report, Unproved)
    text = render(report.diagnostic)
    assert "E0807" in text
    assert "no inputs that were tried show what was found" in text
    assert "found: E0805: the programs compute different values" in text


def test_what_is_too_long_to_run_is_not_called_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    a = parsed("program p(A: f32[4], B: f32[4]) { for i in 4 { block B { spatial v in 4 = i; B[v] = A[v] } } }")
    b = parsed("program p(A: f32[4], B: f32[4]) { for i in 4 { block B { spatial v in 4 = i; B[v] = A[3 - v] } } }")
    assert isinstance(validate(a, b), Invalid)
    monkeypatch.setattr(validate_run, "STEPS", 10)
    report = validate(a, b)
    assert isinstance(report, Unproved)
    assert "too long for a run" in report.diagnostic.message


def test_an_open_size_is_shown_with_a_number() -> None:
    text = (
        "program p(A: f32[M], B: f32[M]) where M in 3..900 { for i in M { block B { spatial v in M = i; B[v] = %s } } }"
    )
    report = validate(parsed(text % "A[v]"), parsed(text % "A[M - 1 - v]"))
    assert isinstance(report, Invalid)
    assert any(n.kind == "inputs" and n.text.startswith("M = ") for n in report.diagnostic.notes)


RACES = {
    "an update is lost": "C[0] = C[0] + A[v]",
    "another iteration writes in between": "S[0] = A[v]; C[v] = S[0]",
}


@pytest.mark.parametrize("kind", ["parallel", "vectorized"])
@pytest.mark.parametrize("body", RACES.values(), ids=list(RACES))
def test_iterations_in_turns_show_a_race(kind: str, body: str) -> None:
    blocks = "".join(f"block b{k} {{ spatial v in 6 = i; {s} }}\n" for k, s in enumerate(body.split("; ")))
    start = "for j in 6 { block Z { spatial v in 6 = j; C[v] = 0.0 } }"
    text = f"program p(A: f32[6], C: f32[6]) {{ buffer S: f32[1]\n{start}\nKIND for i in 6 {{ {blocks}}} }}"
    plain, racing = parsed(text.replace("KIND ", "")), parsed(text.replace("KIND", kind))
    x = {"A": np.arange(1, 7, dtype=np.float32)}
    want = interpret(plain, x)["C"]
    assert (interpret(plain, x, "together")["C"] == want).all()
    assert all((interpret(racing, x, order)["C"] == want).all() for order in ("forward", "reversed", "shuffled"))
    assert (interpret(racing, x, "together")["C"] != want).any()
    report = validate(plain, racing)
    assert isinstance(report, Invalid)
    assert report.diagnostic.code == "E0802"
    assert "at once" in render(report.diagnostic)


def test_private_buffers_stay_private_when_iterations_take_turns() -> None:
    p = parsed("""
program p(A: f32[6], C: f32[6]) {
    buffer S: f32[1] in "local"
    parallel for i in 6 {
        block S { spatial v in 6 = i; S[0] = A[v] }
        block C { spatial v in 6 = i; C[v] = S[0] }
    }
}""")
    x = {"A": np.arange(1, 7, dtype=np.float32)}
    assert interpret(p, x, "together")["C"].tolist() == x["A"].tolist()


def parsed(text: str) -> Program:
    return parse_program(Source("p.tsched", text))


MAP = """program p(X: {0}[9], Z: {0}[9], Y: {1}[9]) {{
    for i in 9 {{ block Y {{ spatial v in 9 = i; Y[v] = {2} }} }}
}}"""

FALSE_LAWS = {
    "a quotient of NaN": ("f32", "f32", "X[v] / X[v]", "1.0"),
    "NaN is not itself": ("f32", "bool", "X[v] == X[v]", "true"),
    "NaN has no order": ("f32", "bool", "not X[v] < Z[v]", "X[v] >= Z[v]"),
    "a difference of infinities": ("f64", "f64", "X[v] - X[v]", "0.0"),
    "0 times infinity": ("bf16", "bf16", "X[v] * 0.0", "0.0"),
    "a sign of zero": ("f32", "f32", "1.0 / (X[v] + 0.0)", "1.0 / X[v]"),
    "a product beyond f64": ("f64", "f64", "X[v] * 2.0 / 2.0", "X[v]"),
    "i8 wraps": ("i8", "i8", "X[v] * 2 / 2", "X[v]"),
    "u64 wraps": ("u64", "bool", "X[v] + 1 > X[v]", "true"),
    "the least i32 has no opposite": ("i32", "bool", "abs(X[v]) >= 0", "true"),
    "a quotient of 0": ("i32", "i32", "X[v] / X[v]", "1"),
}


@pytest.mark.parametrize("law", FALSE_LAWS.values(), ids=list(FALSE_LAWS))
def test_special_values_refute_laws_of_real_numbers(law: tuple[str, str, str, str]) -> None:
    given, made, one, other = law
    a, b = (parsed(MAP.format(given, made, e)) for e in (one, other))
    report = validate(a, b)
    assert isinstance(report, Invalid), report
    x, y = (interpret(p, report.inputs)["Y"] for p in (a, b))
    assert any(m != n and not (m != m and n != n) for m, n in zip(x, y, strict=True))


SUMS = """program p(X: f64[6], Y: f64[1], Z: f64[1]) {{
    for i in 6 {{ block Y {{ spatial v in 1 = 0; reduce k in 6 = i; init {{ Y[v] = 0.0 }}; Y[v] = Y[v] + {0} }} }}
    for i in 6 {{ block Z {{ spatial v in 1 = 0; reduce k in 6 = i; init {{ Z[v] = -inf }}; Z[v] = max(Z[v], {0}) }} }}
}}"""


def test_special_values_do_not_refute_another_order() -> None:
    # Equal, though integer sets have two expressions: no sum of these may overflow in one order alone.
    a, b = (parsed(SUMS.format(e)) for e in ("(X[k] + X[5 - k])", "(X[(k + 4) % 6] + X[(7 - k) % 6])"))
    assert not isinstance(validate(a, b), Invalid)


def test_the_help_is_about_what_is_there() -> None:
    a, b = (parsed(MAP.format("f32", "f32", e)) for e in ("X[v] + X[v]", "X[v] * 2.0"))
    report = validate(a, b)
    assert isinstance(report, Unproved)
    assert "= help: both may still be equal" in render(report.diagnostic)


@pytest.mark.parametrize(("extent", "report"), [("5 - 1", Valid), ("4 - 1", Invalid)])
def test_sums_of_numbers_are_extents_that_a_run_knows(extent: str, report: type[Valid | Invalid]) -> None:
    text = (
        "program p(A: f32[4], B: f32[4]) { buffer T: f32[EXTENT]\n"
        "for i in 5 - 1 { block T { spatial v in 5 - 1 = i; T[v] = A[v] } }\n"
        "for i_1 in 4 { block B { spatial v in 4 = i_1; B[v] = T[v] } } }"
    )
    plain, other = parsed(text.replace("EXTENT", "4")), parsed(text.replace("EXTENT", extent))
    assert isinstance(validate(plain, other), report)
    if report is Valid:
        x = {"A": np.arange(4, dtype=np.float32)}
        assert (interpret(other, x)["B"] == x["A"]).all()


@pytest.mark.parametrize("before", [1, 2, 5, 6])
def test_no_name_of_the_text_that_is_interpreted_is_a_type(before: int) -> None:
    """Iterations in turns are functions of that text, wherever in it they begin."""
    stores = "; ".join(["T[v] = 1.0"] * before)
    text = f"""program p(A: f32[2], B: f32[2]) {{ buffer T: f32[2]
        for j in 2 {{ block T0 {{ spatial v in 2 = j; {stores} }} }}
        parallel for i in 2 {{ parallel for k in 1 {{
            block B {{ spatial v in 2 = i; B[v] = f32(f16(A[v])) + f32(A[v]) }} }} }} }}"""
    x = {"A": np.array([0.5, 2.0], np.float32)}
    assert (interpret(parsed(text), x, "together")["B"] == 2 * x["A"]).all()


def test_the_last_write_before_a_read_is_found_behind_redundant_constraints() -> None:
    """isl fails at the order of these writes with the constraints that others imply."""
    p = parsed(
        """program p(W: i32[9, 5], Y: i32[7]) {
            buffer S: i32[5]
            buffer T: i32[7]
            for i9 in 7 { block B10 { spatial v in 7 = i9; T[v] = i32(v) } }
            for i1 in 5, i2 in 3 {
                for i3 in 5 {
                    block B2 {
                        spatial vi1 in 5 = i1; spatial vi2 in 3 = i2; spatial vi3 in 5 = i3
                        S[vi3] = W[vi3 * 2, vi3 / 2] + S[vi3 % 2]
                    }
                }
                for i4 in 5 {
                    block B3 {
                        spatial vi1 in 5 = i1; spatial vi2 in 3 = i2; spatial vi4 in 5 = i4
                        where i4 <= i2
                        S[vi2] = T[vi1 + vi2] - S[vi1]
                    }
                }
            }
            for i5 in 3, i8_0 in 2, i8_1 in 1, i8_2 in 2 {
                block B9 { spatial v5 in 3 = i5; spatial v8 in 4 = i8_0 * 2 + i8_2; T[v8] = T[v8] - S[v5 / 2] }
            }
            for y in 7 { block Y { spatial v in 7 = y; Y[v] = T[v] } }
        }"""
    )
    assert not isinstance(validate(p, p), Valid)  # S is read before it is written

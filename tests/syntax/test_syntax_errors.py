"""What syntax errors say, how many are told of, and what is read beside them."""

from __future__ import annotations

import re

import pytest

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.elaborate.names import FUNCTIONS
from tensorc_dsl.syntax import parse as parse_module
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.errors import CHARACTERS
from tensorc_dsl.syntax.format import expression_text
from tensorc_dsl.syntax.layout import MAX_DEPTH
from tensorc_dsl.syntax.parse import MAX_FINDINGS, parse
from tests.syntax.trees import items, parse_expr


def findings(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(TschedError) as caught:
        items(text)
    return caught.value.diagnostics


@pytest.mark.parametrize(
    ("text", "code", "says", "at"),
    [
        ("module m(b) { let x = }", "E0101", "expected an expression; found `}`", "}"),
        ("module m(b) { f(a b) }", "E0101", "expected `)`, `,`, `=` or an operator; found `b`", "b"),
        ("module m(b) {\n x ~ f()\n}", "E0101", "expected `}`, a new line or an operator; found `~`", "~"),
        ("module m(b) { let let = 3 }", "E0101", "expected a name", "let"),
        ("module m(b) { for x in xs if a if b else c { x } }", "E0101", "found `if`", "if"),
        ("module m(b) {\n for x in xs\n if a { x }\n}", "E0101", "expected `if`, `or` or `{`; found the end", "\n"),
        ("module m(b) { for x in xs if { x } }", "E0101", "expected", "}"),
        ("module m(b) { either x: a { a } or { b } }", "E0101", "expected a name", "{"),
        ("module m(b) { either x: a { a } or b {} or a {} }", "E0119", "`a` is the name of another branch too", "a {}"),
        ("module m(b) { maybe(70) { a } }", "E0101", "expected a name", "{"),
        ("module m(b) { either { a } }", "E0101", "expected `or`; found `}`", "}"),
        ("compute c(A: f32[M]) { }", "E0101", "expected `->`; found `{`", "{"),
        ("compute c(A: f32[M]) -> B: f32[M] { B[i] += 1 }", "E0101", "found `+=`", "+="),
        ("reducer f(a, b) = a", "E0101", "expected `identity`; found the end", "a"),
        ("compute c(A: f32[M]) -> B: f32[M] { B[i] = reduce sum[k] A[i] }", "E0101", "expected a name", "sum"),
        ("compute c(A: f32[M]) -> B: f32[M] { B[i] = f[k] A[i] }", "E0101", "found `A`", "A"),
        ("task t = c(M=1", "E0101", "found the end of the file", "1"),
        ("hello", "E0101", "expected an item (`compute`", "hello"),
        ("use std.", "E0101", "found the end of the file", "."),
        ("module m(b) { a $ b }", "E0102", "`$` has no meaning here", "$"),
        ("module m(b) { a \0 }", "E0102", "the character U+0000 has no meaning here", "\0"),
        ("module é(b) { }", "E0102", "`é` has no meaning here", "é"),
        ("module m(b) }", "E0103", "this `}` closes nothing", "}"),
        ("module m(b) { f(a } }", "E0103", "expected `)`; found `}`", "}"),
        ('module m(b) { f("a) }', "E0104", "this string does not end on its line", '"a) }'),
        ('module m(b) { f("a\\q") }', "E0105", "`\\q` is no character", "\\q"),
        ('module m(b) { f("\\u{110000}") }', "E0105", "is no character", "\\u{110000}"),
        (f"module m(b) {{ {2**256} }}", "E0106", "more than 256 bits", f"{2**256}"),
        (f"module m(b) {{ {'9' * 10_000} }}", "E0106", "more than 256 bits", "9" * 10_000),
        ("module m(b) { 1e999 }", "E0106", "larger than any f64", "1e999"),
        ("module m(b) { f(a=1, b) }", "E0108", "follows one with a name", "b"),
        ("module m(b) { (a, b) }", "E0109", "parentheses around several values", "(a, b)"),
        ("module m(b) { let x ~ 3 }", "E0110", "not a distribution", "3"),
        ("space s for llvm { a.b }", "E0111", "a rule of a space", "a.b"),
        ("task t = c()\n/// nothing follows\n", "E0112", "describes no item", "///"),
        ("/// a use has no description\nuse std", "E0112", "describes no item", "///"),
        ("module m(b) { b.loops[::-1] }", "E0117", "no step", "b.loops[::-1]"),
        ("module m(b) { b.loops[1:2, 3] }", "E0101", "expected `]`; found `,`", ","),
        ("compute c(A: f32[M, N]) -> B: f32[M] { B[i] = A[i, :] }", "E0101", "expected an expression or `]`", ":"),
        ("module m(b) { (i, 1) -> (i) }", "E0113", "a parameter of an index map is a name", "1"),
        ("module m(b) { (..., i) -> (i) }", "E0118", "`...` is missing on this side", "(i)"),
        ("module m(b) { (i) -> (i, ...) }", "E0118", "`...` is missing on this side", "(i)"),
        ("module m(b) { (..., i, ...) -> (..., i) }", "E0118", "`...` stands twice", "..."),
        ("module m(b) { (..., i) -> (..., i, ...) }", "E0118", "`...` stands twice", "..."),
        ("module m(b) { (... + 1, i) -> (..., i) }", "E0101", "expected `)` or `,`; found `+`", "+"),
        ("module m(b) { f(...) }", "E0101", "expected", "..."),
        ("module m(b) { [...] }", "E0101", "expected", "..."),
        ("module m(b) { (...) }", "E0109", "parentheses around several values", "(...)"),
        ("module m(b) { (..., i) }", "E0109", "parentheses around several values", "(..., i)"),
        ("program p() { block b { init { A[0] = 1 }; init { A[0] = 2 } } }", "E0114", "one `init`", "init { A[0] = 2 }"),
        ("program p() { for i in 4 { block b { for j in 4 {} } } }", "E0115", "a loop cannot stand in a block", "for"),
        ("compute c(A: f32[]) -> B: f32 { B = A }", "E0116", "nothing in these brackets", "f32[]"),
        ("compute c(A: f32) -> B: f32 { let H [ ] = A }", "E0116", "nothing in these brackets", "H [ ]"),
        ("compute c(A: f32) -> B: f32 { B = A[] }", "E0116", "nothing in these brackets", "A[]"),
        ("program p(A: f32) { block b { A[] = 1.0 } }", "E0116", "nothing in these brackets", "A[]"),
        ("intrinsic i desc (A: f32) { A[] += 1.0 }", "E0116", "nothing in these brackets", "A[]"),
    ],
)  # fmt: skip
def test_syntax_errors(text: str, code: str, says: str, at: str) -> None:
    (d,) = findings(text)
    assert d.code == code
    assert says in d.message
    assert d.span is not None
    assert d.span.text == at


C = "compute c(A: i32[M]) -> B: i32[M] {{ B[i] = {} }}"


@pytest.mark.parametrize(
    ("text", "help"),
    [
        (C.format("A[i] >> 2"), "write `shift_right(x, n)`, or `x / 4`; a quotient of integers is floored"),
        (C.format("A[i] << 2"), "write `shift_left(x, n)`, or `x * 4`; a quotient of integers is floored"),
        (C.format("A[i] & 3"), "write `and`; in a compute, `bit_and(x, y)` is of bits"),
        (C.format("A[i] | 3"), "write `or`; in a compute, `bit_or(x, y)` is of bits"),
        (C.format("~A[i]"), "in a compute, `bit_not(x)` is of bits"),
        (C.format("A[i] − 3"), "write `-`"),
        (C.format("$A[i]"), "leave it out"),
        (C.format("where(A[i] > 0, 1, 0)"), "a choice is `a if condition else b`, or `select(condition, a, b)`"),
        (C.format("sum A[i]"), "say over which indices: `sum[k] …`"),
        (C.format("A[i] // 2"), "`//` begins a comment; a quotient is `/`, which floors on integers"),
        (
            "module m(l) { split(l, [_, n // 2])\n}",
            "`//` begins a comment; a quotient is `/`, which floors on integers",
        ),
        ("compue f(A: f32[M]) -> B: f32[M] { B[i] = A[i] }", "did you mean `compute`?"),
        ("def f(A): return A", "a `compute` says what is computed, a `schedule` or a `module` how"),
        ("from std.cpu import tiling", "names of another file are brought by `use`: `use std.cpu.{name}`"),
        (
            "@T.prim_func",
            "an item begins with its kind: `compute f(A: f32[N]) -> B: f32[N] { … }`, `task small = f(N=64)`",
        ),
        ("task t = f(N=4);", "an item ends with its line: leave out the `;`"),
        ("task t = f(4)", "a task binds sizes by name: `N=4`"),
        ("task t = f(M=2, 4)", "a task binds sizes by name: `N=4`"),
        ("task t = f(N=4) with std.cpu.cpu", "bring it by `use std.cpu.{cpu}`, and write `with cpu`"),
        ("compute f(A: f32[M][K]) -> B: f32[M] { B[i] = 1 }", "all dimensions stand in one pair of brackets: `[M, K]`"),
        ("compute f(A: f32[M]) -> B: f32[M]: B[i] = A[i]", "a body stands in braces: `{ … }`"),
        (
            "compute f(A: f32[M]) -> B: f32[M] { for i in M { B[i] = A[i] } }",
            "no loops in a compute: `B[i] = …` holds for every `i`, `B[i in 8] = …` for eight, `sum[k] …` adds up all",
        ),
        ("compute f(A: f32[M]) -> B: f32[M] { return A[i] }", "a compute assigns to its outputs: `C[i, j] = …`"),
        ("module m(b) { lett x = 3 }", "did you mean `let`?"),
        ("module m(b) { while x { f(b) } }", "there is no `while` in this language"),
        ("module m(b) { for i in b.loops: f(i) }", "a body stands in braces: `{ … }`"),
        (C.format("A[i] /* c */"), "comments begin with `//`"),
        ("-- c", "comments begin with `//`"),
        (C.format("(float)A[i]"), "a conversion is a call: `f32(x)`"),
        (C.format("A[i] as f64"), "a conversion is a call: `f32(x)`"),
        (C.format("2A[i]"), "a product is `2 * A`"),
        (C.format(".5 * A[i]"), "a number has digits on both sides of its point: `0.5`"),
        (C.format("1. * A[i]"), "a number has digits on both sides of its point: `1.0`"),
        (
            C.format("1e-3f * A[i]"),
            "a number has no suffix: it is of the type of its neighbour, or of a conversion, `f32(1)`",
        ),
        (C.format("0x1F * A[i]"), "numbers are decimal"),
        (C.format("exp A[i]"), "a function is a call, `exp(…)`; a product has its `*`; a sum is `sum[k] …`"),
        (C.format("A[i] if i > 0"), "a choice has two values: `a if condition else b`"),
        (C.format("sum[k] A[k] if k < i"), "a choice has two values: `a if condition else b`"),
        (
            C.format("sum[k in 0..M] A[k]"),
            "an index counts from 0: `i in N`; that from 1 is `i in N - 1`, and what it reads is at `i + 1`",
        ),
        (
            C.format("A[i] where i > 0"),
            "an element has a value everywhere: `… if condition else 0`; what sizes keep to stands before the `{`",
        ),
        (
            C.format("scan[i] A[i]"),
            "a reducer of your own is used as `reduce name[k] …`, a scan as `scan[t] init … step …`",
        ),
        ("compute f(A: f32[M]) -> B: f32[M] { B(i) = A[i] }", "subscripts stand in brackets: `B[i] = …`"),
        ("compute f(A: f32[M]) -> B: f32[M] { let t: f32[M] = A }", "a name has the type of its value: `let t = …`"),
        (
            "compute f(A: f32[M]) -> B: f32[M] { assume A sorted }",
            "what inputs contain stands before the `{`: `-> B: f32[N] assume A sorted { … }`",
        ),
        (
            "compute f(A: f32[M]) -> B: f32[M] { const c = 3 }",
            "a `const` stands outside of computes; in one, a name begins with `let`",
        ),
        ("compute f(A: f32(M)) -> B: f32[M] { B[i] = 1 }", "dimensions stand in brackets: `f32[N]`"),
        ("compute f(f32 A[M]) -> B: f32[M] { B[i] = 1 }", "a tensor has a name and a type: `C: f32[M]`"),
        (
            "compute f[M](A: f32[M]) -> B: f32[M] { B[i] = 1 }",
            "dimensions are named by the shapes that have them: `f(A: f32[N]) -> B: f32[N]`",
        ),
        ("compute f(A: f32[M]): B: f32[M] { B[i] = 1 }", "a compute names what it makes: `-> C: f32[M, N] { … }`"),
        ("compute f(A: f32[M]) -> B: f32[M] = A", "a body stands in braces: `{ … }`"),
        ("compute if(A: f32[M]) -> B: f32[M] { B[i] = 1 }", "`if` is a word of the language and cannot be a name"),
        ("const x: int = 3", "a name has the type of its value: `const x = …`"),
        ("task f(N=3)", "a task has a name and a compute: `task small = f(N=64)`"),
        ("module m(b) { i, j = b.loops }", "several names stand in brackets: `let [a, b] = …`"),
        ("module m(b) { let (i, j) = b.loops }", "several names stand in brackets: `let [a, b] = …`"),
        ("module m(b) { maybe { f(b) } }", "a choice has a name, that of its draw: `maybe packed { … }`"),
        ("module m(b) { let [i, j] := b.loops }", "write `=` after `]`"),
    ],
)  # fmt: skip
def test_slips_of_other_languages_have_a_repair(text: str, help: str) -> None:
    assert [n.text for d in findings(text) for n in d.notes if n.kind == "help"][-1:] == [help]


def test_repairs_name_functions_that_there_are() -> None:
    said = " ".join(CHARACTERS.values())
    called = set(re.findall(r"`(\w+)\(", said))
    assert called and called <= set(FUNCTIONS)


def test_a_text_of_zeros_is_no_text_in_utf_8() -> None:
    (d,) = findings("c\0o\0m\0")
    assert d.notes[-1].text == "the file is binary, or text in UTF-16: save it as UTF-8"


def test_every_item_is_reported() -> None:
    text = "task a = b(\n\n/// fine\ntask c = d()\n\nmodule m(b) {\n    let x = \n    y\n\nspace s for llvm { 3 }\n"
    assert [(d.code, d.span.text if d.span else "") for d in findings(text)] == [
        ("E0101", "("),
        ("E0101", "y"),
        ("E0111", "3"),
    ]


def test_an_if_that_no_else_follows_is_looked_for_once() -> None:
    """Each `if` once: a search from every one to the end of its braces would take hours here."""
    (d,) = findings("module m(b) {\n" + "a\nif b\n" * 100_000 + "}\n")
    assert (d.code, d.span and d.span.text) == ("E0101", "\n")


def test_descriptions_without_items_are_looked_at_once() -> None:
    """Each line once: a search from every line to the last one would take hours here."""
    (d,) = findings("/// lost\n\n" * 200_000 + "task a = b(\n")
    assert (d.code, d.span and d.span.text) == ("E0101", "(")
    (d,) = findings("/// lost\n\n" * 200_000 + ")\n")
    assert d.span is not None
    assert d.span.text == ")"


def test_so_many_are_reported() -> None:
    found = findings("task a = (\n" * (MAX_FINDINGS + 1))
    assert len(found) == MAX_FINDINGS
    assert "there may be more below" in found[-1].notes[-1].text


@pytest.mark.parametrize(
    "deep",
    [
        "[" * 300 + "]" * 300,
        "+".join(["a"] * 5000),
        "-" * 5000 + "a",
        "not " * 5000 + "a",
        "a" + ".b" * 5000,
        "a" + "()" * 5000,
        "a" + "[0]" * 5000,
        "a if b else " * 2000 + "c",
        "sum[k] " * 2000 + "c",
        "f(" * 20_000 + ")" * 20_000,
        "for x in y { " * 2000 + "}" * 2000,
        "(" * 300 + "a" + ")" * 300,
    ],
)
def test_what_is_too_deep_is_refused(deep: str) -> None:
    (d,) = findings(f"module m(b) {{ let x = {deep} }}")
    assert d.code == "E0107"


def test_deep_but_not_too_deep_is_fine() -> None:
    deep = "[" * (MAX_DEPTH - 10) + "]" * (MAX_DEPTH - 10)
    assert expression_text(parse_expr(deep)) == deep


BROKEN = """\
/// Cut.
module a(b: Block) { split(b.loops[0], [_, 4]) }
module c(b: Block) { let = 3 }

compute f(A: f32[M]) -> B: f32[M] { B[i] = A[i] ^ 2 }
/// Small.
task t = f(M=1)
task u = f(M=
"""


def test_the_good_items_of_a_broken_file_are_there() -> None:
    source = Source("broken.tsched", BROKEN)
    parsed = parse_module.parse_items(source)
    found = [(i.name, i.doc, i.span.text[:6]) for i in parsed.file.items if not isinstance(i, tree.UseDecl)]
    assert found == [("a", "Cut.", "module"), ("t", "Small.", "task t")]
    assert [(d.code, d.span and d.span.text) for d in parsed.diagnostics] == [
        ("E0101", "="), ("E0102", "^"), ("E0101", "="),
    ]  # fmt: skip
    with pytest.raises(TschedError) as caught:
        parse(source)
    assert caught.value.diagnostics == parsed.diagnostics

"""Kinds: their inference for values, and the messages for kinds that do not fit."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.kinds import ANY, BLOCK, BUFFER, FLOAT, INT, LIST, LOOP, STR, ListOf, fits, join, show, show_all
from tensorc_dsl.check.scope import load_file

MODULES = """
module typed(b: Block, n: int = 1, names: list = [], f: float = 1, t: Target = target) {
    annotate(b, "x", n + len(names) + f + t.cores)
}
module plain(x) { annotate(x, "x", 1) }
"""


def found(*lines: str, params: str = "b: Block, p: Program, l: Loop, x, n: int = 1") -> list[Diagnostic]:
    """What is wrong with a module of these lines; parameters that they do not use are no matter."""
    body = "\n".join(f"    {line}" for line in lines)
    checked = load_file(Source("x", f"{MODULES}module m({params}) {{\n{body}\n}}\n"))
    return [d for d in checked.diagnostics if d.code != "W0203"]


@pytest.mark.parametrize(
    ("line", "code", "place", "part"),
    [
        ("split(b, [_, 4])", "E0240", "b", "a loop for `loop`; this is a block"),
        ("split(l, 4)", "E0240", "4", "a list of ints for `factors`; this is an int"),
        ("split(l, b.loops)", "E0240", "b.loops", "this is a list of loops"),
        ('split(l, ["a"])', "E0240", '["a"]', "this is a list of strings"),
        ("unroll(b.loops)", "E0240", "b.loops", "a loop for `loop`; this is a list of loops"),
        ("reorder(l, b)", "E0240", "b", "a loop for `loops`; this is a block"),
        ("reorder(b.consumers)", "E0240", "b.consumers", "this is a list of blocks"),
        ("parallel(fuse(b))", "E0240", "b", "a loop for `loops`; this is a block"),
        ("cache_write(l)", "E0240", "l", "a block for `block`; this is a loop"),
        ("cache_write(split(l, [_, 2]))", "E0240", "split(l, [_, 2])", "this is a list of loops"),
        ("compute_at(b, 3)", "E0240", "3", "a loop or a string for `loop`; this is an int"),
        ("annotate(p, 3, 4)", "E0240", "3", "a string for `key`; this is an int"),
        ("split(l, [_, 4], partial=1)", "E0240", "1", "a bool or a string for `partial`; this is an int"),
        ("tile(l, 4)", "E0240", "4", "a loop or a list for `loops…, [sizes…]`; this is an int"),
        ("typed(b, n=\"a\")", "E0240", '"a"', "`typed` takes an int for `n`; this is a string"),
        ("typed(l)", "E0240", "l", "`typed` takes a block for `b`; this is a loop"),
        ("typed(b, 2, 3)", "E0240", "3", "`typed` takes a list for `names`; this is an int"),
        ("let d ~ sample_perfect_tile(b, 2); annotate(b, \"x\", d[0])", "E0240", "b", "a loop for `loop`"),
        ("let d ~ sample_int(4); annotate(b, \"x\", d)", "E0240", "4", "a range for `range`; this is an int"),
        ("let d ~ sample_categorical(b.loops); unroll(d)", "E0240", "b.loops", "a list of loops"),
        ("let y = len(3); annotate(b, \"x\", y)", "E0240", "3", "a list or a string for `list`"),
        ("let y = \"S\".count(3); annotate(b, \"x\", y)", "E0240", "3", "a string for `part`"),
        ("let y = b.working_set(b); annotate(b, \"x\", y)", "E0240", "b", "a loop for `loop`"),
        ("let y = target.has(3); if y { unroll(l) }", "E0240", "3", "a string for `feature`"),
        ("annotate(b, \"x\", b + 1)", "E0241", "b + 1", "`+` does not take a block and an int"),
        ("annotate(b, \"x\", b.loops * 2)", "E0241", "b.loops * 2", "a list of loops and an int"),
        ("annotate(b, \"x\", -\"a\")", "E0241", '-"a"', "an int and a string"),
        ("if l < 3 { unroll(l) }", "E0241", "l < 3", "`<` does not take a loop and an int"),
        ("let d ~ sample_int(1..\"a\"); annotate(b, \"x\", d)", "E0241", '1.."a"', "an int and a string"),
        ("if l.extent { unroll(l) }", "E0242", "l.extent", "this is an int"),
        ("for q in b.loops if q.extent { unroll(q) }", "E0242", "q.extent", "this is an int"),
        ("if any([l.extent]) { unroll(l) }", "E0240", "[l.extent]", "a list of bools for `list`"),
        ("if all(l.is_open) { unroll(l) }", "E0240", "l.is_open", "a list of bools for `list`"),
        ("if not b { unroll(l) }", "E0242", "b", "this is a block"),
        ("if b.is_output and l.extent { unroll(l) }", "E0242", "l.extent", "this is an int"),
        ("unroll(l if n else l)", "E0242", "n", "this is an int"),
        ("either(\"a\") { unroll(l) } or {}", "E0242", '"a"', "a weight is a number; this is a string"),
        ("let d ~ sample_categorical({1: \"a\"}); annotate(b, \"x\", d)", "E0242", '"a"', "this is a string"),
        ("for y in l { unroll(y) }", "E0243", "l", "`for` runs over a list; this is a loop"),
        ("for y in 1..4 { annotate(b, \"x\", y) }", "E0243", "1..4", "this is a range"),
        ("let [y, z] = l; reorder(y, z)", "E0243", "[y, z]", "only a list has parts; this is a loop"),
        ("unroll(l[0])", "E0243", "l[0]", "a loop is not indexed like this"),
        ("unroll(b.loops[\"a\"])", "E0243", 'b.loops["a"]', "a list of loops is not indexed like this"),
        ("unroll(b.loops[0, 1])", "E0243", "b.loops[0, 1]", "not indexed like this"),
        ("reorder(l[1:])", "E0243", "l[1:]", "a loop is not indexed like this"),
        ("reorder(b.loops[\"a\":])", "E0243", '"a"', "a slice goes from an int to an int; this is a string"),
        ("unroll(b.loops[:-1])", "E0240", "b.loops[:-1]", "this is a list of loops"),
        ("unroll(l if b.kinds[1:] == [] else b.loops[1:][0])", "", "", ""),
        ("unroll(b.lops[0])", "E0226", "b.lops", "a block has no `lops`"),
        ("annotate(b, \"x\", split(l, [_, 2]).extent)", "E0226", "split(l, [_, 2]).extent", "a list of loops has no"),
        ("annotate(b, \"x\", b.working_set)", "E0226", "b.working_set", "needs parentheses"),
        ("unroll(b.loops()[0])", "E0226", "b.loops", "takes no parentheses"),
        ("annotate(b, \"x\", x.nothing)", "E0226", "x.nothing", "nothing has an attribute"),
        ("annotate(b, \"x\", x.nothing(1))", "E0226", "x.nothing", "no method"),
        ("annotate(b, \"x\", l.has(\"a\"))", "E0226", "l.has", "a loop has no method `has`"),
        ("annotate(b, \"x\", fuse(b.loops).extnt)", "E0226", "fuse(b.loops).extnt", "a loop has no `extnt`"),
        ("annotate(b, \"x\", cache_write(b).extent)", "E0226", "cache_write(b).extent", "a block has no `extent`"),
        ("let y = for q in b.loops { yield q.kind }; unroll(y[0])", "E0240", "y[0]", "this is a string"),
        ("let d ~ sample_int(1..4); unroll(d)", "E0240", "d", "a loop for `loop`; this is an int"),
        ("let d ~ sample_categorical([1, 2]); unroll(d)", "E0240", "d", "a loop for `loop`; this is an int"),
        ("let d ~ sample_categorical({1: 2}); unroll(d)", "E0240", "d", "a loop for `loop`; this is an int"),
        ("let d ~ sample_permutation(b.loops); unroll(d)", "E0240", "d", "this is a list of loops"),
        ("let d ~ sample_permutation(list=b.consumers); unroll(d[0])", "E0240", "d[0]", "this is a block"),
        ("let d ~ sample_perfect_tile(l, 2); unroll(d[0])", "E0240", "d[0]", "this is an int"),
        ("unroll(max([1, 2]))", "E0240", "max([1, 2])", "this is an int"),
        ("unroll(b.kinds[:1][0])", "E0240", "b.kinds[:1][0]", "this is a string"),
        ("if b.is_output { let y = l } else { let y = b }\nunroll(y)", "", "", ""),
        ("if b.is_output { let y = 1 } else { let y = 2 }\nunroll(y)", "E0240", "y", "this is an int"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_where_it_stands(line: str, code: str, place: str, part: str) -> None:
    errors = found(line)
    if not code:
        assert errors == []
        return
    (d,) = errors
    assert d.code == code
    assert d.span is not None
    assert d.span.text == place
    assert part in d.message


@pytest.mark.parametrize(
    "line",
    [
        "reorder(l, [b.loops[0], b.loops])",
        "split(l, [_, n])",
        "split(l, [_, _])",
        "annotate(p.root, \"x\", 1)",
        "annotate(root, \"x\", target.vector_bits / 32)",
        "cache_read(b, b.consumers[0])",
        "compute_at(b, \"inline\")",
        "let place ~ sample_compute_location(b); compute_at(b, place)",
        "let order ~ sample_permutation([l, b.loops[0]]); reorder(order); parallel(order[0])",
        "unroll(x)",
        "unroll(x.loops[0])",
        "plain(b); plain(p); plain(l)",
        "typed(b, 2, [\"a\"], 1.5, target)",
        "let xs = b.loops + [l]; unroll(xs[-1])",
        "let xs = [l, b]; unroll(xs[0])",
        "if \"SR\".contains(l.kind) and not b.has_reuse { unroll(l) }",
        "if 1 < l.extent <= 8 and l.kind < \"T\" { unroll(l) }",
        "let tiles = for q in b.loops { yield split(q, [_, 2]) }; reorder(interleave(\"SS\", tiles))",
        "let y = \"SSR\".rfind(\"S\", before=\"R\"); unroll(b.loops[y])",
        "let [y, _] = split(l, [_, 2]); unroll(y)",
        "let w = cache_write(b, scope=\"local\"); reverse_compute_at(w, l)",
        "transform_layout(b, (i, j) -> (j, i + n))",
        "for q in b.loops if q.is_serial and not q.is_open { unroll(q) }",
        "if any(for q in b.loops { yield q.is_open }) or not all([true, l.is_open]) { unroll(l) }",
    ],
)  # fmt: skip
def test_what_fits_is_not_complained_about(line: str) -> None:
    assert found(line) == []


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("module q(b: Block, n: int = \"a\") { annotate(b, \"x\", n) }", ["E0244"]),
        ("module q(b: Block, n: list = b.loops) { reorder(n) }", []),
        ("module q(b: Block, n: float = 3) { annotate(b, \"x\", n) }", []),
        ("module q(b: Block, n = 3) { unroll(n) }", ["E0240"]),
        ("module q(b: Block, n) { unroll(n) }", []),
        ("module q(b: Block, n: int) {}", ["W0203"]),
        ("module q(b: Block, _n: int) {}", []),
        ("module q(n: int, b: Block) { annotate(b, \"x\", 1) }", ["W0203"]),
        ("module q(b: Block) when len(b.loops) { unroll(b.loops[0]) }", ["E0242"]),
        ("module q(b: Block) { let b = 1; annotate(root, \"x\", b) }", ["W0204"]),
        ("module q(b: Block) { let root = b; unroll(root.loops[0]) }", ["W0204"]),
        ("module q(b: Block) { for b in b.loops { unroll(b) } }", ["W0204"]),
        ("module q(b: Block) { let x = 1; let x = x + 1; annotate(b, \"x\", x) }", ["W0204"]),
        ("module q(b: Block) { let x ~ sample_int(1..2) := 1 }", []),
        ("module q(b: Block) { let x ~ sample_int(1..2) }", ["W0202"]),
        ("module q(b: Block) { if b.is_output { let l = b.loops[0] }\nlet l = b.loops[1]; unroll(l) }", ["W0201"]),
        ("module q(b: Block) { either { let l = b } or { let l = b.loops[0] }\nannotate(l, \"x\", 1) }", []),
        ("module q(b: Block) { transform_layout(b, (b, j) -> (j, b)) }", []),
        ("schedule q for c { let B = A; annotate(root, \"x\", len(B.readers)) }", ["W0204"]),
        ("schedule q for c { cache_read(B, A); unroll(A) }", ["E0240"]),
    ],
)  # fmt: skip
def test_parameters_shadows_and_uses(text: str, codes: list[str]) -> None:
    compute = "compute c(A: f32[M, N]) -> B: f32[M, N] { B[i, j] = A[i, j] }\n"
    assert [d.code for d in load_file(Source("x", compute + text)).diagnostics] == codes


def test_a_name_of_one_branch_is_told_with_a_place_that_binds_it() -> None:
    (d,) = found("if b.is_output { let y = l }\nunroll(y)")
    assert (d.code, d.message) == ("E0220", "`y` is not bound on every way here")
    assert any("one place that binds it" in n.text for n in d.notes)


def test_used_names_of_every_branch_count_as_used() -> None:
    assert found("either { let y = l } or { let y = b.loops[0] }\nunroll(y)") == []
    assert [d.code for d in found("either { let y = l } or { let y = l }")] == ["W0201", "W0201"]


def test_the_algebra_of_kinds() -> None:
    assert fits(INT, (FLOAT,))
    assert not fits(FLOAT, (INT,))
    assert fits(BLOCK, (BUFFER,))
    assert fits(ListOf(INT), (LIST,))
    assert fits(ANY, (LOOP,))
    assert join(INT, INT) == INT
    assert join(ListOf(INT), ListOf(STR)) == LIST
    assert join(INT, STR) == ANY
    assert show(ListOf(ListOf(LOOP))) == "a list of lists"
    assert show_all((LOOP, STR, INT)) == "a loop, a string or an int"


def test_modules_that_reach_themselves_are_told_once_however_long_the_chain() -> None:
    count = 3000
    text = "".join(f"module m{n}(b: Block) {{ m{(n + 1) % count}(b) }}\n" for n in range(count))
    codes = [d.code for d in load_file(Source("x", text)).diagnostics]
    assert codes == ["E0228"]


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ("join_nodes(b)", "`join_nodes(nodes, …)`"),
        ("reorder(l, b)", "`reorder(loops, …)`"),
        ("skip_zeros(b, b)", "`skip_zeros(block, …)`"),
    ],
)
def test_the_form_of_a_call_names_what_it_takes_any_number_of(line: str, form: str) -> None:
    (d,) = found(line)
    assert (d.code, [n.text for n in d.notes]) == ("E0240", [form])

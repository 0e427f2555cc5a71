"""What parses, how newlines count, and what syntax errors say."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc_dsl.diagnostic import Diagnostic, TschedError
from tensorc_dsl.source import Source
from tensorc_dsl.syntax import parse as parse_module
from tensorc_dsl.syntax import tables as tables_module
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import format_expr, format_file
from tensorc_dsl.syntax.parse import MAX_DEPTH, MAX_FINDINGS, parse
from tensorc_dsl.syntax.walk import walk
from tests.syntax.trees import parse_expr


def items(text: str) -> tuple[tree.Item, ...]:
    return parse(Source("x.tsched", text)).items


def only(text: str) -> tree.Item:
    (item,) = items(text)
    return item


def body(text: str) -> tuple[tree.Stmt, ...]:
    module = only(f"module m(b) {{\n{text}\n}}")
    assert isinstance(module, tree.ModuleDef)
    return module.body


def findings(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(TschedError) as caught:
        items(text)
    return caught.value.diagnostics


LANGUAGE = (Path(__file__).parent / "language_examples.tsched").read_text(encoding="utf-8")
"""Every example of the language's design, in the spelling that it has."""


def test_the_language_parses() -> None:
    found = items(LANGUAGE)
    kinds = [type(i).__name__.removesuffix("Def") for i in found]
    assert kinds == (
        "Compute Compute Compute Compute Task Task Task Module Module Space Schedule Schedule Intrinsic Intrinsic Module "
        "UseDecl UseDecl Program Reducer Compute Target"
    ).split()  # fmt: skip
    conv = found[2]
    assert isinstance(conv, tree.ComputeDef)
    assert [name for name, _ in conv.where] == ["OH", "OW"]
    assert [a.name for a in conv.attributes] == ["stride", "pad", "dilation", "groups", "T", "Acc"]
    reduction = stages(conv)[1].value
    assert isinstance(reduction, tree.Reduce)
    assert isinstance(reduction.body, tree.BinaryExpr)  # the line below goes on with it
    assert isinstance(found[0], tree.ComputeDef)
    assert found[0].doc == "C = A · B"
    assert parse(Source("again", format_file(tree.File(Source("", ""), found)))).items == found


def stages(compute: tree.ComputeDef) -> list[tree.Stage]:
    return [s for s in compute.stages if isinstance(s, tree.Stage)]


def test_intrinsics_reducers_and_targets() -> None:
    named: dict[str, tree.NamedItem] = {i.name: i for i in items(LANGUAGE) if not isinstance(i, tree.UseDecl)}
    mma, vnni = named["mma_m16n8k16_bf16"], named["vnni_dot_16x4"]
    assert isinstance(mma, tree.IntrinsicDef) and isinstance(vnni, tree.IntrinsicDef)
    assert [(o.name, o.layout) for o in mma.operands] == [("A", "mma.a"), ("B", "mma.b"), ("C", "mma.c")]
    assert [(x.name, x.params, [p for p, _ in x.places]) for x in mma.layouts] == [
        ("mma.a", ("i", "k"), ["lane", "reg"])
    ]
    assert [(e.name, e.adds) for e in vnni.effects] == [("C", True)]
    assert [(x.target, x.requires, x.kind) for x in (*mma.lowerings, *vnni.lowerings)] == [
        ("cuda", (), "asm"),
        ("llvm", ("avx512vnni",), "call"),
    ]
    reducer, target, fused = named["logsumexp"], named["avx2"], named["fused"]
    assert isinstance(reducer, tree.ReducerDef) and isinstance(target, tree.TargetDef)
    assert reducer.params == ("a", "b")
    assert [name for name, _ in target.facts] == ["vector_bits", "cores", "l2"]
    assert isinstance(fused, tree.ComputeDef)
    assert [(s.name, len(s.indices)) for s in fused.stages] == [("H", 0), ("G", 2), ("Y", 1)]
    last = stages(fused)[-1].value
    assert isinstance(last, tree.Reduce) and last.reducer == "logsumexp"


def test_spans_are_those_of_the_text() -> None:
    for item in items(LANGUAGE):
        for node in walk(item):
            assert node.span.text == node.span.text.strip()
            if isinstance(node, tree.Name):
                assert node.span.text == node.id
        keyword = item.span.text.split()[0]
        assert keyword in "compute reducer intrinsic target task module space schedule use program".split()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a\nb", 2),
        ("a; b;;\n\n;c", 3),
        ("f(a,\n  b\n)", 1),
        ("let x = a\n  + b\n  * c", 1),
        ("let x =\n  a", 1),
        ("let x = a +\n  b", 1),
        ("let x = f(\n a\n) \n .b", 1),
        ("let x = [\n 1,\n 2\n]\nb", 2),
        ("let x = {\n 1: 2,\n 3: 4\n}\nb", 2),
        ("let x = sum[k]\n  a", 1),
        ("let x = reduce mine[k]\n  a\nreduce\nmine[k]", 3),
        ("let x = scan[t]\n init a\n step b\nstep", 2),
        ("let x\n  ~ f()\n  := 3\ny", 2),
        ("either {\n a\n}\nor {\n b\n}\nc", 2),
        ("either pack:\n panels(3) {\n a\n}\n or rows {\n b\n}\nc", 2),
        ("maybe(70) pack {\n a\n}\nmaybe pack\n { b }\nc", 3),
        ("if a {\n b\n}\nelse {\n c\n}\nd", 2),
        ("a // one\n// two\nb /// three\n", 2),
        ("let f = (i, j) ->\n (j, i)", 1),
        ("for x in xs\n{ y }", 1),
        ("for x in xs if a\n and b\n{ y }\nc", 2),
        ("let y = for x in (a if b else xs) if\n c { yield x }", 1),
        ("f(for x in xs {\n a\n yield b\n})", 1),
        ("(a)\n(b)", 2),
        ("a\n[b]", 2),
        ("", 0),
        # A line ends in a word that needs more.
        ("let x = scan[t] init\n a step\n b\nc", 2),
        ("let x = scan[t] init step\n step step\nstep", 2),
        ("let x = f(a)\n if\n b\n else\n c\nd", 2),
        ("let x = not\n a and\n b or\n c\nd", 2),
        ("let x = a ==\n b\nc", 2),
        ("for a in\n xs {\n}\nb", 2),
        ("let\n x\n ~\n f() :=\n 3\ny", 2),
        # A line begins with a word that begins no statement.
        ("let x = a\n and b\n or c\n < d\n % e\n / f\nd", 2),
        ("for a\n in xs\n {\n}\nb", 2),
        # An `if` that comes to an `else` before it comes to a `{` belongs to the expression above it.
        ("let x = a\n  if b else c", 1),
        ("let x = a\n  if b\n  else c\nd", 2),
        ("let x = a // why\n  // why not\n\n  if b else c\nd", 2),
        ("let x = a\n  if b else c\n  if d else e\nif f {}\ng", 3),
        ("let x = a\n  if f({1: 2}) else c", 1),
        ("let x = a\n  if sum[k] b if c else d else e\nf", 2),
        ("let x = a\nif b {\n c\n} else {\n d\n}", 2),
        ("let x = a\nif b if c else d {\n c\n}", 2),
        ("let x = a\nif b\n{\n c\n}\nelse if d {\n e\n}", 2),
        ("let x = a; if b {}", 2),
        ("f(a)\nif (b if c else d) {}", 2),
        ("if a {\n}\nif b {\n} else {\n}", 2),
    ],
)
def test_newlines(text: str, count: int) -> None:
    assert len(body(text)) == count


@pytest.mark.parametrize(
    "value",
    [
        "X[i]\n    if i > 0\n    else X[0]",
        "X[i]\n    if i > 0 else X[0]",
        "X[i] if\n    i > 0 else\n    X[0]",
        "sum[k]\n    X[k]\n    if k > 0 else 0.0",
        "scan[i] init\n    X[0] step\n    X[i] +\n    Y[i - 1]",
        "scan[i]\n    init X[0]\n    step\n    X[i]\n    + Y[i - 1]",
        "reduce mine[k]\n    X[k]",
    ],
)
def test_a_value_goes_on_below_as_on_one_line(value: str) -> None:
    text = "compute c(X: f32[M]) -> Y: f32[M] {{\n    let H[i] = X[i]\n    Y[i] = {}\n}}\n"
    program = "program p(A: f32[4]) {{\n    block b {{\n        A[0] = {}\n        A[1] = 2.0\n    }}\n}}"
    wraps = [text] if re.search(r"sum|scan|reduce", value) else [text, program]
    for wrap in wraps:
        assert only(wrap.format(value)) == only(wrap.format(re.sub(r"\s+", " ", value)))


def test_an_if_that_no_else_follows_is_looked_for_once() -> None:
    """Each `if` once: a search from every one to the end of its braces would take hours here."""
    (d,) = findings("module m(b) {\n" + "a\nif b\n" * 100_000 + "}\n")
    assert (d.code, d.span and d.span.text) == ("E0101", "\n")


def test_words_of_the_language_are_names_where_names_are_expected() -> None:
    text = "let step = f(init, scan=block).reduce[task]"
    assert [n.id for n in walk(body(text)[0]) if isinstance(n, tree.Name)] == ["f", "init", "block", "task"]
    compute = only("compute max(sum: f32[M]) -> min: f32[M] {\n let max[i] = sum[k] a\n min[i] = max[j] b\n}")
    assert isinstance(compute, tree.ComputeDef)
    assert [s.name for s in compute.stages] == ["max", "min"]
    assert all(isinstance(s.value, tree.Reduce) for s in stages(compute))


def test_reductions_are_no_words_of_programs() -> None:
    program = only(
        "program p(sum: f32[4]) { for i in 4 { block sum { spatial scan in 4 = i; sum[scan] = -max[scan] } } }"
    )
    assert any(isinstance(n, tree.IndexExpr) for n in walk(program))
    assert not any(isinstance(n, tree.Reduce) for n in walk(program))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a + b * c", "a + (b * c)"),
        ("-a * b", "(-a) * b"),
        ("not a < b and c", "(not (a < b)) and c"),
        ("a or b and c", "a or (b and c)"),
        ("a if b else c if d else e", "a if b else (c if d else e)"),
        ("x - sum[k] a + b", "x - (sum[k] (a + b))"),
        ("sum[k] a if b else c", "sum[k] (a if b else c)"),
        ("scan[t] init a + b step c + d", "scan[t] init (a + b) step (c + d)"),
        ("a.b(c)[d].e", "((a.b)(c)[d]).e"),
        ("1..2 * 3", "1..(2 * 3)"),
        ("(i) -> (i + 1)", "(i) -> ((i + 1))"),
        ("1e3", "1000.0"),
        ('"\\u{41}\\n"', '"A\\u{A}"'),
    ],
)
def test_precedence(text: str, same: str) -> None:
    assert parse_expr(text) == parse_expr(same)


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


def test_every_item_is_reported() -> None:
    text = "task a = b(\n\n/// fine\ntask c = d()\n\nmodule m(b) {\n    let x = \n    y\n\nspace s for llvm { 3 }\n"
    assert [(d.code, d.span.text if d.span else "") for d in findings(text)] == [
        ("E0101", "("),
        ("E0101", "y"),
        ("E0111", "3"),
    ]


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
    assert format_expr(parse_expr(deep)) == deep


ALPHABET = st.sampled_from(
    ["{", "}", "(", ")", "[", "]", "let ", "x", "~", "=", ":=", "->", "sum", "[k]", "scan", "init ", "step ", "either ",
     "or ", "if ", "else ", "for ", "in ", "yield ", "\n", ";", ",", "1", "1.5", "..", ".", "-", "+", "*", "<", "==",
     '"s"', '"', "//", "///", "module ", "m", "program ", "block ", "\0", "é", "_", "@"]
)  # fmt: skip


@given(
    st.lists(ALPHABET, max_size=30).map("".join), st.sampled_from(["", "module m(b) {", "program p() {", "compute c("])
)
@settings(max_examples=300)
def test_any_text_is_a_tree_or_a_diagnostic(text: str, prefix: str) -> None:
    try:
        file = parse(Source("x", prefix + text))
    except TschedError as e:
        wrong = [d for d in e.diagnostics if not d.code.startswith("E01") or d.span is None]
        if wrong or not e.diagnostics:
            raise AssertionError(wrong) from e
    else:
        assert parse(Source("y", format_file(file))) == file


def test_importing_the_package_builds_no_parser() -> None:
    code = "import sys, tensorc_dsl; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("content", [None, b"", b"not a table"])
def test_a_missing_or_broken_cache_is_no_matter(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cache_path(name: str) -> Path | None:
        if content is not None and not (tmp_path / name).exists():
            (tmp_path / name).write_bytes(content)
        return tmp_path / name if content is not None else None

    monkeypatch.setattr(tables_module, "cache_path", cache_path)
    parse_module._reader.cache_clear()
    try:
        for _ in range(2):
            assert len(items("task a = b()\ntask c = d()")) == 2
            with pytest.raises(TschedError):
                items("task")
            parse_module._reader.cache_clear()
        assert (content is None) == (not list(tmp_path.iterdir()))
        assert all(f.read_bytes() != content for f in tmp_path.iterdir())
    finally:
        parse_module._reader.cache_clear()


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


def test_a_file_without_mistakes_is_all_of_its_items() -> None:
    source = Source("language.tsched", LANGUAGE)
    assert parse_module.parse_items(source) == parse_module.Parsed(parse(source), ())


def test_texts_are_read_in_any_thread_at_once() -> None:
    texts = [Source(f"{n}.tsched", f'module m{n}(b: Block) {{ annotate(b, "k{n}", {n}) }}\n' * 20) for n in range(16)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(parse_module.parse_items, texts))
    for source, parsed in zip(texts, made, strict=True):
        assert parsed.file.source is source
        assert all(node.span.source is source for item in parsed.file.items for node in walk(item))

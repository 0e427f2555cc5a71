"""Texts that parse, and newlines that count."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax import engine, tree
from tensorc_dsl.syntax import parse as parse_module
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.syntax.traversal import walk
from tests.examples import examples
from tests.syntax.trees import format_file, items, parse_expr


def only(text: str) -> tree.Item:
    (item,) = items(text)
    return item


def body(text: str) -> tuple[tree.Stmt, ...]:
    module = only(f"module m(b) {{\n{text}\n}}")
    assert isinstance(module, tree.ModuleDef)
    return module.body


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
    assert (reducer.before, reducer.following) == (("a",), ("b",))
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


ALPHABET = st.sampled_from(
    ["{", "}", "(", ")", "[", "]", "let ", "x", "~", "=", ":=", "->", "sum", "[k]", "scan", "init ", "step ", "either ",
     "or ", "if ", "else ", "for ", "in ", "yield ", "\n", ";", ",", "1", "1.5", "..", ".", "-", "+", "*", "<", "==",
     '"s"', '"', "//", "///", "module ", "m", "program ", "block ", "\0", "é", "_", "@"]
)  # fmt: skip


@given(
    st.lists(ALPHABET, max_size=30).map("".join), st.sampled_from(["", "module m(b) {", "program p() {", "compute c("])
)
@settings(max_examples=examples(150))
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

    monkeypatch.setattr(engine, "cache_path", cache_path)
    parse_module._reader.cache_clear()
    try:
        for _ in range(1 if content is None else 2):  # without a place for one, nothing is left for a second reader
            assert len(items("task a = b()\ntask c = d()")) == 2
            with pytest.raises(TschedError):
                items("task")
            parse_module._reader.cache_clear()
        assert (content is None) == (not list(tmp_path.iterdir()))
        assert all(f.read_bytes() != content for f in tmp_path.iterdir())
    finally:
        parse_module._reader.cache_clear()


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

"""The parser of tree-sitter accepts what the language's does, and its queries see each word as that one does."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.highlight.rules import Class
from tensorc_dsl.syntax.parse import parse
from tests.docs.pages import fences
from tests.editors import treesitter
from tests.editors.oracle import CORPUS, LIBRARY, ROOT, differences

QUERIES = treesitter.FOLDER / "queries"

FACTS = ("E0106", "E0107", "E0119", "E0120")
"""What no grammar knows: how large a number is, how deep a text, whether names of branches or subscripts are the same."""

CLASSES = {
    "comment": Class.COMMENT,
    "comment.documentation": Class.DOC,
    "keyword": Class.KEYWORD,
    "constant.builtin": Class.CONSTANT,
    "number": Class.NUMBER,
    "string": Class.STRING,
    "string.escape": Class.ESCAPE,
    "attribute": Class.ANNOTATION,
    "function": Class.DEFINITION,
    "type.builtin": Class.TYPE,
    "function.builtin": Class.BUILTIN,
    "function.primitive": Class.PRIMITIVE,
    "function.draw": Class.DRAW,
    "property": Class.ATTRIBUTE,
    "operator": Class.OPERATOR,
    "punctuation.bracket": Class.PUNCTUATION,
    "punctuation.delimiter": Class.PUNCTUATION,
}

tree_sitter = pytest.importorskip("tree_sitter", reason="the package tree-sitter is not installed")


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if not treesitter.has_compiler():
        pytest.skip(treesitter.MISSING)
    return treesitter.language(treesitter.library(tmp_path_factory.mktemp("parser")))


@pytest.fixture(scope="module")
def parser(language: Any) -> Any:
    return tree_sitter.Parser(language)


def files() -> list[Path]:
    """All texts of the language here: the library, examples, what is wrong, seeds of the fuzzer, and others."""
    tests = [p for p in (ROOT / "tests").rglob("*.tsched") if "seeds" not in p.parts or p.stat().st_size < 100_000]
    return [*LIBRARY, *sorted(tests)]


def text_of(path: Path) -> str | None:
    try:
        return Source.of(path.read_bytes(), path.name).text
    except UnicodeDecodeError:
        return None


def refusal(text: str) -> str:
    """The codes of what the language finds wrong with the syntax; none if it accepts the text."""
    try:
        parse(Source("text", text))
    except TschedError as e:
        return ",".join(d.code for d in e.diagnostics)
    return ""


def accepts(parser: Any, text: str) -> bool:
    return not parser.parse(text.encode()).root_node.has_error


def test_all_files_here_are_accepted_exactly_where_the_language_accepts_them(parser: Any) -> None:
    found = {p.relative_to(ROOT).as_posix(): t for p in files() if (t := text_of(p)) is not None}
    for page in (ROOT / "docs" / "errors").glob("*.md"):
        for fence in fences(page.read_text(encoding="utf-8")):
            if fence.language == "tsched":
                found[f"{page.name}:{fence.line}"] = fence.text
    said = {path: refusal(text) for path, text in found.items()}
    assert len(found) > 500 and sum(map(bool, said.values())) > 10
    wrong = {p: s for p, s in said.items() if accepts(parser, found[p]) != (not s) and s not in FACTS}
    assert wrong == {}


HOSTILE = {
    "": True,
    "\n;": False,
    "compute f(A: f32[M]) -> C: f32[M] { C[i] = A[i]\n step[i] = A[i] }": True,
    "compute f(A: f32[M]) -> C: f32[M] { C[i] = scan[i] init A[i]\n step A[i] }": True,
    "compute f(A: f32[M]) -> C: f32[M] { C[i] = A[i]\n - A[i] }": True,
    "compute f(A: f32[M]) -> C: f32[M] { C[i] = A[i];\n - A[i] }": False,
    "compute f(A: f32[M]) -> C: f32[M] { let sum[i] = A[i]; C[i] = sum[k] A[k]\n }": True,
    "compute f(A: f32[M]) -> C: f32[M] { C[i] = sum[k]\n\n // above\n A[k] }": True,
    "compute f(A: f32[M]) -> C: f32[M] { C[i] = sum[k] }": False,
    "compute f(A: f32[M]) -> C: f32 { let max = A[0]\n (C, _) = reduce b[k] (A[k], 1.0) }": True,
    "compute f(A: f32[M]) -> C: f32 { let (max[i in 3], at[i]) = reduce b[k] (A[k], 1.0) }": True,
    "compute f(A: f32[M]) -> C: f32 { (C, _) = reduce b[k] (A[k], (1.0, 2.0)) }": False,
    "compute f(A: f32[M]) -> C: f32 { C = (A[0], A[1]) }": False,
    "compute f(A: f32[M]) -> C: f32 { (C) = A[0] }": False,
    "reducer f((a, b), (c, d)) = (a + c, b) identity (0, 0)": True,
    "reducer f((a), b) = a identity 0": False,
    "program f(A: f32[4]) { block sum { sum[0] = sum[0] + reduce[0] } }": True,
    "schedule s for f { a()\n if b { c() } }": True,
    "schedule s for f { let x = a\n if b else c }": True,
    "schedule s for f { let x = a\n if b(if1, {}) else c }": False,
    "schedule s for f { let x = [a\n (b)] }": True,
    "schedule s for f { let x = a.sum[0] - a.scan[0] }": True,
    "schedule s for f { let x = a.reduce[0] - a.reduce b[0] }": False,
    "schedule s for f { let x = a\n (b) }": True,
    "schedule s for f { let for = a }": False,
    "schedule s for f { let true = a }": False,
    "schedule s for f { a(b=1, 2) }": False,
    "schedule s for f { let x = (a, b) }": False,
    "schedule s for f { let x = (a, 1) -> (a,) }": False,
    "schedule s for f { let x = (a, ...) -> (..., a) }": True,
    "schedule s for f { let x = (a, ...) -> (a,) }": False,
    "schedule s for f { let x ~ y }": False,
    "schedule s for f { let x = a - not b }": False,
    "schedule s for f { let x = not a == b }": True,
    "schedule s for f { let x = a[1:2:3] }": False,
    'const s = "\\q"': False,
    'const s = "\\u{D800}"': False,
    'const s = "\\u{10FFFF}"': True,
    "/// nothing": False,
    "/// a\nuse std.cpu": False,
    "/// a\n//// b\n/// c\ntask t = f()": True,
    "//// a": True,
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_judged_as_the_language_judges_them(parser: Any, text: str) -> None:
    assert (refusal(text) == "") == HOSTILE[text]
    assert accepts(parser, text) == HOSTILE[text]


_WORD = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*|[0-9.]+|:=|\+=|->|[<>=!]=|\S')
_SIGNS = ", ( ) [ ] { } = ~ : . .. ... -> + - *".split()
_OTHERS = [*_SIGNS, *"let for if else in and or not step scan sum init reduce x 1 when at where _".split()]


def broken(texts: list[str], count: int) -> Iterator[str]:
    """Texts with one word less, more, or another one."""
    chance = random.Random(18)
    while count:
        text = chance.choice(texts)
        found = [m.span() for m in _WORD.finditer(text) if not m[0].startswith("//")]
        start, end = chance.choice(found)
        new = chance.choice(["", f"{chance.choice(_OTHERS)} ", f"{chance.choice(_OTHERS)} {text[start:end]}"])
        if not re.search(r"\n\s*[\[(]", text):
            yield text[:start] + new + text[end:]
            count -= 1


_TYPE = re.compile(r":\s*(const\s+)?(sum|scan)\s*\[")
"""A type with the name of a reduction. The parser takes it for a name; the language refuses it."""


def test_a_type_with_the_name_of_a_reduction_is_taken_for_a_name(parser: Any) -> None:
    text = "compute f(A: sum[M]) -> C: f32[M] { C[i] = A[i] }"
    assert _TYPE.search(text) and refusal(text) == "E0101" and accepts(parser, text)


def test_broken_texts_are_judged_as_the_language_judges_them(parser: Any) -> None:
    texts = [t for path in LIBRARY for t in re.split(r"\n\n(?=///|[a-z])", path.read_text(encoding="utf-8"))]
    small = [t for t in texts if len(t) < 800 and not refusal(t)]
    judged = [(t, refusal(t), accepts(parser, t)) for t in broken(small, 1500) if not _TYPE.search(t)]
    assert 100 < sum(not said for _, said, _ in judged) < 1400
    assert [(t, said) for t, said, ok in judged if ok == bool(said) and said not in FACTS] == []


@pytest.mark.parametrize(
    "path",
    [*sorted(QUERIES.glob("*.scm")), *sorted((ROOT / "editors" / "zed" / "languages" / "tsched").glob("*.scm"))],
    ids=lambda p: f"{p.parent.name}-{p.stem}",
)
def test_a_query_fits_the_grammar(language: Any, parser: Any, path: Path) -> None:
    query = tree_sitter.Query(language, path.read_text(encoding="utf-8"))
    tree = parser.parse((ROOT / "examples" / "own_module.tsched").read_bytes())
    assert tree_sitter.QueryCursor(query).captures(tree.root_node)


def test_the_outline_of_zed_has_each_item(language: Any, parser: Any) -> None:
    outline = (ROOT / "editors" / "zed" / "languages" / "tsched" / "outline.scm").read_text(encoding="utf-8")
    cursor = tree_sitter.QueryCursor(tree_sitter.Query(language, outline))
    for path in LIBRARY:
        text = path.read_text(encoding="utf-8")
        named = {n.text.decode() for n in cursor.captures(parser.parse(text.encode()).root_node).get("name", [])}
        items = {str(i.name) for i in parse(Source(path.name, text)).items if not isinstance(i, t.UseDecl)}
        assert items <= named, path


def test_each_word_has_its_class(language: Any, parser: Any) -> None:
    cursor = tree_sitter.QueryCursor(
        tree_sitter.Query(language, (QUERIES / "highlights.scm").read_text(encoding="utf-8"))
    )
    wrong: dict[str, list[str]] = {}
    for path in (*CORPUS, *LIBRARY):
        data = path.read_bytes()
        nodes = [(n, name) for name, found in cursor.captures(parser.parse(data).root_node).items() for n in found]
        classes: list[Class | None] = [Class.NAME] * len(data)
        # What is inside of another node is seen, not that one.
        for node, name in sorted(nodes, key=lambda found: found[0].start_byte - found[0].end_byte):
            classes[node.start_byte : node.end_byte] = [CLASSES[name]] * (node.end_byte - node.start_byte)
        text = data.decode()
        starts = [len(text[:n].encode()) for n in range(len(text))] if len(text) != len(data) else range(len(text))
        if found := differences(text, [classes[n] for n in starts]):
            wrong[path.name] = found
    assert wrong == {}


def test_what_is_half_typed_leaves_the_rest_as_it_was(parser: Any) -> None:
    """A mistake in an item leaves the items around it whole."""
    text = "const a = 1\nschedule s for f {\n    let x = split(\n    reorder(i)\n}\ntask t = f()\n"
    kinds = [n.type for n in parser.parse(text.encode()).root_node.children]
    assert kinds[0] == "const" and kinds[-1] == "task"


def test_the_parser_is_made_of_the_grammar(tmp_path: Path) -> None:
    """src/grammar.json, which the generator writes beside the parser, is what grammar.js says."""
    if shutil.which("node") is None:
        pytest.skip("there is no node to read grammar.js with")
    script = Path(__file__).parent / "grammar.cjs"
    done = subprocess.run(
        ["node", str(script), str(treesitter.FOLDER / "grammar.js")],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    written = json.loads((treesitter.FOLDER / "src" / "grammar.json").read_text(encoding="utf-8"))
    said = json.loads(done.stdout)
    assert {k: written[k] for k in said} == said

"""Every file and every module that a docstring, a comment or a page names is in the repository."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from tools.size import statements

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tensorc_dsl", "stdlib", "grammar", "docs", "bench", "campaigns", "tests", "examples")
SOURCES = (".py", ".ll", ".lark", ".md")
FOREIGN = {"string.py", "te_workload.py"}
"""A file of a working folder that must not be imported, and one of TVM's sources."""

TEXTS = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".ll", ".lark", ".md", ".tsched"}
] + [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "hatch_build.py")]
FILES = {
    path.relative_to(ROOT).as_posix()
    for path in [
        *(p for folder in (*FOLDERS, ".github", "editors") for p in (ROOT / folder).rglob("*")),
        *ROOT.iterdir(),
    ]
    if "node_modules" not in path.parts
}
FIRST = {part for file in FILES for part in PurePosixPath(file).parent.parts} - {"."}
"""The names of folders: a path that begins with one of them is a path of the repository."""

LAYERS = {p.name for p in (ROOT / "tensorc_dsl").iterdir() if (p / "__init__.py").is_file()}

_PATH = re.compile(r"(?<![\w/.*<{:-])((?:\.\./)*[\w-]+(?:/[\w-]+)*(?:\.[a-z]+)?)(?![\w/<{*])")


def named(text: str) -> Iterator[str]:
    """The paths of the repository that a text names, without leading `../`."""
    for found in _PATH.finditer(text):
        path = re.sub(r"^(\.\./)+", "", found[1])
        first = path.partition("/")[0]
        placeholder = re.search(r"\b(?!README|CONTRIBUTING|CHANGELOG|SECURITY|LICENSE)[A-Z]{4,}\b", path)
        inside = "/" in path and first in FIRST and "." in path
        if not placeholder and path not in FOREIGN and (inside or path.endswith(SOURCES)):
            yield path


_STRING_OR_COMMENT = re.compile(r"('{3}|\"{3}|'|\")(?:\\.|[^\\])*?\1|(#[^\n]*)", re.DOTALL)


def said(source: str) -> Iterator[str]:
    """The comments of a source in Python, and the strings that begin a line as docstrings do: with three quotes, or behind a
    colon.

    Python's own tokenizer and parser take far longer for a thousand files.
    """
    for found in _STRING_OR_COMMENT.finditer(source):
        line = source.rfind("\n", 0, found.start()) + 1
        if found[2] or (
            not source[line : found.start()].strip(" rRuU") and (len(found[1]) == 3 or source[:line].endswith(":\n"))
        ):
            yield found[0]


@cache
def prose(path: Path) -> tuple[str, ...]:
    """What a file says beside its code. Both tests ask."""
    return tuple(_prose(path))


def _prose(path: Path) -> Iterator[str]:
    """The docstrings and comments of a source, or a page without its fences."""
    text = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".py":
            yield from said(text)
        case ".md":
            yield re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        case ".ll":
            yield from re.findall(r"; .*", text)
        case _:
            yield from re.findall(r"//.*", text)


ENDS = {"/".join(parts[n:]) for parts in (file.split("/") for file in FILES) for n in range(len(parts))}
"""The paths of the repository, and how they end."""


def there(path: str) -> bool:
    """Whether the repository has the path, or a file whose path ends so."""
    return path in ENDS


def test_a_lost_file_is_found() -> None:
    assert [n for n in named("see proof/sets/lost.py, `lost.ll` and ../docs/tour.md") if not there(n)] == [
        "proof/sets/lost.py",
        "lost.ll",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "a = '#b\\'#' # 'c\n",
        'def f():\n    r"""a \'b\n # c"""\n    x = """d"""  # e\n\n\nclass A:\n    "b"\n',
        Path(__file__).read_text(encoding="utf-8"),
    ],
    ids=["quotes", "a docstring", "this file"],
)
def test_comments_and_docstrings_are_those_of_python(source: str) -> None:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = [*said(source)]
    assert [s for s in found if s.startswith("#")] == [t.string for t in tokens if t.type == tokenize.COMMENT]
    documents = [
        node.value.value
        for node in statements(source)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    assert sorted(ast.literal_eval(s) for s in found if not s.startswith("#")) == sorted(documents)


def modules(text: str) -> Iterator[str]:
    """The names in backticks that begin with a layer and a dot, `proof.sets.isl` or `api.Task`."""
    for found in re.finditer(r"`([a-z_]+)((?:\.[A-Za-z_]+)+)`", text):
        if found[1] in LAYERS and found[2] not in {".py", ".sqlite"}:
            yield f"{found[1]}{found[2]}"


@cache
def is_module(name: str) -> bool:
    """Whether a dotted name is that of a module, or of something that the text of a module has."""
    head, _, last = name.rpartition(".")
    path = ROOT / "tensorc_dsl" / name.replace(".", "/")
    above = ROOT / "tensorc_dsl" / head.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    owners = [p for p in (above.with_suffix(".py"), above / "__init__.py") if p.is_file()]
    return any(re.search(rf"\b{last}\b", p.read_text(encoding="utf-8")) for p in owners) or (
        bool(head) and "." in head and is_module(head)
    )


def test_named_modules_exist() -> None:
    assert list(modules("`proof.sets.isl`, `b.loops`, `ir.values`")) == ["proof.sets.isl", "ir.values"]
    assert is_module("proof.sets.isl") and not is_module("ir.values")
    lost = [f"{p}: {m}" for p in TEXTS for text in prose(p) for m in modules(text) if not is_module(m)]
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("folder", [*FOLDERS, "."])
def test_named_files_exist(folder: str) -> None:
    texts = [p for p in TEXTS if (p.relative_to(ROOT).parts[0] == folder) or (folder == "." and p.parent == ROOT)]
    assert texts
    lost = [
        f"{p.relative_to(ROOT).as_posix()}: {name}"
        for p in texts
        for text in prose(p)
        for name in named(text)
        if not there(name)
    ]
    assert not lost, "\n".join(lost)

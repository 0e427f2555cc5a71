"""One layout for every text: all words and comments are kept, and formatting twice changes nothing."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.fmt import WIDTH, end, format_text, leaves
from tensorc_dsl.syntax.parse import parse, read
from tests.examples import examples
from tests.syntax.trees import FILES, format_file

SLOW = settings(
    deadline=None,
    max_examples=examples(50),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking whole files takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ROOT = Path(__file__).parent.parent.parent


def comments(text: str) -> list[str]:
    return [str(c).rstrip() for c in read(Source("c", text)).comments]


def check(text: str) -> str:
    """Format, and hold what always holds."""
    once = format_text(Source("x", text))
    assert parse(Source("y", once)) == parse(Source("x", text))
    assert format_text(Source("y", once)) == once
    assert comments(once) == comments(text)
    assert all(line == line.rstrip() for line in once.split("\n"))
    assert "\n\n\n" not in once
    assert once == "" or once.endswith("\n")
    return once


@given(FILES)
@SLOW
def test_generated_files(file: tree.File) -> None:
    check(format_file(file))


@given(
    FILES, st.lists(st.tuples(st.integers(0, 200), st.sampled_from(["// c", "//", " // d", "\n// e", "\n\n\n// f"])))
)
@SLOW
def test_comments_anywhere(file: tree.File, at: list[tuple[int, str]]) -> None:
    text = format_file(file)
    ends = [end(w) for w in leaves(read(Source("w", text)).words)]
    assume(ends)
    places = {ends[n % len(ends)]: (n, c) for n, c in at}
    for place, (n, comment) in sorted(places.items(), reverse=True):
        changed = f"{text[:place]}{comment}{n}\n{text[place:]}"
        try:
            if parse(Source("x", changed)) == file:
                text = changed
        except TschedError:
            pass  # the line end would have ended a statement there
    check(text)


@pytest.mark.parametrize("path", [*ROOT.glob("stdlib/**/*.tsched"), *ROOT.glob("examples/**/*.tsched")], ids=str)
def test_the_repository_is_formatted(path: Path) -> None:
    source = Source.read(path)
    assert format_text(source) == source.text


def test_a_file_without_items() -> None:
    assert check("") == ""
    assert check("\n\n  \n") == ""
    assert check("// a\n\n\n//   b   \n\n") == "// a\n\n//   b\n"


CASES = Path(__file__).parent / "fmt.md"


def cases() -> list[tuple[str, str, str]]:
    """Title, text, and the text in its layout, from `fmt.md`."""
    out: list[tuple[str, str, str]] = []
    for section in CASES.read_text(encoding="utf-8").split("\n## ")[1:]:
        title = section.split("\n", 1)[0]
        blocks = section.split("```tsched\n")[1:]
        texts = [b.split("```", 1)[0] for b in blocks]
        out.append((title, texts[0], texts[-1]))
    return out


@pytest.mark.parametrize(("title", "text", "want"), cases(), ids=[c[0] for c in cases()])
def test_case(title: str, text: str, want: str) -> None:
    assert check(text) == want
    assert format_text(Source("w", want)) == want


def test_lines_are_at_most_120_wide() -> None:
    longest = ", ".join(f"argument_{n}={n}" for n in range(40))
    for text in (
        f"module m(b) {{ f({longest}) }}",
        f"module m(b) {{ let x ~ sample_categorical([{', '.join(map(str, range(100)))}]) := 3 }}",
        f"module m({', '.join(f'p{n}: int = {n}' for n in range(20))}) {{}}",
        f"module m(b) when {' and '.join(f'condition_{n}' for n in range(30))} {{ if {' or '.join('abcdefgh' * 9)} {{}} }}",
        f"compute c(X: f32[{', '.join(f'DIM{n}' for n in range(50))}]) -> Y: f32[1] {{ Y[i] = {'X[i] + ' * 40} 1 }}",
        f"compute c(X: f32[M]) -> Y: f32[1] {{ Y[i] = sum[k] {' * '.join(['X[i + k]'] * 30)} if a < b else 0 }}",
        f"task t = c({longest}) with d",
        f"target t = c({longest})",
        f"use a.{{{', '.join(f'name_{n}' for n in range(40))}}}",
        f"reducer r(a, b) = {' + '.join('a' * 50)} identity {' + '.join('1' * 50)}",
        f"program p(A: f32[4]) {{ for {', '.join(f'index_{n} in 4' for n in range(20))} {{}} }}",
        f"program p(A: f32[4]) {{ block b {' '.join(f'@({chr(34)}key{n}{chr(34)}, 1)' for n in range(20))} {{}} }}",
        f"schedule s for c {{ either({' + '.join('1' * 40)}) {{}} or {{}} }}",
    ):
        out = check(text)
        assert max(map(len, out.split("\n"))) <= WIDTH, out
        assert len(out.split("\n")) > 3


def test_every_line_end_of_a_broken_list_is_its_own() -> None:
    out = check(f"module m(b) {{ f({', '.join('a' * 40)}, key=[{', '.join('b' * 60)}]) }}")
    assert sum(1 for _ in itertools.filterfalse(lambda line: line.strip() != "b,", out.split("\n"))) == 60

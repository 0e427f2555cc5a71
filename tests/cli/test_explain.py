"""`explain`: pages and titles of errors, words of the language, and unknown names."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from docs.generate.errors import raised
from tensorc_dsl.check.vocabulary import FUNCTIONS
from tensorc_dsl.elaborate.names import ARG_REDUCERS, REDUCERS
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.faces.report.entries import entries, names
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.trace.draws import DRAWS


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments])


def test_a_page() -> None:
    result = call("E0312")
    assert result.exit_code == 0
    assert result.stdout.startswith("# E0312: a split that does not divide\n\n")
    assert "```tsched\n" in result.stdout  # and nothing behind it, which only tests read
    assert call("e0312").stdout == result.stdout


def test_a_terminal_is_shown_more_than_text() -> None:
    painted = call("E0312", "--color", "always").stdout
    assert "\x1b[" in painted
    assert "## Repair" not in painted
    assert "\x1b[" not in call("E0312", "--color", "never").stdout


def test_the_list_has_every_code() -> None:
    lines = call("--list").stdout.splitlines()
    assert [line[:5] for line in lines] == list(raised())
    assert "E0312  a split that does not divide" in lines


def test_codes_that_there_are_not() -> None:
    result = call("E0319")
    assert result.exit_code == 1
    assert "error[E0906]" in result.stderr
    assert "did you mean `E031" in result.stderr
    assert "did you mean `E0312`?" in call("312").stderr
    assert call("zzz").exit_code == 1


def test_wrong_usage() -> None:
    assert call().exit_code == 2
    assert call("E0312", "--list").exit_code == 2


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("split", ("split(loop: Loop, factors: [int or _]", "E0312", "In Halide and TVM")),
        ("sample_perfect_tile", ("sample_perfect_tile(", "~> [int]", "A draw")),
        ("loops", ("`b.loops`", "outermost first")),
        ("b.reuses", ("`b.reuses(loop: Loop)`",)),
        ("target.threads", ("`target.threads`",)),
        ("interleave", ("`interleave(", "spatial loop")),
        ("s.count", ("`s.count(part)`",)),
        ("sum", ("A function of schedules", "A reducer of computes")),
        ("argmax", ("gives a position",)),
        ("erf", ("the error function",)),
        ("std.cpu.default", ("space default for llvm", "use std.cpu.default.{default}")),
        ("multi_level_tiling", ("module multi_level_tiling(",)),
        ("conv2d_nhwc", ("compute conv2d_nhwc(",)),
    ],
)
def test_words_of_the_language(name: str, parts: tuple[str, ...]) -> None:
    result = call(name)
    assert result.exit_code == 0, result.output
    for part in parts:
        assert part in result.stdout
    assert "](" not in result.stdout  # links are for pages


def test_every_word_is_explained() -> None:
    queries = {q for table in QUERIES.values() for q in table}
    words = {*PRIMITIVES, *DRAWS, *queries, *FUNCTIONS, *REDUCERS, *ARG_REDUCERS, *MATHS}
    assert words <= names()
    assert all(entries(word) for word in words)


def test_words_that_there_are_not() -> None:
    result = call("splitt")
    assert (result.exit_code, "error[E0906]" in result.stderr) == (1, True)
    assert "did you mean `split`?" in result.stderr
    assert "module list" in call("zzzzzz").stderr
    assert "`tensorc-dsl tune --help`" in call("tune").stderr


def test_terms_that_messages_use() -> None:
    assert call("regret").stdout.startswith("### regret\n\nThe share by which the best schedule so far may be slower")
    assert call("open size").stdout == call("open dimension").stdout
    assert "95 %" in call("interval of 95 %").stdout

"""`explain`: pages, titles, and codes that there are not."""

from __future__ import annotations

from click.testing import CliRunner, Result

from docs.generate.errors import declared
from tensorc_dsl.cli.main import main


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
    assert [line[:5] for line in lines] == list(declared())
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

"""The lexer of Pygments sees each word as the parser does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.token import Error

from tensorc_dsl.syntax.highlight.lexer import TOKENS, TschedLexer
from tensorc_dsl.syntax.highlight.rules import Class
from tests.editors.oracle import CORPUS, LIBRARY, ROOT, differences

CLASSES = {kind: cls for cls, kind in TOKENS.items()}


def classes(text: str) -> list[Class | None]:
    out: list[Class | None] = []
    for _, kind, part in TschedLexer().get_tokens_unprocessed(text):
        out += [CLASSES.get(kind)] * len(part)
    return out


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", [*CORPUS, *LIBRARY], ids=named)
def test_each_word_has_its_class(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert differences(text, classes(text)) == []


def test_pygments_finds_it() -> None:
    assert isinstance(get_lexer_by_name("tsched"), TschedLexer)
    assert isinstance(get_lexer_for_filename("a.tsched"), TschedLexer)


@given(st.text(alphabet=st.sampled_from('ab1."\\/\n {}[]():=;~@é#$')))
def test_a_text_that_is_half_typed_has_tokens_too(text: str) -> None:
    assert "".join(part for _, _, part in TschedLexer().get_tokens_unprocessed(text)) == text


def test_what_is_no_word_is_an_error() -> None:
    assert [p for _, kind, p in TschedLexer().get_tokens_unprocessed("let x = a # b") if kind is Error] == ["#"]

"""The engine and Lark run the same tables: they make the same trees, and report the same errors."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax.engine import Engine, Unexpected, tables
from tensorc_dsl.syntax.layout import Mismatch, Token, TooDeep, Tree, arrange
from tensorc_dsl.syntax.parse import BadCharacter, Lexer, read
from tests.examples import examples
from tests.syntax.lark_oracle import lark_refusal, lark_tree

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    [*ROOT.glob("stdlib/*/*.tsched"), *ROOT.glob("examples/*.tsched"), *ROOT.glob("tests/fuzz/seeds/*.tsched")]
)
LEXER, ENGINE = Lexer(tables()), Engine(tables())


def _shown(node: Tree | Token | None) -> object:
    match node:
        case Tree(data=data, children=children):
            return data, [_shown(c) for c in children]
        case Token():
            return node.type, str(node), node.start_pos, node.end_pos
        case None:
            return None


def _refusal(source: Source) -> tuple[str, int, frozenset[str]] | None:
    """As `lark_refusal`, of the engine."""
    size = len(source.text)
    try:
        arranged = arrange(LEXER.words(source.text, 0, size))
    except BadCharacter as e:
        return "character", e.offset, frozenset()
    starts = arranged.words.starts
    try:
        ENGINE.parse(source, 0, size, arranged)
    except Unexpected as e:
        return "word", starts[e.n] if e.n < len(starts) else size, e.accepts
    except (Mismatch, TooDeep) as e:
        place = e.closer if isinstance(e, Mismatch) else e.opener
        return type(e).__name__, place.start_pos, frozenset()
    return None


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_the_same_tree_of_right_texts(path: Path) -> None:
    source = Source.read(path)
    text = read(source)
    comments = text.comments
    assert _shown(text.words) == _shown(lark_tree(source))
    assert [str(c) for c in comments] == [source.text[c.start_pos : c.end_pos] for c in comments]
    assert comments or "//" not in source.text


def _broken(text: str, rng: random.Random) -> str:
    """The text with a word left out, doubled, exchanged or put elsewhere."""
    parts = text.split(" ")
    n = rng.randrange(len(parts))
    match rng.randrange(4):
        case 0:
            del parts[n]
        case 1:
            parts.insert(n, parts[n])
        case 2:
            parts[n] = rng.choice(parts)
        case _:
            parts.insert(
                n,
                rng.choice(
                    ["(", ")", "[", "}", "{", "let", "=", "\n", "sum[k]", "..", '"', "§", "///", ";", "(" * 101]
                ),
            )
    return " ".join(parts)


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_the_same_place_and_words_of_wrong_texts(path: Path) -> None:
    """Of whole files, and of two of their paragraphs, since the oracle takes long for a long text."""
    rng = random.Random(path.name)
    text = path.read_text(encoding="utf-8")
    paragraphs = text.split("\n\n")
    refused = 0
    for n in range(examples(20)):
        first = rng.randrange(len(paragraphs))
        source = Source("x", _broken(text if n % 10 == 0 else "\n\n".join(paragraphs[first : first + 2]), rng))
        found = _refusal(source)
        assert found == lark_refusal(source), source.text
        refused += found is not None
    assert refused

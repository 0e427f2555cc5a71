"""The engine and Lark run the same tables: they accept the same texts, and see the same words."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.source import Source
from tensorc_dsl.syntax.build_items import FileBuilder
from tensorc_dsl.syntax.engine import Engine
from tensorc_dsl.syntax.parse import parse, words
from tensorc_dsl.syntax.tables import tables

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*ROOT.glob("stdlib/*/*.tsched"), *ROOT.glob("examples/*.tsched")])


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_the_same_words_of_right_texts(path: Path) -> None:
    source = Source.read(path)
    tree, comments = words(source)
    seen = [
        (str(t), t.start_pos, t.end_pos)
        for t in tree.scan_values(lambda t: isinstance(t, str))
        if t.type not in ("_NL", "DOC")
    ]
    engine = Engine(tables(), FileBuilder())
    layout = ("NEWLINE", "SEMICOLON", "DOC")
    told = [
        (str(t), t.start_pos, t.end_pos) for t in engine.words(source.text, 0, len(source.text)) if t.type not in layout
    ]
    assert [w for w in told if w[0] != ";"] == [w for w in seen if w[0] != ";"]
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
                n, rng.choice(["(", ")", "[", "}", "{", "let", "=", "\n", "sum[k]", "..", '"', "§", "///", ";"])
            )
    return " ".join(parts)


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_what_the_engine_refuses_lark_refuses(path: Path) -> None:
    """Where they differ, `parse` fails an assertion: each text that the engine does not read is given to Lark."""
    rng = random.Random(path.name)
    text = path.read_text(encoding="utf-8")
    refused = 0
    for _ in range(40):
        try:
            parse(Source("x", _broken(text, rng)))
        except TschedError:
            refused += 1
    assert refused

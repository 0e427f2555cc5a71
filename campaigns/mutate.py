"""Generates wrong and strange `.tsched` texts: random bytes, derivations of the grammar, files with a few words changed.

All random choices come from one `random.Random`, so a number identifies an input.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from lark.grammar import NonTerminal

from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax.engine import lark_parser
from tensorc_dsl.syntax.layout import REDUCERS

LARGEST = 32 * 1024
"""Bytes of an input."""

ROOT = Path(__file__).resolve().parent.parent

_NUMBERS = (
    "0 1 2 3 7 64 100 2147483647 2147483648 4294967296 9223372036854775807 9223372036854775808 0.0 1.5 1e308 1e999 1e-320 "
    f"{10**30} 1{'0' * 400} 0000 1e5 inf"
).split()
_BYTES = (
    b"\0", b"\xff", b"\xfe\xff", b"\xc3", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\r", b"\r\n",
    b"\x1b[31m", b"\xc2\xa0", b"\xe2\x80\xae", b"\xe2\x88\x9e", b"\x0b", b"\x0c", b"\xc2\x85", b"\t", b'"', b"\\",
    b"//", b"///", b"/*", b"{", b"}", b"(", b")", b"[", b"]", b";", b"\n", b"_", b"..", b":=", b"->", b"@", b"$", b"'", b"#",
)  # fmt: skip
_WORD = re.compile(r'"[^"\n]*"|//[^\n]*|\w+|[ \t]+|\n|[:<>=!+]=|->|\.\.|[^\w\s]')
_ITEM = re.compile(
    r"^(?=(?:///|compute|reducer|intrinsic|target|module|space|schedule|task|use|program)\b|///)(?<!\n///)",
    re.MULTILINE,
)


@cache
def corpus() -> tuple[str, ...]:
    """The items of all `.tsched` files of the project, the wrong ones too."""
    files = sorted(f for folder in ("stdlib", "examples", "tests") for f in (ROOT / folder).rglob("*.tsched"))
    out: list[str] = []
    for f in files:
        lines: list[str] = []
        for line in Source.read(f).text.splitlines(keepends=True):
            # An item begins at the left margin, its description with it.
            if _ITEM.match(line) and not (lines and lines[-1].startswith("///")):
                out.append("".join(lines))
                lines = []
            lines.append(line)
        out.append("".join(lines))
    return tuple(dict.fromkeys(text for text in out if text.strip()))


def some_file(rng: random.Random) -> str:
    """A right file, or a few items of the corpus, often with the items that they need."""
    choice = rng.random()
    if choice < 0.5:
        return rng.choice(_seeds())
    if choice < 0.7:
        return "\n".join(rng.choice(corpus()) for _ in range(rng.randint(1, 6)))
    chosen: dict[str, None] = {}
    waiting = [rng.choice(corpus()) for _ in range(rng.randint(1, 2))]
    while waiting and len(chosen) < 12:
        text = waiting.pop()
        if text not in chosen:
            chosen[text] = None
            waiting += [rng.choice(_by_name()[w]) for w in sorted(set(re.findall(r"\w+", text))) if w in _by_name()]
    return "\n".join(chosen)


@cache
def _seeds() -> tuple[str, ...]:
    """Small files in which all is right, one for each part of the language."""
    return tuple(Source.read(f).text for f in sorted((ROOT / "tests" / "fuzz" / "seeds").glob("*.tsched")))


@cache
def _by_name() -> dict[str, list[str]]:
    """The items of the corpus by their names."""
    out: dict[str, list[str]] = {}
    for text in corpus():
        if name := re.search(r"^(?!use\b)[a-z]+ (\w+)", text, re.MULTILINE):
            out.setdefault(name[1], []).append(text)
    return out


# --- bytes -----------------------------------------------------------------------------------------------------------


def mutated_bytes(rng: random.Random) -> bytes:
    """A file with a few bytes changed, cut, repeated or taken from another."""
    data = bytearray(some_file(rng).encode())
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + rng.choice((1, 2, 8, 64)))
        match rng.randrange(10):
            case 0:
                data[at:to] = rng.randbytes(to - at)
            case 1:
                data[at:at] = rng.choice(_BYTES)
            case 2:
                data[at:to] = b""
            case 3:
                del data[at:]
            case 4:
                data[at:at] = data[at:to] * rng.choice((1, 2, 10, 1000))
            case 5:
                other = some_file(rng).encode()
                cut = rng.randrange(len(other))
                data[at:to] = other[cut : cut + rng.choice((8, 64, 512))]
            case 6 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 7:
                data = bytearray(data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b";", b" "))))
            case 8:
                data[at:at] = rng.choice(_BYTES) * rng.choice((2, 50, 5000))
            case _:
                data[at:to] = rng.choice(_NUMBERS).encode()
    return bytes(data[:LARGEST])


# --- words -----------------------------------------------------------------------------------------------------------


def mutated_words(rng: random.Random) -> bytes:
    """A file, or a derivation of the grammar, with a few words changed."""
    text = derived(rng) if rng.random() < 0.3 else some_file(rng)
    words = _WORD.findall(text)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 5))):
        if not words:
            break
        at = rng.randrange(len(words))
        match rng.randrange(15):
            case 0:
                del words[at]
            case 1:
                words.insert(at, words[at])
            case 2:
                other = rng.randrange(len(words))
                words[at], words[other] = words[other], words[at]
            case 3:
                words[at] = rng.choice(_vocabulary())
            case 4 | 5 | 12:
                _replace(words, rng, r"\d", _NUMBERS)
            case 6 | 7 | 13:
                _replace(words, rng, r"[A-Za-z_]", [w for w in words if w[:1].isalpha()])
            case 8:
                words[at:at] = _group(words, rng)
            case 9:
                words = _wrapped(words, at, rng)
            case 11:
                words.insert(at, rng.choice(("// one\n", " // two  \n", "\n// three\n", "\n\n/// four\n", "///\n")))
            case 10:
                _replace(words, rng, r"[A-Za-z_]", _vocabulary())
            case _:
                other = _WORD.findall(rng.choice(corpus()))
                words[at : at + 1] = _group(other, rng)
    return "".join(words).encode()[:LARGEST]


def _replace(words: list[str], rng: random.Random, kind: str, others: Sequence[str]) -> None:
    """Replace one word of a kind by another."""
    places = [n for n, w in enumerate(words) if re.match(kind, w)]
    if places and others:
        words[rng.choice(places)] = rng.choice(others)


def _group(words: list[str], rng: random.Random) -> list[str]:
    """The words from some bracket to its partner, both included."""
    closer = {"(": ")", "[": "]", "{": "}"}
    openers = [n for n, w in enumerate(words) if w in closer]
    if not openers:
        return []
    start = rng.choice(openers)
    depth = 0
    for n in range(start, len(words)):
        depth += (words[n] in closer) - (words[n] in closer.values())
        if depth == 0:
            return words[start : n + 1]
    return words[start:]


def _wrapped(words: list[str], at: int, rng: random.Random) -> list[str]:
    """A word nested deeply in brackets."""
    before, after = rng.choice((
        ("(", ")"), ("[", "]"), ("-", ""), ("not ", ""), ("f(", ")"), ("a + ", ""), ("sum[k] ", ""), ("x if y else ", ""),
        ("for l in b.loops { yield ", " }"), ("{1: ", "}"), ("", ".a"), ("", "[0]"), ("", "[1:]"), ("either { ", " } or {}"),
        ("try { ", " }"), ("if a { ", " }"), ("block b { ", " }"), ("for i in 4 { ", " }"), ("(i) -> (", ")"),
    ))  # fmt: skip
    times = rng.choice((1, 1, 2, 2, 3, 20, 60, 99, 101, 101, 3000))
    return [*words[:at], before * times, words[at], after * times, *words[at + 1 :]]


@cache
def _vocabulary() -> tuple[str, ...]:
    return tuple(sorted({w for text in corpus() for w in _WORD.findall(text) if w.strip() and len(w) < 40}))


# --- derivations of the grammar --------------------------------------------------------------------------------------


class Grammar:
    """The rules of `tsched.lark`, read by Lark, with the least depth of their derivations."""

    def __init__(self) -> None:
        read = lark_parser()
        self.words: dict[str, str] = {t.name: str(t.pattern.value) for t in read.terminals if t.pattern.type == "str"}
        self.rules: dict[str, list[list[Any]]] = {}
        for rule in read.rules:
            self.rules.setdefault(str(rule.origin.name), []).append(list(rule.expansion))
        self.depth: dict[str, int] = {}
        while len(self.depth) < len(self.rules):
            for name, choices in self.rules.items():
                depths = [self._depth(c) for c in choices]
                if name not in self.depth and any(d is not None for d in depths):
                    self.depth[name] = 1 + min(d for d in depths if d is not None)
        self.choices = {name: [(self._depth(c) or 0, c) for c in choices] for name, choices in self.rules.items()}

    def _depth(self, symbols: list[Any]) -> int | None:
        depths = [self.depth.get(str(s.name)) if isinstance(s, NonTerminal) else 0 for s in symbols]
        return None if None in depths else max(cast("list[int]", depths), default=0)

    def derive(self, start: str, rng: random.Random, depth: int) -> list[str]:
        """The words of a random derivation of a rule."""
        out: list[str] = []
        stack: list[tuple[Any, int]] = [(NonTerminal(start), depth)]
        while stack and len(out) < 400:
            symbol, room = stack.pop()
            name = str(symbol.name)
            if not isinstance(symbol, NonTerminal):
                out.append(self._word(name, rng))
                continue
            room = max(room, self.depth[name] + 1)
            fitting = [c for depth, c in self.choices[name] if depth < room]
            stack.extend((s, room - 1) for s in reversed(rng.choice(fitting)))
        return out

    def _word(self, name: str, rng: random.Random) -> str:
        match name:
            case "NAME":
                return rng.choice(_names())
            case "INT" | "FLOAT":
                return rng.choice(_NUMBERS)
            case "STRING":
                return rng.choice(('"SSRS"', '""', '"local"', '"\\n"', '"\\u{1F600}"', '"a b"'))
            case "COMPARE":
                return rng.choice(("<", "<=", "==", "!=", ">", ">="))
            case "DOC":
                return "\n/// of it\n"
            case "_NL":
                return "\n"
            case "REDUCE_OF":
                return rng.choice(REDUCERS)
            case "REDUCE_BY":
                return "reduce"
            case "SCAN_OF":
                return "scan"
            case _:
                return self.words[name]


@cache
def _names() -> tuple[str, ...]:
    return tuple(w for w in _vocabulary() if re.fullmatch(r"[A-Za-z_]\w*", w)) + tuple("abcijklmnxyABCMNK") * 10


@cache
def grammar() -> Grammar:
    return Grammar()


def derived(rng: random.Random) -> str:
    """A file that the grammar can derive."""
    return "\n".join(
        " ".join(grammar().derive("item", rng, rng.randint(8, 30))) for _ in range(rng.randint(1, 3))
    )  # fmt: skip

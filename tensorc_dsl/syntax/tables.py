"""The parser tables of the grammar as plain values. Lark computes them once, and `syntax.engine` runs them without Lark.

Later starts read the tables from a cache.
"""

from __future__ import annotations

import marshal
import re
import sys
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from tensorc_dsl.base.outputs import replace_file
from tensorc_dsl.base.resources import cache_path, grammar_text

if TYPE_CHECKING:
    import lark


class Tables(NamedTuple):
    """Plain values only, so that they can be serialized as they are."""

    words: str
    """One pattern for all words, whose groups are the kinds."""
    cut: str
    """The same pattern without groups."""
    keywords: dict[str, dict[str, str]]
    """For each kind, the words that match its pattern and have a kind of their own."""
    ignored: tuple[str, ...]
    start: int
    end: int
    actions: list[dict[str, int]]
    """By state and kind of word: the state to go to, or `~n` to reduce by rule number n. States share equal rows."""
    gotos: list[dict[str, int]]
    rules: list[tuple[str, str, tuple[str, ...], tuple[int, ...]]]
    """For each rule: name; the builder's method, `""` for a list, `"="` for the value of its only part; parts; plan.

    A part is a kind of word, or `""` for the value of a rule. The plan lists the values to pass: positions of parts, `~n` for
    all entries of the list at n, and NOTHING for an optional part that is missing.
    """


NOTHING = 1_000_000


def tables() -> Tables:
    """The tables of the grammar, from the cache if they are in it."""
    grammar = grammar_text()
    # The code that makes the tables is part of the cache's key.
    recipe = f"{sys.version}\n{Path(__file__).read_text(encoding='utf-8')}\n{grammar}"
    file = cache_path(f"tables-{crc32(recipe.encode()):08x}")
    if file is not None:
        try:
            made_by, *made = marshal.loads(file.read_bytes())
            if made_by == recipe:
                return Tables(*made)
        except (OSError, ValueError, EOFError, TypeError):
            pass  # missing or incomplete
    made = _made()
    if file is not None:
        with suppress(OSError):  # without a cache the next start is slower, nothing else
            replace_file(file, marshal.dumps((recipe, *made)))
    return made


def lark_parser(postlex: Any = None) -> lark.Lark:
    """Lark's parser for tests and for making the tables. It is built from the grammar once, and then from Lark's cache."""
    from hashlib import sha256

    import lark  # a late import: reading a text needs the tables only

    grammar = grammar_text()
    version = sha256(f"{lark.__version__}\n{sys.version}\n{grammar}".encode()).hexdigest()
    file = cache_path(f"grammar-{version[:16]}")
    return lark.Lark(
        grammar, parser="lalr", lexer="basic", start="file", keep_all_tokens=True, postlex=postlex or _Always(),
        cache=str(file) if file else False,
    )  # fmt: skip


def _made() -> Tables:
    parser: Any = lark_parser()
    table = parser.parser.parser.parser.parse_table
    number: dict[Any, int] = {rule: n for n, rule in enumerate(parser.rules)}
    actions: list[dict[str, int]] = [{} for _ in table.states]
    gotos: list[dict[str, int]] = [{} for _ in table.states]
    for state, row in table.states.items():
        # Lark's names are a subclass of str that cannot be serialized.
        for kind, (_, argument) in sorted(((str(kind), to) for kind, to in row.items()), key=itemgetter(0)):
            if isinstance(argument, int):
                (actions if kind.isupper() or kind.startswith("$") else gotos)[state][kind] = argument
            else:
                actions[state][kind] = ~number[argument]
    words, keywords = _words(parser)
    cut = re.sub(r"(?<!\\)\((\?P<\w+>|(?!\?))", "(?:", words)
    assert re.compile(cut).groups == 0, f"a bracket of this is taken for a group: {words}"
    start, end = table.start_states["file"], table.end_states["file"]
    ignored = tuple(map(str, parser.lexer_conf.ignore))
    rules = [*map(_rule, parser.rules)]
    return Tables(words, cut, keywords, ignored, start, end, _shared(actions), _shared(gotos), rules)


def _shared(rows: list[dict[str, int]]) -> list[dict[str, int]]:
    """The same rows, with equal rows as one object, so that they are serialized once."""
    seen: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
    return [seen.setdefault(tuple(row.items()), row) for row in rows]


class _Always:
    """Stands for the layout pass: it declares to Lark the kinds of words that the lexer accepts everywhere."""

    always_accept = ("NEWLINE", "SEMICOLON", "DOC")

    def process(self, stream: Any) -> Any:
        return stream


def _words(parser: Any) -> tuple[str, dict[str, dict[str, str]]]:
    """The pattern of all words and the special words of each kind, as Lark's own lexer computes them."""
    patterns = [t for t in parser.terminals if t.pattern.type == "re"]
    fixed = [t for t in parser.terminals if t.pattern.type == "str"]
    keywords: dict[str, dict[str, str]] = {}
    looked_up: set[str] = set()
    for p in patterns:
        for f in fixed:
            if f.priority == p.priority and re.fullmatch(p.pattern.to_regexp(), f.pattern.value):
                keywords.setdefault(str(p.name), {})[str(f.pattern.value)] = str(f.name)
                looked_up.add(f.name)
    order = sorted(
        (t for t in parser.terminals if t.name not in looked_up),
        key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name),
    )
    return "|".join(f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in order), keywords


def _rule(rule: Any) -> tuple[str, str, tuple[str, ...], tuple[int, ...]]:
    origin, options = str(rule.origin.name), rule.options
    parts = tuple(str(symbol.name) if symbol.is_term else "" for symbol in rule.expansion)
    if not rule.alias and options.expand1 and len(parts) == 1:
        return origin, "=", parts, (0,)
    plan: list[int] = []
    position = 0
    for left_out in options.empty_indices or [False] * len(parts):
        if left_out:
            plan.append(NOTHING)
            continue
        symbol = rule.expansion[position]
        plan.append(~position if not symbol.is_term and symbol.name.startswith("_") else position)
        position += 1
    return origin, "" if origin.startswith("_") else str(rule.alias or origin), parts, tuple(plan)

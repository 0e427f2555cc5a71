"""The parser: the tables of the grammar, which Lark computes once and a cache keeps, and the engine that runs them without
Lark and calls the builder for each complete rule.

To load Lark takes half of the time in which `check` should start, and its parser spends most of its time on unit rules
(`sum: product: unary: …`), which this one follows in one cached step.
"""

from __future__ import annotations

import marshal
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from tensorc_dsl.base.outputs import replace_file
from tensorc_dsl.base.resources import cache_path, grammar_text
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.syntax.layout import Arranged, Tree

if TYPE_CHECKING:
    import lark


VALUES = frozenset("INT FLOAT STRING COMPARE PLUS MINUS STAR SLASH PERCENT AND OR REDUCE_OF DOC".split())
"""Kinds of words that are passed to a builder; the other words are implied by their rule."""
PLACED = frozenset(("STRING", "DOC"))
"""Kinds of words that are passed as tokens with their places; of the other kinds, only the text is passed."""
WORDS = frozenset("name loop_kind name_pattern".split())
"""Methods of the builder to which all words are passed."""

Method = Callable[[Span, list[Any]], Any]
_Chain = tuple[int, tuple[tuple[Method, bool], ...]]
"""The state after a chain of rules with one part each, and the methods of these rules; True for methods without arguments."""


class Unexpected(Exception):
    """Word number `n` cannot stand at its position. `accepts` has the kinds of words that could."""

    def __init__(self, n: int, accepts: frozenset[str]) -> None:
        super().__init__(f"word {n} is not one of {sorted(accepts)}")
        self.n = n
        self.accepts = accepts


@dataclass(slots=True)
class _Rule:
    """The action of a complete rule."""

    name: str
    size: int
    single: bool
    """Whether the rule has a single part: its value is that of the method, or the part itself if there is no method."""
    method: Method | None
    """The method that makes the rule's value; None for a rule that is only a list."""
    plan: tuple[int, ...]
    whole: bool
    """Whether the plan passes all parts as they are."""
    plain: bool
    """Whether the plan consists of positions only."""


class Engine:
    """Parses words, and calls the methods of `builder` for their rules; without a builder it returns a tree of all words."""

    def __init__(self, tables: Tables, builder: Any = None) -> None:
        self._tables = tables
        self._builder = builder
        self._rules = [self._rule(*r) for r in tables.rules]
        self._chains: dict[tuple[int, int, str], _Chain] = {}

    def _rule(self, name: str, method_name: str, parts: tuple[str, ...], plan: tuple[int, ...]) -> _Rule:
        assert parts or name == "file", f"`{name}` may be empty, and has no place then"
        method: Method | None = None
        if method_name not in ("", "="):
            method = getattr(self._builder, method_name) if self._builder is not None else _tree(method_name)
        if self._builder is not None and (method is None or method.__name__ not in WORDS):
            plan = tuple(p for p in plan if not 0 <= p < NOTHING or not parts[p] or parts[p] in VALUES)
        plain = all(0 <= p < NOTHING for p in plan)
        single = len(parts) == 1 and (method_name == "=" or (method is not None and plan in ((), (0,))))
        return _Rule(name, len(parts), single, method, plan, plan == (*range(len(parts)),), plain)

    def parse(self, source: Source, start: int, end: int, arranged: Arranged) -> Any:
        """The builder's value for the words between two offsets of the text.

        Raises Unexpected, the error that stops the arranged words, and exceptions of the builder.
        """
        actions, gotos, rules, chains = self._tables.actions, self._tables.gotos, self._rules, self._chains
        state, final = self._tables.start, self._tables.end
        # By depth: the states, and the values with their spans.
        states, values, starts, ends = [state], list[Any](), list[int](), list[int]()
        for n, (kind, word, begin, behind) in enumerate(self._words(arranged, end)):
            while True:
                action = actions[state].get(kind)
                if action is None:
                    raise Unexpected(n, self._accepts(states))
                if action >= 0:
                    states.append(action)
                    values.append(word)
                    starts.append(begin)
                    ends.append(behind)
                    state = action
                    break
                rule = rules[~action]
                if rule.single:
                    key = states[-2], state, kind
                    state, steps = chains[key] if key in chains else self._chain(*key)
                    states[-1] = state
                    if steps:
                        span = Span(source, starts[-1], ends[-1])
                        for method, bare in steps:
                            values[-1] = method(span, [] if bare else values[-1:])
                    continue
                size, method, parts = rule.size, rule.method, list[Any]()
                base = len(values) - size
                if rule.whole:
                    parts = values[base:]
                elif rule.plain:
                    for p in rule.plan:
                        parts.append(values[base + p])
                else:
                    for p in rule.plan:
                        if p == NOTHING:
                            parts.append(None)
                        elif p >= 0:
                            parts.append(values[base + p])
                        elif parts:
                            parts += values[base + ~p]
                        else:
                            # No other code uses the list, and copying a long one at each step would be quadratic.
                            parts = values[base + ~p]
                first, last = (starts[base], ends[-1]) if size else (start, start)
                value = parts if method is None else method(Span(source, first, last), parts)
                del values[base:], starts[base:], ends[base:], states[base + 1 :]
                state = gotos[states[base]][rule.name]
                if state == final:
                    return value
                states.append(state)
                values.append(value)
                starts.append(first)
                ends.append(last)
        assert arranged.stop is not None, "a text ends at its end"
        raise arranged.stop

    def _words(self, arranged: Arranged, end: int) -> Iterator[tuple[str, str, int, int]]:
        """Kind, value, begin and end of each word, and of the end of the text unless an error stops the words."""
        words = arranged.words
        if self._builder is None:
            values = [words.token(n) for n in range(len(words.kinds))]
        else:
            values = words.texts.copy()
            for n, kind in enumerate(words.kinds):
                if kind in PLACED:
                    values[n] = words.token(n)
        ending = [("$END", "", end, end)] if arranged.stop is None else []
        return chain(zip(words.kinds, values, words.starts, words.ends, strict=True), ending)

    def _chain(self, below: int, state: int, kind: str) -> _Chain:
        """The state to which rules of a single part lead from `state`, one after the other, before a word of `kind`."""
        to, steps = state, list[tuple[Method, bool]]()
        while True:
            action = self._tables.actions[to].get(kind, 0)
            if action >= 0 or not (rule := self._rules[~action]).single:
                break
            if rule.method is not None:
                steps.append((rule.method, not rule.plan))
            to = self._tables.gotos[below][rule.name]
        self._chains[below, state, kind] = to, tuple(steps)
        return to, tuple(steps)

    def _accepts(self, states: list[int]) -> frozenset[str]:
        """The kinds of words that can stand next."""
        return frozenset(kind for kind in self._tables.actions[states[-1]] if self._goes_on(states, kind))

    def _goes_on(self, states: list[int], kind: str) -> bool:
        """Whether the rules that are complete before a word of `kind` lead to a state that accepts it."""
        stack = states.copy()
        while (action := self._tables.actions[stack[-1]].get(kind)) is not None:
            if action >= 0:
                return True
            rule = self._rules[~action]
            del stack[len(stack) - rule.size :]
            stack.append(self._tables.gotos[stack[-1]][rule.name])
            if stack[-1] == self._tables.end:
                return True
        return False


def _tree(rule: str) -> Method:
    def method(_span: Span, parts: list[Any]) -> Tree:
        return Tree(rule, parts)

    return method


# The tables of the grammar as plain values.


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
            replace_file(file, [marshal.dumps((recipe, *made))])
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

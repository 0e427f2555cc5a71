"""An LALR parser over the tables of the grammar: words are told apart by one pattern, and a rule that is complete calls the
builder at once. It knows texts that are right; where one is not, it says so and no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tensorc_dsl.source import Source, Span
from tensorc_dsl.syntax.layout import Layout
from tensorc_dsl.syntax.tables import NOTHING, Tables
from tensorc_dsl.syntax.words import Token

VALUES = frozenset("INT FLOAT STRING COMPARE PLUS MINUS STAR SLASH PERCENT AND OR REDUCE_OF DOC".split())
"""Kinds of words that a builder is given; the others say nothing that their rule does not say."""
WORDS = frozenset("name loop_kind name_pattern".split())
"""Builder's methods that are given every word."""

Method = Callable[[Any, Span, list[Any]], Any]


class NotThis(Exception):
    """The text is not one of the grammar."""


@dataclass(slots=True)
class _Rule:
    """What happens when a rule is complete."""

    name: str
    size: int
    only: bool
    """It stands for its only part."""
    method: Method | None
    """What makes a value of the parts; a mere list has none."""
    plan: tuple[int, ...]
    plain: bool
    """The plan has only positions."""


class Engine:
    """Reads texts into what the methods of `builder` make of their rules."""

    def __init__(self, tables: Tables, builder: Any) -> None:
        self._tables = tables
        self._builder = builder
        self._words = re.compile(f"{tables.words}|(?P<BAD>(?s:.))")
        self._ignored = frozenset(tables.ignored)
        self._rules = [self._rule(*r) for r in tables.rules]
        self._jumps: dict[tuple[int, int, str], int] = {}

    def _rule(self, name: str, method_name: str, parts: tuple[str, ...], plan: tuple[int, ...]) -> _Rule:
        assert parts or name == "file", f"`{name}` may be empty, and has no place then"
        method: Method | None = getattr(self._builder.__class__, method_name) if method_name not in ("", "=") else None
        if method is None or method.__name__ not in WORDS:
            plan = tuple(p for p in plan if not 0 <= p < NOTHING or not parts[p] or parts[p] in VALUES)
        plain = all(0 <= p < NOTHING for p in plan)
        return _Rule(name, len(parts), method_name == "=", method, plan, plain)

    def words(self, text: str, start: int, end: int) -> Iterator[Token]:
        """The words of a part of a text. Raises NotThis."""
        keywords, ignored = self._tables.keywords, self._ignored
        for m in self._words.finditer(text, start, end):
            kind = m.lastgroup
            assert kind is not None
            if kind in ignored:
                continue
            word = m.group()
            if kind in keywords:
                kind = keywords[kind].get(word, kind)
            elif kind == "BAD":
                raise NotThis
            yield Token(kind, word, *m.span())

    def parse(self, source: Source, start: int, end: int, layout: Layout) -> Any:
        """What the builder makes of the text between two places. Raises NotThis, and what the layout and the builder do."""
        actions, gotos, rules = self._tables.actions, self._tables.gotos, self._rules
        builder = self._builder
        state = self._tables.start
        # By depth: the states, and what was read with its place.
        states, values, starts, ends = [state], list[Any](), list[int](), list[int]()
        words = layout.process(self.words(source.text, start, end))
        for token in chain(words, [Token("$END", "", end, end)]):
            kind = token.type
            while True:
                action = actions[state].get(kind)
                if action is None:
                    raise NotThis
                if action >= 0:
                    states.append(action)
                    values.append(token)
                    starts.append(token.start_pos)
                    ends.append(token.end_pos)
                    state = action
                    break
                rule = rules[~action]
                if rule.only:
                    states[-1] = state = self._jump(states[-2], state, kind)
                    continue
                base = len(values) - rule.size
                if rule.plain:
                    parts = [values[base + p] for p in rule.plan]
                else:
                    parts = list[Any]()
                    for p in rule.plan:
                        if p == NOTHING:
                            parts.append(None)
                        elif p >= 0:
                            parts.append(values[base + p])
                        elif parts:
                            parts += values[base + ~p]
                        else:
                            # Nobody else needs the list, and a long one must not be copied at each step.
                            parts = values[base + ~p]
                first, last = (starts[base], ends[-1]) if rule.size else (start, start)
                method = rule.method
                value = parts if method is None else method(builder, Span(source, first, last), parts)
                del values[base:], starts[base:], ends[base:], states[base + 1 :]
                state = gotos[states[-1]][rule.name]
                if state == self._tables.end:
                    return value
                states.append(state)
                values.append(value)
                starts.append(first)
                ends.append(last)
        raise NotThis

    def _jump(self, below: int, state: int, kind: str) -> int:
        """Where rules that stand for their only part lead from a state, one after the other, before a word of a kind."""
        key = below, state, kind
        if key not in self._jumps:
            while True:
                action = self._tables.actions[state].get(kind, 0)
                if action >= 0 or not (rule := self._rules[~action]).only:
                    break
                state = self._tables.gotos[below][rule.name]
            self._jumps[key] = state
        return self._jumps[key]

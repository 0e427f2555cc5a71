"""An LALR parser that runs the tables of the grammar and calls the builder for each complete rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.syntax.layout import Arranged
from tensorc_dsl.syntax.tables import NOTHING, Tables
from tensorc_dsl.syntax.words import Tree

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

"""Spaces in spaces: replaces a rule that names a space by the rules of that space, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.source import Span
from tensorc_dsl.check import problems
from tensorc_dsl.syntax import tree as t

MOST_RULES = 256
"""The largest number of rules of a space: each is tried on every block, and is copied into each space that names this one."""


def rule_name(rule: t.Expr) -> str:
    """The module or space that a rule names."""
    function = rule.function if isinstance(rule, t.CallExpr) else rule
    return function.id if isinstance(function, t.Name) else ""


class Inclusion:
    """The spaces of a file, with the rules of the spaces that they name put in place.

    `spaces` and `modules` are those that the file can name; a module takes precedence over a space of its name. Spaces of
    other files are complete already. `kind` is the kind of target that a target's name stands for; None for unknown names.
    """

    def __init__(
        self, spaces: Mapping[str, t.SpaceDef], modules: Mapping[str, t.ModuleDef], kind: Callable[[str], str | None]
    ) -> None:
        self._spaces = spaces
        self._modules = modules
        self._kind = kind
        self._circular: set[str] = set()
        self.found: list[Diagnostic] = []

    def whole(self, own: Mapping[str, t.SpaceDef]) -> dict[str, t.SpaceDef]:
        """The file's own spaces with the rules of others. Wrong rules are left out and reported in `found`."""
        graph = {name: [n for n in self._named(s) if n in own] for name, s in own.items()}
        whole = dict(self._spaces)
        for name in self._order(graph):
            whole[name] = self._with(own[name], whole)
        return {name: whole[name] for name in own}

    def _named(self, s: t.SpaceDef) -> Iterator[str]:
        for rule in s.rules:
            if (name := rule_name(rule)) in self._spaces and name not in self._modules:
                yield name

    def _order(self, graph: dict[str, list[str]]) -> list[str]:
        """The spaces, each after those that it names. Cycles are reported and cut."""
        while True:
            try:
                return [*TopologicalSorter(graph).static_order()]
            except CycleError as e:
                circle: list[str] = e.args[1][::-1]
                first = min(circle, key=lambda n: self._spaces[n].name.span.start)
                at = circle.index(first)
                text = " > ".join((*circle[at:-1], *circle[:at], first))
                self.found.append(problems.SPACE_IN_ITSELF(self._spaces[first].name.span, name=first, chain=text))
                graph |= {name: [] for name in circle}
                self._circular.update(circle)

    def _with(self, s: t.SpaceDef, known: Mapping[str, t.SpaceDef]) -> t.SpaceDef:
        rules: dict[Span, t.Expr] = {}
        own = self._kind(s.target)
        for rule in s.rules:
            name = rule_name(rule)
            inner = None if name in self._modules else known.get(name)
            if inner is None:
                rules[rule.span] = rule
                continue
            if name in self._circular and s.name in self._circular:
                continue
            kind = self._kind(inner.target)
            if None not in (own, kind) and kind != own:
                self.found.append(problems.OTHER_KIND(rule.span, name=name, kind=kind, space=s.name, own=own))
            # A rule is identified by its place in the text, through however many spaces it came.
            elif any(r.span in rules for r in inner.rules):
                self.found.append(problems.RULES_TWICE(rule.span, name=name))
            else:
                rules |= {r.span: r for r in inner.rules}
        if len(rules) > MOST_RULES:
            self.found.append(problems.TOO_MANY_RULES(s.name.span, most=MOST_RULES))
            return replace(s, rules=())
        return replace(s, rules=tuple(rules.values()))

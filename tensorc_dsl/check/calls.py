"""Checks arguments against signatures, with one rule for primitives, modules, draws, functions, methods and queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorc_dsl.check.kinds import INT, LOOP, Kind, ListOf, fits, show, show_all
from tensorc_dsl.check.problems import GIVEN_TWICE, MISSING, NO_PARAMETER, TOO_MANY, WRONG_KIND
from tensorc_dsl.check.signatures import Parameter, Signature, usage
from tensorc_dsl.diagnostic import Diagnostic
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near


@dataclass(frozen=True, slots=True)
class Arguments:
    """The kinds of a call's arguments, in order; keyword arguments by their names."""

    args: list[Kind]
    kwargs: list[Kind]


def problems(call: tree.CallExpr, name: str, s: Signature, kinds: Arguments, given: int = 0) -> Iterator[Diagnostic]:
    """The findings about the arguments; the first `given` parameters have values that are not in the call."""
    own = s.positional[given:]
    for a, kind, parameter in zip(call.args, kinds.args, own, strict=False):
        yield from _kind(a, kind, parameter, name, s)
    rest = call.args[len(own) :]
    if rest and s.rest is None:
        wanted = f"{len(own)} argument{'s' * (len(own) != 1)}" if own else "no arguments"
        wanted = f"{wanted} without a name" if len(s.positional) < len(s.params) else wanted
        shape = usage(name, s)
        if [p.wanted for p in own] == [(LOOP,)] and kinds.args[1:] == [INT] and isinstance(call.args[0], tree.Name):
            loop = call.args[0].id
            shape = f"split it first: `let [outer, inner] = split({loop}, [_, {rest[0].span.text}])`, `{name}(inner)`"
        yield TOO_MANY(rest[0].span, name=name, wanted=wanted, count=len(call.args), usage=shape)
    elif s.rest is not None:
        for a, kind in zip(rest, kinds.args[len(own) :], strict=True):
            yield from _kind(a, kind, s.rest, name, s, spread=True)
    have = {p.name for p in s.positional[: given + len(call.args)]}
    known = {p.name: p for p in s.params if p.named or s.keywords}
    for (key, value), kind in zip(call.kwargs, kinds.kwargs, strict=True):
        if key in have:
            yield GIVEN_TWICE(key.span, name=name, parameter=key, usage=usage(name, s))
        elif key not in known:
            free = [p.name for p in (*own, *s.params) if p.name in known and p.name not in have]
            yield NO_PARAMETER(key.span, notes=near(key, free, "leave it out"), name=name, parameter=key)
        else:
            yield from _kind(value, kind, known[key], name, s)
        have.add(key)
    for p in s.params[given:]:
        if p.required and p.name not in have:
            yield MISSING(call.span, name=name, parameter=p.name, usage=usage(name, s))
            return


def _kind(
    at: tree.Expr, kind: Kind, p: Parameter, name: str, s: Signature, spread: bool = False
) -> Iterator[Diagnostic]:
    """The finding for an argument of a kind that the parameter does not accept; `spread` accepts lists of the kind."""
    inner = kind
    while spread and isinstance(inner, ListOf) and not fits(inner, p.wanted):
        inner = inner.element
    if not fits(inner, p.wanted):
        wanted, found = show_all(p.wanted), show(kind)
        shape = usage(name, s)
        if p.name == "factors" and kind == INT:
            shape = f"write a factor for each loop, `_` for the one that follows from the others: `[_, {at.span.text}]`"
        yield WRONG_KIND(at.span, name=name, usage=shape, wanted=wanted, parameter=p.name, found=found)

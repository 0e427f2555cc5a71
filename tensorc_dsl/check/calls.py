"""Checks arguments against signatures, with one rule for primitives, modules, draws, functions, methods and queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.check.kinds import (
    INT,
    LOOP,
    NOTHING,
    Kind,
    ListOf,
    ModuleOf,
    Parameter,
    arguments,
    fits,
    misfit,
    show,
    show_all,
    solve,
    solved_parameter,
)
from tensorc_dsl.check.problems import GIVEN_TWICE, MISFIT, MISSING, NO_PARAMETER, TOO_MANY, WRONG_KIND
from tensorc_dsl.check.signatures import Signature, usage
from tensorc_dsl.schedule.patterns import findings
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near


@dataclass(frozen=True, slots=True)
class Arguments:
    """The kinds of a call's arguments, in order; keyword arguments by their names."""

    args: list[Kind]
    kwargs: list[Kind]


def solved(call: tree.CallExpr, s: Signature, kinds: Arguments, given: int = 0) -> Signature:
    """The signature as this call has it: the variables of its kinds are what the arguments are.

    What a module is applied to says more than the module does, which may take anything.
    """
    by_name = {p.name: p for p in s.params}
    pairs = [*zip(kinds.args, s.positional[given:], strict=False)]
    pairs += [(kind, by_name[key]) for (key, _), kind in zip(call.kwargs, kinds.kwargs, strict=True) if key in by_name]
    known: dict[str, Kind] = {}
    for kind, p in sorted(pairs, key=lambda pair: isinstance(pair[0], ModuleOf)):
        for wanted in p.wanted:
            solve(kind, wanted, known)
    return replace(s, params=tuple(solved_parameter(p, known) for p in s.params))


def problems(
    call: tree.CallExpr, name: str, s: Signature, kinds: Arguments, given: int = 0, whole: bool = True
) -> Iterator[Diagnostic]:
    """The findings about the arguments; the first `given` parameters have values that are not in the call.

    Others may lack values if it is not the `whole` of them.
    """
    own = s.positional[given:]
    for a, kind, parameter in zip(call.args, kinds.args, own, strict=False):
        yield from kind_problems(a, kind, parameter, name, s)
    rest = call.args[len(own) :]
    if rest and s.rest is None:
        wanted = arguments(len(own))
        wanted = f"{wanted} without a name" if len(s.positional) < len(s.params) else wanted
        shape = usage(name, s)
        if [p.wanted for p in own] == [(LOOP,)] and kinds.args[1:] == [INT] and isinstance(call.args[0], tree.Name):
            loop = call.args[0].id
            shape = f"split it first: `let [outer, inner] = split({loop}, [_, {rest[0].span.text}])`, `{name}(inner)`"
        yield TOO_MANY(rest[0].span, name=name, wanted=wanted, count=len(call.args), usage=shape)
    elif s.rest is not None:
        for a, kind in zip(rest, kinds.args[len(own) :], strict=True):
            yield from kind_problems(a, kind, s.rest, name, s, spread=True)
    have = {p.name for p in s.positional[: given + len(call.args)]}
    known = {p.name: p for p in s.params if p.named or s.keywords}
    for (key, value), kind in zip(call.kwargs, kinds.kwargs, strict=True):
        if key in have:
            yield GIVEN_TWICE(key.span, name=name, parameter=key, usage=usage(name, s))
        elif key not in known:
            free = [p.name for p in (*own, *s.params) if p.name in known and p.name not in have]
            yield NO_PARAMETER(key.span, notes=near(key, free, "leave it out"), name=name, parameter=key)
        else:
            yield from kind_problems(value, kind, known[key], name, s)
        have.add(key)
    for p in s.params[given:]:
        if whole and p.required and p.name not in have:
            yield MISSING(call.span, name=name, parameter=p.name, usage=usage(name, s))
            return


def kind_problems(
    at: tree.Expr, kind: Kind, p: Parameter, name: str, s: Signature, spread: bool = False
) -> Iterator[Diagnostic]:
    """The finding for an argument of a kind that the parameter does not accept; `spread` accepts lists of the kind."""
    if p.pattern is not None and isinstance(at, tree.String):
        yield from findings(at, p.pattern)
    inner = kind
    while spread and isinstance(inner, ListOf) and not fits(inner, p.wanted):
        inner = inner.element
    if isinstance(inner, ModuleOf) and len(p.wanted) == 1 and isinstance(p.wanted[0], ModuleOf):
        if reason := misfit(inner, p.wanted[0]):
            takes = " and ".join(show_all(q.wanted) for q in p.wanted[0].params) or "nothing"
            repair = f"pass a module that takes {takes}"
            if left := [q.name for q in inner.params[len(p.wanted[0].params) :] if q.required]:
                text = at.span.text
                begun = f"{text[:-1]}, " if isinstance(at, tree.CallExpr) else f"{text}("
                repair += f", or give the rest by name here: `{begun}{', '.join(f'{n}=…' for n in left)})`"
            yield MISFIT(
                at.span, module=at.span.text, name=name, parameter=p.name, takes=takes, reason=reason, repair=repair
            )
    elif not fits(inner, p.wanted):
        wanted, found = show_all(p.wanted), show(kind)
        shape = usage(name, s)
        if kind == NOTHING and isinstance(at, tree.CallExpr) and any(isinstance(w, ModuleOf) for w in p.wanted):
            shape = f"this applies the module: pass it as `{at.function.span.text}`, with options by name if it has any"
        if p.name == "factors" and kind == INT:
            shape = f"write a factor for each loop, `_` for the one that follows from the others: `[_, {at.span.text}]`"
        yield WRONG_KIND(at.span, name=name, usage=shape, wanted=wanted, parameter=p.name, found=found)

"""Do the arguments of a call fit the signature? One rule for primitives, modules, distributions and functions."""

from __future__ import annotations

from collections.abc import Iterator

from tensorc_dsl.check.problems import GIVEN_TWICE, MISSING, NO_PARAMETER, TOO_MANY, near
from tensorc_dsl.check.vocabulary import Signature
from tensorc_dsl.diagnostic import Diagnostic
from tensorc_dsl.schedule.primitive import Primitive
from tensorc_dsl.syntax import tree


def of_primitive(p: Primitive) -> tuple[Signature, tuple[str, ...]]:
    """A primitive's signature, and the parameters that are given by keyword only."""
    params = list(p.signature.parameters.values())
    fixed = [x for x in params if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    required = sum(1 for x in fixed if x.default is x.empty)
    rest = any(x.kind is x.VAR_POSITIONAL for x in params)
    named = tuple(x.name for x in params if x.kind is x.KEYWORD_ONLY)
    return Signature(tuple(x.name for x in fixed), required, rest), named


def usage(name: str, s: Signature, named: tuple[str, ...] = ()) -> str:
    """How it is called: `split(loop, factors, partial=…)`."""
    optional = [f"{p}=…" if s.keywords else f"[{p}]" for p in s.params[s.required :]]
    parts = [*s.params[: s.required], *optional, *(["…"] if s.rest else []), *(f"{p}=…" for p in named)]
    return f"`{name}({', '.join(parts)})`"


def problems(
    call: tree.CallExpr, name: str, s: Signature, named: tuple[str, ...] = (), given: int = 0
) -> Iterator[Diagnostic]:
    """What is wrong with the arguments; `given` of the first parameters have a value before the call's own."""
    own = s.params[given:]
    shape = usage(name, s, named)
    if len(call.args) > len(own) and not s.rest:
        wanted = f"{len(own)} argument{'s' * (len(own) != 1)}" if own else "no arguments"
        wanted = f"{wanted} without a name" if named else wanted
        yield TOO_MANY(call.args[len(own)].span, name=name, wanted=wanted, count=len(call.args), usage=shape)
    have = set(s.params[: given + len(call.args)])
    for key, value in call.kwargs:
        if key in have:
            yield GIVEN_TWICE(value.span, name=name, parameter=key, usage=shape)
        elif (key not in s.params or not s.keywords) and key not in named:
            known = (*(own if s.keywords else ()), *named)
            yield NO_PARAMETER(value.span, notes=near(key, known), name=name, parameter=key)
        have.add(key)
    for parameter in s.params[: s.required]:
        if parameter not in have and not (s.rest and call.args):
            yield MISSING(call.span, name=name, parameter=parameter, usage=shape)
            return

"""Turns `target` items into `Target` values, which spaces, code generators and records use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.check import problems
from tensorc_dsl.ir.kinds import is_kind, kind_of, kinds, own_kinds
from tensorc_dsl.ir.target import Target
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import listed, near

FACTS = tuple(f.name for f in fields(Target) if f.name not in ("kind", "device"))
"""The facts that a target item may state; other facts are those of a plain machine, wherever the file is read."""

_MOST = 1 << 48


def target_of(item: t.TargetDef) -> Target:
    """The target that an item describes. Raises TschedError with all findings."""
    found: list[Diagnostic] = []
    if not is_kind(item.kind):
        found.append(problems.UNKNOWN_TARGET(item.kind.span, notes=near(item.kind, kinds()), name=item.kind))
    facts: dict[str, Any] = {}
    for name, value in item.facts:
        if name not in FACTS:
            found.append(problems.NO_FACT(value.span, notes=near(name, FACTS), name=name))
        elif name in facts:
            found.append(problems.BOUND_TWICE(value.span, name=name))
        else:
            known = _fact(name, value)
            if isinstance(known, Diagnostic):
                found.append(known)
            facts[name] = 0 if isinstance(known, Diagnostic) else known
    missing = [f for f in kind_of(str(item.kind)).facts if f not in facts]
    if missing and not found:
        found.append(problems.MISSING_FACTS(item.kind.span, name=item.name, facts=listed(missing)))
    if found:
        raise TschedError(*found)
    return replace(Target(kind=str(item.kind)), **facts)


def _fact(name: str, value: t.Expr) -> int | str | Diagnostic:
    """The value of a fact, or the finding about it."""
    match name, value:
        case "cpu", t.String(value=text):
            return text
        case "cpu", _:
            return problems.WRONG_FACT(value.span, name=name, wanted='a string, LLVM\'s name: "znver4"')
        case "triple", t.String(value=text):
            return text
        case "triple", _:
            return problems.WRONG_FACT(
                value.span, name=name, wanted='a string, LLVM\'s name: "aarch64-unknown-linux-gnu"'
            )
        case "features", t.ListExpr(items=items) if all(isinstance(i, t.String) for i in items):
            return ",".join(sorted({f"+{i.value}" for i in items if isinstance(i, t.String)}))
        case "features", _:
            return problems.WRONG_FACT(value.span, name=name, wanted='a list of strings: ["avx2", "fma"]')
        case "vector_bits", t.Number(value=int() as bits) if 64 <= bits <= 8192 and bits & (bits - 1) == 0:
            return bits
        case "vector_bits", _:
            return problems.WRONG_FACT(value.span, name=name, wanted="a power of two from 64 to 8192")
        case _, t.Number(value=int() as number) if (name == "shared_memory" or number > 0) and number < _MOST:
            return number
        case _:
            return problems.WRONG_FACT(value.span, name=name, wanted="a positive int")


def check_target(item: t.TargetDef) -> tuple[Diagnostic, ...]:
    """The findings about a target item."""
    found: list[Diagnostic] = []
    # Kinds of other packages are allowed: the meaning of a file must not depend on what is installed.
    if item.name in (*own_kinds(), "native"):
        found.append(problems.TAKEN_TARGET(item.name.span, name=item.name))
    try:
        target_of(item)
    except TschedError as e:
        found += e.diagnostics
    return tuple(found)


def check_target_name(space: t.SpaceDef, targets: Iterable[str]) -> tuple[Diagnostic, ...]:
    """The finding for a space whose target is neither a kind of target nor one that the file describes."""
    described = tuple(targets)
    if space.target in described or is_kind(space.target):
        return ()
    place = space.target.span
    return (problems.UNKNOWN_TARGET(place, notes=near(space.target, (*kinds(), *described)), name=space.target),)

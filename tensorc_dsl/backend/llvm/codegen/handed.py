"""What a function of its own inside of a kernel is given: the buffers and variables that its statements mention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tensorc_dsl.backend.llvm.codegen.mentioned import mentioned
from tensorc_dsl.backend.llvm.codegen.scope import SymbolTable
from tensorc_dsl.ir.expr import Expr, free_vars
from tensorc_dsl.lower.flat import Flat


@dataclass(frozen=True, slots=True)
class Handed:
    """The scope inside of a function, in terms of its arguments `%a0`, `%a1`, …, and the values to pass for these, each as
    its type and its name. The first one is the scratch memory."""

    scope: SymbolTable
    values: tuple[tuple[str, str], ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for kind, _ in self.values)

    @property
    def params(self) -> tuple[str, ...]:
        """The arguments as declared: pointers do not overlap."""
        return tuple(f"ptr noalias %a{k}" if t == "ptr" else f"{t} %a{k}" for k, t in enumerate(self.kinds))


def hand_over(scope: SymbolTable, workspace: str, body: tuple[Flat, ...], sizes: Iterable[Expr]) -> Handed:
    """What a function needs whose statements are `body`, and which computes `sizes` as well."""
    values: list[tuple[str, str]] = [("ptr", workspace)]
    inner = SymbolTable(streamed=scope.streamed, fixed=scope.fixed)

    def argument(kind: str, value: str) -> str:
        values.append((kind, value))
        return f"%a{len(values) - 1}"

    buffers, names = mentioned(body)
    names |= {v for e in sizes for v in free_vars(e)}
    for name in sorted(buffers & scope.buffers.keys()):
        pointer, dtype = scope.buffers[name]
        inner.buffers[name] = (argument("ptr", pointer), dtype)
    for name in sorted(names & scope.vars.keys()):
        value = scope.vars[name]
        inner.vars[name] = value if isinstance(value, int) else argument("i64", value)
        if name in scope.factors:
            inner.factors[name] = scope.factors[name]
    return Handed(inner, tuple(values))

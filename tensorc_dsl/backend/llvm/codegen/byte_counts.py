"""Generates code that counts the bytes of memory for open sizes, where plain arithmetic of 64 bits may wrap around."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.scalars import binary
from tensorc_dsl.backend.llvm.codegen.scope import Scalar
from tensorc_dsl.backend.llvm.codegen.values import Value
from tensorc_dsl.backend.memory import MOST_BYTES
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Binary, Dim, Expr, constant, fold

UNCOUNTED = 2**63 - 1
"""What generated code returns in place of more than `MOST_BYTES`. The sum of two such numbers has 64 bits, without a sign."""

_CHECKED = {"+": "sadd", "-": "ssub", "*": "smul"}


def byte_count(f: Function, size: Expr, sizes: Mapping[str, Scalar]) -> Scalar:
    """The value of a number of bytes over open dimensions; `UNCOUNTED` if it, or a number on the way to it, is more than
    memory has. Dimensions are within their ranges."""
    if (n := fixed_bytes(size)) is not None:
        return n if n <= MOST_BYTES else UNCOUNTED
    beyond: list[str] = []

    def value(e: Expr) -> Scalar:
        if (n := fixed_bytes(e)) is not None:
            beyond.extend(["true"] * (abs(n) > MOST_BYTES))
            return n if abs(n) <= MOST_BYTES else 0
        match e:
            case Dim(name=name):
                return sizes[name]
            case Binary(op=op, lhs=lhs, rhs=rhs):
                x, y = value(lhs), value(rhs)
                if op not in _CHECKED:
                    return binary(f, op, Value(INDEX, str(x)), Value(INDEX, str(y))).ref
                name = f"llvm.{_CHECKED[op]}.with.overflow.i64"
                f.module.declare("{ i64, i1 }", name, ("i64", "i64"))
                both = f.cached(f"call {{ i64, i1 }} @{name}(i64 {x}, i64 {y})")
                beyond.append(f.cached(f"extractvalue {{ i64, i1 }} {both}, 1"))
                return f.cached(f"extractvalue {{ i64, i1 }} {both}, 0")
            case _:
                raise AssertionError(f"a size is over numbers and open dimensions: {e}")

    total = value(size)
    beyond.append(f.op(f"icmp sgt i64 {total}, {MOST_BYTES}"))
    lost = beyond[0]
    for flag in beyond[1:]:
        lost = f.op(f"or i1 {lost}, {flag}")
    return f.op(f"select i1 {lost}, i64 {UNCOUNTED}, i64 {total}")


def fixed_bytes(size: Expr) -> int | None:
    """The number, of any length, if the size is over numbers alone; else None."""
    if not isinstance(size, Binary):
        return constant(size)
    x, y = fixed_bytes(size.lhs), fixed_bytes(size.rhs)
    return None if x is None or y is None else fold(size.op, x, y)

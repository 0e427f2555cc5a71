"""The kind `llvm` of targets: code of their instructions is a call of an LLVM function, or an operation written like one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.ir import problems
from tensorc_dsl.ir.expr import constant, loads
from tensorc_dsl.ir.program import Buffer, Intrinsic
from tensorc_dsl.ir.target import TargetKind
from tensorc_dsl.syntax.names import near


@frozen
class Call:
    """`<16 x i32> llvm.x86.f(<16 x i32> C, i8 3)`: a call of an LLVM function, or an operation, `<16 x i32> sub(…)`."""

    result: str
    function: str
    args: tuple[Argument, ...]


@frozen
class Leaf:
    """`<16 x i32> A`: an operand; `<16 x i32> 7`: a number, in each lane of a vector."""

    type: str
    name: str


Argument = Call | Leaf

OPERATIONS = ("add", "sub", "mul", "and", "or", "xor", "fadd", "fsub", "fmul")
"""The operations of LLVM that can be written like calls: of two values of their own type."""

SPLAT = "splat"
"""A vector of which each lane is the argument."""

_TYPE = r"(?:i\d+|half|bfloat|float|double|<\d+ x (?:i\d+|half|bfloat|float|double)>)"
_PART = re.compile(rf"\s*({_TYPE})\s+(llvm\.[\w.]+|-?\d+|\w+)\s*(\(?)")
_NEXT = re.compile(r"\s*([,)])")
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


def call_of(code: str) -> Call | None:
    """The call that a lowering for LLVM spells, whose arguments may be calls; None if its syntax is wrong.

    Only LLVM intrinsics, `OPERATIONS` and `SPLAT` can be called.
    """
    found = _argument(code, 0)
    return found[0] if found is not None and isinstance(found[0], Call) and not code[found[1] :].strip() else None


def _argument(code: str, start: int) -> tuple[Argument, int] | None:
    """The argument at `start`, and where it ends."""
    part = _PART.match(code, start)
    if part is None:
        return None
    type_, name, at = part[1], part[2], part.end()
    if not part[3]:
        return None if name.startswith("llvm.") else (Leaf(type_, name), at)
    args: list[Argument] = []
    mark = ","
    while mark == ",":
        found = _argument(code, at)
        follows = None if found is None else _NEXT.match(code, found[1])
        if found is None or follows is None:
            return None
        args.append(found[0])
        mark, at = follows[1], follows.end()
    types = [a.type if isinstance(a, Leaf) else a.result for a in args]
    fits = (
        types == [type_, type_]
        if name in OPERATIONS
        else name == SPLAT and [type_.rpartition(" x ")[2].strip("<>")] == types
    )
    return (Call(type_, name, tuple(args)), at) if fits or name.startswith("llvm.") else None


def values_of(call: Call) -> Iterator[Leaf]:
    """The operands and numbers in a call, from left to right."""
    for a in call.args:
        if isinstance(a, Leaf):
            yield a
        else:
            yield from values_of(a)


def bits_of(type_: str) -> int:
    """The size in bits of a type of a signature."""
    count, _, element = type_.strip("<>").rpartition(" x ")
    return int(count or 1) * (_BITS.get(element) or int(element[1:]))


def operand_bits(b: Buffer) -> int:
    """The size in bits of an operand."""
    return prod(constant(n) or 0 for n in b.shape) * b.dtype.bits


def call_faults(i: Intrinsic, code: str, span: Span) -> Iterator[Diagnostic]:
    """What is wrong with the call of an instruction."""
    call = call_of(code)
    if call is None:
        yield problems.NO_CALL(span)
        return
    operands = {b.name: b for b in i.operands}
    values = tuple(values_of(call))
    for v in values:
        if v.name in operands:
            yield from _size_fault(v.type, operands[v.name], span, repeated=True)
        elif not re.fullmatch(r"-?\d+", v.name):
            yield problems.UNKNOWN_ARGUMENT(span, near(v.name, operands, f"declare `{v.name}` first"), name=v.name)
    named = {v.name for v in values}
    for name in dict.fromkeys(x.buffer for x in loads(i.store.value)):
        if name not in named:
            yield problems.NOT_PASSED(span, name=name)
    yield from _size_fault(call.result, operands[i.store.buffer], span, repeated=False)


def _size_fault(type_: str, b: Buffer, span: Span, *, repeated: bool) -> Iterator[Diagnostic]:
    """An argument holds its operand once, or several times over; a result holds it once."""
    own, bits = operand_bits(b), bits_of(type_)
    if bits != own and not (repeated and bits % own == 0):
        yield problems.OTHER_SIZE(span, name=b.name, bits=own, type=type_, other=bits)


KIND = TargetKind(forms=("call",), faults=call_faults)

"""Lowers each program once, for compilation here or in another process, which is sent the kernel packed; and its key, by
which programs are compared that lowering treats alike.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast

from tensorc_dsl.backend.protocol import Backend, LoweredKernel, backend_of, native
from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Program, is_in_order
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.proof.equivalence.bits import in_order

KEPT = 1024
"""The largest number of programs whose kernels are kept. One takes about as much memory as its program."""


@frozen
class Packed:
    """A kernel as bytes, in so many pickles. Unpack only kernels from a trusted process."""

    data: bytes
    parts: int

    def unpack(self) -> LoweredKernel:
        """The kernel."""
        reader = pickle.Unpickler(io.BytesIO(self.data))
        for _ in range(self.parts - 1):
            reader.load()  # later parts refer to it
        return cast(LoweredKernel, reader.load())


@frozen
class Lowered:
    """A lowered program. `key` is equal for kernels with the same loops, whatever their names. The `content` is packed if it
    is from another process, or for one."""

    key: str
    content: LoweredKernel | Packed

    @property
    def kernel(self) -> LoweredKernel:
        """The kernel, in this process."""
        return self.content.unpack() if isinstance(self.content, Packed) else self.content

    @property
    def packed(self) -> Packed:
        """The kernel for another process."""
        return self.content if isinstance(self.content, Packed) else pack(self.content)


def lowering_for(target: Target) -> Backend:
    """The backend whose passes lower a program: the target's own, else that of CPUs."""
    return backend_of(target.kind) or native()


def lowered_once(program: Program, target: Target) -> Lowered:
    """The lowered program, computed at the first request. Raises LowerError if the program cannot be lowered."""
    known = _known(program)
    if target not in known:
        backend = lowering_for(target)
        try:
            kernel = backend.lower(program, target)
            known[target] = Lowered(backend.key(kernel), kernel)
        except LowerError as e:
            known[target] = str(e)
    found = known[target]
    if isinstance(found, str):
        raise LowerError(found)
    return found


def in_order_if_lowered_so(program: Program, target: Target) -> Program:
    """The program as one that keeps its order, if its kernel for the target is that of such a one: then lowering has combined
    no lanes, and no loop is cut where it decides what is fused. Else as it is. Each case of a divided one is looked at."""
    if program.cases:
        cases = (replace(c, program=in_order_if_lowered_so(c.program, target)) for c in program.cases)
        return replace(program, cases=tuple(cases))
    if is_in_order(program):
        return program
    ordered = in_order(program)
    try:
        same = lowered_once(program, target).key == lowered_once(ordered, target).key
    except LowerError:
        return program
    return ordered if same else program


def lowered_as(program: Program, target: Target, lowered: Lowered) -> None:
    """The program was lowered to this in another process."""
    _known(program)[target] = lowered


@by_identity(KEPT)
def _known(_program: Program) -> dict[Target, Lowered | str]:
    """The result for each target; for a program that cannot be lowered, the reason."""
    return {}


def pack(kernel: LoweredKernel) -> Packed:
    """The kernel as bytes: in one pickle, and one of great depth in many, inner objects before outer ones."""
    try:
        return Packed(pickle.dumps(kernel, 5), 1)
    except RecursionError:
        pass
    out = io.BytesIO()
    writer = pickle.Pickler(out, 5)
    parts = {id(x): x for x in reversed(_objects(kernel))}
    for x in parts.values():
        writer.dump(x)
    return Packed(out.getvalue(), len(parts))


def _objects(root: object) -> list[object]:
    """Every dataclass in the value, inner ones first."""
    found: list[object] = []
    stack = [root]
    while stack:
        x = stack.pop()
        names = _names(type(x))
        if names is not None:
            found.append(x)
            stack += [getattr(x, n) for n in names]
        elif isinstance(x, tuple | frozenset):
            stack += cast(tuple[Any, ...], x)
    return found


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass; None for other types."""
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else None

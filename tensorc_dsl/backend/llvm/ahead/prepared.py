"""What follows from constant inputs, in memory that the caller owns: how it is laid out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from hashlib import sha256

from tensorc_dsl.affine.solve_sizes import told_by
from tensorc_dsl.backend.llvm.codegen.compile import Compiled
from tensorc_dsl.backend.llvm.codegen.statements import whole_lines
from tensorc_dsl.ir.expr import Dim, Expr, add, dims_in, index, mul
from tensorc_dsl.lower.flat import Param, Prepared

WORD = 8
"""Bytes of the mark, and of each size behind it."""

LINE = 64
"""Prepared memory is aligned to this many bytes, and so is every part of it."""


@dataclass(frozen=True, slots=True)
class PreparedMemory:
    """A head with `mark` and the sizes of `dims`, then what the kernel's preparation writes, then copies of `kept`.

    Nothing in it is an address, so that it may be copied, and kept in a file. The mark stands for the code that was made,
    which is what knows the layout.
    """

    constants: tuple[Param, ...]
    dims: tuple[Dim, ...]
    """The open sizes that the shapes of the constant inputs tell."""
    kept: tuple[Param, ...]
    """The constant inputs that calls still read."""
    own: Expr
    """How many bytes the kernel's preparation writes."""
    mark: int

    @property
    def head(self) -> int:
        """The bytes of the head, in whole lines."""
        return -(-WORD * (1 + len(self.dims)) // LINE) * LINE

    @property
    def copies(self) -> tuple[tuple[Param, Expr], ...]:
        """Where the copies of `kept` begin."""
        places: list[tuple[Param, Expr]] = []
        at = add(index(self.head), self.own)
        for p in self.kept:
            places.append((p, at))
            at = add(at, _lines(p))
        return tuple(places)

    @property
    def bytes(self) -> Expr:
        """The size of the whole, over `dims`."""
        return reduce(add, map(_lines, self.kept), add(index(self.head), self.own))


def prepared_memory(kernel: Compiled) -> PreparedMemory | None:
    """None where the kernel has no constant inputs, or where their shapes do not tell the sizes that they are made of."""
    constants = tuple(p for p in kernel.params if p.constant)
    mentioned = {d for p in constants for e in p.shape for d in dims_in(e)}
    dims = tuple(d for d in kernel.dims if d in mentioned)
    if not constants or not told_by([p.shape for p in constants]) >= mentioned:
        return None
    kept = tuple(p for p in constants if p.name in kernel.kept)
    mark = int.from_bytes(sha256(kernel.llvm_ir.encode()).digest()[:WORD], "little", signed=True)
    return PreparedMemory(constants, dims, kept, kernel.prepared_bytes, mark)


def _lines(p: Param) -> Expr:
    return whole_lines(Prepared(p.name, p.dtype, reduce(mul, p.shape, index(1))))

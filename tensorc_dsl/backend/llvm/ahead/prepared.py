"""The layout of prepared memory: values that depend on constant inputs alone, in memory that the caller owns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from hashlib import sha256

from tensorc_dsl.affine.solve_sizes import told_by
from tensorc_dsl.backend.llvm.codegen.compile import Compiled
from tensorc_dsl.backend.llvm.codegen.statements import whole_lines
from tensorc_dsl.ir.expr import Dim, Expr, add, dims_in, index
from tensorc_dsl.ir.strides import span_of
from tensorc_dsl.lower.flat import Param, Prepared

WORD = 8
"""The number of bytes of the mark, and of each size after it."""

LINE = 64
"""The alignment of prepared memory and of every part of it, in bytes."""


@dataclass(frozen=True, slots=True)
class PreparedMemory:
    """A head with `mark` and the sizes of `dims`, then the results of the kernel's preparation, then copies of `kept`.

    It contains no addresses, so it may be copied, and kept in a file. The mark identifies the code, which determines
    the layout.
    """

    constants: tuple[Param, ...]
    dims: tuple[Dim, ...]
    """The open sizes that the shapes of the constant inputs determine."""
    kept: tuple[Param, ...]
    """The constant inputs that calls still read."""
    own: Expr
    """The number of bytes that the kernel's preparation writes."""
    mark: int

    @property
    def head(self) -> int:
        """The size of the head in bytes, a multiple of the alignment."""
        return -(-WORD * (1 + len(self.dims)) // LINE) * LINE

    @property
    def copies(self) -> tuple[tuple[Param, Expr], ...]:
        """The copies of `kept`, with their offsets."""
        places: list[tuple[Param, Expr]] = []
        at = add(index(self.head), self.own)
        for p in self.kept:
            places.append((p, at))
            at = add(at, _lines(p))
        return tuple(places)

    @property
    def bytes(self) -> Expr:
        """The total size in bytes, over `dims`."""
        return reduce(add, map(_lines, self.kept), add(index(self.head), self.own))


def prepared_memory(kernel: Compiled) -> PreparedMemory | None:
    """The layout for a kernel; None without constant inputs, or if their shapes do not determine their open sizes."""
    constants = tuple(p for p in kernel.params if p.constant)
    mentioned = {d for p in constants for e in p.described for d in dims_in(e)}
    dims = tuple(d for d in kernel.dims if d in mentioned)
    if not constants or not told_by([p.described for p in constants]) >= mentioned:
        return None
    kept = tuple(p for p in constants if p.name in kernel.kept)
    mark = int.from_bytes(sha256(kernel.llvm_ir.encode()).digest()[:WORD], "little", signed=True)
    return PreparedMemory(constants, dims, kept, kernel.prepared_bytes, mark)


def _lines(p: Param) -> Expr:
    return whole_lines(Prepared(p.name, p.dtype, span_of(p.shape, p.strides)))

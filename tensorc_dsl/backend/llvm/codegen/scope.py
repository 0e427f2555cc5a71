"""The names in a function that is written, and the lanes of a vectorized loop for which code is written at once."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tensorc_dsl.backend.llvm.codegen.values import Value
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import Load

Scalar = int | str
"""An index that is the same in all lanes: a constant, or the name of an i64."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Lanes `offset` .. `offset + width - 1` of the loop over `var`, counted from the value of `var` in the scope.

    `mask` has the active lanes (None: all). `some` means that at least one is active, so that a value which all lanes share
    may be loaded once.
    """

    var: str
    offset: int
    width: int
    mask: Value | None = None
    some: bool = True


Place = tuple[Load, int]
"""A load in the lanes of the piece of that offset."""


@dataclass(frozen=True, slots=True)
class Past:
    """How a buffer is stored past the caches: in vectors of `unit` bytes, from an address that is a multiple of `begins`."""

    unit: int
    begins: int


@dataclass(slots=True)
class SymbolTable:
    """The values of names at a place: loop variables, open dimensions, and buffers as pointers to their first elements."""

    vars: dict[str, Scalar] = field(default_factory=dict[str, Scalar])
    buffers: dict[str, tuple[str, DType]] = field(default_factory=dict[str, tuple[str, DType]])
    factors: dict[str, int] = field(default_factory=dict[str, int])
    """For each loop variable a number that divides it, if one greater than 1 is known."""
    aligned: dict[str, int] = field(default_factory=dict[str, int])
    """The alignment of buffers in bytes, where vectors are only loaded and stored at once if they are aligned."""
    streamed: dict[str, Past] = field(default_factory=dict[str, Past])
    """The buffers that are stored past the caches."""
    fixed: frozenset[str] = frozenset()
    """The buffers that nothing writes while the function runs: an element is loaded once for all that need it."""

    private: set[str] = field(default_factory=set[str])
    """The small buffers on the stack: they are in registers if all loops over them are in one function, written out."""

    @contextmanager
    def bound(self, values: Mapping[str, Scalar], factor: int = 1) -> Generator[None]:
        """A context in which variables have the given values, which are multiples of `factor`."""
        before, factors = {v: self.vars[v] for v in values if v in self.vars}, self.factors
        self.vars.update(values)
        self.factors = factors | dict.fromkeys(values, factor)
        try:
            yield
        finally:
            for v in values:
                del self.vars[v]
            self.vars.update(before)
            self.factors = factors

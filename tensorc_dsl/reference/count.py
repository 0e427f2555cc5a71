"""Counts the work of a program, for rates: operations on values, and bytes of its parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tensorc_dsl.ir.dtypes import INDEX, DType
from tensorc_dsl.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    children,
    constant,
    dtype_of,
    factors_of,
    loads,
)
from tensorc_dsl.ir.program import Block, IterKind, Program, Store, blocks
from tensorc_dsl.ir.reductions import Fold, fold_of
from tensorc_dsl.reference.boxes import Box
from tensorc_dsl.reference.evaluate import matches, shape_of


@dataclass(frozen=True, slots=True)
class Work:
    """A type of operations, as far as instructions do them at different rates.

    The operations are on `values` of a type. If all operands are converted from narrower types, which instructions may take
    directly, `factors` is the widest of these: in sums of products of floats, and for all operations on integers. `sums` are
    integers of which fewer than half of the operations multiply.
    """

    values: DType
    factors: DType | None = None
    sums: bool = False


def flops(program: Program) -> int:
    """The number of operations of an unscheduled program: each `+ - * / % min max` and each maths function on values is 1.

    Index arithmetic, comparisons and conversions are free; integers count like floats. A matrix product is 2*M*N*K. Of a
    conditional, the branch with more operations counts. A sum over matches, such as a histogram, adds each term to one
    element.
    Raises ValueError if a dimension is open.
    """
    return work(program).total()


def work(program: Program) -> Counter[Work]:
    """The operations of an unscheduled program by type, counted as in `flops`. Raises ValueError if a dimension is open."""
    total: Counter[Work] = Counter()
    for b in blocks(program):
        sizes = _sizes(b)
        for s in b.body:
            times = prod(n for axis, n in enumerate(sizes) if axis not in _matched(b, s, sizes))
            for kind, count in _of_store(s).items():
                total[kind] += times * count
    return total


def _sizes(b: Block) -> tuple[int, ...]:
    extents = [constant(it.extent) for it in b.iters]
    if any(n is None for n in extents):
        raise ValueError(f"an extent of block {b.name} is open")
    return tuple(n for n in extents if n is not None)


def _matched(b: Block, s: Store, sizes: tuple[int, ...]) -> set[int]:
    """The axes along which data choose the one element that a term is added to."""
    fold = fold_of(s)
    if not b.is_reduction or not isinstance(fold, Fold):
        return set()
    box = Box(tuple(it.name for it in b.iters), (0,) * len(sizes), sizes)
    spatial = [n for n, it in enumerate(b.iters) if it.kind is IterKind.SPATIAL]
    found = matches(fold, box, spatial)
    return set() if found is None else {axis for axis, _ in found.places}


def _of_store(s: Store) -> Counter[Work]:
    found = operations(s.value)
    out: Counter[Work] = Counter()
    for t in {t for t, _ in found}:
        products, total = found[t, True], found[t, True] + found[t, False]
        factors = _converted(s, t)
        out[Work(t, factors, t.is_integer and factors is None and 2 * products < total)] += total
    return out


def _converted(s: Store, t: DType) -> DType | None:
    """The widest type that all operands of the operations in `t` are converted from; None if one is not converted."""
    fold = fold_of(s)
    value = fold.value if isinstance(fold, Fold) else s.value
    if t.is_float and not (isinstance(fold, Fold) and fold.op == "+" and _are_converted(factors_of(value), t)):
        return None
    types = _read(value)
    narrow = types and all(u.kind != "bool" and u.is_float == t.is_float and u.bits < t.bits for u in types)
    return max(types, key=lambda u: (u.bits, u.name)) if narrow else None


def _are_converted(factors: Sequence[Expr], t: DType) -> bool:
    return len(factors) == 2 and all(
        isinstance(f, Cast) and isinstance(f.operand, Load) and f.dtype == t for f in factors
    )


def _read(e: Expr) -> set[DType]:
    """The types of the elements that are computed with; positions are none."""
    return {dtype_of(e)} if isinstance(e, Load) else {t for c in children(e) for t in _read(c)}


def operations(e: Expr) -> Counter[tuple[DType, bool]]:
    """By the type, and whether values are multiplied with each other."""
    if isinstance(e, Load):
        return Counter()
    parts = [operations(c) for c in children(e)]
    if isinstance(e, Select):
        return parts[0] + max(parts[1:], key=lambda c: c.total())
    own = isinstance(e, Call) or (isinstance(e, Binary) and dtype_of(e) != INDEX)
    return sum(parts, Counter({(dtype_of(e), _multiplies(e)): 1} if own else {}))


def _multiplies(e: Expr) -> bool:
    """A product with a number may be shifts and sums."""
    return isinstance(e, Binary) and e.op == "*" and not any(isinstance(c, Const) for c in (e.lhs, e.rhs))


def bytes_moved(program: Program) -> int:
    """The bytes of all parameters, each counted once."""
    return sum(p.dtype.bytes * prod(shape_of(p)) for p in program.params)


def bytes_needed(program: Program) -> int:
    """The bytes that every kernel has to move: all outputs, and of each input the elements that some access can read, once.

    If data choose the elements, such as rows of a table, an input counts with at most the number of accesses to it. Raises
    ValueError if a dimension is open.
    """
    reads: Counter[str] = Counter()
    for b in blocks(program):
        for s in b.body:
            for e in (s.value, *s.indices):
                for name, times in Counter(x.buffer for x in loads(e)).items():
                    reads[name] += prod(_sizes(b)) * times
    inputs = sum(p.dtype.bytes * min(prod(shape_of(p)), reads[p.name]) for p in program.inputs)
    return inputs + sum(p.dtype.bytes * prod(shape_of(p)) for p in program.outputs)

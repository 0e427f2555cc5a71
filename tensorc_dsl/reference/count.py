"""How much work a program is, for rates: operations on values, and bytes of its parameters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

from tensorc_dsl.ir.dtypes import INDEX, DType
from tensorc_dsl.ir.expr import Binary, Call, Cast, Expr, Load, Select, children, constant, dtype_of, loads
from tensorc_dsl.ir.program import Block, Program, Store, blocks
from tensorc_dsl.ir.reductions import Fold, fold_of
from tensorc_dsl.reference.evaluate import factors_of, shape_of


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of operations: on `values` of a type; in sums of products of converted values, `factors` is theirs before."""

    values: DType
    factors: DType | None = None


def flops(program: Program) -> int:
    """The operations of an unscheduled program: each `+ - * / % min max` and each maths function on values is 1.

    Index arithmetic, comparisons and conversions are free; integers count like floats. A matrix product is 2*M*N*K. Of a
    conditional the dearer branch counts. Raises ValueError while a dimension is open.
    """
    return work(program).total()


def work(program: Program) -> Counter[Work]:
    """The operations of an unscheduled program, counted as `flops` does, by their kind. ValueError as of that."""
    total: Counter[Work] = Counter()
    for b in blocks(program):
        times = _instances(b)
        for s in b.body:
            for kind, count in _of_store(s).items():
                total[kind] += times * count
    return total


def _instances(b: Block) -> int:
    extents = [constant(it.extent) for it in b.iters]
    if any(n is None for n in extents):
        raise ValueError(f"an extent of block {b.name} is open")
    return prod(n for n in extents if n is not None)


def _of_store(s: Store) -> Counter[Work]:
    found = operations(s.value)
    factors = _converted(s)
    return found if factors is None else Counter({Work(dtype_of(s.value), factors): found.total()})


def _converted(s: Store) -> DType | None:
    """The type of the factors of a sum of products of two, each converted to the type of the sum."""
    fold = fold_of(s)
    match factors_of(fold.value) if isinstance(fold, Fold) and fold.op == "+" else []:
        case [Cast(operand=Load() as a, dtype=t), Cast(operand=Load() as b, dtype=u)] if t == u == dtype_of(s.value):
            return min((dtype_of(a), dtype_of(b)), key=lambda d: -d.bits)
        case _:
            return None


def operations(e: Expr) -> Counter[Work]:
    if isinstance(e, Load):
        return Counter()
    parts = [operations(c) for c in children(e)]
    if isinstance(e, Select):
        return parts[0] + max(parts[1:], key=lambda c: c.total())
    own = isinstance(e, Call) or (isinstance(e, Binary) and dtype_of(e) != INDEX)
    return sum(parts, Counter({Work(dtype_of(e)): 1} if own else {}))


def bytes_moved(program: Program) -> int:
    """The bytes of all parameters, once each: what a kernel has to read and write at the least."""
    return sum(p.dtype.bytes * prod(shape_of(p)) for p in program.params)


def bytes_needed(program: Program) -> int:
    """The bytes that every kernel has to move: all outputs, and of each input what some access can read, once.

    Where data choose the elements, as rows of a table, no more are read than there are accesses. ValueError while a
    dimension is open.
    """
    reads: Counter[str] = Counter()
    for b in blocks(program):
        for s in b.body:
            for e in (s.value, *s.indices):
                for name, times in Counter(x.buffer for x in loads(e)).items():
                    reads[name] += _instances(b) * times
    inputs = sum(p.dtype.bytes * min(prod(shape_of(p)), reads[p.name]) for p in program.inputs)
    return inputs + sum(p.dtype.bytes * prod(shape_of(p)) for p in program.outputs)

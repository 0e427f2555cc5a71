"""How much code flat statements become: what limits unrolling, and how many vectors are written side by side."""

from __future__ import annotations

from collections.abc import Callable

from tensorc_dsl.ir.expr import Call, Const, Expr, Load, Var, children, constant
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.target import REGISTER_FILE
from tensorc_dsl.lower.flat import Alloc, Flat, Loop, inside, store_loads, stores, stride

AT_ONCE = 4
"""The number of native vectors per store and pass of a long vectorized loop: it hides latencies and fits the registers."""

PASS_CODE = 64
"""The largest `code_size` of a pass of several vectors in a large kernel. Four of a long expression are four times as much
code, and took as long in a chain of pyramids."""

_LANES, _PIECES = 16, 8
"""The largest number of lanes of a vector, and of vectors, for which a vectorized loop is written out at once."""


def code_size(body: tuple[Flat, ...]) -> int:
    """The approximate number of instructions of a body: unrolled loops count in full, vectorized ones per 16 lanes.

    An expression over variables of unrolled loops alone is a constant in the code, such as the factors of a transform that
    are computed from its indices.
    """
    known = frozenset(s.var for s in inside(body) if isinstance(s, Loop) and s.kind is LoopKind.UNROLLED)
    return _size(body, lambda s: 2 + expression_size(s.value, known), _vectors)


def written_stores(body: tuple[Flat, ...]) -> int:
    """The number of stores of a body; a vectorized loop whose lanes are not contiguous is written lane by lane, unless the
    tile is transposed in registers."""
    apart = _LANES * _PIECES
    turned = frozenset(
        s.body[0].var for s in inside(body) if isinstance(s, Loop) and isinstance(s.body[0], Loop) and _turns(s)
    )

    def written(s: Loop) -> int:
        return min(apart, _iterations(s)) if _lanes_lie_apart(s) and s.var not in turned else _vectors(s)

    return _size(body, lambda _: 1, written)


def _turns(s: Loop) -> bool:
    """Whether an unrolled loop around a vectorized one has the form of a tile that is transposed: what does not lie along the
    lanes of one loop lies along the other."""
    (across,) = s.body if len(s.body) == 1 else (None,)
    if s.kind is not LoopKind.UNROLLED or not isinstance(across, Loop) or across.kind is not LoopKind.VECTORIZED:
        return False
    (x,) = across.body if len(across.body) == 1 else (None,)
    if not isinstance(x, Store) or stride(x.indices[0], across.var) != 1:
        return False
    loads = store_loads(x)
    return all(
        x.buffer != r.buffer and (stride(r.indices[0], across.var) in (0, 1) or stride(r.indices[0], s.var) == 1)
        for r in loads
    )


def steps(body: tuple[Flat, ...]) -> int:
    """The number of stores in one pass over a body with unrolled loops written out; a vectorized loop is one pass.

    If its lanes are not contiguous in memory, it counts once per lane, since each is moved separately.
    """
    return _size(body, lambda _: 1, lambda s: _iterations(s) if _lanes_lie_apart(s) else 1)


def _size(body: tuple[Flat, ...], of_store: Callable[[Store], int], of_vector: Callable[[Loop], int]) -> int:
    total = 0
    for s in body:
        inner = of_store(s) if isinstance(s, Store) else _size(s.body, of_store, of_vector)
        if isinstance(s, Loop) and s.kind is LoopKind.UNROLLED:
            inner *= _iterations(s)
        elif isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED:
            inner *= of_vector(s)
        total += inner
    return total


def _vectors(s: Loop) -> int:
    """The number of vectors for which a vectorized loop is written out."""
    return min(_PIECES, -(-_iterations(s) // _LANES))


def is_long(s: Loop) -> bool:
    """Whether a vectorized loop is too long to be written out, so that it stays a loop."""
    return s.kind is LoopKind.VECTORIZED and _iterations(s) > _PIECES * _LANES


def _iterations(s: Loop) -> int:
    """The number of iterations of a loop; 1 if it is not known."""
    begin, end = constant(s.begin), constant(s.end)
    return end - begin if begin is not None and end is not None else 1


@by_identity(256)
def _lanes_lie_apart(s: Loop) -> bool:
    """Whether some access in a vectorized loop is neither the same element for all lanes nor contiguous."""
    accesses = [i for x in stores(s.body) for i in (*x.indices, *(j for r in store_loads(x) for j in r.indices))]
    return any(stride(i, s.var) not in (0, 1) for i in accesses)


def expression_size(e: Expr, known: frozenset[str]) -> int:
    """The approximate number of instructions of an expression if the variables `known` are constants."""
    return _expression_size(e, known)[0]


def _expression_size(e: Expr, known: frozenset[str]) -> tuple[int, bool]:
    """The size, and whether the expression is a constant."""
    match e:
        case Const():
            return 0, True
        case Var(name=name):
            return 0, name in known
        case Load():
            return 2, False
        case _:
            parts = [_expression_size(part, known) for part in children(e)]
            inside = sum(size for size, _ in parts)
            if isinstance(e, Call):
                return 20 + inside, False
            return (0, True) if all(number for _, number in parts) else (1 + inside, False)


def at_once(body: tuple[Flat, ...]) -> int:
    """The number of native vectors, 1, 2 or 4, for which a pass of a long vectorized loop has code in a large kernel."""
    size = code_size(body)
    return next((n for n in (AT_ONCE, AT_ONCE // 2) if n * size <= PASS_CODE), 1)


def fits_registers(s: Alloc) -> bool:
    """Whether a buffer is on the stack and small enough for registers."""
    return s.space == "stack" and (constant(s.size) or 0) * s.dtype.bytes <= REGISTER_FILE

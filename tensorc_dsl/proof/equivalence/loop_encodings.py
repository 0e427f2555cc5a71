"""Rewrites loops and subscripts, before programs are compared, into what integer sets can say: digits in place of quotients
of loops, loops in place of their products with open sizes, and data in place of products of indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from math import gcd
from operator import is_

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import I64, INDEX
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    add,
    ceildiv,
    children,
    constant,
    dtype_of,
    floordiv,
    floormod,
    free_vars,
    index,
    mul,
    rebuild,
    rewrite_expr,
    sub,
    substitute,
)
from tensorc_dsl.ir.program import (
    Block,
    For,
    Iter,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    Store,
    fresh,
    map_store,
    used_names,
    walk,
)
from tensorc_dsl.proof.sets.linear_forms import negate, product_with_open_size
from tensorc_dsl.proof.sets.safety import check_access, ranges_of
from tensorc_dsl.proof.sets.simplify import bounds, ranges_below, simplify

# Replaces loops by nests over their digits: `i / 8` and `i % 8` of one loop become two variables.
#
# A loop whose variable is divided, such as a fused one, becomes a nest of loops over the digits. The nest runs the same
# iterations in the same order, but divisions become variables: integer sets answer a hundred times faster. A loop with one
# iteration has no digit.
#
# Nested loops whose common number is divided, `(i * 128 + j) / 325` with 128 iterations of `j`, are counted as one loop, and
# that number has the digits. Otherwise isl would need more and more divisions for multiples of both 325 and 128.


@frozen
class Counted:
    """A loop as part of a number: its variable is `number / unit % (upto / unit)`."""

    loop: str
    kind: LoopKind
    unit: int
    upto: int | None


@frozen
class Digit:
    """`(number / unit) % size`; the highest digit needs no remainder."""

    name: str
    loops: tuple[Counted, ...]
    """The loops that the number counts, outermost first."""
    unit: int
    extent: Expr


@frozen
class Digits:
    """The digits of the number of some loops, highest first, and the conditions besides their extents that keep the number
    within its range."""

    loops: tuple[Counted, ...]
    digits: tuple[Digit, ...]
    within: tuple[Expr, ...]


def digits_of(program: Program) -> dict[str, Digits]:
    """For every loop, the digits of the number that it is part of."""
    uses: list[Expr] = []
    nests: list[list[For]] = []
    _read(program.body, [], uses, nests)
    loops = {x.var: x for nest in nests for x in nest}
    known: dict[str, Digits] = {v: _digits((x,), ()) for v, x in loops.items()}
    for together in _together(nests, uses):
        trial = known | dict.fromkeys((x.var for x in together), _digits(together, ()))
        if _nested(_cuts(uses, trial).get(together[0].var, set())):
            known = trial
    cuts = _cuts(uses, known)
    made = {d.loops: _digits([loops[c.loop] for c in d.loops], cuts.get(d.loops[0].loop, ())) for d in known.values()}
    return {v: made[d.loops] for v, d in known.items()}


def digits_around(loops: Iterable[For], known: Mapping[str, Digits]) -> tuple[Digits, ...]:
    """The numbers that the loops around a block count, outermost first."""
    return tuple(dict.fromkeys(known[x.var] for x in loops))


def _read(body: tuple[Stmt, ...], nest: list[For], uses: list[Expr], nests: list[list[For]]) -> None:
    """Collect the expressions over loop variables, and all chains of loops that are each the only statement of the last."""
    for s in body:
        if isinstance(s, Block):
            uses += [*(it.binding for it in s.iters), *s.where]
            continue
        if len(body) > 1 or not nest:
            nests.append(nest := [])
        nest.append(s)
        _read(s.body, nest, uses, nests)


def _together(nests: Iterable[list[For]], uses: Iterable[Expr]) -> Iterator[list[For]]:
    """The groups of loops that are divided together, as far as each group can be counted as one."""
    divided = [frozenset(_weights(e.lhs)[0]) for use in uses for e in _divisions(use)]
    for nest in nests:
        run: list[For] = []
        for x in nest:
            if constant(x.extent) == 1:
                continue
            joined = run and x.kind is not LoopKind.PIPELINED and constant(x.extent) is not None
            if not (joined and any(run[-1].var in d and x.var in d for d in divided)):
                if len(run) > 1:
                    yield run
                run = []
            if x.kind is not LoopKind.PIPELINED:
                run = [*run, x]
        if len(run) > 1:
            yield run


def _divisions(e: Expr) -> Iterator[Binary]:
    if isinstance(e, Binary) and e.op in ("/", "%"):
        yield e
    for c in children(e):
        yield from _divisions(c)


def _cuts(uses: Iterable[Expr], known: Mapping[str, Digits]) -> dict[str, set[int]]:
    """The units at which expressions divide each number; a number is named by its first loop."""
    cuts: dict[str, set[int]] = {}
    for e in uses:
        for var, unit, upto in _parts(e, known):
            cuts.setdefault(var, set()).update((unit, *(() if upto is None else (upto,))))
    return cuts


def _nested(cuts: Iterable[int]) -> bool:
    """Whether each cut divides the next."""
    return not any(b % a for a, b in pairwise(sorted(cuts)))


def _digits(loops: Iterable[For], cuts: Iterable[int]) -> Digits:
    counted: list[Counted] = []
    extent: Expr = index(1)
    upto = None
    for x in reversed(found := tuple(loops)):
        unit = constant(extent)
        assert unit is not None
        extent = mul(x.extent, extent)
        upto = None if x is found[0] else constant(extent)
        counted.insert(0, Counted(x.var, x.kind, unit, upto))
    own, n = tuple(counted), constant(extent)
    units = sorted(u for u in {1, *cuts} if n is None or u < n)
    if n == 1:
        return Digits(own, (), ())
    if not units or found[0].kind is LoopKind.PIPELINED or not _nested(units):
        units = [1]
    if len(units) == 1:
        return Digits(own, (Digit(found[0].var, own, 1, extent),), ())
    extents = [index(b // a) for a, b in pairwise(units)] + [ceildiv(extent, index(units[-1]))]
    digits = tuple(Digit(f"{found[0].var}_{u}'", own, u, e) for u, e in zip(units, extents, strict=True))[::-1]
    exact = n is not None and n % units[-1] == 0
    return Digits(own, digits, () if exact else (Compare("<", _value(digits, 1, None), extent),))


def in_digits(e: Expr, known: Mapping[str, Digits]) -> Expr:
    """The expression with digits in place of loops."""
    part = _part(e, known)
    if part is not None:
        return _part_value(part, known)
    if not _is_sum(e):
        new = tuple(in_digits(c, known) for c in children(e))
        if isinstance(e, Binary) and e.op == "xor":
            new = _few_bits(new, known)
        return rebuild(e, new) if new else e
    parts, rest, total = _sum(e, known)
    for p, factor in parts:
        total = add(total, mul(_part_value(p, known), index(factor)))
    for x, factor in rest:
        total = add(total, mul(in_digits(x, known), index(factor)))
    return total


def _few_bits(operands: tuple[Expr, ...], known: Mapping[str, Digits]) -> tuple[Expr, ...]:
    """The operands of an `xor`, of which the text of one shows how many bits it has: a digit does not."""
    ranges = ranges_below((d.name, d.extent) for digits in known.values() for d in digits.digits)
    for n, e in enumerate(operands):
        low, high = bounds(e, ranges)
        if low is not None and low >= 0 and high is not None:
            return (*operands[:n], floormod(e, index(1 << high.bit_length())), *operands[n + 1 :])
    return operands


Part = tuple[str, int, int | None]
"""`(number / unit) % (upto / unit)`, as (first loop, unit, upto)."""


def _part_value(part: Part, known: Mapping[str, Digits]) -> Expr:
    var, unit, upto = part
    digits = known[var].digits
    ends = {d.unit for d in digits}
    # A cut above the whole number changes nothing, or gives 0.
    if all(u is None or u in ends or _above(u, digits) for u in (unit, upto)):
        return _value(digits, unit, upto)
    known_unit = unit in ends
    value = floordiv(_value(digits, unit if known_unit else 1, None), index(1 if known_unit else unit))
    return value if upto is None else floormod(value, index(upto // unit))


def _above(cut: int, digits: tuple[Digit, ...]) -> bool:
    """Whether the number is always below the cut."""
    if not digits:
        return True
    n = constant(digits[0].extent)
    return n is not None and digits[0].unit * n <= cut


def _value(digits: tuple[Digit, ...], unit: int, upto: int | None) -> Expr:
    total: Expr = ZERO
    for d in digits:
        if d.unit >= unit and (upto is None or d.unit < upto):
            total = add(total, mul(Var(d.name), index(d.unit // unit)))
    return total


def _part(e: Expr, known: Mapping[str, Digits], modulus: int | None = None) -> Part | None:
    """The part of a number that an expression is; None for others. With a modulus, equality modulo it suffices."""
    match e:
        case Binary(op="/", lhs=a, rhs=Const(value=int(c))) if c > 0:
            inner = _part(a, known, modulus and modulus * c)
            if inner is None or (inner[2] is not None and inner[2] % (inner[1] * c)):
                return None
            return inner[0], inner[1] * c, inner[2]
        case Binary(op="%", lhs=a, rhs=Const(value=int(c))) if c > 0:
            inner = _part(a, known, c)
            if inner is None or (inner[2] is not None and inner[2] % (inner[1] * c)):
                return None
            return inner[0], inner[1], inner[1] * c
        case Var() | Binary(op="+" | "-" | "*") if dtype_of(e) == INDEX:
            weights, rest, constant_ = _weights(e)
            if rest or constant_:
                return None
            several = {v: w for v, w in weights.items() if v not in known or known[v].digits}
            if weights and not several:
                return next(iter(weights)), 1, None
            return _counted(several, known, modulus)
        case _:
            return None


def _counted(weights: Mapping[str, int], known: Mapping[str, Digits], modulus: int | None) -> Part | None:
    """As `_part`, for a sum of loops with these factors."""
    first = next(iter(weights), None)
    if first is None or first not in known:
        return None
    loops = known[first].loops
    if not weights.keys() <= {c.loop for c in loops}:
        return None
    factors = [weights.get(c.loop, 0) for c in loops]
    last = max(k for k, w in enumerate(factors) if w)
    unit = loops[last].unit
    for top in range(last + 1):
        if factors == [c.unit // unit if top <= k <= last else 0 for k, c in enumerate(loops)]:
            return loops[0].loop, unit, loops[top].upto
    if modulus and all((w - c.unit // unit) % modulus == 0 for c, w in zip(loops[: last + 1], factors, strict=False)):
        return loops[0].loop, unit, None
    return None


def _is_sum(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("+", "-") and dtype_of(e) == INDEX


Weights = tuple[dict[str, int], list[tuple[Expr, int]], int]
"""A sum: the factors of loops, other terms with their factors, a constant."""


def _weights(e: Expr) -> Weights:
    loops: dict[str, int] = {}
    rest: list[tuple[Expr, int]] = []
    total = 0
    todo = [(e, 1)]
    while todo:
        x, factor = todo.pop()
        match x:
            case Var(name=name):
                loops[name] = loops.get(name, 0) + factor
            case Const(value=int(value)):
                total += value * factor
            case Binary(op="+" | "-" as op, lhs=a, rhs=b):
                todo += [(b, factor if op == "+" else -factor), (a, factor)]
            case Binary(op="*", lhs=a, rhs=Const(value=int(c))) | Binary(op="*", lhs=Const(value=int(c)), rhs=a):
                todo.append((a, factor * c))
            case _:
                rest.append((x, factor))
    return {v: w for v, w in loops.items() if w}, rest, total


def _sum(e: Expr, known: Mapping[str, Digits]) -> tuple[list[tuple[Part, int]], list[tuple[Expr, int]], Expr]:
    """A sum as parts of numbers and other terms, each with its factor, and a constant."""
    loops, rest, total = _weights(e)
    parts: list[tuple[Part, int]] = []
    groups: dict[str, dict[str, int]] = {}
    for v, w in loops.items():
        if v not in known:
            rest.append((Var(v), w))
        elif known[v].digits:
            groups.setdefault(known[v].loops[0].loop, {})[v] = w
    for group in groups.values():
        common = gcd(*group.values())
        part = _counted({v: w // common for v, w in group.items()}, known, None)
        if part is not None:
            parts.append((part, common))
            continue
        for v, w in group.items():
            part = _counted({v: 1}, known, None)
            assert part is not None  # each loop is a part of its number
            parts.append((part, w))
    return parts, rest, index(total)


def _parts(e: Expr, known: Mapping[str, Digits]) -> Iterator[Part]:
    part = _part(e, known)
    if part is not None:
        yield part
        return
    if _is_sum(e):
        parts, rest, _ = _sum(e, known)
        yield from (p for p, _ in parts)
        for x, _ in rest:
            yield from _parts(x, known)
        return
    for c in children(e):
        yield from _parts(c, known)


__all__ = ["Counted", "Digit", "Digits", "digits_around", "digits_of", "in_digits"]


# Products of a loop and an open size, `x * Q`, as loops of their own: an open size in a number of parts.
#
# Integer sets have no such products. Where the loop has a known number of iterations, each of them makes a multiple of Q:
#
#     for x in 2: S(x * Q)   ->   for x in 2, y in Q + 1: S(y), where x == 0 and y == 0 or x == 1 and y == Q
#
# Each iteration of x has one iteration of y that satisfies the condition, so the same instances run in the same order.


MOST = 16
"""The iterations of a loop up to which its multiples are written out: each is a piece of the sets."""


def parts_as_loops(program: Program) -> Program:
    """The program, in which no loop of up to `MOST` iterations is multiplied by an open size."""
    if not program.dims:
        return program
    used = used_names(program)

    def go(s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return s
        body = tuple(map(go, s.body))
        for product in dict.fromkeys(_products(body, s.var)):
            made = _loop_of_product(s, body, product, f"{s.var}_part", used)
            body = body if made is None else (made,)
        return replace(s, body=body)

    return replace(program, body=tuple(map(go, program.body)))


def _products(body: tuple[Stmt, ...], var: str) -> Iterator[Expr]:
    """The products of an expression of the loop alone and an open size, over loops; those of an iterator that stands for the
    loop are products of it.
    """
    for _, s in walk(body):
        if isinstance(s, For):
            yield from _products_in(s.extent, var)
            continue
        for e in (*(it.binding for it in s.iters), *s.where):
            yield from _products_in(e, var)
        for name in _standing_for(s, var):
            for x in (*s.init, *s.body):
                for e in (*x.indices, x.value):
                    for product in _products_in(e, name):
                        yield substitute(product, {name: Var(var)})


def _standing_for(b: Block, var: str) -> list[str]:
    """The iterators whose values are those of a loop."""
    return [it.name for it in b.iters if it.binding == Var(var)]


def _products_in(e: Expr, var: str) -> Iterator[Expr]:
    if (found := product_with_open_size(e)) is not None and free_vars(found[0]) == frozenset({var}):
        yield e
    for c in children(e) if var in free_vars(e) else ():
        yield from _products_in(c, var)


def _multiples(x: Expr, loop: For) -> tuple[int, ...] | None:
    """The value of an expression in each iteration of the loop; None if they are not known, or may be negative."""
    n = constant(loop.extent)
    if n is None or not 1 <= n <= MOST:
        return None
    found = [constant(simplify(substitute(x, {loop.var: index(k)}), {})) for k in range(n)]
    known = tuple(v for v in found if v is not None and v >= 0)
    return known if len(known) == n else None


def _loop_of_product(loop: For, body: tuple[Stmt, ...], product: Expr, base: str, used: set[str]) -> For | None:
    """A loop over the values of the product, of which one iteration runs in each of `loop`; None if they are not known."""
    found = product_with_open_size(product)
    multiples = None if found is None else _multiples(found[0], loop)
    if found is None or multiples is None:
        return None
    size, name = found[1], fresh(base, used)
    low = bounds(size, {})[0]
    if low is None or low < 0:
        return None
    y = Var(name)
    cases = [
        Logic("and", Compare("==", Var(loop.var), index(k)), Compare("==", y, mul(index(v), size)))
        for k, v in enumerate(multiples)
    ]
    only = reduce(lambda a, b: Logic("or", a, b), cases)
    extent = add(mul(index(max(multiples)), size), ONE)

    def within(s: Stmt) -> Stmt:
        if isinstance(s, For):
            return replace(s, extent=_replaced(s.extent, product, y), body=tuple(map(within, s.body)))
        iters = tuple(replace(it, binding=_replaced(it.binding, product, y)) for it in s.iters)
        s = replace(s, iters=iters, where=(*(_replaced(c, product, y) for c in s.where), only))
        for n, standing in enumerate(_standing_for(s, loop.var)):
            own = substitute(product, {loop.var: Var(standing)})
            s = _with_iter(s, own, Iter(f"{name}{n}", IterKind.SPATIAL, extent, y))
        return s

    return For(name, extent, tuple(map(within, body)))


def _with_iter(b: Block, product: Expr, it: Iter) -> Block:
    """The block with an iterator in place of a product in its stores."""

    def stores(of: tuple[Store, ...]) -> tuple[Store, ...]:
        return tuple(map_store(x, lambda e: _replaced(e, product, Var(it.name))) for x in of)

    init, body = stores(b.init), stores(b.body)
    return b if (init, body) == (b.init, b.body) else replace(b, iters=(*b.iters, it), init=init, body=body)


def _replaced(e: Expr, product: Expr, by: Expr) -> Expr:
    return rewrite_expr(e, lambda x: by if x == product else x)


# Products of indices in subscripts as data: `A[min(i * j, 9)]` reads the element that a number decides.
#
# Integer sets say nothing of a product of two variables. What it is follows from its operands, as for a number that is
# read: the proof compares the operands, and the elements for every value of the product. Arithmetic on indices does not
# leave 64 bits, so the product is one of `i64`.


def products_as_data(b: Block, shapes: Mapping[str, tuple[Expr, ...]], dims: tuple[Dim, ...]) -> Block:
    """The block, where products, quotients and remainders of two variables in the subscripts of loads are data.

    A subscript that stays inside of its array by the ranges of iterators and the conditions around it is one that is limited
    to it, for all sizes of the open dimensions `dims`. That tells the sets what the product would, and it is the same on
    both sides of a proof, however loops are cut.
    """
    extents = {it.name: it.extent for it in b.iters}
    ranges = ranges_of(extents)

    def datum(x: Expr) -> Expr:
        if not isinstance(x, Binary) or x.op not in "*/%" or dtype_of(x) != INDEX:
            return x
        if constant(x.rhs) is not None or (x.op == "*" and constant(x.lhs) is not None):
            return x
        made = Cast(Binary(x.op, Cast(x.lhs, I64), Cast(x.rhs, I64)), INDEX)
        positive = x.op == "%" and (bounds(x.rhs, ranges)[0] or 0) > 0
        return limited(made, x.rhs) if positive else made

    def arithmetic(i: Expr) -> Expr:
        """Without what is computed of values that are read: a stage may hold it as well, and there it is no subscript."""
        if isinstance(i, Cast) or not (old := children(i)):
            return i
        new = tuple(map(arithmetic, old))
        return datum(i if all(map(is_, old, new)) else rebuild(i, new))

    def inside(i: Expr, extent: Expr) -> bool:
        low, high = bounds(i, ranges)
        return low is not None and high is not None and low >= 0 and high < (constant(extent) or 0)

    def stays(i: Expr, extent: Expr, given: tuple[Expr, ...]) -> bool:
        return inside(i, extent) or check_access(extents, given, (i,), (extent,), dims) is None

    def subscript(i: Expr, extent: Expr, given: tuple[Expr, ...]) -> Expr:
        if (made := arithmetic(i)) == i:
            return i
        return limited(made, extent) if not inside(made, extent) and stays(i, extent, given) else made

    def value(e: Expr, given: tuple[Expr, ...]) -> Expr:
        if not (old := children(e)):
            return e
        around = (given,) * len(old)
        if isinstance(e, Select):
            around = (given, (*given, e.cond), (*given, negate(e.cond)))
        new = tuple(map(value, old, around))
        e = e if all(map(is_, old, new)) else rebuild(e, new)
        if not isinstance(e, Load):
            return e
        return replace(
            e, indices=tuple(subscript(i, n, given) for i, n in zip(e.indices, shapes[e.buffer], strict=True))
        )

    init, body = (tuple(replace(s, value=value(s.value, b.where)) for s in stores) for stores in (b.init, b.body))
    return b if (init, body) == (b.init, b.body) else replace(b, init=init, body=body)


def limited(e: Expr, extent: Expr) -> Expr:
    """The nearest number from 0 to below the extent."""
    return Binary("min", Binary("max", e, ZERO), sub(extent, ONE))

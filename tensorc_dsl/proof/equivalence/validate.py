"""Whole-program validation: proves after the fact that a scheduled program computes what the original does.

The proof uses the two programs only, not the primitives that made the second one. It shows, for all sizes and all inputs,
that no access leaves its buffer, that no parallel or vectorized loop carries a dependence, and that each output element is
the same expression of the inputs, with the terms of a reduction in any order and grouping.
`docs/decisions/0014-validation-compares-values.md` explains the method.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from itertools import takewhile
from math import prod
from operator import eq
from typing import cast

import numpy as np

from tensorc_dsl.base.diagnostic import Diagnostic, Note, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.frozen import replace as replace_node
from tensorc_dsl.ir.annotations import pipeline
from tensorc_dsl.ir.arrays import Array, narrow, widen
from tensorc_dsl.ir.cases import described, narrowed, uncovered
from tensorc_dsl.ir.dtypes import unit_roundoff
from tensorc_dsl.ir.expr import Binary, Cast, Expr, Load, Var, children, dtype_of
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.print import format_buffer, format_expr
from tensorc_dsl.ir.program import (
    AT_ONCE,
    FINITE,
    IN_RANGE,
    Block,
    Buffer,
    For,
    IterKind,
    LoopKind,
    Program,
    Property,
    Stmt,
    Store,
    assumed,
    blocks,
    is_atomic,
    walk,
)
from tensorc_dsl.ir.reductions import Combination, not_atomic, order_of, update_of
from tensorc_dsl.ir.sizes import bind, broken_by, nearest
from tensorc_dsl.proof.equivalence.code import (
    Code,
    ExampleSizes,
    Refuted,
    Statement,
    TooMany,
    Undecided,
    at,
    element,
    example,
    extent_conditions,
    point,
    relation,
    scales_of,
    where,
)
from tensorc_dsl.proof.equivalence.compare import Comparison, Obligation, Shortcut
from tensorc_dsl.proof.equivalence.corrected_sums import Corrections
from tensorc_dsl.proof.equivalence.flow import At
from tensorc_dsl.proof.equivalence.loop_encodings import Counted, Digits, parts_as_loops
from tensorc_dsl.proof.equivalence.values import Values, is_condition
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.accesses import touched_in, written
from tensorc_dsl.proof.sets.isl import Exhausted, bounded, renew
from tensorc_dsl.proof.sets.laws import Broken, assumptions, law_text, reducer_laws
from tensorc_dsl.proof.sets.linear_forms import outermost, with_values
from tensorc_dsl.proof.sets.running import passed_on, regroups_in_range
from tensorc_dsl.proof.sets.safety import too_far_in
from tensorc_dsl.proof.sets.sets import NotAffine, mapping, points
from tensorc_dsl.proof.sets.simplify import bounds, conjuncts, extent_ranges
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import Special, drawn_as, make_inputs, special_inputs
from tensorc_dsl.reference.interpret import FILLS, InterpretError, Order, Uninitialised, interpret

# Rules that a program must keep whatever it computes: no access or iterator out of bounds, no races.
#
# `proof.equivalence.flow` follows values as if all loops ran in order. That is valid because loops that do not run in order
# are proved here to carry no dependence, but for updates of one atomic block by bound loops: they come one at a time, and
# any order of them accumulates the same. The value of a scan that blocks of a GPU pass on is waited for, in order.


@problem(
    "E0801",
    "{which}, {what} {does} {element}, outside of `{buffer}`{sizes}",
    help="guard the block: `where` and the condition under which the index is inside",
)
def OUTSIDE(*, which: str, what: str, does: str, element: str, buffer: str, sizes: ExampleSizes) -> None: ...
@problem(
    "E0801",
    "{which}, iterator `{name}` of {what} is {value}, outside of its extent{sizes}",
    help="guard the block: `where` and the condition under which the iterator is inside",
)
def LEAVES(*, which: str, name: str, what: str, value: int, sizes: ExampleSizes) -> None: ...


IN_ORDER = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.PIPELINED, LoopKind.TENSORIZED)


@problem(
    "E0802",
    "{which}, iterations of the {kind} loop `{loop}` touch {element} at once{sizes}",
    help="run the loop in order, or give each iteration its own copy of the buffer",
)
def RACE(*, which: str, kind: str, loop: str, element: str, sizes: ExampleSizes) -> None: ...


@problem(
    "E0802",
    "{which}, the pipeline of `{loop}` lets the later of two accesses to {element} come first{sizes}",
    help="what is read must be written in an earlier stage, or earlier in the order of the same one",
)
def OVERTAKEN(*, which: str, loop: str, element: str, sizes: ExampleSizes) -> None: ...


def verify_memory(code: Code, which: str) -> None:
    """Raises Refuted if an access leaves its buffer, an iterator its extent, or a loop races; raises NotAffine."""
    for s in code.statements:
        if not s.domain.is_empty():
            _inside(code, s, which)
    _races(code, which)
    _overtaking(code, which)


def _inside(code: Code, s: Statement, which: str) -> None:
    renew()
    # Those of a reduction are 0 for its `init`, which runs where their extents are 0, too.
    iters = [it for it in s.block.iters if not (s.is_init and it.kind is IterKind.REDUCE)]
    names = [it.name for it in iters]
    bound = {n: e for n, _, e in s.iters}
    values = mapping(s.names, [bound[n] for n in names]).intersect_domain(s.domain)
    inside = points(names, extent_conditions(names, [it.extent for it in iters]))
    rest = values.subtract_range(inside)
    if not rest.is_empty():
        (x, v), sizes = example(rest.wrap(), [len(s.names), len(names)])
        for k, n in enumerate(names):
            one = inside.project_out(isl.dim_type.set, k + 1, len(names) - k - 1).project_out(isl.dim_type.set, 0, k)
            if isl.Set(f"{{ [{v[k]}] }}").intersect(one).is_empty():
                raise Refuted(LEAVES(None, which=which, name=n, what=at(s, x), value=v[k], sizes=sizes), sizes)
    for t, buffer, indices, domain, does in _accesses(code, s, code.shapes):
        renew()
        if not indices:
            continue
        touched = code.touched(t, buffer, indices).project_out(isl.dim_type.out, 0, len(code.homes[buffer]))
        touched = touched.intersect_domain(domain)
        rest = touched.subtract_range(code.box(buffer))
        if not rest.is_empty():
            (x, v), sizes = example(rest.wrap(), [len(t.names), len(indices)])
            name = element(buffer, v)
            raise Refuted(
                OUTSIDE(None, which=which, what=at(s, x), does=does, element=name, buffer=buffer, sizes=sizes), sizes
            )


def _accesses(
    code: Code, s: Statement, buffers: Collection[str]
) -> Iterator[tuple[Statement, str, tuple[Expr, ...], isl.Set, str]]:
    """Each access to the buffers with the instances at which it happens. Reads through data have instances for all values of
    the data. Accesses under other conditions on data are assumed to happen always.
    """
    if s.store.buffer in buffers:
        yield s, s.store.buffer, s.store.indices, s.domain, "writes"
    for x, conditions in code.reads(s):
        if x.buffer not in buffers:
            continue
        renew()
        t, data = code.lifted(s, tuple(dict.fromkeys(outermost((*x.indices, *conditions)))))
        domain = t.domain
        for c in (part for whole in conditions for part in conjuncts(whole)):
            if is_condition(known := with_values(c, data)):
                domain = domain.intersect(where(t, known))
        yield t, x.buffer, tuple(with_values(i, data) for i in x.indices), domain, "reads"


AccessMap = tuple[Statement, isl.Map, bool]
"""A statement, the map from its instances to the elements of a buffer that they access, and whether it writes them."""


def _races(code: Code, which: str) -> None:
    for number in dict.fromkeys(code.digits.values()):
        free = [c for c in number.loops if c.kind not in IN_ORDER]
        if not free:
            continue
        for digit in number.digits:  # different iterations differ in one digit
            inside = [s for s in code.statements if digit.name in s.names]
            depth = inside[0].names.index(digit.name) if inside else 0
            for a, b, buffer in _pairs(code, inside, but_private_to=digit.name):
                touching = a[1].apply_range(b[1].reverse()).intersect(_other_iterations(a[0], b[0], depth))
                updates = a[0].number == b[0].number and _is_atomic(a[0])
                for c in free if not touching.is_empty() else ():
                    if c.kind is LoopKind.BOUND and (updates or buffer in passed_on(code.program, c.loop)):
                        if not code.in_order or a[0].accumulates is not None:
                            continue
                    alone = len(number.loops) == 1
                    both = touching if alone else touching.intersect(_other_counted_iterations(a[0], b[0], number, c))
                    if not both.is_empty():
                        notes, name, sizes = _conflict(code, buffer, a, b, both)
                        raise Refuted(
                            RACE(None, notes, which=which, kind=c.kind, loop=c.loop, element=name, sizes=sizes), sizes
                        )


def _is_atomic(s: Statement) -> bool:
    """Whether instances of a statement are updates that threads may make at once."""
    return not s.is_init and is_atomic(s.block) and not_atomic(s.block, order_of(s.block)) is None


def _pairs(
    code: Code, inside: Sequence[Statement], but_private_to: str | None
) -> Iterator[tuple[AccessMap, AccessMap, str]]:
    """Pairs of accesses to one buffer, of which the first writes it."""
    for buffer in dict.fromkeys(s.store.buffer for s in inside):
        if but_private_to in code.homes[buffer]:
            continue  # each iteration has a copy of its own
        touched: list[AccessMap] = [(s, m, writes) for s in inside for m, writes in _elements(code, s, buffer)]
        for a in touched:
            for b in touched if a[2] else ():
                renew()
                yield a, b, buffer


def _elements(code: Code, s: Statement, buffer: str) -> Iterator[tuple[isl.Map, bool]]:
    for t, _, indices, domain, does in _accesses(code, s, (buffer,)):
        found = code.touched(t, buffer, indices).intersect_domain(domain)
        depth = len(s.names)
        yield found.project_out(isl.dim_type.in_, depth, len(t.names) - depth), does == "writes"


def _other_iterations(s: Statement, t: Statement, depth: int) -> isl.Map:
    """Instances in one iteration of the loops around, and in different iterations of the loop at that depth."""
    return relation(s, t, [[*(f"a{k} = b{k}" for k in range(depth)), f"a{depth} != b{depth}"]])


def _other_counted_iterations(s: Statement, t: Statement, number: Digits, loop: Counted) -> isl.Map:
    """Instances in one iteration of the loops around `loop`, as far as the number counts those, and in different
    iterations of `loop`."""
    first = s.names.index(number.digits[0].name)
    a, b = (" + ".join(f"{d.unit}{x}{first + k}" for k, d in enumerate(number.digits)) for x in "ab")
    same = [] if loop.upto is None else [f"floor(({a})/{loop.upto}) = floor(({b})/{loop.upto})"]
    return relation(s, t, [[*same, f"floor(({a})/{loop.unit}) != floor(({b})/{loop.unit})"]])


def _overtaking(code: Code, which: str) -> None:
    """Raises Refuted if the stages of a pipelined loop move the later of two conflicting accesses before the earlier."""
    loops = {x.var: x for s in code.statements for x, _ in s.path if x.kind is LoopKind.PIPELINED}
    for loop in loops.values():
        stages = pipeline(loop)
        if stages is None:
            raise Undecided(f"the stages of the pipelined loop `{loop.var}` cannot be read")
        inside = [s for s in code.statements if any(x.var == loop.var for x, _ in s.path)]
        for a, b, buffer in _pairs(code, inside, but_private_to=None):
            for one, other in ((a, b), (b, a)):
                (s, m, _), (t, n, _) = one, other
                both = m.apply_range(n.reverse()).intersect(code.before(s, t))
                both = both.intersect(_rounds_swapped(s, t, loop, *stages))
                if not both.is_empty():
                    notes, name, sizes = _conflict(code, buffer, one, other, both)
                    raise Refuted(OVERTAKEN(None, notes, which=which, loop=loop.var, element=name, sizes=sizes), sizes)


def _rounds_swapped(s: Statement, t: Statement, loop: For, stages: tuple[int, ...], order: tuple[int, ...]) -> isl.Map:
    """Instances of `s` and `t` in one iteration of the loops around the pipeline for which that of `t` is in an earlier
    round, or earlier in the same round."""
    x, y = (next(n for around, n in z.path if around.var == loop.var) for z in (s, t))
    if x == y:
        return relation(s, t, [])  # one statement of the pipeline runs its iterations in order
    outside = {around.var for around, _ in s.path[: [around.var for around, _ in s.path].index(loop.var)]}
    depth = sum(d.loops[0].loop in outside for d in s.digits)
    same = [f"a{k} = b{k}" for k in range(depth)]
    i, j = (f"a{depth}", f"b{depth}") if loop.var in s.names else ("0", "0")
    earlier = "<=" if order[y] < order[x] else "<"
    return relation(s, t, [[*same, f"{j} + {stages[y]} {earlier} {i} + {stages[x]}"]])


def _conflict(
    code: Code, buffer: str, one: AccessMap, other: AccessMap, both: isl.Map
) -> tuple[tuple[Note, Note], str, ExampleSizes]:
    """Two accesses to one element, the element, and the sizes of an example: `both` goes from instances of the one access to
    those of the other that touch the same element."""
    (s, m, _), (t, _, _) = one, other
    (x, y), sizes = example(both.wrap(), [len(s.names), len(t.names)])
    image = point(x).apply(m)
    (whole,), _ = example(image, [image.dim(isl.dim_type.set)])
    name = element(buffer, whole[len(code.homes[buffer]) :])
    return (Note("one", at(s, x)), Note("the other", at(t, y))), name, sizes


# Confirms refutations: finds inputs on which two programs differ, by running both one scalar at a time.
#
# Integer sets find that two expressions differ, or that an order is violated. This does not show that the results differ, and
# the proof is long. So a program is called wrong only after an interpreter, which shares no code with the proof, has returned
# two different results. Loops whose iterations have no order run in several orders.


STEPS = 1 << 21
"""The largest number of block instances and buffer elements that the interpreter runs, which takes some seconds."""

SEEDS, ENOUGH = 32, 1 << 21
"""The number of inputs that are tried for each choice of sizes, and the number of steps after which no more are tried."""

SHARES = (0.5, 1.0, 0.1)
"""The shares of special values among the elements. Many in one reduction hide each other."""

ORDERS: dict[Order, str] = {
    "forward": "", "reversed": ", where loops without an order run backwards",
    "shuffled": ", where loops without an order run in a random one",
    "together": ", where all iterations of loops without an order run at once",
}  # fmt: skip

RELATIVE = 1e-9

LISTED = 16
"""The number of elements of an input that a message lists."""

SIZES = (2, 3, 5, 8)
"""Sizes of open dimensions that are tried besides those of the proof's example."""


@frozen
class Shown:
    """Inputs, in the types that buffers have in memory, and the difference that they cause."""

    told: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, Array]


@frozen
class TooLong:
    """The programs were not run: they take too many steps for every choice of sizes."""


def show(
    original: Program, scheduled: Program, names: tuple[str, str], met: Mapping[str, int]
) -> Shown | TooLong | None:
    """Inputs on which the programs differ, or one of them breaks a rule; None if no inputs that are tried show this.

    `met` has sizes of open dimensions to begin with.
    """
    ran = False
    for sizes in _choices(original, met):
        pair = bind(original, sizes), bind(scheduled, sizes)
        steps = sum(map(_step_count, pair))
        if steps > STEPS:
            continue
        ran = True
        for inputs in trial_inputs(*pair, min(SEEDS, 1 + ENOUGH // steps)):
            told = _difference(*pair, names, inputs)
            if told is not None:
                return Shown(told, sizes, inputs)
    return None if ran else TooLong()


def _choices(p: Program, met: Mapping[str, int]) -> Iterator[dict[str, int]]:
    if all(d.name in met for d in p.dims) and broken_by(p.dims, met) is None:
        yield {d.name: met[d.name] for d in p.dims}
    for n in SIZES if p.dims else ():
        sizes = nearest(p.dims, {d.name: max(d.low, n if d.high is None else min(n, d.high)) for d in p.dims})
        if sizes is not None:
            yield {**sizes}


def trial_inputs(a: Program, b: Program, count: int) -> Iterator[dict[str, Array]]:
    """So many random inputs, every second time of one sign, since some differences show only for a least or greatest value;
    then half as many with special values, at least one for each share of them.
    """
    signed = {p.name: p.dtype for p in a.inputs if p.dtype.kind in ("float", "int") and not drawn_as(a, p.name)}
    for seed in range(count):
        found = make_inputs(a, seed // 2)
        if seed % 2:
            sign = -1 if seed % 4 == 1 else 1
            found |= {n: narrow(sign * np.abs(widen(found[n], t)), t) for n, t in signed.items()}
        yield found
    kinds = _special_kinds(a) & _special_kinds(b)
    for seed in range(max(len(SHARES), count // 2)):
        yield special_inputs(a, seed, SHARES[seed % len(SHARES)], kinds)


def _special_kinds(p: Program) -> frozenset[Special]:
    """The special values for which a program has one result in every order that the language allows.

    Large floats of both signs have another sum in another order, and `min` and `max` may return either of two zeros. The
    factors of a running sum are multiplied first, and laws of declared reducers and of `FINITE` exponentials may be about
    finite numbers only. A position is compared as the program likes.
    """
    updates = [update_of(b) for b in blocks(p)]
    stores = [s for b in blocks(p) for s in b.body]
    operations = {(e.op, dtype_of(e).is_float) for s in stores for e in _within(s.value) if isinstance(e, Binary)}
    kinds = set(Special)
    if any(it.kind is IterKind.SCAN for b in blocks(p) for it in b.iters) or (FINITE, True) in p.annotations:
        kinds.clear()
    if any(isinstance(u, Combination) for u in updates):
        kinds.clear()
    if any(update_of(b) is not None for b in blocks(p)) or any(map(_adds_several, stores)):
        kinds -= {Special.EXTREME, Special.NEGATIVE_ZERO}
    if {("min", True), ("max", True)} & operations:
        kinds.discard(Special.NEGATIVE_ZERO)
    return frozenset(kinds)


def _adds_several(s: Store) -> bool:
    """Whether the store adds three floats or more."""
    sums = [e for e in _within(s.value) if isinstance(e, Binary) and e.op in ("+", "-") and dtype_of(e).is_float]
    return len(sums) > 1


def _within(e: Expr) -> Iterator[Expr]:
    yield e
    for c in children(e):
        yield from _within(c)


def _step_count(p: Program) -> int:
    """A rough number of steps of the interpreter."""
    total = sum(prod(shape_of(b)) for b in (*p.params, *p.buffers))
    for around, s in walk(p.body):
        if isinstance(s, Block):
            ranges = extent_ranges(around)
            total += prod(max(1, bounds(loop.extent, ranges)[1] or 0) for loop in around) * len(s.body)
    return total


def _difference(a: Program, b: Program, names: tuple[str, str], inputs: Mapping[str, Array]) -> str | None:
    """The difference of the programs that an interpreter finds, or the rule that one of them breaks, as text."""
    first = _outcome(a, inputs, "forward")
    if isinstance(first, str):
        return f"{names[0]}: {first}"
    slack = max(map(_slack, (a, b)))
    free = any(isinstance(s, For) and s.kind in (*AT_ONCE, LoopKind.PIPELINED) for _, s in walk(b.body))
    for order in ORDERS if free else ("forward",):
        second = _outcome(b, inputs, order)
        how = ORDERS[order]
        if isinstance(second, str):
            return f"{names[1]}{how}: {second}"
        for p in a.outputs:
            at = _first_difference(first[p.name], second[p.name], slack)
            if at is not None:
                x, y = first[p.name][at].item(), second[p.name][at].item()
                return f"{element(p.name, at)} is {_row(x)} by {names[0]}, and {_row(y)} by {names[1]}{how}"
    return None


def _outcome(p: Program, inputs: Mapping[str, Array], order: Order) -> dict[str, Array] | str:
    """The outputs, or the interpreter's error as text. A read of an element that nothing has written is an error if the
    outputs depend on what memory holds.
    """
    try:
        return interpret(p, inputs, order)
    except Uninitialised as e:
        try:
            found, other = (interpret(p, inputs, order, fill) for fill in FILLS)
        except InterpretError:  # what is read is a subscript
            return str(e)
        same = all(np.array_equal(found[n], other[n], equal_nan=True) for n in found)
        return found if same else str(e)
    except InterpretError as e:
        return str(e)


def _first_difference(x: Array, y: Array, slack: float) -> tuple[int, ...] | None:
    """The first element at which two results differ by more than the order of operations can explain."""
    a, b = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        sizes = np.abs(np.concatenate([a.ravel(), b.ravel()]))
        largest = float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))
        same = (x == y) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= slack * largest)
    wrong = np.argwhere(~same)
    return tuple(map(int, wrong[0])) if len(wrong) else None


def _slack(p: Program) -> float:
    """The possible effect of rounding on a result, relative to its largest element; mostly that of conversions.

    Nothing adds up in a type without arithmetic, so values of it are apart by two neighbours at most.
    """
    casts = [x.dtype for b in blocks(p) for s in b.body for x in _within(s.value) if isinstance(x, Cast)]
    narrow = [t for t in casts if t.is_float]
    return max([RELATIVE, *((64 if t.has_arithmetic else 4) * unit_roundoff(t) for t in narrow)])


def listed(p: Program, inputs: Mapping[str, Array]) -> str:
    """The inputs as text; long ones as their shapes."""
    return ", ".join(f"{b.name} = {_text(widen(inputs[b.name], b.dtype))}" for b in p.inputs)


def _text(a: Array) -> str:
    if a.size > LISTED:
        beyond = "" if a.dtype.kind != "f" or np.isfinite(a).all() else ", some of them nan or infinite"
        return f"{' × '.join(map(str, a.shape))} numbers{beyond}"
    return _row(a.tolist())


def _row(x: object) -> str:
    if isinstance(x, list):
        return f"[{', '.join(map(_row, cast('list[object]', x)))}]"
    return str(x).lower() if isinstance(x, bool) else f"{x:.9g}"  # enough digits for an f32


# The part in which two programs differ: a step changes one nest of a pipeline, and its proof need not follow the others.


def differing_parts(a: Program, b: Program) -> tuple[Program, Program] | None:
    """Both programs without the statements that they begin and end with alike. What those write before is an input, what they
    read behind is an output. None if nothing can be left out.

    The programs compute the same if these do: for all inputs, so for the ones that the left out statements make. The
    reverse is not so, as statements behind may not read all elements, or those before may not make all values.
    """
    before = _alike(a.body, b.body)
    behind = _alike(a.body[before:][::-1], b.body[before:][::-1])
    first, last = a.body[:before], a.body[len(a.body) - behind :]
    parts = [p.body[before : len(p.body) - behind] for p in (a, b)]
    changed = written((*parts[0], *parts[1]))
    if not (first or last) or changed & written((*first, *last)):  # elements of one array, made in both
        return None
    inside = _touched((*parts[0], *parts[1]))
    inputs = inside & (written(first) | {p.name for p in a.params} - changed)
    outputs = changed & (_touched(last) | {p.name for p in a.params})
    if changed & _touched(first):  # an iteration of the others is read before it is written, or an input is changed
        return None
    made = [_with_interface(p, body, inputs, outputs) for p, body in zip((a, b), parts, strict=True)]
    return (made[0], made[1]) if made[0].params == made[1].params else None


def _alike(a: tuple[Stmt, ...], b: tuple[Stmt, ...]) -> int:
    """How many statements both begin with."""
    return sum(takewhile(bool, map(eq, a, b)))


def _touched(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    return frozenset[str]().union(*map(touched_in, stmts))


def _with_interface(p: Program, body: tuple[Stmt, ...], inputs: frozenset[str], outputs: frozenset[str]) -> Program:
    every = (*p.params, *p.buffers)
    params = (*(x for x in every if x.name in inputs), *(x for x in every if x.name in outputs))
    own = tuple(x for x in p.buffers if x.name in _touched(body) - inputs - outputs)
    return replace_node(p, params=tuple(replace_node(x, scope="global") for x in params), buffers=own, body=body)


# Reductions that update several buffers in one step, such as a position and its value.
#
# A step finds in each buffer what the steps before have left. The steps are those of one reduction only if all these
# buffers have one state: an element of one buffer goes with one element of each other, what writes the one writes the other
# with it, and they begin with the identity of the reducer.


def in_one_state(code: Code) -> Code:
    """The code, in which stores that do not have one state are no updates."""
    apart = {s.number for stores in _steps(code) if not _has_one_state(code, stores) for s in stores}
    if apart:
        code.statements = [replace(s, accumulates=None) if s.number in apart else s for s in code.statements]
        code.writers = {b: [code.statements[s.number] for s in known] for b, known in code.writers.items()}
    return code


def _steps(code: Code) -> Iterator[tuple[Statement, ...]]:
    """The stores of each block that make one step together, if they are several."""
    for stores in _blocks(code.statements):
        if len(stores) > 1 and not stores[0].is_init and isinstance(update_of(stores[0].block), Combination):
            yield stores


def _blocks(statements: Sequence[Statement]) -> list[tuple[Statement, ...]]:
    """The statements by block, those of its initialisation apart."""
    found: dict[tuple[str, bool], list[Statement]] = {}
    for s in statements:
        found.setdefault((s.block.name, s.is_init), []).append(s)
    return [tuple(stores) for stores in found.values()]


def _has_one_state(code: Code, stores: Sequence[Statement]) -> bool:
    buffers = [s.store.buffer for s in stores]
    others = {s.number: s for b in buffers for s in code.writers[b]}
    for group in _blocks(list(others.values())):
        if [s.store.buffer for s in group] != buffers or not _go_together(code, group):
            return False
        if not _same_reduction(group, stores) and not _begins(group, stores):
            return False
    return True


def _go_together(code: Code, stores: Sequence[Statement]) -> bool:
    """Whether the instances that write an element of one buffer write one element of each other, and no others do."""
    first, *others = (code.written(s) for s in stores)
    related: list[isl.Map] = [first.reverse().apply_range(m) for m in others]
    return all(m.is_bijective() for m in related)


def _same_reduction(group: Sequence[Statement], stores: Sequence[Statement]) -> bool:
    """Whether the stores are steps of the same reduction."""
    kinds = [[s.accumulates and s.accumulates.kind for s in x] for x in (group, stores)]
    return kinds[0] == kinds[1]


def _begins(group: Sequence[Statement], stores: Sequence[Statement]) -> bool:
    """Whether the stores begin a reduction by the identity of its reducer."""
    update = update_of(stores[0].block)
    assert isinstance(update, Combination)
    return [s.store.value for s in group] == [*update.reducer.identity]


@problem(
    "E0808",
    "the programs differ in what they are called with: {what}",
    help="give both the same parameters, in the same order",
)
def INTERFACE(*, what: str) -> None: ...
@problem(
    "E0804",
    "{which} does not write {element}{sizes}",
    help="run the block for all elements: a loop ends too early, or a guard is too narrow",
)
def MISSING_IN_OUTPUT(*, which: str, element: str, sizes: ExampleSizes) -> None: ...
@problem("E0807", "it is not proved that the programs compute the same: {reason}")
def UNPROVED(*, reason: str, repair: str) -> None: ...


@frozen
class Valid:
    """The scheduled program computes what the original does, whenever it runs and the assumptions hold."""

    assumes: tuple[str, ...] = ()
    """The unproved laws of the reducers that a file declares, in words: that ``mine` is associative`; and what a schedule
    says of its inputs."""


@frozen
class Invalid:
    """The scheduled program is wrong; the diagnostic has the facts. A run with `inputs` shows it, if it needs inputs."""

    diagnostic: Diagnostic
    inputs: Mapping[str, Array] = field(default_factory=dict[str, Array], compare=False, repr=False)


@frozen
class Unproved:
    """Neither is known; the diagnostic has the reason."""

    diagnostic: Diagnostic


Report = Valid | Invalid | Unproved


def validate(
    original: Program, scheduled: Program, names: tuple[str, str] = ("the original", "the scheduled program")
) -> Report:
    """Whether `scheduled` computes what `original` does. `names` are their names in messages.

    Of a divided program each case is compared with the other program for its sizes, and all sizes are those of a case.
    """
    if scheduled.cases or original.cases:
        return _validate_cases(original, scheduled, names)
    original, scheduled = resolved(original), resolved(scheduled)
    for reducer, v in reducer_laws(original):
        if isinstance(v, Broken):
            why = f"not that {law_text(reducer, v)}, as reductions in any order need"
            return _unproved(why, "declare a reducer that keeps the law, or write a `scan`, which has an order")
    try:
        with bounded():
            regrouped = _prove(original, scheduled, names)
    except Refuted as e:
        return _shown(original, scheduled, names, e)
    except Undecided as e:
        return _unproved(str(e))
    except NotAffine as e:
        return _unproved(f"`{format_expr(e.expr)}` is not affine", "write it with constant factors; or: " + BY_RUNS)
    except Exhausted:
        why = "it takes more than the operations on integer sets that are allowed"
        return _unproved(why, "fixed sizes in place of open ones, or fewer steps, may be decided; or: " + BY_RUNS)
    said = ["the factors of exponentials are finite"] if (FINITE, True) in scheduled.annotations else []
    if (IN_RANGE, True) in scheduled.annotations or (regrouped and not regroups_in_range(original, scheduled)):
        said.append("no product of the factors of a scan leaves the range of its type where the steps do not")
    return Valid((*assumptions(original), *said))


def _validate_cases(original: Program, scheduled: Program, names: tuple[str, str]) -> Report:
    try:
        _same_interface(original, scheduled)
    except Refuted as e:
        return Invalid(e.diagnostic)
    divided = scheduled if scheduled.cases else original
    if (left := uncovered(divided)) is not None:
        sizes = described(divided.divided_by, left)
        return _unproved(f"no case has {sizes}", f"add a case for {sizes}")
    assumed: dict[str, None] = {}
    for case in divided.cases:
        for_sizes = f" for {described(divided.divided_by, case.sizes)}"
        if scheduled.cases:
            pair = narrowed(original, divided.divided_by, case.sizes), case.program
        else:
            pair = case.program, narrowed(scheduled, divided.divided_by, case.sizes)
        first, second = names
        found = validate(*pair, (f"{first}{for_sizes}", f"{second}{for_sizes}"))
        if not isinstance(found, Valid):
            return found
        assumed |= dict.fromkeys(found.assumes)
    return Valid(tuple(assumed))


STEP_PIECES = 64
"""The pieces of a question up to which a step of a schedule is worth a proof. Lines of Harris's detector and pyramids have up
to 32, tiles of a wave over time up to 48; with a thousand a refusal took a minute."""

STEP_QUESTIONS = 2
"""The questions of a proof that a step of a schedule is worth, together: those of the steps in tests take less than half of
one, but for folds of attention whose rows end at a mask, which take between one and two. Operations on the terms of chunks
of counts take 7 µs each, and with the limit of other proofs a refusal took minutes."""


def proves(original: Program, scheduled: Program) -> bool:
    """Whether `scheduled` is proved to compute what `original` does, with the effort that a step of a schedule is worth."""
    original, scheduled = resolved(original), resolved(scheduled)
    if any(isinstance(v, Broken) for _, v in reducer_laws(original)):
        return False
    for a, b in filter(None, (differing_parts(original, scheduled), (original, scheduled))):
        try:
            with bounded(STEP_QUESTIONS):
                _prove(a, b, ("the program", "the result"), STEP_PIECES)
        except (Refuted, Undecided, NotAffine, Exhausted):
            continue
        return True
    return False


BY_RUNS = "`replay` compares the results of a schedule with the reference"


def _unproved(reason: str, repair: str = BY_RUNS, notes: tuple[Note, ...] = ()) -> Unproved:
    return Unproved(UNPROVED(None, reason=reason, repair=repair, notes=notes))


def _shown(original: Program, scheduled: Program, names: tuple[str, str], found: Refuted) -> Invalid | Unproved:
    """The refutation with inputs that show it; without such inputs it is only the reason why the proof stopped."""
    if found.sizes is None:
        return Invalid(found.diagnostic)
    met = {name: value for name, value in found.sizes.values if any(d.name == name for d in original.dims)}
    d = found.diagnostic
    facts = tuple(n for n in d.notes if n.kind != "help")
    match show(original, scheduled, names, met):
        case Shown(told=told, sizes=sizes, inputs=inputs):
            at = "".join(f"{name} = {n}, " for name, n in sizes.items())
            notes = (Note("run", told), Note("inputs", f"{at}{listed(bind(original, sizes), inputs)}"))
            return Invalid(replace(d, notes=(*facts, *notes, *(n for n in d.notes if n.kind == "help"))), inputs)
        case TooLong():
            why = "the programs are too long for a run to show what was found"
            repair = f"at smaller sizes a run can show it, or that there is nothing; or: {BY_RUNS}"
        case None:
            why = "no inputs that were tried show what was found"
            repair = f"both may still be equal: let them compute it by the same operations; or: {BY_RUNS}"
    return _unproved(why, repair, (Note("found", f"{d.code}: {d.message}"), *facts))


def _prove(original: Program, scheduled: Program, names: tuple[str, str], pieces: int | None = None) -> bool:
    """Whether the proof takes scans of the original as sums of terms, and not step by step. Raises Refuted, Undecided,
    NotAffine or Exhausted unless the programs compute the same.
    """
    _same_interface(original, scheduled)
    for p, which in zip((original, scheduled), names, strict=True):
        if (far := too_far_in(p)) is not None:
            raise Undecided(f"`{format_expr(far)}` in {which} may leave 64 bits")
    before, after = (in_one_state(Code(parts_as_loops(p))) for p in (original, scheduled))
    for code, which in zip((before, after), names, strict=True):
        verify_memory(code, which)

    finite = frozenset(p.name for p in original.inputs if Property.FINITE in assumed(original, p.name))

    def values(
        chains: Mapping[str, str] | None = None, corrected: Callable[[Values], Corrections] | None = None
    ) -> tuple[Values, Values]:
        first, second = zip((before, after), names, strict=True)
        return Values(*first, chains, corrected, finite), Values(*second, chains, corrected, finite)

    if after.scales and not before.scales:  # no schedule makes a linear recurrence but as a corrected sum
        _equal(original.outputs, *values(scales_of(before), Corrections), pieces)
        return True
    try:
        _equal(original.outputs, *values(), pieces)
        return False
    except TooMany:
        raise
    except (Refuted, Undecided, NotAffine, Exhausted) as e:
        # A scan is followed step by step if it can be. If the other program takes other steps, both are sums of terms.
        if not any(s.runs for s in before.statements):
            raise
        try:
            _equal(original.outputs, *values(scales_of(before, after), Corrections), pieces)
        except Undecided:
            if isinstance(e, Refuted):
                raise e from None  # inputs may show what it found
            raise
        return True


def prove_in_order(original: Program, scheduled: Program, names: tuple[str, str], pieces: int | None = None) -> None:
    """Raises Refuted, Undecided, NotAffine or Exhausted unless each element of each result is made by the same operations on
    the same values in both programs, in the same order and grouping. No law of rounded arithmetic is used.
    """
    _same_interface(original, scheduled)
    before, after = (in_one_state(Code(parts_as_loops(p), in_order=True)) for p in (original, scheduled))
    for code, which in zip((before, after), names, strict=True):
        verify_memory(code, which)
    _equal(original.outputs, Values(before, names[0]), Values(after, names[1]), pieces)


def _equal(outputs: Sequence[Buffer], before: Values, after: Values, pieces: int | None) -> None:
    try:
        _equal_by(frozenset(Shortcut) - {Shortcut.WHOLE}, outputs, before, after, pieces)
    except TooMany:
        raise
    except (Refuted, Undecided, Exhausted):
        # Terms that are taken apart can be too many, or have no sign that tells them from each other. A step of a schedule is
        # not worth a second proof.
        if pieces is not None:
            raise
        with suppress(Refuted, Undecided, NotAffine, Exhausted):
            return _equal_by(frozenset(Shortcut), outputs, before, after, pieces)
        raise


def _equal_by(
    allowed: frozenset[Shortcut], outputs: Sequence[Buffer], before: Values, after: Values, pieces: int | None
) -> None:
    while True:
        comparison = Comparison(before, after, allowed, pieces=pieces)
        try:
            with bounded():
                return _compare(outputs, comparison)
        except TooMany:
            raise
        except (Refuted, Undecided, NotAffine, Exhausted):
            # One at a time: a reduction that is not taken in order has thousands of terms in a pipeline.
            given_up = (s for s in (Shortcut.NAMED, Shortcut.JOINED, Shortcut.IN_ORDER) if s in comparison.taken)
            if (shortcut := next(given_up, None)) is None:
                raise
            allowed -= {shortcut}


def _compare(outputs: Sequence[Buffer], comparison: Comparison) -> None:
    for p in outputs:
        renew()
        a, b = _result(comparison.original, p), _result(comparison.scheduled, p)
        comparison.prove(Obligation(a, b, a.statement.domain.identity()))


def _same_interface(a: Program, b: Program) -> None:
    for what, x, y in (
        ("arguments", list(map(format_buffer, a.params)), list(map(format_buffer, b.params))),
        ("results", [p.name for p in a.outputs], [p.name for p in b.outputs]),
        ("open dimensions", [str(d) for d in a.dims], [str(d) for d in b.dims]),
    ):
        if x != y:
            differing = f"{what} {', '.join(x) or 'none'} and {', '.join(y) or 'none'}"
            raise Refuted(INTERFACE(None, what=differing), None)


def _result(values: Values, p: Buffer) -> At:
    """The reads of all elements of an output after the program. Raises Refuted if one is not written."""
    names = tuple(f"e{k}'" for k in range(len(p.shape)))  # no loop has a name with a quote
    read = Load(p.name, tuple(map(Var, names)), p.dtype)
    block = Block("the result", (), ())
    s = Statement(
        len(values.code.statements), block, False, Store(p.name, read.indices, read), (), (), names,
        values.code.box(p.name), (), None,
    )  # fmt: skip
    node = At(s, read)
    rest = s.domain
    for _, m in values.steps(node) or ():
        rest = rest.subtract(m.domain())
    if not rest.is_empty():
        for w in values.code.writers[p.name]:
            if not rest.is_disjoint(values.code.written(w).range()):
                values.require_written(node, rest)  # a write exists, but nothing that an update could start from
        (at,), sizes = example(rest, [len(names)])
        raise Refuted(MISSING_IN_OUTPUT(None, which=values.which, element=element(p.name, at), sizes=sizes), sizes)
    return node

"""Checks rules that a program must keep whatever it computes: no access or iterator out of bounds, no races.

`proof.equivalence.flow` follows values as if all loops ran in order. That is valid because loops that do not run in order are
proved here to carry no dependence, but for updates of one atomic block by bound loops: they come one at a time, and any
order of them accumulates the same. The value of a scan that blocks of a GPU pass on is waited for, in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tensorc_dsl.base.diagnostic import Note, problem
from tensorc_dsl.ir.annotations import pipeline
from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.ir.program import For, IterKind, LoopKind, is_atomic
from tensorc_dsl.ir.reductions import not_atomic, order_of
from tensorc_dsl.proof.equivalence.code import Code, Statement, extent_conditions, relation, where
from tensorc_dsl.proof.equivalence.digits import Counted, Digits
from tensorc_dsl.proof.equivalence.facts import ExampleSizes, Refuted, Undecided, at, element, example, point
from tensorc_dsl.proof.equivalence.values import is_condition
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.budget import renew
from tensorc_dsl.proof.sets.data_subscripts import outermost, with_values
from tensorc_dsl.proof.sets.running import passed_on
from tensorc_dsl.proof.sets.sets import mapping, points
from tensorc_dsl.proof.sets.simplify import conjuncts


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
                touching = a[1].apply_range(b[1].reverse()).intersect(_apart(a[0], b[0], depth))
                updates = a[0].number == b[0].number and _is_atomic(a[0])
                for c in free if not touching.is_empty() else ():
                    if c.kind is LoopKind.BOUND and (updates or buffer in passed_on(code.program, c.loop)):
                        continue
                    alone = len(number.loops) == 1
                    both = touching if alone else touching.intersect(_counted_apart(a[0], b[0], number, c))
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
        touched: list[AccessMap] = [(s, m, writes) for s in inside for m, writes in _touched(code, s, buffer)]
        for a in touched:
            for b in touched if a[2] else ():
                renew()
                yield a, b, buffer


def _touched(code: Code, s: Statement, buffer: str) -> Iterator[tuple[isl.Map, bool]]:
    for t, _, indices, domain, does in _accesses(code, s, (buffer,)):
        found = code.touched(t, buffer, indices).intersect_domain(domain)
        depth = len(s.names)
        yield found.project_out(isl.dim_type.in_, depth, len(t.names) - depth), does == "writes"


def _apart(s: Statement, t: Statement, depth: int) -> isl.Map:
    """Instances in one iteration of the loops around, and in different iterations of the loop at that depth."""
    return relation(s, t, [[*(f"a{k} = b{k}" for k in range(depth)), f"a{depth} != b{depth}"]])


def _counted_apart(s: Statement, t: Statement, number: Digits, loop: Counted) -> isl.Map:
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

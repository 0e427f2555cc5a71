"""What a program may not do by itself, whatever it computes: leave a buffer or a domain, or race.

All loops are taken as if they ran in order when values are followed (`affine.validate_flow`); that is right because here
loops that do not run in order are shown to carry nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.accesses import guarded_loads
from tensorc_dsl.affine.sets import mapping, points
from tensorc_dsl.affine.validate_code import Code, Statement, extent_conditions, where
from tensorc_dsl.affine.validate_facts import Refuted, at, element, example, refuted
from tensorc_dsl.affine.validate_values import is_condition
from tensorc_dsl.diagnostic import Problem
from tensorc_dsl.ir.expr import Expr, loads
from tensorc_dsl.ir.program import LoopKind

OUTSIDE = Problem("E0801", "{which}, {what} {does} {element}, outside of `{buffer}`{sizes}")
LEAVES = Problem("E0801", "{which}, iterator `{name}` of {what} is {value}, outside of its extent{sizes}")
RACE = Problem(
    "E0802", "{which}, iterations of the {kind} loop `{loop}` touch {element} at once{sizes}",
    help="run the loop in order, or give each iteration its own copy of the buffer",
)  # fmt: skip


def verify_memory(code: Code, which: str) -> None:
    """Raises Refuted where an access leaves its buffer, an iterator its extent, or a loop races; NotAffine."""
    for s in code.statements:
        if not s.domain.is_empty():
            _inside(code, s, which)
    _races(code, which)


def _inside(code: Code, s: Statement, which: str) -> None:
    names = [it.name for it in s.block.iters]
    values = mapping(s.names, [e for _, _, e in s.iters]).intersect_domain(s.domain)
    rest = values.subtract_range(points(names, extent_conditions(names, [it.extent for it in s.block.iters])))
    if not rest.is_empty():
        (x, v), sizes = example(rest.wrap(), [len(s.names), len(names)])
        inside = points(names, extent_conditions(names, [it.extent for it in s.block.iters]))
        for k, n in enumerate(names):
            one = inside.project_out(isl.dim_type.set, k + 1, len(names) - k - 1).project_out(isl.dim_type.set, 0, k)
            if isl.Set(f"{{ [{v[k]}] }}").intersect(one).is_empty():
                raise refuted(LEAVES, which=which, name=n, what=at(s, x), value=v[k], sizes=sizes)
    for buffer, indices, domain, does in _accesses(s):
        if not indices or any(loads(i) for i in indices):  # a gather reads what the original reads, or is refuted
            continue
        touched = mapping(s.names, indices).intersect_domain(domain)
        rest = touched.subtract_range(code.box(buffer))
        if not rest.is_empty():
            (x, v), sizes = example(rest.wrap(), [len(s.names), len(indices)])
            raise refuted(
                OUTSIDE, which=which, what=at(s, x), does=does, element=element(buffer, v), buffer=buffer, sizes=sizes
            )


def _accesses(s: Statement) -> Iterator[tuple[str, tuple[Expr, ...], isl.Set, str]]:
    """Each access with the instances at which it happens; what depends on data may happen always."""
    yield s.store.buffer, s.store.indices, s.domain, "writes"
    for e in (s.store.value, *s.store.indices):
        for x, conditions in guarded_loads(e):
            domain = s.domain
            for c in conditions:
                if is_condition(c):
                    domain = domain.intersect(where(s, c))
            yield x.buffer, x.indices, domain, "reads"


def _races(code: Code, which: str) -> None:
    free = {d.name: d for s in code.statements for d in s.digits if d.kind in (LoopKind.PARALLEL, LoopKind.VECTORIZED)}
    for name, digit in free.items():  # a loop's iterations differ in one of its digits
        inside = [s for s in code.statements if name in s.names]
        depth = inside[0].names.index(name)
        for buffer in dict.fromkeys(s.store.buffer for s in inside):
            if name in code.homes[buffer]:
                continue  # each iteration has its own copy
            touched = [(s, m, writes) for s in inside for m, writes in _touched(code, s, buffer)]
            for s, m, writes in touched:
                for t, n, _ in touched if writes else ():
                    both = m.apply_range(n.reverse()).intersect(_apart(s, t, depth))
                    if not both.is_empty():
                        raise _race(code, buffer, (s, m), t, both, which=which, kind=digit.kind, loop=digit.loop)


def _touched(code: Code, s: Statement, buffer: str) -> Iterator[tuple[isl.Map, bool]]:
    """From instances to the elements of the buffer that are touched, and whether they are written."""
    for name, indices, domain, does in _accesses(s):
        if name == buffer:
            yield code.touched(s, buffer, indices).intersect_domain(domain), does == "writes"


def _race(
    code: Code, buffer: str, one: tuple[Statement, isl.Map], t: Statement, both: isl.Map, **facts: object
) -> Refuted:
    s, m = one
    (x, y), sizes = example(both.wrap(), [len(s.names), len(t.names)])
    values = isl.Set(f"{{ [{', '.join(map(str, x))}] }}").apply(m)
    (whole,), _ = example(values, [values.dim(isl.dim_type.set)])
    name = element(buffer, whole[len(code.homes[buffer]) :])
    return refuted(RACE, ("one", at(s, x)), ("the other", at(t, y)), element=name, sizes=sizes, **facts)


def _apart(s: Statement, t: Statement, depth: int) -> isl.Map:
    """Instances of one iteration of the loops around, and of different iterations of the loop at that depth."""
    a, b = [f"a{k}" for k in range(len(s.names))], [f"b{k}" for k in range(len(t.names))]
    same = [f"a{k} = b{k}" for k in range(depth)]
    text = " and ".join([*same, f"a{depth} != b{depth}"])
    return isl.Map(f"{{ [{', '.join(a)}] -> [{', '.join(b)}] : {text} }}")

"""The reads and writes of a program's blocks, over the variables of the loops around them, and buffers with a copy for each
iteration of a loop.

An access stands for all its instances: one for each iteration of `loops` in which `guard` holds, at the element that
`indices` give. `seq` orders the accesses in one iteration of the loops that two of them share: text order, a block's
`init` before its body, the reads of a store before its write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Compare,
    CompareOp,
    Const,
    Expr,
    Load,
    Select,
    Var,
    add,
    children,
    constant,
    dtype_of,
    free_vars,
    index,
    loads,
    substitute,
)
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Block, Buffer, For, IterKind, Program, Stmt, fresh, walk
from tensorc_dsl.ir.reductions import is_fold, is_whole_update
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.encodings import DATA, INTERVALS, encoded
from tensorc_dsl.proof.sets.linear_forms import Context, Linear, decide, difference, join_quotients, linear, negate
from tensorc_dsl.proof.sets.reductions import loops_of_empty_reduction, where_begun
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, covers
from tensorc_dsl.proof.sets.simplify import conjuncts, extent_ranges


@frozen
class Access:
    """A read or a write of a block, over the variables of the loops around the block."""

    buffer: str
    indices: tuple[Expr, ...]
    guard: tuple[Expr, ...]
    is_write: bool
    is_init: bool
    block: Block
    loops: tuple[For, ...]
    seq: int
    update: int | None
    """The reduction update of the block that this access belongs to: the position of its store, or 0 for a block whose
    stores are one update. None if it belongs to no update."""
    begun: frozenset[str] = frozenset()
    """The loops that have one iteration for an `init` at least, at 0."""

    def extent(self, loop: For) -> Expr:
        """The extent of one of the loops, for this access."""
        return ONE if loop.var in self.begun else loop.extent

    @property
    def zero(self) -> tuple[Expr, ...]:
        """Expressions that are 0 in every instance of an `init`: the bindings of the reduction iterators."""
        return tuple(it.binding for it in self.block.iters if it.kind is IterKind.REDUCE) if self.is_init else ()


def _inside(indices: tuple[Expr, ...]) -> tuple[Load, ...]:
    return tuple(x for i in indices for x in loads(i))


def guarded_loads(e: Expr, guard: tuple[Expr, ...] = ()) -> tuple[tuple[Load, tuple[Expr, ...]], ...]:
    """Each load with the conditions under which it is evaluated, since a `Select` evaluates one branch only."""
    match e:
        case Select(cond=c, then=a, other=b):
            return (
                *guarded_loads(c, guard),
                *guarded_loads(a, (*guard, c)),
                *guarded_loads(b, (*guard, negate(c))),
            )
        case _:
            own = ((e, guard),) if isinstance(e, Load) else ()
            return (*own, *(x for c in children(e) for x in guarded_loads(c, guard)))


@by_identity(512)
def touched(b: Block) -> frozenset[str]:
    """The buffers that a block reads or writes."""
    names: set[str] = set()
    for s in (*b.init, *b.body):
        names.add(s.buffer)
        names.update(x.buffer for x in (*loads(s.value), *_inside(s.indices)))
    return frozenset(names)


@by_identity(2048)
def touched_in(s: Stmt) -> frozenset[str]:
    """The buffers that the blocks of a statement read or write."""
    return touched(s) if isinstance(s, Block) else frozenset[str]().union(*map(touched_in, s.body))


def written(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    """The buffers that the blocks in `stmts` write."""
    return frozenset[str]().union(*map(_written_in, stmts))


@by_identity(512)
def _written_in(s: Stmt) -> frozenset[str]:
    return written(s.body) if isinstance(s, For) else frozenset(x.buffer for x in (*s.init, *s.body))


def accesses(outer: tuple[For, ...], stmts: tuple[Stmt, ...], buffers: frozenset[str]) -> tuple[Access, ...]:
    """Every access to one of `buffers` in `stmts`, in text order. The statements stand inside the loops `outer`."""
    out: list[Access] = []
    for loops, b in _users(outer, stmts, buffers):
        for x in _own_accesses(b):
            if x.buffer in buffers:
                out.append(replace(x, loops=loops, seq=len(out)))
    return tuple(out)


@by_identity(1024)
def _own_accesses(b: Block) -> tuple[Access, ...]:
    """The accesses of a block, in text order, as if no loop were around it: steps over loops keep most blocks."""
    out: list[Access] = []
    values = {it.name: it.binding for it in b.iters}
    first = tuple(Compare("==", it.binding, ZERO) for it in b.iters if it.kind is IterKind.REDUCE)
    whole = frozenset(s.buffer for s in b.body) if is_whole_update(b) else frozenset[str]()
    stores = [(s, None, True) for s in b.init]
    stores += [(s, 0 if whole else n if is_fold(s) else None, False) for n, s in enumerate(b.body)]
    for s, update, is_init in stores:
        base = (*where_begun(b), *first) if is_init else b.where
        begun = loops_of_empty_reduction(b) if is_init else frozenset[str]()
        for x, conditions in (x for e in (s.value, *s.indices) for x in guarded_loads(e)):
            indices = tuple(substitute(i, values) for i in x.indices)
            # A condition on data may hold in any instance, so it excludes none.
            guard = (*base, *(substitute(c, values) for c in conditions if not loads(c)))
            own = update if x.buffer == s.buffer or x.buffer in whole else None
            out.append(Access(x.buffer, indices, guard, False, is_init, b, (), len(out), own, begun))
        indices = tuple(substitute(i, values) for i in s.indices)
        out.append(Access(s.buffer, indices, base, True, is_init, b, (), len(out), update, begun))
    return tuple(out)


def _users(
    outer: tuple[For, ...], stmts: tuple[Stmt, ...], buffers: frozenset[str]
) -> Iterator[tuple[tuple[For, ...], Block]]:
    """The blocks that read or write one of `buffers`, in text order, each with the loops around it."""
    for s in stmts:
        if buffers.isdisjoint(touched_in(s)):
            continue
        if isinstance(s, Block):
            yield outer, s
        else:
            yield from _users((*outer, s), s.body, buffers)


def home(program: Program, buffer: Buffer) -> tuple[For, ...] | None:
    """The loops each of whose iterations has its own copy of `buffer`, outermost first; None if there is a single copy.

    The home of a buffer of a scope other than "global" is the innermost loop that contains all blocks that access it.
    If that is one block, which reduces, it is around all steps: a value of a reducer may be read by these alone.
    """
    if buffer.scope == "global" or buffer.name in {p.name for p in program.params}:
        return None
    return _common_loops(program.body).get(buffer.name) or None


@by_identity(8)
def private_loops(program: Program) -> dict[str, frozenset[str]]:
    """For each intermediate buffer, the loops whose iterations have copies of their own."""
    common = _common_loops(program.body)
    return {
        b.name: frozenset(x.var for x in (common.get(b.name, ()) if b.scope != "global" else ()))
        for b in program.buffers
    }


@by_identity(16)
def _common_loops(stmts: tuple[Stmt, ...]) -> dict[str, tuple[For, ...]]:
    """For each buffer the loops around all blocks that access it, outermost first; if that is one block, which reduces,
    those around all steps."""
    common: dict[str, tuple[For, ...]] = {}
    only: dict[str, Block | None] = {}
    for around, s in walk(stmts):
        if not isinstance(s, Block):
            continue
        for name in touched(s):
            if name not in common:
                common[name], only[name] = around, s
                continue
            kept = common[name]
            if kept is not around:
                count = next((n for n, (x, y) in enumerate(zip(kept, around, strict=False)) if x is not y), len(around))
                common[name] = kept[:count]
            only[name] = None
    for name, block in only.items():
        if block is not None:
            steps = {v for it in block.iters if it.kind is IterKind.REDUCE for v in free_vars(it.binding)}
            around = common[name]
            common[name] = around[: next((n for n, x in enumerate(around) if x.var in steps), len(around))]
    return common


def common_loops(a: Access, b: Access) -> tuple[For, ...]:
    """The loops around both accesses, outermost first."""
    n = 0
    while n < min(len(a.loops), len(b.loops)) and a.loops[n].var == b.loops[n].var:
        n += 1
    return a.loops[:n]


def context_of(a: Access, b: Access) -> Context:
    """The ranges of the loops around two accesses. Those of one block share it, with the forms of their subscripts."""
    if a.loops is b.loops:
        return _context_of(a.loops)
    return Context(extent_ranges((*a.loops, *b.loops[len(common_loops(a, b)) :])))


@by_identity(64)
def _context_of(loops: tuple[For, ...]) -> Context:
    return Context(extent_ranges(loops))


def mentions(e: Expr, names: Collection[str]) -> bool:
    return not free_vars(e).isdisjoint(names)


# Whether iterations of a loop may have copies of a buffer: the write that filled an element is known before it is read.


# Theorems that name the write that filled an element before it is read; they spare most questions about integer sets.
#
# Each names one instance of a write for every instance of a read: the value of each of the write's loops, in terms of the
# read's. What is left to prove is that this instance runs, so each of its conditions must follow from the conditions and
# ranges of the read. A theorem that does not apply proves nothing.


def starts_itself(r: Access, writes: Sequence[Access], equal: int) -> bool:
    """Theorem: the running value of a reduction has been initialised if the reduction iterators are sums of positive
    multiples of loops within the home on which the element does not depend. For then the iteration with those loops at 0 is
    the same or an earlier one of the same home iteration, and runs `init` for that element if its conditions hold there.
    Where the read runs, each of its loops has an iteration, so extents may be open.
    """
    if r.update is None:
        return False
    inside = {x.var for x in r.loops[equal:]} - frozenset[str]().union(*map(free_vars, r.indices))
    context = context_of(r, r)
    counting: set[str] = set()
    for it in r.block.iters:
        if it.kind is IterKind.REDUCE:
            form = linear(it.binding, context)
            if form.constant or not all(isinstance(x, str) and x in inside and c > 0 for x, c in form.terms.items()):
                return False
            counting.update(free_vars(it.binding))
    if not counting <= inside:
        return False
    first: Mapping[str, Expr] = dict.fromkeys(counting, ZERO)
    facts = _negatives(r.guard, context)
    return any(
        w.is_init
        and w.block is r.block
        and w.indices == r.indices
        and all(_follows(substitute(c, first), {}, r, facts, context) for c in w.guard)
        for w in writes
    )


def fills(w: Access, r: Access) -> bool:
    """Theorem: an earlier write fills a box that contains the read, in one iteration of the loops around both.

    Each of the write's own loops, with positive constant extents, occurs in one subscript or in none. If the factors of a
    subscript's loops, smallest first, leave no gap (each is at most 1 more than the largest sum of the smaller terms), the
    subscripts take all values of a box independently. So there are values of these loops at which each subscript is that of
    the read; the other loops are 0. A condition of the write over a whole subscript is then one over the read's.
    """
    if w.seq >= r.seq:
        return False
    common = common_loops(w, r)
    own = {x.var: constant(x.extent) or 0 for x in w.loops[len(common) :]}
    if not all(n > 0 for n in own.values()):
        return False
    context = context_of(w, r)
    facts = _negatives(r.guard, context)
    seen: dict[str, tuple[dict[str, int], Linear]] = {}
    for i, j in zip(w.indices, r.indices, strict=True):
        form = linear(i, context)
        steps = {a: c for a, c in form.terms.items() if isinstance(a, str) and a in own}
        base = Linear({a: c for a, c in form.terms.items() if a not in steps}, form.constant)
        if any(not isinstance(a, str) and mentions(a, own.keys()) for a in base.terms) or seen.keys() & steps.keys():
            return False
        reach = 0
        for a, c in sorted(steps.items(), key=lambda step: step[1]):
            if not 0 < c <= reach + 1:
                return False
            reach += c * (own[a] - 1)
        wanted = linear(j, context).minus(base)
        ends = (wanted.times(-1).plus_constant(-1), wanted.plus_constant(-1 - reach))
        if not all(_is_negative(end, facts, context) for end in ends):
            return False
        seen |= dict.fromkeys(steps, (steps, wanted))
    idle: Mapping[str, Expr] = {x: ZERO for x in own if x not in seen}
    return all(_follows(substitute(c, idle), seen, r, facts, context) for c in w.guard)


def fills_all(w: Access, r: Access, shape: Sequence[Expr]) -> bool:
    """Theorem: an earlier write fills the whole buffer, and so what is read of it, in one iteration of the loops around both.

    Its subscripts are its own loops, each once and over a whole dimension, and no condition leaves an element out. Extents
    may be open; all that is read is in the buffer.
    """
    if w.seq >= r.seq or w.guard or w.zero:
        return False
    own = {x.var: x.extent for x in w.loops[len(common_loops(w, r)) :]}
    names = [i.name for i in w.indices if isinstance(i, Var)]
    return sorted(names) == sorted(own) and tuple(own[n] for n in names) == tuple(shape)


def _follows(
    condition: Expr,
    solved: Mapping[str, tuple[dict[str, int], Linear]],
    r: Access,
    facts: Sequence[Linear],
    context: Context,
) -> bool:
    """Whether a condition holds in every instance of the read, with `solved` loops at the values that were named: the sum
    of their multiples, as in the first part of the entry, is the second part.
    """
    for c in conjuncts(condition):
        if c in r.guard and free_vars(c).isdisjoint(solved):
            continue
        if not isinstance(c, Compare) or dtype_of(c.lhs) != INDEX or loads(c):
            return False
        form = difference(c.lhs, c.rhs, context)
        rest = dict(form.terms)
        found = Linear({}, form.constant)
        for name, (steps, value) in solved.items():
            if name not in rest:
                continue
            times, apart = divmod(rest[name], steps[name])
            if apart or any(rest.pop(x, 0) != times * n for x, n in steps.items()):
                return False
            found = found.plus(value.times(times))
        if any(not isinstance(a, str) and mentions(a, solved.keys()) for a in rest):
            return False
        found = join_quotients(found.plus(Linear(rest, 0)), context)
        if decide(c.op, *context.range_of(found)):
            continue
        less = _negative(c.op, found)
        if less is None or not _is_negative(less, facts, context):
            return False
    return True


def _is_negative(form: Linear, facts: Sequence[Linear], context: Context) -> bool:
    """Whether a form is negative wherever all the `facts` are, as far as intervals can show from one of them."""
    high = context.range_of(form)[1]
    if high is not None and high < 0:
        return True
    return any((most := context.range_of(form.minus(f))[1]) is not None and most <= 0 for f in facts)


def _negatives(conditions: Sequence[Expr], context: Context) -> list[Linear]:
    """Forms that are negative where the conditions hold."""
    found: list[Linear] = []
    for c in conditions:
        for part in conjuncts(c):
            if isinstance(part, Compare) and dtype_of(part.lhs) == INDEX:
                form = _negative(part.op, difference(part.lhs, part.rhs, context))
                found += [] if form is None else [form]
    return found


def _negative(op: CompareOp, d: Linear) -> Linear | None:
    """A form that is negative exactly if `d op 0`; None for equations."""
    match op:
        case "<" | "<=":
            return d if op == "<" else d.plus_constant(-1)
        case ">" | ">=":
            return d.times(-1) if op == ">" else d.times(-1).plus_constant(-1)
        case "==" | "!=":
            return None


# Buffers with a copy per iteration of a loop.
#
# A buffer of a scope other than "global" belongs to a loop, its `home`, and is new in each iteration of that loop. This
# separates the iterations only if none reads an element that an earlier one wrote. So every read must be proved to come after
# a write of the same element in the same iteration.


def is_private(program: Program, buffer: str, var: str) -> bool:
    """Whether each iteration of the loop `var` has its own copy of the buffer, and reads only elements that it wrote."""
    around = home(program, program.buffer(buffer))
    if around is None or all(loop.var != var for loop in around):
        return False
    outer = tuple((x.var, x.extent) for x in around[:-1])
    return _written_first(outer, around[-1], buffer, program.buffer(buffer).shape)


def follow_writes(program: Program, buffer: str, block: str, within: int = 0) -> bool:
    """Whether each read of the buffer by a block comes after a write of the element, or no block writes the buffer.

    For a buffer with a copy per iteration the write must be in the same iteration; and in the same one of the outermost
    `within` loops, which the block and all writers share.
    """
    found = accesses((), program.body, frozenset((buffer,)))
    writes = [x for x in found if x.is_write]
    reads = [x for x in found if not x.is_write and x.block.name == block]
    b = program.buffer(buffer)
    return not writes or _all_follow(reads, writes, max(within, len(home(program, b) or ())), b.shape)


@lru_cache(maxsize=4096)
def _written_first(outer: tuple[tuple[str, Expr], ...], loop: For, buffer: str, shape: tuple[Expr, ...]) -> bool:
    """Whether every read of a buffer of this shape in an iteration of `loop` comes after a write of the element in it."""
    around = tuple(For(v, e, ()) for v, e in outer)
    found = accesses(around, (loop,), frozenset((buffer,)))
    writes = [x for x in found if x.is_write]
    return _all_follow([x for x in found if not x.is_write], writes, len(around) + 1, shape)


def _all_follow(reads: Sequence[Access], writes: Sequence[Access], equal: int, shape: tuple[Expr, ...]) -> bool:
    """Whether each read comes after a write of the element in the same iteration of the first `equal` loops."""
    # A stage that was inlined at several places reads the same elements again and again; the first read decides.
    different = {(r.block.name, r.guard, r.indices, r.update): r for r in reversed(reads)}
    open_: dict[object, list[tuple[Access, list[int]]]] = {}
    whole: dict[int, bool] = {}
    for r in different.values():
        if starts_itself(r, writes, equal):
            continue
        if not any(fills(w, r) or fills_all(w, r, shape) for w in writes):
            before = sum(w.seq < r.seq for w in writes)
            if not any(common_loops(w, r) for w in writes):
                if before not in whole:
                    whole[before] = _covered(_everything(r, shape), writes, 0, shape)
                if whole[before]:
                    continue
            shapes, offsets = zip(*map(_offset, r.indices), strict=True) if r.indices else ((), ())
            open_.setdefault((r.block.name, r.guard, shapes), []).append((r, list(offsets)))
    return all(
        (len(window) > 1 and _covered(_window(window), writes, equal, shape))
        or all(_covered(r, writes, equal, shape) for r, _ in window)
        for window in open_.values()
    )


def _everything(r: Access, shape: Sequence[Expr]) -> Access:
    """A read of all elements at the place of `r`: a question about it has a variable for each dimension, and not one for each
    loop, of which a tiled window has so many that isl takes minutes.
    """
    places = tuple(For(f"place{d}'", n, ()) for d, n in enumerate(shape))
    return replace(r, loops=places, guard=(), indices=tuple(Var(x.var) for x in places))


_HOLE = Var("offset'")  # no loop of a program has a name with a quote, so none is taken for one of a window


def _offset(e: Expr) -> tuple[Expr, int]:
    """A subscript with a hole in place of the number that it adds, also below a remainder; and that number."""
    match e:
        case Binary(op="%", lhs=inner, rhs=n):
            shape, offset = _offset(inner)
            return Binary("%", shape, n), offset
        case Binary(op="+", lhs=rest, rhs=Const(value=int(n))):
            return Binary("+", rest, _HOLE), n
        case _:
            return Binary("+", e, _HOLE), 0


def _window(reads: Sequence[tuple[Access, list[int]]]) -> Access:
    """A read of the box of elements that contains what reads at different offsets read, as a stencil's do: if each element of
    it was written, one question answers all of them.
    """
    first = min((r for r, _ in reads), key=lambda r: r.seq)
    indices: list[Expr] = []
    loops: list[For] = []
    for d, e in enumerate(first.indices):
        least, most = (of(offsets[d] for _, offsets in reads) for of in (min, max))
        loop = For(f"offset{d}'", index(most - least + 1), ())
        loops.append(loop)
        indices.append(substitute(_offset(e)[0], {_HOLE.name: add(Var(loop.var), index(least))}))
    return replace(first, indices=tuple(indices), loops=(*first.loops, *loops))


def _covered(r: Access, writes: Sequence[Access], equal: int, shape: tuple[Expr, ...]) -> bool:
    """Exactly: each instance of the read, for any value of its data, has an earlier instance of a write to its element, in
    one home iteration. A condition of the read that is not affine leaves no instance out, and a subscript that is not has
    all values of its interval inside the buffer. Not, if it takes more operations than a question is worth.
    """
    used = {x.var for x in r.loops} | {x.var for w in writes for x in w.loops}
    read = encoded(r.indices, DATA, INTERVALS, ranges=extent_ranges(r.loops))
    limits = [
        c
        for i, n in zip(read.exprs, shape, strict=True)
        for c in (Compare("<=", ZERO, i), Compare("<", i, n))
        if read.loose
    ]
    given: list[tuple[list[For], list[Expr]]] = []
    later: list[tuple[list[For], list[Expr]]] = []
    for w in writes:
        common = common_loops(w, r)[equal:]
        names = {x.var: Var(fresh(f"{x.var}_w", used)) for x in w.loops[equal:]}
        own = [For(names[x.var].name, substitute(w.extent(x), names), ()) for x in w.loops[equal:]]
        base = [substitute(c, names) for c in w.guard]
        base += [Compare("==", substitute(i, names), j) for i, j in zip(w.indices, read.exprs, strict=True)]
        same: list[Expr] = []
        for x in common:
            later.append((own, [*base, *same, Compare("<", names[x.var], Var(x.var))]))
            same.append(Compare("==", names[x.var], Var(x.var)))
        if w.seq < r.seq:
            given.append((own, [*base, *same]))
    try:
        needed = (*affine_only((*r.guard, *limits)), *read.conditions)
        with isl.bounded(1):
            return covers(r.loops, needed, [*given, *later], tuple(read.terms))
    except (NotAffine, isl.Exhausted):
        return False

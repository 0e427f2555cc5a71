"""The reads and writes of a program's blocks, over the variables of the loops around them.

An access stands for all its instances: one for each iteration of `loops` in which `guard` holds, at the element that
`indices` give. `seq` orders the accesses in one iteration of the loops that two of them share: text order, a block's
`init` before its body, the reads of a store before its write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tensorc_dsl.ir.expr import ONE, ZERO, Compare, Expr, Load, Select, children, free_vars, loads, substitute
from tensorc_dsl.ir.node import by_identity, node
from tensorc_dsl.ir.program import Block, Buffer, For, IterKind, Program, Stmt
from tensorc_dsl.ir.reductions import is_fold, is_whole_update
from tensorc_dsl.proof.sets.coverage import begun_without_steps, where_begun
from tensorc_dsl.proof.sets.linear_forms import negate


@node
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
        values = {it.name: it.binding for it in b.iters}
        first = tuple(Compare("==", it.binding, ZERO) for it in b.iters if it.kind is IterKind.REDUCE)
        whole = frozenset(s.buffer for s in b.body) if is_whole_update(b) else frozenset[str]()
        stores = [(s, None, True) for s in b.init]
        stores += [(s, 0 if whole else n if is_fold(s) else None, False) for n, s in enumerate(b.body)]
        for s, update, is_init in stores:
            base = (*where_begun(b), *first) if is_init else b.where
            begun = begun_without_steps(b) if is_init else frozenset[str]()
            reads = [x for e in (s.value, *s.indices) for x in guarded_loads(e)]
            for x, conditions in reads:
                if x.buffer in buffers:
                    indices = tuple(substitute(i, values) for i in x.indices)
                    # A condition on data may hold in any instance, so it excludes none.
                    guard = (*base, *(substitute(c, values) for c in conditions if not loads(c)))
                    own = update if x.buffer == s.buffer or x.buffer in whole else None
                    out.append(Access(x.buffer, indices, guard, False, is_init, b, loops, len(out), own, begun))
            if s.buffer in buffers:
                indices = tuple(substitute(i, values) for i in s.indices)
                out.append(Access(s.buffer, indices, base, True, is_init, b, loops, len(out), update, begun))
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
    """
    if buffer.scope == "global" or buffer.name in {p.name for p in program.params}:
        return None
    return _common_loops(program.body, buffer.name) or None


@by_identity(8)
def private_loops(program: Program) -> dict[str, frozenset[str]]:
    """For each intermediate buffer, the loops whose iterations have copies of their own."""
    return {
        b.name: frozenset(x.var for x in (_common_loops(program.body, b.name) if b.scope != "global" else ()))
        for b in program.buffers
    }


def _common_loops(stmts: tuple[Stmt, ...], buffer: str) -> tuple[For, ...]:
    """The loops around all blocks that access a buffer, outermost first: one statement alone accesses it as far down."""
    around: list[For] = []
    while True:
        users = [s for s in stmts if buffer in touched_in(s)]
        if len(users) != 1 or isinstance(users[0], Block):
            return tuple(around)
        around.append(users[0])
        stmts = users[0].body


def mentions(e: Expr, names: Collection[str]) -> bool:
    return not free_vars(e).isdisjoint(names)

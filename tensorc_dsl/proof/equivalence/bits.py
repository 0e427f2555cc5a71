"""Proves that two programs give the same bits: each element of each result is the same tree of the same operations.

A program fixes every rounding but where its blocks are updates that may run at once, where an instruction adds in an order of
its own, and where it depends on how loops are cut whether a sum is fused with a product (`ir.contraction`). Without these,
its text says for each element which operations are rounded, on which values, in which order. So no law of a reduction is
used: the proof follows sums from one step to the one before (`validate.prove_in_order`), as it does for scans. What rounds
nothing may come in any order: whole numbers, conditions, `min` and `max`.

Bits are those of one machine. NaN has one value here, whatever its payload.
"""

from __future__ import annotations

from math import inf

from tensorc_dsl.base.diagnostic import Note, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.frozen import replace as replace_node
from tensorc_dsl.ir.cases import described, narrowed, uncovered
from tensorc_dsl.ir.contraction import contracted, depends_on_cuts
from tensorc_dsl.ir.expr import Binary, Const, Expr, Load, Var, children, dtype_of, free_vars, loads, rewrite_expr
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import (
    FINITE,
    IN_ORDER,
    IN_RANGE,
    Block,
    For,
    IterKind,
    LoopKind,
    Program,
    blocks,
    intrinsic_of,
    is_atomic,
    is_in_order,
    walk,
)
from tensorc_dsl.ir.reductions import is_exact, update_of
from tensorc_dsl.proof.equivalence.code import Refuted, Undecided, extent_conditions
from tensorc_dsl.proof.equivalence.validate import (
    STEP_PIECES,
    STEP_QUESTIONS,
    Unproved,
    Valid,
    differing_parts,
    prove_in_order,
)
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.isl import Exhausted, bounded
from tensorc_dsl.proof.sets.sets import NotAffine, mapping, points
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges, linear_form


@problem(
    "E0810",
    "it is not proved that the bits are the same: {reason}",
    help="search with `--same-bits`, or begin both schedules with `keep_order()`, which refuses the step that changes them",
)
def PARTED(*, reason: str) -> None: ...


def in_order(program: Program) -> Program:
    """The program as one that keeps its order, in lowering, too. Cases of a divided one say themselves what they keep."""
    return replace_node(program, annotations=tuple(sorted({*program.annotations, (IN_ORDER, True)})))


def same_bits(
    one: Program, other: Program, names: tuple[str, str] = ("the original", "the scheduled program")
) -> Valid | Unproved:
    """Whether the kernels of two programs give the same bits on one machine. `names` are their names in messages."""
    found = parting(one, other, names)
    return Valid(of_zeros(one, other)) if found is None else Unproved(PARTED(None, found.notes, reason=found.reason))


def of_zeros(*programs: Program) -> tuple[str, ...]:
    """What is assumed where a program has a minimum or maximum of floats, which may return either of two zeros."""
    inner = [c.program for p in programs for c in p.cases]
    found = any(map(may_return_either_zero, programs)) or (bool(inner) and bool(of_zeros(*inner)))
    return ("no `min` or `max` chooses between two zeros",) if found else ()


@frozen
class Parting:
    """Why it is not proved that two programs give the same bits."""

    reason: str
    notes: tuple[Note, ...] = ()


def parting(one: Program, other: Program, names: tuple[str, str]) -> Parting | None:
    """Why it is not proved that the kernels of two programs give the same bits; None if it is. Of a divided program each case
    is compared with the other program for its sizes."""
    divided = one if one.cases else other
    for case in divided.cases:
        sizes = divided.divided_by, case.sizes
        a, b = (case.program if p is divided else narrowed(p, *sizes) for p in (one, other))
        first, second = (f"{name} for {described(*sizes)}" for name in names)
        if (found := parting(a, b, (first, second))) is not None:
            return found
    if divided.cases:
        left = uncovered(divided)
        return None if left is None else Parting(f"no case has {described(divided.divided_by, left)}")
    a, b = resolved(one), resolved(other)
    alike = replace_node(a, name=b.name) == b  # buffers too: what lowering does depends on where these are
    for p, which in ((a, names[0]), (b, names[1])):
        if (found := open_order(p) or (None if alike else _open_lowering(p))) is not None:
            return Parting(f"{which}: {found}")
    if alike:
        return None
    try:
        with bounded():
            prove_in_order(_rounded(a), _rounded(b), names)
    except Refuted as e:
        return Parting(e.diagnostic.message, tuple(n for n in e.diagnostic.notes if n.kind != "help"))
    except Undecided as e:
        return Parting(str(e))
    except NotAffine as e:
        return Parting(f"`{format_expr(e.expr)}` is not affine")
    except Exhausted:
        return Parting("it takes more than the operations on integer sets that are allowed")
    return None


def _open_lowering(program: Program) -> str | None:
    """What lowering may change in the order of a program that does not keep it; None if it may not."""
    if is_in_order(program):
        return None
    if depends_on_cuts(program):
        return "it depends on where loops are cut which of its sums are fused with a product"
    own = {b.name for b in program.buffers}
    for b in blocks(program):
        if update_of(b) is None or is_exact(b):
            continue
        for it in b.iters:
            moving = [x for s in b.body for x in loads(s.value) if any(it.name in free_vars(i) for i in x.indices)]
            if it.kind is IterKind.REDUCE and moving and all(x.buffer in own for x in moving):
                return f"the terms of `{b.name}` may be combined across the lanes of vectors"
    return None


def open_order(program: Program) -> str | None:
    """What leaves the order of rounded operations open in a program; None if nothing does."""
    for _, s in walk(program.body):
        if isinstance(s, Block) and is_atomic(s) and not is_exact(s):
            return f"the updates of `{s.name}` are atomic, and come in any order"
        if isinstance(s, For) and s.kind is LoopKind.TENSORIZED and (named := intrinsic_of(program, s)) is not None:
            value = named.store.value
            if named.lowerings and not isinstance(value, Load) and dtype_of(value).is_float:
                return f"`{named.name}` at the loop `{s.var}` rounds in an order of its own"
    return None


def may_return_either_zero(program: Program) -> bool:
    """Whether a program has a minimum or maximum of floats."""

    def chooses(e: Expr) -> bool:
        if isinstance(e, Binary) and e.op in ("min", "max") and dtype_of(e).is_float:
            return True
        return any(map(chooses, children(e)))

    return any(chooses(s.value) for b in blocks(program) for s in (*b.init, *b.body))


@by_identity(8)
def _rounded(program: Program) -> Program:
    """The program with fused operations as such, and without what its author says of numbers, which is about their values."""
    said = tuple(a for a in program.annotations if a[0] not in (FINITE, IN_RANGE))
    return contracted(replace_node(program, annotations=said))


# Whether a step of a schedule keeps the order.


Nest = tuple[tuple[For, ...], Block]
"""A block, and the loops around it, outermost first."""


def changed_order(before: Program, after: Program) -> str | None:
    """Why it is not proved, with the effort that a step of a schedule is worth, that a step keeps the bits of a program that
    is kept in order; None if it is proved."""
    before, after = resolved(before), resolved(after)
    if (found := open_order(after)) is not None:
        return found
    if only_data_moved(before, after):
        return None
    a, b = _rounded(before), _rounded(after)
    for x, y in filter(None, (differing_parts(a, b), (a, b))):
        try:
            with bounded(STEP_QUESTIONS):
                prove_in_order(x, y, ("the program before", "the program after"), STEP_PIECES)
        except (Refuted, Undecided, NotAffine, Exhausted):
            continue
        return None
    for around, s in walk(after.body):
        if isinstance(s, Block) and s.is_reduction and not is_exact(s) and not is_lexicographic(around, s):
            return f"the terms of `{s.name}` would be combined in another order"
    return "it is not proved that the same operations would be rounded in the same order"


def only_data_moved(before: Program, after: Program) -> bool:
    """Whether a legal step leaves the arithmetic of all blocks as it is, and the steps of each rounded reduction in the
    lexicographic order of its iterators: it moves loops, or copies elements.

    Theorem: then it keeps the bits. Copies round nothing, so each instance of a block that computes something has the same
    operands. A legal step keeps each dependence but those between the updates of one reduction; an element whose updates
    are of one block has these in one order before and after.
    """
    old, new = _arithmetic(before), _arithmetic(after)
    if old.keys() != new.keys() or not all(_alike(b, new[name][1]) for name, (_, b) in old.items()):
        return False
    if not _starts(before) <= _starts(after):
        return False
    updated: set[str] = set()
    for name, (around, b) in new.items():
        if is_exact(b) or (update_of(b) is None and not b.is_reduction):
            continue
        stored = {s.buffer for s in b.body}
        if not b.is_reduction or updated & stored:
            return False
        updated |= stored
        nests = old[name], (around, b)
        if not all(is_lexicographic(*nest) for nest in nests) or not _run_alike(*nests):
            return False
    return True


def _arithmetic(program: Program) -> dict[str, Nest]:
    """The blocks that do more than to store constants or copies, by name, each with its loops."""
    found = ((around, s) for around, s in walk(program.body) if isinstance(s, Block))
    return {
        b.name: (around, b)
        for around, b in found
        if update_of(b) is not None or not all(isinstance(s.value, Load | Const) for s in b.body)
    }


def _starts(program: Program) -> set[Expr]:
    """The constants that elements are initialised with, in blocks of their own or not, of which a step loses none."""
    return {s.value for b in blocks(program) for s in (*b.init, *b.body) if isinstance(s.value, Const)}


def _alike(a: Block, b: Block) -> bool:
    """Whether two blocks do the same with their operands, whatever buffers these are in."""
    iters = [[(it.name, it.kind, it.extent) for it in x.iters] for x in (a, b)]
    values = [[_of_operands(s.value) for s in x.body] for x in (a, b)]
    starts = [s.value for s in a.init], [s.value for s in b.init]
    begun = starts[0] == starts[1] or (not starts[1] and all(isinstance(e, Const) for e in starts[0]))
    same = iters[0] == iters[1] and values[0] == values[1] and a.annotations == b.annotations
    return begun and same and (update_of(a) is None) == (update_of(b) is None)


def _of_operands(e: Expr) -> Expr:
    return rewrite_expr(e, lambda x: Load("", (), x.dtype) if isinstance(x, Load) else x)


def _run_alike(one: Nest, other: Nest) -> bool:
    """Whether a block runs for the same values of its iterators in two nests."""
    if one[1].where == other[1].where == ():
        return True
    loops = [{(x.var, x.extent) for x in around} for around, _ in (one, other)]
    if loops[0] == loops[1] and one[1] == other[1]:
        return True
    try:
        with bounded(STEP_QUESTIONS):
            a, b = map(_values, (one, other))
            return a.is_equal(b)
    except (NotAffine, Exhausted):
        return False


def _values(nest: Nest) -> isl.Set:
    around, b = nest
    names = tuple(x.var for x in around)
    inside = (*extent_conditions(names, [x.extent for x in around]), *b.where)
    return mapping(names, [it.binding for it in b.iters]).intersect_domain(points(names, inside)).range()


def is_lexicographic(around: tuple[For, ...], b: Block) -> bool:
    """Whether the instances for one element are seen to run in the lexicographic order of the reduction's iterators: those
    of each are counted by loops of its own, outer ones in larger units, behind all that count the iterators before it.
    """
    ranges = extent_ranges(around)
    place = {x.var: n for n, x in enumerate(around)}
    size = {x.var: bounds(x.extent, ranges)[1] for x in around}
    elements = frozenset[str]().union(*(free_vars(it.binding) for it in b.iters if it.kind is not IterKind.REDUCE))
    last = -1
    for it in b.iters:
        if it.kind is not IterKind.REDUCE:
            continue
        terms, _ = linear_form(it.binding, ranges)
        counted: list[tuple[int, int, float]] = []
        for atom, unit in terms.items():
            if not isinstance(atom, Var) or atom.name in elements or atom.name not in place:
                return False
            most = size[atom.name]
            counted.append((place[atom.name], unit, inf if most is None else most - 1))
        inner = 0.0
        for n, unit, most in sorted(counted, reverse=True):
            if unit <= inner or around[n].kind in (LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.BOUND):
                return False
            inner += unit * most
        if counted:
            first = min(n for n, _, _ in counted)
            if first <= last:
                return False
            last = max(n for n, _, _ in counted)
    return True

"""Whole-program validation: proves after the fact that a scheduled program computes what the original does.

The proof uses the two programs only, not the primitives that made the second one. It shows, for all sizes and all inputs,
that no access leaves its buffer, that no parallel or vectorized loop carries a dependence, and that each output element is
the same expression of the inputs, with the terms of a reduction in any order and grouping.
`docs/decisions/0014-validation-compares-values.md` explains the method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import eq

from tensorc_dsl.base.diagnostic import Diagnostic, Note, problem
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.bind import bind
from tensorc_dsl.ir.expr import Load, Var, dtype_of
from tensorc_dsl.ir.node import replace as replace_node
from tensorc_dsl.ir.print import format_buffer, format_expr
from tensorc_dsl.ir.program import FINITE, IN_RANGE, Block, Buffer, Program, Stmt, Store
from tensorc_dsl.ir.reductions import ArgFold, DeclaredFold, arg_start, update_of
from tensorc_dsl.proof.equivalence.code import Code, Statement, scales_of
from tensorc_dsl.proof.equivalence.compare import Comparison, Obligation, Shortcut
from tensorc_dsl.proof.equivalence.corrected_sums import Corrections
from tensorc_dsl.proof.equivalence.facts import ExampleSizes, Refuted, TooMany, Undecided, element, example
from tensorc_dsl.proof.equivalence.memory import verify_memory
from tensorc_dsl.proof.equivalence.nodes import At
from tensorc_dsl.proof.equivalence.open_products import parts_as_loops
from tensorc_dsl.proof.equivalence.run import Shown, TooLong, listed, show
from tensorc_dsl.proof.equivalence.values import Values
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.accesses import touched_in, written
from tensorc_dsl.proof.sets.budget import Exhausted, bounded, renew
from tensorc_dsl.proof.sets.laws import Broken, assumptions, law_text, reducer_laws
from tensorc_dsl.proof.sets.running import regroups_in_range
from tensorc_dsl.proof.sets.safety import too_far_in
from tensorc_dsl.proof.sets.sets import NotAffine

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
# with it, and a position and its value begin as `argmin` and `argmax` do.


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
        if len(stores) > 1 and not stores[0].is_init and isinstance(update_of(stores[0].block), ArgFold | DeclaredFold):
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
        if not _continues(group, stores) and not _begins(group, stores):
            return False
    return True


def _go_together(code: Code, stores: Sequence[Statement]) -> bool:
    """Whether the instances that write an element of one buffer write one element of each other, and no others do."""
    first, *others = (code.written(s) for s in stores)
    related: list[isl.Map] = [first.reverse().apply_range(m) for m in others]
    return all(m.is_bijective() for m in related)


def _continues(group: Sequence[Statement], stores: Sequence[Statement]) -> bool:
    """Whether the stores are steps of the same reduction."""
    kinds = [[s.accumulates and s.accumulates.kind for s in x] for x in (group, stores)]
    return kinds[0] == kinds[1]


def _begins(group: Sequence[Statement], stores: Sequence[Statement]) -> bool:
    """Whether the stores begin a reduction; where a declared one begins is compared with its other program."""
    update = update_of(stores[0].block)
    if not isinstance(update, ArgFold):
        return True
    position, best = group
    start = arg_start(
        update.kind,
        position.store.buffer,
        best.store.buffer,
        position.store.indices,
        dtype_of(update.value),
        dtype_of(update.position),
    )
    return [s.store.value for s in group] == [s.value for s in start]


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
def MISSING(*, which: str, element: str, sizes: ExampleSizes) -> None: ...
@problem(
    "E0807",
    "it is not proved that the programs compute the same: {reason}",
    help="{repair}",
)
def UNPROVED(*, reason: str, repair: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Valid:
    """The scheduled program computes what the original does, whenever it runs and the assumptions hold."""

    assumes: tuple[str, ...] = ()
    """The unproved laws of the reducers that a file declares, in words: that ``mine` is associative`; and what a schedule
    says of its inputs."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """The scheduled program is wrong; the diagnostic has the facts. A run with `inputs` shows it, if it needs inputs."""

    diagnostic: Diagnostic
    inputs: Mapping[str, Array] = field(default_factory=dict[str, Array], compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unproved:
    """Neither is known; the diagnostic has the reason."""

    diagnostic: Diagnostic


Report = Valid | Invalid | Unproved


def validate(
    original: Program, scheduled: Program, names: tuple[str, str] = ("the original", "the scheduled program")
) -> Report:
    """Whether `scheduled` computes what `original` does. `names` are their names in messages."""
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


STEP_PIECES = 64
"""The pieces of a question up to which a step of a schedule is worth a proof. Lines of Harris's detector and pyramids have up
to 32, tiles of a wave over time up to 48; with a thousand a refusal took a minute."""

STEP_QUESTIONS = 2
"""The questions of a proof that a step of a schedule is worth, together: those of the steps in tests take less than half of
one, but for folds of attention whose rows end at a mask, which take between one and two. Operations on the terms of chunks
of counts take 7 µs each, and with the limit of other proofs a refusal took minutes."""


def proves(original: Program, scheduled: Program) -> bool:
    """Whether `scheduled` is proved to compute what `original` does, with the effort that a step of a schedule is worth."""
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

    def values(
        chains: Mapping[str, str] | None = None, corrected: Callable[[Values], Corrections] | None = None
    ) -> tuple[Values, Values]:
        return Values(before, names[0], chains, corrected), Values(after, names[1], chains, corrected)

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
        raise Refuted(MISSING(None, which=values.which, element=element(p.name, at), sizes=sizes), sizes)
    return node

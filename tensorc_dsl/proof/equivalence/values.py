"""Values as expressions of the inputs: follows the value of a statement through its copies.

A *node* has a value at each of its instances: it is an expression in a statement, or a `Total`. A load of a
written element, and a choice by an affine condition, have the values of other nodes, which `steps` returns. So copies,
inlining, layouts and guards leave no trace in the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from math import isfinite
from typing import Protocol, TypeGuard

from tensorc_dsl.base.diagnostic import problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import BOOL, INDEX, holds
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    children,
    dtype_of,
    loads,
)
from tensorc_dsl.proof.equivalence.code import (
    PAIR,
    UNLESS,
    Code,
    ExampleSizes,
    Refuted,
    Statement,
    Undecided,
    at,
    element,
    element_at,
    example,
    label,
    point,
    where,
)
from tensorc_dsl.proof.equivalence.flow import At, Flow, Key, Node, Sources, Terms, Total, first_of, key, place
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.linear_forms import depends_on_data, outermost, with_values
from tensorc_dsl.proof.sets.sets import NotAffine, affine_text, condition_text, mapping

# Conditions of choices: those over loops and sizes alone decide which value an instance has.


def is_condition(e: Expr) -> bool:
    """Whether it is a condition over loops and sizes alone."""
    if dtype_of(e) != BOOL or loads(e):
        return False
    try:
        condition_text(e)
    except NotAffine:
        return False
    return True


def decided_first(e: Select) -> Select | None:
    """The same choice, by a condition over loops and sizes alone; None if none decides it.

    Of several conditions joined by `and` or `or` those that data decide come after the others. So does a condition that one
    over loops chooses, such as `F[t] if t < 9 else false`, and what that one chooses of the values.
    """
    if is_condition(e.cond):
        return e
    if isinstance(e.cond, Select) and is_condition(first := e.cond.cond):
        conds, *values = ((x.then, x.other) if isinstance(x, Select) and x.cond == first else (x, x) for x in _parts(e))
        then, other = (Select(conds[k], *(x[k] for x in values)) for k in range(2))
        return Select(first, then, other)
    if not isinstance(e.cond, Logic):
        return None
    both, parts = e.cond.op, _junction(e.cond.op, e.cond)
    known, open_ = [c for c in parts if is_condition(c)], [c for c in parts if not is_condition(c)]
    if not known:
        return None
    later = Select(reduce(partial(Logic, both), open_), e.then, e.other)
    first = reduce(partial(Logic, both), known)
    return Select(first, later, e.other) if both == "and" else Select(first, e.then, later)


def _parts(e: Select) -> tuple[Expr, Expr, Expr]:
    return e.cond, e.then, e.other


def _junction(op: str, e: Expr) -> tuple[Expr, ...]:
    return (*_junction(op, e.lhs), *_junction(op, e.rhs)) if isinstance(e, Logic) and e.op == op else (e,)


@problem(
    "E0803",
    "{what} reads {element}, which nothing has written{sizes}",
    help="the block that writes it, or its init, must run before",
)
def UNWRITTEN(*, what: str, element: str, sizes: ExampleSizes) -> None: ...


TAKEN = "…[]"
"""The text in a signature for an element that depends on data."""

PIECES = 64
"""The number of cases beyond which a signature becomes less precise."""
SUBSCRIPTS = 128
"""The number of subscripts in a case beyond which it does too: a value that each stage reads twice has 2^n of them."""


class Corrected(Protocol):
    """What finds the terms of corrected sums."""

    def terms(self, product: At, kind: str, /) -> Sources | None: ...


def gathers(node: Node) -> TypeGuard[At]:
    """Whether it is a load whose element depends on data: it has the value of one of several nodes, not known which."""
    return isinstance(node, At) and isinstance(node.expr, Load) and depends_on_data(node.expr.indices)


def decided(node: Node) -> bool:
    """Whether data select the value: as for `gathers`, or a choice between such loads, such as an inlined border."""
    if not isinstance(node, At) or not isinstance(node.expr, Select):
        return gathers(node)
    return not loads(with_values(node.expr.cond, dict.fromkeys(outermost((node.expr.cond,)), ZERO)))


def is_index(e: Expr) -> bool:
    """Whether it is a number over loops and sizes alone."""
    if dtype_of(e) != INDEX or loads(e):
        return False
    try:
        affine_text(e)
    except NotAffine:
        return False
    return True


def step_of(node: At) -> tuple[str, tuple[At, At]] | None:
    """For an operation that may be a step of a reduction, the kind of that and the operands; None for others."""
    match node.expr:
        case Binary(op="+" | "*" | "min" | "max" as op, lhs=a, rhs=b) | Logic(op=op, lhs=a, rhs=b):
            return f"{op} {dtype_of(node.expr)}", (At(node.statement, a), At(node.statement, b))
        case _:
            return None


@frozen(eq=False)
class Case:
    """The value of a node at some of its instances, as an expression of the inputs. Equal text and equal subscripts mean
    equal values, unless the text contains `…`."""

    text: str
    subscripts: isl.Map
    """The map from instances to all subscripts in the text, one after the other."""
    constants: tuple[Const, ...] = ()
    """The value, if it is constant: one number, or the parts of one term of a reduction."""

    def at(self, instances: isl.Map) -> Case:
        """The same case for the instances of another node, which `instances` maps to those of this one."""
        return Case(self.text, instances.apply_range(self.subscripts), self.constants)


Signature = tuple[Case, ...]

_OfTotal = Callable[[Total], Signature]


class Values:
    """The nodes of one program; `which` names the program in messages."""

    def __init__(
        self,
        code: Code,
        which: str,
        chains: Mapping[str, str] | None = None,
        corrected: Callable[[Values], Corrected] | None = None,
        finite: frozenset[str] = frozenset(),
    ) -> None:
        """With `chains` the steps of a running reduction are totals, and otherwise recurrences. It has the kinds of linear
        recurrences, each with that of its products. With `corrected` corrected sums are sums, as that finds them. Elements of
        the inputs `finite` are finite.
        """
        self.chains = chains is not None
        self.scales = chains or {}
        self.stages: dict[tuple[Key, str], Terms | None] = {}
        """What `terms` has found of whole statements."""
        self.code = code
        self.which = which
        self.flow = Flow(code, self.scales)
        self._inputs = {p.name for p in code.program.inputs}
        self._finite_inputs = finite
        self._names = 0
        self._unless: dict[Key, At] = {}
        self._steps: dict[Key, tuple[tuple[Node, isl.Map], ...] | None] = {}
        self._signatures: dict[Key, Signature] = {}
        self._fingerprints: dict[Key, Signature] = {}
        self._broad: dict[frozenset[str], dict[Key, Signature]] = {}
        self._open: dict[Key, bool] = {}
        """The nodes whose signatures are being made, and whether a signature contains itself."""
        self._kept: list[Node] = []
        self._views: dict[tuple[int, tuple[str, ...]], dict[Expr, Sources]] = {}
        self.corrections = None if corrected is None else corrected(self)
        """What finds corrected sums; None where they are recurrences."""

    def corrected(self, node: At, kind: str) -> Sources | None:
        """The terms of a product that corrects a sum, with maps from its instances to theirs; None for other products."""
        return None if self.corrections is None else self.corrections.terms(node, kind)

    def unless(self, condition: At) -> At:
        """The factor `UNLESS` of that condition: one node for each condition."""
        k = key(condition)
        if k not in self._unless:
            self._kept.append(condition)
            self._unless[k] = At(condition.statement, Call(UNLESS, (condition.expr,)))
        return self._unless[k]

    def see(self, made: Statement, sources: Mapping[Expr, Sources]) -> None:
        """Let the loads `sources` of a statement that is not in the program have the values of other nodes."""
        self._views.setdefault((made.number, made.names), {}).update(sources)

    def new_name(self, stem: str) -> str:
        """A name that no loop or buffer has."""
        self._names += 1
        return f"{stem}_{self._names}'"

    def steps(self, node: Node) -> tuple[tuple[Node, isl.Map], ...] | None:
        """The nodes whose values this node has, with maps from its instances to theirs. None if it is an operation or an
        input instead."""
        k = key(node)
        if k not in self._steps:
            self._kept.append(node)  # keys contain ids, so the object must stay alive
            found = list(self._next(node))
            self._steps[k] = tuple(found) if found or self._is_load(node) else None
        return self._steps[k]

    def _is_load(self, node: Node) -> bool:
        if gathers(node) or self.is_input_read(node):
            return False
        return isinstance(node, At) and isinstance(node.expr, Load)

    def is_input_read(self, node: Node) -> bool:
        """Whether the node is an element of an input."""
        return isinstance(node, At) and isinstance(node.expr, Load) and node.expr.buffer in self._inputs

    def _next(self, node: Node) -> Iterator[tuple[Node, isl.Map]]:
        if isinstance(node, Total):
            return
        s, e = node.statement, node.expr
        if self.chains and e is s.store.value and (total := self.flow.chain(s)) is not None:
            yield total, s.domain.identity()
        elif (seen := self._views.get((s.number, s.names), {}).get(e)) is not None:
            yield from seen
        elif isinstance(e, Load):
            if self._is_load(node):
                for seen in self.flow.seen(s, e):
                    source = seen.source
                    yield source if isinstance(source, Total) else At(source, source.store.value), seen.instances
        elif isinstance(e, Select) and (known := decided_first(e)) is not None:
            yield from self._cases(s, known.cond, known.then, known.other)
        elif isinstance(e, Select) and isinstance(e.cond, Not):
            yield At(s, Select(e.cond.operand, e.other, e.then)), s.domain.identity()
        elif not isinstance(e, Const) and is_condition(e):
            yield from self._cases(s, e, Const(True, BOOL), Const(False, BOOL))

    def _cases(self, s: Statement, cond: Expr, then: Expr, other: Expr) -> Iterator[tuple[Node, isl.Map]]:
        for c, e in ((cond, then), (Not(cond), other)):
            found = s.domain.intersect(where(s, c))
            if not found.is_empty():
                yield At(s, e), found.identity()

    def require_written(self, node: Node, asked: isl.Set) -> None:
        """Raises Refuted if some of the instances read an element that is not written."""
        if not self._is_load(node):
            return
        assert isinstance(node, At)
        assert isinstance(node.expr, Load)
        is_source = node.expr in self._views.get((node.statement.number, node.statement.names), {})
        if not is_source and self.flow.follows_writes(node.statement, node.expr, asked):
            return
        for _, m in self.steps(node) or ():
            asked = asked.subtract(m.domain())
        if asked.is_empty():
            return
        if is_source:
            raise Undecided("what a corrected sum reads is not understood")
        s = node.statement
        (values,), sizes = example(asked, [len(s.names)])
        whole = element_at(self.code, s, values, node.expr.buffer, node.expr.indices)
        name = element(node.expr.buffer, whole[len(self.code.homes[node.expr.buffer]) :])
        place_ = self._unstarted(node.expr.buffer, whole) or at(s, values)
        raise Refuted(UNWRITTEN(None, what=f"{self.which}, {place_},", element=name, sizes=sizes), sizes)

    def _unstarted(self, buffer: str, whole: Sequence[int]) -> str | None:
        """The update of an element that accumulates into an uninitialised value; None if there is none."""
        for u in self.code.writers.get(buffer, []):
            if u.accumulates:
                found = self.code.written(u).intersect_range(point(whole)).domain()
                if not found.is_empty():
                    (values,), _ = example(found, [len(u.names)])
                    return at(u, values)
        return None

    def require_all_written(self, node: Node, asked: isl.Set) -> None:
        """As `require_written`, for all operands of the value; not beyond a reduction, and once around a recurrence."""
        todo, met = [(node, asked)], set[Key]()
        while todo:
            node, asked = todo.pop()
            if asked.is_empty() or isinstance(node, Total) or key(node) in met:
                continue
            met.add(key(node))
            self.require_written(node, asked)
            steps = self.steps(node)
            if steps is None:
                todo += [(At(node.statement, c), asked) for c in children(node.expr)]
            else:
                todo += [(n, asked.apply(m)) for n, m in steps]

    def subscripts(self, s: Statement, indices: tuple[Expr, ...]) -> isl.Map:
        """The map from instances to the values of index expressions. Raises NotAffine."""
        return mapping(s.names, indices).intersect_domain(s.domain)

    def signature(self, node: Node) -> Signature:
        """The value of the node as text and subscripts over the inputs, case by case."""
        return self._known(node, self._signatures, self._total_unsaid)

    def broad_signature(self, node: Node, kinds: frozenset[str] = frozenset()) -> Signature:
        """As `signature`, but a choice that depends on data is as imprecise as an element that does, an operation of one of
        these kinds as a reduction, which may be written out as such operations, and what a scan makes of its own elements as
        those: its loop may be cut. With `TAKEN` among the kinds an operation on an element that depends on data counts
        as that element.
        """
        return self._known(node, self._broad.setdefault(kinds, {}), self._total_unsaid, kinds)

    def fingerprint(self, node: Node) -> Signature:
        """As `signature`, with the least of the subscripts in the terms of each reduction.

        Reductions with equal terms in different forms may have different fingerprints, so they serve for guesses only.
        """
        return self._known(node, self._fingerprints, self._total_by_terms)

    def _known(
        self, node: Node, known: dict[Key, Signature], of_total: _OfTotal, broad: frozenset[str] | None = None
    ) -> Signature:
        k = key(node)
        if k in self._open:  # its value contains itself
            self._open[k] = True
        if k not in known:
            self._kept.append(node)
            known[k] = self._opaque(node, "…")
            self._open[k] = False

            def inside(n: Node) -> Signature:
                return self._known(n, known, of_total, broad)

            try:
                cases = tuple(self._merged(self._cases_of(node, inside, of_total, broad)))
            finally:
                recurs = self._open.pop(k)
            if broad is None or not recurs:
                known[k] = cases
        return known[k]

    def _total_unsaid(self, node: Total) -> Signature:
        return self._opaque(node, f"…{node.kind}")

    def _total_by_terms(self, node: Total) -> Signature:
        whole = f"…{node.kind} of "
        terms = [(At(u, u.accumulates.term), m) for u, m in node.terms if u.accumulates]
        found = [c.at(m) for n, m in (*terms, *node.totals) for c in self.fingerprint(n) if not c.constants]
        out: list[Case] = []
        rest = node.at.domain
        for c in sorted(self._merged([c for c in found if not c.subscripts.is_empty()]), key=lambda c: c.text):
            least = first_of(c.subscripts.intersect_domain(rest))
            rest = rest.subtract(c.subscripts.domain())
            # A partial result of a reduction is described by its terms.
            out.append(Case(c.text if c.text.startswith(whole) else f"{whole}{c.text}", least))
        return tuple(out)

    def _opaque(self, node: Node, text: str) -> Signature:
        return (Case(text, isl.Map.from_domain(place(node).domain)),)

    def _merged(self, found: Sequence[Case]) -> Iterator[Case]:
        by_text: dict[str, Case] = {}
        for c in found:
            if c.text in by_text:
                c = Case(c.text, by_text[c.text].subscripts.union(c.subscripts), c.constants)
            by_text[c.text] = c
        yield from by_text.values()

    def _cases_of(
        self, node: Node, known: Callable[[Node], Signature], of_total: _OfTotal, broad: frozenset[str] | None
    ) -> Sequence[Case]:
        if isinstance(node, Total):
            return of_total(node)
        steps = self.steps(node)
        if steps is not None:
            found = [c.at(m) for n, m in steps for c in known(n)]
            return [c for c in found if not c.subscripts.is_empty()]
        s, e = node.statement, node.expr
        if is_index(e):
            return [Case("#", self.subscripts(s, (e,)))]
        nothing = isl.Map.from_domain(s.domain)
        if isinstance(e, Const):
            return [Case(label(e), nothing, (e,))]
        if broad and (step := step_of(node)) is not None and step[0] in broad:
            return self._opaque(node, f"…{step[0]}")
        parts: list[tuple[tuple[Case, ...], isl.Map]] = [((), nothing)]
        taken = (gathers if broad is None else decided)(node)  # only the element that is selected is described
        operands = [d.operand for d in dict.fromkeys(outermost(children(e)))] if taken else children(e)
        for child in operands:
            pairs = [
                ((*cases, c), m.flat_range_product(c.subscripts)) for cases, m in parts for c in known(At(s, child))
            ]
            parts = [(cases, m) for cases, m in pairs if not m.is_empty()]
            if len(parts) > PIECES or any(m.dim(isl.dim_type.out) > SUBSCRIPTS for _, m in parts):
                return self._opaque(node, f"…{label(e)}")
        if taken:
            return [Case(f"{TAKEN}({', '.join(c.text for c in cases)})", m) for cases, m in parts]
        if broad and TAKEN in broad and (made := self._of_taken(s, children(e), known)):
            return made
        joined = [_joined(e, cases, m) for cases, m in parts]
        return self._without_zeros(s, e, cases_of=[cases for cases, _ in parts], joined=joined)

    def _without_zeros(
        self, s: Statement, e: Expr, cases_of: Sequence[tuple[Case, ...]], joined: Sequence[Case]
    ) -> Sequence[Case]:
        """The cases of an operation, 0 where it is a product of floats one of which is 0 and the other one finite."""
        if not isinstance(e, Binary) or e.op != "*" or not dtype_of(e).is_float:
            return joined
        zero = Const(0.0, dtype_of(e))
        out: list[Case] = []
        for cases, c in zip(cases_of, joined, strict=True):
            pairs = ((cases[0], e.rhs), (cases[1], e.lhs))
            if any(x.constants == (zero,) and self._is_finite(At(s, other)) for x, other in pairs):
                c = Case(label(zero), isl.Map.from_domain(c.subscripts.domain()), (zero,))
            out.append(c)
        return out

    def _is_finite(self, node: Node) -> bool:
        """Whether a value is a finite number, an element of an input that is finite, or such a one in a wider type."""
        todo, met = [node], set[Key]()
        while todo and self._finite_inputs:
            node = todo.pop()
            if key(node) in met:
                continue
            met.add(key(node))
            if (steps := self.steps(node)) is not None:
                todo += [n for n, _ in steps]
                continue
            match node:
                case At(expr=Cast(operand=x, dtype=t)) if holds(t, dtype_of(x)):
                    todo.append(At(node.statement, x))
                case At(expr=Load(buffer=buffer)) if buffer in self._finite_inputs:
                    pass
                case At(expr=Const(value=value)) if isfinite(value):
                    pass
                case _:
                    return False
        return bool(self._finite_inputs)

    def _of_taken(self, s: Statement, operands: Sequence[Expr], known: Callable[[Node], Signature]) -> Signature:
        """The first operand that depends on an element that data select, in place of the operation; none without one."""
        found = (known(At(s, x)) for x in operands)
        return next((cases for cases in found if any(c.text.startswith(TAKEN) for c in cases)), ())


def _joined(e: Expr, cases: tuple[Case, ...], subscripts: isl.Map) -> Case:
    """The case of the operation `e` with operands described by `cases`."""
    if (decides := _absorbing(e)) is not None and any(c.constants == (decides,) for c in cases):
        return Case(label(decides), isl.Map.from_domain(subscripts.domain()), (decides,))
    match e, cases:
        case Binary(op=op), (Case(constants=(a,)), Case(constants=(b,))):
            folded = _exactly(op, a, b)
            if folded is not None:
                return Case(label(folded), subscripts, (folded,))
        case Cast(dtype=t), (Case(constants=(Const(value=value),)),) if t != BOOL and value in (0, 1):
            same = Const(float(value) if t.is_float else int(value), t)  # the value is exact in every type
            return Case(label(same), subscripts, (same,))
        case _:
            pass
    known = tuple(k for c in cases for k in c.constants) if isinstance(e, Call) and e.function == PAIR else ()
    constants = known if len(known) == len(cases) else ()
    return Case(f"{label(e)}({', '.join(c.text for c in cases)})", subscripts, constants)


def _absorbing(e: Expr) -> Const | None:
    """The operand that decides an operation, whatever the other one is; 0 times infinity is NaN, so no float does."""
    match e:
        case Binary(op="*") if not (t := dtype_of(e)).is_float:
            return Const(0, t)
        case Logic(op=op):
            return Const(op == "or", BOOL)
        case _:
            return None


def _exactly(op: BinaryOp, a: Const, b: Const) -> Const | None:
    """An operation on constants if its result is exact in the type: a padded element minus another one is 0."""
    if isinstance(a.value, bool) or op not in ("+", "-", "*") or not {abs(a.value), abs(b.value)} <= {0, 1}:
        return None
    x, y = a.value, b.value
    return Const(x * y if op == "*" else x + y if op == "+" else x - y, a.dtype)

"""Corrected sums as sums: the terms of `Σ F(x, r) * v`, with shifts `r` that change on the way, relative to the last one.

With `F(x, r) = exp((x - r) * c)`, `F(x, r) * F(r, m)` is `F(x, m)` for every finite `r` (`proof.sets.reductions`). A
corrected sum is a scan `Y[t] = Y[t-1] * F(r[t-1], r[t]) + part[t]` whose parts have terms `F(x, r[t]) * v`.

Theorem: by induction over `t`, `Y[t]` is the sum of `F(x, r[t]) * v` over all terms up to `t`, and `Y[t] * F(r[t], m)` that
of `F(x, m) * v`, if the terms of step `t` and the correction of step `t + 1` have the same shift `r[t]`, and

- `r[t]` is the maximum of the least finite number and of all `x` up to `t`. So it is never -inf, and where it is +inf or
  NaN, some `x` is. Then `m`, which is the maximum of all `x`, is so too, and both sums are NaN.
- there is a term. So if all `x` and `m` are -inf, the sum of `F(x, m) * v` is NaN, as is 0 * F(r[t], -inf).

Factors `v` may be infinite or NaN: products and sums of these are so in any order. Any other finite number than the least
would do for real numbers; but floats overflow where a later maximum is far below it. A minimum reverses all this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import ONE, Binary, Cast, Compare, Const, Expr, Load, Var, children, dtype_of, loads, rebuild
from tensorc_dsl.ir.program import IterKind
from tensorc_dsl.ir.reductions import identity
from tensorc_dsl.proof.equivalence.code import Chain, Statement, Undecided, label
from tensorc_dsl.proof.equivalence.flow import At, Key, Node, Sources, Term, Terms, Total, compared, equal, key, within
from tensorc_dsl.proof.equivalence.terms import STEPS, operator, terms_of
from tensorc_dsl.proof.equivalence.values import PIECES, Values, is_index
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.isl import renew
from tensorc_dsl.proof.sets.linear_forms import depends_on_data
from tensorc_dsl.proof.sets.reductions import Exponential, Extreme, exponential, outermost_finite
from tensorc_dsl.proof.sets.sets import mapping, points

# Where a value comes from: expressions over the inputs, and over reductions and scans by name.
#
# Within one program, values with equal texts and equal coordinates are the same. This decides less than a comparison, since
# two stages that compute the same have different names, and is exact: nothing is left open, as it may be in a signature.


Location = dict[str, isl.Map]
"""For each text, the map from instances to coordinates; the domains are disjoint."""


class Locations:
    """The locations of the values of one program. Raises Undecided for elements that data select."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._known: dict[Key, Location] = {}
        self._kept: list[Node] = []

    def of(self, node: Node) -> Location:
        """Where the value at each instance comes from; instances that read nothing written are left out."""
        k = key(node)
        if k not in self._known:
            self._kept.append(node)
            self._known[k] = self._found(node)
        return self._known[k]

    def _found(self, node: Node) -> Location:
        if isinstance(node, Total):
            return {f"total {len(self._kept)}": node.at.domain.identity()}
        s, e = node.statement, node.expr
        if e is s.store.value and any(x.buffer == s.store.buffer for x in loads(e)):
            return {f"step {s.number}": s.domain.identity()}
        steps = self._values.steps(node)
        if steps is not None:
            return united([composed(m, self.of(n)) for n, m in steps])
        if isinstance(e, Load) and depends_on_data(e.indices):
            raise Undecided("the shift of a corrected sum depends on elements that data select")
        if is_index(e):
            return {"#": self._values.subscripts(s, (e,))}
        nothing = isl.Map.from_domain(s.domain)
        if isinstance(e, Const):
            return {label(e): nothing}
        parts: Location = {"": nothing}
        for child in children(e):
            own = self.of(At(s, child))
            pairs = {f"{t}, {u}": m.flat_range_product(n) for t, m in parts.items() for u, n in own.items()}
            parts = {t: m for t, m in pairs.items() if not m.is_empty()}
            if len(parts) > PIECES:
                raise Undecided("the shift of a corrected sum has too many cases")
        return {f"{label(e)}({t})": m for t, m in parts.items()}


def composed(m: isl.Map, found: Location) -> Location:
    """The location for the instances of another node, which `m` maps to those of this one."""
    out = {t: m.apply_range(n) for t, n in found.items()}
    return {t: n for t, n in out.items() if not n.is_empty()}


def united(parts: list[Location]) -> Location:
    """The location by several cases."""
    out: Location = {}
    for part in parts:
        for t, m in part.items():
            out[t] = out[t].union(m) if t in out else m
    return out


def covers(found: Location, domain: isl.Set) -> bool:
    """Whether each instance in a set has a location."""
    for m in found.values():
        domain = domain.subtract(m.domain())
    return domain.is_empty()


def is_single(found: Location) -> bool:
    """Whether each instance has one location at most."""
    domains = [m.domain() for m in found.values()]
    apart = all(a.is_disjoint(b) for k, a in enumerate(domains) for b in domains[:k])
    return apart and all(m.is_single_valued() for m in found.values())


def is_within(a: Location, b: Location) -> bool:
    """Whether each location by `a` is one by `b`."""
    return all(t in b and m.is_subset(b[t]) for t, m in a.items())


@frozen(eq=False)
class Factor:
    """An exponential that a value has as a factor, with the map from the value's instances to its own."""

    node: At
    form: Exponential
    instances: isl.Map

    @property
    def value(self) -> At:
        return At(self.node.statement, self.form.value)

    @property
    def shift(self) -> At:
        return At(self.node.statement, self.form.shift)


@frozen(eq=False)
class _Sum:
    """A scan that is a corrected sum, by its instances."""

    form: Exponential
    terms: tuple[tuple[At, isl.Map], ...]
    """The nodes of the terms up to an instance, each with the map to their instances."""
    shifts: Location
    """The shift of the sum."""
    values: Location
    """All values up to an instance of which terms have the exponential, but for the neutral one of the maximum."""


class Unmet(Exception):
    """A condition of the theorem is not met, or not seen to be."""


class Corrections:
    """The corrected sums of a program whose running reductions are totals."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._locations = Locations(values)
        self._sums: dict[tuple[int, str, Extreme], _Sum | None] = {}
        self._products: dict[tuple[Key, str], Sources | None] = {}
        self._kept: list[Node] = []

    def terms(self, product: At, kind: str) -> Sources | None:
        """The terms of the last correction of a corrected sum, with the maps from its instances; None for other products."""
        e = product.expr
        if operator(kind) != "+" or not isinstance(e, Binary) or e.op != "*":
            return None
        k = key(product), kind
        if k not in self._products:
            self._kept.append(product)
            self._products[k] = None  # for a product inside of its own value
            ways: tuple[tuple[Expr, Expr, Extreme], ...] = (
                (e.lhs, e.rhs, "max"), (e.rhs, e.lhs, "max"), (e.lhs, e.rhs, "min"), (e.rhs, e.lhs, "min"),
            )  # fmt: skip
            for x, y, op in ways:
                try:
                    self._products[k] = self._last(product.statement, x, y, kind, op)
                    break
                except Unmet:
                    pass
        return self._products[k]

    def _last(self, s: Statement, scanned: Expr, factor: Expr, kind: str, op: Extreme) -> Sources:
        """The terms of a corrected sum times a factor, relative to the new shift of that."""
        scan, steps = self._scan(At(s, scanned))
        total = self._sum(scan, kind, op)
        factors = self._factors(At(s, factor), op, s.domain, alone=True)
        _require(s.domain.is_subset(steps.domain()))
        _require(all(f.form.agrees(total.form) for f in factors))
        old = self._where(factors, s.domain, lambda f: f.value)
        _require(is_within(old, composed(steps, total.shifts)))
        greatest, values = self.extremes(factors, op, finite=False), composed(steps, total.values)
        _require(is_within(greatest, values) and is_within(values, greatest))
        view = _View(self._values, s, factors, op)
        pairs = s.domain.identity()
        terms = [(n, steps.apply_range(m)) for n, m in total.terms]
        return tuple((view.of(n, m.range()), m.flat_range_product(pairs)) for n, m in terms)

    def _scan(self, node: At) -> tuple[Statement, isl.Map]:
        """The corrected sum of which the node has the value of a step, with the map to the steps."""
        _require(isinstance(node.expr, Load))
        found: list[tuple[Statement, isl.Map]] = []
        todo: list[tuple[Node, isl.Map]] = [(node, node.statement.domain.identity())]
        for _ in range(STEPS):
            if not todo:
                break
            n, m = todo.pop()
            if isinstance(n, At) and n.expr is n.statement.store.value and _recurrence(n.statement) is not None:
                found.append((n.statement, m))
                continue
            steps = self._values.steps(n)
            _require(steps is not None)
            todo += [(k, own) for k, x in steps or () if not (own := m.apply_range(x)).is_empty()]
        _require(bool(found) and not todo and all(x is found[0][0] for x, _ in found))
        return found[0][0], reduce(isl.Map.union, (m for _, m in found))

    def _sum(self, s: Statement, kind: str, op: Extreme) -> _Sum:
        k = s.number, kind, op
        if k not in self._sums:
            self._sums[k] = None  # for a sum that is among its own terms
            self._sums[k] = self._proved(s, kind, op)
        found = self._sums[k]
        _require(found is not None)
        assert found is not None
        return found

    def _proved(self, s: Statement, kind: str, op: Extreme) -> _Sum:
        """The corrected sum that a statement makes. Raises Unmet unless all conditions of the theorem hold."""
        renew()
        c = _recurrence(s)
        _require(c is not None and self._values.code.writers[s.store.buffer] == [s])
        assert c is not None and c.scale is not None
        _require(mapping(s.names, [e for _, _, e in s.iters]).intersect_domain(s.domain).is_injective())
        same = equal(s, [e for _, k, e in s.iters if k is not IterKind.SCAN])
        before, up_to = (compared(s, c.step, how).intersect(same) for how in ("b = a - 1", "b <= a"))
        later = s.domain.intersect(points(s.names, [Compare(">=", c.step, ONE)]))
        if not later.is_empty():
            scan, read = self._scan(At(s, c.read))
            read = read.intersect_domain(later)
            _require(scan is s and later.is_subset(read.domain()) and within(read, before))

        first = self._terms(At(s, c.first), kind, s.domain.subtract(later))
        parts = self._terms(At(s, c.later), kind, later)
        changes = [] if later.is_empty() else self._factors(At(s, c.scale.term), op, later, alone=True)
        of_first, of_parts = (
            [(f, m.apply_range(f.instances)) for n, m in terms for f in self._factors(n, op, m.range())]
            for terms in (first, parts)
        )
        every = [f for f, _ in (*of_first, *of_parts)]
        _require(bool(every) and all(f.form.agrees(every[0].form) for f in (*every, *changes)))

        # The shift of each step: of the terms of the first one, and what the correction of a later one makes.
        begun = united([composed(m, self.of(f.shift)) for f, m in of_first])
        made = self._where(changes, later, lambda f: f.shift)
        shifts = united([begun, made])
        _require(covers(shifts, s.domain) and is_single(shifts))
        for f, m in of_parts:
            _require(is_within(composed(m, self.of(f.shift)), made))
        _require(is_within(self._where(changes, later, lambda f: f.value), composed(before, shifts)))

        own = united([composed(m, self.of(f.value)) for f, m in (*of_first, *of_parts)])
        values = composed(up_to, own)
        starts = [Factor(f.node, f.form, m) for f, m in of_first]
        greatest = self.extremes([*starts, *changes], op, finite=True)
        _require(covers(values, s.domain))
        # What is infinite wherever it stands, such as beyond a mask, is no more than any maximum.
        values = {t: m for t, m in values.items() if t != label(identity(op, dtype_of(every[0].form.value)))}
        _require(is_within(greatest, values) and is_within(values, greatest))
        terms = tuple((n, up_to.apply_range(m)) for n, m in (*first, *parts))
        return _Sum(every[0].form, terms, shifts, values)

    def _terms(self, node: At, kind: str, domain: isl.Set) -> list[tuple[At, isl.Map]]:
        """The terms of a part, each with the map from an instance of the scan to those of the term."""
        if domain.is_empty():
            return []
        found = terms_of(node, kind, self._values, domain)
        out: list[tuple[At, isl.Map]] = []
        for t in found.found:
            _require(isinstance(t.node, At))
            assert isinstance(t.node, At)
            # A point of a path is a term: as many as there are instances, and each in one step.
            leaf = t.leaf.intersect_domain(t.path.range())
            instances = t.path.apply_range(leaf)
            _require(leaf.is_injective() and instances.is_injective())
            out.append((t.node, instances))
        return out

    def _factors(self, node: Node, op: Extreme, domain: isl.Set, *, alone: bool = False) -> list[Factor]:
        found = factors_of(self._values, node, op, domain, alone=alone)
        _require(bool(found))
        return found or []

    def of(self, node: Node) -> Location:
        return self._locations.of(node)

    def _where(self, factors: Sequence[Factor], domain: isl.Set, part: Callable[[Factor], At]) -> Location:
        """Where a part of the exponentials comes from, at all instances in `domain`."""
        found = united([composed(f.instances, self.of(part(f))) for f in factors])
        _require(covers(found, domain) and is_single(found))
        return found

    def extremes(self, factors: Sequence[Factor], op: Extreme, finite: bool) -> Location:
        """The values of which the shifts are the greatest, or the least. With `finite` the outermost finite number is too."""
        out: list[Location] = []
        for f in factors:
            domain = f.instances.range()
            found = terms_of(f.shift, f"{op} {dtype_of(f.form.shift)}", self._values, domain)
            rest = domain
            for t in found.found:
                if isinstance(t.node, At) and isinstance(t.node.expr, Const):
                    _require(finite and t.node.expr == outermost_finite(op, t.node.expr.dtype))
                    rest = rest.subtract(t.path.domain())
                    continue
                instances = t.path.apply_range(t.leaf)
                of_term = self.of(t.node)
                _require(covers(of_term, instances.range()))
                out.append(composed(f.instances.apply_range(instances), of_term))
            _require(rest.is_empty() or not finite)
        return united(out)


class _View:
    """Statements of which each instance has the shift that an instance of `last` makes: exponentials are relative to that."""

    def __init__(self, values: Values, last: Statement, factors: Sequence[Factor], op: Extreme) -> None:
        self._values = values
        self._last = last
        self._factors = factors
        self._op: Extreme = op

    def of(self, node: Node, domain: isl.Set) -> At:
        """The value relative to the new shift, at the instances in `domain`. Its instances are pairs of one of these and one
        of `last`, in a statement with names of its own: nodes are known by these.
        """
        assert isinstance(node, At)
        s, pairs = node.statement, domain.flat_product(self._last.domain)
        tail = tuple(self._values.new_name("of_last") for _ in self._last.names)
        names = (*s.names, *tail)
        sources: dict[Expr, Sources] = {}
        ours, new = (mapping(names, list(map(Var, n))).intersect_domain(pairs) for n in (s.names, tail))
        value = self._value(node, ours, new, sources)
        made = replace(
            s,
            names=names,
            domain=pairs,
            store=replace(s.store, value=value),
            accumulates=None,
            runs=None,
        )
        self._values.see(made, sources)
        return At(made, value)

    def _value(self, node: At, ours: isl.Map, new: isl.Map, sources: dict[Expr, Sources]) -> Expr:
        """The expression with another shift in it, or with a load of what has another shift: those are new `sources`."""
        s, e, domain = node.statement, node.expr, ours.range()
        form = exponential(e, self._op)
        if form is not None:
            shift = self._source(form.shift)
            sources[shift] = tuple((f.shift, new.apply_range(f.instances)) for f in self._factors)
            return form.of(form.value, shift)
        steps = self._values.steps(node)
        if steps is not None:
            load = self._source(e)
            own = [(n, m.intersect_domain(domain)) for n, m in steps]
            sources[load] = tuple(
                (self.of(n, m.range()), ours.apply_range(m).flat_range_product(new)) for n, m in own if not m.is_empty()
            )
            return load
        parts = list(children(e))
        for k, x in enumerate(parts):  # the first one, as in `factors_of`
            if factors_of(self._values, At(s, x), self._op, domain) is not None:
                parts[k] = self._value(At(s, x), ours, new, sources)
                return rebuild(e, tuple(parts))
        raise AssertionError("no operand has an exponential")

    def _source(self, e: Expr) -> Load:
        return Load(self._values.new_name("source"), (), dtype_of(e))


def factors_of(values: Values, node: Node, op: Extreme, domain: isl.Set, *, alone: bool = False) -> list[Factor] | None:
    """The exponentials that the value has as a factor at the instances in `domain`, case by case; None if it has none in some
    case. With `alone` there must not be other factors.
    """
    if not isinstance(node, At):
        return None
    s, e = node.statement, node.expr
    form = exponential(e, op)
    if form is not None:
        return [Factor(node, form, domain.identity())]
    steps = values.steps(node)
    if steps is not None:
        out: list[Factor] = []
        for n, m in steps:
            own = m.intersect_domain(domain)
            found = [] if own.is_empty() else factors_of(values, n, op, own.range(), alone=alone)
            if found is None:
                return None
            out += [replace(f, instances=own.apply_range(f.instances)) for f in found]
        return out
    match e:
        case Cast(operand=x, dtype=t) if t.is_float and dtype_of(x).is_float:
            operands: tuple[Expr, ...] = (x,)
        case Binary(op="*", lhs=x, rhs=y) if not alone:
            operands = (x, y)
        case Binary(op="/", lhs=x) if not alone:
            operands = (x,)
        case _:
            return None
    every = (factors_of(values, At(s, x), op, domain, alone=alone) for x in operands)
    return next((x for x in every if x is not None), None)


def _recurrence(s: Statement) -> Chain | None:
    """The linear recurrence of floats of which the statement is a step; None if it is not of one."""
    t = dtype_of(s.store.value)
    chain = s.runs if t.is_float else None
    if chain is None or chain.scale is None or chain.reset is not None:
        return None
    return chain if (chain.kind, chain.scale.kind) == (f"+ {t}", f"* {t}") else None


def _require(condition: bool) -> None:
    if not condition:
        raise Unmet


# Leaves out terms of sums that are 0 because a mask makes the operand of their exponential infinite.
#
# `exp((-inf - m) * c) * v` is 0 for every `m` above -inf, if `v` is finite: floats are real numbers here, and `v` is one.
# So a sum has the same value with such terms and without. Of a row in which nothing is left they are not left out: there
# `m` is -inf, and each of them NaN. That `m` is above -inf is seen by another term, which has an exponential of one of the
# values that `m` is the maximum of. Where that value is -inf, `m` may be, too, and then this term is NaN, with the others
# and without.
#
# Whether `v` is finite is not known of an input. So only exponentials alone, and products with padding, which is 0, are
# left out, unless the scheduled program has the annotation `FINITE`, which says it of all factors.


def without_masked(terms: Terms, kind: str, values: Values, finite: bool) -> Terms:
    """The terms without those that are 0 by a mask, if they are the terms of a sum of floats. Factors of exponentials are
    `finite`, or not known to be."""
    corrections = values.corrections
    if not isinstance(corrections, Corrections) or operator(kind) != "+" or len(terms.found) == 0:
        return terms
    extremes: tuple[Extreme, ...] = ("max", "min")
    for op in extremes:
        try:
            found = _without(terms, op, values, corrections, finite)
        except (Unmet, Undecided):
            continue
        if found is not None:
            return found
    return terms


def _without(terms: Terms, op: Extreme, values: Values, corrections: Corrections, finite: bool) -> Terms | None:
    """The terms without those that are 0 by a mask; None if there are none, or a row would have no term left."""
    kept: list[Term] = []
    left_out = list[tuple[isl.Map, list[Factor]]]()
    own: list[Location] = []
    for t in terms.found:
        asked = t.leaf.intersect_domain(t.path.range()).range()
        factors = factors_of(values, t.node, op, asked)
        known = (
            asked if finite or factors_of(values, t.node, op, asked, alone=True) else _zeros(values, t.node, op, asked)
        )
        certain = t.leaf.intersect_range(known).domain()
        masked: isl.Map | None = None
        of_masked: list[Factor] = []
        for f in factors or ():
            infinity = label(identity(op, dtype_of(f.form.value)))
            at = corrections.of(f.value)
            points = t.leaf.apply_range(f.instances)
            if infinity in at:
                path = t.path.intersect_range(points.intersect_range(at[infinity].domain()).domain().intersect(certain))
                if not path.is_empty():
                    masked = path if masked is None else masked.union(path)
                    of_masked.append(replace(f, instances=path.apply_range(points)))
            others = {text: m for text, m in at.items() if text != infinity}
            own.append(composed(t.path.apply_range(points), others))
        if masked is None:
            kept.append(t)
            continue
        left_out.append((masked, of_masked))
        if not (rest := t.path.subtract(masked)).is_empty():
            kept.append(replace(t, path=rest))
    if not left_out:
        return None
    left = united(own)
    for masked, factors in left_out:
        greatest = corrections.extremes(factors, op, finite=False)
        rows = masked.domain()
        for text, m in greatest.items():
            if text in left:
                rows = rows.subtract(m.intersect(left[text]).domain())
        if not rows.is_empty():
            return None
    return replace(terms, found=kept)


def _zeros(values: Values, node: Node, op: Extreme, domain: isl.Set) -> isl.Set:
    """The instances in `domain` at which another factor than the exponential is the number 0."""
    return _where(values, node, domain, lambda n, own: _zero_beside(values, n, op, own))


def _zero_beside(values: Values, node: At, op: Extreme, domain: isl.Set) -> isl.Set:
    s = node.statement
    match node.expr:
        case Cast(operand=x, dtype=t) if t.is_float and dtype_of(x).is_float:
            return _zeros(values, At(s, x), op, domain)
        case Binary(op="*", lhs=x, rhs=y):
            of_factor, other = (x, y) if factors_of(values, At(s, x), op, domain) is not None else (y, x)
            beside = _where(values, At(s, other), domain, lambda n, own: _zero(values, n, own))
            return beside.union(_zeros(values, At(s, of_factor), op, domain))
        case _:
            return isl.Set.empty(domain.get_space())


def _zero(values: Values, node: At, domain: isl.Set) -> isl.Set:
    match node.expr:
        case Const(value=v) if v == 0:
            return domain
        case Cast(operand=x, dtype=t) if t.is_float and dtype_of(x).is_float:
            return _where(values, At(node.statement, x), domain, lambda n, own: _zero(values, n, own))
        case _:
            return isl.Set.empty(domain.get_space())


def _where(values: Values, node: Node, domain: isl.Set, told: Callable[[At, isl.Set], isl.Set]) -> isl.Set:
    """The instances in `domain` for which `told` says so of what the node is a copy of."""
    if not isinstance(node, At):
        return isl.Set.empty(domain.get_space())
    steps = values.steps(node)
    if steps is None:
        return told(node, domain)
    out = isl.Set.empty(domain.get_space())
    for n, m in steps:
        own = m.intersect_domain(domain)
        if not own.is_empty():
            out = out.union(own.intersect_range(_where(values, n, own.range(), told)).domain())
    return out

"""Where a value comes from: expressions over the inputs, and over reductions and scans by name.

Within one program, values with equal texts and equal coordinates are the same. This decides less than a comparison, since two
stages that compute the same have different names, and is exact: nothing is left open, as it may be in a signature.
"""

from __future__ import annotations

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.data import depends_on_data
from tensorc_dsl.ir.expr import Const, Load, children, loads
from tensorc_dsl.validate.code import label
from tensorc_dsl.validate.facts import Undecided
from tensorc_dsl.validate.flow import Total
from tensorc_dsl.validate.nodes import At, Key, Node, key
from tensorc_dsl.validate.values import PIECES, Values, is_index

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

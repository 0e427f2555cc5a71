"""Removes divisions from maps between instances that do not affect what they map.

A copy through a layout with `i / 2 * 2 + j` and `i % 2` maps each instance to itself, but the map, composed of
the layout and its inverse, is full of divisions, and the time of the integer set library is exponential in these. So a map
is simplified at every step from a read to its write, and no query is made about one that stays too intricate.
"""

from __future__ import annotations

from functools import reduce
from typing import TypeVar

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.budget import renew
from tensorc_dsl.validate.facts import Undecided

M = TypeVar("M", "isl.Map", "isl.Set")

INTRICATE = 48
"""The number of divisions in one piece of a map at which a question about it can take minutes. Maps of usual programs have
fewer than 10."""

SEVERAL = 4
"""The number of divisions up to which a map is left as it is."""

CASES = 32
"""The number of cases up to which a map is taken case by case."""

HULL = 4
"""The budget for the equalities of a swizzled layout, as a multiple of that of other questions."""


def plain(m: isl.Map) -> isl.Map:
    """An equal map, with fewer divisions if its equalities or the shape of its domain imply them."""
    if divisions(m) == 0:
        return m
    parts: list[isl.Map] = []
    for piece in m.get_basic_maps():
        renew(HULL)
        part = isl.Map.from_basic_map(piece)
        equalities = part.affine_hull()  # of a map: that of a piece breaks the piece, an error of isl
        for found in map(isl.Map.from_basic_map, (equalities.remove_divs(), equalities)):
            if divisions(found) < divisions(part) and found.is_single_valued():
                # Contains `part`, and nothing else on its domain.
                part = found.intersect_domain(_plain_set(part.domain()))
                break
        parts.append(part)
    renew()
    return joined(reduce(isl.Map.union, parts))


def _plain_set(s: isl.Set) -> isl.Set:
    if divisions(s) == 0:
        return s
    found = isl.Set.from_basic_set(s.simple_hull().remove_divs())
    return found if found.is_subset(s) else s


def joined(m: M) -> M:
    """An equal map or set, of fewer pieces if isl can join some. Nothing depends on it: where that takes too many operations,
    it is `m`.
    """
    renew()
    try:
        return m.coalesce()
    except isl.Error:
        renew()
        return m


def last_of(m: isl.Map) -> isl.Map:
    """The greatest image of each point in lexicographic order. isl 2026.2.2 fails at some maps with redundant
    constraints, "affine expression involves some of the domain dimensions", and not at equal ones without.
    """
    try:
        return m.lexmax()
    except isl.Error:
        renew()
        return m.remove_redundancies().lexmax()


def first_of(m: isl.Map) -> isl.Map:
    """The least image of each point; see `last_of`."""
    try:
        return m.lexmin()
    except isl.Error:
        renew()
        return m.remove_redundancies().lexmin()


def convex(m: isl.Map) -> isl.Map:
    """An equal map, of one piece if its convex hull is soon found to be equal to it. isl joins two pieces if one constraint
    of each tells them apart; windows that are cut off at a border and lie in tiles have more.
    """
    if m.n_basic_map() < 2:
        return m
    renew()
    try:
        hull = isl.Map.from_basic_map(m.convex_hull())
        return hull if hull.is_subset(m) else m
    except isl.Error:
        renew()
        return m


def in_cases(m: isl.Map) -> isl.Map:
    """An equal map whose pieces have one value each of those coordinates of its range that leaves fewer divisions: where a
    range of steps begins is a quotient of its number, and of each range it is a number. Divisions that few numbers decide
    take isl longer than as many pieces.
    """
    if divisions(m) <= SEVERAL:
        return m
    renew()
    try:
        cases, points = [m], m.range()
        for k in range(points.dim(isl.dim_type.set)):
            low, high = points.dim_min_val(k), points.dim_max_val(k)
            if not (low.is_int() and high.is_int()):
                continue
            values = range(low.to_python(), high.to_python() + 1)
            if len(values) * len(cases) > CASES:
                continue
            fixed = (c.fix_val(isl.dim_type.out, k, isl.Val(v)) for c in cases for v in values)
            found = [c for c in fixed if not c.is_empty()]
            if max(map(divisions, found)) < max(map(divisions, cases)):
                cases = found
        return reduce(isl.Map.union, cases)
    except isl.Error:
        renew()
        return m


def at_points(m: isl.Map, domain: isl.Set, others: isl.Set) -> isl.Map:
    """A map that is equal to `m` between these sets, and says less of other points where that saves divisions."""
    if divisions(m) <= SEVERAL:
        return m
    renew()
    try:
        return m.gist_domain(domain).gist_range(others)
    except isl.Error:
        renew()
        return m


def within(m: isl.Map, other: isl.Map) -> bool:
    """Whether all of `m` is seen to lie in `other`; not if that takes too many operations."""
    renew()
    try:
        return m.is_subset(other)
    except isl.Error:
        renew()
        return False


def divisions(m: isl.Map | isl.Set) -> int:
    """The largest number of divisions, or other existentially quantified values, in one piece."""
    pieces = m.get_basic_maps() if isinstance(m, isl.Map) else m.get_basic_sets()
    return max((p.dim(isl.dim_type.div) for p in pieces), default=0)


def require_simple(*maps: isl.Map) -> None:
    """Raises Undecided where a question about the maps could take too long."""
    if any(divisions(m) > INTRICATE for m in maps):
        raise Undecided("subscripts go through too many divisions")

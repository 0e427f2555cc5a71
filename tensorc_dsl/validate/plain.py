"""Maps between instances as plain as they are: without the divisions that leave no trace in what they map.

A copy through a layout with `i / 2 * 2 + j` and `i % 2` takes each instance to itself, but the map that says so, made of
the layout and its inverse, is full of divisions, and the integer set library takes exponentially longer for each. So a map
is made plain at every step from a read to its write, and one that stays too intricate is not asked about at all.
"""

from __future__ import annotations

from functools import reduce

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.budget import renew
from tensorc_dsl.validate.facts import Undecided

INTRICATE = 48
"""Divisions in one piece of a map; with so many, a question about it can take minutes. Maps of usual programs have less
than 10."""

HULL = 4
"""How much more the equalities of a swizzled layout take than other questions."""


def plain(m: isl.Map) -> isl.Map:
    """An equal map, with fewer divisions where its equalities or the shape of its domain say as much without them."""
    if divisions(m) == 0:
        return m
    parts: list[isl.Map] = []
    for piece in m.get_basic_maps():
        renew(HULL)
        part = isl.Map.from_basic_map(piece)
        equalities = piece.affine_hull()
        for hull in map(isl.Map.from_basic_map, (equalities.remove_divs(), equalities)):
            if divisions(hull) < divisions(part) and hull.is_single_valued():
                part = hull.intersect_domain(_plain_set(part.domain()))  # it holds `part`, and has nothing else there
                break
        parts.append(part)
    renew()
    return reduce(isl.Map.union, parts).coalesce()


def _plain_set(s: isl.Set) -> isl.Set:
    if divisions(s) == 0:
        return s
    hull = isl.Set.from_basic_set(s.simple_hull().remove_divs())
    return hull if hull.is_subset(s) else s


def divisions(m: isl.Map | isl.Set) -> int:
    """The most divisions, or other values that merely exist, in one piece."""
    pieces = m.get_basic_maps() if isinstance(m, isl.Map) else m.get_basic_sets()
    return max((p.dim(isl.dim_type.div) for p in pieces), default=0)


def require_simple(*maps: isl.Map) -> None:
    """Raises Undecided where a question about the maps could take too long."""
    if any(divisions(m) > INTRICATE for m in maps):
        raise Undecided("subscripts go through too many divisions")

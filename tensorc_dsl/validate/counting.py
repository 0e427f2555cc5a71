"""How many points sets have that depend on others, such as the terms of each result."""

from __future__ import annotations

from functools import reduce

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.budget import renew
from tensorc_dsl.validate.plain import joined


def counts(terms: isl.Map) -> isl.PwAff | None:
    """How many points each element of the domain has; None unless that is found as sums and products of lengths of intervals,
    all but one of which are numbers in a product.
    """
    total: isl.PwAff | None = None
    for piece in joined(terms).make_disjoint().get_basic_maps():
        renew()
        found = _count(isl.Map.from_basic_map(piece))
        if found is None:
            return None
        total = found if total is None else total.union_add(found)
    return total


def _count(terms: isl.Map) -> isl.PwAff | None:
    into, out = isl.dim_type.in_, isl.dim_type.out
    for d in reversed(range(1, terms.dim(out))):
        if terms.project_out(out, d + 1, terms.dim(out) - d - 1).project_out(out, 0, d).is_single_valued():
            terms = terms.project_out(out, d, 1)
    width, n = terms.dim(out), terms.dim(into)
    for d in reversed(range(width)):
        one = terms.move_dims(into, n, out, d + 1, width - d - 1).move_dims(into, n, out, 0, d)
        if not one.range().is_bounded():
            return None
        low, high = one.dim_min(0), one.dim_max(0)
        from_low = isl.Map.from_pw_aff(low).apply_range(isl.Map("{ [a] -> [b] : b >= a }"))
        up_to_high = isl.Map.from_pw_aff(high).apply_range(isl.Map("{ [a] -> [b] : b <= a }"))
        if not from_low.intersect(up_to_high).is_equal(one):
            continue
        length = high.sub(low).add_constant_val(isl.Val(1)).coalesce()
        if width == 1:
            return length
        if length.n_piece() > 1:  # such as rows of which the last one is shorter
            parts = [
                one.intersect_domain(where).move_dims(out, 0, into, n, d).move_dims(out, d + 1, into, n, width - d - 1)
                for where, _ in length.get_pieces()
            ]
            found = [counts(x) for x in parts]
            if all(x is not None for x in found):
                return reduce(isl.PwAff.union_add, (x for x in found if x is not None))
        elif length.is_cst() and (rest := counts(terms.project_out(out, d, 1))) is not None:
            return rest.scale_val(length.max_val())
    return None

"""What `assume` says of the contents of inputs, as annotations of the program: results are checked on inputs drawn so.

Nothing is proved from it, and a kernel takes other inputs as well.
"""

from __future__ import annotations

from tensorc_dsl.elaborate.bindings import Environment, index_expr
from tensorc_dsl.elaborate.problems import ASSUMED, Invalid
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.numbers import holds_value, limits, unit_roundoff
from tensorc_dsl.ir.program import ASSUMED as KEY
from tensorc_dsl.ir.program import Annotation, Buffer, Property
from tensorc_dsl.proof.sets.simplify import bounds
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near

MATRICES = (Property.POSITIVE_DEFINITE, Property.SYMMETRIC)


def assumptions(defn: tree.ComputeDef, params: dict[str, Buffer], env: Environment) -> tuple[Annotation, ...]:
    """An annotation for each input of which something is assumed: properties by name, and a range as `low..high`. Raises
    Invalid."""
    inputs = {p.name: params[p.name] for p in defn.inputs if p.name in params}
    said: dict[str, list[str]] = {}
    for a in defn.assumes:
        if a.name not in inputs:
            raise Invalid(ASSUMED(a.name.span, text=f"`{a.name}` is no input", notes=near(a.name, inputs)))
        buffer = inputs[a.name]
        one = _property(a, a.says, buffer, env) if isinstance(a.says, tree.Word) else _range(a, a.says, buffer, env)
        if one in said.setdefault(a.name, []) or (".." in one and any(".." in x for x in said[a.name])):
            raise Invalid(ASSUMED(a.span, text=f"`{a.name}` is assumed so already"))
        said[a.name].append(one)
        _require_together(a, said[a.name], buffer)
    return tuple((f"{KEY}{name}", ", ".join(x)) for name, x in sorted(said.items()))


def _require_together(a: tree.Assumption, said: list[str], b: Buffer) -> None:
    """Raise Invalid if no array is all that is said, or none is drawn so."""
    low, high = next(((float(x), float(y)) for x, dots, y in (p.partition("..") for p in said) if dots), (None, None))
    if Property.POSITIVE_DEFINITE in said and len(said) > 1:
        raise Invalid(ASSUMED(a.span, text="a positive definite matrix is drawn with no other property"))
    if Property.SYMMETRIC in said and {Property.SORTED, Property.DISTINCT} & {*said}:
        raise Invalid(ASSUMED(a.span, text="a symmetric matrix is drawn neither sorted nor distinct"))
    if Property.POSITIVE in said and high is not None and high <= 0:
        raise Invalid(ASSUMED(a.span, text=f"no number of `{a.name}` is positive"))
    count = ir.constant(b.shape[-1]) if b.shape else None
    if Property.DISTINCT not in said or count is None:
        return
    if b.dtype.is_integer:
        least, most = limits(b.dtype) if low is None or high is None else (low, high)
        enough = most - (max(least, 1) if Property.POSITIVE in said else least) + 1 >= count
    else:
        least, most = (-1.0, 1.0) if low is None or high is None else (low, high)
        enough = (most - least) / max(count, 1) > 4 * max(abs(least), abs(most)) * unit_roundoff(b.dtype)
    if not enough:
        raise Invalid(ASSUMED(a.span, text=f"there are no {count} distinct numbers for a row of `{a.name}`"))


def _property(a: tree.Assumption, says: tree.Word, b: Buffer, env: Environment) -> str:
    names = [p.value for p in Property]
    if says not in names:
        raise Invalid(ASSUMED(says.span, text=f"there is no property `{says}`", notes=near(says, names)))
    what = Property(says)
    if what is Property.POSITIVE_DEFINITE and not b.dtype.is_float:
        raise Invalid(ASSUMED(a.span, text=f"a matrix of {b.dtype} is not drawn positive definite"))
    if what in MATRICES and not (len(b.shape) >= 2 and (env.unbound or b.shape[-1] == b.shape[-2])):
        raise Invalid(ASSUMED(a.span, text=f"`{a.name}` is no square matrix"))
    if b.dtype.kind == "bool" or not b.shape:
        raise Invalid(ASSUMED(a.span, text=f"`{a.name}` is no array of numbers"))
    return str(says)


def _range(a: tree.Assumption, says: tree.RangeExpr, b: Buffer, env: Environment) -> str:
    """The range; where its ends depend on open sizes, what the ranges of all sizes have in common."""
    if b.dtype.kind == "bool":
        raise Invalid(ASSUMED(a.span, text=f"`{a.name}` is no array of numbers"))
    low, high = (_end(e, env, last) for e, last in ((says.low, False), (says.high, True)))
    if env.unbound:
        return "0..0"
    if low is None or high is None or low > high:
        raise Invalid(ASSUMED(says.span, text=f"`{says.span.text}` has no numbers for all sizes"))
    for n, e in ((low, says.low), (high, says.high)):
        least, most = limits(b.dtype) if b.dtype.is_integer else (n, n)
        if not (least <= n <= most) or (isinstance(n, float) if b.dtype.is_integer else not holds_value(b.dtype, n)):
            raise Invalid(ASSUMED(e.span, text=f"`{e.span.text}` is no number of {b.dtype}"))
    return f"{low!r}..{high!r}"


def _end(e: tree.Expr, env: Environment, last: bool) -> int | float | None:
    match e:
        case tree.Number(value=value):
            return value
        case tree.Negate(operand=tree.Number(value=value)):
            return -value
        case tree.Name(id=name) if name in env.floats:
            return env.floats[name]
        case _:
            made = index_expr(e, env.sizes)
            n = ir.constant(made)
            return n if n is not None else bounds(made, {})[0 if last else 1]

"""Binds the dimensions and attributes of a compute: bindings become an environment.

Dimensions are the names in the shapes of the tensors that are neither attributes nor defined by `where`. They are bound to
numbers, or to ranges, which leaves them open; both are expressions here.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from math import lcm

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.elaborate.problems import (
    COMPUTED_BINDING,
    DIVISION_BY_ZERO,
    LONG_INDEX,
    MISSING_BINDING,
    NEGATIVE,
    NEGATIVE_SIZE,
    NO_ATTRIBUTE_TYPE,
    NOT_A_CONDITION,
    NOT_A_KIND,
    NOT_AN_INDEX,
    NOT_LINEAR,
    REFUSED_SIZES,
    TAKEN,
    TOO_FAR,
    TOO_LARGE,
    UNKNOWN_BINDING,
    UNKNOWN_NAME,
    UNKNOWN_TYPE,
    Invalid,
)
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import DTYPES, F32, DType
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import APPROX
from tensorc_dsl.ir.sizes import limited
from tensorc_dsl.proof.sets.linear_forms import FALSE, TRUE, negate
from tensorc_dsl.proof.sets.safety import below, broken_by, too_far
from tensorc_dsl.proof.sets.sets import affine_only
from tensorc_dsl.proof.sets.simplify import bounds, simplify
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near, spelling_hints

LARGEST = 2**63 - 1


@frozen
class OpenRange:
    """The range of sizes of an open dimension, both ends included, and the sizes at which it is timed, with weights or none.

    Raises ValueError unless 0 <= low <= high and all of `at` are in the range, from 1 on: nothing is timed without work.
    """

    low: int
    high: int
    at: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"there is no size from {self.low} to {self.high}")
        for n in self.at:
            if not max(self.low, 1) <= n <= self.high:
                raise ValueError(f"{n} is no size from {max(self.low, 1)} to {self.high}")


Bound = int | float | str | OpenRange
"""The value of a dimension or an attribute in a task: a number, the name of a type, or the range of an open size."""


@dataclass(slots=True)
class Environment:
    """The names that have one value in the whole compute."""

    sizes: dict[str, ir.Expr] = field(default_factory=dict[str, ir.Expr])
    """Dimensions, `where` names and int attributes: constants, or expressions over open dimensions."""
    floats: dict[str, float] = field(default_factory=dict[str, float])
    dtypes: dict[str, DType] = field(default_factory=dict[str, DType])
    open: tuple[ir.Dim, ...] = ()
    """The open dimensions."""
    conditions: tuple[ir.Expr, ...] = ()
    """What `where` says of the sizes. Without bindings, proofs rely on it; with them, it holds."""
    unbound: bool = False
    """Whether the compute is checked without bindings: then questions that need sizes are not asked."""

    def names(self) -> list[str]:
        return [*self.sizes, *self.floats, *self.dtypes]

    def __contains__(self, name: str) -> bool:
        return name in self.sizes or name in self.floats or name in self.dtypes

    def facts(self) -> str:
        """The sizes as text for a message: `H = 2, KH = 3`."""
        return ", ".join(f"{k} = {v.value}" for k, v in self.sizes.items() if isinstance(v, ir.Const))


def names_in(e: tree.Expr) -> Iterator[tree.Name]:
    """The names in an index expression, in text order."""
    match e:
        case tree.Name():
            yield e
        case tree.BinaryExpr(lhs=a, rhs=b):
            yield from names_in(a)
            yield from names_in(b)
        case tree.Negate(operand=a):
            yield from names_in(a)
        case tree.CallExpr(args=args):
            for a in args:
                yield from names_in(a)
        case _:
            pass


def dimensions(defn: tree.ComputeDef, *, strides: bool = True) -> dict[str, tree.Name]:
    """The names that a task binds, each at its first use; without `strides` those that a call binds, whose arguments are
    tensors of the caller, where they are."""
    known = {a.name for a in defn.attributes} | {name for name, _ in defn.where}
    out: dict[str, tree.Name] = {}
    for p in (*defn.inputs, *defn.outputs):
        for e in (*p.type.shape, *(p.strides if strides else ())):
            for n in names_in(e):
                if n.id not in known:
                    out.setdefault(n.id, n)
    return out


MOST_NODES = 4096
"""The most nodes of an index that is an absolute value: it has its operand twice, so that nested ones double."""


MOST_OF_SIZE = 512
"""The most nodes of a size: each after `where` may have those before it several times."""


def index_expr(
    e: tree.Expr,
    names: Mapping[str, ir.Expr],
    known: Callable[[tree.Expr], ir.Expr | None] = lambda _: None,
) -> ir.Expr:
    """An extent or a subscript as IR, with constants folded; `known` converts some subexpressions. Raises Invalid."""

    def go(e: tree.Expr) -> ir.Expr:
        if (made := known(e)) is not None:
            return made
        match e:
            case tree.Number(value=int(value)):
                return ir.index(value)
            case tree.Name(id=name):
                if name not in names:
                    notes = near(name, names, f"declare `{name}` first")
                    raise Invalid(UNKNOWN_NAME(e.span, what="size", name=name, notes=notes))
                return names[name]
            case tree.Negate(operand=a):
                return ir.sub(ir.ZERO, go(a))
            case tree.BinaryExpr(op=op, lhs=a, rhs=b):
                x, y = go(a), go(b)
                if op in "/%" and (d := _least(y)) is not None and d <= 0:
                    raise Invalid(DIVISION_BY_ZERO(b.span, value=d))
                match op:
                    case "+":
                        return ir.add(x, y)
                    case "-":
                        return ir.sub(x, y)
                    case "*":
                        return ir.mul(x, y)
                    case "/":
                        return ir.floordiv(x, y)
                    case "%":
                        return ir.floormod(x, y)
            case tree.CallExpr(function=tree.Name(id="min" | "max" as op), args=(a, b), kwargs=()):
                x, y = go(a), go(b)
                p, q = ir.constant(x), ir.constant(y)
                if p is not None and q is not None:
                    return ir.index(min(p, q) if op == "min" else max(p, q))
                return ir.Binary(op, x, y)
            case tree.CallExpr(function=tree.Name(id="xor"), args=(a, b), kwargs=()):
                return ir.xor(go(a), go(b))
            case tree.CallExpr(function=tree.Name(id="abs"), args=(a,), kwargs=()):
                x = go(a)
                if (n := ir.constant(x)) is not None:
                    return ir.index(abs(n))
                made = ir.Binary("max", x, ir.sub(ir.ZERO, x))
                _require_short(made, "abs(…)", MOST_NODES, e.span)
                return made
            case tree.CallExpr(function=tree.Name(id="clamp"), args=(x, low, high), kwargs=()):
                above = tree.CallExpr(tree.Name("max", e.span), (x, low), (), e.span)
                return go(tree.CallExpr(tree.Name("min", e.span), (above, high), (), e.span))
            case _:
                raise Invalid(NOT_AN_INDEX(e.span, what=f"`{e.span.text}`"))

    return go(e)


def _require_short(e: ir.Expr, name: str, most: int, at: Span) -> None:
    """Raise Invalid if an index or a size is longer, written out, than proofs about it can be."""
    if (count := ir.extent_of(e).nodes) > most:
        found = f"{count} operands and operations long, and may be {most} long"
        raise Invalid(LONG_INDEX(at, name=name, found=found))


def _least(e: ir.Expr) -> int | None:
    """The smallest value of an expression, as far as the ranges of open dimensions determine it."""
    if (n := ir.constant(e)) is not None or any(d.high is None for d in ir.dims_in(e)):
        return n
    return bounds(e, {})[0]


SMALLER = "let the open dimensions end at smaller sizes"


def extent(e: tree.Expr, env: Environment, what: str) -> ir.Expr:
    """A size: an index expression over the environment, nonnegative and within 64 bits. Raises Invalid otherwise."""
    value = index_expr(e, env.sizes)
    n = ir.constant(value)
    _require_short(value, what.strip("`"), MOST_OF_SIZE, e.span)
    if n is None and not env.unbound and too_far(value, {}) is not None:
        raise Invalid(TOO_FAR(e.span, text=e.span.text, repair=SMALLER))
    if n is None:
        value = simplify(value, {})
    if n is None and not env.unbound:
        n = bounds(value, {})[1]  # of an open dimension, the largest size counts
        at = below(value, 0, env.open)
        if at is not None:
            sizes = ", ".join(f"{name} = {v}" for name, v in at)
            raise Invalid(NEGATIVE_SIZE(e.span, what=what, sizes=sizes or "some sizes"))
    if n is not None and n < 0:
        repair = f"check the sizes: {facts}" if (facts := env.facts()) else "a size is 0 or more"
        raise Invalid(NEGATIVE(e.span, what=what, value=n, repair=repair))
    if n is not None and n > LARGEST:
        raise Invalid(TOO_LARGE(e.span, what=what, value=n))
    return value


def size_condition(e: tree.Expr, env: Environment) -> ir.Expr:
    """A condition on sizes. Raises Invalid."""
    match e:
        case tree.CompareExpr(ops=ops, operands=operands):
            values = [index_expr(x, env.sizes) for x in operands]
            found = ir.conjunction(tuple(map(ir.Compare, ops, values, values[1:])))
            assert found is not None  # the parser returns at least two operands
            return found
        case tree.LogicExpr(op=op, lhs=a, rhs=b):
            return ir.Logic(op, size_condition(a, env), size_condition(b, env))
        case tree.NotExpr(operand=a):
            return negate(size_condition(a, env))
        case _:
            raise Invalid(NOT_A_CONDITION(e.span, text=e.span.text))


def restrict(defn: tree.ComputeDef, env: Environment, occurring: Sequence[tree.Expr]) -> None:
    """Let the open sizes meet the conditions `occurring`, and those of the compute that are on several of them, as far as
    their names are known and integer sets can read them. Where no sizes do, nothing is said. Raises Invalid."""
    told: list[ir.Expr] = []
    for e in defn.conditions:
        names = {str(n.id) for part in sizes_in(e) for n in names_in(part)}
        if names <= env.sizes.keys():
            cond = size_condition(e, env)
            if len(ir.dims_in(cond)) > (e not in occurring) and affine_only((cond,)) == (cond,):
                if not env.unbound and too_far(cond, {}) is not None:  # calls would be compared with another number
                    raise Invalid(TOO_FAR(e.span, text=e.span.text, repair=SMALLER))
                told.append(cond)
    if env.unbound or not told or broken_by(negate(reduce(partial(ir.Logic, "and"), told)), env.open) is None:
        return
    dims = limited(env.open, tuple(told))
    env.open = dims
    named: dict[str, ir.Expr] = {d.name: d for d in dims}
    env.sizes = {n: ir.substitute(e, named) for n, e in env.sizes.items()}


def require_conditions(defn: tree.ComputeDef, env: Environment, at: Span | None = None) -> None:
    """Add what `where` says of the sizes to the environment. Raises Invalid if it does not hold for all of them; without
    bindings, if it holds for none. `at` is the call that gives the sizes, if one does.
    """
    for e in defn.conditions:
        cond = size_condition(e, env)
        known = simplify(cond, {})
        broken = None
        if known == FALSE:
            broken = ()
        elif known != TRUE and not env.unbound:
            broken = broken_by(cond, env.open)
        if broken == () and known != FALSE:
            raise Invalid(NOT_LINEAR(at or e.span, text=" ".join(e.span.text.split())))
        if broken is not None:
            names = {n.id for part in sizes_in(e) for n in names_in(part)}
            at_sizes = {n: ir.index(v) for n, v in broken}
            said = {n: v for n, v in env.sizes.items() if n in names} | at_sizes
            values = ", ".join(f"{n} = {format_expr(v)}" for n, v in said.items())
            raise Invalid(
                REFUSED_SIZES(at or e.span, compute=defn.name, text=" ".join(e.span.text.split()), values=values)
            )
        if known != TRUE:
            env.conditions = (*env.conditions, cond)


def sizes_in(e: tree.Expr) -> Iterator[tree.Expr]:
    """The sizes that a condition compares."""
    match e:
        case tree.CompareExpr(operands=operands):
            yield from operands
        case tree.LogicExpr(lhs=a, rhs=b):
            yield from (*sizes_in(a), *sizes_in(b))
        case tree.NotExpr(operand=a):
            yield from sizes_in(a)
        case _:
            pass


def wrong_error(value: Bound, span: Span | None) -> Diagnostic | None:
    """The finding about what a task says of the error of functions; None if it is one."""
    if isinstance(value, (int, float)) and 0 < value < 1:
        return None
    given = repr(value) if isinstance(value, (int, float, str)) else "a range"
    return NOT_A_KIND(span, name=APPROX, wanted="a relative error between 0 and 1", value=given)


def bind(
    defn: tree.ComputeDef, bindings: Mapping[str, Bound], *, open_dims: bool, occurring: tuple[tree.Expr, ...] = ()
) -> tuple[Environment, list[Diagnostic]]:
    """The environment, and the findings about the bindings. `occurring` are conditions on the sizes beside the compute's.

    With `open_dims`, dimensions and int attributes without a value become variables, and dtype attributes f32: this is how
    a compute is checked before it is bound.
    """
    env = Environment(unbound=open_dims)
    defn = replace(defn, conditions=(*occurring, *defn.conditions)) if occurring else defn
    found: list[Diagnostic] = []
    dims = dimensions(defn)
    computed = {name for name, _ in defn.where}
    attributes = {a.name for a in defn.attributes}
    for name in bindings:
        if name in computed:
            found.append(COMPUTED_BINDING(defn.span, compute=defn.name, name=name))
        elif name not in dims and name not in attributes and name != APPROX:
            notes = near(name, [*dims, *attributes], "leave it out")
            found.append(UNKNOWN_BINDING(None, compute=defn.name, name=name, notes=notes))
    still_open: list[ir.Dim] = []
    same = _same_sizes(dims, bindings)
    multiples = _multiples(defn, bindings, same)
    for name, use in dims.items():
        if name in same:
            continue
        try:
            value = bindings.get(name)
            if value is None and not open_dims:
                raise Invalid(MISSING_BINDING(use.span, name=name, compute=defn.name, example=128))
            size = ir.Dim(str(name)) if value is None else _dimension(name, value, use)
            env.sizes[name] = size
            if isinstance(size, ir.Dim):
                if (count := _counted(size, multiples.get(name, 1), {*dims, *computed, *attributes})) is not None:
                    size = count
                    env.sizes[name] = ir.mul(size, ir.index(multiples[name]))
                still_open.append(size)
        except Invalid as e:
            _note(e, found)
    env.sizes |= {name: env.sizes[of] for name, of in same.items() if of in env.sizes}
    for a in defn.attributes:
        try:
            attribute(a, bindings.get(a.name), env, defn, open_dims, still_open)
        except Invalid as e:
            _note(e, found)
    env.open = tuple(still_open)
    if not found:
        try:
            restrict(defn, env, occurring)  # what the sizes behind `where` are computed from
        except Invalid as problem:
            _note(problem, found)
    if not found:
        for name, e in defn.where:
            try:
                if name in env.sizes or name in env.floats or name in env.dtypes:
                    raise Invalid(TAKEN(e.span, name=name, what="a dimension or an attribute"))
                env.sizes[name] = extent(e, env, f"`{name}`")
            except Invalid as problem:
                _note(problem, found)
                break
    if not found:
        try:
            restrict(defn, env, occurring)
            require_conditions(defn, env)
        except Invalid as problem:
            _note(problem, found)
    return env, found


def _same_sizes(dims: Container[str], bindings: Mapping[str, Bound]) -> dict[str, str]:
    """The dimensions that have the size of another one, which has a size or a range: `N=M`."""
    return {
        name: of
        for name, of in bindings.items()
        if name in dims and isinstance(of, str) and of in dims and not isinstance(bindings.get(of, ""), str)
    }


def _multiples(defn: tree.ComputeDef, bindings: Mapping[str, Bound], same: Mapping[str, str]) -> dict[str, int]:
    """The number of which an open size is a multiple, as `where` says: `D % 2 == 0`, or `CI % groups == 0` with the value of
    an attribute. What is said of a dimension is so of one that has the `same` size."""
    found: dict[str, int] = {}
    defaults = {str(a.name): a.default.value for a in defn.attributes if isinstance(a.default, tree.Number)}
    numbers: Mapping[str, Bound] = {**defaults, **bindings}
    waiting = [*defn.conditions]
    while waiting:
        match waiting.pop():
            case tree.LogicExpr(op="and", lhs=a, rhs=b):
                waiting += (a, b)
            case tree.CompareExpr(
                ops=("==",),
                operands=(tree.BinaryExpr(op="%", lhs=tree.Name(id=said), rhs=by), tree.Number(value=0)),
            ) if isinstance(bindings.get(name := same.get(said, said)), OpenRange):
                named = numbers.get(by.id) if isinstance(by, tree.Name) else None
                n = by.value if isinstance(by, tree.Number) else named
                if isinstance(n, int) and not isinstance(n, bool) and n > 0:
                    found[name] = lcm(found.get(name, 1), n)
            case _:
                pass
    return found


def _counted(d: ir.Dim, by: int, taken: Container[str]) -> ir.Dim | None:
    """The open number of times that `by` is in an open size, of which it is a multiple; None where that says nothing."""
    if by == 1 or d.high is None or (low := -(-d.low // by)) >= (high := d.high // by):
        return None
    name = f"{d.name}_by_{by}"
    while name in taken:
        name += "_"
    kept = [k for k, n in enumerate(d.at) if n % by == 0]
    return ir.Dim(
        name, low, high, tuple(d.at[k] // by for k in kept), tuple(d.weights[k] for k in kept) if d.weights else ()
    )


def _note(e: Invalid, found: list[Diagnostic]) -> None:
    found.extend(e.diagnostics)


def _dimension(name: str, value: Bound, use: tree.Name) -> ir.Expr:
    if isinstance(value, OpenRange):
        if value.high > LARGEST:
            raise Invalid(TOO_LARGE(use.span, what=f"`{name}`", value=value.high))
        return (
            ir.Dim(str(name), value.low, value.high, value.at, value.weights)
            if value.low < value.high
            else ir.index(value.low)
        )
    if not isinstance(value, int) or isinstance(value, bool):
        raise Invalid(NOT_A_KIND(use.span, name=name, wanted="a dimension (an integer)", value=repr(value)))
    if value < 0:
        raise Invalid(NEGATIVE(use.span, what=f"`{name}`", value=value, repair=f"check the sizes: {name} = {value}"))
    if value > LARGEST:
        raise Invalid(TOO_LARGE(use.span, what=f"`{name}`", value=value))
    return ir.index(value)


ATTRIBUTE_TYPES = ("int", "float", "dtype")


def attribute_kind(a: tree.Param) -> str:
    """The kind of value that an attribute takes, "int", "float" or "dtype": the declared one, else that of its default."""
    is_float = isinstance(a.default, tree.Number) and isinstance(a.default.value, float)
    return str(a.type) if a.type else "float" if is_float else "int"


def attribute(
    a: tree.Param, value: Bound | None, env: Environment, defn: tree.ComputeDef, open_dims: bool, opened: list[ir.Dim]
) -> None:
    """Add the value of an attribute to `env`; if it has none and may be open, add a variable to `opened`. Raises Invalid."""
    if a.name in env:
        raise Invalid(TAKEN(a.span, name=a.name, what="a dimension or an attribute"))
    kind = attribute_kind(a)
    missing = value is None and a.default is None
    if missing and not open_dims:
        example = {"dtype": "f32", "float": "1.0"}.get(kind, "1")
        raise Invalid(MISSING_BINDING(a.span, name=a.name, compute=defn.name, example=example))
    match kind:
        case "dtype":
            env.dtypes[a.name] = F32 if missing else _dtype(a, value, env)
        case "int":
            if missing:
                opened.append(ir.Dim(str(a.name)))
                env.sizes[a.name] = opened[-1]
            elif value is None:
                assert a.default is not None
                env.sizes[a.name] = index_expr(a.default, env.sizes)
            elif isinstance(value, int) and not isinstance(value, bool):
                if abs(value) > LARGEST:
                    raise Invalid(TOO_LARGE(a.span, what=f"`{a.name}`", value=value))
                env.sizes[a.name] = ir.index(value)
            else:
                raise Invalid(NOT_A_KIND(a.span, name=a.name, wanted="an integer", value=_text(value)))
        case "float":
            env.floats[a.name] = 1.0 if missing else _float(a, value)
        case _:
            raise Invalid(NO_ATTRIBUTE_TYPE(a.span, name=kind, notes=spelling_hints(kind, ATTRIBUTE_TYPES)))


def _text(value: Bound) -> str:
    return f"{value.low}..{value.high}" if isinstance(value, OpenRange) else repr(value)


def _dtype(a: tree.Param, value: Bound | None, env: Environment) -> DType:
    known = {**DTYPES, **env.dtypes}
    if value is None:
        if not isinstance(a.default, tree.Name):
            raise Invalid(NOT_A_KIND(a.span, name=a.name, wanted="a type", value=f"`{a.span.text}`"))
        if a.default.id not in known:
            raise Invalid(
                UNKNOWN_TYPE(
                    a.default.span,
                    name=a.default.id,
                    notes=near(a.default.id, known, f"the types are {', '.join(DTYPES)}"),
                )
            )
        return known[a.default.id]
    if not isinstance(value, str) or value not in DTYPES:
        notes = near(str(value), DTYPES)
        raise Invalid(NOT_A_KIND(a.span, name=a.name, wanted="a type", value=_text(value), notes=notes))
    return DTYPES[value]


def _float(a: tree.Param, value: Bound | None) -> float:
    given: object = _text(value) if isinstance(value, OpenRange) else value
    if value is None:
        match a.default:
            case tree.Number(value=v):
                given = v
            case tree.Negate(operand=tree.Number(value=v)):
                given = -v
            case _:
                given = a.default.span.text if a.default is not None else None
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        raise Invalid(NOT_A_KIND(a.span, name=a.name, wanted="a number", value=repr(given)))
    return float(given)

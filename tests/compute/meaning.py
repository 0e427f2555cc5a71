"""An evaluator of computes written from the language's pages alone, one element after another.

It walks the tree that the parser makes and shares no code with the checker, with elaboration, or with the reference; what
they misread together would otherwise never show. Floats are Python's, integers wrap around at each operation. An access
outside its array is an AssertionError: that there is none is what the checker has proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from tensorc_dsl.syntax import tree
from tests.compute.scalars import (
    ARG,
    BITS,
    FLOATS,
    INDEX,
    MATHS,
    TYPES,
    WIDTHS,
    Scalar,
    Tensor,
    ends,
    fit,
    literal,
    operate,
    tensor,
)


@dataclass
class Meaning:
    """One compute for given sizes and inputs. `scope` are the indices where an expression stands."""

    defn: tree.ComputeDef
    computes: Mapping[str, tree.ComputeDef]
    reducers: Mapping[str, tree.ReducerDef]
    sizes: dict[str, int]
    floats: dict[str, float]
    types: dict[str, str]
    tensors: dict[str, Tensor]
    operands: dict[str, tuple[Scalar, str]] = field(default_factory=dict[str, tuple[Scalar, str]])

    def outputs(self) -> dict[str, Tensor]:
        for name, e in self.defn.where:
            self.sizes[name] = self.index(e, {})
        for s in self.defn.stages:
            match s:
                case tree.Stage(indices=(), value=tree.CallExpr(function=tree.Name(id=f)) as call) if (
                    f in self.computes
                ):
                    self.tensors[s.name] = self.called(call)
                case tree.Stage(targets=targets, value=tree.Reduce() as reduce) if targets:
                    self.several(s, reduce)
                case _:
                    self.stage(s)
        return {p.name: self.tensors[p.name] for p in self.defn.outputs}

    def stage(self, s: tree.Stage) -> None:
        output = next((p for p in self.defn.outputs if p.name == s.name), None)
        ranges: dict[str, int] = {}
        for n, spec in enumerate(s.indices):
            if spec.extent is not None:
                ranges[spec.name] = self.index(spec.extent, {})
            elif output is not None:
                ranges[spec.name] = self.index(output.type.shape[n], {})
            else:
                ranges[spec.name] = self.range(spec.name, s.value)
        want = None if output is None else self.named_type(output.type.dtype)
        t = want or self.type(s.value, s.name)
        assert t is not None
        made = Tensor(t, tuple(ranges.values()))
        first = s.value.index.name if isinstance(s.value, tree.Scan) else None
        names = sorted(ranges, key=lambda n: n != first)  # a scan goes step by step
        if isinstance(s.value, tree.Scan):
            self.tensors[s.name] = made
        for values in product(*(range(ranges[n]) for n in names)):
            scope = dict(zip(names, values, strict=True))
            e: tree.Expr = s.value
            if isinstance(e, tree.Scan):
                e = e.init if scope[e.index.name] == 0 else e.step
            made.elements[tuple(scope[n] for n in ranges)] = fit(self.value(e, scope, t), t)
        self.tensors[s.name] = made

    def several(self, s: tree.Stage, reduce: tree.Reduce) -> None:
        """The values of a reducer of several. A literal has the type of what it is written to, else that of the others."""
        outputs = {p.name: p.type for p in self.defn.outputs}
        shown = [self.type(e) for e in tree.items_of(reduce.body)]
        declared = [self.named_type(outputs[n].dtype) if n in outputs else None for n in s.targets]
        other = next(t for t in (*shown, *declared) if t and t != INDEX)
        types = [d or t or other for t, d in zip(shown, declared, strict=True)]
        extents: list[int] = []
        for n, spec in enumerate(s.indices):
            shape = next((outputs[name].shape for name in s.targets if name in outputs), None)
            size = spec.extent or (shape[n] if shape else None)
            extents.append(self.range(spec.name, s.value) if size is None else self.index(size, {}))
        made = {n: Tensor(t, tuple(extents)) for n, t in zip(s.targets, types, strict=True)}
        for at in product(*map(range, extents)):
            scope: dict[str, int] = dict(zip((i.name for i in s.indices), at, strict=True))
            for name, value, t in zip(s.targets, self.values(reduce, scope, types), types, strict=True):
                made[name].elements[at] = fit(value, t)
        self.tensors |= {n: tensor for n, tensor in made.items() if n != "_"}

    # --- ranges and types --------------------------------------------------------------------------------------------

    def range(self, name: str, e: tree.Expr) -> int:
        """The range of an index: the dimension of which it is the subscript, first of all outside branches."""
        found = sorted(self.uses(name, e, 0), key=lambda use: use[0])
        assert found, f"no range for {name}"
        return found[0][1]

    def uses(self, name: str, e: tree.Expr, branch: int) -> Iterator[tuple[int, int]]:
        if isinstance(e, tree.IndexExpr):
            shape = None
            if isinstance(e.base, tree.Name) and e.base.id in self.tensors:
                shape = self.tensors[e.base.id].shape
            elif isinstance(e.base, tree.CallExpr):
                shape = self.called(e.base).shape
            for i, n in zip(e.indices, shape or (), strict=False):
                if isinstance(i, tree.Name) and i.id == name:
                    yield branch, n
        if isinstance(e, tree.Conditional):
            yield from self.uses(name, e.cond, branch)
            yield from self.uses(name, e.then, branch + 1)
            yield from self.uses(name, e.other, branch + 1)
            return
        for part in parts(e):
            yield from self.uses(name, part, branch)

    def named_type(self, name: str) -> str:
        return self.types.get(name, name)

    def type(self, e: tree.Expr, own: str = "") -> str | None:
        """The type that names in an expression show; None where only literals stand."""
        match e:
            case tree.Name(id=n):
                if n in self.operands:
                    return self.operands[n][1]
                if n == "inf" or n in self.floats:
                    return None
                return self.tensors[n].type if n in self.tensors else INDEX
            case tree.Bool() | tree.CompareExpr() | tree.LogicExpr() | tree.NotExpr():
                return "bool"
            case tree.IndexExpr(base=tree.Name(id=n)):
                return None if n == own and n not in self.tensors else self.tensors[n].type
            case tree.IndexExpr(base=tree.CallExpr() as call):
                return self.called(call).type
            case tree.Conditional(then=a, other=b):
                return self.type(a, own) or self.type(b, own)
            case tree.CallExpr(function=tree.Name(id=f), args=args):
                if self.named_type(f) in TYPES:
                    return self.named_type(f)
                if f == "clamp":
                    t = self.type(args[0], own)
                    return t if t in FLOATS else INDEX
                if f == "saturate":
                    assert isinstance(args[0], tree.Name)
                    return self.named_type(args[0].id)
                return next((t for a in (args[1:] if f == "select" else args) if (t := self.type(a, own))), None)
            case tree.Reduce(reducer=r, body=body):
                return "i64" if r in ARG else self.type(body, own)
            case tree.Scan(init=a, step=b):
                return self.type(a, own) or self.type(b, own)
            case tree.BinaryExpr() | tree.Negate():
                return next((t for a in parts(e) if (t := self.type(a, own))), None)
            case _:
                return None

    # --- values ------------------------------------------------------------------------------------------------------

    def index(self, e: tree.Expr, scope: Mapping[str, int]) -> int:
        value = self.value(e, scope, INDEX)
        assert isinstance(value, int)
        return value

    def value(self, e: tree.Expr, scope: Mapping[str, int], want: str | None) -> Any:
        """What an expression is at a point; `want` is what a literal becomes."""
        match e:
            case tree.Number(value=v):
                return literal(v, want) if want else v
            case tree.Bool(value=v):
                return v
            case tree.Name(id=n):
                if n in self.operands:
                    return self.operands[n][0]
                if n in scope or n in self.sizes:
                    return scope.get(n, self.sizes.get(n))
                return np.inf if n == "inf" else self.floats[n] if n in self.floats else self.tensors[n][()]
            case tree.Negate(operand=a):
                t = self.type(a) or want or ""
                return fit(-self.value(a, scope, t), t)
            case tree.BinaryExpr(op=op, lhs=a, rhs=b):
                return self.pair(op, a, b, scope, want)
            case tree.CompareExpr(ops=ops, operands=operands):
                return all(self.compare(op, a, b, scope) for op, a, b in zip(ops, operands, operands[1:], strict=False))
            case tree.LogicExpr(op=op, lhs=a, rhs=b):
                if op == "and":
                    return self.value(a, scope, "bool") and self.value(b, scope, "bool")
                return self.value(a, scope, "bool") or self.value(b, scope, "bool")
            case tree.NotExpr(operand=a):
                return not self.value(a, scope, "bool")
            case tree.Conditional(cond=c, then=a, other=b):
                t = self.type(a) or self.type(b) or want
                return self.value(a if self.value(c, scope, "bool") else b, scope, t)
            case tree.IndexExpr(base=base, indices=indices):
                of = self.called(base) if isinstance(base, tree.CallExpr) else self.tensors[base.id]  # type: ignore[union-attr]
                return of[tuple(self.index(i, scope) for i in indices)]
            case tree.CallExpr():
                return self.function(e, scope, want)
            case tree.Reduce():
                return self.reduce(e, scope, want)
            case _:
                raise AssertionError(f"`{e.span.text}` is no value")

    def pair(self, op: str, a: tree.Expr, b: tree.Expr, scope: Mapping[str, int], want: str | None) -> Scalar:
        kinds = (self.type(a), self.type(b))
        t = (
            INDEX if INDEX in kinds else kinds[0] or kinds[1] or want or ""
        )  # what is read counts as a whole number beside
        return operate(op, self.value(a, scope, t), self.value(b, scope, t), t)

    def compare(self, op: str, a: tree.Expr, b: tree.Expr, scope: Mapping[str, int]) -> bool:
        t = self.type(a) or self.type(b)
        x, y = self.value(a, scope, t), self.value(b, scope, t)
        return {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}[op]

    def function(self, e: tree.CallExpr, scope: Mapping[str, int], want: str | None) -> Scalar:
        assert isinstance(e.function, tree.Name)
        f, args = e.function.id, e.args
        to = self.named_type(f)
        if to in TYPES:
            x = self.value(args[0], scope, to)
            if isinstance(x, float) and to in WIDTHS:  # the nearest there is, without its fraction
                low, high = ends(to)
                return 0 if x != x else int(min(max(x, low), high))
            return fit(x, to)
        if f == "select":
            return self.value(tree.Conditional(args[0], args[1], args[2], e.span), scope, want)
        if f == "clamp":
            t = self.type(e)
            x, low, high = (self.value(a, scope, t) for a in args)
            return operate("min", operate("max", x, low, INDEX), high, INDEX)
        if f == "saturate":
            x, (low, high) = self.value(args[1], scope, self.type(args[1]) or "i64"), ends(str(self.type(e)))
            return 0 if x != x else int(min(max(x, low), high))
        if f in ("min", "max"):
            return self.pair(f, args[0], args[1], scope, want)
        t = next((t for a in args if (t := self.type(a))), want) or ""
        values = [self.value(a, scope, t) for a in args]
        if f in BITS:
            return fit(BITS[f](WIDTHS[t], *values), t)
        if t in WIDTHS or t == INDEX:
            return fit(MATHS[f](*values), t)
        return float(MATHS[f](*map(np.float64, values)))

    # --- reductions --------------------------------------------------------------------------------------------------

    def reduce(self, e: tree.Reduce, scope: Mapping[str, int], want: str | None) -> Any:
        ranges = {
            spec.name: self.range(spec.name, e.body) if spec.extent is None else self.index(spec.extent, {})
            for spec in e.indices
        }
        t = self.type(e.body) or ("" if e.reducer in ARG else want) or ""
        values = (
            self.value(e.body, {**scope, **dict(zip(ranges, at, strict=True))}, t)
            for at in product(*(range(n) for n in ranges.values()))
        )
        match e.reducer:
            case "any":
                return any(list(values))
            case "all":
                return all(list(values))
            case "argmin" | "argmax":
                found = list(values)
                nans = [n for n, v in enumerate(found) if v != v]
                return nans[0] if nans else found.index(min(found) if e.reducer == "argmin" else max(found))
            case "sum" | "prod" | "min" | "max" as r:
                low, high = ends(t)
                made: Any = {"sum": fit(0, t), "prod": fit(1, t), "min": high, "max": low}[r]
                for v in values:
                    made = operate({"sum": "+", "prod": "*"}.get(r, r), made, v, t)
                return made
            case r:
                defn = self.reducers[r]
                made = self.value(defn.identity, {}, t)
                for v in values:
                    inner = Meaning(
                        self.defn,
                        {},
                        {},
                        {},
                        {},
                        {},
                        {},
                        dict(zip((*defn.before, *defn.following), ((made, t), (v, t)), strict=True)),
                    )
                    made = inner.value(defn.combine, {}, t)
                return made

    def values(self, e: tree.Reduce, scope: Mapping[str, int], types: Sequence[str]) -> list[Any]:
        """What a reducer of several makes, one step after the other; each step reads what was before it."""
        defn = self.reducers[e.reducer]
        ranges = [self.range(i.name, e.body) if i.extent is None else self.index(i.extent, {}) for i in e.indices]
        made = [self.value(x, {}, t) for x, t in zip(defn.starts, types, strict=True)]
        for at in product(*map(range, ranges)):
            inner: dict[str, int] = {**scope, **dict(zip((i.name for i in e.indices), at, strict=True))}
            new = [self.value(x, inner, t) for x, t in zip(tree.items_of(e.body), types, strict=True)]
            operands = zip(
                (*defn.before, *defn.following), zip((*made, *new), (*types, *types), strict=True), strict=True
            )
            step = Meaning(self.defn, {}, {}, {}, {}, {}, {}, dict(operands))
            made = [step.value(x, {}, t) for x, t in zip(defn.values, types, strict=True)]
        return made

    # --- calls -------------------------------------------------------------------------------------------------------

    def called(self, e: tree.CallExpr) -> Tensor:
        """The one output of another compute, given tensors."""
        assert isinstance(e.function, tree.Name)
        name = e.span.text
        if name in self.tensors:
            return self.tensors[name]
        callee = self.computes[e.function.id]
        args = [self.called(a) if isinstance(a, tree.CallExpr) else self.tensors[a.id] for a in e.args]  # type: ignore[union-attr]
        sizes: dict[str, int] = {}
        types: dict[str, str] = {}
        for p, a in zip(callee.inputs, args, strict=True):
            types[p.type.dtype] = a.type
            for dim, n in zip(p.type.shape, a.shape, strict=True):
                if isinstance(dim, tree.Name):
                    sizes.setdefault(dim.id, n)
        given: dict[str, Any] = {}
        kinds: dict[str, str] = {a.name: kind(a) for a in callee.attributes}
        for key, value in e.kwargs:
            match kinds.get(key, "int"), value:
                case "dtype", tree.Name(id=t):
                    given[key] = self.named_type(t)
                case "float", _:
                    given[key] = float(self.value(value, {}, "f64"))
                case _:
                    given[key] = self.index(value, {})
        given = {**{a: t for a, t in types.items() if kinds.get(a) == "dtype"}, **given}
        inner = meaning(callee, self.computes, self.reducers, {**sizes, **given}, {})
        inner.tensors = {p.name: a for p, a in zip(callee.inputs, args, strict=True)}
        (out,) = inner.outputs().values()
        self.tensors[name] = out
        return out


def kind(a: tree.Param) -> str:
    """What an attribute is: what is written, else what its default is."""
    if a.type is not None:
        return str(a.type)
    return "float" if isinstance(a.default, tree.Number) and isinstance(a.default.value, float) else "int"


def parts(e: tree.Expr) -> tuple[tree.Expr, ...]:
    """The expressions directly inside another."""
    match e:
        case tree.BinaryExpr(lhs=a, rhs=b) | tree.LogicExpr(lhs=a, rhs=b):
            return a, b
        case tree.Negate(operand=a) | tree.NotExpr(operand=a) | tree.Reduce(body=a):
            return (a,)
        case tree.CompareExpr(operands=found) | tree.IndexExpr(indices=found) | tree.CallExpr(args=found):
            return found
        case tree.Conditional(cond=c, then=a, other=b):
            return c, a, b
        case tree.Scan(init=a, step=b):
            return a, b
        case tree.TupleExpr(items=found):
            return found
        case _:
            return ()


def meaning(
    defn: tree.ComputeDef,
    computes: Mapping[str, tree.ComputeDef],
    reducers: Mapping[str, tree.ReducerDef],
    bindings: Mapping[str, Any],
    inputs: Mapping[str, np.ndarray[Any, Any]],
) -> Meaning:
    """A compute whose dimensions and attributes have values; `inputs` hold floats of 64 bits, integers or bools."""
    attributes: dict[str, tree.Param] = {a.name: a for a in defn.attributes}
    sizes = {n: v for n, v in bindings.items() if n not in attributes or kind(attributes[n]) == "int"}
    made = Meaning(defn, computes, reducers, sizes, {}, {}, {})
    for a in defn.attributes:
        match kind(a):
            case "dtype":
                default = a.default.id if isinstance(a.default, tree.Name) else ""
                made.types[a.name] = made.named_type(bindings.get(a.name, default))
            case "float":
                made.floats[a.name] = (
                    float(bindings[a.name]) if a.name in bindings else made.value(a.default, {}, "f64")  # type: ignore[arg-type]
                )
            case _ if a.name not in made.sizes:
                assert a.default is not None
                made.sizes[a.name] = made.index(a.default, {})
            case _:
                pass
    made.tensors = {p.name: tensor(made.named_type(p.type.dtype), inputs[p.name]) for p in defn.inputs if inputs}
    return made

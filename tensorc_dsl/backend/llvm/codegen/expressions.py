"""Generates LLVM text for flat expressions: scalars, or several lanes of a vectorized loop at once.

Inside a vectorized loop code is written for one *piece* at a time: a few adjacent lanes, at most one native vector. An
expression becomes a scalar if it is the same in all lanes, and a vector otherwise. A condition that differs between
lanes becomes a mask. A lane that is masked off accesses no memory; no load runs past the end of an array."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import assert_never

from tensorc_dsl.backend.llvm.codegen.arithmetic import (
    NEEDS,
    any_lane,
    binary,
    bits,
    compare,
    convert,
    extreme,
    extremes,
    invert,
    logic,
    saturating,
    select,
)
from tensorc_dsl.backend.llvm.codegen.function import (
    INVARIANT,
    Function,
    Piece,
    Place,
    Scalar,
    SymbolTable,
    Value,
    constant_value,
    in_memory,
    mangled,
    vector_type,
)
from tensorc_dsl.backend.llvm.codegen.lane_loads import (
    can_mask,
    counted,
    distances,
    gathered,
    is_counted,
    moving,
    period,
    pick,
    pick_near,
    picked,
    vectors_of,
)
from tensorc_dsl.backend.llvm.codegen.maths import call
from tensorc_dsl.ir.contraction import fused, parts_of_exponent, rounded_function
from tensorc_dsl.ir.dtypes import BOOL, F32, INDEX, U8, DType
from tensorc_dsl.ir.expr import (
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    add,
    children,
    dtype_of,
    free_vars,
    index,
    loads,
    substitute,
)
from tensorc_dsl.proof.sets.linear_forms import Context, Linear, linear, to_expr
from tensorc_dsl.proof.sets.simplify import prove

# Subscripts and addresses as LLVM text: linear forms of indices that all lanes share, and the distance from lane to lane.


class Subscripts(ABC):
    """Writes subscripts into one function."""

    def __init__(self, f: Function, scope: SymbolTable) -> None:
        self.f = f
        self.scope = scope
        self._forms: dict[Expr, Linear] = {}

    @abstractmethod
    def value(self, e: Expr, at: Piece | None) -> Value:
        """The value of an expression: a scalar if all lanes agree, else a vector of the piece's width."""

    def form(self, e: Expr) -> Linear:
        """The linear form of a subscript, without knowledge of ranges."""
        if e not in self._forms:
            self._forms[e] = linear(e, Context({}))
        return self._forms[e]

    def known(self) -> dict[str, tuple[int | None, int | None]]:
        """The variables whose values are constants here, which are those of unrolled loops."""
        return {v: (x, x) for v, x in self.scope.vars.items() if isinstance(x, int)}

    def index(self, e: Expr) -> Scalar:
        """The value of an index expression that is the same in all lanes."""
        form = self.form(e)
        terms, constant = self.split(form, None)
        return self._sum(terms, constant)

    def split(self, form: Linear, piece: Piece | None) -> tuple[list[tuple[str, int]], int]:
        """Named terms with factors, and the constant; the lane variable has its value in lane 0 of the piece."""
        terms: list[tuple[str, int]] = []
        rows: dict[str, int] = {}
        constant = form.constant
        for atom, c in form.terms.items():
            if (row := self.row(atom)) is not None:
                rows[row[0]] = rows.get(row[0], 0) + c * row[1]
                continue
            value = self.scope.vars[atom] if isinstance(atom, str) else self._atom(atom)
            if isinstance(value, int):
                constant += c * value
            else:
                terms.append((value, c))
            if piece is not None and atom == piece.var:
                constant += c * piece.offset
        return [*terms, *((name, c) for name, c in sorted(rows.items()) if c)], constant

    def row(self, e: str | Expr) -> tuple[str, int] | None:
        """An open size, or a product of one with the number of a row that is written out, as a name and a factor; None for
        others. Whatever row an element is read from, `(y + 1) * W` with y = 2 and `y * W` with y = 3 are one address then.
        """
        factor = 1
        if isinstance(e, Binary) and e.op == "*" and isinstance(e.lhs, Var) and isinstance(e.rhs, Dim):
            number = self.scope.vars[e.lhs.name]
            if not isinstance(number, int):
                return None
            factor, e = number, e.rhs
        return (str(self.scope.vars[e.name]), factor) if isinstance(e, Dim) else None

    def _atom(self, e: Expr) -> Scalar:
        if isinstance(e, Binary) and e.op in ("/", "%", "*", "min", "max", "xor"):
            a, b = self.index(e.lhs), self.index(e.rhs)
            if isinstance(a, int) and isinstance(b, int):
                folded = linear(Binary(e.op, Const(a, INDEX), Const(b, INDEX)), Context({}))
                if not folded.terms:
                    return folded.constant
            return binary(self.f, e.op, Value(INDEX, str(a)), Value(INDEX, str(b))).ref
        return self.value(e, None).ref

    def _sum(self, terms: list[tuple[str, int]], constant: int) -> Scalar:
        total = self._scaled_sum(terms)
        if total is None:
            return constant
        return self.f.cached(f"add nsw i64 {total}, {constant}") if constant else total

    def _scaled_sum(self, terms: list[tuple[str, int]]) -> str | None:
        total: str | None = None
        for name, c in terms:
            part = name if c == 1 else self.f.cached(f"mul nsw i64 {name}, {c}")
            total = part if total is None else self.f.cached(f"add nsw i64 {total}, {part}")
        return total

    def stride(self, e: Expr, piece: Piece) -> int | None:
        """The change of `e` from lane to lane; None if it is not constant."""
        form = self.form(e)
        if any(not isinstance(a, str) and piece.var in free_vars(a) for a in form.terms):
            return None
        return form.terms.get(piece.var, 0)

    def pointer(self, buffer: str, e: Expr, piece: Piece | None) -> str:
        """The address of an element; in a piece, that of its first lane.

        The constant is added last, by an instruction of its own, so that equal bases are shared and LLVM sees the distances.
        """
        base, dtype = self.scope.buffers[buffer]
        terms, constant = self.split(self.form(e), piece)
        kind = in_memory(dtype)
        total = self._scaled_sum(terms)
        if total is not None:
            base = self.f.cached(f"getelementptr {kind}, ptr {base}, i64 {total}")
        return self.f.cached(f"getelementptr {kind}, ptr {base}, i64 {constant}") if constant else base

    def target(self, buffer: str, e: Expr, piece: Piece | None) -> str:
        """The address of an element that is stored; in a piece, that of its first lane."""
        return self.pointer(buffer, e, piece)


# Expressions.


class Expressions(Subscripts):
    """Writes expressions into one function."""

    def __init__(self, f: Function, scope: SymbolTable, *, picks: bool = False) -> None:
        super().__init__(f, scope)
        self.picks = picks
        """Whether lanes near each other are picked from vectors, which read what lies between them as well."""
        self.made: dict[Place, Value] = {}
        """The values of loads that were written before the current statement, such as those of a whole tile."""

    # Values

    def value(self, e: Expr, at: Piece | None) -> Value:
        """The value of `e`: a scalar if all lanes agree, else a vector of the piece's width."""
        f = self.f
        match e:
            case Const(value=v, dtype=t):
                return constant_value(t, v)
            case Var(name=name):
                value = self.scope.vars[name]
                if at is None or name != at.var:
                    return Value(INDEX, str(value))
                lanes = ", ".join(f"i64 {at.offset + k}" for k in range(at.width))
                first = f.splat(Value(INDEX, str(value)), at.width)
                return binary(f, "+", first, Value(INDEX, f"<{lanes}>", at.width))
            case Dim(name=name):
                return Value(INDEX, str(self.scope.vars[name]))
            case Load():
                return self.load(e, at)
            case Select():
                return self.choice(e, at)
            case Binary(op=op, lhs=x, rhs=y):
                if dtype_of(e) == INDEX and (at is None or at.var not in free_vars(e)) and not loads(e):
                    return Value(INDEX, str(self.index(e)))
                fused = self._fused(e, at) or self._extreme(e, at) if dtype_of(e).is_float else None
                if fused is not None:
                    return fused
                if at is not None and self.picks and is_counted(e, at):
                    return counted(f, self.index, e, at)
                a, b = self.alike(self.value(x, at), self.value(y, at))
                return binary(f, op, a, b)
            case Compare(op=op, lhs=x, rhs=y):
                if dtype_of(x) == INDEX and (known := prove(e, self.known())) is not None:
                    if at is None or at.var not in free_vars(e):
                        return constant_value(BOOL, known)
                a, b = self.alike(self.value(x, at), self.value(y, at))
                return compare(f, op, a, b)
            case Logic(op=op, lhs=x, rhs=y):
                if loads(y):  # the right operand may only be loaded in lanes that the left one does not decide
                    yes, no = Const(True, BOOL), Const(False, BOOL)
                    return self.choice(Select(x, y, no) if op == "and" else Select(x, yes, y), at)
                a, b = self.alike(self.value(x, at), self.value(y, at))
                return logic(f, op, a, b)
            case Not(operand=x):
                return invert(f, self.value(x, at))
            case Cast(operand=x, dtype=t):
                if (found := saturating(e)) is not None:
                    intrinsic, x, y = found
                    return f.intrinsic(intrinsic, t, self.alike(self.value(x, at), self.value(y, at)))
                return convert(f, self._rounded(e, t, at) or self.value(x, at), t)
            case Bitcast(operand=x, dtype=t):
                return bits(f, self.value(x, at), t)
            case Call(function=name, args=args):
                if (near := self._rounded(e, F32, at)) is not None:
                    return near
                values = [self.value(a, at) for a in args]
                width = max(v.lanes for v in values)
                return call(f, name, tuple(f.splat(v, width) for v in values))
            case _:
                assert_never(e)

    def _rounded(self, e: Expr, t: DType, at: Piece | None) -> Value | None:
        """A function of f32 whose result is rounded to 16 bits at once, or which the task allows to be as near, if the
        machine has instructions for it; else None. The result has the type `t` then, or is rounded to it next.

        What a difference subtracts, such as the maximum of a row, and a factor without loads, such as the scale of scores,
        are told apart, since they are often the same for many results.
        """
        write, called = self.f.module.hardware, rounded_function(e, self.f.module.approx)
        if write is None or called is None:
            return None
        x, less, scale = parts_of_exponent(called.args[0])
        a = self.value(x, at)
        given = [None if y is None else self.value(y, at) for y in (less, scale)]
        lanes = max(v.lanes for v in (a, *given) if v is not None)
        b, s = (None if v is None else self.f.splat(v, lanes) for v in given)
        return write(self.f, called.function, (self.f.splat(a, lanes),), t, b, s)

    def alike(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Both values with the number of lanes of the wider one."""
        lanes = max(a.lanes, b.lanes)
        return self.f.splat(a, lanes), self.f.splat(b, lanes)

    def _fused(self, e: Binary, at: Piece | None) -> Value | None:
        """`x*y + z` and similar expressions with a single rounding, if the machine has fused operations; else None."""
        found = fused(e)
        if found is None:
            return None
        t = dtype_of(e)
        values = [self.value(x, at) for x in (found.x, found.y, found.z)]
        lanes = max(v.lanes for v in values)
        x, y, z = (self.f.splat(v, lanes) for v in values)
        if found.form == "fnma":
            x = self.f.value(t, f"fneg {x.typed}", lanes)
        elif found.form == "fms":
            z = self.f.value(t, f"fneg {z.typed}", lanes)
        return self.f.intrinsic("fmuladd", t, (x, y, z))

    def _extreme(self, e: Binary, at: Piece | None) -> Value | None:
        """A minimum of maxima, or the like, whose leaves are tested for NaN; else None."""
        found = extremes(e) if NEEDS in self.f.module.features else None
        if found is None:
            return None
        leaves = {x: self.value(x, at) for x in found.leaves}
        lanes = max(v.lanes for v in leaves.values())
        return extreme(self.f, found, {x: self.f.splat(v, lanes) for x, v in leaves.items()})

    # Choices: the arm that is not taken is not evaluated

    def choice(self, e: Select, at: Piece | None) -> Value:
        f = self.f
        cond = self.value(e.cond, at)
        if cond.ref in ("true", "false"):
            return self.value(e.then if cond.ref == "true" else e.other, at)
        cheap = is_safe(e.then) and is_safe(e.other)
        if cond.lanes and at is not None:
            then = self.value(e.then, at if cheap else self.narrow(at, cond))
            other = self.value(e.other, at if cheap else self.narrow(at, invert(f, cond)))
            return select(f, cond, f.splat(then, at.width), f.splat(other, at.width))
        if cheap:
            a, b = self.alike(self.value(e.then, at), self.value(e.other, at))
            return select(f, cond, a, b)
        return self._element_or_constant(cond, e, at) or self._branch(cond, e, at)

    def _element_or_constant(self, cond: Value, e: Select, at: Piece | None) -> Value | None:
        """A choice between an element that all lanes share and a constant, as a load from one of two places: LLVM keeps a
        branch, and takes the work of a whole tile into both of its arms. None if it is not such a choice."""
        x, y = e.then, e.other
        if at is None or at.mask is not None or not self.picks or not isinstance(x, Load) or not isinstance(y, Const):
            return None
        place, other = x.indices[0], constant_value(y.dtype, y.value)
        if (x, at.offset) in self.made or self.stride(place, at) != 0 or not is_safe(place) or x.dtype.kind == "bool":
            return None
        if in_memory(x.dtype) != other.type:
            return None
        name = self.f.module.constant(other.typed)
        pointer = self.f.op(f"select i1 {cond.ref}, ptr {self.pointer(x.buffer, place, at)}, ptr @{name}")
        return self._load_one(x.buffer, pointer, x.dtype)

    def _branch(self, cond: Value, e: Select, at: Piece | None) -> Value:
        f = self.f
        lanes = at.width if at is not None and at.var in free_vars(e.then) | free_vars(e.other) else 0
        yes, no, after = f.label("then"), f.label("else"), f.label("after")
        f.branch_if(cond.ref, yes, no)
        incoming: list[str] = []
        last = Value(BOOL, "false")
        for label, arm in ((yes, e.then), (no, e.other)):
            f.start_block(label)
            with f.region():
                last = f.splat(self.value(arm, at), lanes)
            incoming.append(f"[ {last.ref}, %{f.block} ]")
            f.branch(after)
        f.start_block(after)
        return f.value(last.dtype, f"phi {last.type} {', '.join(incoming)}", last.lanes)

    def narrow(self, at: Piece, cond: Value) -> Piece:
        """The piece with only those lanes active for which `cond` holds, possibly none."""
        mask = cond if at.mask is None else logic(self.f, "and", at.mask, cond)
        return replace(at, mask=mask, some=False)

    # Memory

    def load(self, e: Load, at: Piece | None) -> Value:
        if at is not None and (e, at.offset) in self.made:
            return self.made[e, at.offset]
        step = 0 if at is None else self.stride(e.indices[0], at)
        if at is not None and at.mask is not None and not at.some and loads(e.indices[0]):
            return self._gather(e, at)  # without active lanes, loads in the subscript must not happen either
        if at is None or step == 0:
            if at is None or at.mask is None or at.some:
                return self._load_one(e.buffer, self.pointer(e.buffer, e.indices[0], at), e.dtype)
            return self._load_if_any(e, at, at.mask)
        if step == 1:
            return self._load_vector(e, at)
        found = self._picked(e, at) or (self._near(e, at) if at.mask is None else None)
        if found is not None:
            return self.from_memory(found, e.dtype, at.width)
        if step is None or at.mask is not None:
            return self._gather(e, at)
        first = self.pointer(e.buffer, e.indices[0], at)
        kind = in_memory(e.dtype)
        places = [self.f.cached(f"getelementptr {kind}, ptr {first}, i64 {k * step}") for k in range(at.width)]
        return self.f.gather_lanes([self._load_one(e.buffer, p, e.dtype) for p in places])

    def _picked(self, e: Load, at: Piece) -> str | None:
        """The lanes of a load, picked from vectors at known places; None if these are not known."""
        subscript = moving(e.indices[0], at.var)
        every = 0 if not self.picks or loads(e.indices[0]) else period(subscript, at.var)
        value = self.scope.vars[at.var]
        if not every or not (isinstance(value, int) or self.scope.factors.get(at.var, 1) % every == 0):
            return None
        first = at.offset + (value if isinstance(value, int) else 0)
        lanes = picked(subscript, at.var, first % every, at.width)
        if lanes is None or (at.mask is not None and not can_mask(self.f, e.dtype)):
            return None
        return pick(self.f, self._beyond(e, at), partial(self._loaded, e.buffer), e.dtype, lanes, at.mask)

    def _near(self, e: Load, at: Piece) -> str | None:
        """The lanes of a load, picked from vectors that begin at lane 0; None if the lanes may be too far apart."""
        wanted = vectors_of(e, at, self.f.module.features) if self.picks else None
        if wanted is None:
            return None
        places = distances(self.f, self.index, e.indices[0], at)
        return pick_near(self.f, self._beyond(e, at), partial(self._loaded, e.buffer), e.dtype, places, wanted)

    def _beyond(self, e: Load, at: Piece) -> Callable[[int], str]:
        """The address so many elements behind that of lane 0."""
        begin = substitute(e.indices[0], {at.var: add(Var(at.var), index(at.offset))})
        return lambda n: self.pointer(e.buffer, add(begin, index(n)), None)

    def _loaded(self, buffer: str, text: str) -> str:
        """The result of an instruction that reads a buffer."""
        if buffer in self.scope.invariant and text.startswith("load "):
            text += f", {INVARIANT}"
        return self.f.cached(text) if buffer in self.scope.fixed else self.f.op(text)

    def _load_one(self, buffer: str, pointer: str, t: DType) -> Value:
        ref = self._loaded(buffer, f"load {in_memory(t)}, ptr {pointer}, align {t.bytes}")
        return self.from_memory(ref, t, 0)

    def from_memory(self, ref: str, t: DType, lanes: int) -> Value:
        if t.kind != "bool":
            return Value(t, ref, lanes)
        zero = "zeroinitializer" if lanes else "0"
        return self.f.value(BOOL, f"icmp ne {vector_type('i8', lanes)} {ref}, {zero}", lanes)

    def to_memory(self, v: Value) -> Value:
        """The value as it is stored: a bool as a byte."""
        if v.dtype.kind != "bool":
            return v
        return Value(U8, self.f.op(f"zext {v.typed} to {vector_type('i8', v.lanes)}"), v.lanes)

    def put(self, value: Value, buffer: str, e: Expr, at: Piece) -> None:
        """Store adjacent lanes, starting at the first one of a piece; past the caches if they are whole vectors of a streamed
        buffer."""
        f, pointer, size = self.f, self.target(buffer, e, at), value.dtype.bytes
        stored, past = self.to_memory(value), self.scope.streamed.get(buffer)
        if past and value.lanes * size % past.unit == 0 and self.is_multiple(e, at, past.unit // size):
            how = f"{min(past.unit, past.begins)}, !nontemporal !2"
        else:
            how = f"{self.alignment(buffer, e, at, size)}"
        f.line(f"store {stored.type} {stored.ref}, ptr {pointer}, align {how}")

    def alignment(self, buffer: str, e: Expr, at: Piece, size: int) -> int:
        """The alignment in bytes of the first lane of a piece, of elements of `size` bytes."""
        known = self.scope.aligned.get(buffer, size)
        while known > size and not self.is_multiple(e, at, known // size):
            known //= 2
        return known

    def is_multiple(self, e: Expr, at: Piece, n: int) -> bool:
        """Whether the subscript of the first lane of a piece is known to be a multiple of `n`."""
        form = self.form(e)
        number, terms = form.constant, [n]
        for atom, c in form.terms.items():
            value = self.scope.vars[atom] if isinstance(atom, str) else None
            if isinstance(value, int):
                number += c * value
            else:
                terms.append(c * (self.scope.factors.get(atom, 1) if isinstance(atom, str) else 1))
            if atom == at.var:
                number += c * at.offset
        return number % n == 0 and math.gcd(*terms) == n

    def _load_if_any(self, e: Load, at: Piece, mask: Value) -> Value:
        """A value that all lanes share, loaded only if one of them is active."""
        f = self.f
        some, after = f.label("some"), f.label("after")
        alive = any_lane(f, mask)
        before = f.block
        f.branch_if(alive, some, after)
        f.start_block(some)
        with f.region():
            loaded = self._load_one(e.buffer, self.pointer(e.buffer, e.indices[0], at), e.dtype)
        f.branch(after)
        f.start_block(after)
        none = constant_value(e.dtype, 0)
        return f.value(e.dtype, f"phi {none.type} [ {loaded.ref}, %{some} ], [ {none.ref}, %{before} ]", 0)

    def _lanes_apart(self, e: Load, pointer: str, align: int, width: int) -> str:
        """Adjacent lanes, each loaded by itself: LLVM makes vectors of those that it has not loaded before, alone or in other
        vectors."""
        kind, size = in_memory(e.dtype), e.dtype.bytes
        out = "poison"
        for n in range(width):
            place = self.f.op(f"getelementptr {kind}, ptr {pointer}, i64 {n}") if n else pointer
            lane = self._loaded(e.buffer, f"load {kind}, ptr {place}, align {math.gcd(align, n * size) or size}")
            out = self.f.op(f"insertelement {vector_type(kind, width)} {out}, {kind} {lane}, i64 {n}")
        return out

    def holds_lanes(self, buffer: str, e: Expr, at: Piece) -> bool:
        """Whether adjacent lanes, all of them whatever the mask, are elements of a small buffer on the stack."""
        terms, first = self.split(self.form(e), at)
        return not terms and 0 <= first <= self.scope.private.get(buffer, 0) - at.width

    def _load_vector(self, e: Load, at: Piece) -> Value:
        pointer, t = self.pointer(e.buffer, e.indices[0], at), e.dtype
        kind = vector_type(in_memory(t), at.width)
        if at.mask is None:
            align = self.alignment(e.buffer, e.indices[0], at, t.bytes)
            if e.buffer in self.scope.invariant:
                return self.from_memory(self._lanes_apart(e, pointer, align, at.width), t, at.width)
            return self.from_memory(self._loaded(e.buffer, f"load {kind}, ptr {pointer}, align {align}"), t, at.width)
        if self.holds_lanes(e.buffer, e.indices[0], at):
            ref = self.f.op(f"load {kind}, ptr {pointer}, align {t.bytes}")
            ref = self.f.op(f"select {at.mask.typed}, {kind} {ref}, {kind} zeroinitializer")
            return self.from_memory(ref, t, at.width)
        name = f"llvm.masked.load.{mangled(t, at.width)}.p0"
        self.f.module.declare(kind, name, ("ptr", "i32", at.mask.type, kind))
        args = f"ptr {pointer}, i32 {t.bytes}, {at.mask.typed}, {kind} zeroinitializer"
        ref = self._loaded(e.buffer, f"call {kind} @{name}({args})")
        return self.from_memory(ref, t, at.width)

    def _gather(self, e: Load, at: Piece) -> Value:
        pointers, read = self.pointers(e.buffer, e.indices[0], at), partial(self._loaded, e.buffer)
        return self.from_memory(gathered(self.f, pointers, e.dtype, at.width, at.mask, read), e.dtype, at.width)

    def pointers(self, buffer: str, e: Expr, at: Piece) -> str:
        """The addresses of a piece's lanes, as a vector of pointers."""
        base, dtype = self.scope.buffers[buffer]
        form = self.form(e)
        if self.picks and any(self.row(a) for a in form.terms):
            # The row is a part of the address, so that rows which are written out share what they gather.
            own = {a: c for a, c in form.terms.items() if at.var in (free_vars(a) if isinstance(a, Expr) else (a,))}
            rest = {a: c for a, c in form.terms.items() if a not in own}
            base, e = self.pointer(buffer, to_expr(Linear(rest, form.constant)), None), to_expr(Linear(own, 0))
        offsets = self.f.splat(self.value(e, at), at.width)
        return self.f.cached(f"getelementptr {in_memory(dtype)}, ptr {base}, {offsets.typed}")


def is_safe(e: Expr) -> bool:
    """Whether evaluating `e` unnecessarily is cheap and accesses no memory."""
    return not isinstance(e, (Load, Call)) and all(is_safe(c) for c in children(e))

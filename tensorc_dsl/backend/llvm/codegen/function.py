"""An LLVM function under construction: its basic blocks, the names in scope, and values and types as text.

Text has every attribute and intrinsic, of which the builder of llvmlite knows a part, and is several times faster to make.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import F64, DType, code_of, nearest
from tensorc_dsl.ir.expr import Load

# LLVM values and types as text: the spelling of element types and constants.


@frozen
class Value:
    """An operand: its element type, its spelling, and its number of lanes (0 for a scalar)."""

    dtype: DType
    ref: str
    lanes: int = 0

    @property
    def type(self) -> str:
        return vector_type(element(self.dtype), self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.ref}"


def element(t: DType) -> str:
    """The type of an element in a register; of bf16 and floats of 8 bits that of their bits (`soft_floats`)."""
    match t.name:
        case "f32":
            return "float"
        case "f64":
            return "double"
        case "f16":
            return "half"
        case _:
            return f"i{t.bits}"


def in_memory(t: DType) -> str:
    """The type of an element in memory: a bool is a byte."""
    return "i8" if t.kind == "bool" else element(t)


def mangled(t: DType, lanes: int) -> str:
    """LLVM's name of a vector type in the name of an intrinsic; bools are bytes in memory."""
    name = {"float": "f32", "double": "f64", "half": "f16"}.get(in_memory(t), in_memory(t))
    return f"v{lanes}{name}" if lanes else name


def vector_type(element_type: str, lanes: int) -> str:
    return f"<{lanes} x {element_type}>" if lanes else element_type


def literal(t: DType, x: int | float | bool) -> str:
    """The text of a scalar constant of type `t`."""
    if t.kind == "bool":
        return "true" if x else "false"
    if t.is_integer:
        return str(int(x))
    x = nearest(x, t)
    match element(t):
        case "half":
            return f"0xH{code_of(x, t):04X}"
        case "float" | "double":
            return f"0x{code_of(x, F64):016X}"  # LLVM spells an f32 as the f64 of the same value
        case _:
            return str(code_of(x, t))


def constant_value(t: DType, x: int | float | bool, lanes: int = 0) -> Value:
    """A constant, the same in all lanes."""
    one = literal(t, x)
    return Value(t, f"splat ({element(t)} {one})" if lanes else one, lanes)


def with_dtype(v: Value, t: DType) -> Value:
    return replace(v, dtype=t)


# An LLVM function under construction: lines of text in basic blocks, and the names in use.


INVARIANT = "!invariant.load !5"
"""The mark of a load whose place nothing writes while the code runs."""

UNROLL = "!3"
"""The mark of a loop that LLVM unrolls."""


class Hardware(Protocol):
    """Writes maths functions by instructions of a machine."""

    def __call__(
        self,
        f: Function,
        function: str,
        args: tuple[Value, ...],
        rounded: DType,
        less: Value | None = None,
        scale: Value | None = None,
    ) -> Value | None:
        """`function(args)`, or of `(argument - less) * scale`, before the result is rounded to a type at once. None where the
        machine has no instructions for it."""
        ...


@dataclass(slots=True)
class Module:
    """The state that several functions share: finished texts, declarations, and the target's instruction sets."""

    features: frozenset[str] = frozenset()
    functions: list[str] = field(default_factory=list[str])
    shared: dict[str, str] = field(default_factory=dict[str, str])
    """The names of internal functions and constants by what stands behind the name, so that none is there twice."""
    declarations: dict[str, str] = field(default_factory=dict[str, str])
    bodies: int = 0
    unrolls: bool = False
    """Whether a loop is left to LLVM to be unrolled, under `UNROLL`."""
    rolled: bool = False
    """Whether LLVM leaves these loops as they are, since the code is to be compiled soon and not to be fast."""
    hardware: Hardware | None = None
    """Functions for which a machine has instructions of its own."""
    approx: float = 0.0
    """The relative error that the task allows functions of f32, for which a machine may have shorter instructions."""

    def declare(self, result: str, name: str, args: tuple[str, ...], attributes: str = "") -> None:
        self.declarations[name] = f"declare {result} @{name}({', '.join(args)}) {attributes}".rstrip()

    def constant(self, typed: str) -> str:
        """The name of a place in memory that has a constant."""
        name = self.shared.setdefault(typed, f"constant.{len(self.shared)}")
        self.declarations[name] = f"@{name} = internal constant {typed}"
        return name

    def text(self) -> str:
        metadata = '!0 = distinct !{!0, !1}\n!1 = !{!"llvm.loop.unroll.disable"}\n!2 = !{i32 1}'
        if self.unrolls:
            how = "disable" if self.rolled else "full"
            metadata += f'\n{UNROLL} = distinct !{{{UNROLL}, !4}}\n!4 = !{{!"llvm.loop.unroll.{how}"}}'
        if any(INVARIANT in x for x in self.functions):
            metadata += "\n!5 = !{}"
        return "\n\n".join(["\n".join(self.declarations.values()), *self.functions, metadata]) + "\n"


class Function:
    """A function body. Code goes to the current block; `alloca` goes to the entry, so that loops do not grow the frame."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._names = 0
        self._caches: list[dict[str, str]] = [{}]
        self.block = "start"
        self._zero = ""

    def define(self, header: str, result: str = "void") -> None:
        """Finish the function under `header` (everything up to the brace), returning `result`, and add it to the module."""
        self.module.functions.append(f"{header} {self._text(result)}")

    def define_once(self, name: str, rest: str) -> str:
        """Finish an internal function that returns nothing; `rest` is its header behind the name. Returns its name, which is
        that of an earlier function if the text is the same."""
        text = f"{rest} {self._text('void')}"
        known = self.module.shared.setdefault(text, name)
        if known == name:
            self.module.functions.append(f"define internal void @{name}{text}")
        return known

    def _text(self, result: str) -> str:
        lines = ["{", "entry:", *self._entry, "  br label %start", "start:", *self._lines, f"  ret {result}", "}"]
        return "\n".join(lines)

    def fresh(self, prefix: str = "t") -> str:
        self._names += 1
        return f"%{prefix}.{self._names}"

    def line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def op(self, text: str) -> str:
        """Append an instruction with a result. Returns the name of the result."""
        name = self.fresh()
        self._lines.append(f"  {name} = {text}")
        return name

    def reserve(self) -> int:
        """Reserve a line to be filled later: a phi is known only after the loop body is written."""
        self._lines.append("")
        return len(self._lines) - 1

    def fill(self, place: int, text: str) -> None:
        self._lines[place] = f"  {text}"

    def value(self, dtype: DType, text: str, lanes: int) -> Value:
        """The result of an instruction without side effects: what several elements need is computed once."""
        return Value(dtype, self.cached(text), lanes)

    def alloca(self, element_type: str, count: int) -> str:
        name = self.fresh("slot")
        self._entry.append(f"  {name} = alloca [{count} x {element_type}], align 64")
        return name

    def zero(self) -> str:
        """The address of 64 bits of the function's own that are 0."""
        if not self._zero:
            self._zero = self.alloca("i64", 1)
            self.prologue(f"store i64 0, ptr {self._zero}, align 64")
        return self._zero

    def prologue(self, *lines: str) -> None:
        """Write lines to the entry, behind those that are there."""
        self._entry += [f"  {line}" for line in lines]

    def label(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}.{self._names}"

    def start_block(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch_if(self, cond: str, then: str, other: str) -> None:
        self.line(f"br i1 {cond}, label %{then}, label %{other}")

    @contextmanager
    def region(self) -> Generator[None]:
        """A context for code whose results later code cannot use: a loop body or a branch."""
        self._caches.append({})
        try:
            yield
        finally:
            self._caches.pop()

    def cached(self, text: str) -> str:
        """An instruction without side effects, reused if an equal one dominates this place."""
        for cache in self._caches:
            if text in cache:
                return cache[text]
        name = self.op(text)
        self._caches[-1][text] = name
        return name

    # Values

    def splat(self, v: Value, lanes: int) -> Value:
        """`v` in every lane; a vector is returned as it is."""
        if v.lanes or not lanes:
            return v
        if not v.ref.startswith("%"):
            return Value(v.dtype, f"splat ({element(v.dtype)} {v.ref})", lanes)
        one = self.op(f"insertelement {vector_type(element(v.dtype), lanes)} poison, {v.typed}, i64 0")
        kind = vector_type(element(v.dtype), lanes)
        return self.value(v.dtype, f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer", lanes)

    def lane(self, v: Value, k: int) -> Value:
        """Lane `k` of a vector; a scalar is returned as it is."""
        return self.value(v.dtype, f"extractelement {v.typed}, i64 {k}", 0) if v.lanes else v

    def gather_lanes(self, parts: list[Value]) -> Value:
        """The vector of some scalars."""
        n, t = len(parts), parts[0].dtype
        kind = vector_type(element(t), n)
        ref = "poison"
        for k, p in enumerate(parts):
            ref = self.op(f"insertelement {kind} {ref}, {p.typed}, i64 {k}")
        return Value(t, ref, n)

    def intrinsic(self, name: str, dtype: DType, args: tuple[Value, ...], flags: str = "") -> Value:
        """An overloaded LLVM intrinsic of one type, on equal scalars or vectors."""
        a = args[0]
        suffix = {"float": "f32", "double": "f64", "half": "f16"}.get(element(a.dtype), element(a.dtype))
        full = f"llvm.{name}.{f'v{a.lanes}' if a.lanes else ''}{suffix}"
        self.module.declare(a.type, full, tuple(x.type for x in args))
        return self.value(dtype, f"call {flags}{a.type} @{full}({', '.join(x.typed for x in args)})", a.lanes)


# The names in a function that is written, and the lanes of a vectorized loop for which code is written at once.


Scalar = int | str
"""An index that is the same in all lanes: a constant, or the name of an i64."""


@frozen
class Piece:
    """Lanes `offset` .. `offset + width - 1` of the loop over `var`, counted from the value of `var` in the scope.

    `mask` has the active lanes (None: all). `some` means that at least one is active, so that a value which all lanes share
    may be loaded once.
    """

    var: str
    offset: int
    width: int
    mask: Value | None = None
    some: bool = True


Place = tuple[Load, int]
"""A load in the lanes of the piece of that offset."""


@frozen
class Past:
    """How a buffer is stored past the caches: in vectors of `unit` bytes, from an address that is a multiple of `begins`."""

    unit: int
    begins: int


@dataclass(slots=True)
class SymbolTable:
    """The values of names at a place: loop variables, open dimensions, and buffers as pointers to their first elements."""

    vars: dict[str, Scalar] = field(default_factory=dict[str, Scalar])
    buffers: dict[str, tuple[str, DType]] = field(default_factory=dict[str, tuple[str, DType]])
    factors: dict[str, int] = field(default_factory=dict[str, int])
    """For each loop variable a number that divides it, if one greater than 1 is known."""
    aligned: dict[str, int] = field(default_factory=dict[str, int])
    """The alignment of buffers in bytes, where vectors are only loaded and stored at once if they are aligned."""
    streamed: dict[str, Past] = field(default_factory=dict[str, Past])
    """The buffers that are stored past the caches."""
    fixed: frozenset[str] = frozenset()
    """The buffers that nothing writes while the function runs: an element is loaded once for all that need it."""
    invariant: frozenset[str] = frozenset()
    """Those of them of which LLVM is told so, which finds equal loads in loops that it unrolls, and across barriers."""

    private: dict[str, int] = field(default_factory=dict[str, int])
    """How many elements the small buffers on the stack have: they are in registers if all loops over them are in a function,
    written out."""

    @contextmanager
    def bound(self, values: Mapping[str, Scalar], factor: int = 1) -> Generator[None]:
        """A context in which variables have the given values, which are multiples of `factor`."""
        before, factors = {v: self.vars[v] for v in values if v in self.vars}, self.factors
        self.vars.update(values)
        self.factors = factors | dict.fromkeys(values, factor)
        try:
            yield
        finally:
            for v in values:
                del self.vars[v]
            self.vars.update(before)
            self.factors = factors

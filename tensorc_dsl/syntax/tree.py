"""The syntax tree of `.tsched`: what the parser builds and the printer prints.

One expression union serves the compute and the schedule layer; the checker says what is allowed where. Every node has a
span that takes no part in equality, so `parse(print(tree)) == tree`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tensorc_dsl.source import Source, Span


def _span() -> Span:
    return field(compare=False, repr=False)  # type: ignore[no-any-return]


# --- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier in use."""

    id: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Number:
    """An integer (int) or a decimal (float) literal."""

    value: int | float
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class String:
    value: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Bool:
    value: bool
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Wildcard:
    """`_`: the open factor of a split, or a name nobody wants."""

    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ListExpr:
    items: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class MapExpr:
    """`{4: 0.2, 8: 0.8}`: values with weights."""

    items: tuple[tuple[Expr, Expr], ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class BinaryExpr:
    op: Literal["+", "-", "*", "/", "%"]
    lhs: Expr
    rhs: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Negate:
    operand: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class CompareExpr:
    """A chain, as in Python: `0 <= h < H` has two operators and three operands."""

    ops: tuple[Literal["<", "<=", ">", ">=", "==", "!="], ...]
    operands: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class LogicExpr:
    op: Literal["and", "or"]
    lhs: Expr
    rhs: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class NotExpr:
    operand: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Conditional:
    """`then if cond else other`."""

    cond: Expr
    then: Expr
    other: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class CallExpr:
    """`f(a, b, key=c)`; methods are calls of an `Attribute`."""

    function: Expr
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class IndexExpr:
    """`A[i, k]` or `b.loops[0]`."""

    base: Expr
    indices: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Attribute:
    base: Expr
    name: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index with an optional written range: `k`, or `h in H + 2*pad`."""

    name: str
    extent: Expr | None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Reduce:
    """`sum[k, r in R] body`, or of a `reducer` item `reduce logsumexp[k] body`; it reaches as far right as it can."""

    reducer: str
    indices: tuple[IndexSpec, ...]
    body: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Scan:
    """`scan[t] init e step e`."""

    index: IndexSpec
    init: Expr
    step: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class RangeExpr:
    """`1..4096`, both ends included."""

    low: Expr
    high: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Lambda:
    """An index map: `(i, j) -> (i / 4, j, i % 4)`."""

    params: tuple[str, ...]
    results: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ForList:
    """`for x in xs { …; yield e }`: the list of what each round yields. As a statement its value is dropped."""

    target: Pattern
    source: Expr
    body: tuple[Stmt, ...]
    span: Span = _span()


Expr = (
    Name | Number | String | Bool | Wildcard | ListExpr | MapExpr | BinaryExpr | Negate | CompareExpr | LogicExpr
    | NotExpr | Conditional | CallExpr | IndexExpr | Attribute | Reduce | Scan | RangeExpr | Lambda | ForList
)  # fmt: skip


# --- statements of the schedule layer --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamePattern:
    """`x`, or `_` for a value nobody wants (`name` is then "_")."""

    name: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ListPattern:
    """`[a, _, c]`: exactly as many values."""

    items: tuple[NamePattern, ...]
    span: Span = _span()


Pattern = NamePattern | ListPattern


@dataclass(frozen=True, slots=True)
class Let:
    """`let x = e`, or `let [a, b] = e`."""

    pattern: Pattern
    value: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class DrawStmt:
    """`let x ~ distribution(…)`, pinned by `:= value`."""

    name: NamePattern
    distribution: CallExpr
    pin: Expr | None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ExprStmt:
    """A call for its effect on the program; a bare name in a space is a rule without arguments."""

    value: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Branch:
    """One arm of an `either`; `weight` is written `either(0.3) { … }`, `or(0.7) { … }`."""

    weight: Expr | None
    body: tuple[Stmt, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Either:
    """`either { … } or { … }`: a structural draw."""

    branches: tuple[Branch, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class If:
    """`if cond { … } else { … }` over values known at expansion."""

    cond: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Yield:
    """The value of this round of the `for` around it."""

    value: Expr
    span: Span = _span()


Stmt = Let | DrawStmt | ExprStmt | Either | If | Yield


# --- items -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorType:
    """`f32[M, K]`; `dtype` is a type name or a dtype attribute of the compute. No shape means a scalar parameter."""

    dtype: str
    shape: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class TensorParam:
    name: str
    type: TensorType
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Param:
    """`structure: str = "SSRSRS"`; both the type and the default may be missing."""

    name: str
    type: str | None
    default: Expr | None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Stage:
    """`let P[n, h in H + 2*pad] = e` (an intermediate, `is_let`) or `Y[i, j] = e` (an output)."""

    name: str
    indices: tuple[IndexSpec, ...]
    value: Expr
    is_let: bool
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class StageCall:
    """`let H = matmul(A, B, stride=2)` (an intermediate, `is_let`) or `Y = softmax(H)` (an output): all that another
    compute makes of these tensors; `kwargs` are its attributes."""

    name: str
    compute: str
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...]
    is_let: bool
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ComputeDef:
    """`compute name(inputs; attributes) -> outputs where dim = e, … { stages }`."""

    name: str
    inputs: tuple[TensorParam, ...]
    attributes: tuple[Param, ...]
    outputs: tuple[TensorParam, ...]
    where: tuple[tuple[str, Expr], ...]
    stages: tuple[Stage | StageCall, ...]
    doc: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ModuleDef:
    """`module name(params) when cond { body }`; the first parameter is what it applies to (Block or Program)."""

    name: str
    params: tuple[Param, ...]
    when: Expr | None
    body: tuple[Stmt, ...]
    doc: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class SpaceDef:
    """`space name for target { rules }`: each rule a module's name or call, in order."""

    name: str
    target: str
    rules: tuple[Expr, ...]
    doc: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ScheduleDef:
    """`schedule name for compute { body }`; the blocks and parameters of the compute are in scope by name."""

    name: str
    compute: str
    body: tuple[Stmt, ...]
    doc: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class TaskDef:
    """`task name = compute(dim=value, …)`, optionally `with space_or_schedule`."""

    name: str
    compute: str
    bindings: tuple[tuple[str, Expr], ...]
    with_: str | None
    doc: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ReducerDef:
    """`reducer name(a, b) = combine identity e`: `a` is what was made so far, `b` the next value, `e` the start."""

    name: str
    params: tuple[str, str]
    combine: Expr
    identity: Expr
    doc: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class TargetDef:
    """`target avx2 = llvm(vector_bits=256, cores=8)`: a machine of a kind, with its facts."""

    name: str
    kind: str
    facts: tuple[tuple[str, Expr], ...]
    doc: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Operand:
    """`A: bf16[16, 16] in "mma.a"`: what an instruction reads or writes, and the layout that it must have."""

    name: str
    type: TensorType
    layout: str | None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Effect:
    """`C[i, j] += sum[k] e` (`adds`) or `C[i, j] = e`: what an instruction does to every element of an operand."""

    name: str
    indices: tuple[IndexSpec, ...]
    value: Expr
    adds: bool
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Layout:
    """`layout "mma.a" (i, k) -> (lane: i % 8 * 4, reg: k / 8)`: where each element is held."""

    name: str
    params: tuple[str, ...]
    places: tuple[tuple[str, Expr], ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Lowering:
    """`lower llvm requires "avx512vnni" call "llvm.x86…"`: its code for one kind of target (assembly, or a call)."""

    target: str
    requires: tuple[str, ...]
    kind: Literal["asm", "call"]
    code: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class IntrinsicDef:
    """`intrinsic name desc (operands) { effects } layout … lower …`: an instruction, its meaning and its code."""

    name: str
    operands: tuple[Operand, ...]
    effects: tuple[Effect, ...]
    layouts: tuple[Layout, ...]
    lowerings: tuple[Lowering, ...]
    doc: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class UseDecl:
    """`use std.cpu.{a, b}` or `use std.cpu` (then `names` is empty and all its items come by their names)."""

    path: tuple[str, ...]
    names: tuple[str, ...]
    span: Span = _span()


# --- programs as text ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BufferDecl:
    """`buffer B: f32[64, 64] in "local"`."""

    name: str
    type: TensorType
    scope: str | None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class LoopHeader:
    """`i in 64`."""

    name: str
    extent: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class LoopStmt:
    """`for i in 64, j in 64 { … }`; kind is written before: `parallel for i in 8 { … }`; `@("key", value)` after it."""

    kind: str
    loops: tuple[LoopHeader, ...]
    annotations: tuple[tuple[str, Expr], ...]
    body: tuple[ProgramStmt, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class IterDecl:
    """`spatial vi in 64 = i`."""

    kind: str
    name: str
    extent: Expr
    binding: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class StoreStmt:
    """`B[vi, vj] = e`."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class BlockStmt:
    """`block C { spatial …; reduce …; where c; init { … } stores }`."""

    name: str
    iters: tuple[IterDecl, ...]
    where: tuple[Expr, ...]
    init: tuple[StoreStmt, ...]
    body: tuple[StoreStmt, ...]
    annotations: tuple[tuple[str, Expr], ...]
    span: Span = _span()


ProgramStmt = LoopStmt | BlockStmt


@dataclass(frozen=True, slots=True)
class ProgramDef:
    """`program name(A: f32[M, 64], …) where M in 1..64 { buffers; statements }`."""

    name: str
    params: tuple[TensorParam, ...]
    sizes: tuple[tuple[str, RangeExpr], ...]
    buffers: tuple[BufferDecl, ...]
    body: tuple[ProgramStmt, ...]
    annotations: tuple[tuple[str, Expr], ...]
    doc: str
    span: Span = _span()


Item = (
    ComputeDef | ReducerDef | IntrinsicDef | TargetDef | ModuleDef | SpaceDef | ScheduleDef | TaskDef | UseDecl | ProgramDef
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class File:
    """A parsed file: its items in order."""

    source: Source = field(compare=False, repr=False)
    items: tuple[Item, ...]

"""The syntax tree of `.tsched`: what the parser builds and the printer prints.

One expression union serves the compute and the schedule layer; the checker restricts it for each. Every node has a
span that takes no part in equality, so `parse(print(tree)) == tree`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal, Self

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source, Span

# The span of a node: its place in the text, which takes no part in equality.


def span_field() -> Span:
    """The field of a node for its place in the text."""
    return field(compare=False, repr=False)


# A name with its place, for the names in items that are no expressions.


class Word(str):
    """A name with its place in the text. It is a `str`; the place takes no part in equality or hashing."""

    __slots__ = ("span",)

    span: Span

    def __new__(cls, text: str, span: Span) -> Self:
        word = str.__new__(cls, text)
        word.span = span
        return word

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickles and copies as plain text: the place refers to a text that other processes do not have."""
        return str, (str(self),)


# Expressions of every layer, and the statements of the schedule layer: a `for` holds statements, a statement expressions.


# --- expressions -----------------------------------------------------------------------------------------------------


@frozen
class Name:
    """A name that is used, not defined."""

    id: str
    span: Span = span_field()


MAX_BITS = 256
"""Bits of an integer literal, and of every int that a schedule computes, since traces print such ints as literals."""


@frozen
class Number:
    """An integer (int) or a decimal (float) literal."""

    value: int | float
    span: Span = span_field()


@frozen
class String:
    value: str
    span: Span = span_field()


@frozen
class Bool:
    value: bool
    span: Span = span_field()


@frozen
class Wildcard:
    """`_`: the open factor of a split, or an unused name."""

    span: Span = span_field()


@frozen
class ListExpr:
    items: tuple[Expr, ...]
    span: Span = span_field()


@frozen
class MapExpr:
    """`{4: 0.2, 8: 0.8}`: values with weights."""

    items: tuple[tuple[Expr, Expr], ...]
    span: Span = span_field()


@frozen
class BinaryExpr:
    op: Literal["+", "-", "*", "/", "%"]
    lhs: Expr
    rhs: Expr
    span: Span = span_field()


@frozen
class Negate:
    operand: Expr
    span: Span = span_field()


@frozen
class CompareExpr:
    """A chain, as in Python: `0 <= h < H` has two operators and three operands."""

    ops: tuple[Literal["<", "<=", ">", ">=", "==", "!="], ...]
    operands: tuple[Expr, ...]
    span: Span = span_field()


@frozen
class LogicExpr:
    op: Literal["and", "or"]
    lhs: Expr
    rhs: Expr
    span: Span = span_field()


@frozen
class NotExpr:
    operand: Expr
    span: Span = span_field()


@frozen
class Conditional:
    """`then if cond else other`."""

    cond: Expr
    then: Expr
    other: Expr
    span: Span = span_field()


@frozen
class CallExpr:
    """`f(a, b, key=c)`; methods are calls of an `Attribute`."""

    function: Expr
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[Word, Expr], ...]
    span: Span = span_field()


@frozen
class IndexExpr:
    """`A[i, k]` or `b.loops[0]`."""

    base: Expr
    indices: tuple[Expr, ...]
    span: Span = span_field()


@frozen
class SliceExpr:
    """`b.loops[1:-1]`: from `low` to `high`, exclusive; a missing bound is the start or the end."""

    base: Expr
    low: Expr | None
    high: Expr | None
    span: Span = span_field()


@frozen
class Attribute:
    base: Expr
    name: Word
    span: Span = span_field()


@frozen
class IndexSpec:
    """An index with an optional written range: `k`, or `h in H + 2*pad`."""

    name: Word
    extent: Expr | None
    span: Span = span_field()


@frozen
class Reduce:
    """`sum[k, r in R] body`, or with a `reducer` item `reduce logsumexp[k] body`; it extends as far right as it can."""

    reducer: Word
    indices: tuple[IndexSpec, ...]
    body: Expr
    span: Span = span_field()


@frozen
class Scan:
    """`scan[t] init e step e`."""

    index: IndexSpec
    init: Expr
    step: Expr
    span: Span = span_field()


@frozen
class TupleExpr:
    """`(a, b)`: the values of a reducer of several."""

    items: tuple[Expr, ...]
    span: Span = span_field()


@frozen
class RangeExpr:
    """`1..4096`, both ends included; for an open size `1..4096 at [1, 16]`, with the sizes at which it is timed, or
    `1..4096 like {1: 20, 16: 5}`, with how often sizes occur."""

    low: Expr
    high: Expr
    at: tuple[Expr, ...]
    span: Span = span_field()
    like: Expr | None = None


@frozen
class Rest:
    """`...` in an index map: all indices that have no name there, in their order."""

    span: Span = span_field()


@frozen
class Lambda:
    """An index map: `(i, j) -> (i / 4, j, i % 4)`. A `Rest` is once on both sides, or on none."""

    params: tuple[Word | Rest, ...]
    results: tuple[Expr | Rest, ...]
    span: Span = span_field()


@frozen
class ForList:
    """`for x in xs if cond { …; yield e }`: the list of the values yielded. As a statement its value is dropped."""

    target: Pattern
    source: Expr
    cond: Expr | None
    body: tuple[Stmt, ...]
    span: Span = span_field()


Expr = (
    Name | Number | String | Bool | Wildcard | ListExpr | MapExpr | BinaryExpr | Negate | CompareExpr | LogicExpr
    | NotExpr | Conditional | CallExpr | IndexExpr | SliceExpr | Attribute | Reduce | Scan | TupleExpr | RangeExpr
    | Lambda | ForList
)  # fmt: skip


def items_of(e: Expr) -> tuple[Expr, ...]:
    """The values of a tuple; any other expression alone."""
    return e.items if isinstance(e, TupleExpr) else (e,)


# --- statements of the schedule layer --------------------------------------------------------------------------------


@frozen
class NamePattern:
    """`x`, or `_` for an unused value (`name` is then "_")."""

    name: str
    span: Span = span_field()


@frozen
class ListPattern:
    """`[a, _, c]`: matches a list of exactly that length."""

    items: tuple[NamePattern, ...]
    span: Span = span_field()


Pattern = NamePattern | ListPattern


@frozen
class Let:
    """`let x = e`, or `let [a, b] = e`."""

    pattern: Pattern
    value: Expr
    span: Span = span_field()


@frozen
class DrawStmt:
    """`let x ~ distribution(…)`, pinned by `:= value`."""

    name: NamePattern
    distribution: CallExpr
    pin: Expr | None
    span: Span = span_field()


@frozen
class ExprStmt:
    """A call for its effect on the program; a bare name in a space is a rule without arguments."""

    value: Expr
    span: Span = span_field()


@frozen
class Branch:
    """One branch of an `either`, with the name and the weight in front of it."""

    name: Word | None
    weight: Expr | None
    body: tuple[Stmt, ...]
    span: Span = span_field()


@frozen
class Either:
    """`either pack: panels(0.7) { … } or rows(0.3) { … }`: a draw of structure. Draw and branches all have names, or none."""

    name: Word | None
    branches: tuple[Branch, ...]
    span: Span = span_field()


@frozen
class Maybe:
    """`maybe(70) pack { … }`: taken with a probability of 70 %; without a number, of 50 %."""

    name: Word
    chance: Expr | None
    body: tuple[Stmt, ...]
    span: Span = span_field()


@frozen
class Try:
    """`try { … } otherwise { … }`: the steps of `body`; if one is refused, those of `other` instead, and none of `body`."""

    body: tuple[Stmt, ...]
    other: tuple[Stmt, ...]
    span: Span = span_field()


@frozen
class If:
    """`if cond { … } else { … }` over values known at expansion."""

    cond: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...]
    span: Span = span_field()


@frozen
class Case:
    """`2..16, _ => { … }`: the statements for some sizes, of each dimension a number, a range, or `_` for all."""

    sizes: tuple[Expr, ...]
    body: tuple[Stmt, ...]
    span: Span = span_field()


@frozen
class Select:
    """`select M { 1 => { … }; _ => { … } }`: other steps for other sizes of open dimensions."""

    names: tuple[Word, ...]
    cases: tuple[Case, ...]
    span: Span = span_field()


@frozen
class Yield:
    """`yield e`: the element that this round adds to the list of the `for` around it."""

    value: Expr
    span: Span = span_field()


Stmt = Let | DrawStmt | ExprStmt | Either | Maybe | Try | If | Select | Yield


# Parameters: tensors of computes and programs, values of computes and modules.


@frozen
class TensorType:
    """`f32[M, K]`; `dtype` is a type name or a dtype attribute of the compute. No shape means a scalar parameter."""

    dtype: Word
    shape: tuple[Expr, ...]
    span: Span = span_field()


@frozen
class TensorParam:
    """`W: const f32[K, N]`; without `const` the tensor may differ in each call.

    `strides [1, S]` are the distances of neighbours in elements; none are those of a dense array.
    """

    name: Word
    type: TensorType
    constant: bool
    strides: tuple[Expr, ...]
    updates: Word | None
    """The input in whose memory this output is."""
    span: Span = span_field()


@frozen
class ParamType:
    """`Module(Block, Loop)`; without parentheses, `parts` is None."""

    name: Word
    parts: tuple[ParamType, ...] | None
    span: Span = span_field()

    def __str__(self) -> str:
        return self.name if self.parts is None else f"{self.name}({', '.join(map(str, self.parts))})"


@frozen
class Param:
    """`structure: str = "SSRSRS"`; both the type and the default may be missing."""

    name: Word
    type: ParamType | None
    default: Expr | None
    span: Span = span_field()


# The compute layer: computes, reducers, tasks, and instructions with their meaning.


@frozen
class Stage:
    """`let P[n, h in H + 2*pad] @("key", value) = e` (an intermediate, `is_let`) or `Y[i, j] = e` (an output).

    Without indices it is a single value, `let m = max[i] X[i]`, or the whole result of a compute, `let H = matmul(A, B)`.
    The values of a reducer of several have `targets`, `let (v[i], _) = e`: names, and `_` for what is dropped. The first of
    the names is that of the stage, and `repeated` are the subscripts of the further ones, which are the same.
    """

    name: Word
    indices: tuple[IndexSpec, ...]
    value: Expr
    annotations: tuple[tuple[str, Expr], ...]
    is_let: bool
    targets: tuple[Word, ...]
    repeated: tuple[Word, ...]
    span: Span = span_field()

    @property
    def names(self) -> tuple[Word, ...]:
        """The names that it defines."""
        return tuple(t for t in self.targets if t != "_") or (self.name,)


@frozen
class Assumption:
    """`name property` or `name in low..high`, behind `assume`: what an input contains."""

    name: Word
    says: Word | RangeExpr
    span: Span = span_field()


@frozen
class ComputeDef:
    """`compute name(inputs; attributes) -> outputs where dim = e, condition, … assume input property, … { stages }`."""

    name: Word
    inputs: tuple[TensorParam, ...]
    attributes: tuple[Param, ...]
    outputs: tuple[TensorParam, ...]
    where: tuple[tuple[Word, Expr], ...]
    conditions: tuple[Expr, ...]
    """What `where` says of the sizes."""
    assumes: tuple[Assumption, ...]
    stages: tuple[Stage, ...]
    doc: str
    span: Span = span_field()


@frozen
class ReducerDef:
    """`reducer name(a, b) = combine identity e assume law`: `a` is the value so far, `b` the next one, `e` the first one.

    Of several values, each of these is a tuple. The laws behind `assume` are not proved.
    """

    name: Word
    before: tuple[Word, ...]
    following: tuple[Word, ...]
    combine: Expr
    identity: Expr
    assumes: tuple[Name, ...]
    doc: str
    span: Span = span_field()

    @property
    def values(self) -> tuple[Expr, ...]:
        """The combination of each value."""
        return items_of(self.combine)

    @property
    def starts(self) -> tuple[Expr, ...]:
        """The identity of each value."""
        return items_of(self.identity)


@frozen
class TaskDef:
    """`task name = compute(dim=value, …)`, optionally `where condition, …` and `with space_or_schedule`."""

    name: Word
    compute: Word
    bindings: tuple[tuple[Word, Expr], ...]
    conditions: tuple[Expr, ...]
    """Which sizes occur."""
    with_: Word | None
    doc: str
    span: Span = span_field()


@frozen
class Weights:
    """`weights "net.safetensors" sha256 "9f86…" (w: f32[64, 10])`: tensors by their names in a file with that digest."""

    path: str
    sha256: str
    tensors: tuple[TensorParam, ...]
    span: Span = span_field()


@frozen
class ModelDef:
    """`model name(inputs) -> outputs weights … { calls }`: computes, called in order on named values."""

    name: Word
    inputs: tuple[TensorParam, ...]
    outputs: tuple[TensorParam, ...]
    weights: Weights | None
    calls: tuple[Stage, ...]
    doc: str
    span: Span = span_field()


@frozen
class Operand:
    """`A: bf16[16, 16] in "mma.a"`: an operand that an instruction reads or writes, and its required layout."""

    name: Word
    type: TensorType
    layout: str | None
    span: Span = span_field()


@frozen
class Effect:
    """`C[i, j] += sum[k] e` (`adds`) or `C[i, j] = e`: the effect of an instruction on every element of an operand."""

    name: Word
    indices: tuple[IndexSpec, ...]
    value: Expr
    adds: bool
    span: Span = span_field()


@frozen
class Layout:
    """`layout "mma.a" (i, k) -> (lane: i % 8 * 4, reg: k / 8)`: the lane and register that hold each element."""

    name: str
    params: tuple[Word, ...]
    places: tuple[tuple[Word, Expr], ...]
    span: Span = span_field()


@frozen
class Lowering:
    """`lower llvm requires "avx512vnni" call "llvm.x86…"`: the code for one kind of target (assembly, or a call)."""

    target: Word
    requires: tuple[str, ...]
    kind: Literal["asm", "call"]
    code: str
    span: Span = span_field()


@frozen
class IntrinsicDef:
    """`intrinsic name desc (operands) { effects } layout … lower …`: an instruction, its meaning and its code."""

    name: Word
    operands: tuple[Operand, ...]
    effects: tuple[Effect, ...]
    layouts: tuple[Layout, ...]
    lowerings: tuple[Lowering, ...]
    doc: str
    span: Span = span_field()


# The program layer: loops, blocks and buffers as text.


@frozen
class BufferDecl:
    """`buffer B: f32[64, 64] in "local"`."""

    name: Word
    type: TensorType
    scope: str | None
    annotations: tuple[tuple[str, Expr], ...]
    span: Span = span_field()


@frozen
class LoopHeader:
    """`i in 64`."""

    name: Word
    extent: Expr
    span: Span = span_field()


@frozen
class LoopStmt:
    """`for i in 64, j in 64 { … }`; kind is written before: `parallel for i in 8 { … }`; `@("key", value)` after it.

    `axis` is the axis of a bound loop: `bound("block.x") for i in 8 { … }`.
    """

    kind: str
    axis: str | None
    loops: tuple[LoopHeader, ...]
    annotations: tuple[tuple[str, Expr], ...]
    body: tuple[ProgramStmt, ...]
    span: Span = span_field()


@frozen
class IterDecl:
    """`spatial vi in 64 = i`."""

    kind: str
    name: Word
    extent: Expr
    binding: Expr
    span: Span = span_field()


@frozen
class StoreStmt:
    """`B[vi, vj] = e`."""

    buffer: Word
    indices: tuple[Expr, ...]
    value: Expr
    span: Span = span_field()


@frozen
class BlockStmt:
    """`block C { spatial …; reduce …; where c; init { … } stores }`."""

    name: Word
    iters: tuple[IterDecl, ...]
    where: tuple[Expr, ...]
    init: tuple[StoreStmt, ...]
    body: tuple[StoreStmt, ...]
    annotations: tuple[tuple[str, Expr], ...]
    span: Span = span_field()


ProgramStmt = LoopStmt | BlockStmt


@frozen
class ProgramSelect:
    """`select M { 1 => { … }; 2..64 => { … } }`: a program for each of several ranges of sizes."""

    names: tuple[Word, ...]
    cases: tuple[ProgramCase, ...]
    span: Span = span_field()


@frozen
class ProgramCase:
    """`2..64 => { … }`, or with a `select` in the braces."""

    sizes: tuple[Expr, ...]
    buffers: tuple[BufferDecl, ...]
    body: tuple[ProgramStmt, ...]
    annotations: tuple[tuple[str, Expr], ...]
    select: ProgramSelect | None
    span: Span = span_field()


@frozen
class ProgramDef:
    """`program name(A: f32[M, 64], …) where M in 1..64 { buffers; statements }`, or with a `select` in the braces."""

    name: Word
    params: tuple[TensorParam, ...]
    sizes: tuple[tuple[Word, RangeExpr], ...]
    conditions: tuple[Expr, ...]
    """Which of these sizes occur."""
    buffers: tuple[BufferDecl, ...]
    body: tuple[ProgramStmt, ...]
    annotations: tuple[tuple[str, Expr], ...]
    select: ProgramSelect | None
    doc: str
    span: Span = span_field()


# The schedule layer: modules, spaces, schedules, targets and uses.


@frozen
class ConstDef:
    """`const name = value`: a literal with a name, and in `doc` with a reason."""

    name: Word
    value: Expr
    doc: str
    span: Span = span_field()


@frozen
class ModuleDef:
    """`module name(params) when cond { body }`; the first parameter is what it applies to (Block or Program)."""

    name: Word
    params: tuple[Param, ...]
    when: Expr | None
    body: tuple[Stmt, ...]
    doc: str
    span: Span = span_field()


@frozen
class Weighing:
    """`draw ~ {value: weight, _: weight}` in a prior."""

    draw: Word
    weights: Expr
    span: Span = span_field()


@frozen
class SpaceDef:
    """`space name for target { rules }`: each rule is a module's name or call; they are tried in order.

    `prior` has the weights of a space that a `prior` item made of another one; None for the space of a `space` item.
    """

    name: Word
    target: Word
    rules: tuple[Expr, ...]
    doc: str
    span: Span = span_field()
    prior: tuple[Weighing, ...] | None = None


@frozen
class ScheduleDef:
    """`schedule name for compute { body }`; the blocks and parameters of the compute are in scope by name.

    `prior` is as in `SpaceDef`.
    """

    name: Word
    compute: Word
    body: tuple[Stmt, ...]
    doc: str
    span: Span = span_field()
    prior: tuple[Weighing, ...] | None = None


@frozen
class PriorDef:
    """`prior name for space { weights }`: a space or schedule by another name, in which some draws have other weights."""

    name: Word
    of: Word
    weights: tuple[Weighing, ...]
    doc: str
    span: Span = span_field()


@frozen
class TargetDef:
    """`target avx2 = llvm(vector_bits=256, cores=8)`: a machine with its kind and its facts."""

    name: Word
    kind: Word
    facts: tuple[tuple[Word, Expr], ...]
    doc: str
    span: Span = span_field()


@frozen
class UseDecl:
    """`use std.cpu.{a, b}`, or `use std.cpu`: then `names` is empty and all items are imported."""

    path: tuple[Word, ...]
    names: tuple[Word, ...]
    span: Span = span_field()


NamedItem = (
    ComputeDef
    | ReducerDef
    | IntrinsicDef
    | TargetDef
    | ConstDef
    | ModuleDef
    | SpaceDef
    | ScheduleDef
    | PriorDef
    | TaskDef
    | ModelDef
    | ProgramDef
)
Item = NamedItem | UseDecl


@frozen
class File:
    """A parsed file: its items in order."""

    source: Source = field(compare=False, repr=False)
    items: tuple[Item, ...]

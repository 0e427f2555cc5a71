"""Checks that a program is well formed. A violation is a bug of a pass, or a mistake in a hand-written program."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.annotations import axis_problem, pipeline
from tensorc_dsl.ir.cases import common, described, narrowed, uncovered, whole
from tensorc_dsl.ir.dtypes import BOOL, INDEX
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
    children,
    constant,
    dtype_of,
    free_vars,
    loads,
)
from tensorc_dsl.ir.input_views import view_fault
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import (
    AT_ONCE,
    Block,
    Buffer,
    For,
    IterKind,
    LoopKind,
    Program,
    Store,
    intrinsic_of,
    is_atomic,
    walk,
)
from tensorc_dsl.ir.reductions import is_whole_update, not_atomic, order_of, reducer_text
from tensorc_dsl.ir.sizes import apart

UsableNames = set[str | Dim]
"""Names that may be used: variables by name, open dimensions as values, so that each has a single range."""


class ProgramError(ValueError):
    """The program is not well formed. The message names the place; `repair` is a repair for a program in text form."""

    def __init__(self, message: str, repair: str = "") -> None:
        super().__init__(message)
        self.repair = repair


def verify(program: Program) -> None:
    """Raise ProgramError unless the program is well formed.

    Names are unique and bound, types agree, and subscripts have the right rank. Bound, pipelined and tensorized loops carry
    what their kind needs. Loops that run at once bind spatial iterators only, but for bound loops around atomic blocks and
    threads of a scan's steps; a block that names a reducer, or is atomic, has its form.
    """
    if program.cases:
        _cases(program)
    buffers = {b.name: b for b in (*program.params, *program.buffers)}
    if len(buffers) != len(program.params) + len(program.buffers):
        raise ProgramError(f"program {program.name}: two buffers have one name")
    dims = _dims(program, buffers.keys())
    open_names = {d.name for d in program.dims}
    for b in buffers.values():
        for e in b.shape:
            _index(e, dims, f"shape of {b.name}")
        _strides(b, dims, b in program.outputs)
    inputs = {p.name for p in program.inputs}
    for b in program.buffers:
        if b.view is not None:
            for e in b.view.places:
                _index(e, dims | {*b.view.indices}, f"places of {b.name}")
            if fault := view_fault(b, program):
                raise ProgramError(fault, f'remove `@("view", …)` from `{b.name}`')
    for b in buffers.values():
        if b.constant and b.name not in inputs and b.view is None:
            raise ProgramError(
                f"{b.name} is constant, but not an input: a block writes it, or it is an intermediate",
                f"remove `const` from `{b.name}`",
            )
    for b in buffers.values():
        if b.updates and (reason := update_fault(b, program.params, inputs)):
            raise ProgramError(reason, f"remove `updates {b.updates}` from `{b.name}`")
    seen: set[str] = set()
    for around, s in walk(program.body):
        name = s.var if isinstance(s, For) else s.name
        if name in seen or name in open_names:
            raise ProgramError(f"the name {name!r} is used by two loops or blocks")
        seen.add(name)
        scope: UsableNames = dims | {loop.var for loop in around}
        if isinstance(s, For):
            if not s.body:
                raise ProgramError(f"loop {name} has no body")
            if s.var in buffers:
                raise ProgramError(f"loop {name} has the name of a buffer")
            if (s.kind is LoopKind.BOUND) != (s.axis is not None):
                raise ProgramError(f"loop {name} is {s.kind}, its axis is {s.axis}")
            _index(s.extent, dims, f"extent of loop {name}")
            if s.kind is LoopKind.PIPELINED and pipeline(s) is None:
                raise ProgramError(
                    f"loop {name} is pipelined, but has no stage and place in the order for each statement",
                    "write the loop without `pipelined`, and pipeline it by a step: `software_pipeline(…)`",
                )
            inside = bool(around) and around[-1].kind is LoopKind.TENSORIZED
            if s.kind is LoopKind.TENSORIZED and not inside and intrinsic_of(program, s) is None:
                raise ProgramError(
                    f"loop {name} is tensorized, but names no intrinsic of this file or of one that it uses",
                    'import the intrinsic with `use`, and name it: `@("intrinsic", "NAME")`',
                )
        else:
            _block(s, around, scope, program)
    if problem := axis_problem(program):
        raise ProgramError(f"loop {problem.loop} cannot be bound as it is: {problem.reason}", problem.repair)


def _cases(program: Program) -> None:
    """Check the cases of a divided program: each is the program for its sizes, and together they have all sizes."""
    names = program.divided_by
    if program.buffers or program.body:
        raise ProgramError(f"program {program.name} is divided by sizes: its cases have its buffers and its loops")
    if not {*names} <= {d.name for d in program.dims} or len({*names}) < len(names):
        raise ProgramError(
            f"program {program.name} is divided by {', '.join(names)}, which are not different open sizes"
        )
    plain = replace(program, divided_by=(), cases=())
    limits = whole(program.dims, names)
    for case in program.cases:
        said = described(names, case.sizes)
        if common(case.sizes, limits) != case.sizes:
            raise ProgramError(f"program {program.name} has no sizes {said}")
        if narrowed(plain, names, case.sizes).params != case.program.params:
            raise ProgramError(f"the case {said} has other arguments than program {program.name}")
        verify(case.program)
        if [p.name for p in case.program.outputs] != [p.name for p in program.outputs]:
            raise ProgramError(f"the case {said} does not write what the first case writes")
    if (left := uncovered(program)) is not None:
        repair = f"add a case, `{', '.join('_' * len(names))} => {{ … }}`"
        raise ProgramError(f"no case of program {program.name} has {described(names, left)}", repair)


def update_fault(b: Buffer, params: Sequence[Buffer], inputs: Collection[str]) -> str:
    """Why an output cannot be in the memory of the input that it names; empty if it can."""
    read = {p.name: p for p in params if p.name in inputs}.get(b.updates)
    if b.name in inputs or all(p.name != b.name for p in params):
        return f"{b.name} is no output, and outputs alone update an input"
    if read is None:
        return f"{b.name} updates {b.updates}, which is no input"
    if read.constant:
        return f"{b.name} updates {read.name}, which is constant"
    if (read.dtype, *read.described) != (b.dtype, *b.described):
        return f"{b.name} updates {read.name}, which has another type, shape or strides"
    if any(p.updates == read.name and p.name != b.name for p in params):
        return f"two outputs update {read.name}"
    return ""


def _dims(program: Program, buffers: Collection[str]) -> UsableNames:
    """The open dimensions of the program, checked, as a scope."""
    names: set[str] = set()
    for d in program.dims:
        if d.name in names or d.name in buffers:
            raise ProgramError(f"program {program.name}: the name of the open dimension {d.name!r} is taken")
        names.add(d.name)
        if d.low < 0 or (d.low > 0 if d.high is None else d.high < d.low):
            raise ProgramError(f"program {program.name}: {d.name!r} has no sizes from {d.low} to {d.high}")
        if d.weights and len(d.weights) != len(d.at):
            raise ProgramError(f"program {program.name}: {d.name!r} has {len(d.weights)} weights for {len(d.at)} sizes")
        if d.at and (d.high is None or not all(max(d.low, 1) <= n <= d.high for n in d.at)):
            high = "" if d.high is None else f" to {d.high}"
            raise ProgramError(
                f"program {program.name}: {d.name!r} is timed at sizes that it does not have",
                f"write sizes from {max(d.low, 1)}{high} after `at`",
            )
    return set(program.dims)


def _strides(b: Buffer, dims: UsableNames, written: bool) -> None:
    """Check the declared strides: one for each dimension, none negative, and elements that are written apart."""
    for e in b.strides:
        _index(e, dims, f"strides of {b.name}")
        if (n := constant(e)) is not None and n < 0:
            raise ProgramError(f"{b.name} has the stride {n}; strides are not negative")
    if b.strides and len(b.strides) != len(b.shape):
        raise ProgramError(f"{b.name} has {len(b.shape)} dimensions, {len(b.strides)} strides")
    if written:
        try:
            apart(b)
        except ValueError as e:
            raise ProgramError(str(e)) from None


def _block(b: Block, around: tuple[For, ...], scope: UsableNames, program: Program) -> None:
    where = f"block {b.name}"
    names = [it.name for it in b.iters]
    dims: UsableNames = set(program.dims)
    if len({*names, *(d.name for d in program.dims)}) != len(names) + len(program.dims):
        raise ProgramError(f"{where}: two iterators have one name, or one has that of an open dimension")
    for it in b.iters:
        _index(it.extent, dims, f"{where}, extent of {it.name}")
        _index(it.binding, scope, f"{where}, binding of {it.name}")
        if it.name in scope:
            raise ProgramError(f"{where}: iterator {it.name} has the name of a loop around it")
        if it.kind is IterKind.REDUCE:
            apart = LoopKind.BOUND if is_atomic(b) else None
            at_once = [x.var for x in around if x.kind in AT_ONCE and x.kind is not apart]
            if clash := free_vars(it.binding) & set(at_once):
                raise ProgramError(
                    f"{where}: {it.kind} iterator {it.name} runs over parallel loop {min(clash)}",
                    f"write `{min(clash)}` as a plain `for` loop, or bind `{it.name}` to another loop",
                )
    for c in b.where:
        _variables(c, scope, f"{where}, where")
        _without_data(c, f"{where}, where")
        if dtype_of(c) != BOOL:
            raise ProgramError(f"{where}: condition `{format_expr(c)}` is not a bool")
    if not b.body:
        raise ProgramError(f"{where} stores nothing")
    if (reducer := reducer_text(b)) is not None and not is_whole_update(b):
        raise ProgramError(
            f"{where}: its stores are not the update of a reduction by {reducer!r}",
            f'remove the annotation "reducer" of `{b.name}`, or write each store as a call of the reducer',
        )
    if is_atomic(b) and (why := not_atomic(b, order_of(b))) is not None:
        raise ProgramError(
            f"{where} cannot be atomic: it {why.reason}", f'remove the annotation "atomic" of `{b.name}`'
        )
    spatial: UsableNames = dims | {it.name for it in b.iters if it.kind is not IterKind.REDUCE}
    for s in b.init:
        _store(s, spatial, f"{where}, init", program)
    for s in b.body:
        _store(s, dims | set(names), where, program)


def _variables(e: Expr, scope: UsableNames, where: str) -> None:
    match e:
        case Var(name=name):
            if name not in scope:
                raise ProgramError(f"{where}: {name!r} is not bound here")
        case Dim(name=name):
            if e not in scope:
                raise ProgramError(f"{where}: {name!r} is no open dimension of this program, or has another range")
        case _:
            for c in children(e):
                _variables(c, scope, where)


def _index(e: Expr, scope: UsableNames, where: str) -> None:
    """Check an index that must not depend on data."""
    _subscript(e, scope, where)
    _without_data(e, where)


def _without_data(e: Expr, where: str) -> None:
    if read := loads(e):
        raise ProgramError(f"{where}: `{format_expr(e)}` depends on data read from {read[0].buffer}")


def _subscript(e: Expr, scope: UsableNames, where: str) -> None:
    _variables(e, scope, where)
    if dtype_of(e) != INDEX:
        raise ProgramError(f"{where}: `{format_expr(e)}` is {dtype_of(e)}, not an index")


def _store(s: Store, scope: UsableNames, where: str, program: Program) -> None:
    _access(s.buffer, s.indices, scope, where, program)
    for i in s.indices:
        _index(i, scope, f"{where}, subscript of {s.buffer}")
    _variables(s.value, scope, where)
    _value(s.value, scope, where, program)
    want = program.buffer(s.buffer).dtype
    if dtype_of(s.value) != want:
        raise ProgramError(f"{where}: a value of {dtype_of(s.value)} is stored in {s.buffer}, which holds {want}")


def _access(buffer: str, indices: Iterable[Expr], scope: UsableNames, where: str, program: Program) -> None:
    try:
        shape = program.buffer(buffer).shape
    except KeyError:
        raise ProgramError(f"{where}: there is no buffer {buffer!r}") from None
    subscripts = tuple(indices)
    if len(subscripts) != len(shape):
        raise ProgramError(f"{where}: {buffer} has {len(shape)} dimensions, {len(subscripts)} subscripts")
    for i in subscripts:
        _subscript(i, scope, f"{where}, subscript of {buffer}")


def _value(e: Expr, scope: UsableNames, where: str, program: Program) -> None:
    match e:
        case Load(buffer=b, indices=indices, dtype=t):
            _access(b, indices, scope, where, program)
            if program.buffer(b).dtype != t:
                raise ProgramError(f"{where}: {b} is read as {t} but holds {program.buffer(b).dtype}")
        case Binary(lhs=x, rhs=y) | Compare(lhs=x, rhs=y) if dtype_of(x) != dtype_of(y):
            raise ProgramError(f"{where}: `{format_expr(e)}` mixes {dtype_of(x)} and {dtype_of(y)}")
        case Binary(lhs=x) | Compare(lhs=x) if not dtype_of(x).has_arithmetic:
            raise ProgramError(
                f"{where}: `{format_expr(e)}` computes with {dtype_of(x)}, which is stored and converted"
            )
        case Logic(lhs=x, rhs=y) if (dtype_of(x), dtype_of(y)) != (BOOL, BOOL):
            raise ProgramError(f"{where}: `{format_expr(e)}` needs two bools")
        case Not(operand=x) if dtype_of(x) != BOOL:
            raise ProgramError(f"{where}: `{format_expr(e)}` needs a bool")
        case Select(cond=c, then=x, other=y) if dtype_of(c) != BOOL or dtype_of(x) != dtype_of(y):
            raise ProgramError(
                f"{where}: the branches of `{format_expr(e)}` differ in type, or its condition is no bool"
            )
        case Call(function=f, args=args) if len({dtype_of(a) for a in args}) > 1 or not MATHS[f].accepts(
            dtype_of(args[0])
        ):
            raise ProgramError(f"{where}: `{format_expr(e)}` needs {MATHS[f].takes.value}, all of one type")
        case Cast(operand=x, dtype=t) if t == INDEX and not dtype_of(x).is_integer:
            raise ProgramError(f"{where}: `{format_expr(e)}` makes an index of {dtype_of(x)}")
        case Bitcast(operand=x, dtype=t) if not t.has_bits_of(dtype_of(x)):
            raise ProgramError(f"{where}: `{format_expr(e)}` reads bits of {dtype_of(x)} as {t}")
        case Const(value=v, dtype=t) if t.is_integer and not isinstance(v, int):
            raise ProgramError(f"{where}: {v} is not of type {t}")
        case _:
            pass
    for c in children(e):
        _value(c, scope, where, program)

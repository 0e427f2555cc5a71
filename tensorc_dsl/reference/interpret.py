"""Interprets scheduled programs, one scalar at a time: slow and simple, with checks that a kernel does not make.

The program becomes the source text of a Python function over flat lists. Arithmetic is exact or in float64; integers wrap
as their type does. Intermediates and outputs start uninitialised; a buffer that is private to an iteration does so in each
iteration. A read of an uninitialised element, an access out of bounds and an iterator outside its extent raise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, assert_never

import numpy as np

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.annotations import passed_along, pipeline
from tensorc_dsl.ir.arrays import Array, wide_dtype
from tensorc_dsl.ir.dtypes import DTYPES, INDEX, DType, holds, nearest
from tensorc_dsl.ir.expr import (
    ZERO,
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
    conjunction,
    constant,
    dtype_of,
    free_vars,
    loads,
    substitute,
)
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import (
    AT_ONCE,
    Block,
    Buffer,
    For,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    Store,
    is_atomic,
    walk,
)
from tensorc_dsl.ir.reductions import needed_later
from tensorc_dsl.reference.evaluate import bind_inputs, shape_of
from tensorc_dsl.reference.maths import SCALARS

Order = Literal["forward", "reversed", "shuffled", "together"]


class InterpretError(Exception):
    """The program makes an access that is not allowed. The message names the place and the values."""


class Uninitialised(InterpretError):
    """The program reads an element that nothing has written. This is wrong only where a result depends on it."""


FILLS: tuple[tuple[int, float], ...] = ((85, math.nan), (106, -7777.0))
"""What memory may hold, of integers and of floats. A result that differs between the two depends on it."""


def interpret(
    program: Program, inputs: Mapping[str, Array], order: Order = "forward", fill: tuple[int, float] | None = None
) -> dict[str, Array]:
    """The outputs by name, in `wide_dtype` of their types. Raises InterpretError.

    Intermediates and outputs have `fill`, a value of integers and one of floats, before they are written. Without it a read
    of such an element raises Uninitialised.

    `order` is the order of the iterations of parallel, vectorized and bound loops, which have none of their own: a result
    that depends on it is a race. Loops along which blocks pass a value on have one, and keep it. "shuffled" is the same
    shuffle in every run. With "together", all iterations advance in turns, each to its next read or write, and pipelined
    loops run stage by stage.
    """
    program = resolved(program)
    memory: dict[str, list[Any]] = {name: a.reshape(-1).tolist() for name, a in bind_inputs(program, inputs).items()}
    for b in (*program.params, *program.buffers):
        memory.setdefault(b.name, [_unset(b, fill)] * math.prod(shape_of(b)))
    run = _compile(source(program, order == "together", fill))
    for _ in run(memory, _orders(order)) or ():
        pass
    out: dict[str, Array] = {}
    for p in program.outputs:
        values = memory[p.name]
        if None in values:
            raise InterpretError(f"{_element(p, values.index(None))} is never written")
        out[p.name] = np.array(values, wide_dtype(p.dtype)).reshape(shape_of(p))
    return out


def _orders(order: Order) -> Callable[[int], Iterable[int]]:
    match order:
        case "forward" | "together":
            return range
        case "reversed":
            return lambda n: range(n - 1, -1, -1)
        case "shuffled":
            rng = random.Random(0)
            return lambda n: rng.sample(range(n), n)
        case _:
            assert_never(order)


def _unset(b: Buffer, fill: tuple[int, float] | None) -> float | None:
    """The value of an element that nothing has written."""
    if fill is None:
        return None
    return nearest(fill[1], b.dtype) if b.dtype.is_float else fill[0] if b.dtype.is_integer else fill[0] % 2 == 1


def _element(b: Buffer, offset: int) -> str:
    return f"{b.name}[{', '.join(map(str, map(int, np.unravel_index(offset, shape_of(b)))))}]"


def _compile(text: str) -> Callable[[dict[str, list[Any]], Callable[[int], Iterable[int]]], Iterable[None] | None]:
    space: dict[str, Any] = dict(_LIBRARY)
    exec(compile(text, "<program>", "exec"), space)  # the text is generated below and uses only its own names
    return space["run"]


def source(program: Program, together: bool = False, fill: tuple[int, float] | None = None) -> str:
    """The text of the Python function `run(memory, order)`; with `together` it is a generator, for iterations in turns."""
    return _Writer(replace(program, body=_begun(program.body, frozenset())), together, fill).text()


def _begun(body: tuple[Stmt, ...], outer: frozenset[str]) -> tuple[Stmt, ...]:
    """The statements with the `init` of each reduction that has no steps before the outermost loop that counts it, in the
    loops below that count elements. No instance of such a block runs.
    """
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, For):
            for around, b in walk((s,)):
                counting = _counting_nothing(b) if isinstance(b, Block) and b.init else frozenset[str]()
                if isinstance(b, Block) and s.var in counting and counting.isdisjoint(outer):
                    zero: dict[str, Expr] = dict.fromkeys(counting, ZERO)
                    places = (it for it in b.iters if it.kind is not IterKind.REDUCE)
                    iters = tuple(replace(it, binding=substitute(it.binding, zero)) for it in places)
                    where = tuple(c for c in b.where if free_vars(c).isdisjoint(counting))
                    nest: Stmt = replace(b, iters=iters, body=b.init, init=(), where=where)
                    for x in reversed(around):
                        nest = nest if x.var in counting else replace(x, body=(nest,))
                    out.append(nest)
            s = replace(s, body=_begun(s.body, outer | {s.var}))
        out.append(s)
    return tuple(out)


def _counting_nothing(b: Block) -> frozenset[str]:
    """The loops that count a reduction without steps; none if it has steps."""
    steps = [it for it in b.iters if it.kind is IterKind.REDUCE]
    if all(constant(it.extent) != 0 for it in steps):
        return frozenset()
    return frozenset[str]().union(*(free_vars(it.binding) for it in steps))


class _Writer:
    def __init__(self, program: Program, together: bool, fill: tuple[int, float] | None) -> None:
        self.program = program
        self.unset = {b.name: _literal(_unset(b, fill)) for b in program.buffers}
        self.together = together
        self.lines: list[str] = []
        self.temporaries = 0
        self.nesting = 0
        self.arrays = {b.name: f"m{k}" for k, b in enumerate((*program.params, *program.buffers))}
        self.shapes = {b.name: shape_of(b) for b in (*program.params, *program.buffers)}
        self.names: dict[str, str] = {}
        self.private = self._private()

    def text(self) -> str:
        self.lines = ["def run(memory, order):"]
        self.lines += [f"    {m} = memory[{name!r}]" for name, m in self.arrays.items()]
        self._reset(None, 1)
        self._body(self.program.body, 1)
        return "\n".join([*self.lines, "    yield" if self.together else "    return", ""])

    def _private(self) -> dict[str | None, list[str]]:
        """For each loop (None: the whole program) the buffers that are private to one of its iterations.

        A buffer that is not global lives in one iteration of the innermost loop around all its uses. If these are one block
        that reduces, the loop is around all of its steps.
        """
        around: dict[str, list[tuple[str, ...]]] = {}
        steps: dict[str, set[str]] = {}
        for loops, s in walk(self.program.body):
            if isinstance(s, Block):
                used = {x.buffer for st in (*s.init, *s.body) for i in (*st.indices, st.value) for x in loads(i)}
                for name in used | {st.buffer for st in (*s.init, *s.body)}:
                    around.setdefault(name, []).append(tuple(loop.var for loop in loops))
                    steps[name] = {v for i in s.iters if i.kind is IterKind.REDUCE for v in free_vars(i.binding)}
        out: dict[str | None, list[str]] = {}
        for b in self.program.buffers:
            if b.scope != "global" and b.name in around:
                inner = [v for v in around[b.name][0] if all(v in path for path in around[b.name])]
                if len(around[b.name]) == 1:
                    inner = inner[: next((n for n, v in enumerate(inner) if v in steps[b.name]), len(inner))]
                out.setdefault(inner[-1] if inner else None, []).append(b.name)
        return out

    def _line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def _variable(self, name: str) -> str:
        return self.names.setdefault(name, f"x{len(self.names)}")

    def _temporary(self) -> str:
        self.temporaries += 1
        return f"t{self.temporaries}"

    def _reset(self, loop: str | None, depth: int) -> None:
        for name in self.private.get(loop, ()):
            # Iterations in turns have memory of their own: local variables of their function.
            every = "" if self.together else "[:]"
            self._line(depth, f"{self.arrays[name]}{every} = [{self.unset[name]}] * {math.prod(self.shapes[name])}")

    def _body(self, body: tuple[Stmt, ...], depth: int) -> None:
        for s in body:
            if isinstance(s, Block):
                self._block(s, depth)
            else:
                self._loop(s, depth)

    def _loop(self, s: For, depth: int) -> None:
        at_once = s.kind in AT_ONCE and not passed_along(s)
        if self.together and at_once:
            self._in_turns(s, depth)
            return
        if self.together and s.kind is LoopKind.PIPELINED and (stages := pipeline(s)) is not None:
            self._in_stages(s, *stages, depth)
            return
        # Python allows 20 nested loops in one function; a deeper nest continues in a function of its own.
        self.nesting += 1
        function = f"go{len(self.lines)}" if self.nesting % 16 == 0 else None
        outer = depth
        if function is not None:
            self._line(depth, f"def {function}():")
            depth += 1
        order = "order" if at_once else "range"
        self._line(depth, f"for {self._variable(s.var)} in {order}({self._expr(s.extent)}):")
        self._reset(s.var, depth + 1)
        self._body(s.body, depth + 1)
        if function is not None:
            self._line(outer, f"yield from {function}()" if self.together else f"{function}()")
        self.nesting -= 1

    def _in_turns(self, s: For, depth: int) -> None:
        function = f"go{len(self.lines)}"
        self._line(depth, f"def {function}({self._variable(s.var)}):")
        self._reset(s.var, depth + 1)
        self._body(s.body, depth + 1)
        self._line(depth + 1, "yield")
        self._line(depth, f"yield from in_turns([{function}(i) for i in range({self._expr(s.extent)})])")

    def _in_stages(self, s: For, stages: tuple[int, ...], order: tuple[int, ...], depth: int) -> None:
        function = f"go{len(self.lines)}"
        self._line(depth, f"def {function}({self._variable(s.var)}):")
        self._reset(s.var, depth + 1)
        for k, inner in enumerate(s.body):
            self._line(depth + 1, f"def s{k}():")
            self._body((inner,), depth + 2)
            self._line(depth + 2, "yield")
        self._line(depth + 1, f"return [{', '.join(f's{k}' for k in range(len(s.body)))}]")
        parts = f"[{function}(i) for i in range({self._expr(s.extent)})]"
        self._line(depth, f"yield from in_stages({parts}, {stages!r}, {order!r})")

    def _block(self, b: Block, depth: int) -> None:
        where = conjunction(b.where)
        if where is not None:
            self._line(depth, f"if {self._expr(where)}:")
            depth += 1
        # Iterators are local to their block: they must not overwrite iterators of another block with the same names.
        outer = dict(self.names)
        bindings = [self._expr(it.binding) for it in b.iters]
        for it in b.iters:
            self.names[it.name] = self._temporary()
        for it, value in zip(b.iters, bindings, strict=True):
            v = self.names[it.name]
            self._line(depth, f"{v} = {value}")
            self._line(depth, f"if not 0 <= {v} < {self._expr(it.extent)}:")
            self._line(depth + 1, f"outside({f'iterator {it.name} of block {b.name}'!r}, {v}, {self._expr(it.extent)})")
        if b.init:
            first = " and ".join(f"{self.names[it.name]} == 0" for it in b.iters if it.kind is IterKind.REDUCE)
            self._line(depth, f"if {first or 'True'}:")
            self._stores(b.init, b, depth + 1)
        self._stores(b.body, b, depth, at_once=bool(needed_later(b)))
        self.names = outer

    def _stores(self, stores: Sequence[Store], b: Block, depth: int, *, at_once: bool = False) -> None:
        """The stores in their order, each value computed before it, or all before the first if they are `at_once`."""
        for some in [stores] if at_once else [[s] for s in stores]:
            values = [self._temporary() for _ in some]
            for s, value in zip(some, values, strict=True):
                self._line(depth, f"{value} = {self._expr(s.value)}")
            if self.together and not is_atomic(b):
                self._line(depth, "yield")
            for s, value in zip(some, values, strict=True):
                self._line(depth, f"{self.arrays[s.buffer]}[{self._offset(s.buffer, s.indices)}] = {value}")
                if self.together:
                    self._line(depth, "yield")

    def _offset(self, buffer: str, indices: tuple[Expr, ...]) -> str:
        """The flat position of an element, as text with a check of each subscript."""
        shape = self.shapes[buffer]
        parts: list[str] = []
        for k, (i, extent) in enumerate(zip(indices, shape, strict=True)):
            t = self._temporary()
            what = f"subscript {k + 1} of {buffer}, `{format_expr(i)}`,"
            checked = f"({t} if 0 <= ({t} := {self._expr(i)}) < {extent} else outside({what!r}, {t}, {extent}))"
            parts.append(f"{checked} * {math.prod(shape[k + 1 :])}")
        return " + ".join(parts) or "0"

    def _expr(self, e: Expr) -> str:
        match e:
            case Const(value=value, dtype=t):
                value = nearest(value, t) if t.is_float else value
                return f"({_literal(value)})"
            case Var(name=name):
                return self.names[name]
            case Dim(name=name):
                raise InterpretError(f"the dimension {name} is open: `ir.sizes.bind` gives it a size")
            case Binary(op=op, lhs=a, rhs=b):
                return self._binary(op, self._expr(a), self._expr(b), dtype_of(a))
            case Compare(op=op, lhs=a, rhs=b) | Logic(op=op, lhs=a, rhs=b):
                return f"({self._expr(a)} {op} {self._expr(b)})"
            case Not(operand=a):
                return f"(not {self._expr(a)})"
            case Select(cond=c, then=a, other=b):
                return f"({self._expr(a)} if {self._expr(c)} else {self._expr(b)})"
            case Cast(operand=a, dtype=t):
                return _converted(self._expr(a), dtype_of(a), t)
            case Bitcast(operand=a, dtype=t):
                x, old = self._expr(a), dtype_of(a)
                return f"code_of({x}, {old})" if old.is_float else f"value_of({x}, {t})"
            case Call(function=f, args=args):
                t, given = dtype_of(args[0]), ", ".join(map(self._expr, args))
                text = f"call_{f}({given})" if t.is_float else f"whole_{f}({t}, {given})"
                return text if dtype_of(e) == INDEX else _wrapped(text, dtype_of(e))
            case Load(buffer=name, indices=indices):
                t, at = self._temporary(), self._temporary()
                element = f"{self.arrays[name]}[({at} := {self._offset(name, indices)})]"
                return f"({t} if ({t} := {element}) is not None else unwritten({name!r}, {self.shapes[name]!r}, {at}))"
            case _:
                assert_never(e)

    def _binary(self, op: str, a: str, b: str, t: DType) -> str:
        if op in ("min", "max"):
            return f"{op}_float({a}, {b})" if t.is_float else f"{op}({a}, {b})"
        if op == "xor":
            return f"({a} ^ {b})"
        if t.is_float:
            return f"divide({a}, {b})" if op == "/" else f"modulo({a}, {b})" if op == "%" else f"({a} {op} {b})"
        text = f"({a} {'//' if op == '/' else op} {b})"
        if op in ("/", "%"):  # division by 0 gives 0
            d = self._temporary()
            text = f"({a} {'//' if op == '/' else op} {d} if ({d} := {b}) else 0)"
        return text if t == INDEX else _wrapped(text, t)


def _literal(value: float | None) -> str:
    return repr(value) if value is None or math.isfinite(value) else f"float({str(value)!r})"


def _wrapped(text: str, t: DType) -> str:
    if not t.is_integer:
        return text
    if t.kind == "uint":
        return f"({text} & {2**t.bits - 1})"
    half = 2 ** (t.bits - 1)
    return f"((({text} + {half}) & {2**t.bits - 1}) - {half})"


def _converted(text: str, old: DType, new: DType) -> str:
    if new.kind == "bool":
        return f"({text} != 0)"
    if new.is_float:
        return f"float({text})" if holds(new, old) or new.bits == 64 else f"nearest({text}, {new})"
    return f"truncated({text}, {new})" if old.is_float else _wrapped(f"int({text})", new)


# --- what the generated text calls -----------------------------------------------------------------------------------


def _outside(what: str, value: int, extent: int) -> NoReturn:
    raise InterpretError(f"{what} is {value}, outside 0 .. {extent - 1}")


def _unwritten(name: str, shape: tuple[int, ...], offset: int) -> NoReturn:
    at = ", ".join(map(str, map(int, np.unravel_index(offset, shape)))) if shape else ""
    raise Uninitialised(f"{name}[{at}] is read before it is written")


def _in_turns(iterations: list[Iterator[None]]) -> Iterator[None]:
    """Run all iterations together: each advances by one step, again and again."""
    while iterations:
        iterations = [i for i in iterations if next(i, _DONE) is not _DONE]
        yield


def _in_stages(
    iterations: list[list[Callable[[], Iterator[None]]]], stages: tuple[int, ...], order: tuple[int, ...]
) -> Iterator[None]:
    """Run a pipeline round by round: in each round every statement runs for the iteration that has reached its stage."""
    statements = sorted(range(len(order)), key=order.__getitem__)
    for turn in range(len(iterations) + max(stages)):
        for k in statements:
            if 0 <= turn - stages[k] < len(iterations):
                yield from iterations[turn - stages[k]][k]()


_DONE = object()

_LIBRARY: dict[str, Any] = {
    "in_turns": _in_turns,
    "in_stages": _in_stages,
    "outside": _outside,
    "unwritten": _unwritten,
    **{t.name: t for t in (*DTYPES.values(), INDEX)},
    **SCALARS,
}

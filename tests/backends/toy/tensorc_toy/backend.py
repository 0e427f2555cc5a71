"""Generates C text for elementwise programs of f32, and compiles it with the system's compiler."""

from __future__ import annotations

import ctypes
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.backend.protocol import (
    Backend,
    Code,
    CompiledKernel,
    CompileError,
    Form,
    LoweredKernel,
    Processor,
    Registers,
)
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import Binary, Call, Compare, Const, Expr, Load, Logic, Not, Select, Var, constant, dtype_of
from tensorc_dsl.ir.program import Program, Store, blocks
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Flat, If, Kernel, Loop, LowerError, Parallel, Param, format_kernel
from tensorc_dsl.lower.lower import COMMON, lower, lower_until
from tensorc_dsl.processes.start import Limits, run_executable
from tensorc_dsl.reference.work import Work

COMPILER = "cc"
SECONDS = 60.0


@problem("TOY1", "C has no CPU `{cpu}`", help="leave it out: the compiler makes code for the machine it is on")
def NO_CPU(*, cpu: str) -> None: ...
@problem("TOY2", "`{task}` needs the C compiler `{compiler}`, which is not installed")
def NO_COMPILER(*, task: str, compiler: str) -> None: ...


_FUNCTIONS = {"exp": "expf", "sqrt": "sqrtf", "tanh": "tanhf", "abs": "fabsf"}
_WORDS = {"and": "&&", "or": "||"}

_HEAD = """\
#include <math.h>
#include <time.h>
static long down(long a, long b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static long rest(long a, long b) { return a - down(a, b) * b; }
"""

_TIMER = """\
void timed(void **arrays, double *seconds, long repeats) {
    for (long n = 0; n < repeats; n++) {
        struct timespec before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        kernel(arrays);
        clock_gettime(CLOCK_MONOTONIC, &after);
        seconds[n] = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    }
}
"""


def _expr(e: Expr) -> str:
    match e:
        case Const(value=value, dtype=t) if t == F32:
            special = {math.inf: "INFINITY", -math.inf: "-INFINITY"}.get(value, "NAN" if value != value else "")
            return special or f"{float(value)!r}f"
        case Const(value=value):
            return str(int(value))
        case Var(name=name):
            return f"v_{name}"
        case Load(buffer=buffer, indices=(index,)) if e.dtype == F32:
            return f"v_{buffer}[{_expr(index)}]"
        case Binary(op="/" | "%" as op, lhs=lhs, rhs=rhs) if not dtype_of(lhs).is_float:
            return f"{'down' if op == '/' else 'rest'}({_expr(lhs)}, {_expr(rhs)})"
        case Binary(op="+" | "-" | "*" | "/" as op, lhs=lhs, rhs=rhs) | Compare(op=op, lhs=lhs, rhs=rhs):
            return f"({_expr(lhs)} {op} {_expr(rhs)})"
        case Logic(op=op, lhs=lhs, rhs=rhs):
            return f"({_expr(lhs)} {_WORDS[op]} {_expr(rhs)})"
        case Not(operand=x):
            return f"!{_expr(x)}"
        case Select(cond=cond, then=then, other=other):
            return f"({_expr(cond)} ? {_expr(then)} : {_expr(other)})"
        case Call(function=name, args=(x,)) if name in _FUNCTIONS and dtype_of(x) == F32:
            return f"{_FUNCTIONS[name]}({_expr(x)})"
        case _:
            raise LowerError(f"the toy has no C for {type(e).__name__}")


def _loop(var: str, begin: Expr, end: Expr, inner: list[str]) -> list[str]:
    head = f"for (long v_{var} = {_expr(begin)}; v_{var} < {_expr(end)}; v_{var}++) {{"
    return [head, *(f"    {line}" for line in inner), "}"]


def _lines(body: tuple[Flat, ...]) -> list[str]:
    out: list[str] = []
    for s in body:
        match s:
            case Store(buffer=buffer, indices=(index,), value=value):
                out.append(f"v_{buffer}[{_expr(index)}] = {_expr(value)};")
            case Loop():
                out += _loop(s.var, s.begin, s.end, _lines(s.body))
            case Parallel():
                inner = _lines(s.body)
                for var, extent in reversed(list(zip(s.vars, s.extents, strict=True))):
                    inner = _loop(var, Const(0, dtype_of(extent)), extent, inner)
                out += inner
            case If(cond=cond, body=inside):
                out += [f"if ({_expr(cond)}) {{", *(f"    {line}" for line in _lines(inside)), "}"]
            case _:
                raise LowerError(f"the toy takes no {type(s).__name__}")
    return out


def c_text(k: Kernel) -> str:
    """The kernel as one file of C. LowerError for what the toy has no C for."""
    arrays = [f"    float *v_{p.name} = arrays[{n}];" for n, p in enumerate(k.params)]
    lines = [*arrays, *(f"    {line}" for line in _lines(k.body))]
    return "\n".join([f"{_HEAD}void kernel(void **arrays) {{", *lines, "}", _TIMER])


@dataclass(frozen=True, slots=True)
class ToyKernel:
    """Its code is C, which is compiled when it is loaded."""

    c: str

    @property
    def code(self) -> Code:
        return Code(self.c.encode(), "kernel", frozenset())

    def view(self, stage: str) -> str:
        return self.c

    def make(self, form: str) -> bytes:
        return self.c.encode()


class ToyLoaded:
    """A kernel of this process, called with its inputs, or with these and the outputs."""

    def __init__(self, library: ctypes.CDLL, params: tuple[Param, ...]) -> None:
        self._library = library
        self.params = params

    def _arguments(self, arrays: Sequence[Any]) -> ctypes.Array[ctypes.c_void_p]:
        for p, a in zip(self.params, arrays, strict=True):
            shape = tuple(map(constant, p.shape))
            if a.shape != shape or a.dtype != np.float32 or not a.flags.c_contiguous:
                raise ValueError(f"`{p.name}` is a dense array of f32{list(shape)}")
        return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))

    def _whole(self, arrays: Sequence[Any]) -> list[Any]:
        if len(arrays) == len(self.params):
            return list(arrays)
        given = iter(arrays)
        made = [np.empty([constant(n) or 0 for n in p.shape], np.float32) if p.output else None for p in self.params]
        return [next(given) if a is None else a for a in made]

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        whole = self._whole((*arrays, *(named[p.name] for p in self.params if p.name in named)))
        self._library.kernel(self._arguments(whole))
        outs = tuple(a for a, p in zip(whole, self.params, strict=True) if p.output)
        return outs[0] if len(outs) == 1 else outs

    def time(self, arrays: Sequence[Any], repeats: int) -> list[float]:
        seconds = (ctypes.c_double * repeats)()
        self._library.timed(self._arguments(arrays), seconds, ctypes.c_long(repeats))
        return list(seconds)

    def bind(self, /, **constants: Any) -> ToyLoaded:
        if constants:
            raise ValueError("the kernel has no constant inputs")
        return self


@dataclass(frozen=True, slots=True)
class ToyBackend:
    """C, through the system's compiler."""

    @property
    def passes(self) -> tuple[str, ...]:
        return tuple(p.name for p in COMMON)

    @property
    def stages(self) -> Mapping[str, str]:
        return {"c": "their C text"}

    @property
    def forms(self) -> Mapping[str, Form]:
        return {"c": Form(".c", True, "the C text", usual=True)}

    def processor(self) -> Processor:
        return Processor("generic", "", 64, "")

    def require_known(self, target: Target) -> None:
        if target.cpu != "generic":
            raise TschedError(NO_CPU(None, cpu=target.cpu))

    def require_here(self, target: Target, task: str) -> None:
        if shutil.which(COMPILER) is None:
            raise TschedError(NO_COMPILER(None, task=task, compiler=COMPILER))

    def with_cpu(self, target: Target, cpu: str) -> Target:
        raise TschedError(NO_CPU(None, cpu=cpu))

    def describe_processors(self, target: Target) -> str:
        return "generic\n"

    def lower(self, program: Program, target: Target) -> Kernel:
        if any(b.is_reduction for b in blocks(program)):
            raise LowerError("the toy has no reductions")
        if program.dims or any(p.constant or p.dtype != F32 for p in program.params):
            raise LowerError("the toy has arrays of f32 and of fixed sizes only")
        kernel = lower(program, COMMON)
        c_text(kernel)
        return kernel

    def text(self, lowered: LoweredKernel) -> str:
        assert isinstance(lowered, Kernel)
        return format_kernel(lowered)

    def key(self, lowered: LoweredKernel) -> str:
        return self.text(lowered)

    def text_after(self, program: Program, target: Target, last: str) -> str:
        return lower_until(program, COMMON, last)

    def compile(self, lowered: LoweredKernel, target: Target, threads: int) -> ToyKernel:
        assert isinstance(lowered, Kernel)
        return ToyKernel(c_text(lowered))

    def emulate(self, lowered: LoweredKernel) -> None:
        return None

    def explain(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int], *, brief: bool = False) -> str:
        return ""

    def constants(self, target: Target, *, measure: bool = False) -> Mapping[str, float]:
        return {}

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def features(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int]) -> tuple[float, ...]:
        return ()

    def registers(self, compiled: CompiledKernel) -> Registers:
        return Registers()

    def cycles(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int], registers: Registers) -> None:
        return None

    def load(self, code: Code, program: Program, threads: int) -> ToyLoaded:
        params = tuple(Param(p.name, p.dtype, p.shape, p in program.outputs) for p in program.params)
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder, "kernel.c"), Path(folder, "kernel.so")
            source.write_bytes(code.object_code)
            ended = run_executable(
                [COMPILER, "-O2", "-shared", "-fPIC", "-o", str(made), str(source), "-lm"], Limits(SECONDS)
            )
            if ended.returncode:
                raise CompileError(f"{COMPILER} does not take the text: {ended.stderr}")
            return ToyLoaded(ctypes.CDLL(str(made)), params)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return aligned_empty(shape, dtype)

    def library(self, compiled: CompiledKernel, name: str, origin: str) -> ToyKernel:
        assert isinstance(compiled, ToyKernel)
        return compiled

    def multipliers(self, work: Work, target: Target) -> tuple[str, ...]:
        return ()

    def peak(self, title: str, target: Target, threads: int) -> float:
        raise KeyError(title)

    def bandwidth(self, target: Target, threads: int, size: int) -> float:
        return 1e12


BACKEND: Backend = ToyBackend()

"""Expressions of kernels as CUDA C++, for `view`."""

from __future__ import annotations

import math
from typing import assert_never

from tensorc_dsl.backend.cuda.codegen.view_maths import call_text
from tensorc_dsl.backend.cuda.lower.kernels import BLOCK_AXES, THREAD
from tensorc_dsl.backend.llvm.ahead.interface import argument_name
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.ir.dtypes import INDEX, DType
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
    constant,
    dtype_of,
)
from tensorc_dsl.ir.maths import CONDITIONS

TYPES = {
    "f8e4m3": "__nv_fp8_e4m3", "f8e5m2": "__nv_fp8_e5m2",
    "f16": "__half", "bf16": "__nv_bfloat16", "f32": "float", "f64": "double", "bool": "bool", "index": "long long",
    "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
    "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned",
    "u64": "unsigned long long",
}  # fmt: skip

AXES = {THREAD: ("thread_", "threadIdx.x")} | {
    name: (f"block_{name[-1]}_", f"blockIdx.{name[-1]}") for name in BLOCK_AXES
}
"""The names of axes in the text, and CUDA's."""


def c_name(name: str) -> str:
    """A name of the program in C. `x.1`, as names of pieces are, must not become `x_1`, which another one may have."""
    return f"{name.replace('_', '__').replace('.', '_0')}_" if "." in name else argument_name(name)


def value(e: Expr) -> str:
    """An expression. Those with operators are in parentheses, unless they are a subscript or an argument alone."""
    text = text_of(e)
    return text[1:-1] if isinstance(e, Binary | Compare | Logic) and text.startswith("(") else text


def text_of(e: Expr) -> str:
    match e:
        case Const(value=v, dtype=t):
            return _number(v, t)
        case Var(name=name):
            return AXES[name][0] if name in AXES else c_name(name)
        case Dim(name=name):
            return c_name(name)
        case Binary(op=op, lhs=a, rhs=b):
            return _binary(op, a, b)
        case Compare(op=op, lhs=a, rhs=b):
            return f"({text_of(a)} {op} {text_of(b)})"
        case Logic(op=op, lhs=a, rhs=b):
            return f"({text_of(a)} {'&&' if op == 'and' else '||'} {text_of(b)})"
        case Not(operand=a):
            return f"!{text_of(a)}"
        case Select(cond=cond, then=a, other=b):
            return f"({text_of(cond)} ? {text_of(a)} : {text_of(b)})"
        case Cast(operand=a, dtype=t):
            return _cast(a, t)
        case Bitcast(operand=a, dtype=t):
            return f"bitcast<{TYPES[t.name]}>(({TYPES[dtype_of(a).name]}){text_of(a)})"
        case Call(function=f, args=args):
            return _call(f, args)
        case Load(buffer=b, indices=(at,)):
            return f"{c_name(b)}[{value(at)}]"
        case Load():
            raise TypeError("a flat load has one subscript")
        case _:
            assert_never(e)


def _binary(op: str, a: Expr, b: Expr) -> str:
    x, y, t = text_of(a), text_of(b), dtype_of(a)
    if op in ("min", "max"):
        return f"{'least' if op == 'min' else 'most'}({_argument(a)}, {_argument(b)})"
    if op in ("/", "%") and not t.is_float and not _rounds_down(a, b):
        return f"{'quotient' if op == '/' else 'remainder_'}({_argument(a)}, {_argument(b)})"
    if op == "%" and t.is_float:
        raise CompileError("the view in CUDA C++ has no words for `%` of floats; see its PTX")
    result = f"({x} {'^' if op == 'xor' else op} {y})"
    # C computes in int what is narrower.
    return f"({TYPES[t.name]}){result}" if t.is_integer and t.bits < 32 else result


def _argument(e: Expr) -> str:
    """An argument of a template, whose type must be that of the other one."""
    return f"{e.value}LL" if isinstance(e, Const) and e.dtype == INDEX else value(e)


def _rounds_down(a: Expr, b: Expr) -> bool:
    """Whether C's division does: of an axis or an unsigned number, by a positive one."""
    if dtype_of(a).kind == "uint":
        return True
    return isinstance(a, Var) and a.name in AXES and (constant(b) or 0) > 0


def _cast(a: Expr, t: DType) -> str:
    x, of = text_of(a), dtype_of(a)
    if t.kind == "bool":
        return f"({x} != 0)"
    half = of.is_float and of.bits <= 16
    if not t.has_arithmetic:
        return f"{t.name[2:]}({'(float)' * half}{x})"
    return f"({TYPES[t.name]})" + (f"(float){x}" if half and t.name != "f32" else x)


def _call(f: str, args: tuple[Expr, ...]) -> str:
    t = dtype_of(args[0])
    half = t.is_float and t.bits == 16
    found = call_text(f, [f"(float){text_of(a)}" if half else value(a) for a in args], t, TYPES[t.name])
    return f"({TYPES[t.name]}){found}" if half and f not in CONDITIONS else found


def _number(number: float, t: DType) -> str:
    if t.kind == "bool":
        return "true" if number else "false"
    if not t.is_float:
        if t in (INDEX,) or t.bits < 32:
            return f"{number}" if t == INDEX else f"({TYPES[t.name]}){number}"
        return f"{number}{'u' * (t.kind == 'uint')}{'LL' * (t.bits == 64)}"
    if math.isnan(number):
        text = "NAN"
    elif math.isinf(number):
        text = "INFINITY" if number > 0 else "(-INFINITY)"
    else:
        text = f"{number!r}" + "f" * (t.bits < 64)
    if not t.has_arithmetic:
        return f"{t.name[2:]}({text})"
    return f"({TYPES[t.name]}){text}" if t.bits == 16 else text

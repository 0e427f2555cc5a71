"""Kernels as CUDA C++, for people to read: the same statements as in the LLVM code, before either is optimised.

Nothing is compiled from this text. It is complete, so that a compiler of NVIDIA's can be tried on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import assert_never

from tensorc_dsl.backend.cuda.codegen.assembly import CONSTRAINTS, assembly_text, kind_of
from tensorc_dsl.backend.cuda.codegen.view_maths import call_text, written
from tensorc_dsl.backend.cuda.lower.collectives import Access, address_of, element_of, operands_of, register_of
from tensorc_dsl.backend.cuda.lower.kernels import (
    ALIGNMENT,
    BLOCK_AXES,
    THREAD,
    ArriveMbarrier,
    Barrier,
    CommitGroup,
    Device,
    DeviceKernel,
    DeviceProgram,
    Guard,
    InitMbarriers,
    LookBack,
    Phase,
    ProxyFence,
    Role,
    Steps,
    Ticket,
    TmaLoad,
    TmaStore,
    WaitGroup,
    WaitMbarrier,
    WaitTmaStores,
    WgmmaFence,
    WgmmaWait,
)
from tensorc_dsl.backend.llvm.ahead.interface import argument_name
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.ir.assembly import Ref, lines_of
from tensorc_dsl.ir.atomics import Change, change_of, is_switch
from tensorc_dsl.ir.dtypes import INDEX, DType
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
    constant,
    dtype_of,
    index,
    loads,
    substitute,
)
from tensorc_dsl.ir.maths import CONDITIONS
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.reductions import fold_of
from tensorc_dsl.ir.warp import LANES
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Loop, Move, Parallel, Shuffle, format_shape

_TYPES = {
    "f8e4m3": "__nv_fp8_e4m3", "f8e5m2": "__nv_fp8_e5m2",
    "f16": "__half", "bf16": "__nv_bfloat16", "f32": "float", "f64": "double", "bool": "bool", "index": "long long",
    "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
    "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned",
    "u64": "unsigned long long",
}  # fmt: skip

_AXES = {THREAD: ("thread_", "threadIdx.x")} | {
    name: (f"block_{name[-1]}_", f"blockIdx.{name[-1]}") for name in BLOCK_AXES
}
"""The names of axes in the text, and CUDA's."""

_HEAD = """\
#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* Division of whole numbers rounds down, and min and max give NaN if one of two is NaN. */
template <class T> __device__ inline T quotient(T a, T b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
template <class T> __device__ inline T remainder_(T a, T b) { return a - quotient(a, b) * b; }
template <class T> __device__ inline T least(T a, T b) { return a != a || a < b ? a : b; }
template <class T> __device__ inline T most(T a, T b) { return a != a || a > b ? a : b; }
"""

_OCTETS = """\
#include <cuda_fp8.h>

/* The nearest value; beyond the largest number infinity, or NaN if there is none. */
template <class T> __device__ inline T octet(double x, __nv_fp8_interpretation_t kind) {
    T y;
    y.__x = __nv_cvt_double_to_fp8(x, __NV_NOSAT, kind);
    return y;
}
__device__ inline __nv_fp8_e4m3 e4m3(double x) { return octet<__nv_fp8_e4m3>(x, __NV_E4M3); }
__device__ inline __nv_fp8_e5m2 e5m2(double x) { return octet<__nv_fp8_e5m2>(x, __NV_E5M2); }
"""
"""What is written if there are floats of 8 bits, whose constructors would keep to finite numbers."""

_BITS = """\
template <class To, class From> __device__ inline To bitcast(From a) { To b; memcpy(&b, &a, sizeof b); return b; }
"""


def cuda_text(p: DeviceProgram) -> str:
    """The kernels as CUDA C++. Raises CompileError for what it has no words for."""
    lines = [line for k in p.kernels for line in (*_kernel(p, k), "")]
    octets = _OCTETS if any(_TYPES[n] in line for n in ("f8e4m3", "f8e5m2") for line in lines) else ""
    bits = _BITS if any("bitcast<" in line for line in lines) else ""
    about = f"/* {p.name}: kernels that run one after the other. */"
    head = [about, octets + _HEAD + bits + "".join(f"{x}\n" for x in written(lines))]
    return "\n".join([*head, *lines])


def _kernel(p: DeviceProgram, k: DeviceKernel) -> Iterator[str]:
    types = {x.name: x.dtype for x in (*p.params, *p.scratch)}
    shapes = {x.name: format_shape(x.shape) for x in p.params}
    grid = ", ".join(_value(n) for n in k.grid)
    yield f"/* On a grid of ({grid}) blocks, with {k.shared_bytes} bytes of dynamic shared memory. */"
    arrays = [
        f"{_TYPES[types[n].name]} *{'' if n in k.written else '__restrict__ '}{c_name(n)} /* {shapes.get(n, 'scratch')} */"
        for n in k.params
    ]
    params = [f"{'' if n in k.written else 'const '}{a}" for n, a in zip(k.params, arrays, strict=True)]
    params += [f"long long {c_name(d.name)}" for d in p.dims]
    yield f'extern "C" __global__ void __launch_bounds__({k.threads}, 1) {k.name}('
    yield from (f"    {x}{',' if n + 1 < len(params) else ''}" for n, x in enumerate(params))
    yield ") {"
    if k.shared:
        yield "    extern __shared__ __align__(128) unsigned char shared_[];"
    for b in k.shared:
        kind = _TYPES[b.dtype.name]
        yield f"    {kind} *{c_name(b.name)} = ({kind} *)(shared_ + {b.offset}); /* {b.size} elements */"
    for b in k.local:
        yield f"    __align__({ALIGNMENT}) {_TYPES[b.dtype.name]} {c_name(b.name)}[{b.size}];"
    body = list(_device(k.body, "    "))
    for name, theirs in _AXES.values():
        if any(name in line for line in body):
            yield f"    const long long {name} = {theirs};"
    yield from body
    yield "}"


def _device(body: tuple[Device, ...], pad: str) -> Iterator[str]:
    for s in body:
        match s:
            case Phase(body=inner, asynchronous=asynchronous):
                # A copy that is made at once is one that lands as early as it may.
                if asynchronous:
                    yield f"{pad}/* cp.async: */"
                yield from _flat(inner, pad)
            case CommitGroup():
                yield f"{pad}/* cp.async.commit_group */"
            case WaitGroup(groups=groups):
                yield f"{pad}/* cp.async.wait_group {groups} */"
            case Barrier():
                yield f"{pad}__syncthreads();"
            case InitMbarriers() | TmaLoad() | WaitMbarrier() | ArriveMbarrier() | Role():
                raise CompileError("the view in CUDA C++ has no words for TMA loads; see its PTX")
            case TmaStore() | WaitTmaStores():
                raise CompileError("the view in CUDA C++ has no words for TMA stores; see its PTX")
            case ProxyFence():
                yield f"{pad}/* fence.proxy.async */"
            case Ticket() | LookBack():
                raise CompileError("the view in CUDA C++ has no words for scans that blocks pass on; see its PTX")
            case WgmmaFence() | WgmmaWait():
                raise CompileError("the view in CUDA C++ has no words for instructions of warpgroups; see its PTX")
            case Steps(var=var, end=end, body=inner):
                yield f"{pad}{_for(var, '0', _value(end))}"
                yield from _device(inner, pad + "    ")
                yield f"{pad}}}"
            case Guard(cond=cond, body=inner):
                yield f"{pad}if ({_value(cond)}) {{"
                yield from _device(inner, pad + "    ")
                yield f"{pad}}}"
            case _:
                assert_never(s)


def _flat(body: tuple[Flat, ...], pad: str) -> Iterator[str]:
    for s in body:
        match s:
            case Store() if s.atomic:
                yield f"{pad}{_update(s)}"
            case Store(buffer=b, indices=(at,), value=e):
                yield f"{pad}{c_name(b)}[{_value(at)}] = {_value(e)};"
            case Store():
                raise TypeError("a flat store has one subscript")
            case Loop(var=var, begin=begin, end=end, kind=kind, body=inner):
                if kind is not LoopKind.SERIAL:
                    yield f"{pad}#pragma unroll{' /* one vector */' * (kind is LoopKind.VECTORIZED)}"
                yield f"{pad}{_for(var, _value(begin), _value(end))}"
                yield from _flat(inner, pad + "    ")
                yield f"{pad}}}"
            case If(cond=cond, body=inner):
                yield f"{pad}if ({_value(cond)}) {{"
                yield from _flat(inner, pad + "    ")
                yield f"{pad}}}"
            case Alloc(name=name, dtype=t, size=size, body=inner):
                yield f"{pad}{{"
                yield f"{pad}    __align__({ALIGNMENT}) {_TYPES[t.name]} {c_name(name)}[{_value(size)}];"
                yield from _flat(inner, pad + "    ")
                yield f"{pad}}}"
            case Collective():
                yield from _assembly(s, pad)
            case Shuffle(move=move, by=by, width=width, body=(Store(buffer=b, indices=(at,), value=e),)):
                group = f", {width}" * (width < LANES)
                given = f"__shfl_{_SHUFFLES[move]}sync(0xffffffffu, {_value(e)}, {by}{group})"
                yield f"{pad}{c_name(b)}[{_value(at)}] = ({_TYPES[dtype_of(e).name]}){given};"
            case Shuffle():
                raise TypeError("a shuffle gives one value")
            case Instruction(intrinsic=i):
                raise CompileError(f"the view in CUDA C++ has no words for the instruction `{i.name}`; see its PTX")
            case Parallel():
                raise TypeError("kernels of GPUs have threads in place of parallel loops")
            case _:
                assert_never(s)


_UPDATES: Mapping[Change, str] = {
    "add": "Add", "fadd": "Add", "min": "Min", "umin": "Min", "max": "Max", "umax": "Max",
}  # fmt: skip
"""What CUDA C++ calls the updates of one number."""


def _update(s: Store) -> str:
    """An atomic store. Raises CompileError if it is a loop that compares and exchanges."""
    fold, change, t = fold_of(s), change_of(s), dtype_of(s.value)
    place = f"&{c_name(s.buffer)}[{_value(s.indices[0])}]"
    if fold is not None and is_switch(s):
        changes = fold.value if fold.op == "or" else Not(fold.value)
        return f"if ({_value(changes)}) *(volatile bool *){place} = {'true' if fold.op == 'or' else 'false'};"
    if fold is None or change is None:
        raise CompileError(f"the view in CUDA C++ has no words for the atomic update of `{s.buffer}`; see its PTX")
    if change == "add" and t.bytes == 8:  # which there is for unsigned numbers, and is the same
        return f"atomicAdd((unsigned long long *){place}, (unsigned long long){_text(fold.value)});"
    return f"atomic{_UPDATES[change]}({place}, {_value(fold.value)});"


_SHUFFLES: Mapping[Move, str] = {"down": "down_", "up": "up_", "xor": "xor_", "lane": ""}

_REGISTERS = {"float": "float", "double": "double", "i32": "unsigned", "i64": "long long"}
"""C's types of registers, by LLVM's."""


def _assembly(s: Collective, pad: str) -> Iterator[str]:
    """An instruction of a warp: a lane's registers are the private elements that they hold."""
    stored, lines = s.intrinsic.store.buffer, lines_of(s.intrinsic, s.code)
    read = {x.buffer for x in loads(s.intrinsic.store.value)}
    registers: dict[str, list[str]] = {}
    inputs: list[tuple[Ref, str]] = []
    outputs: list[tuple[Ref, str]] = []
    for name, a in operands_of(s).items():
        if a.held.addresses:
            for n in range(a.held.addresses):
                place = _place(a, {address_of(name): index(n), element_of(name): ZERO})
                shared = a.held.operand.scope == "shared"
                given = f'"r"((unsigned)__cvta_generic_to_shared({place}))' if shared else f'"l"({place})'
                inputs.append((Ref(name, n), given))
            continue
        kind = kind_of(a.held.operand.dtype)
        first = _place(a, {register_of(a.held.operand.name): ZERO})
        registers[name] = [f"(({_REGISTERS[kind]} *){first})[{n}]" for n in range(a.held.registers)]
        mark = ("+" if name in read else "=") + "&" * (len(lines) > 1) if name == stored else ""
        (outputs if name == stored else inputs).extend(
            (Ref(name, n), f'"{mark}{CONSTRAINTS[kind]}"({r})') for n, r in enumerate(registers[name])
        )
    numbers = {ref: n for n, (ref, _) in enumerate((*outputs, *inputs))}
    text = assembly_text(lines, numbers, registers).replace("%", "%%").replace("$", "%")
    given = (", ".join(x for _, x in some) for some in (outputs, inputs))
    yield f'{pad}asm volatile("{text}" : {" : ".join(given)} : "memory"); /* {s.intrinsic.name} */'


def _place(a: Access, at: dict[str, Expr]) -> str:
    return f"&{c_name(a.buffer)}[{_value(substitute(a.index, at))}]"


def _for(var: str, begin: str, end: str) -> str:
    name = c_name(var)
    return f"for (long long {name} = {begin}; {name} < {end}; ++{name}) {{"


def c_name(name: str) -> str:
    """A name of the program in C. `x.1`, as names of pieces are, must not become `x_1`, which another one may have."""
    return f"{name.replace('_', '__').replace('.', '_0')}_" if "." in name else argument_name(name)


def _value(e: Expr) -> str:
    """An expression. Those with operators are in parentheses, unless they are a subscript or an argument alone."""
    text = _text(e)
    return text[1:-1] if isinstance(e, Binary | Compare | Logic) and text.startswith("(") else text


def _text(e: Expr) -> str:
    match e:
        case Const(value=v, dtype=t):
            return _number(v, t)
        case Var(name=name):
            return _AXES[name][0] if name in _AXES else c_name(name)
        case Dim(name=name):
            return c_name(name)
        case Binary(op=op, lhs=a, rhs=b):
            return _binary(op, a, b)
        case Compare(op=op, lhs=a, rhs=b):
            return f"({_text(a)} {op} {_text(b)})"
        case Logic(op=op, lhs=a, rhs=b):
            return f"({_text(a)} {'&&' if op == 'and' else '||'} {_text(b)})"
        case Not(operand=a):
            return f"!{_text(a)}"
        case Select(cond=cond, then=a, other=b):
            return f"({_text(cond)} ? {_text(a)} : {_text(b)})"
        case Cast(operand=a, dtype=t):
            return _cast(a, t)
        case Bitcast(operand=a, dtype=t):
            return f"bitcast<{_TYPES[t.name]}>(({_TYPES[dtype_of(a).name]}){_text(a)})"
        case Call(function=f, args=args):
            return _call(f, args)
        case Load(buffer=b, indices=(at,)):
            return f"{c_name(b)}[{_value(at)}]"
        case Load():
            raise TypeError("a flat load has one subscript")
        case _:
            assert_never(e)


def _binary(op: str, a: Expr, b: Expr) -> str:
    x, y, t = _text(a), _text(b), dtype_of(a)
    if op in ("min", "max"):
        return f"{'least' if op == 'min' else 'most'}({_argument(a)}, {_argument(b)})"
    if op in ("/", "%") and not t.is_float and not _rounds_down(a, b):
        return f"{'quotient' if op == '/' else 'remainder_'}({_argument(a)}, {_argument(b)})"
    if op == "%" and t.is_float:
        raise CompileError("the view in CUDA C++ has no words for `%` of floats; see its PTX")
    result = f"({x} {'^' if op == 'xor' else op} {y})"
    # C computes in int what is narrower.
    return f"({_TYPES[t.name]}){result}" if t.is_integer and t.bits < 32 else result


def _argument(e: Expr) -> str:
    """An argument of a template, whose type must be that of the other one."""
    return f"{e.value}LL" if isinstance(e, Const) and e.dtype == INDEX else _value(e)


def _rounds_down(a: Expr, b: Expr) -> bool:
    """Whether C's division does: of an axis or an unsigned number, by a positive one."""
    if dtype_of(a).kind == "uint":
        return True
    return isinstance(a, Var) and a.name in _AXES and (constant(b) or 0) > 0


def _cast(a: Expr, t: DType) -> str:
    x, of = _text(a), dtype_of(a)
    if t.kind == "bool":
        return f"({x} != 0)"
    half = of.is_float and of.bits <= 16
    if not t.has_arithmetic:
        return f"{t.name[2:]}({'(float)' * half}{x})"
    return f"({_TYPES[t.name]})" + (f"(float){x}" if half and t.name != "f32" else x)


def _call(f: str, args: tuple[Expr, ...]) -> str:
    t = dtype_of(args[0])
    half = t.is_float and t.bits == 16
    found = call_text(f, [f"(float){_text(a)}" if half else _value(a) for a in args], t, _TYPES[t.name])
    return f"({_TYPES[t.name]}){found}" if half and f not in CONDITIONS else found


def _number(value: float, t: DType) -> str:
    if t.kind == "bool":
        return "true" if value else "false"
    if not t.is_float:
        if t in (INDEX,) or t.bits < 32:
            return f"{value}" if t == INDEX else f"({_TYPES[t.name]}){value}"
        return f"{value}{'u' * (t.kind == 'uint')}{'LL' * (t.bits == 64)}"
    if math.isnan(value):
        text = "NAN"
    elif math.isinf(value):
        text = "INFINITY" if value > 0 else "(-INFINITY)"
    else:
        text = f"{value!r}" + "f" * (t.bits < 64)
    if not t.has_arithmetic:
        return f"{t.name[2:]}({text})"
    return f"({_TYPES[t.name]}){text}" if t.bits == 16 else text

"""Kernels as CUDA C++, for people to read: the same statements as in the LLVM code, before either is optimised.

Nothing is compiled from this text. It is complete, so that a compiler of NVIDIA's can be tried on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from tensorc_dsl.backend.cuda.codegen.device import barrier_of, is_of_role, wgmma_wait_text
from tensorc_dsl.backend.cuda.codegen.ptx import CONSTRAINTS, MULTICAST, OPCODE_RANK, assembly_text, fields, kind_of
from tensorc_dsl.backend.cuda.isa import Ref, lines_of
from tensorc_dsl.backend.cuda.lower.collectives import (
    Access,
    address_of,
    element_of,
    is_of_group,
    lane_operands,
    register_of,
)
from tensorc_dsl.backend.cuda.lower.kernels import (
    ALIGNMENT,
    BLOCK_AXES,
    CLUSTER,
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
    collectives_in,
)
from tensorc_dsl.backend.cuda.lower.shared_layout import ALIGNMENT as DESCRIBED
from tensorc_dsl.backend.cuda.lower.shared_layout import Descriptor, descriptors_of
from tensorc_dsl.backend.llvm.ahead.interface import argument_name
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.base.frozen import frozen
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
    rewrite_expr,
    substitute,
)
from tensorc_dsl.ir.maths import CONDITIONS
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.reductions import Change, atomic_change_of, fold_of, is_switch
from tensorc_dsl.ir.warp import LANES
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Instruction,
    Loop,
    Move,
    Parallel,
    Shuffle,
    TensorMap,
    format_shape,
)

# The maths functions in the view in CUDA C++: CUDA's own, and texts that the view has for the others.


_FUNCTIONS = {
    **{
        f: f
        for f in (
            "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sinh", "cosh", "asinh",
            "acosh", "atanh", "erf", "erfc", "cbrt", "hypot", "floor", "ceil", "trunc", "copysign", "sin", "cos", "tan",
            "asin", "acos", "atan", "atan2", "pow",
        )
    },
    "round": "rint", "abs": "fabs",
}  # fmt: skip
"""CUDA's functions of doubles; those of floats end in `f`."""

_TESTS = ("isnan", "isinf", "isfinite")
"""CUDA's functions of both."""

_VIEW_MATHS_BITS = {"bit_and": "{} & {}", "bit_or": "{} | {}", "bit_not": "~{}"}

_TEMPLATE = "template <class T> __device__ inline T {}("

_WRITTEN = {
    "sign": "T a) { return a != a ? a : (T)(a > 0) - (T)(a < 0); }",
    "shift_left": "T a, T n) { return n >= 0 && n < (T)(8 * sizeof(T)) ? (T)((unsigned long long)a << n) : (T)0; }",
    "shift_right": "T a, T n) { return n >= 0 && n < (T)(8 * sizeof(T)) ? (T)(a >> n) : (T)(a < 0 ? -1 : 0); }",
    "popcount": "T a) { T n = 0; for (int k = 0; k < 8 * (int)sizeof(T); k++) n += (a >> k) & 1; return n; }",
    "clz": "T a) { T n = 0; for (int k = 8 * sizeof(T) - 1; k >= 0 && !((a >> k) & 1); k--) n++; return n; }",
    "ctz": "T a) { T n = 0; for (int k = 0; k < 8 * (int)sizeof(T) && !((a >> k) & 1); k++) n++; return n; }",
}
"""Templates: their arguments and bodies."""


def written(lines: Sequence[str]) -> Iterable[str]:
    """The templates that some lines call."""
    used = [name for name in _WRITTEN if any(f"{name}(" in line for line in lines)]
    yield from (_TEMPLATE.format(name) + _WRITTEN[name] for name in used)


def call_text(f: str, given: Sequence[str], t: DType, kind: str) -> str:
    """A call of a function with the texts of its arguments, whose type is `kind` in C; half precisions are floats."""
    wide = t.bits == 64
    if f == "abs" and not t.is_float:
        return f"most({given[0]}, ({kind})-({given[0]}))"
    if f == "tf32":
        return _tf32(given[0], wide)
    if f == "sigmoid":
        one = "1.0" if wide else "1.0f"
        return f"({one} / ({one} + exp{'' if wide else 'f'}(-({given[0]}))))"
    if f in _VIEW_MATHS_BITS:
        return f"({kind})({_VIEW_MATHS_BITS[f].format(*(f'({x})' for x in given))})"
    if f in _WRITTEN:
        # The arguments of a template are of its type; C makes an int of what is narrower.
        return f"{f}({', '.join(x if t.is_float else f'({kind})({x})' for x in given)})"
    if f in _TESTS:
        return f"{f}({given[0]})"
    return f"{_FUNCTIONS[f]}{'' if wide else 'f'}({', '.join(given)})"


def _tf32(x: str, wide: bool) -> str:
    """The rounding of the least bits of a float, as an integer; that of a double also of what is below the normal floats."""
    if not wide:
        return f"({x} == {x} ? __uint_as_float((__float_as_uint({x}) + 0x1000u) & 0xffffe000u) : {x})"
    found = f"__longlong_as_double((__double_as_longlong({x}) + (1ll << 41)) & -(1ll << 42))"
    small = f"copysign(floor(fabs({x}) * 0x1p136 + 0.5) * 0x1p-136, {x})"
    return f"({x} == {x} ? fabs({x}) < 0x1p-126 ? {small} : {found} : {x})"


# Expressions of kernels as CUDA C++, for `view`.


TYPES = {
    "f8e4m3": "__nv_fp8_e4m3", "f8e5m2": "__nv_fp8_e5m2",
    "f16": "__half", "bf16": "__nv_bfloat16", "f32": "float", "f64": "double", "bool": "bool", "index": "long long",
    "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
    "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned",
    "u64": "unsigned long long",
}  # fmt: skip

AXES = {THREAD: ("thread_", "threadIdx.x"), CLUSTER: ("cluster_x_", "blockIdx.x % {}")} | {
    name: (f"block_{name[-1]}_", f"blockIdx.{name[-1]}") for name in BLOCK_AXES
}
"""The names of axes in the text, and CUDA's: of the number of a block in its cluster, by how many it has."""


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
        return f"{'least' if op == 'min' else 'most'}<{TYPES[t.name]}>({value(a)}, {value(b)})"
    if op in ("/", "%") and not t.is_float and not _rounds_down(a, b):
        return f"{'quotient' if op == '/' else 'remainder_'}<{TYPES[t.name]}>({value(a)}, {value(b)})"
    if op == "%" and t.is_float:
        raise CompileError("the view in CUDA C++ has no words for `%` of floats; see its PTX")
    result = f"({x} {'^' if op == 'xor' else op} {y})"
    # C computes in int what is narrower.
    return f"({TYPES[t.name]}){result}" if t.is_integer and t.bits < 32 else result


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


# Atomic updates as CUDA C++, for `view`.


_UPDATES: Mapping[Change, str] = {
    "add": "Add", "fadd": "Add", "min": "Min", "umin": "Min", "max": "Max", "umax": "Max",
}  # fmt: skip
"""What CUDA C++ calls the updates of one number."""

_WORDS = {2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}
"""The numbers that CUDA C++ compares and exchanges, by their bytes."""

_OLD = ".old"
"""The buffer of the value that an update changes, under a name that none of a program can have."""


def update(s: Store, pad: str) -> Iterator[str]:
    """An atomic store. Raises CompileError if it compares and exchanges single bytes."""
    fold, change, t = fold_of(s), atomic_change_of(s), dtype_of(s.value)
    place = f"&{c_name(s.buffer)}[{value(s.indices[0])}]"
    if fold is not None and is_switch(s):
        changes = fold.value if fold.op == "or" else Not(fold.value)
        yield f"{pad}if ({value(changes)}) *(volatile bool *){place} = {'true' if fold.op == 'or' else 'false'};"
    elif fold is None or change is None:
        yield from _cuda_cas_loop(s, place, pad)
    elif change == "add" and t.bytes == 8:  # which there is for unsigned numbers, and is the same
        yield f"{pad}atomicAdd((unsigned long long *){place}, (unsigned long long){text_of(fold.value)});"
    else:
        yield f"{pad}atomic{_UPDATES[change]}({place}, {value(fold.value)});"


def _cuda_cas_loop(s: Store, place: str, pad: str) -> Iterator[str]:
    """An update as a loop: the value is computed from what is there, and stored if that is there still."""
    t = dtype_of(s.value)
    word, kind, old = _WORDS.get(t.bytes), TYPES[t.name], c_name(_OLD)
    if word is None:
        raise CompileError(f"the view in CUDA C++ has no words for the atomic update of `{s.buffer}`; see its PTX")
    new = value(rewrite_expr(s.value, lambda x: _from_old(x, s)))
    yield f"{pad}for ({word} *at_ = ({word} *){place}, was_ = *(volatile {word} *)at_;;) {{"
    yield f"{pad}    const {kind} {old}[1] = {{bitcast<{kind}>(was_)}};"
    yield f"{pad}    const {word} found_ = atomicCAS(at_, was_, bitcast<{word}>(({kind}){new}));"
    yield f"{pad}    if (found_ == was_) break;"
    yield f"{pad}    was_ = found_;"
    yield f"{pad}}}"


def _from_old(x: Expr, s: Store) -> Expr:
    """A load of the element that is updated, as one of the value that was there."""
    return Load(_OLD, (ZERO,), x.dtype) if isinstance(x, Load) and x.buffer == s.buffer else x


# What runs beside the threads of a kernel as CUDA C++, for `view`: mbarriers, copies by TMA, products of warpgroups.
#
# CUDA has no words of its own for these, so functions of the text have those of PTX, by names that say what they do.


_PLACE = "__device__ inline unsigned place(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }"
"""An address within the shared memory of a block."""


def _ptx(name: str, params: str, text: str, operands: str) -> str:
    return f'__device__ inline void {name}({params}) {{ asm volatile("{text}" :: {operands} : "memory"); }}'


_NAMED = {
    "mbarrier_init": _ptx(
        "mbarrier_init", "unsigned m, int count", "mbarrier.init.shared::cta.b64 [%0], %1;", '"r"(m), "r"(count)'
    ),
    "mbarrier_expect": _ptx(
        "mbarrier_expect",
        "unsigned m, int bytes",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;",
        '"r"(m), "r"(bytes)',
    ),
    "mbarrier_arrive": _ptx("mbarrier_arrive", "unsigned m", "mbarrier.arrive.shared::cta.b64 _, [%0];", '"r"(m)'),
    "mbarrier_arrive_at": _ptx(
        "mbarrier_arrive_at",
        "unsigned m, unsigned block",
        "{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [a]; }",
        '"r"(m), "r"(block)',
    ),
    "mbarrier_wait": _ptx(
        "mbarrier_wait",
        "unsigned m, unsigned parity",
        "{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra WAIT; }",
        '"r"(m), "r"(parity)',
    ),
    "held": """\
/* The registers of an array are not moved past this place: instructions that run beside threads access them. */
template <int n> __device__ inline void held(float (&x)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) asm volatile("" : "+f"(x[i]) :: "memory");
}
template <class T, int n> __device__ inline void held(T (&x)[n]) {
#pragma unroll
    for (int i = 0; i < n * (int)sizeof(T) / 4; ++i) asm volatile("" : "+r"(((unsigned *)x)[i]) :: "memory");
}""",
    "descriptor": """\
/* The descriptor of a factor in shared memory: its address, in units of 16 bytes, and what else it says. */
__device__ inline unsigned long long descriptor(const void *p, unsigned long long rest) {
    return (place(p) >> 4 & 0x3fff) | rest;
}""",
}
"""The functions of a text, by their names."""


def functions(lines: Iterable[str]) -> list[str]:
    """The functions that lines of a text call, each as text."""
    text = "\n".join(lines)
    found = [x for name, x in _NAMED.items() if f"{name}(" in text]
    return [_PLACE, *found] if found or "place(" in text else []


def map_param(n: int, m: TensorMap) -> str:
    """The parameter of a kernel for the tensor map of an array."""
    tile = " x ".join(map(str, m.sizes))
    return f"const __grid_constant__ CUtensorMap {_map(n)} /* {m.array} in tiles of {tile}, a swizzle of {m.swizzle} bytes */"


def _map(n: int) -> str:
    return f"map{n}_"


def mbarrier(at: Expr) -> str:
    """The address of the mbarrier of a number."""
    return f"mbarriers_ + 8 * ({value(at)})"


def beginning(k: DeviceKernel) -> Iterator[str]:
    """What a kernel with mbarriers has before its statements."""
    if k.mbarriers is not None:
        yield f"    const unsigned mbarriers_ = place(shared_ + {k.mbarriers.offset}); /* {k.mbarriers.count} of 8 bytes */"
        yield "    unsigned phases_ = 0; /* of each mbarrier, which of its two phases a thread waits for next */"


def initialised(s: InitMbarriers, cluster: bool, pad: str) -> Iterator[str]:
    """The mbarriers are set up, each for bytes or for the warps that come to it, those of the blocks of a cluster, too."""
    over = sum(1 << n for n, warps in enumerate(s.awaited) if warps > 0)
    if over:
        yield f"{pad}phases_ = {over:#x};"
    yield f"{pad}if (thread_ == 0) {{"
    for n, warps in enumerate(s.awaited):
        yield f"{pad}    mbarrier_init(mbarriers_ + {8 * n}, {max(abs(warps), 1)});"
    others = "fence.mbarrier_init.release.cluster; " * cluster
    yield f'{pad}    asm volatile("{others}fence.proxy.async.shared::cta;" ::: "memory");'
    yield f"{pad}}}"


def awaited(at: Expr, pad: str) -> Iterator[str]:
    """A thread waits for the next phase of an mbarrier."""
    number = value(at)
    yield f"{pad}mbarrier_wait({mbarrier(at)}, phases_ >> ({number}) & 1);"
    yield f"{pad}phases_ ^= 1u << ({number});"


def released(s: ArriveMbarrier, pad: str) -> Iterator[str]:
    """A warp comes to an mbarrier, when all its lanes have read."""
    yield f"{pad}__syncwarp();"
    if s.blocks == 1:
        yield f"{pad}if (thread_ % {LANES} == 0) mbarrier_arrive({mbarrier(s.at)});"
    else:
        yield f"{pad}if (thread_ % {LANES} < {s.blocks}) mbarrier_arrive_at({mbarrier(s.at)}, thread_ % {LANES});"
    yield f"{pad}__syncwarp();"


def registers_of(s: Role, pad: str) -> Iterator[str]:
    """A role takes registers, or leaves some to the others."""
    if s.registers:
        how = "dec" if s.alone else "inc"
        yield f'{pad}asm volatile("setmaxnreg.{how}.sync.aligned.u32 {s.registers};");'


def meets(role: Role | None, cluster: bool) -> str:
    """A barrier of the threads of a block, of a role or of a cluster."""
    if cluster:
        return 'asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");'
    if role is None:
        return "__syncthreads();"
    return f'asm volatile("barrier.cta.sync.aligned {barrier_of(role)}, {role.threads};" ::: "memory");'


def held_registers(buffers: Iterable[str], pad: str) -> Iterator[str]:
    """Registers stay as they are here."""
    for name in buffers:
        yield f"{pad}held({c_name(name)});"


def wgmma_wait(s: WgmmaWait, pad: str) -> Iterator[str]:
    """A thread waits for the products of its warpgroup."""
    yield f'{pad}asm volatile("{wgmma_wait_text(s)}" ::: "memory");'
    yield from held_registers(s.buffers, pad)


def tile_copy(s: Collective, maps: tuple[TensorMap, ...], pad: str) -> Iterator[str]:
    """The start of a TMA load, whose bytes come to the mbarrier `to_`, or of a TMA store."""
    tile, (d,) = s.tile, descriptors_of(s).values()
    assert tile is not None  # only tiles come here
    (line,) = lines_of(s.intrinsic, s.code)
    rank = len(tile.origin)
    opcode = OPCODE_RANK.sub(f".{rank}d.", line.opcode, count=1)
    corner = "{" + ", ".join(f"%{n}" for n in range(2, rank + 2)) + "}"
    given = [f'"r"(place(&{c_name(d.buffer)}[{value(d.first)}]))', f'"l"(&{_map(maps.index(tile.map))})']
    given += [f'"r"((int)({value(x)}))' for x in reversed(tile.origin)]
    if tile.stores:
        text = f"{opcode} [%1, {corner}], [%0];"
    else:
        text, given = f"[%0], [%1, {corner}], [%{len(given)}]", [*given, '"r"(to_)']
        if tile.blocks:
            opcode, text, given = opcode + MULTICAST, f"{text}, %{len(given)}", [*given, f'"h"((short){tile.blocks})']
        text = f"{opcode} {text};"
    yield f'{pad}asm volatile("{text}" :: {", ".join(given)} : "memory"); /* {s.intrinsic.name} */'


def descriptor(d: Descriptor) -> str:
    """The descriptor of a factor."""
    low, high = fields(d)
    return f"descriptor(&{c_name(d.buffer)}[{value(d.first)}], {low | high << 32:#x}ull)"


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
    octets = _OCTETS if any(TYPES[n] in line for n in ("f8e4m3", "f8e5m2") for line in lines) else ""
    bits = _BITS if any("bitcast<" in line for line in lines) else ""
    maps = "#include <cuda.h>\n" if any(k.maps for k in p.kernels) else ""
    about = f"/* {p.name}: kernels that run one after the other. */"
    more = "".join(f"{x}\n" for x in (*functions(lines), *written(lines)))
    head = [about, maps + octets + _HEAD + bits + more]
    return "\n".join([*head, *lines])


def _kernel(p: DeviceProgram, k: DeviceKernel) -> Iterator[str]:
    types = {x.name: x.dtype for x in (*p.params, *p.scratch)}
    shapes = {x.name: format_shape(x.shape) for x in p.params}
    grid = ", ".join(value(n) for n in k.grid)
    yield f"/* On a grid of ({grid}) blocks, with {k.shared_bytes} bytes of dynamic shared memory. */"
    arrays = [
        f"{TYPES[types[n].name]} *{'' if n in k.written else '__restrict__ '}{c_name(n)} /* {shapes.get(n, 'scratch')} */"
        for n in k.params
    ]
    params = [map_param(n, m) for n, m in enumerate(k.maps)]
    params += [f"{'' if n in k.written else 'const '}{a}" for n, a in zip(k.params, arrays, strict=True)]
    params += [f"long long {c_name(d.name)}" for d in p.dims]
    together = f"__cluster_dims__({k.cluster}, 1, 1) " * k.shared_loads
    yield f'extern "C" __global__ void __launch_bounds__({k.threads}, 1) {together}{k.name}('
    yield from (f"    {x}{',' if n + 1 < len(params) else ''}" for n, x in enumerate(params))
    yield ") {"
    if k.shared or k.mbarriers is not None:
        alignment = DESCRIBED if k.maps or any(is_of_group(s.intrinsic) for s in collectives_in(k.body)) else 128
        yield f"    extern __shared__ __align__({alignment}) unsigned char shared_[];"
    for b in k.shared:
        kind = TYPES[b.dtype.name]
        yield f"    {kind} *{c_name(b.name)} = ({kind} *)(shared_ + {b.offset}); /* {b.size} elements */"
    for b in k.local:
        yield f"    __align__({ALIGNMENT}) {TYPES[b.dtype.name]} {c_name(b.name)}[{b.size}];"
    body = list(_Statements(k).device(k.body, "    "))
    for axis, (name, theirs) in AXES.items():
        if any(name in line for line in body):
            among = f" / {k.cluster}" if axis == BLOCK_AXES[0] and k.cluster > 1 else ""
            yield f"    const long long {name} = {theirs.format(k.cluster)}{among};"
    yield from beginning(k)
    yield from body
    yield "}"


@frozen
class _Statements:
    """Writes the statements of a kernel, or of a role of it."""

    kernel: DeviceKernel
    role: Role | None = None

    def device(self, body: tuple[Device, ...], pad: str) -> Iterator[str]:
        for s in body:
            match s:
                case Phase(body=inner, asynchronous=asynchronous):
                    # A copy that is made at once is one that lands as early as it may.
                    if asynchronous:
                        yield f"{pad}/* cp.async: */"
                    yield from self.flat(inner, pad)
                case CommitGroup():
                    yield f"{pad}/* cp.async.commit_group */"
                case WaitGroup(groups=groups):
                    yield f"{pad}/* cp.async.wait_group {groups} */"
                case Barrier(cluster=cluster):
                    yield f"{pad}{meets(self.role, cluster)}"
                case InitMbarriers():
                    yield from initialised(s, self.kernel.shared_loads, pad)
                case TmaLoad(at=at, size=size, body=inner):
                    begin = [f"const unsigned to_ = {mbarrier(at)};", f"mbarrier_expect(to_, {size});"]
                    yield from self._one_thread([*begin, *self.flat(inner, "")], pad)
                case TmaStore(body=inner):
                    end = 'asm volatile("cp.async.bulk.commit_group;" ::: "memory");'
                    yield from self._one_thread([*self.flat(inner, ""), end], pad)
                case WaitTmaStores():
                    wait = 'asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");'
                    yield from self._one_thread([wait], pad)
                case WaitMbarrier(at=at):
                    yield from awaited(at, pad)
                case ArriveMbarrier():
                    yield from released(s, pad)
                case Role():
                    yield from self._of_role(s, pad)
                case ProxyFence():
                    yield f'{pad}asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
                case Ticket() | LookBack():
                    raise CompileError("the view in CUDA C++ has no words for scans that blocks pass on; see its PTX")
                case WgmmaFence(buffers=buffers):
                    yield from held_registers(buffers, pad)
                    yield f'{pad}asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'
                case WgmmaWait():
                    yield from wgmma_wait(s, pad)
                case Steps(var=var, end=end, body=inner):
                    yield f"{pad}{_for(var, '0', value(end))}"
                    yield from self.device(inner, pad + "    ")
                    yield f"{pad}}}"
                case Guard(cond=cond, body=inner):
                    yield f"{pad}if ({value(cond)}) {{"
                    yield from self.device(inner, pad + "    ")
                    yield f"{pad}}}"
                case _:
                    assert_never(s)

    def _one_thread(self, lines: Iterable[str], pad: str) -> Iterator[str]:
        """What one thread does, behind which its warp is together again."""
        alone = self.role is not None and self.role.alone
        yield f"{pad}{{" if alone else f"{pad}if (thread_ == 0) {{"
        yield from (f"{pad}    {x}" for x in lines)
        yield f"{pad}}}"
        if not alone:
            yield f"{pad}__syncwarp();"

    def _of_role(self, s: Role, pad: str) -> Iterator[str]:
        inner = replace(self, role=s)
        yield f"{pad}if ({value(is_of_role(s))}) {{ /* {s.name} */"
        yield from registers_of(s, pad + "    ")
        if s.first:  # the other statements count the threads of the role
            yield f"{pad}    const auto own_ = thread_ - {s.first};"
            yield f"{pad}    const auto thread_ = own_;"
        if s.alone:
            yield f"{pad}    if (thread_ == 0) {{"
            yield from inner.device(s.body, pad + "        ")
            yield f"{pad}    }}"
        else:
            yield from inner.device(s.body, pad + "    ")
        yield f"{pad}}}"

    def flat(self, body: tuple[Flat, ...], pad: str) -> Iterator[str]:
        for s in body:
            match s:
                case Store() if s.atomic:
                    yield from update(s, pad)
                case Store(buffer=b, indices=(at,), value=e):
                    yield f"{pad}{c_name(b)}[{value(at)}] = {value(e)};"
                case Store():
                    raise TypeError("a flat store has one subscript")
                case Loop(var=var, begin=begin, end=end, kind=kind, body=inner):
                    if kind is not LoopKind.SERIAL:
                        yield f"{pad}#pragma unroll{' /* one vector */' * (kind is LoopKind.VECTORIZED)}"
                    yield f"{pad}{_for(var, value(begin), value(end))}"
                    yield from self.flat(inner, pad + "    ")
                    yield f"{pad}}}"
                case If(cond=cond, body=inner):
                    yield f"{pad}if ({value(cond)}) {{"
                    yield from self.flat(inner, pad + "    ")
                    yield f"{pad}}}"
                case Alloc(name=name, dtype=t, size=size, body=inner):
                    yield f"{pad}{{"
                    yield f"{pad}    __align__({ALIGNMENT}) {TYPES[t.name]} {c_name(name)}[{value(size)}];"
                    yield from self.flat(inner, pad + "    ")
                    yield f"{pad}}}"
                case Collective(tile=None):
                    yield from _assembly(s, pad)
                case Collective():
                    yield from tile_copy(s, self.kernel.maps, pad)
                case Shuffle(move=move, by=by, width=width, body=(Store(buffer=b, indices=(at,), value=e),)):
                    group = f", {width}" * (width < LANES)
                    given = f"__shfl_{_SHUFFLES[move]}sync(0xffffffffu, {value(e)}, {by}{group})"
                    yield f"{pad}{c_name(b)}[{value(at)}] = ({TYPES[dtype_of(e).name]}){given};"
                case Shuffle():
                    raise TypeError("a shuffle gives one value")
                case Instruction(intrinsic=i):
                    raise CompileError(f"the view in CUDA C++ has no words for the instruction `{i.name}`; see its PTX")
                case Parallel():
                    raise TypeError("kernels of GPUs have threads in place of parallel loops")
                case _:
                    assert_never(s)


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
    for name, a in lane_operands(s).items():
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
    inputs += [(Ref(name, 0), f'"l"({descriptor(d)})') for name, d in descriptors_of(s).items()]
    numbers = {ref: n for n, (ref, _) in enumerate((*outputs, *inputs))}
    text = assembly_text(lines, numbers, registers).replace("%", "%%").replace("$", "%")
    given = (", ".join(x for _, x in some) for some in (outputs, inputs))
    yield f'{pad}asm volatile("{text}" : {" : ".join(given)} : "memory"); /* {s.intrinsic.name} */'


def _place(a: Access, at: dict[str, Expr]) -> str:
    return f"&{c_name(a.buffer)}[{value(substitute(a.index, at))}]"


def _for(var: str, begin: str, end: str) -> str:
    name = c_name(var)
    return f"for (long long {name} = {begin}; {name} < {end}; ++{name}) {{"

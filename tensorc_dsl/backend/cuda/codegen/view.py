"""Kernels as CUDA C++, for people to read: the same statements as in the LLVM code, before either is optimised.

Nothing is compiled from this text. It is complete, so that a compiler of NVIDIA's can be tried on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from tensorc_dsl.backend.cuda.codegen.assembly import CONSTRAINTS, assembly_text, kind_of
from tensorc_dsl.backend.cuda.codegen.view_beside import (
    awaited,
    beginning,
    descriptor,
    finished,
    functions,
    held_fast,
    initialised,
    map_param,
    mbarrier,
    meets,
    registers_of,
    released,
    side_of,
    tile_copy,
)
from tensorc_dsl.backend.cuda.codegen.view_expr import AXES, TYPES, c_name, value
from tensorc_dsl.backend.cuda.codegen.view_maths import written
from tensorc_dsl.backend.cuda.codegen.view_update import update
from tensorc_dsl.backend.cuda.isa.assembly import Ref, lines_of
from tensorc_dsl.backend.cuda.lower.collectives import (
    Access,
    address_of,
    element_of,
    is_of_group,
    operands_of,
    register_of,
)
from tensorc_dsl.backend.cuda.lower.descriptors import ALIGNMENT as DESCRIBED
from tensorc_dsl.backend.cuda.lower.descriptors import descriptors_of
from tensorc_dsl.backend.cuda.lower.kernels import (
    ALIGNMENT,
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
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.ir.expr import ZERO, Expr, dtype_of, index, loads, substitute
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.warp import LANES
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Loop, Move, Parallel, Shuffle, format_shape

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
    yield f'extern "C" __global__ void __launch_bounds__({k.threads}, 1) {k.name}('
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
    for name, theirs in AXES.values():
        if any(name in line for line in body):
            yield f"    const long long {name} = {theirs};"
    yield from beginning(k)
    yield from body
    yield "}"


@dataclass(frozen=True, slots=True)
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
                case Barrier():
                    yield f"{pad}{meets(self.role)}"
                case InitMbarriers():
                    yield from initialised(s, pad)
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
                case ArriveMbarrier(at=at):
                    yield from released(at, pad)
                case Role():
                    yield from self._of_role(s, pad)
                case ProxyFence():
                    yield f'{pad}asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
                case Ticket() | LookBack():
                    raise CompileError("the view in CUDA C++ has no words for scans that blocks pass on; see its PTX")
                case WgmmaFence(buffers=buffers):
                    yield from held_fast(buffers, pad)
                    yield f'{pad}asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'
                case WgmmaWait():
                    yield from finished(s, pad)
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
        yield f"{pad}if ({side_of(s)}) {{ /* {s.name} */"
        yield from registers_of(s, pad + "    ")
        if s.alone:
            yield f"{pad}    if (thread_ == {s.first}) {{"
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

"""What runs beside the threads of a kernel as CUDA C++, for `view`: mbarriers, copies by TMA, products of warpgroups.

CUDA has no words of its own for these, so functions of the text have those of PTX, by names that say what they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensorc_dsl.backend.cuda.codegen.assembly import OPCODE_RANK
from tensorc_dsl.backend.cuda.codegen.descriptor import fields
from tensorc_dsl.backend.cuda.codegen.view_expr import c_name, value
from tensorc_dsl.backend.cuda.isa.assembly import lines_of
from tensorc_dsl.backend.cuda.lower.descriptors import Descriptor, descriptors_of
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel, InitMbarriers, Role, WgmmaWait
from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.ir.warp import LANES
from tensorc_dsl.lower.flat import Collective, TensorMap

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


def initialised(s: InitMbarriers, pad: str) -> Iterator[str]:
    """The mbarriers are set up, each for bytes or for the warps that come to it."""
    over = sum(1 << n for n, warps in enumerate(s.awaited) if warps)
    if over:
        yield f"{pad}phases_ = {over:#x};"
    yield f"{pad}if (thread_ == 0) {{"
    for n, warps in enumerate(s.awaited):
        yield f"{pad}    mbarrier_init(mbarriers_ + {8 * n}, {max(warps, 1)});"
    yield f'{pad}    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
    yield f"{pad}}}"


def awaited(at: Expr, pad: str) -> Iterator[str]:
    """A thread waits for the next phase of an mbarrier."""
    number = value(at)
    yield f"{pad}mbarrier_wait({mbarrier(at)}, phases_ >> ({number}) & 1);"
    yield f"{pad}phases_ ^= 1u << ({number});"


def released(at: Expr, pad: str) -> Iterator[str]:
    """A warp comes to an mbarrier, when all its lanes have read."""
    yield f"{pad}__syncwarp();"
    yield f"{pad}if (thread_ % {LANES} == 0) mbarrier_arrive({mbarrier(at)});"
    yield f"{pad}__syncwarp();"


def side_of(s: Role) -> str:
    """Whether a thread is one of a role."""
    return f"thread_ < {s.threads}" if s.first == 0 else f"thread_ >= {s.first}"


def registers_of(s: Role, pad: str) -> Iterator[str]:
    """A role takes registers, or leaves some to the others."""
    if s.registers:
        how = "dec" if s.alone else "inc"
        yield f'{pad}asm volatile("setmaxnreg.{how}.sync.aligned.u32 {s.registers};");'


def meets(role: Role | None) -> str:
    """A barrier of the threads of a block, or of a role."""
    if role is None:
        return "__syncthreads();"
    return f'asm volatile("barrier.cta.sync.aligned 1, {role.threads};" ::: "memory");'


def held_fast(buffers: Iterable[str], pad: str) -> Iterator[str]:
    """Registers stay as they are here."""
    for name in buffers:
        yield f"{pad}held({c_name(name)});"


def finished(s: WgmmaWait, pad: str) -> Iterator[str]:
    """A thread waits for the products of its warpgroup."""
    end = "wgmma.commit_group.sync.aligned; " * s.ends_group
    yield f'{pad}asm volatile("{end}wgmma.wait_group.sync.aligned {s.groups};" ::: "memory");'
    yield from held_fast(s.buffers, pad)


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
        text, given = f"{opcode} [%0], [%1, {corner}], [%{len(given)}];", [*given, '"r"(to_)']
    yield f'{pad}asm volatile("{text}" :: {", ".join(given)} : "memory"); /* {s.intrinsic.name} */'


def descriptor(d: Descriptor) -> str:
    """The descriptor of a factor."""
    low, high = fields(d)
    return f"descriptor(&{c_name(d.buffer)}[{value(d.first)}], {low | high << 32:#x}ull)"

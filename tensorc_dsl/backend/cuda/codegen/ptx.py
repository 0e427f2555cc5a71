"""Writes kernels as LLVM code for NVPTX, and has LLVM make PTX of it.

An instruction of a warp is written as assembly: a lane's registers and addresses in place of the operands in its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from tensorc_dsl.backend.cuda.codegen.device import DeviceStatements, Seen, barrier_of, kernel_buffers, wgmma_wait_text
from tensorc_dsl.backend.cuda.codegen.maths import HardwareMaths, write_instruction
from tensorc_dsl.backend.cuda.isa import Line, Ref, lines_of
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
    DeviceKernel,
    DeviceProgram,
    Role,
    WgmmaWait,
    collectives_in,
)
from tensorc_dsl.backend.cuda.lower.shared_layout import ALIGNMENT as DESCRIBED
from tensorc_dsl.backend.cuda.lower.shared_layout import Descriptor, descriptors_of
from tensorc_dsl.backend.cuda.lower.structure import TRANSACTION
from tensorc_dsl.backend.llvm.codegen.expressions import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function, Module, Scalar, SymbolTable, in_memory
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import ZERO, index, loads, substitute
from tensorc_dsl.ir.program import Store
from tensorc_dsl.ir.warp import LANES, REGISTER_BITS, UNIT
from tensorc_dsl.lower.flat import Collective, Move, Shuffle, TmaTile

# Writes the descriptor of an operand in shared memory, as `wgmma` takes it.
#
# PTX ISA 9.2, section 9.7.15: "Matrix Descriptor Format". Addresses and distances are in units of 16 bytes.


_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""What a descriptor calls the bytes of a swizzle."""

_FIELD = (1 << 14) - 1
"""The largest number of an address or a distance."""


def write_descriptor(f: Function, d: Descriptor, base: str, units: Scalar) -> tuple[str, int]:
    """The low and the high 32 bits of the descriptor of an operand that begins so many units, of 64 bits, behind an address
    of 32 bits within shared memory. The high ones are the same for all operands of a kind.

    Units are added to that of the buffer, as in CUTLASS: then the descriptors of a loop are a constant apart. The sum is
    within the 14 bits of an address, since shared memory has less than 256 KB.
    """
    leading, high = fields(d)
    first = f.cached(f"and i32 {f.cached(f'lshr i32 {base}, {UNIT.bit_length() - 1}')}, {_FIELD}")
    low = f.cached(f"or i32 {first}, {leading}")
    behind = f.op(f"trunc i64 {units} to i32")
    return f.op(f"add i32 {low}, {behind}"), high


def fields(d: Descriptor) -> tuple[int, int]:
    """What a descriptor says besides the address, as its low and its high 32 bits."""
    leading, stride = d.beyond, d.groups
    if d.operand.deep and not d.operand.swizzle:  # both are named after the dimension of rows or columns there
        leading, stride = stride, leading
    return (leading // UNIT & _FIELD) << 16, stride // UNIT & _FIELD | _MODES[d.operand.swizzle] << 30


CONSTRAINTS = {"float": "f", "double": "d", "i32": "r", "i64": "l"}
"""The letters of registers in inline assembly, of LLVM and of CUDA C++, by LLVM's types."""


@frozen
class _Register:
    """A register of a fragment: its LLVM type, and the address of the storage that it is of."""

    kind: str
    place: str
    align: int


def write_assembly(f: Function, e: Expressions, s: Collective) -> None:
    """Write the instruction. It is convergent: LLVM moves it into no branch and out of none."""
    operands = lane_operands(s)
    stored = s.intrinsic.store.buffer
    read = {x.buffer for x in loads(s.intrinsic.store.value)}
    registers = {n: _registers(f, e, a) for n, a in operands.items() if not a.held.addresses}
    out = registers.get(stored, [])
    lines = lines_of(s.intrinsic, s.code)
    early = "&" if len(lines) > 1 else ""
    constraints = [f"={early}{CONSTRAINTS[r.kind]}" for r in out]
    arguments: list[str] = []
    numbers: dict[Ref, int] = {Ref(stored, n): n for n in range(len(out))}
    for name, own in registers.items():
        if name in read:
            for n, r in enumerate(own):
                if name != stored:
                    numbers[Ref(name, n)] = len(constraints)
                constraints.append(str(n) if name == stored else CONSTRAINTS[r.kind])
                arguments.append(f"{r.kind} {f.op(f'load {r.kind}, ptr {r.place}, align {r.align}')}")
    for name, a in operands.items():
        for n in range(a.held.addresses):
            numbers[Ref(name, n)] = len(constraints)
            kind, value = _address(f, e, name, a, n)
            constraints.append(CONSTRAINTS[kind])
            arguments.append(f"{kind} {value}")
    for name, d in descriptors_of(s).items():
        numbers[Ref(name, 0)] = len(constraints)
        constraints.append("l")
        base = _within(f, e.pointer(d.buffer, ZERO, None))
        low, high = write_descriptor(f, d, base, e.index(d.unit))
        # LLVM would add 64 bits in place of 32, with constants that ptxas 13.5 crashes at.
        joined = f.op(f'call i64 asm "mov.b64 $0, {{$1, {high:#x}}};", "=l,r"(i32 {low}) nounwind memory(none)')
        arguments.append(f"i64 {joined}")
    memory = any(a.held.addresses for a in operands.values()) or len(operands) < len(s.intrinsic.operands)
    if memory:
        constraints.append("~{memory}")
    _call(f, assembly_text(lines, numbers, registers), out, constraints, arguments, memory)


def write_tma_load(f: Function, e: Expressions, s: Collective, tensor: str, mbarrier: str) -> None:
    """Write the start of a TMA load, by the tensor map at a pointer. The opcode has the dimensions of the array."""
    assert s.tile is not None  # it is one of a tile
    opcode, coordinates, kinds, given = _tensor(f, e, s, s.tile, tensor)
    text = f"{opcode}{MULTICAST if s.tile.blocks else ''} [$0], [$1, {coordinates}], [${len(given)}]"
    kinds, given = [*kinds, "r"], [*given, f"i32 {mbarrier}"]
    if s.tile.blocks:  # in each of them the tile and the mbarrier are at the same places
        text, kinds = f"{text}, ${len(given)}", [*kinds, "h"]
        given = [*given, f"i16 {s.tile.blocks}"]
    _call(f, f"{text};", (), [*kinds, "~{memory}"], given, True)


def write_tma_store(f: Function, e: Expressions, s: Collective, tensor: str) -> None:
    """Write the start of a TMA store, by the tensor map at a pointer. The opcode has the dimensions of the array."""
    assert s.tile is not None  # it is one of a tile
    opcode, coordinates, kinds, given = _tensor(f, e, s, s.tile, tensor)
    _call(f, f"{opcode} [$1, {coordinates}], [$0];", (), [*kinds, "~{memory}"], given, True)


def _tensor(
    f: Function, e: Expressions, s: Collective, tile: TmaTile, tensor: str
) -> tuple[str, str, list[str], list[str]]:
    """The opcode of a copy of a tile, its coordinates in the array as text, and the constraints and values of its operands:
    the address in shared memory, the tensor map, the coordinates."""
    (d,) = descriptors_of(s).values()
    (line,) = lines_of(s.intrinsic, s.code)
    rank = len(tile.origin)
    opcode = OPCODE_RANK.sub(f".{rank}d.", line.opcode, count=1)
    given = [f"i32 {_within(f, e.pointer(d.buffer, d.first, None))}", f"i64 {f.op(f'ptrtoint ptr {tensor} to i64')}"]
    given += [f"i32 {f.op(f'trunc i64 {e.index(x)} to i32')}" for x in reversed(tile.origin)]
    coordinates = ", ".join(f"${n}" for n in range(2, rank + 2))
    return opcode, f"{{{coordinates}}}", ["r", "l", *("r" for _ in range(rank))], given


MULTICAST = ".multicast::cluster"
"""What the opcode of a load ends with if the tile goes to several blocks of a cluster."""

OPCODE_RANK = re.compile(r"\.[1-5]d\.")
"""The dimensions in an opcode of tensors."""


def _call(
    f: Function, text: str, out: Sequence[_Register], constraints: Sequence[str], arguments: Sequence[str], memory: bool
) -> None:
    """Call the text, and store what it gives. One that accesses memory is neither left out nor moved past an access."""
    result = "void" if not out else out[0].kind if len(out) == 1 else f"{{ {', '.join(r.kind for r in out)} }}"
    marks, effect = ("sideeffect ", "") if memory else ("", " memory(none)")
    call = f'call {result} asm {marks}"{text}", "{",".join(constraints)}"({", ".join(arguments)})'
    call += f" convergent nounwind{effect}"
    if not out:
        f.line(call)
        return
    found = f.op(call)
    for n, r in enumerate(out):
        part = found if len(out) == 1 else f.op(f"extractvalue {result} {found}, {n}")
        f.line(f"store {r.kind} {part}, ptr {r.place}, align {r.align}")


def assembly_text(lines: Sequence[Line], numbers: Mapping[Ref, int], registers: Mapping[str, Sequence[object]]) -> str:
    """The text with LLVM's numbers of operands, `$0`."""
    out: list[str] = []
    for line in lines:
        parts = [line.braces, line.opcode, " "]
        for x in line.rest:
            if isinstance(x, str):
                parts.append(x)
            elif x.name in registers and x.number is None:
                every = ", ".join(f"${numbers[Ref(x.name, n)]}" for n in range(len(registers[x.name])))
                parts.append(f"{{{every}}}")
            else:
                parts.append(f"${numbers[Ref(x.name, x.number or 0)]}")
        out.append("".join(parts).rstrip() + (";" if line.opcode else ""))
    return " ".join(out)


def kind_of(t: DType) -> str:
    """LLVM's type of a register with elements of that type."""
    return f"i{REGISTER_BITS}" if t.bits < REGISTER_BITS else in_memory(t)


def _registers(f: Function, e: Expressions, a: Access) -> list[_Register]:
    """The registers of a lane, in the private storage of a fragment."""
    t = a.held.operand.dtype
    kind = kind_of(t)
    first = e.pointer(a.buffer, substitute(a.index, {register_of(a.held.operand.name): ZERO}), None)
    places = [first] + [f.op(f"getelementptr {kind}, ptr {first}, i64 {n}") for n in range(1, a.held.registers)]
    return [_Register(kind, p, max(t.bytes, REGISTER_BITS // 8)) for p in places]


def _address(f: Function, e: Expressions, name: str, a: Access, n: int) -> tuple[str, str]:
    """The type and value of an address: 32 bits within the shared memory of a block, 64 bits anywhere."""
    place = e.pointer(a.buffer, substitute(a.index, {address_of(name): index(n), element_of(name): ZERO}), None)
    if a.held.operand.scope != "shared":
        return "i64", f.op(f"ptrtoint ptr {place} to i64")
    return "i32", _within(f, place)


def _within(f: Function, place: str) -> str:
    """A pointer as an address within the shared memory of a block, of 32 bits."""
    within = f.op(f"addrspacecast ptr {place} to ptr addrspace(3)")
    return f.op(f"ptrtoint ptr addrspace(3) {within} to i32")


def write_tied(f: Function, text: str, storage: Sequence[tuple[str, DType, int]]) -> None:
    """Write a text between which and private storage, as (pointer, type, elements), nothing is moved past the other."""
    places: list[_Register] = []
    for pointer, t, size in storage:
        kind = kind_of(t)
        for n in range(size * t.bits // max(REGISTER_BITS, t.bits)):
            place = f.op(f"getelementptr {kind}, ptr {pointer}, i64 {n}")
            places.append(_Register(kind, place, max(t.bytes, REGISTER_BITS // 8)))
    values = [f"{r.kind} {f.op(f'load {r.kind}, ptr {r.place}, align {r.align}')}" for r in places]
    constraints = [f"={CONSTRAINTS[r.kind]}" for r in places] + [str(n) for n in range(len(places))] + ["~{memory}"]
    _call(f, text, places, constraints, values, True)


# The exact remainder of two f64 on a GPU, where there is no instruction for it: what C's `fmod` is elsewhere.
#
# A step takes the divisor times a power of two, `m`, so that the quotient `q = trunc(r / m)` is below 2**52. Rounding can
# make `q` one too large and no smaller. `r - q * m` is a multiple of the last place of `m` and at most `m` in magnitude, so
# an fma gives it exactly (Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., 2018, section 4.6). Each step
# takes at least 49 bits of the quotient; of numbers that are near to each other there is one.
#
# A divisor below the normal numbers is taken as 2**60 times as large, and what remains is divided by the true one in the
# same way, both multiplied by 2**60.


_FMOD = """\
define internal double @fmod(double %a, double %b) {
entry:
  %x = call double @llvm.fabs.f64(double %a)
  %y = call double @llvm.fabs.f64(double %b)
  %finite = fcmp olt double %x, 0x7FF0000000000000
  %positive = fcmp ogt double %y, 0.0
  %defined = and i1 %finite, %positive
  br i1 %defined, label %begin, label %undefined
undefined:
  ret double 0x7FF8000000000000
begin:
  %small = fcmp olt double %y, 0x0010000000000000
  %up = fmul double %y, 0x43B0000000000000
  %d = select i1 %small, double %up, double %y
  %dbits = bitcast double %d to i64
  %dexp = lshr i64 %dbits, 52
  br label %loop
loop:
  %r = phi double [ %x, %begin ], [ %next, %step ], [ %larger, %again ]
  %left = phi i1 [ %small, %begin ], [ %left, %step ], [ false, %again ]
  %more = fcmp oge double %r, %d
  br i1 %more, label %step, label %below
step:
  %rbits = bitcast double %r to i64
  %rexp = lshr i64 %rbits, 52
  %apart = sub i64 %rexp, %dexp
  %over = sub i64 %apart, 50
  %far = icmp sgt i64 %over, 0
  %k = select i1 %far, i64 %over, i64 0
  %shift = shl i64 %k, 52
  %mbits = add i64 %dbits, %shift
  %m = bitcast i64 %mbits to double
  %ratio = fdiv double %r, %m
  %q = call double @llvm.trunc.f64(double %ratio)
  %minus = fneg double %q
  %rest = call double @llvm.fma.f64(double %minus, double %m, double %r)
  %beyond = fcmp olt double %rest, 0.0
  %back = fadd double %rest, %m
  %next = select i1 %beyond, double %back, double %rest
  br label %loop, !llvm.loop !0
below:
  br i1 %left, label %again, label %done
again:
  %larger = fmul double %r, 0x43B0000000000000
  br label %loop
done:
  %down = fmul double %r, 0x3C30000000000000
  %size = select i1 %small, double %down, double %r
  %made = call double @llvm.copysign.f64(double %size, double %a)
  ret double %made
}
"""

_CALLED = {"llvm.fabs.f64": 1, "llvm.trunc.f64": 1, "llvm.fma.f64": 3, "llvm.copysign.f64": 2}
"""The instructions that it calls, with their numbers of operands."""


def define_remainder(module: Module) -> None:
    """Give a module that calls `fmod` the function."""
    del module.declarations["fmod"]
    for name, count in _CALLED.items():
        module.declare("double", name, ("double",) * count)
    module.functions.append(_FMOD)


TRIPLE = "nvptx64-nvidia-cuda"

VERSION = 80
"""The version of PTX, 8.0, if no instruction requires a later one: that of drivers for CUDA 12.0 and later."""

OLDEST_LLVM = 22
"""The first LLVM with what kernels need. LLVM 20 calls barriers as functions, and leaves out the threads of a block, and that
a tensor map is a constant of the launch, without a word."""

_SHARED = "@shared = external addrspace(3) global [0 x i8], align {}\n"
"""The shared memory of a block, whose size is an argument of the launch."""

_SHUFFLES: Mapping[Move, str] = {"down": "down", "up": "up", "xor": "bfly", "lane": "idx"}
"""What PTX calls the ways by which lanes get values."""

_MAP = 'ptr byval([128 x i8]) align 64 "nvvm.grid_constant" %m{}'
"""A tensor map: a value of the launch, of which a kernel has the address."""

_REGISTERS = "llvm.nvvm.read.ptx.sreg"


def device_module(p: DeviceProgram) -> str:
    """The LLVM code of all kernels."""
    module = Module(hardware=HardwareMaths(write_instruction), approx=p.approx)
    for k in p.kernels:
        _write_kernel(module, p, k)
    if "fmod" in module.declarations:
        define_remainder(module)
    descriptors = any(is_of_group(s.intrinsic) for k in p.kernels for s in collectives_in(k.body))
    descriptors |= any(k.maps for k in p.kernels)
    return _SHARED.format(DESCRIBED if descriptors else TRANSACTION) + module.text()


class _Lanes(DeviceStatements):
    """Statements of a thread, which is a lane of its warp, by the instructions of a GPU."""

    def __init__(self, f: Function, scope: SymbolTable, k: DeviceKernel) -> None:
        super().__init__(f, scope, k)
        self._counts = {b.name: b.size for b in k.local}
        self._maps = k.maps
        self._shares = k.shared_loads
        self._mbarriers, self._count = (0, 0) if k.mbarriers is None else (k.mbarriers.offset, k.mbarriers.count)

    def together(self, s: Collective) -> None:
        write_assembly(self.f, self.expressions, s)

    def arm(self, number: int, warps: int) -> None:
        self._at(f"mbarrier.init.shared::cta.b64 [$0], {max(warps, 1)};", str(number))
        if number == self._count - 1:
            others = "fence.mbarrier_init.release.cluster; " if self._shares else ""
            write_tied(self.f, f"{others}fence.proxy.async.shared::cta;", ())  # TMA loads access them, too

    def expect(self, at: str, size: int) -> None:
        self._at(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {size};", at)

    def tma_load(self, s: Collective, at: str) -> None:
        assert s.tile is not None  # only tiles come here
        write_tma_load(self.f, self.expressions, s, f"%m{self._maps.index(s.tile.map)}", self._mbarrier_at(at))

    def tma_store(self, s: Collective) -> None:
        assert s.tile is not None  # only tiles come here
        write_tma_store(self.f, self.expressions, s, f"%m{self._maps.index(s.tile.map)}")

    def commit_tma_stores(self) -> None:
        write_tied(self.f, "cp.async.bulk.commit_group;", ())

    def wait_tma_stores(self) -> None:
        write_tied(self.f, "cp.async.bulk.wait_group.read 0;", ())

    def rejoin(self) -> None:
        self._call("llvm.nvvm.bar.warp.sync", "i32 -1", attributes="convergent nounwind")

    def await_phase(self, at: str, parity: str) -> None:
        # The label is that of a block of its own, which LLVM may write several times.
        text = "{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @!p bra WAIT; }"
        self._at(text, at, f"i32 {parity}")

    def _at(self, text: str, at: str, *others: str) -> None:
        """Write a text of an mbarrier, which is neither left out nor moved."""
        kinds = ",".join(("r", *("b" if x.startswith("i1 ") else "r" for x in others)))
        given = ", ".join((f"i32 {self._mbarrier_at(at)}", *others))
        self.f.line(f'call void asm sideeffect "{text}", "{kinds},~{{memory}}"({given}) convergent nounwind')

    def _mbarrier_at(self, at: str) -> str:
        """The address of an mbarrier within shared memory."""
        first = f"getelementptr (i8, ptr addrspace(3) @shared, i64 {self._mbarriers})"
        place = self.f.op(f"getelementptr i64, ptr addrspace(3) {first}, i64 {at}")
        return self.f.op(f"ptrtoint ptr addrspace(3) {place} to i32")

    def exchange(self, word: str, s: Shuffle) -> str:
        name = f"llvm.nvvm.shfl.sync.{_SHUFFLES[s.move]}.i32"
        # All lanes take part; the last number is the end of a warp, its beginning for lanes before, and above it the bits
        # of a lane's number that say in which group it is (PTX ISA 9.2, section 9.7.9.6: "shfl.sync").
        groups = (LANES - s.width) << 8
        args = ("i32 -1", f"i32 {word}", f"i32 {s.by}", f"i32 {groups + (0 if s.move == 'up' else LANES - 1)}")
        self.f.module.declare("i32", name, ("i32",) * 4, "convergent nounwind")
        return self.f.op(f"call i32 @{name}({', '.join(args)})")

    def barrier(self) -> None:
        convergent = "convergent nounwind"
        if self.role is None:
            self._call("llvm.nvvm.barrier.cta.sync.aligned.all", "i32 0", attributes=convergent)
        else:  # of these threads alone
            name, number = "llvm.nvvm.barrier.cta.sync.aligned.count", barrier_of(self.role)
            self._call(name, f"i32 {number}", f"i32 {self.role.threads}", attributes=convergent)

    def meet_cluster(self) -> None:
        # Not `.aligned`: one thread of the warp that loads comes later than the others.
        write_tied(self.f, "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;", ())

    def release(self, at: str, blocks: int) -> None:
        self.rejoin()  # behind it, what all lanes have read is read
        lane = self.f.op(f"and i64 {self.expressions.scope.vars[THREAD]}, {LANES - 1}")
        if blocks > 1:
            # A lane for each block, without a branch: the address would be computed in it. No store passes between blocks
            # here, so no fence of the cluster is needed.
            arrive = "mapa.shared::cluster.u32 a, $0, $1; @$2 mbarrier.arrive.shared::cluster.b64 _, [a];"
            first = self.f.op(f"icmp ult i64 {lane}, {blocks}")
            block = self.f.op(f"select i1 {first}, i64 {lane}, i64 0")
            self._at(f"{{ .reg .b32 a; {arrive} }}", at, f"i32 {self.f.op(f'trunc i64 {block} to i32')}", f"i1 {first}")
            self.rejoin()
            return
        first, after = self.f.label("first"), self.f.label("released")
        self.f.branch_if(self.f.op(f"icmp eq i64 {lane}, 0"), first, after)
        self.f.start_block(first)
        with self.f.region():
            self._at("mbarrier.arrive.shared::cta.b64 _, [$0];", at)
        self.f.branch(after)
        self.f.start_block(after)
        self.rejoin()

    def begin(self, s: Role) -> None:
        if s.registers:
            how = "dec" if s.alone else "inc"  # as is required where roles are made
            self.f.line(
                f'call void asm sideeffect "setmaxnreg.{how}.sync.aligned.u32 {s.registers};", ""() convergent nounwind'
            )

    def start_copy(self, target: str, source: Callable[[], str], size: int, cond: str | None) -> None:
        places = [
            f"ptr addrspace({space}) {self.f.op(f'addrspacecast ptr {pointer} to ptr addrspace({space})')}"
            for pointer, space in ((target, 3), (source(), 1))
        ]
        # Copies of 16 bytes may pass by the first-level cache, which has no use for data that go to shared memory.
        name = f"llvm.nvvm.cp.async.{'cg' if size == 16 else 'ca'}.shared.global.{size}"
        if cond is None:
            self._call(name, *places)
        else:  # so many bytes are read, and the others are zeros
            self._call(f"{name}.s", *places, f"i32 {self.bytes_read(size, cond, 'i32')}")

    def place_of_update(self, s: Store) -> str:
        return self.expressions.target(s.buffer, s.indices[0], None)

    def next_number(self, chain: str) -> str:
        return self.f.op(f'atomicrmw add ptr {self._word(chain, "0")}, i64 1 syncscope("device") monotonic')

    def put(self, chain: str, at: str, word: str, *, release: bool) -> None:
        how = "release" if release else "relaxed"
        text = f'asm sideeffect "st.{how}.gpu.global.b64 [$0], $1;", "l,l,~{{memory}}"'
        self.f.line(f"call void {text}(i64 {self._address(chain, at)}, i64 {word}) nounwind")

    def get(self, chain: str, at: str, seen: Seen) -> str:
        how = "acquire" if seen == "acquire" else "relaxed"
        text = f'asm sideeffect "ld.{how}.gpu.global.b64 $0, [$1];", "=l,l,~{{memory}}"'
        return self.f.op(f"call i64 {text}(i64 {self._address(chain, at)}) nounwind")

    def pause(self) -> None:
        pass  # a thread tests again at once

    def _word(self, chain: str, at: str) -> str:
        return self.f.op(f"getelementptr i64, ptr {self.expressions.scope.buffers[chain][0]}, i64 {at}")

    def _address(self, chain: str, at: str) -> str:
        """The address of a word in global memory."""
        there = self.f.op(f"addrspacecast ptr {self._word(chain, at)} to ptr addrspace(1)")
        return self.f.op(f"ptrtoint ptr addrspace(1) {there} to i64")

    def commit(self) -> None:
        self._call("llvm.nvvm.cp.async.commit.group")

    def wait(self, groups: int) -> None:
        self._call("llvm.nvvm.cp.async.wait.group", f"i32 {groups}")

    def publish(self) -> None:
        write_tied(self.f, "fence.proxy.async.shared::cta;", ())

    def engage(self, buffers: Sequence[str]) -> None:
        self._tied("wgmma.fence.sync.aligned;", buffers)

    def finish(self, s: WgmmaWait) -> None:
        self._tied(wgmma_wait_text(s), s.buffers)

    def _tied(self, text: str, buffers: Sequence[str]) -> None:
        known = self.expressions.scope.buffers
        write_tied(self.f, text, [(*known[name], self._counts[name]) for name in buffers])

    def _call(self, name: str, *args: str, attributes: str = "") -> None:
        self.f.module.declare("void", name, tuple(a.rsplit(" ", 1)[0] for a in args), attributes)
        self.f.line(f"call void @{name}({', '.join(args)})")


def _write_kernel(module: Module, p: DeviceProgram, k: DeviceKernel) -> None:
    f = Function(module)
    shared = f.op("addrspacecast ptr addrspace(3) @shared to ptr") if k.shared else "null"
    table = kernel_buffers(f, p, k, shared)
    table.invariant = frozenset(k.params) - k.written
    table.vars[THREAD] = _register(f, "tid.x", f"range(i32 0, {k.threads}) ")
    for axis, name in zip(BLOCK_AXES, ("ctaid.x", "ctaid.y", "ctaid.z"), strict=True):
        table.vars[axis] = _register(f, name, "range(i32 0, 2147483647) ")
    if k.cluster > 1:
        x = table.vars[BLOCK_AXES[0]]
        table.vars[CLUSTER] = f.op(f"urem i64 {x}, {k.cluster}")
        table.vars[BLOCK_AXES[0]] = f.op(f"udiv i64 {x}, {k.cluster}")
    _Lanes(f, table, k).write_device(k.body)
    params = [_MAP.format(n) for n in range(len(k.maps))]  # first, so that their alignment leaves no gaps
    params += [_param(k, n, name) for n, name in enumerate(k.params)] + [f"i64 %d{n}" for n in range(len(p.dims))]
    bounds = f'"nvvm.maxntid"="{k.threads}" "nvvm.minctasm"="1"'
    if k.shared_loads:
        bounds += f' "nvvm.cluster_dim"="{k.cluster}"'
    f.define(f"define ptx_kernel void @{k.name}({', '.join(params)}) nounwind {bounds}")


def _param(k: DeviceKernel, n: int, name: str) -> str:
    """An array: one that is only read overlaps none that is written. A written one may be read by other threads behind a
    barrier, so it is not declared to be this function's alone."""
    access = "" if name in k.written else "noalias readonly "
    return f"ptr {access}align {ALIGNMENT} %p{n}"


def _register(f: Function, name: str, known: str) -> str:
    f.module.declare("i32", f"{_REGISTERS}.{name}", ())
    return f.op(f"zext nneg i32 {f.op(f'call {known}i32 @{_REGISTERS}.{name}()')} to i64")


@cache
def version_of(p: DeviceProgram) -> int:
    """The version of PTX that the instructions of the kernels need, 84 for 8.4."""
    used = (x for k in p.kernels for s in collectives_in(k.body) for x in s.intrinsic.lowerings if x.code == s.code)
    return max([VERSION, *(x.ptx_version for x in used)])


def _machine(cpu: str, version: int) -> Any:
    if llvm.llvm_version_info[0] < OLDEST_LLVM:
        has = ".".join(map(str, llvm.llvm_version_info))
        raise CompileError(
            f"code for GPUs needs LLVM {OLDEST_LLVM}, and the llvmlite that is here has LLVM {has}; install llvmlite 0.48 or"
            " later"
        )
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=cpu, features=f"+ptx{version}", opt=3)
    except RuntimeError as e:
        raise CompileError(str(e)) from e


def ptx_of(text: str, cpu: str, version: int = VERSION) -> str:
    """PTX of a version for a GPU, `sm_80`. Raises CompileError if LLVM refuses the code."""
    machine = _machine(cpu, version)
    try:
        module = llvm.parse_assembly(text)
        module.triple = TRIPLE
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as e:
        raise CompileError(str(e)) from e
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = False
    options.loop_unrolling = True  # of the loops that are marked; all others say that they are not to be
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module)

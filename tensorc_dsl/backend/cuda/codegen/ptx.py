"""Writes kernels as LLVM code for NVPTX, and has LLVM make PTX of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from tensorc_dsl.backend.cuda.codegen.assembly import write_assembly, write_tied, write_tma_load, write_tma_store
from tensorc_dsl.backend.cuda.codegen.device import DeviceStatements, Seen, storage
from tensorc_dsl.backend.cuda.lower.collectives import is_of_group
from tensorc_dsl.backend.cuda.lower.kernels import (
    ALIGNMENT,
    BLOCK_AXES,
    THREAD,
    DeviceKernel,
    DeviceProgram,
    Role,
    WgmmaWait,
    collectives_in,
)
from tensorc_dsl.backend.cuda.lower.shared_layout import ALIGNMENT as DESCRIBED
from tensorc_dsl.backend.cuda.lower.structure import TRANSACTION
from tensorc_dsl.backend.llvm.codegen.function import Function, Module, SymbolTable
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.ir.program import Store
from tensorc_dsl.ir.warp import LANES
from tensorc_dsl.lower.flat import Collective, Move, Shuffle

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
    module = Module()
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
        self._mbarriers, self._count = (0, 0) if k.mbarriers is None else (k.mbarriers.offset, k.mbarriers.count)

    def together(self, s: Collective) -> None:
        write_assembly(self.f, self.expressions, s)

    def arm(self, number: int, warps: int) -> None:
        self._at(f"mbarrier.init.shared::cta.b64 [$0], {max(warps, 1)};", str(number))
        if number == self._count - 1:
            write_tied(self.f, "fence.proxy.async.shared::cta;", ())  # TMA loads access them, too

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
        kinds = ",".join("r" for _ in range(1 + len(others)))
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
        else:  # of these threads alone, of which there is one group that has barriers
            self._call(
                "llvm.nvvm.barrier.cta.sync.aligned.count", "i32 1", f"i32 {self.role.threads}", attributes=convergent
            )

    def release(self, at: str) -> None:
        self.rejoin()  # behind it, what all lanes have read is read
        lane = self.f.op(f"and i64 {self.expressions.scope.vars[THREAD]}, {LANES - 1}")
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
        end = "wgmma.commit_group.sync.aligned; " if s.ends_group else ""
        self._tied(f"{end}wgmma.wait_group.sync.aligned {s.groups};", s.buffers)

    def _tied(self, text: str, buffers: Sequence[str]) -> None:
        known = self.expressions.scope.buffers
        write_tied(self.f, text, [(*known[name], self._counts[name]) for name in buffers])

    def _call(self, name: str, *args: str, attributes: str = "") -> None:
        self.f.module.declare("void", name, tuple(a.rsplit(" ", 1)[0] for a in args), attributes)
        self.f.line(f"call void @{name}({', '.join(args)})")


def _write_kernel(module: Module, p: DeviceProgram, k: DeviceKernel) -> None:
    f = Function(module)
    shared = f.op("addrspacecast ptr addrspace(3) @shared to ptr") if k.shared else "null"
    table = storage(f, p, k, shared)
    table.vars[THREAD] = _register(f, "tid.x", f"range(i32 0, {k.threads}) ")
    for axis, name in zip(BLOCK_AXES, ("ctaid.x", "ctaid.y", "ctaid.z"), strict=True):
        table.vars[axis] = _register(f, name, "range(i32 0, 2147483647) ")
    _Lanes(f, table, k).write_device(k.body)
    params = [_MAP.format(n) for n in range(len(k.maps))]  # first, so that their alignment leaves no gaps
    params += [_param(k, n, name) for n, name in enumerate(k.params)] + [f"i64 %d{n}" for n in range(len(p.dims))]
    f.define(
        f'define ptx_kernel void @{k.name}({", ".join(params)}) nounwind "nvvm.maxntid"="{k.threads}" "nvvm.minctasm"="1"'
    )


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

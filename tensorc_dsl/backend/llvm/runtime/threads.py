"""The runtime that kernels are linked to: parallel loops and timing. It is compiled once per process, and never unloaded."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from importlib import resources
from statistics import median

import llvmlite.binding as llvm

from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.llvm.codegen.statements import PARALLEL_FOR
from tensorc_dsl.ir.target import Target, architecture_of

# The thread pool's code, for the target of the kernels.


_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def runtime_text(name: str) -> str:
    """The text of one of this folder's files of LLVM IR."""
    return resources.files("tensorc_dsl.backend.llvm.runtime").joinpath(f"{name}.ll").read_text("utf-8")


def pool_text(triple: str) -> str:
    """The LLVM IR of the pool for a triple such as `aarch64-unknown-linux-gnu`; it defines `PARALLEL_FOR`."""
    declaration, pause = _PAUSES.get(architecture_of(triple), ("", ""))
    # The number of the clock depends on the system: Linux or macOS.
    text = runtime_text("pool").replace("CLOCK_MONOTONIC", "1" if "linux" in triple else "6")
    text += runtime_text("placement_linux" if "linux" in triple else "placement_none")
    return f"{text}\n{declaration}\ndefine internal void @pause() alwaysinline {{\n  {pause}\n  ret void\n}}\n"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The addresses of the runtime's functions, and the JIT in which kernels are linked."""

    jit: llvm.LLJIT
    parallel_for: int
    time: int
    empty_loop: int


_lock = threading.Lock()
_loaded: list[Runtime] = []


def runtime() -> Runtime:
    """The runtime of this process, compiled on first use (some 20 ms)."""
    with _lock:
        if not _loaded:
            _loaded.append(_load())
        return _loaded[0]


def _load() -> Runtime:
    machine = Machine(Target(cpu=llvm.get_host_cpu_name(), features=""))
    jit = llvm.create_lljit_compiler(machine.machine)
    text = pool_text(machine.triple) + runtime_text("timing")
    names = (PARALLEL_FOR, "tensorc_time", "tensorc_empty_loop")
    library = llvm.JITLibraryBuilder().add_object_img(machine.object_code(text)).add_current_process()
    for name in names:
        library.export_symbol(name)
    tracker = library.link(jit, "tensorc_runtime")
    addresses = [int(tracker[name]) for name in names]
    # Worker threads run this code until the process ends, so it must not be freed at interpreter shutdown.
    for forever in (jit, tracker):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(forever))
    return Runtime(jit, *addresses)


def fork_join_seconds(threads: int, repeats: int = 2000) -> float:
    """Seconds to start and join an empty parallel loop: the median of `repeats` in a row."""
    rt = runtime()
    count = ctypes.c_int64(threads)
    return median(time_native(rt.empty_loop, ctypes.addressof(count), 0, repeats))


def time_native(kernel: int, arguments: int, workspace: int, repeats: int) -> list[float]:
    """Seconds of each of `repeats` calls in a row, measured in native code."""
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; it must be at least 1")
    out = (ctypes.c_int64 * repeats)()
    timer = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_void_p)(runtime().time)
    timer(kernel, arguments, workspace or None, repeats, ctypes.addressof(out))
    return [ns * 1e-9 for ns in out]

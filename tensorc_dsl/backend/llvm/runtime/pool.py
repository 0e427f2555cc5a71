"""The thread pool's code, for the target of the kernels."""

from __future__ import annotations

from importlib import resources

from tensorc_dsl.ir.target import architecture_of

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

"""The child process that compiles: it turns program text into object code, and contains crashes of LLVM."""

from __future__ import annotations

from tensorc_dsl.backend.find import native, require_backend
from tensorc_dsl.backend.once import Packed
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.processes.child import serve
from tensorc_dsl.tuning.measure.messages import Build, Built, Failed, Reply, Request, requests


def build(request: Request) -> Reply:
    """The object code, or the error of the code generator, or what a kernel keeps in memory for want of registers."""
    assert isinstance(request, Build)
    backend = require_backend(request.target.kind, request.task)
    kernel = Packed(request.kernel, request.parts).unpack()
    try:
        compiled = backend.compile(kernel, request.target, request.threads)
        spilled = backend.registers(compiled).spilled
    except CompileError as e:
        return Failed("compile_error", str(e))
    if spilled:
        return Failed("refused", f"the schedule spills registers: {spilled}; make the tiles of a thread smaller")
    return Built(compiled.code)


def preload() -> None:
    """Load what most requests need: the fork server does, before it forks."""
    native()


if __name__ == "__main__":
    serve(requests, build)

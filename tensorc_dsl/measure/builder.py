"""The child process that compiles: it turns program text into object code, and contains crashes of LLVM."""

from __future__ import annotations

from tensorc_dsl.backend.find import require_backend
from tensorc_dsl.backend.once import Packed
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.measure.child import serve
from tensorc_dsl.measure.messages import Build, Built, Failed, Reply, Request, requests


def build(request: Request) -> Reply:
    """The object code, or the error of the code generator."""
    assert isinstance(request, Build)
    backend = require_backend(request.target.kind, request.task)
    kernel = Packed(request.kernel, request.parts).unpack()
    try:
        compiled = backend.compile(kernel, request.target, request.threads)
    except CompileError as e:
        return Failed("compile_error", str(e))
    return Built(compiled.code)


if __name__ == "__main__":
    serve(requests, build)

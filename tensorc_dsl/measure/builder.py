"""The child that compiles: program text in, object code out. What LLVM does to it, it does to this process only."""

from __future__ import annotations

from tensorc_dsl.backend.find import require_backend
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.measure.child import serve
from tensorc_dsl.measure.messages import Build, Built, Failed, Reply, Request, requests
from tensorc_dsl.source import Source


def build(request: Request) -> Reply:
    """Object code, or why there is none: refused by the lowering, or an error of LLVM's."""
    assert isinstance(request, Build)
    program = parse_program(Source("candidate", request.program))
    backend = require_backend(request.target.kind, program.name)
    try:
        kernel = backend.lower(program, request.target)
    except LowerError as e:
        return Failed("refused", str(e))
    try:
        compiled = backend.compile(kernel, request.target, request.threads)
    except CompileError as e:
        return Failed("compile_error", str(e))
    return Built(compiled.code)


if __name__ == "__main__":
    serve(requests, build)

"""The sources of a runner: an executable that makes inputs, runs the kernel of a task and prints its times as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from importlib import resources
from math import log2

from tensorc_dsl.backend.llvm.ahead.entries import bytes_of
from tensorc_dsl.backend.llvm.ahead.interface import LINE, MEANINGS, Interface, Signature, Status
from tensorc_dsl.backend.llvm.codegen.compile import byte_count
from tensorc_dsl.backend.llvm.codegen.function import Function, Module, Scalar
from tensorc_dsl.ir.dtypes import unit_roundoff
from tensorc_dsl.ir.expr import Dim
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Param


def sources(api: Interface, target: Target, threads: int) -> dict[str, str]:
    """The C files of a runner by their names, beside the header of the library, to be linked with the library's object and
    that of `counts`.

    What the task defines is in a file of its own, so that it may be called like a function of the runner.
    """
    runner = resources.files("tensorc_dsl.backend.llvm.ahead").joinpath("runner.c").read_text("utf-8")
    calls, tables = "\n".join(_calls(api)), "\n".join(_tables(api, target, threads))
    return {"runner.c": runner, "task.c": f"{calls}\n", "task.h": f"{tables}\n"}


def counts(api: Interface) -> str:
    """A module of LLVM with a function for the bytes of each array, over the open sizes."""
    module = Module()
    sizes: dict[str, Scalar] = {d.name: f"%d{k}" for k, d in enumerate(api.dims)}
    formal = ", ".join(f"i64 {d}" for d in sizes.values())
    for k, p in enumerate(api.params):
        f = Function(module)
        total = byte_count(f, bytes_of(p), sizes)
        f.define(f"define i64 @{_counter(k)}({formal}) nounwind", f"i64 {total}")
    return module.text()


def _counter(position: int) -> str:
    return f"tensorc_runner_bytes_{position}"


def _tables(api: Interface, target: Target, threads: int) -> Iterator[str]:
    yield "#include <stdint.h>"
    yield f'#define NAME "{api.name}"'
    yield f'#define CPU "{target.cpu}"'
    yield f"#define THREADS {threads}"
    yield f"enum {{ SIZES = {len(api.dims)}, ARRAYS = {len(api.params)}, LACKING = {Status.CPU.value} }};"
    yield "struct size { const char *name; int64_t low, high; };"
    yield "struct array { const char *name; char kind; int bytes, exponent, fraction, given, output; };"
    high = ("INT64_MAX" if d.high is None else str(d.high) for d in api.dims)
    rows = [f'{{"{d.name}", {d.low}, {top}}}' for d, top in zip(api.dims, high, strict=True)]
    yield f"static const struct size sizes[SIZES + 1] = {{{', '.join([*rows, '{0, 0, 0}'])}}};"
    yield f"static const struct array arrays[ARRAYS] = {{{', '.join(map(_row, api.params))}}};"
    yield f"static const char *const meanings[] = {{{', '.join(json.dumps(text) for text in MEANINGS.values())}}};"
    yield "int64_t tensorc_runner_bytes(int array, const int64_t *size);"
    yield "int32_t tensorc_runner_prepare(const int64_t *size, void **data);"
    yield "int32_t tensorc_runner_call(const int64_t *size, void **data);"


def _row(p: Param) -> str:
    fraction = round(-log2(unit_roundoff(p.dtype))) - 1 if p.dtype.is_float else 0
    exponent = p.dtype.bits - 1 - fraction
    numbers = p.dtype.bytes, exponent, fraction, int(p.given), int(p.output)
    return f"{{\"{p.name}\", '{p.dtype.kind[0]}', {', '.join(map(str, numbers))}}}"


def _calls(api: Interface) -> Iterator[str]:
    """The functions that pass arrays and sizes to the kernel; constant inputs are prepared once if they can be.

    All names begin with `tensorc_`, as no name of a task does.
    """
    yield f'#include "{api.name}.h"'
    yield "#include <stdlib.h>"
    formal = ", ".join(["int64_t"] * len(api.dims)) or "void"
    for k in range(len(api.params)):
        yield f"int64_t {_counter(k)}({formal});"
    yield "int64_t tensorc_runner_bytes(int tensorc_array_number, const int64_t *tensorc_size) {"
    yield "    (void)tensorc_size;"
    yield "    switch (tensorc_array_number) {"
    for k in range(len(api.params)):
        yield f"    case {k}: return {_counter(k)}({_given(api, api.dims)});"
    yield "    default: return 0;"
    yield "    }"
    yield "}"
    if api.memory:
        yield "static void *tensorc_memory;"
    yield "int32_t tensorc_runner_prepare(const int64_t *tensorc_size, void **tensorc_data) {"
    yield "    (void)tensorc_size, (void)tensorc_data;"
    if api.memory and api.prepare:
        yield f"    int64_t tensorc_bytes = {api.prepared_bytes}({_given(api, api.memory.dims)});"
        yield "    if (tensorc_bytes < 0) return TENSORC_MEMORY;"
        yield f"    if (posix_memalign(&tensorc_memory, {LINE}, (size_t)tensorc_bytes)) return TENSORC_MEMORY;"
        yield f"    return {_call(api, api.prepare)};"
    else:
        yield "    return TENSORC_OK;"
    yield "}"
    yield "int32_t tensorc_runner_call(const int64_t *tensorc_size, void **tensorc_data) {"
    yield "    (void)tensorc_size;"
    yield f"    return {_call(api, api.run or api.whole)};"
    yield "}"


def _call(api: Interface, s: Signature) -> str:
    arrays = ", ".join(f"tensorc_data[{api.params.index(p)}]" for p in s.params)
    memory = "" if s.memory == "no" else "tensorc_memory"
    return f"{s.name}({', '.join(x for x in (_given(api, s.dims), arrays, memory) if x)})"


def _given(api: Interface, dims: Iterable[Dim]) -> str:
    return ", ".join(f"tensorc_size[{api.dims.index(d)}]" for d in dims)

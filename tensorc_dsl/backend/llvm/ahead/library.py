"""Libraries made ahead of time, of kernels and of models: their files, and the C header, which is a part of each. A runner is
an executable that makes inputs, runs the kernel of a task and prints its times as JSON. The library of a model has all its
kernels, its calls as a table, and a file of packed weights.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from hashlib import sha256
from importlib import metadata, resources
from math import log2
from pathlib import Path

import llvmlite.binding as llvm

from tensorc_dsl.backend.llvm.ahead.cpu import Check, add_check, required_features
from tensorc_dsl.backend.llvm.ahead.entries import (
    MEMORY,
    Entry,
    Span,
    bytes_of,
    declare_scratch,
    write_checked,
    write_entries,
)
from tensorc_dsl.backend.llvm.ahead.interface import (
    LINE,
    MEANINGS,
    WORD,
    Interface,
    ModelInterface,
    Signature,
    Status,
    argument_name,
    c_type,
    describe,
    prepared_memory,
    require_free,
)
from tensorc_dsl.backend.llvm.codegen.compile import (
    Compiled,
    byte_count,
    compile_kernel,
    fixed_bytes,
    kernel_text,
    prepare_symbol,
    prepared_size,
    symbol_of,
    workspace_size,
)
from tensorc_dsl.backend.llvm.codegen.function import Function, Module, Scalar
from tensorc_dsl.backend.llvm.codegen.machine import Machine, native_triple
from tensorc_dsl.backend.llvm.codegen.statements import PARALLEL_FOR
from tensorc_dsl.backend.llvm.model.threads import workers
from tensorc_dsl.backend.llvm.runtime.call_table import HEAD, Table, TaskFacts, call_table, packed_weights
from tensorc_dsl.backend.llvm.runtime.kernel import Code, load
from tensorc_dsl.backend.llvm.runtime.native import pool_text, runtime_text
from tensorc_dsl.backend.memory import MOST_BYTES
from tensorc_dsl.backend.protocol import CompileError, Form, ModelCalls
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.dtypes import unit_roundoff
from tensorc_dsl.ir.expr import Dim, Expr, constant, dims_in, index, mul
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.sizes import conditions_on
from tensorc_dsl.ir.target import Target, architecture_of
from tensorc_dsl.lower.flat import Kernel, Param, format_shape
from tensorc_dsl.processes.start import Limits, run_executable

# Links shared libraries and runners with a C compiler, which knows the system's conventions.


@problem(
    "E0913",
    "`{name}` cannot be linked: {reason}",
    help="install a C compiler or name one, `CC=clang tensorc-dsl …`, or take `--emit obj`, which needs none, and link it "
    "yourself",
)
def NO_LINKER(*, name: str, reason: str) -> None: ...


SECONDS = 300.0
"""The time limit of a linker, which usually takes a twentieth of a second."""


def link_shared(object_code: bytes, name: str, triple: str) -> bytes:
    """The shared library of an object file for a kind of machine. Raises TschedError (E0913)."""
    options = ["-shared"]
    if sys.platform != "darwin":
        # The pool's threads run code of the library, so it must never be unloaded.
        options += ["-Wl,-z,nodelete", "-Wl,-z,noexecstack", "-Wl,--no-undefined", "-Wl,--as-needed"]
    return _linked(name, _compiler(name, triple), options, {f"{name}.o": object_code}, ["-lm"])


@lru_cache(maxsize=8)
def _object_of(name: str, compiler: tuple[str, ...], sources: tuple[tuple[str, bytes], ...]) -> bytes:
    """One object of some C files and their headers. Those of a runner are the same for all candidates of a search, and take
    longer to compile than a kernel. Raises TschedError (E0913).
    """
    return _linked(name, compiler, ["-std=gnu99", "-O1", "-r", "-nostdlib"], dict(sources))


def _compiler(name: str, triple: str) -> tuple[str, ...]:
    """The C compiler: the one that the variable CC names, else `cc`, or for another instruction set the usual name of a
    compiler for it. Raises TschedError (E0913) if there is none.
    """
    theirs, ours = (architecture_of(t) for t in (triple, native_triple()))
    usual = f"{theirs}-linux-gnu-gcc" if triple and theirs != ours else "cc"
    command = shlex.split(os.environ.get("CC", "")) or [usual]
    if shutil.which(command[0]) is None:
        raise TschedError(NO_LINKER(None, name=name, reason=f"there is no C compiler `{command[0]}`"))
    return tuple(command)


def _linked(
    name: str,
    command: Sequence[str],
    options: Sequence[str],
    files: Mapping[str, bytes],
    libraries: Sequence[str] = (),
) -> bytes:
    """What a C compiler makes of files, among them headers. Raises TschedError (E0913) if it fails."""
    with tempfile.TemporaryDirectory(prefix="tensorc-dsl-") as folder:
        for file, data in files.items():
            Path(folder, file).write_bytes(data)
        inputs = [str(Path(folder, file)) for file in files if not file.endswith(".h")]
        out = Path(folder, "linked")
        done = run_executable([*command, *options, "-pthread", "-o", str(out), *inputs, *libraries], Limits(SECONDS))
        if done.returncode:
            said = (done.stderr.strip().replace(f"{folder}{os.sep}", "") or "nothing").splitlines()[0]
            reason = f"`{shlex.join([*command, *options])}` ends with status {done.returncode} and says {said}"
            raise TschedError(NO_LINKER(None, name=name, reason=reason))
        return out.read_bytes()


FORMS = {
    "llvm": Form(".ll", True, "the LLVM code, before LLVM's passes"),
    "asm": Form(".s", True, "the machine's assembly"),
    "obj": Form(".o", False, "an object file, to be linked with -pthread", usual=True),
    "so": Form(".so", False, "a shared library; needs the system's C compiler"),
    "runner": Form(
        ".run", False, "a program that makes inputs, and times the kernel; needs a C compiler", executable=True
    ),
    "header": Form(".h", True, "the declarations for C and C++", usual=True),
}


@frozen
class Library:
    """The ahead-of-time output of one kernel. Its functions may be called from several threads at once."""

    interface: Interface
    target: Target
    threads: int
    origin: str
    llvm_ir: str
    """The module as written, before LLVM's passes; it needs only the C library."""

    def make(self, form: str) -> bytes:
        """A file in one of the forms of `FORMS`. Raises TschedError (E0913) if there is no C compiler to link it.

        Objects show `interface.exports` only; they are position-independent, to be linked with `-pthread`.
        """
        machine = Machine(self.target)
        match form:
            case "llvm":
                return self.llvm_ir.encode()
            case "asm":
                return machine.assembly(self.llvm_ir).encode()
            case "obj":
                return machine.object_code(self.llvm_ir)
            case "so":
                return link_shared(machine.object_code(self.llvm_ir), self.interface.name, self.target.triple)
            case "runner":
                return self._runner(machine)
            case "header":
                return write_header(self.interface, self.target, machine.triple, self.threads, self.origin).encode()
            case _:
                raise ValueError(f"a library has no form {form!r}")

    def _runner(self, machine: Machine) -> bytes:
        """A program without other files, so that it runs wherever the system is the same: macOS has no such programs."""
        api = self.interface
        compiler = _compiler(api.name, self.target.triple)
        sources = {name: text.encode() for name, text in runner_sources(api, self.target, self.threads).items()}
        sources[f"{api.name}.h"] = self.make("header")
        files = {
            "kernel.o": self.make("obj"),
            "counts.o": machine.object_code(runner_counts(api)),
            "runner.o": _object_of(api.name, compiler, tuple(sources.items())),
        }
        static = [] if sys.platform == "darwin" else ["-static"]
        return _linked(api.name, compiler, static, files, ["-lm"])


def make_library(kernel: Compiled, origin: str) -> Library:
    """The library of a kernel, for its target and number of threads; its schedule is `origin`.

    Raises CompileError if LLVM refuses the code.
    """
    name = kernel.symbol.removeprefix("tensorc_")
    api = Interface(name, kernel.params, kernel.dims, prepared_memory(kernel))
    machine = Machine(kernel.target)
    entries = Module()
    write_entries(entries, api, kernel)
    facts = describe(
        api, kernel.target, machine.triple, kernel.threads, origin, metadata.version("tensorc-dsl")
    ).encode()
    entries.functions.append(text_constant(api.metadata, facts))
    module = machine.parsed(entries.text())
    scratch = ahead_text("scratch")
    pool = [pool_text(machine.triple)] if f"@{PARALLEL_FOR}(" in kernel.llvm_ir else []
    for text in (kernel.llvm_ir, scratch, *pool):
        link(module, machine.parsed(text))
    hide(module, api.exports)
    return Library(api, kernel.target, kernel.threads, origin, str(module))


def ahead_text(name: str) -> str:
    """The text of one of this folder's files of LLVM IR."""
    return resources.files("tensorc_dsl.backend.llvm.ahead").joinpath(f"{name}.ll").read_text("utf-8")


def link(module: llvm.ModuleRef, other: llvm.ModuleRef) -> None:
    """Link another module into the module. Raises CompileError."""
    try:
        module.link_in(other)
    except RuntimeError as e:
        raise CompileError(str(e)) from e


def hide(module: llvm.ModuleRef, exports: tuple[str, ...]) -> None:
    """Make all symbols but `exports` internal. The pool stays shared with other objects linked into the same program."""
    for f in module.functions:
        if f.name == PARALLEL_FOR:
            f.linkage, f.visibility = "weak_any", "hidden"
        elif not f.is_declaration and f.name not in exports:
            f.linkage = "internal"


def text_constant(name: str, data: bytes) -> str:
    """A constant of LLVM with some bytes and a zero byte."""
    return f'@{name} = constant [{len(data) + 1} x i8] c"{_escaped(data)}\\00", align 1'


def _escaped(data: bytes) -> str:
    """Bytes as a string constant of LLVM."""
    return "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)


# Writes the C header of a library.


STRIDES = "   Of arrays with strides these are the distances of neighbours along each dimension, in elements."

_SHARED = """\
#ifndef TENSORC_STATUS_DECLARED
#define TENSORC_STATUS_DECLARED

/* What the low byte of a result means. */
enum tensorc_status {{
{statuses}
}};

/* Of a result: what is wrong, and with which argument, counted from 0. */
#define TENSORC_STATUS(result) ((result) & 255)
#define TENSORC_ARGUMENT(result) ((result) >> 8)

/* An array with its description: DLPack's DLTensor, field by field.
   The data begins byte_offset bytes behind data. strides count elements; NULL means that they are those of a dense array. */
typedef struct tensorc_array {{
    void *data;
    int32_t device_type; /* 1, the CPU */
    int32_t device_id;
    int32_t ndim;
    uint8_t code;   /* 0: int, 1: uint, 2: float, 4: bfloat, 6: bool */
    uint8_t bits;
    uint16_t lanes; /* 1 */
    const int64_t *shape;
    const int64_t *strides;
    uint64_t byte_offset;
}} tensorc_array;

/* The machine that this was made for; a size below 0 is an error of the C compiler. */
typedef char tensorc_requires_64_bit_pointers[sizeof(void *) == 8 ? 1 : -1];
typedef char tensorc_requires_single_float[sizeof(float) == 4 ? 1 : -1];
typedef char tensorc_requires_the_layout_of_dlpack[sizeof(tensorc_array) == 48 ? 1 : -1];

#endif
"""


def write_header(api: Interface, target: Target, triple: str, threads: int, origin: str) -> str:
    """Declarations for C99 and C++11: the functions, their status codes, and the shape of each array."""
    return header_of(api, target, triple, threads, f"The schedule is {origin}.", _functions(api))


def header_of(
    api: Interface | ModelInterface, target: Target, triple: str, threads: int, origin: str, functions: Iterable[str]
) -> str:
    """A header with these declarations of functions."""
    at_most = "one thread" if threads == 1 else f"up to {threads} threads"
    features = ", ".join(required_features(target))
    needed = f"Without one of these features it does nothing: {features}." if features else "It asks for no features."
    statuses = ",\n".join(f"    TENSORC_{s.name} = {s.value} /* {text} */" for s, text in MEANINGS.items())
    return "\n".join(
        [
            f"/* {api.name}: made by tensorc-dsl for {triple}, cpu {target.cpu}; runs on {at_most}.",
            *textwrap.wrap(needed, 120, initial_indent="   ", subsequent_indent="   "),
            f"   {origin}",
            "*/",
            f"#ifndef TENSORC_{api.name}_H",
            f"#define TENSORC_{api.name}_H",
            "",
            "#include <stdint.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            _SHARED.format(statuses=statuses),
            *_constants(api),
            "",
            *functions,
            "/* The name, arrays, sizes and target of the library as JSON, for programs without this header. */",
            f"extern const char {api.metadata}[];",
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            "#endif",
            "",
        ]
    )


def _functions(api: Interface) -> Iterator[str]:
    outputs = ", ".join(p.name for p in api.params if p.output)
    yield from _function(api.whole, f"Computes {outputs}")
    if api.memory is None or api.prepare is None or api.run is None:
        return
    constants = ", ".join(p.name for p in api.memory.constants)
    sizes = ", ".join(f"int64_t {argument_name(d.name)}" for d in api.memory.dims)
    otherwise = "; -1 where a size is out of its range, or no memory has as many" if sizes else ""
    yield f"/* How many bytes of prepared memory there have to be{otherwise}. */"
    if (size := constant(api.memory.bytes)) is not None:
        yield f"#define {api.name}_PREPARED_BYTES INT64_C({size})"
    yield f"int64_t {api.prepared_bytes}({sizes or 'void'});"
    yield ""
    yield from _function(api.prepare, f"Computes what follows from {constants} alone; they are not needed afterwards")
    yield from _function(api.run, f"Computes {outputs} from what {api.prepare.name} has prepared")


def _function(s: Signature, what: str) -> Iterator[str]:
    prepared = free_name("prepared", s)
    owner = "the caller's; it may be copied, other builds refuse it"
    match s.memory:
        case "no":
            yield from declarations(s, what)
        case "writes":
            yield from declarations(s, what, f"void *{prepared}", f"output, aligned to {LINE} bytes, {owner}")
        case "reads":
            yield from declarations(s, what, f"const void *{prepared}", f"input, aligned to {LINE} bytes, {owner}")


def declarations(s: Signature, what: str, memory: str = "", about: str = "") -> Iterator[str]:
    """The declarations of both forms of a function, with a comment on each argument. The last one is `memory`, if any."""
    yield f"/* {what}. Returns 0, or a status and writes nothing."
    yield "   Arrays are dense, the last dimension fastest, aligned to their elements; outputs overlap no other array."
    if any(p.strides for p in s.params):
        yield STRIDES
    formals: list[str] = []
    for d in s.dims:
        yield f"   {argument_name(d.name)}: a size, {f'at least {d.low}' if d.high is None else f'{d.low} to {d.high}'}"
        formals.append(f"int64_t {argument_name(d.name)}")
    for c in conditions_on(s.dims):
        yield f"   Sizes are such that {format_expr(c)}"
    for p in s.params:
        kept = (
            " as its bits" if p.dtype.is_float and p.dtype.bits < 32 else ", 0 or 1" if p.dtype.kind == "bool" else ""
        )
        yield f"   {argument_name(p.name)}: {p.role}, {described(p)}{kept}"
        formals.append(f"{'' if p.output else 'const '}{c_type(p.dtype).name} *{argument_name(p.name)}")
    last = [memory] if memory else []
    if memory:
        yield f"   {memory.rpartition('*')[2]}: {about}"
    yield "*/"
    yield f"int32_t {s.name}({', '.join([*formals, *last])});"
    yield ""
    yield "/* The same for arrays that carry their descriptions, in the same order. Nothing but the descriptions is read"
    yield "   before all of them are found right. */"
    yield f"int32_t {s.checked}({', '.join(['const tensorc_array *arrays', 'int32_t count', *last])});"
    yield ""


def described(p: Param) -> str:
    """The type of an argument in a comment, with its shape and its declared strides."""
    strides = f" strides {format_shape(p.strides)}" if p.strides else ""
    return f"{p.dtype}{format_shape(p.shape) if p.shape else ''}{strides}"


def free_name(name: str, s: Signature) -> str:
    """The name, made longer until no size and no array has it."""
    while name in {argument_name(x.name) for x in (*s.dims, *s.params)}:
        name += "_"
    return name


def _constants(api: Interface | ModelInterface) -> Iterator[str]:
    for d in api.dims:
        yield f"#define {api.name}_{d.name}_MIN INT64_C({d.low})"
        if d.high is not None:
            yield f"#define {api.name}_{d.name}_MAX INT64_C({d.high})"
    for p in api.params:
        yield f"#define {api.name}_{p.name}_RANK {len(p.shape)}"
        yield from _shape_of(f"{api.name}_{p.name}", p)


def _shape_of(prefix: str, p: Param) -> Iterator[str]:
    """The shape and the number of elements of an array; over sizes if the shape contains only those and numbers."""
    if not all(isinstance(e, Dim) or constant(e) is not None for e in p.shape):
        return
    names = sorted({d.name for e in p.shape for d in dims_in(e)})
    given = f"({', '.join(names)})" if names else ""
    if p.shape:
        yield f"#define {prefix}_SHAPE{given} {{{', '.join(map(_extent, p.shape))}}}"
    if p.strides and all(isinstance(e, Dim) or constant(e) is not None for e in p.strides):
        told = sorted({d.name for e in p.strides for d in dims_in(e)})
        over = f"({', '.join(told)})" if told else ""
        yield f"#define {prefix}_STRIDES{over} {{{', '.join(map(_extent, p.strides))}}}"
    count = constant(reduce(mul, p.shape, index(1)))
    product = f"({' * '.join(map(_extent, p.shape))})" if count is None else f"INT64_C({count})"
    yield f"#define {prefix}_COUNT{given} {product}"


def _extent(e: Expr) -> str:
    n = constant(e)
    return f"(int64_t)({format_expr(e)})" if n is None else f"INT64_C({n})"


def runner_sources(api: Interface, target: Target, threads: int) -> dict[str, str]:
    """The C files of a runner by their names, beside the header of the library, to be linked with the library's object and
    that of `runner_counts`.

    What the task defines is in a file of its own, so that it may be called like a function of the runner.
    """
    runner = resources.files("tensorc_dsl.backend.llvm.ahead").joinpath("runner.c").read_text("utf-8")
    calls, tables = "\n".join(_calls(api)), "\n".join(_runner_tables(api, target, threads))
    return {"runner.c": runner, "task.c": f"{calls}\n", "task.h": f"{tables}\n"}


def runner_counts(api: Interface) -> str:
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


def _runner_tables(api: Interface, target: Target, threads: int) -> Iterator[str]:
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


MODEL_FORMS = {
    "obj": Form(".o", False, "an object file, to be linked with -pthread"),
    "so": Form(".so", False, "a shared library; needs the system's C compiler", usual=True),
    "header": Form(".h", True, "the declarations for C and C++", usual=True),
    "weights": Form(".weights", False, "the weights as the library reads them", usual=True),
}


@frozen
class ModelLibrary:
    """The ahead-of-time output of a model. Its functions may be called from several threads at once."""

    interface: ModelInterface
    target: Target
    threads: int
    origin: str
    llvm_ir: str
    """The module without the kernels, before LLVM's passes."""
    kernels: tuple[str, ...]
    weights: Array

    def make(self, form: str) -> bytes:
        """A file in one of the forms of `MODEL_FORMS`. Raises TschedError (E0913) if there is no C compiler to link `so`."""
        match form:
            case "obj":
                return self._object()
            case "so":
                return link_shared(self._object(), self.interface.name, self.target.triple)
            case "header":
                return self._header().encode()
            case "weights":
                return self.weights.tobytes()
            case _:
                raise ValueError(f"the library of a model has no form {form!r}")

    def _object(self) -> bytes:
        """The object file. Each kernel is optimised by itself, so that its code is that of the kernel in a process."""
        machine = Machine(self.target)
        module = machine.module(self.llvm_ir)
        for text in self.kernels:
            link(module, machine.module(text))
        hide(module, self.interface.exports)
        options = llvm.create_pipeline_tuning_options()
        passes = llvm.create_new_module_pass_manager()
        passes.add_global_dead_code_eliminate_pass()
        passes.run(module, llvm.create_pass_builder(machine.machine, options))
        return machine.machine.emit_object(module)

    def _header(self) -> str:
        return header_of(
            self.interface, self.target, Machine(self.target).triple, self.threads, self.origin, self._functions()
        )

    def _functions(self) -> Iterator[str]:
        api = self.interface
        has_weights = self.weights.size > HEAD
        yield "/* A model that is ready to run: its weights, and memory for intermediate results. */"
        yield f"typedef struct {api.instance} {api.instance};"
        yield ""
        yield "/* Makes an instance. Returns 0, or a status and makes none. Instances of one file share its memory."
        path = "the path of the file that was made with this library" if has_weights else "not used, may be NULL"
        yield f"   weights: {path}"
        yield "   instance: output, to be destroyed"
        yield "*/"
        yield f"int32_t {api.create}(const char *weights, {api.instance} **instance);"
        yield ""
        outputs = ", ".join(p.name for p in api.params if p.output)
        yield from declarations(
            api.run,
            f"Computes {outputs}",
            f"{api.instance} *{free_name('instance', api.run)}",
            "what was created; any number of threads may run it at once",
        )
        yield "/* Frees an instance that no thread runs any more; NULL is none. */"
        yield f"void {api.destroy}({api.instance} *instance);"
        yield ""


def make_model_library(
    model: ModelCalls,
    kernels: Mapping[str, Kernel],
    weights: Mapping[str, Array],
    target: Target,
    threads: int,
    origin: str,
) -> ModelLibrary:
    """The library of a model, with a kernel for each task of the plan; `origin` says where their schedules are from.

    Weights are packed here, on this machine. Raises TschedError (E0912), CompileError and OutOfMemory.
    """
    require_free(model.name)
    api = ModelInterface(model.name, (*model.inputs, *model.outputs))
    # A number before the name: a task may be called like a function that is linked to it.
    kernels = {task: replace(k, name=f"{n}_{k.name}") for n, (task, k) in enumerate(kernels.items())}
    hands = {task: workers(k, target, threads) for task, k in kernels.items()}
    facts = {task: _facts(k, hands[task]) for task, k in kernels.items()}
    table = call_table(model.plan, facts, [p.name for p in api.params], {n: a.nbytes for n, a in weights.items()})
    preparing = {b.task for b in table.blocks}
    packed = packed_weights(table, facts, {t: _preparing(kernels[t], hands[t]) for t in preparing}, weights)
    texts = tuple(kernel_text(k, target, hands[task]) for task, k in kernels.items())
    whole = sha256(packed.data)
    for text in texts:
        whole.update(text.encode())
    mark = int.from_bytes(whole.digest()[:WORD], "little", signed=True)
    packed[:HEAD].view("<i8")[:2] = mark, packed.size
    machine = Machine(target)
    module = Module()
    described = describe(api, target, machine.triple, threads, origin, metadata.version("tensorc-dsl"))
    module.functions.append(text_constant(api.metadata, described.encode()))
    _write_table(module, api, table, {t: symbol_of(k) for t, k in kernels.items()})
    bytes_ = packed.size if packed.size > HEAD else 0
    check = add_check(module, model.name, target)
    _write_create(module, api, check, bytes_, mark, table.workspace_bytes)
    _write_run(module, api, check, table.workspace_bytes)
    write_checked(module, api, api.run, check)
    _write_destroy(module, api, check, bytes_)
    main = machine.parsed(module.text())
    parallel = any(f"@{PARALLEL_FOR}(" in text for text in texts)
    others = [ahead_text("scratch"), _instance_text(machine.triple), runtime_text("calls")]
    for text in (*others, *([pool_text(machine.triple)] if parallel else [])):
        link(main, machine.parsed(text))
    return ModelLibrary(api, target, threads, origin, str(main), texts, packed)


def _facts(k: Kernel, threads: int) -> TaskFacts:
    def fixed(size: Expr) -> int:
        n = fixed_bytes(size)
        if n is None or n > MOST_BYTES:
            raise CompileError(f"`{k.name}` takes more memory than there is")
        return n

    scratch, preparing = (fixed(workspace_size(body, threads)) for body in (k.body, k.preparation))
    return TaskFacts(k.params, k.kept, scratch, fixed(prepared_size(k)), preparing)


def _preparing(k: Kernel, threads: int) -> Code:
    """Code of this process that prepares for a kernel, which may be for another machine: what it writes is the same."""
    host = Target(cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten())
    return load(compile_kernel(replace(k, body=(), streamed=frozenset()), host, threads)).code


def _instance_text(triple: str) -> str:
    # O_NONBLOCK and O_CLOEXEC as the systems number them: Linux, or macOS.
    text = ahead_text("instance").replace("OPEN_FLAGS", str(0x80800 if "linux" in triple else 0x1000004))
    for status in (Status.MEMORY, Status.FILE, Status.WEIGHTS):
        text = text.replace(f"ret i32 {status.name}", f"ret i32 {status.value}")
    return text


# The functions and data of the module.


def _table(api: ModelInterface) -> str:
    return f"{api.name}.table"


def _write_table(module: Module, api: ModelInterface, table: Table, symbols: Mapping[str, str]) -> None:
    """Add the table of the calls as constants."""
    slots = [f"{{ i64, i64 }} {{ i64 {s.position}, i64 {s.offset} }}" for c in table.calls for s in c.slots]
    calls: list[str] = []
    first = 0
    for c in table.calls:
        symbol = "tensorc_copy" if not c.task else symbols[c.task]
        if c.prepares:
            symbol = prepare_symbol(symbol)
        module.declare("void", symbol, ("ptr", "ptr"))
        calls.append(f"{{ ptr, i64, i64 }} {{ ptr @{symbol}, i64 {first}, i64 {len(c.slots)} }}")
        first += len(c.slots)
    head = f"i64 {len(calls)}, ptr @{api.name}.calls, ptr @{api.name}.slots, i64 {table.arguments_at}"
    module.functions += [
        f"@{api.name}.slots = internal constant [{len(slots)} x {{ i64, i64 }}] [{', '.join(slots)}], align 8",
        f"@{api.name}.calls = internal constant [{len(calls)} x {{ ptr, i64, i64 }}] [{', '.join(calls)}], align 8",
        f"@{_table(api)} = internal constant {{ i64, ptr, ptr, i64 }} {{ {head} }}, align 8",
    ]


def _write_create(
    module: Module, api: ModelInterface, check: Check | None, bytes_: int, mark: int, workspace: int
) -> None:
    entry = Entry(module, check)
    entry.check_pointer("%path", 1, 0, bytes_)
    entry.check_pointer("%out", WORD, 1, WORD)
    module.declare("i32", "tensorc_instance_create", ("ptr", "i64", "i64", "i64", "ptr"))
    given = f"ptr %path, i64 {bytes_}, i64 {mark}, i64 {workspace}, ptr %out"
    result = entry.f.op(f"call i32 @tensorc_instance_create({given})")
    entry.define(api.create, ["ptr %path", "ptr %out"], result)


def _write_run(module: Module, api: ModelInterface, check: Check | None, workspace: int) -> None:
    entry = Entry(module, check)
    f = entry.f
    count = len(api.params)
    spans = [Span(f"%p{k}", fixed_bytes(bytes_of(p)) or 0, p.dtype.bytes, p.output) for k, p in enumerate(api.params)]
    entry.check_spans(spans)
    entry.check_pointer(MEMORY, WORD, count, WORD)
    weights = f.op(f"load ptr, ptr {f.op(f'getelementptr i8, ptr {MEMORY}, i64 {WORD}')}, align {WORD}")
    arguments = f.alloca("ptr", count + 2)
    for k, value in enumerate((f"@{_table(api)}", *(s.pointer for s in spans), weights)):
        f.line(f"store ptr {value}, ptr {f.op(f'getelementptr ptr, ptr {arguments}, i64 {k}')}, align {WORD}")
    declare_scratch(module)
    module.declare("void", "tensorc_run_calls", ("ptr", "ptr"))
    block = f.op(f"call ptr @tensorc_scratch_take(ptr {MEMORY}, i64 {workspace})")
    entry.fail_if(f.op(f"icmp eq ptr {block}, null"), Status.MEMORY)
    f.line(f"call void @tensorc_run_calls(ptr {arguments}, ptr {block})")
    f.line(f"call void @tensorc_scratch_give(ptr {MEMORY}, ptr {block})")
    entry.define(api.run.name, [*(f"ptr {s.pointer}" for s in spans), f"ptr {MEMORY}"], str(int(Status.OK)))


def _write_destroy(module: Module, api: ModelInterface, check: Check | None, bytes_: int) -> None:
    f = Function(module)
    module.declare("void", "tensorc_instance_destroy", ("ptr", "i64"))
    f.line(f"call void @tensorc_instance_destroy(ptr {MEMORY}, i64 {bytes_})")
    attributes = check.attributes if check else ""
    f.define(f"define void @{api.destroy}(ptr {MEMORY}) nounwind {attributes}")

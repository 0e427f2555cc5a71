"""Libraries made ahead of time: their files, and the C header, which is a part of each."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import metadata, resources
from pathlib import Path

import llvmlite.binding as llvm

from tensorc_dsl.backend.llvm.ahead.cpu import required_features
from tensorc_dsl.backend.llvm.ahead.entries import write_entries
from tensorc_dsl.backend.llvm.ahead.interface import (
    LINE,
    MEANINGS,
    Interface,
    ModelInterface,
    Signature,
    argument_name,
    c_type,
    describe,
    prepared_memory,
)
from tensorc_dsl.backend.llvm.ahead.runner import counts, sources
from tensorc_dsl.backend.llvm.codegen.compile import Compiled
from tensorc_dsl.backend.llvm.codegen.function import Module
from tensorc_dsl.backend.llvm.codegen.machine import Machine, native_triple
from tensorc_dsl.backend.llvm.codegen.statements import PARALLEL_FOR
from tensorc_dsl.backend.llvm.runtime.native import pool_text
from tensorc_dsl.backend.protocol import CompileError, Form
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.ir.expr import Dim, Expr, constant, dims_in, index, mul
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.sizes import conditions_on
from tensorc_dsl.ir.target import Target, architecture_of
from tensorc_dsl.lower.flat import Param, format_shape
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
    return _linked(name, triple, options, {f"{name}.o": object_code})


def _linked(name: str, triple: str, options: Sequence[str], files: Mapping[str, bytes]) -> bytes:
    """What the C compiler makes of files, among them headers: the one that the variable CC names, else `cc`, or for another
    instruction set the usual name of a compiler for it.

    Raises TschedError (E0913) if there is none, or if it fails.
    """
    theirs, ours = (architecture_of(t) for t in (triple, native_triple()))
    usual = f"{theirs}-linux-gnu-gcc" if triple and theirs != ours else "cc"
    command = shlex.split(os.environ.get("CC", "")) or [usual]
    if shutil.which(command[0]) is None:
        raise TschedError(NO_LINKER(None, name=name, reason=f"there is no C compiler `{command[0]}`"))
    with tempfile.TemporaryDirectory(prefix="tensorc-dsl-") as folder:
        for file, data in files.items():
            Path(folder, file).write_bytes(data)
        inputs = [str(Path(folder, file)) for file in files if not file.endswith(".h")]
        out = Path(folder, "linked")
        done = run_executable([*command, *options, "-pthread", "-o", str(out), *inputs, "-lm"], Limits(SECONDS))
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


@dataclass(frozen=True, slots=True)
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
        files = {name: text.encode() for name, text in sources(api, self.target, self.threads).items()}
        files |= {"kernel.o": self.make("obj"), "counts.o": machine.object_code(counts(api))}
        files[f"{api.name}.h"] = self.make("header")
        static = [] if sys.platform == "darwin" else ["-static"]
        return _linked(api.name, self.target.triple, ["-std=gnu99", "-O1", *static], files)


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

"""A kernel as a library: one LLVM module with its entries, its scratch memory and, for parallel loops, the thread pool."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path

import llvmlite.binding as llvm

from tensorc_dsl.backend.llvm.ahead.entries import write_entries
from tensorc_dsl.backend.llvm.ahead.header import write_header
from tensorc_dsl.backend.llvm.ahead.interface import Interface, describe, prepared_memory
from tensorc_dsl.backend.llvm.codegen.compile import Compiled
from tensorc_dsl.backend.llvm.codegen.function import Module
from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.llvm.codegen.statements import PARALLEL_FOR
from tensorc_dsl.backend.llvm.runtime.threads import pool_text
from tensorc_dsl.backend.protocol import CompileError, Form
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.start import Limits, run_program

# Links shared libraries with the system's C compiler, which knows the system's conventions.


@problem(
    "E0913",
    "`{name}` cannot be linked: {reason}",
    help="name a C compiler, `CC=clang tensorc-dsl …`, or take `--emit obj`, which needs none, and link it yourself",
)
def NO_LINKER(*, name: str, reason: str) -> None: ...


SECONDS = 300.0
"""The time limit of a linker, which usually takes a twentieth of a second."""


def link_shared(object_code: bytes, name: str) -> bytes:
    """The shared library of an object file, linked by the compiler that the variable CC names, else by `cc`.

    Raises TschedError (E0913) if there is none, or if it fails.
    """
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(command[0]) is None:
        raise TschedError(NO_LINKER(None, name=name, reason=f"there is no C compiler `{command[0]}`"))
    options = ["-shared", "-pthread"]
    if sys.platform != "darwin":
        # The pool's threads run code of the library, so it must never be unloaded.
        options += ["-Wl,-z,nodelete", "-Wl,-z,noexecstack", "-Wl,--no-undefined", "-Wl,--as-needed"]
    with tempfile.TemporaryDirectory(prefix="tensorc-dsl-") as folder:
        source, out = Path(folder, f"{name}.o"), Path(folder, f"{name}.so")
        source.write_bytes(object_code)
        done = run_program([*command, *options, "-o", str(out), str(source), "-lm"], Limits(SECONDS))
        if done.returncode:
            said = (done.stderr.strip().replace(f"{folder}{os.sep}", "") or "nothing").splitlines()[0]
            reason = f"`{shlex.join(command)}` ends with status {done.returncode} and says {said}"
            raise TschedError(NO_LINKER(None, name=name, reason=reason))
        return out.read_bytes()


FORMS = {
    "llvm": Form(".ll", True, "the LLVM code, before LLVM's passes"),
    "asm": Form(".s", True, "the machine's assembly"),
    "obj": Form(".o", False, "an object file, to be linked with -pthread", usual=True),
    "so": Form(".so", False, "a shared library; needs the system's C compiler"),
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
        """A file in one of the forms of `FORMS`. Raises TschedError (E0913) if there is no C compiler to link `so`.

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
                return link_shared(machine.object_code(self.llvm_ir), self.interface.name)
            case "header":
                return write_header(self.interface, self.target, machine.triple, self.threads, self.origin).encode()
            case _:
                raise ValueError(f"a library has no form {form!r}")


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
    entries.functions.append(f'@{api.metadata} = constant [{len(facts) + 1} x i8] c"{_escaped(facts)}\\00", align 1')
    module = machine.parsed(entries.text())
    scratch = resources.files("tensorc_dsl.backend.llvm.ahead").joinpath("scratch.ll").read_text("utf-8")
    pool = [pool_text(machine.triple)] if f"@{PARALLEL_FOR}(" in kernel.llvm_ir else []
    for text in (kernel.llvm_ir, scratch, *pool):
        _link(module, machine.parsed(text))
    _hide(module, api.exports)
    return Library(api, kernel.target, kernel.threads, origin, str(module))


def _link(module: llvm.ModuleRef, other: llvm.ModuleRef) -> None:
    try:
        module.link_in(other)
    except RuntimeError as e:
        raise CompileError(str(e)) from e


def _hide(module: llvm.ModuleRef, exports: tuple[str, ...]) -> None:
    """Make all symbols but `exports` internal. The pool stays shared with other objects linked into the same program."""
    for f in module.functions:
        if f.name == PARALLEL_FOR:
            f.linkage, f.visibility = "weak_any", "hidden"
        elif not f.is_declaration and f.name not in exports:
            f.linkage = "internal"


def _escaped(data: bytes) -> str:
    """Bytes as a string constant of LLVM."""
    return "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)

"""A kernel as a library: one LLVM module with its entries, its scratch memory and, where it has parallel loops, the pool."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata, resources

import llvmlite.binding as llvm

from tensorc_dsl.ahead.entries import write_entries
from tensorc_dsl.ahead.header import write_header
from tensorc_dsl.ahead.interface import Interface, describe
from tensorc_dsl.ahead.link import link_shared
from tensorc_dsl.ahead.prepared import prepared_memory
from tensorc_dsl.codegen.llvm.compile import Compiled
from tensorc_dsl.codegen.llvm.function import Module
from tensorc_dsl.codegen.llvm.machine import CompileError, Machine
from tensorc_dsl.codegen.llvm.statements import PARALLEL_FOR
from tensorc_dsl.ir.target import Target
from tensorc_dsl.runtime.pool import pool_text


@dataclass(frozen=True, slots=True)
class Library:
    """What is made ahead of time of one kernel. Its functions may be called from several threads at once."""

    interface: Interface
    target: Target
    threads: int
    llvm_ir: str
    """The module as written, before LLVM's passes: it needs nothing but C's library."""

    def assembly(self) -> str:
        """The machine code as text."""
        return Machine(self.target).assembly(self.llvm_ir)

    def object_code(self) -> bytes:
        """An object file that shows `interface.exports` only; position-independent, to be linked with `-pthread`."""
        return Machine(self.target).object_code(self.llvm_ir)

    def shared(self) -> bytes:
        """A shared library. Raises TschedError (E0913) where there is no C compiler to link it."""
        return link_shared(self.object_code(), self.interface.name)

    def header(self) -> str:
        """Its declarations, for C99 and C++11."""
        return write_header(self.interface, self.target, Machine(self.target).triple, self.threads)


def make_library(kernel: Compiled) -> Library:
    """The library of a kernel, for its target and number of threads.

    Raises CompileError when LLVM refuses, LowerError where C could not tell the sizes of open dimensions.
    """
    name = kernel.symbol.removeprefix("tensorc_")
    api = Interface(name, kernel.params, kernel.dims, prepared_memory(kernel))
    machine = Machine(kernel.target)
    entries = Module()
    write_entries(entries, api, kernel)
    facts = describe(api, kernel.target, machine.triple, kernel.threads, metadata.version("tensorc-dsl")).encode()
    entries.functions.append(f'@{api.metadata} = constant [{len(facts) + 1} x i8] c"{_escaped(facts)}\\00", align 1')
    module = machine.parsed(entries.text())
    scratch = resources.files("tensorc_dsl.ahead").joinpath("scratch.ll").read_text("utf-8")
    pool = [pool_text(machine.triple)] if f"@{PARALLEL_FOR}(" in kernel.llvm_ir else []
    for text in (kernel.llvm_ir, scratch, *pool):
        _link(module, machine.parsed(text))
    _hide(module, api.exports)
    return Library(api, kernel.target, kernel.threads, str(module))


def _link(module: llvm.ModuleRef, other: llvm.ModuleRef) -> None:
    try:
        module.link_in(other)
    except RuntimeError as e:
        raise CompileError(str(e)) from e


def _hide(module: llvm.ModuleRef, exports: tuple[str, ...]) -> None:
    """Only `exports` can be seen from outside. The pool is shared with other objects that are linked to the same program."""
    for f in module.functions:
        if f.name == PARALLEL_FOR:
            f.linkage, f.visibility = "weak_any", "hidden"
        elif not f.is_declaration and f.name not in exports:
            f.linkage = "internal"


def _escaped(data: bytes) -> str:
    """Bytes as LLVM writes a string."""
    return "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)

"""Queries of LLVM that run in a process of their own, since LLVM prints the answer, or ends the process.

The arguments are `names TRIPLE`, or `usable TRIPLE FEATURES CPU…`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import llvmlite.binding as llvm

from tensorc_dsl.processes.boot import die_with


def _names(triple: str) -> None:
    """Have LLVM print the names that it knows on standard error, which it does once per process."""
    llvm.Target.from_triple(triple).create_target_machine(cpu="help")


def _usable(triple: str, features: str, cpus: Sequence[str]) -> None:
    """Print those of the CPUs that LLVM generates code for. One of another width, `athlon` for x86-64, ends the process."""
    kind = llvm.Target.from_triple(triple)
    module = llvm.parse_assembly("define void @f() { ret void }")
    for cpu in cpus:
        here = os.getpid()
        if (child := os.fork()) == 0:
            die_with(here)
            kind.create_target_machine(cpu=cpu, features=features).emit_object(module)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            print(cpu)


def _main(argv: Sequence[str]) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    match argv:
        case ["names", triple]:
            _names(triple)
        case ["usable", triple, features, *cpus]:
            _usable(triple, features, cpus)
        case _:
            raise ValueError(f"there is no question {argv}")


if __name__ == "__main__":
    _main(sys.argv[1:])

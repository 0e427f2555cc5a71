"""The interface to LLVM: optimises, assembles and compiles LLVM text."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.ir.target import Target, architecture_of


def native_triple() -> str:
    """LLVM's name for the current kind of machine."""
    return llvm.get_default_triple()


@cache
def _limit_queries() -> None:
    """Let LLVM look at fewer instructions of a block for what a load may depend on; an option is set once in a process.

    A pipeline of 9000 lines, 260 of them gathers of bytes, spent 5 of 6 seconds on such questions (LLVM's limit is 100).
    """
    llvm.set_option("", "--memdep-block-scan-limit=30")


class Machine:
    """LLVM for one target. Without `optimises` code is made in a tenth of the time, and runs about ten times as long."""

    def __init__(self, target: Target, *, optimises: bool = True) -> None:
        self._optimises = optimises
        _limit_queries()
        if target.triple:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        else:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
        triple = target.triple or native_triple()
        features = target.features
        if target.vector_bits >= 512 and architecture_of(triple) == "x86_64":
            features = ",".join(x for x in (features, "-prefer-256-bit") if x)
        try:
            kind = llvm.Target.from_triple(triple)
            self.machine = kind.create_target_machine(
                cpu=target.cpu, features=features, opt=3 if optimises else 0, reloc="pic", codemodel="small"
            )
        except RuntimeError as e:
            raise CompileError(str(e)) from e

    @property
    def triple(self) -> str:
        """LLVM's name of the machine: `x86_64-unknown-linux-gnu`."""
        return self.machine.triple

    def parsed(self, text: str) -> llvm.ModuleRef:
        """The module as written, verified. Raises CompileError if it is not well formed."""
        try:
            module = llvm.parse_assembly(text)
            module.triple = self.triple
            module.data_layout = str(self.machine.target_data)
            module.verify()
        except RuntimeError as e:
            raise CompileError(str(e)) from e
        return module

    def module(self, text: str) -> llvm.ModuleRef:
        """The module, verified and optimised. Raises CompileError if it is not well formed."""
        module = self.parsed(text)
        # Vectors and unrolling are explicit in the schedule. LLVM only cleans up scalar code, which keeps compile times
        # short and the code as scheduled.
        options = llvm.create_pipeline_tuning_options(speed_level=2 if self._optimises else 0)
        options.loop_vectorization = False
        options.slp_vectorization = False
        options.loop_unrolling = False
        options.loop_interleaving = False
        builder = llvm.create_pass_builder(self.machine, options)
        builder.getModulePassManager().run(module, builder)
        return module

    def object_code(self, text: str) -> bytes:
        return self.machine.emit_object(self.module(text))

    def assembly(self, text: str) -> str:
        return self.machine.emit_assembly(self.module(text))

"""The kind `cuda` of targets: code of their instructions is PTX, and a target says what a block may have."""

from __future__ import annotations

from tensorc_dsl.backend.cuda.isa import assembly_faults
from tensorc_dsl.ir.target import TargetKind

KIND = TargetKind(forms=("asm",), facts=("threads", "shared_memory", "registers"), faults=assembly_faults)

"""The key of a record: its task and the target it was measured on, always together."""

from __future__ import annotations

import hashlib

from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target


def digest(text: str) -> str:
    """Sixteen bytes of BLAKE2b in hex: equal texts have equal digests, unequal ones do not collide by accident."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def program_key(program: Program) -> str:
    """The program's identity: the digest of its text."""
    return digest(format_program(program))


def target_key(target: Target, threads: int) -> str:
    """The machine, its instruction set and the number of threads: what a time depends on besides the program."""
    return f"{target.key}:{digest(target.features)[:8]}:t{threads}"

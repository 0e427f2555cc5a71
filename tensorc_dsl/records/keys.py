"""The key of a record: its task and the target it was measured on, always together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import msgspec

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
    """The key of the machine, its instruction set and the number of threads: a time depends on these besides the program."""
    return f"{target.key}:{digest(target.features)[:8]}:t{threads}"


_NAMELESS = "_"


@dataclass(frozen=True, slots=True)
class Subject:
    """The task and the machine of trials, as text that later versions can read: the unscheduled `program`, and the `facts`.

    `workload` is equal for tasks that compute the same and are called differently. `fingerprint` distinguishes machines that
    one target key serves, such as two with other caches.
    """

    task_key: str
    workload: str
    program: str
    fingerprint: str
    facts: str


def subject(program: Program, target: Target, threads: int) -> Subject:
    known = asdict(target)
    if not target.device:
        del known["device"]  # CPUs have the fingerprints that they had before there was such a fact
    facts = facts_text(known | {"with_threads": threads})
    return Subject(program_key(program), workload_key(program), format_program(program), digest(facts), facts)


def workload_key(program: Program) -> str:
    """The identity of what an unscheduled program computes, whatever the task is called."""
    return program_key(replace(program, name=_NAMELESS))


def facts_text(facts: Mapping[str, int | str]) -> str:
    """The facts of a machine as text; its fingerprint is the digest of that text."""
    return msgspec.json.encode(facts, order="sorted").decode()


@cache
def package_key() -> str:
    """A digest of the package's code."""
    root = Path(__file__).parents[1]
    made = hashlib.blake2b(digest_size=16)
    for path in sorted(root.rglob("*.py")):
        made.update(path.read_bytes())
    return made.hexdigest()

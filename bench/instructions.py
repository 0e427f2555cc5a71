"""Counts the instructions of a call of some kernels: `python -m bench.instructions [--accept]`.

The kernels of instructions.tsched are compiled for AVX2 (Valgrind knows no AVX-512) on one thread, called once from C and
counted by Callgrind. The counts do not depend on other load of the machine, so a difference from those recorded in
instructions.json shows a change of the compiler. `--accept` records the new counts. The status is 1 if a kernel
takes more than its record, 2 without Valgrind, a C compiler or AVX2.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import llvmlite.binding as llvm
import msgspec

from tensorc_dsl.backend.llvm.ahead.library import FORMS
from tensorc_dsl.backend.llvm.codegen.machine import host_lacks
from tensorc_dsl.faces.api import Task, load

FILE = Path(__file__).with_suffix(".tsched")
RECORDED = Path(__file__).with_suffix(".json")

NOISE = 0.001
"""The share by which counts may differ, since one-time work such as allocating memory depends on the system."""


class Counts(msgspec.Struct, frozen=True):
    """Instructions of one call by the name of the task, as LLVM in that version made them."""

    llvm: str
    instructions: dict[str, int]


def program(task: Task) -> str:
    """A call of the task's function, in C; its arrays hold zeros."""
    names = [p.name for p in task.program.params]
    arrays = "\n".join(f"static float array_{n}[{task.name}_{n}_COUNT];" for n in names)
    arguments = ", ".join(f"array_{n}" for n in names)
    return f'#include "{task.name}.h"\n{arrays}\nint main(void) {{ return {task.name}({arguments}) != TENSORC_OK; }}\n'


def counted(task: Task, folder: Path) -> int:
    """The instructions of one call. CalledProcessError where a tool fails, or the kernel does."""
    kinds: tuple[str, ...] = ("so", "header")
    for kind in kinds:
        task.export(task.sample(0), folder / f"{task.name}{FORMS[kind].suffix}", kind)
    (folder / "main.c").write_text(program(task), encoding="utf-8")
    library = f"./{task.name}{FORMS['so'].suffix}"
    for command in (
        ["cc", "-std=c99", "-o", "main", "main.c", library],
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--toggle-collect={task.name}", "./main"],
    ):
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stderr
    return collected(said)


def collected(said: str) -> int:
    """The count in what Callgrind says in the end."""
    found = re.search(r"Collected : (\d+)", said)
    if found is None:
        raise ValueError(f"Callgrind names no count:\n{said}")
    return int(found[1])


def compared(now: Mapping[str, int], before: Mapping[str, int]) -> tuple[list[str], bool]:
    """A line for each kernel, and whether one takes more than before."""
    lines, more = [f"{'kernel':<10}{'now':>10}{'recorded':>10}"], False
    for name, count in now.items():
        old = before.get(name)
        lines.append(f"{name:<10}{count:>10}" + ("" if old is None else f"{old:>10}{count / old - 1:>+8.1%}"))
        more |= old is not None and count > old * (1 + NOISE)
    return lines, more


def missing() -> str:
    """The missing tools; empty if counting is possible."""
    tools = [tool for tool in ("valgrind", "cc") if shutil.which(tool) is None]
    if tools:
        return f"not installed: {', '.join(tools)}"
    if platform.machine() != "x86_64" or host_lacks(["avx2", "fma"]):
        return "the kernels that are counted are for AVX2"
    return ""


def tasks() -> Mapping[str, Task]:
    """The kernels that are counted, by their names."""
    return load(FILE, target="avx2", threads=1)


def llvm_version() -> str:
    return ".".join(map(str, llvm.llvm_version_info))


def recorded() -> Counts:
    """What was counted before; nothing where nothing is recorded."""
    if not RECORDED.exists():
        return Counts(llvm_version(), {})
    return msgspec.json.decode(RECORDED.read_bytes(), type=Counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accept", action="store_true", help="record what is counted now")
    arguments = parser.parse_args()
    if why := missing():
        parser.error(why)
    version, before = llvm_version(), recorded()
    now: dict[str, int] = {}
    for name, task in tasks().items():
        with tempfile.TemporaryDirectory() as folder:
            now[name] = counted(task, Path(folder))
    lines, more = compared(now, before.instructions)
    print("\n".join(lines))
    if before.llvm != version:
        print(f"recorded with LLVM {before.llvm}, counted with {version}")
    if arguments.accept:
        text = msgspec.json.format(msgspec.json.encode(Counts(version, now)))
        RECORDED.write_bytes(text + b"\n")
    sys.exit(1 if more and not arguments.accept else 0)


if __name__ == "__main__":
    main()

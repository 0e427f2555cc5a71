"""The bits of kernels by the code for several machines: `python -m campaigns.machines`, a table for docs/verify.md.

Each kernel is of a schedule with `keep_order()` and vectors as wide as the machine's. Code for AArch64 runs under QEMU, where
`aarch64-linux-gnu-gcc` and `qemu-aarch64` are installed. Code with vectors of 512 bits runs as what LLVM makes of it for this
processor, unless that has AVX-512. The data are those of `campaigns.rounding`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from campaigns.processors import RUNNER, outputs
from campaigns.rounding import INPUTS, adversarial
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.measure.check import other_bits

AVX2 = 'triple="x86_64-unknown-linux-gnu", cpu="haswell", features=["avx", "avx2", "fma"], vector_bits=256, cores=1'
AVX512 = (
    'triple="x86_64-unknown-linux-gnu", cpu="skylake-avx512", features=["avx", "avx2", "fma", "avx512f"], vector_bits=512, '
    "cores=1"
)
WIDE = 'triple="x86_64-unknown-linux-gnu", cpu="haswell", features=["avx", "avx2", "fma"], vector_bits=512, cores=1'
ARM = 'triple="aarch64-unknown-linux-gnu", cpu="cortex-a72", features=["neon"], vector_bits=128, cores=1'
PLAIN = 'triple="x86_64-unknown-linux-gnu", cpu="x86-64", features=["sse2"], vector_bits=128, cores=1'

ROWS = "let [i, k] = Y.loops\nlet [k0, k1] = split(k, [_, LANES], partial=true)\nvectorize(k1)"
"""Vectors along what each element is computed from alone, and what is left of them."""

FILE = """\
compute product(A: T[M, K], B: T[K, N]) -> Y: T[M, N] {
    Y[i, j] = sum[k] A[i, k] * B[k, j]
}
compute square(A: T[M, K]) -> Y: T[M, K] {
    Y[i, k] = A[i, k] * A[i, k] + A[i, k]
}
compute divided(A: T[M, K], B: T[M, K]) -> Y: T[M, K] {
    Y[i, k] = A[i, k] / B[i, k] - sqrt(B[i, k])
}
compute largest(A: T[M, K], B: T[M, K]) -> Y: T[M, K] {
    Y[i, k] = max(min(A[i, k], B[i, k]), 0.5)
}
compute rounded(A: T[M, K]) -> Y: i32[M, K] {
    Y[i, k] = i32(A[i, k] * 3.0)
}
"""
FUNCTIONS = ("exp", "log", "tanh", "erf", "sin", "pow")


@dataclass(frozen=True, slots=True)
class Machine:
    """A column: what code is made for, and what runs a program."""

    name: str
    target: str
    runs: tuple[str, ...] = ()

    @property
    def here(self) -> bool:
        """Whether programs are linked for it and run here."""
        return not self.runs or all(map(shutil.which, (*self.runs, "aarch64-linux-gnu-gcc")))


def machines() -> tuple[Machine, ...]:
    """The columns, of which the first is what the others are compared with."""
    wide = "+avx512f" in host_target(1).features
    return (
        Machine("AVX2", AVX2),
        Machine("AVX-512" if wide else "512 bits on AVX2", AVX512 if wide else WIDE),
        Machine("AArch64", ARM, ("qemu-aarch64",)),
        Machine("x86-64 without FMA", PLAIN),
    )


def sources() -> dict[str, tuple[str, str]]:
    """By name of a row: a file of one task, without its target, and the steps of its schedule."""
    own = "let [i, j, k] = Y.loops\nlet [j0, j1] = split(j, [_, LANES], partial=true)\nreorder(i, j0, k, j1)\nvectorize(j1)"
    out: dict[str, tuple[str, str]] = {}
    for t in ("f32", "f64"):
        for name, what in (
            ("product", "a product of matrices"), ("square", "x * x + x"), ("divided", "x / y - sqrt(y)"),
            ("largest", "max(min(x, y), 0.5)"), ("rounded", "i32(x * 3.0)"),
        ):  # fmt: skip
            sizes = "M=5, N=21, K=37" if name == "product" else "M=5, K=37"
            text = FILE.replace("T[", f"{t}[") + f"task it = {name}({sizes}) with steps\n"
            out[f"{what}, {t}"] = text.replace("compute ", "\ncompute "), own if name == "product" else ROWS
        for f in FUNCTIONS:
            args = "A[i, k], A[i, k]" if f == "pow" else "A[i, k]"
            compute = f"compute mapped(A: {t}[M, K]) -> Y: {t}[M, K] {{\n    Y[i, k] = {f}({args})\n}}\n"
            out[f"{f}, {t}"] = f"{compute}task it = mapped(M=5, K=37) with steps\n", ROWS
    return out


def task_of(text: str, steps: str, machine: Machine, f64: bool) -> Task:
    """The task with its schedule for a machine."""
    bits = int(machine.target.partition("vector_bits=")[2].partition(",")[0])
    steps = steps.replace("LANES", str(bits // (64 if f64 else 32)))
    compute = text.rpartition("task it = ")[2].partition("(")[0]
    schedule = f"schedule steps for {compute} {{\nkeep_order()\n{steps}\n}}\n"
    return loads(f"target machine = llvm({machine.target})\n{text}{schedule}", target="machine")["it"]


def row(text: str, steps: str, columns: Sequence[Machine], folder: Path) -> list[str]:
    """What each machine but the first makes of a kernel: how many elements have other bits, on all inputs."""
    tasks = [task_of(text, steps, m, "f64" in text) for m in columns]
    places = [folder / str(n) for n in range(len(columns))]
    for task, machine, place in zip(tasks, columns, places, strict=True):
        place.mkdir()
        if machine.here:
            task.export(task.sample(0), place / RUNNER, "runner")
    cells: list[str] = []
    for task, machine, place in list(zip(tasks, columns, places, strict=True))[1:]:
        differ = count = 0
        for seed in range(INPUTS if machine.here else 0):
            inputs = adversarial(task.program, seed)
            expected = outputs(tasks[0], (), places[0], inputs)
            found = outputs(task, machine.runs, place, inputs)
            for p in task.program.outputs:
                other = other_bits(p.name, found[p.name], expected[p.name], p.dtype, zeros=False)
                differ += int(other.rpartition("(")[2].split()[0]) if other else 0
                count += found[p.name].size
        cells.append("not run" if not machine.here else f"{differ} of {count} differ" if differ else "the same")
    return cells


def main() -> None:
    columns = machines()
    print(f"| kernel | {' | '.join(m.name for m in columns[1:])} |")
    print(f"|---{'|---' * (len(columns) - 1)}|")
    for name, (text, steps) in sources().items():
        with tempfile.TemporaryDirectory() as folder:
            print(f"| {name} | {' | '.join(row(text, steps, columns, Path(folder)))} |", flush=True)


if __name__ == "__main__":
    main()

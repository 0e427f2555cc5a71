"""The contenders: our package, and the libraries that are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Contender:
    """A library or a compiler. `module` prepares its jobs; `packages` are the distributions that it needs, or
    `program` is its command.
    """

    name: str
    module: str
    packages: tuple[str, ...] = ()
    program: str = ""

    @property
    def absence(self) -> str:
        """The packages, or the program, that are not installed; "" if all are."""
        return ", ".join(name for name in (*self.packages, self.program) if name and not self._found(name))

    @property
    def version(self) -> str:
        return self._found((*self.packages, self.program)[0])

    def _found(self, name: str) -> str:
        return _program_version(name) if name == self.program else _version(name)


def _program_version(name: str) -> str:
    """What a compiler says of itself; "" if it is not there."""
    if shutil.which(name) is None:
        return ""
    return subprocess.run([name, "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


_PEERS = "bench.against.peers"

OURS = Contender("ours", f"{_PEERS}.ours", ("tensorc-dsl",))

PEERS = {
    c.name: c
    for c in (
        Contender("numpy", f"{_PEERS}.numpy", ("numpy", "scipy")),
        Contender("onnxruntime", f"{_PEERS}.onnxruntime", ("onnxruntime", "onnx")),
        Contender("openvino", f"{_PEERS}.openvino", ("openvino", "onnx")),
        Contender("torch", f"{_PEERS}.torch", ("torch",)),
        Contender("jax", f"{_PEERS}.jax", ("jax",)),
        Contender("numba", f"{_PEERS}.numba", ("numba",)),
        Contender("halide", f"{_PEERS}.halide", ("halide",)),
        Contender("opencv", f"{_PEERS}.opencv", ("opencv-python-headless",)),
        Contender("gcc", f"{_PEERS}.gcc", program="gcc"),
        Contender("tvm", f"{_PEERS}.tvm", ("apache-tvm", "xgboost", "cloudpickle")),
        Contender("same-bits", f"{_PEERS}.same_bits", ("tensorc-dsl",)),
    )
}

QUICK_PEERS = [name for name in PEERS if name not in ("tvm", "same-bits")]
"""The peers that need no search of minutes."""


def named(names: Sequence[str]) -> list[Contender]:
    """The peers of these names, in this order. Raises ValueError for an unknown name."""
    for name in names:
        if name not in PEERS:
            raise ValueError(f"there is no peer {name}; there are {', '.join(PEERS)}")
    return [PEERS[n] for n in dict.fromkeys(names)]


def environment(threads: int) -> dict[str, str]:
    """Environment variables for the libraries' processes: the number of threads, and the folders of modules."""
    names = ("OMP", "OPENBLAS", "MKL", "NUMBA", "TVM", "HL")
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {f"{name}_NUM_THREADS": str(threads) for name in names} | {"PYTHONPATH": path}

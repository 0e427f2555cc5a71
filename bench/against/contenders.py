"""The contenders: our package, and the libraries that are installed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Contender:
    """A library. `module` prepares its jobs; `packages` are the distributions that it needs."""

    name: str
    module: str
    packages: tuple[str, ...]

    @property
    def absence(self) -> str:
        """The packages that are not installed; "" if all are."""
        return ", ".join(p for p in self.packages if not _version(p))

    @property
    def version(self) -> str:
        return _version(self.packages[0])


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
        Contender("tvm", f"{_PEERS}.tvm", ("apache-tvm", "xgboost", "cloudpickle")),
    )
}

QUICK_PEERS = [name for name in PEERS if name != "tvm"]
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

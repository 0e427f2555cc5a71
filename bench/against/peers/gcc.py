"""A C compiler with OpenMP: stencils over time in C as one writes them, between two arrays, the rows over the cores."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.against.problem import STENCILS, STEPS, Job, Ready

SOURCE = Path(__file__).with_name("stencils.c")

FLAGS = ("-O3", "-march=native", "-fopenmp", "-ffast-math")

LIBRARY = ("-shared", "-fopenmp")
"""Linked without `-ffast-math`, which would make this whole process flush denormal numbers to zero from then on."""


def prepare(job: Job) -> Ready | None:
    if job.problem.compute not in STENCILS:
        return None
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        compiled, library = Path(folder) / "stencils.o", Path(folder) / "stencils.so"
        subprocess.run(["gcc", *FLAGS, "-fPIC", "-c", str(SOURCE), "-o", str(compiled)], check=True)
        subprocess.run(["gcc", *LIBRARY, str(compiled), "-o", str(library)], check=True)
        function = getattr(ctypes.CDLL(str(library)), job.problem.compute)  # it stays loaded without its file
    (x,) = job.take("X")
    out, between = np.empty_like(x), np.empty_like(x)
    arrays = (x, out, between)
    sizes = [ctypes.c_long(n) for n in (job.problem.attribute("steps", STEPS), *x.shape)]

    def run() -> None:
        function(*(ctypes.c_void_p(a.ctypes.data) for a in arrays), *sizes)

    return Ready(run, lambda: out, " ".join(FLAGS), time.perf_counter() - begun)

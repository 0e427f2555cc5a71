"""Tunes a C kernel of one's own: a transposition in blocks, compiled by `cc` for each choice and called through ctypes.

`python own_kernel.py` prints a schedule with the best choice. `TRIALS=64` tries more of them.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import tensorc_dsl

KERNEL = """
void transpose(const float *restrict a, float *restrict b, int n) {
    for (int i0 = 0; i0 < n; i0 += ROWS)
        for (int j0 = 0; j0 < n; j0 += COLUMNS)
            for (int i = i0; i < i0 + ROWS; i++)
                for (int j = j0; j < j0 + COLUMNS; j++)
                    b[j * n + i] = a[i * n + j];
}
"""

SPACE = """
schedule blocks for transpose {
    let rows ~ sample_categorical([4, 8, 16, 32, 64, 128])
    let columns ~ sample_categorical([4, 8, 16, 32, 64, 128])
    let level ~ sample_categorical(["-O1", "-O2", "-O3"])
}
"""

N = 512


def transpose(rows: int, columns: int, level: str) -> list[float]:
    """Seconds of some calls. A result that is wrong is a failure, since an exception is one."""
    a = np.random.default_rng(0).random((N, N), dtype=np.float32)
    b = np.empty_like(a)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        source.write_text(KERNEL)
        sizes = [f"-DROWS={rows}", f"-DCOLUMNS={columns}"]
        subprocess.run(["cc", level, "-shared", "-fPIC", *sizes, "-o", library, source], check=True)
        kernel = ctypes.CDLL(str(library)).transpose
        arguments = (ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(b.ctypes.data), N)
        kernel(*arguments)
        if not np.array_equal(b, a.T):
            raise ValueError("the result is wrong")
        times: list[float] = []
        for _ in range(20):
            began = time.perf_counter()
            kernel(*arguments)
            times.append(time.perf_counter() - began)
        return times


if __name__ == "__main__":
    print(
        tensorc_dsl.tune_function(
            transpose,
            SPACE,
            where=lambda rows, columns: rows * columns <= 4096,
            trials=int(os.environ.get("TRIALS", "16")),
        )
    )

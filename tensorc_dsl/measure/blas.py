"""Limits the threads of NumPy's libraries, so that they do not compete with kernels, builders and each other."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_Control = tuple[Callable[[], int], Callable[[int], None]]


@contextmanager
def one_blas_thread() -> Generator[None]:
    """Linear algebra inside runs on one thread, in the whole process.

    OpenBLAS cuts even small products into parts and spins until all are done. Where something else runs on one of the
    cores, each call then waits for that: a batch's question took 0.5 s instead of 0.03 s. Does nothing for other libraries
    than the OpenBLAS that NumPy's and SciPy's wheels for Linux carry.
    """
    before = [(set_, get()) for get, set_ in _controls()]
    try:
        for set_, _ in before:
            set_(1)
        yield
    finally:
        for set_, count in before:
            set_(count)


@cache
def _controls() -> list[_Control]:
    """For each OpenBLAS in this process, the functions that get and set its number of threads."""
    if sys.platform != "linux":
        return []
    maps = Path("/proc/self/maps").read_text().splitlines()
    paths = sorted({line.split(maxsplit=5)[5] for line in maps if "openblas" in line.rpartition("/")[2]})
    found = [_control(ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)) for path in paths]
    return [control for control in found if control is not None]


def _control(library: ctypes.CDLL) -> _Control | None:
    # The wheels' builds rename their symbols, so that several can live in one process.
    for prefix in ("", "scipy_"):
        for suffix in ("", "64_"):
            try:
                get = library[f"{prefix}openblas_get_num_threads{suffix}"]
                set_ = library[f"{prefix}openblas_set_num_threads{suffix}"]
            except AttributeError:
                continue
            get.restype, get.argtypes = ctypes.c_int, ()
            set_.restype, set_.argtypes = None, (ctypes.c_int,)
            return get, set_
    return None

"""What peers compute at small sizes is what the references say, where their packages and programs are there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl
from bench.against.contenders import PEERS
from bench.against.filters import FILTERS
from bench.against.problem import IMAGES, STENCILS, Job, Problem, Ready, several
from bench.against.references import expected
from tensorc_dsl.reference.inputs import make_inputs

SHAPES = {"heat_3d": (5, 6, 7)}


def job_of(compute: str, shape: tuple[int, ...], **attributes: int) -> Job:
    rng = np.random.default_rng(0)
    narrow = compute.endswith("_u8") or compute == "equalized"
    x = rng.integers(0, 256, shape, np.uint8) if narrow else rng.random(shape, np.float32)
    inputs = {"X": x}
    if compute in ("separable", "unsharp"):
        inputs["t"] = rng.random(5, np.float32)
    if compute == "unsharp":
        inputs["amount"] = np.array(0.5, np.float32)
    types = {name: "u8" if a.dtype == np.uint8 else "f32" for name, a in inputs.items()}
    return Job(Problem("", f"{compute}_0", compute, dict(attributes), types), inputs, 1, 0, 0, Path())


def require(peer: str) -> None:
    if absence := PEERS[peer].absence:
        pytest.skip(f"not installed: {absence}")


def agree(ready: Ready | None, job: Job) -> None:
    """Fails unless a run gives what the reference does."""
    right, tolerance = expected(job.problem, job.inputs)
    assert ready is not None
    ready.run()
    for a, b in zip(several(ready.result()), right, strict=True):
        assert a.shape == b.shape, job.problem.compute
        assert np.abs(a.astype(np.float64) - b).max() <= tolerance, job.problem.compute


def test_a_peer_says_its_version_or_what_is_missing() -> None:
    for c in PEERS.values():
        assert bool(c.version) or bool(c.absence), c.name


def test_every_filter_has_inputs_and_a_reference() -> None:
    assert IMAGES.keys() == FILTERS.keys()


@pytest.mark.corpus
@pytest.mark.parametrize("compute", STENCILS)
@pytest.mark.parametrize("steps", [1, 4])
def test_c_steps_as_the_reference_does(compute: str, steps: int) -> None:
    require("gcc")
    from bench.against.peers import gcc

    job = job_of(compute, SHAPES.get(compute, (9, 11)), steps=steps)
    ready = gcc.prepare(job)
    for _ in range(2):  # a second call begins anew
        agree(ready, job)
    (found,), tolerance = expected(job.problem, job.inputs)
    assert np.abs(found - job.inputs["X"]).max() > tolerance
    # The flags of the compiler are for its code: this process still has denormal numbers.
    assert np.float32(2.0**-140) * np.ones(1, np.float32) > 0


def test_opencv_filters_as_the_references_do() -> None:
    require("opencv")
    from bench.against.peers import opencv

    for compute in opencv.MAKERS:
        job = job_of(compute, (19, 37), **({"r": 2} if compute in ("box", "dilated") else {}))
        agree(opencv.prepare(job), job)


def test_halide_has_an_algorithm_for_every_filter() -> None:
    require("halide")
    from bench.against.peers import halide

    assert halide.ALGORITHMS.keys() == FILTERS.keys()


def test_a_search_for_the_same_bits_has_records_of_its_own(tmp_path: Path) -> None:
    from bench.against.peers import same_bits

    file, records = tmp_path / "small.tsched", tmp_path / "records.sqlite"
    file.write_text("""\
use std.cpu
compute gemm(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}

task gemm_5 = gemm(M=5, K=3, N=7)
""")
    task = tensorc_dsl.load(file, threads=1)["gemm_5"]
    inputs = make_inputs(task.program, 0)
    found = same_bits.prepare(Job(Problem(str(file), "gemm_5", "gemm", {}, {}), inputs, 1, 1, 0, records))
    np.testing.assert_allclose(found.result(), inputs["A"] @ inputs["B"], rtol=1e-5)
    assert not records.exists()
    assert task.keeping(bits=True).recorded(tmp_path / "records.sqlite.same-bits") is not None

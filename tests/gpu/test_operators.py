"""Every compute of the library has kernels for GPUs: PTX is made, and their emulation gives what the compute says.

`make gpu DRAWS=20` draws more schedules of each, at all sizes, for both targets, and emulates all of them; a fifth as many at
sizes of 0, 1 and primes. Where `ptxas` is installed, it assembles each, and a warning names those that spill registers, which
searches pass over. Otherwise those for images are emulated whose kernels differ most.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping

import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import registers_of, tool
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.ir.program import Program
from tensorc_dsl.tuning.measure.emulation import emulate
from tests.gpu.kernels import DRAWS, drawn, gpu_library, gpu_space, ptx
from tests.stdlib.cases import case
from tests.stdlib.images import COMPUTES
from tests.stdlib.numerics import Sizes
from tests.stdlib.references import OPERATORS

IMAGES = [*COMPUTES] if DRAWS > 1 else [
    "box", "demosaiced", "equalized", "framed", "from_rest", "gray_u8", "greatest_below", "histogram", "sliced_cells",
    "unsharp_u8",
]  # fmt: skip

TARGETS = ("sm_80", "sm_90")

PRIMES = (13, 7, 11, 5, 17, 3, 2, 19)


SOME = -(-DRAWS // 5)
"""The draws of a compute at each of the sizes that are 0, 1 or prime, of which there are many."""


def drawn_kernels(name: str, program: Program, draws: int = DRAWS) -> Iterator[tuple[DeviceProgram, str]]:
    """The kernels of each draw, all with PTX, and its schedule: for both targets in a campaign, for one of them in tests.

    Those that occur again, as most do for the second target, are not given again: their emulation would be the same.
    """
    met: set[DeviceProgram] = set()
    for seed in range(draws):
        for target in TARGETS if DRAWS > 1 else (TARGETS[len(name) % len(TARGETS)],):
            trace = drawn(gpu_space(program, target), name, seed)
            kernels = lower_device(trace.program)
            code = ptx(kernels, target)
            assert f".target {target}" in code
            if kernels not in met:
                met.add(kernels)
                if DRAWS > 1 and tool("ptxas") is not None and (spilled := registers_of(code, target).spilled):
                    warnings.warn(f"seed {seed} on {target}: {spilled}", stacklevel=1)
                yield kernels, trace.text


@pytest.mark.corpus
@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_of_an_operator_give_its_reference(name: str) -> None:
    for number in range(len(OPERATORS[name].sizes)) if DRAWS > 1 else (-1,):
        c = case(name, number)
        for kernels, text in drawn_kernels(name, c.program):
            fault, found = emulated(kernels, c.program, c.inputs)
            assert fault == "", text
            for outputs in found:
                c.check(outputs)


@pytest.mark.corpus
@pytest.mark.parametrize("name", IMAGES)
def test_kernels_of_an_image_compute_give_its_result(name: str) -> None:
    for sizes in COMPUTES[name].sizes if DRAWS > 1 else COMPUTES[name].sizes[-1:]:
        check(name, made(name, sizes), emulates=True)


@pytest.mark.corpus
@pytest.mark.parametrize("name", {**OPERATORS, **COMPUTES})
def test_no_size_is_without_a_kernel(name: str) -> None:
    """A dimension of size 0, and in a campaign each of them, primes and ones: operators have odd sizes of their own."""
    sizes = {**OPERATORS, **COMPUTES}[name].sizes[-1]
    dims = [k for k, v in sizes.items() if isinstance(v, int) and k.isupper()]
    empty = dims if DRAWS > 1 else dims[len(name) % max(1, len(dims)) :][:1]
    odd = [dict.fromkeys(dims, 1), {k: PRIMES[n % len(PRIMES)] for n, k in enumerate(dims)}] if DRAWS > 1 else []
    for given in (*odd, *({k: 0} for k in empty)):
        if (program := made_if_any(name, {**sizes, **given})) is not None:
            check(name, program, emulates=DRAWS > 1, draws=SOME)


def check(name: str, program: Program, *, emulates: bool, draws: int = DRAWS) -> None:
    """Each draw has PTX and, if asked for, gives the result of the reference in each order of threads."""
    for kernels, text in drawn_kernels(name, program, draws):
        if emulates:
            found = emulate(program, emulation(kernels))
            assert (found.fault, found.max_error <= 1) == ("", True), text


def made(name: str, sizes: Sizes | Mapping[str, int | str | float]) -> Program:
    """A compute at these sizes."""
    file = gpu_library()
    return elaborate(file.computes[name], sizes, name, file.library)


def made_if_any(name: str, sizes: Mapping[str, int | str | float]) -> Program | None:
    """A compute at these sizes; None if it has none there, such as a window that is larger than its image."""
    try:
        return made(name, sizes)
    except TschedError:
        return None

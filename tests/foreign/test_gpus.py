"""The spaces for GPUs on computes of other projects: those of this folder's files, and those that its pages schedule by hand.

`make foreign DRAWS=3` draws so many schedules of each in each space, at each of its sizes, at sizes of 0 and with open sizes.
They are proved, emulated, and assembled where there is `ptxas`. In tests some have one schedule of the default space, and
findings are judged.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import registers_of, tool
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.backend.cuda.lower.lower import lower_device, require_room
from tensorc_dsl.base.diagnostic import Severity, TschedError
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.items import target_of
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.faces.api import TaskFile
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.measure.check import compare
from tensorc_dsl.tuning.measure.emulation import emulate
from tests.foreign.cases import CAMPAIGN, CASES, EXPANDED, FILES, FULL, library, made, with_open_size
from tests.foreign.steps import Case, all_cases, told
from tests.gpu.kernels import drawn, ptx
from tests.programs import proof_fault

TARGETS = {"default": "sm_80", "tensor_core": "sm_90", "hopper": "sm_90a"}
"""The spaces, and a target of each."""

USES = """
use std.gpu.default.{default}
use std.gpu.tensor_core.{tensor_core}
use std.gpu.hopper.{hopper}
use std.gpu.targets.{sm_80, sm_90, sm_90a}
"""


@cache
def spaces() -> CheckedFile:
    return load_source(Source("gpu.tsched", USES))


def space_of(program: Program, name: str) -> Space:
    """A space for GPUs over a program of a compute."""
    found = spaces()
    program = replace(program, intrinsics=found.instructions)
    return Space(found.spaces[name], program.name, program, target_of(found.targets[TARGETS[name]]), found.modules)


def kernels_of(program: Program, draws: int) -> Iterator[DeviceProgram]:
    """The kernels of each draw of each space, proved and assembled, once each."""
    met: set[DeviceProgram] = set()
    for name, cpu in TARGETS.items():
        space = space_of(program, name)
        for seed in range(draws):
            trace = drawn(space, program.name, seed)
            kernels = lower_device(trace.program, space.target.feature_names, space.target.cores)
            require_room(kernels, space.target)
            if kernels in met:
                continue
            met.add(kernels)
            assert proof_fault(program, trace.program) == "", trace.text
            code = ptx(kernels, cpu)
            if tool("ptxas") is not None and (spilled := registers_of(code, cpu).spilled):
                warnings.warn(f"seed {seed} of {name} for {program.name}: {spilled}", stacklevel=1)
            yield kernels


def judge(program: Program, draws: int = EXPANDED) -> None:
    """Each draw is right at random inputs, at all sizes at which open ones are checked."""
    for kernels in kernels_of(program, draws):
        found = emulate(program, emulation(kernels))
        assert (found.fault, found.max_error <= 1) == ("", True)


def judge_at(program: Program, inputs: Mapping[str, Array]) -> None:
    """Each draw is right at these inputs."""
    want, allowed = bounded(program, inputs)
    for kernels in kernels_of(program, EXPANDED):
        fault, found = emulated(kernels, program, inputs)
        assert fault == ""
        for outputs in found:
            for name, array in outputs.items():
                assert compare(name, array, want[name], allowed[name]).fault == ""


@pytest.mark.corpus
@pytest.mark.parametrize("file", FULL)
def test_the_default_space_has_schedules(file: str) -> None:
    for name in FILES[file]:
        program, _, _ = made(file, name, 0)
        verify(drawn(space_of(program, "default"), name, 0).program)


FINDINGS = ("embedding_bag", "decayed_back")
"""Computes whose schedules are judged in tests, too."""


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("file", "name"), [(f, n) for f, n in CASES if CAMPAIGN or n in FINDINGS], ids=lambda text: text
)
def test_schedules_of_a_compute_are_right(file: str, name: str) -> None:
    case = FILES[file][name]
    for number in range(len(case.sizes)):
        program, inputs, _ = made(file, name, number)
        judge_at(program, inputs)
    lib = library(file)
    for size in case.sizes[0]:
        if (opened := with_open_size(file, name, size)) is not None:
            judge(opened, 1)
        try:
            empty = elaborate(lib.computes[name], {**case.sizes[0], size: 0}, name, lib.library)
        except TschedError:  # a window is larger than its image, for one
            continue
        judge(empty, 1)


PAGES = [*{case.text: case for case in reversed(all_cases()) if case.is_compute}.values()]
"""The first section of each compute of a page."""


@pytest.mark.parametrize("case", PAGES if CAMPAIGN else (), ids=lambda case: case.name)
def test_schedules_of_a_page_are_right(case: Case) -> None:
    """At its sizes, and with each of them 0, 1, prime or open. A compute that the page says is refused has no schedule."""
    text = case.text
    found = page_or_refusal(text)
    if isinstance(found, str):
        assert found == case.refused
        return
    judge(found)
    task = task_in(text)
    for size in re.findall(r"\b\w+=\d+", task):
        for other in ("0", "1", "13", "1..40"):
            changed = re.sub(rf"\b{size}\b", f"{size.partition('=')[0]}={other}", task)
            try:
                program = on_page(text.replace(task, changed))
            except TschedError:
                continue
            judge(program, 1)


def page_or_refusal(text: str) -> Program | str:
    """The compute of a page, or why there is none, as a page says it."""
    try:
        return on_page(text)
    except TschedError as e:
        return told(e.diagnostics[0])


def on_page(text: str) -> Program:
    """The compute of a page, without a schedule. Raises TschedError if it has no program at its sizes."""
    task = task_in(text)
    checked = load_source(Source("page.tsched", f"{USES}{text.replace(task, f'{task} with default')}"))
    if wrong := [d for d in checked.diagnostics if d.severity is Severity.ERROR]:
        raise TschedError(*wrong)
    return TaskFile(checked, host_target(2), "sm_80")["it"].program


def task_in(text: str) -> str:
    """The line that binds the sizes."""
    return next(line for line in text.splitlines() if line.startswith("task it = "))

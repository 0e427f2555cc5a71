"""Pipelines on GPUs: versions of buffers, copies under way, waits that cover them, and one barrier a round."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower.kernels import (
    CommitGroup,
    DeviceProgram,
    Phase,
    Steps,
    WaitGroup,
    barriers_in,
    format_device,
    inside,
)
from tensorc_dsl.backend.cuda.lower.lower import lower_device, require_room
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Block, LoopKind, Program, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tests.gpu.kernels import ptx, whole
from tests.stdlib.gpu_checks import task, traces

PIPE = """
program p(A: TYPE[COUNT, 64], C: TYPE[COUNT, 64]) {
    buffer T: TYPE[COUNT, 64] in "shared"
    bound("block.x") for b in 1 {
        pipelined for i in COUNT ASYNC@("pipeline.order", "ORDER") @("pipeline.stages", "STAGES") {
            bound("thread.x") for t in THREADS {
                vectorized for v in LANES {
                    block T { spatial vi in COUNT = i; spatial vj in 64 = t * LANES + v; T[vi, vj] = VALUE }
                }
            }
            bound("thread.x") for t_1 in THREADS {
                for v_1 in LANES {
                    block C { spatial vi in COUNT = i; spatial vj in 64 = t_1 * LANES + v_1; C[vi, vj] = T[vi, 63 - vj] }
                }
            }
        }
    }
}
"""


def pipe(
    stage: str = "0, 2",
    order: str = "0, 1",
    lanes: int = 4,
    count: int = 9,
    kind: str = "f32",
    value: str = "A[vi, vj]",
    asynchronous: bool = True,
) -> Program:
    text = PIPE.replace("STAGES", stage).replace("ORDER", order).replace("THREADS", str(64 // lanes))
    text = text.replace("LANES", str(lanes)).replace("COUNT", str(count)).replace("TYPE", kind).replace("VALUE", value)
    return parse_program(
        Source("p.tsched", text.replace("ASYNC", '@("pipeline.asynchronous", "0") ' if asynchronous else ""))
    )


def check(p: Program) -> DeviceProgram:
    """The kernels, which compute what the program does, in all orders of threads; numbers are whole, so exactly."""
    kernels = lower_device(p)
    assert ".version" in ptx(kernels, "sm_80")
    inputs = {name: np.rint(a).astype(a.dtype) for name, a in make_inputs(p, 0).items()}
    expected = interpret(p, inputs, "forward")
    fault, found = emulated(kernels, p, inputs)
    assert fault == ""
    for outputs in found:
        for name, array in outputs.items():
            np.testing.assert_array_equal(array, expected[name])
    return kernels


def copies(p: DeviceProgram) -> list[Phase]:
    return [s for k in p.kernels for s in inside(k.body) if isinstance(s, Phase) and s.asynchronous]


def waits(p: DeviceProgram) -> list[int]:
    return [s.groups for k in p.kernels for s in inside(k.body) if isinstance(s, WaitGroup)]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("ahead", "order", "count"),
    [(1, "0, 1", 9), (1, "1, 0", 9), (2, "0, 1", 9), (3, "1, 0", 9), (3, "0, 1", 2), (1, "0, 1", 1)],
)
def test_copies_run_ahead_with_one_barrier_a_round(ahead: int, order: str, count: int) -> None:
    kernels = check(pipe(f"0, {ahead}", order, count=count))
    (k,) = kernels.kernels
    assert [b.size for b in k.shared] == [64 * (ahead + 1)]
    assert copies(kernels) and waits(kernels) == [ahead - 1]
    (body,) = (s for s in k.body if isinstance(s, Steps) and s.var == "i")
    assert barriers_in((body,)) == barriers_in(k.body) == 1
    assert any(isinstance(s, CommitGroup) for s in body.body)


@pytest.mark.corpus
@pytest.mark.parametrize("ahead", [1, 2])
def test_a_pipeline_without_asynchronous_stages_has_versions_too(ahead: int) -> None:
    kernels = check(pipe(f"0, {ahead}", asynchronous=False))
    assert not copies(kernels) and not waits(kernels)
    assert [b.size for b in kernels.kernels[0].shared] == [64 * (ahead + 1)]
    assert barriers_in(kernels.kernels[0].body) == 1


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("kind", "lanes", "size"),
    [("f32", 1, 4), ("f32", 2, 8), ("f32", 4, 16), ("f16", 2, 4), ("f16", 8, 16), ("f64", 1, 8)],
)
def test_copies_of_4_8_and_16_bytes_are_under_way(kind: str, lanes: int, size: int) -> None:
    kernels = check(pipe(kind=kind, lanes=lanes))
    text = ptx(kernels, "sm_80")
    assert f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global" in text
    assert re.search(rf"cp\.async\.c[ag]\.shared\.global \[[^]]+\], \[[^]]+\], {size};", text)
    assert "cp.async.commit_group" in text and "cp.async.wait_group" in text


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"kind": "f16", "lanes": 1}, "copies 2 bytes a thread, and copies beside other work have 4, 8 or 16"),
        ({"kind": "i8", "lanes": 1}, "copies 1 byte a thread"),
        ({"value": "A[vi, vj] * 2.0"}, "computes, and only copies run beside other work"),
        ({"kind": "f16", "lanes": 2, "value": "A[vi, 63 - vj]"}, "copies 2 bytes a thread"),
        ({"value": "A[vi, min(vj + vi, 63)]", "kind": "f16", "lanes": 2}, "copies 2 bytes a thread"),
    ],
)
def test_what_cannot_be_under_way_is_copied_at_once_and_said(given: dict[str, object], reason: str) -> None:
    kernels = check(pipe(**given))  # pyright: ignore[reportArgumentType]
    assert not copies(kernels) and not waits(kernels)
    assert "// stage 0 of `i` is not asynchronous: `T[" in (text := format_device(kernels)) and reason in text
    assert [b.size for b in kernels.kernels[0].shared] == [3 * 64]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("value", "kind", "lanes"),
    [
        ("A[vi, vj - 2] if vj >= 2 else 0.0", "f32", 1),
        ("A[vi - 1, vj] if vi >= 1 else 0.0", "f32", 4),
        ("0.0 if vj < 4 else A[vi, vj - 4]", "f32", 4),
        ("A[vi, vj + 8] if vj < 56 and vi != 3 else 0.0", "f16", 8),
        ("(A[vi, vj + 8] if vj < 56 else 0.0) if vi >= 2 else 0.0", "f16", 8),
    ],
)
def test_zeros_of_padding_are_under_way_with_the_rest(value: str, kind: str, lanes: int) -> None:
    """What is outside of an array is not read: the copy has a number of bytes to read, which is 0 there."""
    kernels = check(pipe(kind=kind, lanes=lanes, value=value))
    size = lanes * (4 if kind == "f32" else 2)
    assert copies(kernels)
    found = re.findall(rf"cp\.async\.c[ag]\.shared\.global \[[^]]+\], \[[^]]+\], {size}, (\S+);", ptx(kernels, "sm_80"))
    assert found and set(found) != {str(size)}


@pytest.mark.parametrize(
    "value", ["A[vi, vj] if vj < 8 else 1.0", "A[vi, vj] if vj < 8 else -0.0", "A[vi, vj] + 1.0 if vj < 8 else 0.0"]
)
def test_what_fills_with_other_numbers_is_not_under_way(value: str) -> None:
    kernels = check(pipe(value=value))
    assert not copies(kernels)
    assert "computes, and only copies run beside other work, of elements or of zeros" in format_device(kernels)


def test_a_vector_is_as_many_copies_as_its_alignment_allows() -> None:
    """Rows of 36 f16 are aligned to 8 bytes, so a vector of 8 is two copies."""
    text = COLUMNS.replace("KIND", "f16").replace("COLUMNS", "36").replace("LANES", "8")
    kernels = check(parse_program(Source("p.tsched", text)))
    found = ptx(kernels, "sm_80")
    assert re.search(r"cp\.async\.ca\.shared\.global \[[^]]+\], \[[^]]+\], 8;", found) and "], 16;" not in found


COLUMNS = """
program p(A: KIND[8, COLUMNS], C: KIND[8, 32]) {
    buffer T: KIND[8, 32] in "shared"
    bound("block.x") for b in 1 {
        pipelined for i in 8 @("pipeline.asynchronous", "0") @("pipeline.order", "0, 1") @("pipeline.stages", "0, 1") {
            bound("thread.x") for t in 4 {
                vectorized for v in LANES {
                    block T { spatial vi in 8 = i; spatial vj in 32 = t * LANES + v; T[vi, vj] = A[vi, vj] }
                }
            }
            bound("thread.x") for t_1 in 4 {
                for v_1 in LANES {
                    block C { spatial vi in 8 = i; spatial vj in 32 = t_1 * LANES + v_1; C[vi, vj] = T[vi, 31 - vj] }
                }
            }
        }
    }
}
"""

PRODUCT = """
program p(A: f32[32, 24], B: f32[24, 32], C: f32[32, 32]) {
    buffer As: f32[32, 24] in "shared"
    buffer Bs: f32[24, 32] in "shared"
    buffer Cl: f32[32, 32] in "local"
    bound("block.x") for b in 2 {
        bound("thread.x") for t0 in 32 {
            for y0 in 16 {
                block Z { spatial vi in 32 = b * 16 + y0; spatial vj in 32 = t0; Cl[vi, vj] = 0.0 }
            }
        }
        pipelined for k in 6 NOTES {
            for r in 2 {
                bound("thread.x") for t1 in 32 {
                    block As {
                        spatial vi in 32 = b * 16 + (r * 32 + t1) / 4; spatial vk in 24 = k * 4 + t1 % 4
                        As[vi, vk] = A[vi, vk]
                    }
                }
            }
            bound("thread.x") for t2 in 32 {
                vectorized for v in 4 {
                    block Bs { spatial vk in 24 = k * 4 + t2 / 8; spatial vj in 32 = t2 % 8 * 4 + v; Bs[vk, vj] = B[vk, vj] }
                }
            }
            bound("thread.x") for t3 in 32 {
                for y in 16 {
                    for u in 4 {
                        block P {
                            spatial vi in 32 = b * 16 + y; spatial vj in 32 = t3; reduce vk in 24 = k * 4 + u
                            Cl[vi, vj] = Cl[vi, vj] + As[vi, vk] * Bs[vk, vj]
                        }
                    }
                }
            }
        }
        bound("thread.x") for t4 in 32 {
            for y1 in 16 {
                block C { spatial vi in 32 = b * 16 + y1; spatial vj in 32 = t4; C[vi, vj] = Cl[vi, vj] }
            }
        }
    }
}
"""


def product(stage: str, order: str = "0, 1, 2", starts: str = "0") -> Program:
    values = {"asynchronous": starts, "order": order, "stages": stage}
    text = PRODUCT.replace("NOTES", " ".join(f'@("pipeline.{key}", "{v}")' for key, v in values.items()))
    return parse_program(Source("p.tsched", text))


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("stage", "order", "starts", "groups"),
    [
        ("0, 0, 2", "0, 1, 2", "0", [1]),  # both copies are one group
        ("0, 0, 2", "0, 2, 1", "0", [2]),  # the sum between them: two groups a round
        ("0, 1, 2", "0, 1, 2", "0, 1", [0]),  # the second operand is copied a round later
        ("0, 1, 2", "0, 1, 2", "0", [1]),
        ("0, 0, 0", "0, 1, 2", "0", [0]),  # nothing runs ahead
        ("0, 1, 3", "1, 2, 0", "0, 1", [1]),
    ],
)
def test_waits_count_the_groups_behind_the_one_that_is_read(
    stage: str, order: str, starts: str, groups: list[int]
) -> None:
    kernels = lower_device(product(stage, order, starts))
    assert waits(kernels) == groups
    assert barriers_in(kernels.kernels[0].body) <= 2
    check(product(stage, order, starts))


def test_versions_that_shared_memory_has_no_room_for_are_refused() -> None:
    """What the schedule counts has no space for alignment: 3 versions of 64 f32 are 768 bytes."""
    p = lower_device(pipe("0, 2"))
    require_room(p, Target(shared_memory=768))
    with pytest.raises(LowerError, match=r"has 768 bytes .*up to 767 are there: `T` 768; make tiles smaller"):
        require_room(p, Target(shared_memory=767))


THROUGH_REGISTERS = """
program p(A: f32[9, 64], C: f32[9, 64]) {
    buffer L: f32[9, 64] in "local"
    buffer T: f32[9, 64] in "shared"
    bound("block.x") for b in 1 {
        for o in 3 {
            pipelined for i in 3 @("pipeline.order", "ORDER") @("pipeline.stages", "STAGES") {
                bound("thread.x") for t in 16 {
                    for v in 4 {
                        block L { spatial vi in 9 = o * 3 + i; spatial vj in 64 = t * 4 + v; L[vi, vj] = A[vi, vj] }
                    }
                }
                bound("thread.x") for t_1 in 16 {
                    for v_1 in 4 {
                        block T { spatial vi in 9 = o * 3 + i; spatial vj in 64 = t_1 * 4 + v_1; T[vi, vj] = L[vi, vj] + 1.0 }
                    }
                }
                bound("thread.x") for t_2 in 16 {
                    for v_2 in 4 {
                        block C { spatial vi in 9 = o * 3 + i; spatial vj in 64 = t_2 * 4 + v_2; C[vi, vj] = T[vi, 63 - vj] }
                    }
                }
            }
        }
    }
}
"""


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("stage", "order", "local", "shared"),
    [
        ("0, 1, 2", "0, 1, 2", 2, 2),
        ("0, 2, 3", "2, 1, 0", 2, 2),  # read before the round writes them again
        ("0, 0, 1", "0, 1, 2", 1, 2),
        ("0, 1, 1", "1, 0, 2", 1, 1),
        ("0, 4, 5", "0, 1, 2", 5, 2),  # longer than the loop, which is inside of another one
    ],
)
def test_what_threads_keep_has_versions_for_the_stages_that_use_it(
    stage: str, order: str, local: int, shared: int
) -> None:
    text = THROUGH_REGISTERS.replace("STAGES", stage).replace("ORDER", order)
    (k,) = check(parse_program(Source("p.tsched", text))).kernels
    kept = [b for b in k.local if ".version" not in b.name]  # what is chosen among is beside the versions themselves
    assert [b.size for b in kept] == [4 * local] and [b.size for b in k.shared] == [64 * shared]


def test_a_pipeline_inside_of_threads_runs_in_order() -> None:
    text = """
program p(A: f32[4, 64], C: f32[4, 64]) {
    buffer L: f32[4, 64] in "local"
    bound("block.x") for b in 1 {
        bound("thread.x") for t in 64 {
            pipelined for i in 4 @("pipeline.asynchronous", "0") @("pipeline.order", "0, 1") @("pipeline.stages", "0, 1") {
                block L { spatial vi in 4 = i; spatial vj in 64 = t; L[vi, vj] = A[vi, vj] }
                block C { spatial vi in 4 = i; spatial vj in 64 = t; C[vi, vj] = L[vi, vj] + 1.0 }
            }
        }
    }
}
"""
    kernels = check(parse_program(Source("p.tsched", text)))
    assert not copies(kernels) and not waits(kernels)


@pytest.mark.corpus
@pytest.mark.parametrize("text", ["matmul(M=17, N=33, K=19)", "conv2d_nhwc(N=1, H=6, W=9, CI=5, KH=3, KW=3, CO=7)"])
def test_drawn_pipelines_of_odd_sizes(text: str, tmp_path: Path) -> None:
    t, ahead = task(tmp_path, text), 0
    for seed in range(12):
        trace = whole(t.sample(seed))
        if "software_pipeline" in trace.text:
            found = t.emulate(trace)
            assert found.fault == "" and found.max_error <= 1.0
            ahead += 1
        if ahead == 2:
            return
    raise AssertionError("no copies run ahead")


@pytest.mark.corpus
def test_half_precision_is_copied_in_pairs_and_more(tmp_path: Path) -> None:
    """The rules of `std.gpu` draw vectors of at least 4 bytes. Only a tile of one column has no neighbours to copy."""
    t, started = task(tmp_path, "half_matmul(M=64, N=64, K=64)"), 0
    for seed in range(4):
        (k,) = lower_device(whole(t.sample(seed)).program).kernels
        assert all(re.search(r"= A\[[^\]]*\* 64 \+ k_0\]` copies 2 bytes", note) for note in k.notes)
        started += sum(isinstance(s, Phase) and s.asynchronous for s in inside(k.body))
    assert started


@pytest.mark.corpus
def test_operands_of_tensor_cores_are_under_way(tmp_path: Path) -> None:
    t, ahead = task(tmp_path, "half_matmul(M=32, N=32, K=32)", "tensor_core"), 0
    for trace in traces(t, 4):
        p = trace.program
        if "software_pipeline" in trace.text:
            kernels = lower_device(p)
            (k,) = kernels.kernels
            assert k.notes == () and len(copies(kernels)) >= 2 and barriers_in(k.body) <= 2
            ahead += 1
        for around, b in walk(p.body):
            if isinstance(b, Block) and p.buffer(b.body[0].buffer).scope == "shared":
                assert around[-1].kind is LoopKind.VECTORIZED and (constant(around[-1].extent) or 0) >= 2
    assert ahead

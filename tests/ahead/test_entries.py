"""The functions of a library, called by `ctypes` alone: results, and all status codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.ahead.interface import Status
from tests.ahead.made import export, needs_compiler, python, task

pytestmark = needs_compiler

PRODUCT = """
import random
random.seed(0)
def product(name, m, n, k):
    a, b, c = (array("f", (random.choice((-1.0, 0.5, 2.0)) for _ in range(x))) for x in (m * k, k * n, m * n))
    status = call(name, describe(a, [m, k]), describe(b, [k, n]), describe(c, [m, n]))
    right = all(c[i * n + j] == sum(a[i * k + x] * b[x * n + j] for x in range(k)) for i in range(m) for j in range(n))
    return [*status, right]
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_product(threads: int, tmp_path: Path) -> None:
    library = export(tmp_path, "mm", "so", threads=threads)
    assert python(library, PRODUCT + "print(json.dumps(product('mm', 24, 48, 16)))") == [0, 0, True]


def test_a_size_that_comes_with_the_call(tmp_path: Path) -> None:
    library = export(tmp_path, "mm_any", "so", threads=2)
    program = """
print(json.dumps([product("mm_any", m, 48, 16) for m in (1, 3, 4, 5, 23, 700)]))
"""
    assert python(library, PRODUCT + program) == [[0, 0, True]] * 6
    program = """
f = ctypes.CDLL(LIBRARY).mm_any
a, b, c = array("f", bytes(4 * 4096 * 16)), array("f", bytes(4 * 16 * 48)), array("f", bytes(4 * 4096 * 48))
pointers = [ctypes.c_void_p(x.buffer_info()[0]) for x in (a, b, c)]
results = [f(ctypes.c_int64(m), *pointers) for m in (0, -1, 1, 4096, 4097, 1 << 62)]
results += [call("mm_any", describe(a, [m, 16]), describe(b, [16, 48]), describe(c, [m, 48]))[0] for m in (0, 4096, 4097)]
print(json.dumps(results))
"""
    assert python(library, program) == [3, 3, 0, 0, 3, 3, 3, 0, 3]


def test_a_size_that_a_product_tells(tmp_path: Path) -> None:
    library = export(tmp_path, "first_of", "so")
    program = """
def first(m, n, size):
    a, b, c = array("f", [2.0] * size), array("f", [1.0] * n), array("f", bytes(4 * n))
    status = call("first_of", describe(a, [size]), describe(b, [n]), describe(c, [n]))
    return [*status, set(c) == {3.0}]
print(json.dumps([first(3, 4, 12), first(9, 8, 72), first(3, 4, 13), first(10, 4, 40)]))
"""
    fits, most, rest, large = python(library, program)
    assert fits == most == [0, 0, True]
    assert rest == [Status.SHAPE, 0, False] and large[0] == Status.SIZE


def test_constant_inputs_may_change_between_calls(tmp_path: Path) -> None:
    library = export(tmp_path, "weighted", "so")
    assert "tensorc_weighted_prepare" in task("weighted").library(task("weighted").sample(0)).make("llvm").decode()
    program = """
print(json.dumps([product("weighted", m, 48, 70) for m in (3, 3, 1, 64)]))
"""
    assert python(library, PRODUCT + program) == [[0, 0, True]] * 4


REFUSED = """
a, b, c = array("f", bytes(4 * 24 * 16)), array("f", bytes(4 * 16 * 48)), array("f", bytes(4 * 24 * 48))
shapes = {"A": [24, 16], "B": [16, 48], "C": [24, 48]}
data = {"A": a, "B": b, "C": c}
def tried(**changes):
    arrays = []
    for name, shape in shapes.items():
        given = dict(changes.get(name, {}))
        arrays.append(describe(data[name], given.pop("sizes", shape), **given))
    return call("mm", *arrays)
at = {name: x.buffer_info()[0] for name, x in data.items()}
cases = {
    "fits": tried(),
    "strides": tried(A={"strides": ints([16, 1])}, C={"strides": ints([48, 1])}),
    "offset": tried(A={"data": at["A"] - 64, "byte_offset": 64}),
    "count": call("mm", *[describe(a, [24, 16])] * 2),
    "no count": call("mm", count=-1),
    "no arrays": [ctypes.CDLL(LIBRARY).mm_checked(None, 3), 0],
    "device": tried(B={"device_type": 2}),
    "code": tried(A={"code": INT}),
    "bits": tried(A={"bits": 64}),
    "lanes": tried(C={"lanes": 4}),
    "rank": tried(B={"sizes": [16, 48, 1]}),
    "flat": tried(B={"sizes": [768]}),
    "negative rank": tried(B={"ndim": -1}),
    "null": tried(C={"data": None}),
    "no shape": tried(A={"shape": None}),
    "shape": tried(B={"sizes": [48, 16]}),
    "short": tried(C={"sizes": [24, 47]}),
    "negative": tried(C={"sizes": [-24, -48]}),
    "transposed": tried(A={"strides": ints([1, 24])}),
    "gaps": tried(B={"strides": ints([96, 2])}),
    "misaligned": tried(B={"byte_offset": 2}),
    "in place": tried(C={"data": at["A"]}),
    "end": tried(C={"data": at["B"] + 4 * 767}),
    "beside": tried(A={"data": at["B"]}),
}
print(json.dumps(cases))
"""


def test_everything_that_is_refused(tmp_path: Path) -> None:
    got = python(export(tmp_path, "mm", "so"), REFUSED)
    ok = {name: [Status.OK, 0] for name in ("fits", "strides", "offset", "beside")}
    assert got == ok | {
        "count": [Status.COUNT, 0],
        "no count": [Status.COUNT, 0],
        "no arrays": [Status.NULL, 0],
        "device": [Status.DEVICE, 1],
        "code": [Status.DTYPE, 0],
        "bits": [Status.DTYPE, 0],
        "lanes": [Status.DTYPE, 2],
        "rank": [Status.RANK, 1],
        "flat": [Status.RANK, 1],
        "negative rank": [Status.RANK, 1],
        "null": [Status.NULL, 2],
        "no shape": [Status.NULL, 0],
        "shape": [Status.SHAPE, 1],
        "short": [Status.SHAPE, 2],
        "negative": [Status.SHAPE, 2],
        "transposed": [Status.STRIDES, 0],
        "gaps": [Status.STRIDES, 1],
        "misaligned": [Status.MISALIGNED, 1],
        "in place": [Status.OVERLAP, 2],
        "end": [Status.OVERLAP, 2],
    }


def test_pointers_are_checked_too(tmp_path: Path) -> None:
    program = """
f = ctypes.CDLL(LIBRARY).mm
block = array("f", bytes(4 * (24 * 16 + 16 * 48 + 24 * 48 + 1)))
a = block.buffer_info()[0]
b = a + 4 * 24 * 16
c = b + 4 * 16 * 48
calls = [(a, b, c), (None, b, c), (a, None, c), (a, b, None), (a + 1, b, c), (a, b, c + 2), (a, b, c - 4), (b, a, b)]
print(json.dumps([f(*map(ctypes.c_void_p, x)) for x in calls]))
"""
    null, misaligned, overlap = Status.NULL, Status.MISALIGNED, Status.OVERLAP
    assert python(export(tmp_path, "mm", "so"), program) == [
        0, null, null | 1 << 8, null | 2 << 8, misaligned, misaligned | 2 << 8, overlap | 2 << 8, overlap | 2 << 8,
    ]  # fmt: skip


def test_several_outputs(tmp_path: Path) -> None:
    program = """
x = array("f", (((7 * k) % 13) - 6.0 for k in range(37 * 11)))
s, p = array("f", bytes(4 * 37)), array("i", bytes(4 * 37))
both = [describe(x, [37, 11]), describe(s, [37]), describe(p, [37])]
status = call("positive", *both)
rows = [[v for v in x[11 * i : 11 * i + 11] if v > 0] for i in range(37)]
right = [list(s) == [sum(r) for r in rows], list(p) == [len(r) for r in rows]]
both[1] = describe(array("f", bytes(4)), [37], data=p.buffer_info()[0])
print(json.dumps([status, right, call("positive", *both)]))
"""
    got = python(export(tmp_path, "positive", "so", threads=2), program)
    assert got == [[0, 0], [True, True], [Status.OVERLAP, 2]]


def test_bytes_of_both_signs(tmp_path: Path) -> None:
    program = """
a = array("B", ((37 * k) % 256 for k in range(35)))
b = array("b", ((91 * k) % 256 - 128 for k in range(112)))
c = array("i", bytes(4 * 80))
arrays = [describe(a, [5, 7]), describe(b, [7, 16]), describe(c, [5, 16])]
status = call("byte_product", *arrays)
want = [sum(a[i * 7 + k] * b[k * 16 + j] for k in range(7)) for i in range(5) for j in range(16)]
arrays[0], arrays[1] = describe(a, [5, 7], code=INT), describe(b, [7, 16], code=UINT)
print(json.dumps([status, list(c) == want, call("byte_product", *arrays)]))
"""
    assert python(export(tmp_path, "byte_product", "so"), program) == [[0, 0], True, [Status.DTYPE, 0]]


def test_bf16_is_passed_as_its_bits(tmp_path: Path) -> None:
    program = """
x, y = array("H", [0x3F80, 0x4049, 0xC000, 0x0000, 0x7F80] * 4), array("H", bytes(40))
status = call("bf16_twice", describe(x, [20]), describe(y, [20]))
other = call("bf16_twice", describe(x, [20], code=FLOAT), describe(y, [20]))
print(json.dumps([status, list(y[:5]), other]))
"""
    got = python(export(tmp_path, "bf16_twice", "so"), program)
    assert got == [[0, 0], [0x4000, 0x40C9, 0xC080, 0x0000, 0x7F80], [Status.DTYPE, 0]]


def test_sizes_follow_from_extents_that_are_made_of_them(tmp_path: Path) -> None:
    program = """
def tried(x, z, y):
    a = array("f", map(float, range(max(x, 1)))), array("f", (100.0 * k for k in range(max(z, 1)))), array("f", bytes(4 * y))
    status = call("paired", *(describe(v, [n]) for v, n in zip(a, (x, z, y))))
    return [*status, status[0] == 0 and list(a[2]) == [4.0 * i + 1 + 100.0 * (i + z - y) for i in range(y)]]
print(json.dumps([tried(14, 10, 7), tried(2, 2, 1), tried(128, 72, 64), tried(15, 10, 7), tried(14, 7, 7), tried(14, 16, 7),
                  tried(14, 10, 8), tried(130, 66, 65)]))
"""
    got = python(export(tmp_path, "paired", "so"), program)
    assert [status for *status, _ in got] == [
        [0, 0], [0, 0], [0, 0], [Status.SHAPE, 0], [Status.SIZE, 1], [Status.SIZE, 1], [Status.SHAPE, 2],
        [Status.SIZE, 0],
    ]  # fmt: skip
    assert [right for *_, right in got] == [True] * 3 + [False] * 5


def test_a_single_value_has_no_shape(tmp_path: Path) -> None:
    program = """
x, f, y = array("f", range(9)), array("f", [3.0]), array("f", bytes(36))
status = call("scale", describe(x, [9]), describe(f, [], shape=None), describe(y, [9]))
print(json.dumps([status, list(y)]))
"""
    assert python(export(tmp_path, "scale", "so"), program) == [[0, 0], [3.0 * k for k in range(9)]]


def test_the_metadata_says_what_the_library_is(tmp_path: Path) -> None:
    facts = python(export(tmp_path, "mm_any", "so", threads=2), "print(json.dumps(metadata('mm_any')))")
    assert facts["sizes"] == [{"name": "M", "low": 1, "high": 4096}]
    assert facts["arrays"][0] == {"name": "A", "dtype": "f32", "shape": ["M", 16], "output": False, "constant": False}
    assert [a["output"] for a in facts["arrays"]] == [False, False, True]
    assert facts["threads"] == 2
    assert facts["cpu"] == task("mm_any").target.cpu


def test_a_library_computes_what_the_kernel_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((24, 16), np.float32), rng.standard_normal((16, 48), np.float32)
    kernel = task("mm").replay(task("mm").sample(0))
    (tmp_path / "in").write_bytes(a.tobytes() + b.tobytes())
    program = f"""
a, b, c = array("f"), array("f"), array("f", bytes(4 * 24 * 48))
with open({str(tmp_path / "in")!r}, "rb") as f:
    a.fromfile(f, 24 * 16)
    b.fromfile(f, 16 * 48)
assert call("mm", describe(a, [24, 16]), describe(b, [16, 48]), describe(c, [24, 48])) == [0, 0]
print(json.dumps(c.tobytes().hex()))
"""
    got = bytes.fromhex(python(export(tmp_path, "mm", "so"), program))
    assert got == np.asarray(kernel(a, b)).tobytes()


def test_single_values_are_addresses_of_one_element(tmp_path: Path) -> None:
    library = export(tmp_path, "scaled_total", "so")
    program = """
x, scale, n = array("f", range(8)), array("f", [0.5]), array("i", [21])
total, twice = array("f", [0]), array("i", [0])
f = ctypes.CDLL(LIBRARY).scaled_total
plain = f(*(ctypes.c_void_p(a.buffer_info()[0]) for a in (x, scale, n, total, twice)))
made = [plain, total[0], twice[0]]
total[0] = twice[0] = 0
outputs = describe(total, []), describe(twice, [])
made += call("scaled_total", describe(x, [8]), describe(scale, []), describe(n, []), *outputs)
made += [total[0], twice[0]]
made += call("scaled_total", describe(x, [8]), describe(scale, [1]), describe(n, []), *outputs)
print(json.dumps(made))
"""
    assert python(library, program) == [0, 14.0, 42, 0, 0, 14.0, 42, Status.RANK, 1]

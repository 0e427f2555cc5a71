"""The maths functions of f32: within 2 ulp of NumPy's in float64, special values exactly, the same in any number of lanes.

`python -m bench.maths --exhaustive` goes through all 2**32 arguments; this is a sample of every exponent.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from bench.maths import REFERENCE, Array, compiled, ulps
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.maths import NUMERICS
from tests.codegen.native import check, program

WIDTHS = (1, 4, 8, 16, 64)
SPECIAL = (
    0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1e-45, -1e-45, 2.0**-126,
    -(2.0**-126), 2.0**-126 - 2.0**-149, 3.4028234663852886e38, -3.4028234663852886e38,
)  # fmt: skip

# The last is the float32 nearest to a multiple of pi/2 (Muller, Elementary Functions, chapter 11).
ANGLES = (math.pi / 4, math.pi / 2, math.pi, 2.0**40, 2.0**40 - 2.0**16, 16367173 * 2.0**72)

# Where results overflow, lose digits, vanish, or stop to change, and where one formula hands over to another.
BORDERS = {
    "exp": (88.72283, 88.72284, 89.0, -87.33654, -87.33655, -103.27893, -103.97207, -103.97208, -104.0),
    "log": (math.sqrt(0.5), math.sqrt(2.0), 1 - 2.0**-24, 1 + 2.0**-23),
    "tanh": (0.625, 9.010913, 10.0, 44.0),
    "erf": (1.0, 3.9192059, 4.0),
    "sigmoid": (16.635532, 17.0, 88.72283, 103.27893, 103.97208, 104.0),
    "rsqrt": (0.25, 4.0),
    "sin": ANGLES,
    "cos": ANGLES,
}  # fmt: skip


def sample(function: str) -> Array:
    """Special values, both sides of each border, and 60 mantissas for each sign and exponent; 32768 in all."""
    borders = np.array(BORDERS.get(function, ()), np.float32)
    near = [np.nextafter(borders, np.float32(side)) for side in (-math.inf, math.inf)]
    chosen = np.concatenate([np.array(SPECIAL, np.float32), borders, *near])
    chosen = np.concatenate([chosen, -chosen])
    rng = np.random.default_rng(7)
    mantissas = rng.integers(0, 2**23, (512, 60), dtype=np.uint32)
    mantissas[:, :3] = 0, 1, 2**23 - 1
    every = ((np.arange(512, dtype=np.uint32) << 23)[:, None] | mantissas).view(np.float32).ravel()
    more = rng.uniform(-110, 110, 2**15 - len(every) - len(chosen)).astype(np.float32)
    return np.concatenate([chosen, every, more])


def run(function: str, lanes: int, *arguments: Array) -> Array:
    out = np.full(len(arguments[0]), 12345.0, np.float32)
    load(compiled(function, len(out), lanes))(*arguments, out)
    return out


def exact(function: str, *arguments: Array) -> Array:
    with np.errstate(all="ignore"):
        return REFERENCE[function](*(a.astype(np.float64) for a in arguments))


def assert_equal(got: Array, want: Array) -> None:
    """Equal numbers with equal signs, and NaN where NaN is."""
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


def assert_within_two_ulps(function: str, *arguments: Array) -> None:
    """For vectors of all widths; their results are the same."""
    want = exact(function, *arguments)
    results = [run(function, lanes, *arguments) for lanes in WIDTHS]
    for got in results[1:]:
        np.testing.assert_array_equal(got, results[0])
    error = ulps(results[0], want)
    worst = int(np.argmax(error))
    print(f"{function}: {error[worst]:.3f} ulp at {', '.join(str(a[worst]) for a in arguments)}")
    assert error[worst] <= 2.0


@pytest.mark.parametrize("function", [f for f in REFERENCE if f != "pow"])
def test_every_exponent_is_within_two_ulps_in_any_number_of_lanes(function: str) -> None:
    assert_within_two_ulps(function, sample(function))


def pairs() -> tuple[Array, Array]:
    """Special values with each other and with numbers around 1, all exponents, and results of every size; 2**17 pairs."""
    rng = np.random.default_rng(11)
    some = np.array(
        [*SPECIAL, 2.5, -2.5, 2.0**24 + 2, -(2.0**24) - 2, 2.0**24 - 1, 1 - 2.0**-24, 1 + 2.0**-23, 1e38], "f4"
    )
    a, b = (g.ravel() for g in np.meshgrid(some, some))
    n = 2**16 - len(a)
    c, d = rng.integers(0, 2**32, (2, n), dtype=np.uint64).astype(np.uint32).view(np.float32)
    e = np.exp2(rng.uniform(-149, 128, 2**15)).astype(np.float32)
    f = (rng.uniform(-151, 129, 2**15) / np.log2(e.astype(np.float64))).astype(np.float32)
    g = rng.uniform(-8, 8, 2**15).astype(np.float32)
    h = rng.integers(-40, 40, 2**15).astype(np.float32)
    return np.concatenate([a, c, e, g]), np.concatenate([b, d, f, h])


def test_pow_is_within_two_ulps_in_any_number_of_lanes() -> None:
    assert_within_two_ulps("pow", *pairs())


INF, NAN = math.inf, math.nan
# ISO/IEC 9899:1999, annex F.9: argument, result.
EXACT = {
    "exp": ((0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (89.0, INF), (-104.0, 0.0)),
    "log": ((0.0, -INF), (-0.0, -INF), (1.0, 0.0), (-1.0, NAN), (-1e-45, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)),
    "tanh": ((0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (1e-45, 1e-45), (-1e-45, -1e-45)),
    "erf": ((0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (1e-45, 1e-45), (-1e-45, -1e-45)),
    "sigmoid": ((0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN)),
    "rsqrt": ((0.0, INF), (INF, 0.0), (-1.0, NAN), (NAN, NAN), (4.0, 0.5), (2.0**-126, 2.0**63)),
    "sin": ((0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (1e-45, 1e-45), (-1e-45, -1e-45)),
    "cos": ((0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)),
}  # fmt: skip


@pytest.mark.parametrize("function", EXACT)
def test_special_values(function: str) -> None:
    x, want = (np.array(column, np.float32) for column in zip(*EXACT[function], strict=True))
    assert_equal(run(function, 1, x), want)
    repeated = np.resize(x, 16)
    assert_equal(run(function, 16, repeated), np.resize(want, 16))


def test_special_powers() -> None:
    """Every case of F.9.4.4; `math.pow` follows the same annex but raises where the result is infinite or NaN."""
    cases = [(x, y, 1.0) for y in (0.0, -0.0) for x in SPECIAL] + [(1.0, y, 1.0) for y in SPECIAL]
    cases += [(-1.0, INF, 1.0), (-1.0, -INF, 1.0), (NAN, 1.0, NAN), (-1.0, NAN, NAN)]
    cases += [(-2.0, 0.5, NAN), (-1e-45, 2.5, NAN), (-3e38, -1.5, NAN)]
    cases += [(0.0, -3.0, INF), (-0.0, -3.0, -INF), (0.0, -2.0, INF), (-0.0, -2.0, INF), (-0.0, -0.5, INF)]
    cases += [(0.0, -INF, INF), (-0.0, -INF, INF)]
    cases += [(0.0, 3.0, 0.0), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, 0.5, 0.0), (-0.0, INF, 0.0)]
    cases += [(x, -INF, INF) for x in (0.5, -0.5, 1 - 2.0**-24)] + [(x, -INF, 0.0) for x in (2.0, -2.0, 1 + 2.0**-23)]
    cases += [(x, INF, 0.0) for x in (0.5, -0.5, 1 - 2.0**-24)] + [(x, INF, INF) for x in (2.0, -2.0, 1 + 2.0**-23)]
    cases += [(-INF, -3.0, -0.0), (-INF, -2.0, 0.0), (-INF, -0.5, 0.0), (-INF, -INF, 0.0)]
    cases += [(-INF, 3.0, -INF), (-INF, 2.0, INF), (-INF, 0.5, INF), (-INF, INF, INF)]
    cases += [(INF, -0.5, 0.0), (INF, -INF, 0.0), (INF, 0.5, INF), (INF, INF, INF)]
    cases += [
        (-2.0, 3.0, -8.0),
        (-2.0, 2.0, 4.0),
        (-2.0, -1.0, -0.5),
        (-1.0, 2.0**24 - 1, -1.0),
        (-1.0, 2.0**24 + 2, 1.0),
    ]
    cases += [(2.0, -149.0, 1e-45), (2.0, 127.0, 2.0**127), (2.0, 128.0, INF), (-2.0, 129.0, -INF), (2.0, -151.0, 0.0)]
    x, y, want = (np.array(column, np.float32) for column in zip(*cases, strict=True))
    assert_equal(run("pow", 1, x, y), want)
    n = -(-len(x) // 16) * 16
    assert_equal(run("pow", 16, np.resize(x, n), np.resize(y, n)), np.resize(want, n))


@pytest.mark.parametrize("function", ["tanh", "erf", "sigmoid"])
def test_results_stay_within_their_limits(function: str) -> None:
    """Every float32 near each border in turn: none is beyond 1, which is reached."""
    for border in BORDERS.get(function, ()):
        bits = np.float32(border).view(np.uint32) + np.arange(-2048, 2048)
        x = bits.astype(np.uint32).view(np.float32)
        y = run(function, 16, x)
        assert y.max() <= 1.0
        assert run(function, 16, -x).min() >= (0.0 if function == "sigmoid" else -1.0)
    assert (run(function, 16, np.linspace(20, 200, 16, dtype=np.float32)) == 1.0).all()


def called(assembly: str) -> list[str]:
    """The functions that are called by their names, but for the kernel's own."""
    names = re.findall(r"\s(?:callq?|jmpq?|bl|b)\s+(\w+)", assembly)
    return [name for name in names if not name.startswith("tensorc_")]


@pytest.mark.parametrize("function", REFERENCE)
@pytest.mark.parametrize("lanes", [1, 16])
def test_no_call_in_the_loop(function: str, lanes: int) -> None:
    kernel = compiled(function, 64, lanes)
    if not {"fma", "neon"} & set(kernel.target.feature_names):
        pytest.skip("an fma is a call where the machine has none")
    assert called(kernel.view("asm")) == []


@pytest.mark.parametrize("function", ["exp", "sigmoid", "tanh", "erf"])
@pytest.mark.parametrize(("cpu", "features", "bits", "there"), [
    ("x86-64-v4", "+avx512f", 512, True), ("x86-64-v3", "+avx2,+fma", 256, False),
])  # fmt: skip
def test_powers_of_two_are_one_instruction_of_avx512(
    function: str, cpu: str, features: str, bits: int, there: bool
) -> None:
    target = Target(cpu=cpu, features=features, vector_bits=bits, triple="x86_64-unknown-linux-gnu")
    assembly = compiled(function, 64, 64, target).view("asm")
    assert (assembly.count("vscalefps") >= 4) == there
    assert called(assembly) == []


def test_calls_are_noticed() -> None:
    kernel = compiled("log", 64, 16)
    text = kernel.llvm_ir.replace("declare <16 x float> @llvm.fma.v16f32", "declare <16 x float> @outside")
    text = text.replace("@llvm.fma.v16f32", "@outside")
    assert set(called(replace(kernel, llvm_ir=text).view("asm"))) == {"outside"}


@pytest.mark.parametrize("lanes", [1, 16])
def test_large_angles_in_a_choice_in_a_reduction(lanes: int) -> None:
    """The code for large angles is a block of its own inside blocks of others."""
    text = f"""
program f(A: f32[32, 48], C: f32[32]) {{
    for i in {32 // lanes} {{
        vectorized for j in {lanes} {{
            for k in 48 {{
                block C {{
                    spatial v in 32 = i * {lanes} + j
                    reduce r in 48 = k
                    init {{ C[v] = 0.0 }}
                    C[v] = C[v] + (sin(A[v, r] * {2.0**60}) if A[v, r] > 0.5 else cos(A[v, r]))
                }}
            }}
        }}
    }}
}}
"""
    a = np.random.default_rng(5).uniform(-1, 1, (32, 48)).astype(np.float32)
    check(program(text), {"A": a})


def test_tf32_is_exact_for_every_exponent_in_any_number_of_lanes() -> None:
    """Against fractions of bits, not the reference's formula: halves, numbers beside them, and the ends of each exponent."""
    rng = np.random.default_rng(5)
    low = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x3000], np.uint32)
    high = np.concatenate([rng.integers(0, 2**19, 30), [0, 2**19 - 1]]).astype(np.uint32)[:, None]
    bits = ((high << 13) | low).ravel() & np.uint32(0x7FFFFFFF)
    bits = np.concatenate([bits, (np.arange(256, dtype=np.uint32)[:, None] << 23 | low).ravel()])
    bits = np.resize(np.concatenate([bits, bits | np.uint32(1 << 31)]), 4096)
    x = bits.view(np.float32)
    units = bits.astype(np.int64) & 0x7FFFFFFF
    kept = (units + 0x1000 >> 13 << 13).astype(np.uint32) | (bits & np.uint32(1 << 31))
    want = np.where(np.isnan(x), np.float32(np.nan), kept.view(np.float32))
    for lanes in WIDTHS:
        assert_equal(run("tf32", lanes, x), want)
    with np.errstate(over="ignore", invalid="ignore"):
        assert_equal(NUMERICS["tf32"].value(x.astype(np.float64)).astype(np.float32), want)

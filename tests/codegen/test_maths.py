"""The maths functions: within their bounds of exact values, special values exactly, the same in any number of lanes.

`python -m bench.maths_errors` searches for the largest errors; this is a sample of every exponent, and what that has found.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from bench.exact import exact
from bench.maths import FUNCTIONS, Array, compiled, ulps
from bench.maths_errors import search
from tensorc_dsl.backend.llvm.codegen.maths import CODES
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.maths import NUMERICS
from tests.codegen.native import check, program

WIDTHS = (1, 8, 64)
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
    "tan": ANGLES,
    "exp2": (127.99999, 128.0, -126.0, -149.0, -149.5, -150.0),
    "expm1": (88.72283, 88.72284, 0.34657359, -17.3, -17.4),
    "sinh": (89.41598, 89.41599),
    "cosh": (89.41598, 89.41599),
    "atan": (math.sqrt(2) - 1, math.sqrt(2) + 1),
    "asin": (0.5,),
    "acos": (0.5,),
    "erfc": (0.5, 9.19454, 10.05413, 10.05414),
    "acosh": (2.0**28,),
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
    """Of float32 or float64."""
    out = np.full_like(arguments[0], 12345.0)
    load(compiled(function, len(out), lanes, t=f"f{out.itemsize * 8}"))(*arguments, out)
    return out


def assert_equal(got: Array, want: Array) -> None:
    """Equal numbers with equal signs, and NaN where NaN is."""
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


def assert_within_bound(function: str, *arguments: Array, widths: tuple[int, ...] = WIDTHS) -> None:
    """Within what the page of the functions says; in vectors of these widths the results are the same."""
    want = exact(function, *arguments)
    results = [run(function, lanes, *arguments) for lanes in widths]
    for got in results[1:]:
        np.testing.assert_array_equal(got, results[0])
    found, double = results[0], results[0].itemsize == 8
    error = ulps(found, want, "f64" if double else "f32")
    worst = int(np.argmax(error))
    print(f"{function}: {error[worst]:.3f} ulp at {', '.join(str(a[worst]) for a in arguments)}")
    stated = CODES[function].ulps
    assert stated is not None and error[worst] <= stated[double]
    zero = found == 0
    assert not (np.signbit(found[zero]) != np.signbit(want[zero])).any()


@pytest.mark.corpus
@pytest.mark.parametrize("function", [f for f in FUNCTIONS if MATHS[f].count == 1])
def test_every_exponent_is_within_its_bound_in_any_number_of_lanes(function: str) -> None:
    assert_within_bound(function, sample(function))


DOUBLES = (
    *SPECIAL, 5e-324, 2.0**-1022, 1.7976931348623157e308, 709.782712893384, 709.7827128933841, 710.4758600739439, 1024.0,
    -745.1332191019411, -745.1332191019412, -1074.5, -1075.0, 1e22, 6381956970095103 * 2.0**797, 2.0**40, 2.0**-30,
    1 - 2.0**-53, 1 + 2.0**-52, math.pi / 2, math.pi, math.sqrt(2) - 1, math.sqrt(2) + 1, 26.6, 27.3, 37.0, 2.0**28,
)  # fmt: skip
"""Where functions of f64 overflow, vanish, or one formula hands over to another. The large number whose quarter turns are the
nearest to a whole number is among them (Muller, Elementary Functions, chapter 11)."""


def doubles() -> tuple[Array, Array]:
    """Those and their opposites, and numbers of every size, around 0 and around 1; 2048 pairs."""
    rng = np.random.default_rng(13)
    some = np.array([s * x for x in DOUBLES for s in (1, -1)])
    every = rng.integers(0, 2**64, 800, dtype=np.uint64).view(np.float64)
    near = 1 + rng.uniform(-1, 1, 500) * 2.0 ** rng.integers(-30, 1, 500)
    x = np.concatenate([some, every, near])
    x = np.concatenate([x, rng.standard_normal(2048 - len(x)) * 2.0 ** rng.integers(-20, 9, 2048 - len(x))])
    with np.errstate(all="ignore"):
        y = np.where(rng.random(2048) < 0.6, x * rng.uniform(-3, 3, 2048), rng.permutation(x))
    return x, y


@pytest.mark.corpus
@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f != "pow"])
def test_functions_of_f64_are_within_their_bounds(function: str) -> None:
    assert_within_bound(function, *doubles()[: MATHS[function].count], widths=(8,))


def test_powers_of_f64_are_within_their_bound() -> None:
    """Special values with each other, and powers of every size."""
    rng = np.random.default_rng(17)
    a, b = (g.ravel() for g in np.meshgrid(DOUBLES, [*SPECIAL, 2.5, 2.0**53 - 1, 2.0**53, 1e300, 2.0**-60]))
    n = 4096 - len(a)
    x = np.exp2(rng.uniform(-1070, 1023, n)) * rng.choice([1.0, -1.0], n, p=[0.8, 0.2])
    y = rng.uniform(-1080, 1030, n) / np.log2(np.abs(x))
    x[::4] = 1 + rng.uniform(-0.3, 0.3, len(x[::4]))
    y[::4] = rng.uniform(-1080, 1030, len(x[::4])) / np.log2(x[::4])
    assert_within_bound(
        "pow", np.concatenate([a, x]), np.concatenate([b, np.where(x < 0, np.rint(y), y)]), widths=(1, 8)
    )


@pytest.mark.parametrize("function", ["atan2", "hypot"])
def test_functions_of_two_numbers_are_within_their_bounds(function: str) -> None:
    assert_within_bound(function, *pairs())


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


def test_pow_is_within_its_bound_in_any_number_of_lanes() -> None:
    assert_within_bound("pow", *pairs())


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
    "tan": ((0.0, 0.0), (-0.0, -0.0), (INF, NAN), (NAN, NAN), (1e-45, 1e-45)),
    "exp2": ((0.0, 1.0), (10.0, 1024.0), (-149.0, 1e-45), (INF, INF), (-INF, 0.0), (NAN, NAN), (128.0, INF)),
    "expm1": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (NAN, NAN), (1e-45, 1e-45), (89.0, INF)),
    "log2": ((0.0, -INF), (-0.0, -INF), (1.0, 0.0), (8.0, 3.0), (1e-45, -149.0), (-1.0, NAN), (INF, INF), (NAN, NAN)),
    "log10": ((0.0, -INF), (1.0, 0.0), (1000.0, 3.0), (-1.0, NAN), (INF, INF), (NAN, NAN)),
    "log1p": ((0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-2.0, NAN), (INF, INF), (NAN, NAN), (-1e-45, -1e-45)),
    "sinh": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e-45, 1e-45), (-90.0, -INF)),
    "cosh": ((0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN), (90.0, INF)),
    "asinh": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e-45, 1e-45)),
    "acosh": ((1.0, 0.0), (INF, INF), (0.5, NAN), (-2.0, NAN), (-INF, NAN), (NAN, NAN)),
    "atanh": ((0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN), (-INF, NAN), (NAN, NAN)),
    "erfc": ((0.0, 1.0), (INF, 0.0), (-INF, 2.0), (NAN, NAN), (30.0, 0.0), (-30.0, 2.0)),
    "cbrt": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (-8.0, -2.0), (27.0, 3.0)),
    "asin": ((0.0, 0.0), (-0.0, -0.0), (1.5, NAN), (-INF, NAN), (NAN, NAN), (1e-45, 1e-45)),
    "acos": ((1.0, 0.0), (1.5, NAN), (-INF, NAN), (NAN, NAN)),
    "atan": ((0.0, 0.0), (-0.0, -0.0), (NAN, NAN), (1e-45, 1e-45)),
    "trunc": ((1.5, 1.0), (-1.5, -1.0), (-0.5, -0.0), (INF, INF), (NAN, NAN)),
    "sign": ((-2.5, -1.0), (1e-45, 1.0), (0.0, 0.0), (-0.0, 0.0), (-INF, -1.0), (INF, 1.0), (NAN, NAN)),
}  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("function", EXACT)
def test_special_values(function: str) -> None:
    x, want = (np.array(column, np.float32) for column in zip(*EXACT[function], strict=True))
    assert_equal(run(function, 1, x), want)
    repeated = np.resize(x, 16)
    assert_equal(run(function, 16, repeated), np.resize(want, 16))


def test_special_angles_and_distances() -> None:
    """F.9.1.4 and F.9.4.3: `math.atan2` and `math.hypot` follow the same annex."""
    some = (0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-45, -3e38)
    x, y = (np.array(g.ravel(), np.float32) for g in np.meshgrid(some, some))
    for function in ("atan2", "hypot"):
        want = np.array([getattr(math, function)(*p) for p in zip(x.tolist(), y.tolist(), strict=True)], np.float64)
        got = run(function, 1, x, y)
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(got, want.astype(np.float32), rtol=3e-7)
        zero = want == 0
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    signs = run("copysign", 1, x, y)
    assert_equal(signs, np.copysign(x, y))


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


@pytest.mark.corpus
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_call_in_the_loop(function: str) -> None:
    """But for angles of f64 from 2**40 on, which are reduced lane by lane by a function of ours."""
    kernel = compiled(function, 64, 16)
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
    target = Target(cpu="x86-64-v4", features="+avx512f", vector_bits=512, triple="x86_64-unknown-linux-gnu")
    kernel = compiled("log", 64, 16, target)
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


WORST = {
    "exp": ((-5.849122524261475,), (3.847461927425038,)),
    "exp2": ((-126.47622680664062,), (-1022.4538729120237,)),
    "expm1": ((17.133060455322266,), (37.12191501465571,)),
    "log": ((1.399021029472351,), (1.4116673522012968,)),
    "log2": ((1.4140859842300415,), (1.3986990598274096,)),
    "log10": ((0.7070636749267578,), (1.3317082420801338,)),
    "log1p": ((0.4141949713230133,), (0.4105906653640334,)),
    "tanh": ((0.6310442090034485,), (-0.12506935465744093,)),
    "sinh": ((0.12248392403125763,), (-0.4080764716073656,)),
    "cosh": ((17.149869918823242,), (37.087634424783744,)),
    "asinh": ((4.190057943791567e+18,), (0.517992270672839,)),
    "acosh": ((4.190057943791567e+18,), (1.0072210478691672,)),
    "atanh": ((0.0009227935806848109,), (0.1235492578554101,)),
    "erf": ((1.0594182014465332,), (-0.9987016279446136,)),
    "erfc": ((-1.4103805369813927e-05,), (13.66564866258868,)),
    "sigmoid": ((-1.1205679178237915,), (-1.1177041657452174,)),
    "rsqrt": ((8.559682898860616e+37,), (8.811074699867684e-134,)),
    "cbrt": ((2.540233242372351e+27,), (2.4260573879798565e+306,)),
    "hypot": ((2577321290629120.0, 1932990967971840.0), (1.025966857441885, 1.0051353813491584)),
    "sin": ((3948633.5,), (-2.3593628916381415,)),
    "cos": ((6.879170608606872e+23,), (-0.7911548883899148,)),
    "tan": ((1642.267578125,), (-0.7848961464630585,)),
    "asin": ((0.5287935137748718,), (-0.5238662956634725,)),
    "acos": ((0.4996946454048157,), (-0.5216491565227817,)),
    "atan": ((0.4340488612651825,), (0.4179699723711969,)),
    "atan2": ((197.18101501464844, 453.9427795410156), (189.6413592719933, 457.59849172904546)),
    "pow": ((0.997188925743103, 30785.30078125), (1.401151875743497, 1735.4990648131932)),
}  # fmt: skip
"""For f32 and f64 the arguments of the largest errors that `python -m bench.maths_errors --effort 8` has found."""


@pytest.mark.corpus
@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_largest_errors_that_were_found_are_within_their_bounds(function: str) -> None:
    """And near them: a bound says how good a function is."""
    stated = CODES[function].ulps
    assert stated is not None
    for arguments, bound, t in zip(WORST[function], stated, (np.float32, np.float64), strict=True):
        given = tuple(np.full(64, x, t) for x in arguments)
        error = ulps(run(function, 8, *given), exact(function, *given), f"f{8 * np.dtype(t).itemsize}").max()
        assert bound - 0.2 < error <= bound


def test_a_search_finds_what_a_sample_does_not() -> None:
    """The bounds were 1.80 and 1.75, from every 61st f32 and from two million f64."""
    assert search("sinh").error > 1.9
    assert search("atan", "f64").error > 1.8

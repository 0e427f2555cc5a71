"""The messages of the compute layer for mistakes."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file
from tests.compute.texts import build, checked, codes, errors

MM = "compute mm(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {\n    C[i, j] = sum[k] A[i, k] * B[k, j]\n}\n"


def one(lines: str) -> str:
    """A compute over A: f32[M] and I: i32[M] with the given stages."""
    return f"compute f(A: f32[M], I: i32[M]) -> C: f32[M] {{\n    {lines}\n}}\n"


def test_bindings() -> None:
    unknown, missing = errors(MM, M=1, N=2, Kk=4)
    assert unknown == "error[E0401]: `mm` has no dimension or attribute `Kk`\n  = help: did you mean `K`?"
    assert missing == (
        "error[E0402]: `K` of `mm` has no value\n"
        " --> t.tsched:1:22\n"
        "  |\n"
        "1 | compute mm(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {\n"
        "  |                      ^ bound here\n"
        "  = help: give it one: `mm(K=128)`"
    )
    assert codes(MM, M=1, N=2, K="four") == ["E0403"]
    assert codes(MM, M=1, N=2, K=True) == ["E0403"]
    assert codes(MM, M=1, N=2, K=-1) == ["E0404"]
    assert codes(MM, M=1, N=2, K=2**63) == ["E0404"]
    assert "the size of `C` in bytes" in errors(MM, M=2**40, N=2**40, K=1)[0]


def test_sizes_that_do_not_fit_together() -> None:
    text = (
        "compute f(A: f32[H]; k: int = 3, s: int = 1) -> C: f32[O] where O = (H - k) / s + 1 {\n    C[i] = A[i*s]\n}\n"
    )
    assert errors(text, H=1)[0].startswith("error[E0404]: `O` is -1: it must not be negative\n --> t.tsched:1:69\n")
    assert errors(text, H=1)[0].endswith("= help: check the sizes: H = 1, k = 3, s = 1")
    assert codes(text, H=5, s=0) == ["E0417"]
    assert codes(text, H=5, O=3) == ["E0401"]
    assert codes(text.replace("s: int", "s: dtype").replace("= 1)", "= f33)"), H=5) == ["E0403"]


def test_out_of_bounds_shows_the_values() -> None:
    (error,) = errors(one("C[i] = A[i + 1]"), M=4)
    assert error == (
        "error[E0411]: subscript 1 of `A` can be 4, but the dimension is 4\n"
        " --> t.tsched:2:14\n"
        "  |\n"
        "2 |     C[i] = A[i + 1]\n"
        "  |              ^^^^^ 4 when i = 3\n"
        "  = help: say where it is read: `… if i + 1 < 4 else …`"
    )
    assert "`… if i - 1 >= 0 else …`" in errors(one("C[i] = A[i - 1]"), M=4)[0]
    build(one("C[i] = A[i - 1] if i - 1 >= 0 else 0"), M=4)
    # The guard leaves out the right end only.
    assert "-1 when i = 0" in errors(one("C[i] = A[i - 1] if i < 3 else A[i]"), M=4)[0]
    assert "4 when i = 2" in errors(one("C[i] = A[i*2] if i % 2 == 0 else A[i]"), M=4)[0]
    assert "4 when i = 0, k = 4" in errors(one("C[i] = sum[k in 5] A[i + k]"), M=4)[0]
    assert len(errors(one("C[i] = A[i + 1] * A[i - 1]"), M=4)) == 2


def test_what_cannot_be_proven_is_refused() -> None:
    assert codes(one("C[i] = A[i * i]"), M=4) == ["E0412"]
    assert codes(one("C[i] = A[i - 1] if A[i] > 0 else 0"), M=4) == ["E0412"]
    assert codes(one("C[i] = A[I[i]]"), M=4) == ["E0412"]
    assert codes(one("C[i] = A[sum[k] I[k]]"), M=4) != []


def test_types() -> None:
    (mixed,) = errors(one("C[i] = A[i] + I[i]"), M=4)
    assert mixed.startswith("error[E0413]: `+` mixes f32 and i32\n --> t.tsched:2:12\n")
    assert mixed.endswith("= help: convert one: `A[i] + f32(I[i])`")
    assert errors(one("C[i] = A[i] * i"), M=4)[0].endswith("= help: convert one: `A[i] * f32(i)`")
    assert errors(one("C[i] = I[i]"), M=4)[0].endswith("= help: convert it: `f32(I[i])`")
    assert errors(one("C[i] = i"), M=4)[0].endswith("= help: convert it: `f32(i)`")
    assert errors(one("C[i] = sum[k in 3] k"), M=4)[0].endswith("= help: convert it: `f32(k)`")


@pytest.mark.parametrize(
    ("stage", "code"),
    [
        ("C[i] = A[i] if I[i] else 0", "E0413"),
        ("C[i] = A[i] if I[i] == 1 else I[i]", "E0413"),
        ("C[i] = (A[i] > 0) + A[i]", "E0413"),
        ("C[i] = f32(i8(300))", "E0414"),
        ("C[i] = f32(I[i] + 1.5)", "E0414"),
        ("let z[i in 3] = 0\n    C[i] = A[i]", "E0414"),
        ("C[i] = sqrt(I[i])", "E0416"),
        ("C[i] = pow(A[i])", "E0416"),
        ("C[i] = expp(A[i])", "E0416"),
        ("C[i] = bit_and(A[i], 3)", "E0416"),
        ("C[i] = f32(shift_left(I[i], 1.5))", "E0416"),
        ("C[i] = f32(xor(I[i], -2.5))", "E0416"),
        ("C[i] = xor(A[i], A[i])", "E0416"),
        ("C[i] = f32(popcount(i))", "E0416"),
        ("C[i] = f32(sign(i))", "E0416"),
        ("C[i] = shift_left(I[i], A[i])", "E0413"),
        ("C[i] = isnan(A[i])", "E0413"),
        ("C[i] = f32(isnan(I[i]))", "E0416"),
        ("C[i] = A[xor(i, 4)]", "E0411"),
        ("C[i] = A[abs(i - 5)]", "E0411"),
        ("C[i] = A[bit_and(i, 1)]", "E0418"),
        ("C[i] = f32(I[i] / 0)", "E0417"),
        ("C[i] = A[i / 0]", "E0417"),
        ("C[i] = A", "E0418"),
        ('C[i] = "x"', "E0418"),
        ("C[i] = f32(any[k] A[k])", "E0419"),
        ("C[i] = argmax[k] A[k]", "E0413"),
        ("C[i] = C[i-1] + A[i]", "E0405"),
        ("C[i] = A[i, i]", "E0409"),
        ("C[i, j] = A[i]", "E0409"),
        ("C[i] = sum[k] A[i]", "E0407"),
        ("C[i] = sum[k] A[k + 0]", "E0407"),
        ("C[i in 3] = A[i]", "E0408"),
        ("C[i] = B[i]", "E0405"),
        ("C[i] = A[q]", "E0405"),
        ("C[i] = d[i]\n    let d[i] = A[i]", "E0405"),
        ("C[i] = sum[i] A[i]", "E0406"),
        ("let A[i] = I[i]\n    C[i] = 0", "E0406"),
        ("C[M] = A[M]", "E0406"),
        ("C[i] = A[i]\n    C[j] = A[j]", "E0406"),
        ("C[i] = A[i]\n    D[i] = A[i]", "E0410"),
        ("let d[i] = A[i]", "E0410"),
    ],
)
def test_each_mistake_has_its_code(stage: str, code: str) -> None:
    assert code in codes(one(stage), M=4)
    assert any(code in e for e in checked(one(stage))) or "in 3]" in stage


@pytest.mark.parametrize(
    ("stage", "index", "extent"),
    [
        ("C[i] = sum[k in i + 1] A[k]", "k", "i + 1"),
        ("C[i] = A[i] * max[k in M - i] A[k]", "k", "M - i"),
        ("let d[i in M, j in i] = A[j]\n    C[i] = d[i, 0]", "j", "i"),
        ("C[i] = sum[k in M, l in min(k, 3)] A[l]", "l", "min(k, 3)"),
    ],
)
def test_a_range_that_another_index_decides(stage: str, index: str, extent: str) -> None:
    (error,) = errors(one(stage), M=4)
    assert checked(one(stage)) == [error]
    name = "k" if "k" in extent else "i"
    assert error.startswith(f"error[E0405]: the range of `{index}` cannot depend on the index `{name}`\n")
    assert error.split("\n")[-1] == (
        f"  = help: let `{index}` range over all, and say where it counts: "
        f"`… if {index} < {extent} else 0`, or what changes nothing"
    )
    assert build(one("C[i] = sum[k in M] (A[k] if k < i + 1 else 0)"), M=4)


def test_one_mistake_is_one_finding() -> None:
    lines = "let d[i] = A[i] + I[i]\n    let e[i] = d[i] * 2\n    C[i] = e[i]"
    assert codes(one(lines), M=4) == ["E0413"]
    two = "let d[i] = expp(A[i])\n    let e[i] = d[i] * 2\n    C[i] = A[i] + I[i]"
    assert codes(one(two), M=4) == ["E0416", "E0413"]


def test_names_are_suggested() -> None:
    assert errors(one("C[i] = expp(A[i])"), M=4)[0].split("\n")[-1] == "  = help: did you mean `exp`?"
    long = "compute f(weights: f32[M]) -> C: f32[M] { C[i] = weight[i] }"
    assert errors(long, M=4)[0].endswith("help: did you mean `weights`?")


def test_ranges_that_differ_show_both() -> None:
    text = "compute f(A: f32[M, K], B: f32[L]) -> C: f32[M] {\n    C[i] = sum[k] A[i, k] * B[k]\n}\n"
    (error,) = errors(text, M=1, K=3, L=4)
    assert error.startswith("error[E0408]: index `k` has two ranges: 3 and 4\n --> t.tsched:2:31\n")
    assert "= note: subscript 2 of `A` has 3, subscript 1 of `B` has 4\n" in error


REPAIRED = [
    ("{}", "(sum[k in 3] A[i] * f32(k)) / M", "(sum[k in 3] A[i] * f32(k)) / f32(M)"),
    ("{}", "(max[k] A[k]) + f32(I[i]) + i", "(max[k] A[k]) + f32(I[i]) + f32(i)"),
    ("{}", "(A[i] if I[i] > 0 else 1.0) * I[i]", "(A[i] if I[i] > 0 else 1.0) * f32(I[i])"),
    ("{}", "max(A[i], i)", "max(A[i], f32(i))"),
    ("{}", "pow(I[i], 2)", "pow(f32(I[i]), 2)"),
    ("{}", "pow(I[i], I[i])", "pow(f32(I[i]), f32(I[i]))"),
    ("A[i] if {} else 0", "(sum[k in 3] I[i])", "(sum[k in 3] I[i]) != 0"),
    ("A[i] if {} else 0", "(I[i] if i > 0 else 2)", "(I[i] if i > 0 else 2) != 0"),
    ("A[i] if {} else 0", "(I[i] > 0) == i", "i32(I[i] > 0) == i32(i)"),
    ("A[i] if {} else 0", "I[i] == (I[i] > 0)", "I[i] == i32(I[i] > 0)"),
]


@pytest.mark.parametrize(("value", "part", "repair"), REPAIRED)
def test_a_repair_means_what_the_file_meant(value: str, part: str, repair: str) -> None:
    """It has the parentheses of the file, without which a reduction or a choice would take in what stands behind it."""
    (found,) = errors(one(f"C[i] = {value.format(part)}"), M=4)
    assert found.splitlines()[-1].endswith(f": `{repair}`")
    build(one(f"C[i] = {value.format(repair)}"), M=4)


def test_a_stage_computes_all_of_its_elements() -> None:
    (found,) = checked(one("C[i in M - 1] = A[i]"))
    assert found == (
        "error[E0408]: `i` runs over M - 1, and dimension 1 of `C` has M\n"
        " --> t.tsched:2:7\n"
        "  |\n"
        "2 |     C[i in M - 1] = A[i]\n"
        "  |       ^^^^^^^^^^ M - 1 here\n"
        "  = help: a stage computes all of its elements: write `i in M`, and what the others are: `… if i < M - 1 else 0`"
    )
    build(one("C[i in M] = A[i] if i < M - 1 else 0"), M=4)


def test_a_type_has_a_position_less_than_it_has_numbers() -> None:
    """Its highest number stands for no position."""
    stage = "let d[i in 1, k in {}] = A[0] * f32(k)\n    let p[i] = u8(0) + (argmax[k] d[i, k])\n    C[i] = A[i] + f32(p[0])"
    (found,) = errors(one(stage.format(256)), M=4)
    assert found.startswith("error[E0419]: 256 positions do not fit u8\n")
    assert "u8 has 255: its highest number stands for none" in found
    build(one(stage.format(255)), M=4)


def test_functions_that_there_are() -> None:
    (found,) = errors(one("C[i] = zeta(A[i])"), M=4)
    assert "  = help: there are `abs`, `acos`, `acosh`, `asin`, `asinh`, `atan`" in found


@pytest.mark.parametrize(
    ("value", "repair"),
    [
        ("relu(A[i])", "write `max(x, 0.0)`"),
        ("cast(A[i])", "write `f32(x)`"),
        ("float(I[i])", "write `f32(x)`"),
        ("np.exp(A[i])", "a function stands by itself: `exp(…)`"),
        ("pi * A[i]", "write it out: `3.141592653589793`"),
    ],
)
def test_words_of_other_languages(value: str, repair: str) -> None:
    (found,) = errors(one(f"C[i] = {value}"), M=4)
    assert found.endswith(f"  = help: {repair}")


@pytest.mark.parametrize(
    ("stages", "repair"),
    [
        ("let z[i in 3] = sum[k in 4] (1 if k < i else 0)\n    C[i] = A[i]", "i32(1)"),
        ("let z[i in 3] = scan[i] init 1 step z[i - 1] + 1\n    C[i] = A[i]", "i32(1)"),
        ("let z[i in 3] = 5000000000\n    C[i] = A[i]", "i64(5000000000)"),
        ("let z[i in 3] = 0.5\n    C[i] = A[i]", "f32(0.5)"),
    ],
)
def test_a_number_without_a_type_is_given_a_likely_one(stages: str, repair: str) -> None:
    found = load_file(Source("t.tsched", f"compute f(A: f32[N]) -> C: f32[N] {{\n    {stages}\n}}\n")).diagnostics
    assert [n.text for n in found[0].notes if n.kind == "help"] == [f"write one: `{repair}`"]

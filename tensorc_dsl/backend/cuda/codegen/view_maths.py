"""The maths functions in the view in CUDA C++: CUDA's own, and texts that the view has for the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorc_dsl.ir.dtypes import DType

_FUNCTIONS = {
    **{
        f: f
        for f in (
            "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sinh", "cosh", "asinh",
            "acosh", "atanh", "erf", "erfc", "cbrt", "hypot", "floor", "ceil", "trunc", "copysign", "sin", "cos", "tan",
            "asin", "acos", "atan", "atan2", "pow",
        )
    },
    "round": "rint", "abs": "fabs",
}  # fmt: skip
"""CUDA's functions of doubles; those of floats end in `f`."""

_TESTS = ("isnan", "isinf", "isfinite")
"""CUDA's functions of both."""

_BITS = {"bit_and": "{} & {}", "bit_or": "{} | {}", "bit_not": "~{}"}

_TEMPLATE = "template <class T> __device__ inline T {}("

_WRITTEN = {
    "sign": "T a) { return a != a ? a : (T)(a > 0) - (T)(a < 0); }",
    "shift_left": "T a, T n) { return n >= 0 && n < (T)(8 * sizeof(T)) ? (T)((unsigned long long)a << n) : (T)0; }",
    "shift_right": "T a, T n) { return n >= 0 && n < (T)(8 * sizeof(T)) ? (T)(a >> n) : (T)(a < 0 ? -1 : 0); }",
    "popcount": "T a) { T n = 0; for (int k = 0; k < 8 * (int)sizeof(T); k++) n += (a >> k) & 1; return n; }",
    "clz": "T a) { T n = 0; for (int k = 8 * sizeof(T) - 1; k >= 0 && !((a >> k) & 1); k--) n++; return n; }",
    "ctz": "T a) { T n = 0; for (int k = 0; k < 8 * (int)sizeof(T) && !((a >> k) & 1); k++) n++; return n; }",
}
"""Templates: their arguments and bodies."""


def written(lines: Sequence[str]) -> Iterable[str]:
    """The templates that some lines call."""
    used = [name for name in _WRITTEN if any(f"{name}(" in line for line in lines)]
    yield from (_TEMPLATE.format(name) + _WRITTEN[name] for name in used)


def call_text(f: str, given: Sequence[str], t: DType, kind: str) -> str:
    """A call of a function with the texts of its arguments, whose type is `kind` in C; half precisions are floats."""
    wide = t.bits == 64
    if f == "abs" and not t.is_float:
        return f"most({given[0]}, ({kind})-({given[0]}))"
    if f == "tf32":
        return _tf32(given[0], wide)
    if f == "sigmoid":
        one = "1.0" if wide else "1.0f"
        return f"({one} / ({one} + exp{'' if wide else 'f'}(-({given[0]}))))"
    if f in _BITS:
        return f"({kind})({_BITS[f].format(*(f'({x})' for x in given))})"
    if f in _WRITTEN:
        # The arguments of a template are of its type; C makes an int of what is narrower.
        return f"{f}({', '.join(x if t.is_float else f'({kind})({x})' for x in given)})"
    if f in _TESTS:
        return f"{f}({given[0]})"
    return f"{_FUNCTIONS[f]}{'' if wide else 'f'}({', '.join(given)})"


def _tf32(x: str, wide: bool) -> str:
    """The rounding of the least bits of a float, as an integer; that of a double also of what is below the normal floats."""
    if not wide:
        return f"({x} == {x} ? __uint_as_float((__float_as_uint({x}) + 0x1000u) & 0xffffe000u) : {x})"
    found = f"__longlong_as_double((__double_as_longlong({x}) + (1ll << 41)) & -(1ll << 42))"
    small = f"copysign(floor(fabs({x}) * 0x1p136 + 0.5) * 0x1p-136, {x})"
    return f"({x} == {x} ? fabs({x}) < 0x1p-126 ? {small} : {found} : {x})"

"""Maths functions by the instructions that GPUs have for them, which compute in f32 and state their errors.

There are two ways. A function of f32 has an error of at most `FUNCTION_ROUNDOFFS` units of roundoff, which the tolerance
(`reference.tolerance`) allows all functions: an instruction that is as near stands alone, others have arguments that they
take exactly. A function whose result is rounded to 16 bits at once may have the error of `ir.maths.BEFORE_ROUNDING`, which
the tolerance adds there, and takes one instruction or two. So may one of f32 whose task allows this error (`approx`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorc_dsl.backend.llvm.codegen.arithmetic import Lanes
from tensorc_dsl.backend.llvm.codegen.exponentials import ERF_FAR, ERF_NEAR, TANH_NEAR
from tensorc_dsl.backend.llvm.codegen.function import Function, Module, Value, constant_value
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import F32, DType
from tensorc_dsl.ir.maths import BEFORE_ROUNDING

# The instructions, as PTX ISA 9.2, section 9.7.3, "Floating Point Instructions", has them.


@frozen
class Approximation:
    """An instruction of f32. `error` is the largest one relative to the result that PTX ISA states, for every argument of
    which it states one; `exact` the function of two floats that it approximates, by LLVM's code for f64. Where it
    `flushes`, arguments and results below the least normal number are zeros."""

    text: str
    error: float
    exact: str
    flushes: bool = True


INSTRUCTIONS: Mapping[str, Approximation] = {
    "ex2": Approximation("ex2.approx.ftz.f32", 2.0**-22, "exp2"),
    "rcp": Approximation("rcp.approx.ftz.f32", 2.0**-23, "rcp"),
    "rsqrt": Approximation("rsqrt.approx.f32", 2.0**-22.9, "rsqrt", flushes=False),
    "tanh": Approximation("tanh.approx.f32", 2.0**-11, "tanh", flushes=False),
}
"""By name. Of `lg2.approx` and `sin.approx` the errors are absolute ones: near 1, and near multiples of π, a result has no
digit that is known, so no function here may use them."""


Write = Callable[[Function, str, Value], str]
"""Writes an instruction of `INSTRUCTIONS` on a scalar. Returns the result."""


def write_instruction(f: Function, name: str, x: Value) -> str:
    """The instruction itself, as assembly that LLVM may move and leave out."""
    return f.cached(f'call float asm "{INSTRUCTIONS[name].text} $0, $1;", "=f,f"({x.typed})')


# Its errors in the emulation: as large as they may be, with signs that the bits of the arguments decide, so that a kernel
# that is right with them is right with those of any GPU.


_EXACT = {
    "exp2": "%y = call double @exp2(double %d)",
    "rcp": "%y = fdiv double 1.0, %d",
    "rsqrt": "%root = call double @llvm.sqrt.f64(double %d)\n  %y = fdiv double 1.0, %root",
    "tanh": "%y = call double @tanh(double %d)",
}

_FLUSH = """  %{0}.size = call float @llvm.fabs.f32(float %{0})
  %{0}.small = fcmp olt float %{0}.size, 0x3810000000000000
  %{0}.zero = call float @llvm.copysign.f32(float 0.0, float %{0})
  %{1} = select i1 %{0}.small, float %{0}.zero, float %{0}
"""


def emulate_instruction(f: Function, name: str, x: Value) -> str:
    """A call of a function with the instruction's values, which the module gets."""
    function = f"tensorc_{name}_approx"
    if all(f"@{function}(" not in text for text in f.module.functions):
        _define(f.module, function, INSTRUCTIONS[name])
    return f.cached(f"call float @{function}({x.typed})")


def _define(module: Module, function: str, made: Approximation) -> None:
    for name, count in (("llvm.fabs", 1), ("llvm.copysign", 2), ("llvm.sqrt", 1), ("llvm.minimum", 2)):
        for kind, suffix in (("float", "f32"), ("double", "f64")):
            module.declare(kind, f"{name}.{suffix}", (kind,) * count)
    if made.exact in ("exp2", "tanh"):
        module.declare("double", made.exact, ("double",), "nounwind willreturn memory(none)")
    error = made.error - 2.0**-24  # the rest is that of the conversion to f32
    limit = ""
    if made.exact == "tanh":
        limit = """  %most = call double @llvm.fabs.f64(double %off)
  %least = call double @llvm.minimum.f64(double %most, double 1.0)
  %bounded = call double @llvm.copysign.f64(double %least, double %off)
"""
    module.functions.append(
        f"""define internal float @{function}(float %x) nounwind {{
entry:
{_FLUSH.format("x", "a") if made.flushes else "  %a = fadd float %x, 0.0"}
  %d = fpext float %a to double
  {_EXACT[made.exact]}
  %bits = bitcast float %x to i32
  %mixed = mul i32 %bits, -1640531535
  %up = icmp slt i32 %mixed, 0
  %factor = select i1 %up, double {1 + error!r}, double {1 - error!r}
  %off = fmul double %y, %factor
{limit}  %z = fptrunc double {"%bounded" if limit else "%off"} to float
{_FLUSH.format("z", "made") if made.flushes else "  %made = fadd float %z, 0.0"}
  ret float %made
}}
"""
    )


# The functions.


@frozen
class HardwareMaths:
    """The functions of f32 of a GPU, whose instructions `write` writes."""

    write: Write

    def __call__(
        self,
        f: Function,
        function: str,
        args: tuple[Value, ...],
        rounded: DType,
        less: Value | None = None,
        scale: Value | None = None,
    ) -> Value | None:
        if args[0].dtype != F32 or function not in SINGLE:
            return None
        near = rounded.bits == 16 or BEFORE_ROUNDING.get(function, 1.0) <= f.module.approx
        x, short = Lanes(f, args[0]), near and function in ROUNDED
        if short and function == "exp":
            factor = _LOG2_E if scale is None else Lanes(f, scale) * _LOG2_E
            return self.power(x, None if less is None else Lanes(f, less), factor).value
        x = x if less is None else x - Lanes(f, less)
        x = x if scale is None else x * Lanes(f, scale)
        return (ROUNDED if short else SINGLE)[function](self, x).value

    def power(self, x: Lanes, less: Lanes | None, factor: Lanes | float) -> Lanes:
        """2**((x - less) * factor), with the product of what is subtracted apart, so that it is made once for all x of a row.
        Its rounding is an error of |less * factor| units of roundoff. A row without terms has the least number in place
        of its maximum, whose product is no infinity, so that exponentials of -inf are 0."""
        if less is None:
            return self.made("ex2", x * factor)
        away = less * factor
        away = Lanes(x.f, x.f.intrinsic("maximum", F32, (away.value, x.constant(-_LARGEST).value)))
        return self.made("ex2", x.times_plus(factor, -away))

    def made(self, name: str, x: Lanes) -> Lanes:
        """The result of an instruction, of each lane."""
        f, v = x.f, x.value
        if not v.lanes:
            return Lanes(f, Value(F32, self.write(f, name, v)))
        return Lanes(f, f.gather_lanes([Value(F32, self.write(f, name, f.lane(v, k))) for k in range(v.lanes)]))


_LARGEST = 3.4028234663852886e38
_LOG2_E = 1.44269502162933349609375

_LN2, _LN2_LOW = 0.693147182464599609375, -1.904654290582768e-09
"""log 2 as the sum of two floats."""

_LAST_POWER = 128 - 2.0**-17
"""The largest argument of a power of two that is a float."""


def _exp(m: HardwareMaths, x: Lanes) -> Lanes:
    """2**t times 1 + x - t log 2, for t next to the product of x and log2 e: 4 units of roundoff of the instruction, and 1 of
    the product of both.

    A power that would be infinite is that of the last t, and the factor is above 1 then. One that is 0 has no factor below 0,
    nor NaN as at -inf."""
    f, lanes = x.f, x.value.lanes
    t = x * _LOG2_E
    t = Lanes(f, f.intrinsic("minimum", F32, (t.value, constant_value(F32, _LAST_POWER, lanes))))  # which keeps NaN
    lacks = t.times_plus(-_LN2_LOW, t.times_plus(-_LN2, x))
    lacks = Lanes(f, f.intrinsic("maxnum", F32, (lacks.value, constant_value(F32, -1.0, lanes))))
    power = m.made("ex2", t)
    return power.times_plus(lacks, power)


def _exp2(m: HardwareMaths, x: Lanes) -> Lanes:
    return m.made("ex2", x)


def _rsqrt(m: HardwareMaths, x: Lanes) -> Lanes:
    return m.made("rsqrt", x)


def _sigmoid(m: HardwareMaths, x: Lanes) -> Lanes:
    """As on CPUs, with z = exp(-|x|) and w = z / (1 + z): 1 - w, or z - z w."""
    z = _exp(m, -x.size())
    w = z * m.made("rcp", z + 1.0)
    most = (x >= 0.0).choose(x.constant(1.0), z)
    return (-most).times_plus(w, most)


_TANH_BORDER, _TANH_ONE = 0.625, 10.0


def _tanh(m: HardwareMaths, x: Lanes) -> Lanes:
    """A polynomial near 0, else 1 - 2 / (exp(2|x|) + 1), in which an error of the exponential counts a quarter at most."""
    a = x.size()
    square = a * a
    near = square.polynomial(TANH_NEAR).times_plus(square * a, a)
    e = m.made("ex2", a * (2 * _LOG2_E))
    far = m.made("rcp", e + 1.0).times_plus(-2.0, 1.0)
    return (a >= _TANH_BORDER).choose(far, near).signed_as(x)


_ERF_BORDER, _ERF_ONE = 1.0, 4.0


def _erf(m: HardwareMaths, x: Lanes) -> Lanes:
    """As on CPUs, a polynomial near 0, else 1 - 2**polynomial; which of the two it is decides the coefficients of one."""
    a = x.size()
    far = a >= _ERF_BORDER
    t = far.choose((a < _ERF_ONE).choose(a, a.constant(_ERF_ONE)), a * a)
    p = far.choose(a.constant(ERF_FAR[0] * _LOG2_E), a.constant(ERF_NEAR[F32][0]))
    for one, other in zip(ERF_FAR[1:], ERF_NEAR[F32][1:], strict=True):
        p = p.times_plus(t, far.choose(a.constant(one * _LOG2_E), a.constant(other)))
    return far.choose(x.constant(1.0) - m.made("ex2", p), p.times_plus(a, a)).signed_as(x)


SINGLE: Mapping[str, Callable[[HardwareMaths, Lanes], Lanes]] = {
    "exp": _exp,
    "exp2": _exp2,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _erf,
}
"""Functions of f32."""


def _sigmoid_rounded(m: HardwareMaths, x: Lanes) -> Lanes:
    """1 / (1 + 2**-t)."""
    return m.made("rcp", m.made("ex2", x * -_LOG2_E) + 1.0)


def _tanh_rounded(m: HardwareMaths, x: Lanes) -> Lanes:
    return m.made("tanh", x)


ROUNDED: Mapping[str, Callable[[HardwareMaths, Lanes], Lanes]] = {
    "exp": lambda m, x: m.power(x, None, _LOG2_E),
    "exp2": _exp2,
    "sigmoid": _sigmoid_rounded,
    "tanh": _tanh_rounded,
}
"""Functions whose results are rounded to 16 bits, or may be as near: those of `ir.maths.BEFORE_ROUNDING`."""

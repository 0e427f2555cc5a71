"""Operators of PyTorch on single elements: activations, arithmetic, comparisons and conversions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorc_dsl.graph.aten.traced import Call, Name, Torch, Translator, Value


def _unary(op: str, **attributes: Any) -> Translator:
    """An operator of one operand, which is converted first if the result is a float: the root of an integer."""

    def translate(c: Call) -> Value:
        name = "self" if "self" in c.given else "input"
        x = c.typed(name) if c.result.dtype.is_floating_point else c[name]
        return c.emit(op, x, **attributes)

    return translate


def _rounded(op: str) -> Translator:
    """Integers are what they are rounded to."""
    rounded = _unary(op)
    return lambda c: rounded(c) if c.result.dtype.is_floating_point else _same(c)


def _to_digits(c: Call) -> Value:
    """Rounded to digits behind the point, or to powers of ten where `decimals` is below 0."""
    decimals, dtype = int(c.get("decimals", 0)), c.result.dtype
    if not decimals or not dtype.is_floating_point:
        c.refuse_unless(decimals >= 0, "integers that are rounded to powers of ten")
        return _rounded("Round")(c)
    number = c.number(10.0 ** abs(decimals), dtype)
    up, down = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return c.emit(down, c.emit("Round", c.emit(up, c["self"], number)), number)


def _same(c: Call) -> Value:
    return c.get("self", c.get("input"))


def _dropped(c: Call) -> Value:
    c.refuse_unless(not c["train"] or not c["p"], "training")
    return _same(c)


def binary(op: str) -> Translator:
    """An operator of two operands, which are brought to one type."""

    def translate(c: Call) -> Value:
        dtype, (a, b) = c.same_type("self", "other")
        if c.get("alpha", 1) != 1:
            b = c.emit("Mul", b, c.number(c["alpha"], dtype))
        return c.emit(op, a, b)

    return translate


def _subtracted_from(c: Call) -> Value:
    dtype, (a, b) = c.same_type("self", "other")
    if c.get("alpha", 1) != 1:
        a = c.emit("Mul", a, c.number(c["alpha"], dtype))
    return c.emit("Sub", b, a)


def _divided(c: Call) -> Value:
    return _quotient(c, c.get("rounding_mode"))


def _quotient(c: Call, mode: str | None) -> Value:
    dtype, (a, b) = c.same_type("self", "other")
    if mode is None and not dtype.is_floating_point:
        dtype = c.result.dtype
        a, b = c.cast(a, dtype), c.cast(b, dtype)
    if mode == "floor" and not dtype.is_floating_point:
        return c.emit("Div", c.emit("Sub", a, c.emit("Mod", a, b)), b)
    made = c.emit("Div", a, b)
    if mode == "trunc" and dtype.is_floating_point:
        return _toward_zero(c, made)
    return c.emit("Floor", made) if mode == "floor" else made


def _toward_zero(c: Call, x: Value) -> Value:
    return c.emit("Mul", c.emit("Sign", x), c.emit("Floor", c.emit("Abs", x)))


def _remainder(c: Call) -> Value:
    """That of a quotient rounded down."""
    dtype, (a, b) = c.same_type("self", "other")
    if not dtype.is_floating_point:
        return c.emit("Mod", a, b)
    rest = c.emit("Mod", a, b, fmod=1)  # has the sign of a
    zero = c.number(0, dtype)
    wrong = c.emit("And", c.emit("Not", c.emit("Equal", rest, zero)),
                   c.emit("Xor", c.emit("Less", rest, zero), c.emit("Less", b, zero)))  # fmt: skip
    return c.emit("Where", wrong, c.emit("Add", rest, b), rest)


def _fmod(c: Call) -> Value:
    _, (a, b) = c.same_type("self", "other")
    return c.emit("Mod", a, b, fmod=1)


def _scaled_log(factor: float) -> Translator:
    return lambda c: c.emit("Mul", c.emit("Log", c.typed("self")), c.number(factor, c.result.dtype))


def _log_beside_one(c: Call) -> Value:
    """log(1 + x), with the digits of an x that 1 + x loses (Kahan, in the HP-15C Advanced Functions Handbook, 1982)."""
    x, one = c.typed("self"), c.number(1, c.result.dtype)
    u = c.emit("Add", x, one)
    made = c.emit("Mul", c.emit("Log", u), c.emit("Div", x, c.emit("Sub", u, one)))
    return c.emit("Where", c.emit("Or", c.emit("Equal", u, one), c.emit("IsInf", u)), x, made)


def _exponential_beside_one(c: Call) -> Value:
    """exp(x) - 1, with the digits that the difference loses near 0, as above."""
    x, one = c.typed("self"), c.number(1, c.result.dtype)
    u = c.emit("Exp", x)
    less = c.emit("Sub", u, one)
    near = c.emit("Where", c.emit("Equal", u, one), x, c.emit("Mul", less, c.emit("Div", x, c.emit("Log", u))))
    return c.emit("Where", c.emit("Less", c.emit("Abs", x), one), near, less)


def _with_product(op: str) -> Translator:
    """self + value * (tensor1 op tensor2)."""

    def translate(c: Call) -> Value:
        joined = c.emit(op, c.typed("tensor1"), c.typed("tensor2"))
        if c.get("value", 1) != 1:
            joined = c.emit("Mul", joined, c.number(c["value"], c.result.dtype))
        return c.emit("Add", c.typed("self"), joined)

    return translate


def _between(c: Call) -> Value:
    span = c.emit("Sub", c["end"], c["self"])
    return c.emit("Add", c["self"], c.emit("Mul", span, c.cast(c["weight"], c.result.dtype)))


def _is_finite(c: Call) -> Value:
    x = c["self"]
    if not c.metas["self"].meta["val"].dtype.is_floating_point:
        return c.emit("Equal", x, x)
    return c.emit("Not", c.emit("Or", c.emit("IsInf", x), c.emit("IsNaN", x)))


def _is_close(c: Call) -> Value:
    dtype, (a, b) = c.same_type("self", "other")
    c.refuse_unless(dtype.is_floating_point and not c["equal_nan"], "of integers, or with NaN that are equal")
    allowed = c.emit("Mul", c.emit("Abs", b), c.number(c["rtol"], dtype))
    near = c.emit("LessOrEqual", c.emit("Abs", c.emit("Sub", a, b)), c.emit("Add", allowed, c.number(c["atol"], dtype)))
    near = c.emit("And", near, c.emit("Not", c.emit("Or", c.emit("IsInf", a), c.emit("IsInf", b))))
    return c.emit("Or", c.emit("Equal", a, b), near)


def _has_sign(c: Call, x: Value, dtype: Torch) -> Name:
    """Whether a number is below 0, or -0."""
    zero = c.number(0, dtype)
    below = c.emit("Less", x, zero)
    return c.emit("Or", below, c.emit("Less", c.emit("Reciprocal", x), zero)) if dtype.is_floating_point else below


def _sign_bit(c: Call) -> Value:
    return _has_sign(c, c["self"], c.metas["self"].meta["val"].dtype)


def _with_sign(c: Call) -> Value:
    """The size of one number with the sign of another."""
    dtype, (a, b) = c.same_type("self", "other")
    c.refuse_unless(dtype.is_floating_point, "signs of integers")
    size = c.emit("Abs", a)
    return c.emit("Where", _has_sign(c, b, dtype), c.emit("Neg", size), size)


def _beside_nan(op: str) -> Translator:
    """The larger or the smaller of two numbers, of which one may be NaN."""

    def translate(c: Call) -> Value:
        dtype, (a, b) = c.same_type("self", "other")
        made = c.emit(op, a, b)
        if not dtype.is_floating_point:
            return made
        return c.emit("Where", c.emit("IsNaN", a), b, c.emit("Where", c.emit("IsNaN", b), a, made))

    return translate


def _hypotenuse(c: Call) -> Value:
    """Scaled by the longer side, so that no square overflows."""
    dtype, operands = c.same_type("self", "other")
    a, b = (c.emit("Abs", x) for x in operands)
    longer, zero = c.emit("Max", a, b), c.number(0, dtype)
    ratio = c.emit("Div", c.emit("Min", a, b), longer)
    made = c.emit("Mul", longer, c.emit("Sqrt", c.emit("Add", c.emit("Mul", ratio, ratio), c.number(1, dtype))))
    alone = c.emit("Or", c.emit("Equal", longer, zero), c.emit("IsInf", longer))
    return c.emit("Where", alone, longer, made)


def _shifted(right: bool) -> Translator:
    """Integers by a constant number of bits."""

    def translate(c: Call) -> Value:
        bits = c["other"] if isinstance(c["other"], int) else c.array(c["other"]).reshape(-1)
        factor = np.left_shift(np.int64(1), bits).reshape(-1)
        c.refuse_unless(factor.size == 1, "several numbers of bits")
        x, number = c.typed("self"), c.number(int(factor[0]), c.result.dtype)
        if not right:
            return c.emit("Mul", x, number)
        return c.emit("Div", c.emit("Sub", x, c.emit("Mod", x, number)), number)

    return translate


def _randomly_leaky(c: Call) -> Value:
    c.refuse_unless(not c.get("training", False), "training")
    return c.emit("LeakyRelu", c["self"], alpha=(float(c["lower"]) + float(c["upper"])) / 2)


def _above(c: Call) -> Value:
    """What is above a threshold; else a value."""
    x, dtype = c["self"], c.result.dtype
    return c.emit("Where", c.emit("Greater", x, c.number(c["threshold"], dtype)), x, c.number(c["value"], dtype))


def _angle(c: Call) -> Value:
    dtype, (y, x) = c.same_type("self", "other")
    c.refuse_unless(dtype.is_floating_point, "angles of integers")
    return angle(c, y, x, dtype)


def angle(c: Call, y: Name, x: Name, dtype: Torch) -> Name:
    """The angle of the point (x, y)."""
    zero = c.number(0, dtype)
    half, whole = c.number(np.pi / 2, dtype), c.number(np.pi, dtype)
    signed = c.emit("Where", c.emit("Less", y, zero), c.emit("Neg", half), half)
    turned = c.emit("Where", c.emit("Less", y, zero), c.emit("Neg", whole), whole)
    inner = c.emit("Atan", c.emit("Div", y, x))
    left = c.emit("Where", c.emit("Less", x, zero), c.emit("Add", inner, turned), inner)
    upright = c.emit("Where", c.emit("Equal", y, zero), zero, signed)
    return c.emit("Where", c.emit("Equal", x, zero), upright, left)


def _numbers_for_nan(c: Call) -> Value:
    """Other numbers in the place of NaN and infinities."""
    x, dtype = c["self"], c.result.dtype
    if not dtype.is_floating_point:
        return x
    most = float(c.graph.torch.finfo(dtype).max)
    for condition, value in (
        (c.emit("IsNaN", x), c.get("nan", 0.0)),
        (c.emit("IsInf", x, detect_negative=0), c.get("posinf", most)),
        (c.emit("IsInf", x, detect_positive=0), c.get("neginf", -most)),
    ):
        x = c.emit("Where", condition, c.number(value, dtype), x)
    return x


def _power(c: Call) -> Value:
    base, exponent = c["self"], c["exponent"]
    dtype = c.result.dtype
    if not isinstance(base, Name):
        return c.emit("Pow", c.number(base, dtype), c.cast(exponent, dtype))
    return c.emit("Pow", c.cast(base, dtype), exponent if isinstance(exponent, Name) else c.number(exponent, dtype))


def _compared(op: str) -> Translator:
    def translate(c: Call) -> Value:
        _, (a, b) = c.same_type("self", "other")
        return c.emit("Not", c.emit("Equal", a, b)) if op == "NotEqual" else c.emit(op, a, b)

    return translate


def _logical(op: str) -> Translator:
    def translate(c: Call) -> Value:
        boolean = c.graph.torch.bool
        return c.emit(op, *(c.cast(c[n], boolean) for n in ("self", "other")))

    return translate


def _bitwise(op: str) -> Translator:
    def translate(c: Call) -> Value:
        dtype, operands = c.same_type("self", "other")
        return c.emit(op if dtype == c.graph.torch.bool else f"Bitwise{op}", *operands)

    return translate


def _bits_turned(c: Call) -> Value:
    return c.emit("Not" if c.result.dtype == c.graph.torch.bool else "BitwiseNot", c["self"])


def _clamped(low: str, high: str) -> Translator:
    def translate(c: Call) -> Value:
        dtype = c.result.dtype
        bounds = [None if c.get(n) is None else c.cast(c[n], dtype) for n in (low, high)]
        if not any(isinstance(c.get(n), Name) for n in (low, high)):
            return c.emit("Clip", c.typed("self"), *bounds)
        x = c.typed("self")
        for op, bound in zip(("Max", "Min"), bounds, strict=True):
            x = x if bound is None else c.emit(op, x, bound)
        return x

    return translate


def _relu6(c: Call) -> Value:
    return c.emit("Clip", c["self"], c.number(0, c.result.dtype), c.number(6, c.result.dtype))


def _elu(c: Call) -> Value:
    c.refuse_unless((c.get("scale", 1), c.get("input_scale", 1)) == (1, 1), "a scale")
    return c.emit("Elu", c["self"], alpha=float(c.get("alpha", 1.0)))


def _softplus(c: Call) -> Value:
    beta = c.get("beta", 1)
    if beta == 1:
        return c.emit("Softplus", c["self"])
    factor = c.number(beta, c.result.dtype)
    return c.emit("Div", c.emit("Softplus", c.emit("Mul", c["self"], factor)), factor)


def _prelu(c: Call) -> Value:
    weight, shape = c["weight"], c.shape("weight")
    if shape != (1,) and c.rank("self") > 1:
        weight = c.reshaped(weight, (*shape, *(1,) * (c.rank("self") - 2)))
    return c.emit("PRelu", c["self"], weight)


def _rsqrt(c: Call) -> Value:
    return c.emit("Reciprocal", c.emit("Sqrt", c.typed("self")))


def _glu(c: Call) -> Value:
    axis = c.axis()
    a, b = c.graph.emit("Split", [c["self"]], 2, axis=axis)
    return c.emit("Mul", a, c.emit("Sigmoid", b))


def _where(c: Call) -> Value:
    condition = c["condition"]
    return c.emit("Where", condition, c.typed("self"), c.typed("other"))


def _masked_fill(c: Call) -> Value:
    return c.emit("Where", c["mask"], c.typed("value"), c["self"])


def _converted(c: Call) -> Value:
    return c.typed("self" if "self" in c.given else "input")


def _copied(c: Call) -> Value:
    """What is written into a tensor, in its shape."""
    return c.emit("Expand", c.typed("src"), c.ints(*c.result_shape))


def _full_like(value: float | None) -> Translator:
    def translate(c: Call) -> Value:
        content = c.get("fill_value", c.get("value")) if value is None else value
        if isinstance(content, Name):
            return c.emit("Expand", c.cast(content, c.result.dtype), c.ints(*c.result_shape))
        return c.graph.constant(np.full(c.result_shape, content, c.graph.array_dtype(c.result.dtype)))

    return translate


TABLE: Mapping[str, Translator] = {
    **dict.fromkeys(
        "contiguous clone detach alias lift_fresh_copy positive real resolve_conj resolve_neg".split(), _same
    ),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), _dropped),
    **{
        name: _unary(op)
        for name, op in {
            "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "silu": "Swish", "hardswish": "HardSwish", "mish": "Mish",
            "selu": "Selu", "erf": "Erf", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "reciprocal": "Reciprocal",
            "abs": "Abs", "neg": "Neg", "_neg_view": "Neg", "sin": "Sin", "cos": "Cos", "tan": "Tan",
            "sign": "Sign", "sgn": "Sign", "isnan": "IsNaN", "isinf": "IsInf", "softsign": "Softsign",
            "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
            "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh",
        }.items()
    },
    **{name: _rounded(op) for name, op in {"floor": "Floor", "ceil": "Ceil"}.items()},
    "round": _to_digits,
    "logical_not": lambda c: c.emit("Not", c.cast(c["self"], c.graph.torch.bool)),
    "hardsigmoid": _unary("HardSigmoid", alpha=1 / 6, beta=0.5),
    "gelu": lambda c: c.emit("Gelu", c["self"], approximate=c.get("approximate", "none")),
    "leaky_relu": lambda c: c.emit("LeakyRelu", c["self"], alpha=float(c["negative_slope"])),
    "celu": lambda c: c.emit("Celu", c["self"], alpha=float(c["alpha"])),
    "relu6": _relu6,
    "hardtanh": _clamped("min_val", "max_val"),
    "clamp": _clamped("min", "max"),
    "clamp_min": _clamped("min", ""),
    "clamp_max": _clamped("", "max"),
    "elu": _elu,
    "softplus": _softplus,
    "prelu": _prelu,
    "rsqrt": _rsqrt,
    "log1p": _log_beside_one,
    "expm1": _exponential_beside_one,
    "erfc": lambda c: c.emit("Sub", c.number(1, c.result.dtype), c.emit("Erf", c.typed("self"))),
    "exp2": lambda c: c.emit("Exp", c.emit("Mul", c.typed("self"), c.number(np.log(2), c.result.dtype))),
    "log2": _scaled_log(1 / np.log(2)),
    "log10": _scaled_log(1 / np.log(10)),
    "log_sigmoid": lambda c: c.emit("Neg", c.emit("Softplus", c.emit("Neg", c["self"]))),
    "softshrink": lambda c: c.emit("Shrink", c["self"], lambd=float(c["lambd"]), bias=float(c["lambd"])),
    "hardshrink": lambda c: c.emit("Shrink", c["self"], lambd=float(c["lambd"]), bias=0.0),
    "threshold": _above,
    **dict.fromkeys(
        ("trunc", "fix"),
        lambda c: _toward_zero(c, c["self"]) if c.result.dtype.is_floating_point else c["self"],
    ),
    "signbit": _sign_bit,
    "copysign": _with_sign,
    "fmax": _beside_nan("Max"),
    "fmin": _beside_nan("Min"),
    "hypot": _hypotenuse,
    **dict.fromkeys(("__lshift__", "bitwise_left_shift"), _shifted(False)),
    **dict.fromkeys(("__rshift__", "bitwise_right_shift"), _shifted(True)),
    "rrelu": _randomly_leaky,
    "frac": lambda c: c.emit("Sub", c["self"], _toward_zero(c, c["self"])),
    "isfinite": _is_finite,
    "isclose": _is_close,
    "atan2": _angle,
    "nan_to_num": _numbers_for_nan,
    "square": lambda c: c.emit("Mul", c["self"], c["self"]),
    "glu": _glu,
    "add": binary("Add"),
    "sub": binary("Sub"),
    "mul": binary("Mul"),
    "remainder": _remainder,
    "fmod": _fmod,
    "floor_divide": lambda c: _quotient(c, "floor"),
    "addcmul": _with_product("Mul"),
    "addcdiv": _with_product("Div"),
    "lerp": _between,
    "rsub": _subtracted_from,
    "div": _divided,
    "pow": _power,
    "maximum": binary("Max"),
    "minimum": binary("Min"),
    **{
        name: _compared(op)
        for name, op in {
            "eq": "Equal", "ne": "NotEqual", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
        }.items()
    },
    "logical_and": _logical("And"),
    "logical_or": _logical("Or"),
    "logical_xor": _logical("Xor"),
    **dict.fromkeys(("bitwise_and", "__and__"), _bitwise("And")),
    **dict.fromkeys(("bitwise_or", "__or__"), _bitwise("Or")),
    **dict.fromkeys(("bitwise_xor", "__xor__"), _bitwise("Xor")),
    "bitwise_not": _bits_turned,
    "where": _where,
    "masked_fill": _masked_fill,
    **dict.fromkeys(("to", "type_as", "_to_copy"), _converted),
    "copy": _copied,
    **dict.fromkeys(("zeros_like", "new_zeros"), _full_like(0.0)),
    **dict.fromkeys(("ones_like", "new_ones"), _full_like(1.0)),
    **dict.fromkeys(("full_like", "new_full", "fill"), _full_like(None)),
    "zero": _full_like(0.0),
}  # fmt: skip
"""How operators of PyTorch are translated, by their names without overloads."""

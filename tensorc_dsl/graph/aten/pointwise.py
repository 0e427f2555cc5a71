"""Operators of PyTorch on single elements: activations, arithmetic, comparisons and conversions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorc_dsl.graph.aten.traced import Call, Name, Translator, Value
from tensorc_dsl.graph.graph import Unsupported


def _unary(op: str, **attributes: Any) -> Translator:
    return lambda c: c.emit(op, c.get("self", c.get("input")), **attributes)


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
    mode = c.get("rounding_mode")
    dtype, (a, b) = c.same_type("self", "other")
    if mode is None and not dtype.is_floating_point:
        dtype = c.result.dtype
        a, b = c.cast(a, dtype), c.cast(b, dtype)
    if mode == "floor" and not dtype.is_floating_point:
        raise Unsupported("a quotient of integers that is rounded down")
    c.refuse_unless(mode != "trunc" or not dtype.is_floating_point, "a quotient that is rounded to 0")
    made = c.emit("Div", a, b)
    return c.emit("Floor", made) if mode == "floor" else made


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
        return c.emit("Clip", c.typed("self"), *bounds)

    return translate


def _relu6(c: Call) -> Value:
    return c.emit("Clip", c["self"], c.number(0, c.result.dtype), c.number(6, c.result.dtype))


def _elu(c: Call) -> Value:
    c.refuse_unless((c.get("scale", 1), c.get("input_scale", 1)) == (1, 1), "a scale")
    return c.emit("Elu", c["self"], alpha=float(c.get("alpha", 1.0)))


def _softplus(c: Call) -> Value:
    c.refuse_unless(c.get("beta", 1) == 1, f"`beta` is {c.get('beta')}")
    return c.emit("Softplus", c["self"])


def _prelu(c: Call) -> Value:
    weight, shape = c["weight"], c.shape("weight")
    if shape != (1,) and c.rank("self") > 1:
        weight = c.reshaped(weight, (*shape, *(1,) * (c.rank("self") - 2)))
    return c.emit("PRelu", c["self"], weight)


def _rsqrt(c: Call) -> Value:
    return c.emit("Reciprocal", c.emit("Sqrt", c["self"]))


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


def _full_like(value: float | None) -> Translator:
    def translate(c: Call) -> Value:
        content = c["fill_value"] if value is None else value
        dtype = str(c.result.dtype).removeprefix("torch.")
        c.graph.dtype(c.result.dtype)
        c.refuse_unless(not isinstance(content, Name), "a value that is computed")
        return c.graph.constant(np.full(c.result_shape, content, np.dtype(dtype)))

    return translate


TABLE: Mapping[str, Translator] = {
    **dict.fromkeys(
        ("contiguous", "clone", "detach", "alias", "lift_fresh_copy"), _same
    ),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), _dropped),
    **{
        name: _unary(op)
        for name, op in {
            "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "silu": "Swish", "hardswish": "HardSwish", "mish": "Mish",
            "selu": "Selu", "erf": "Erf", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "reciprocal": "Reciprocal",
            "abs": "Abs", "neg": "Neg", "sin": "Sin", "cos": "Cos", "tan": "Tan", "floor": "Floor", "ceil": "Ceil",
            "round": "Round", "sign": "Sign", "isnan": "IsNaN", "isinf": "IsInf", "softsign": "Softsign",
            "logical_not": "Not",
        }.items()
    },
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
    "square": lambda c: c.emit("Mul", c["self"], c["self"]),
    "glu": _glu,
    "add": binary("Add"),
    "sub": binary("Sub"),
    "mul": binary("Mul"),
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
    **dict.fromkeys(("zeros_like", "new_zeros"), _full_like(0.0)),
    **dict.fromkeys(("ones_like", "new_ones"), _full_like(1.0)),
    **dict.fromkeys(("full_like", "new_full"), _full_like(None)),
}  # fmt: skip
"""How operators of PyTorch are translated, by their names without overloads."""

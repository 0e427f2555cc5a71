"""Operators that make each element of the elements at its place: unary ones, and those that broadcast their operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import sqrt

import numpy as np

from tensorc_dsl.graph.graph import DTYPES, Tensor, Unsupported, literal
from tensorc_dsl.graph.operators.lowering import (
    Known,
    Lowered,
    Operand,
    Site,
    Viewed,
    Writer,
    broadcast,
    indices,
    place,
    ranged,
    stretched,
)

Formula = Callable[[Site, str], str]
"""The value of an element, from the text of the operand's; a name or a literal, so that it may stand several times."""

_SIGNED = ("i8", "i16", "i32", "i64")


def pointwise(site: Site, stem: str, operands: Sequence[Operand], dtype: str, value: str) -> Lowered:
    """A result with the broadcast shape of the operands. Its elements are `value`, with `{0}` for that of the first.

    A constant of one element is a literal.
    """
    shape = broadcast(o.shape for o in operands)
    names = indices(len(shape))
    letters = iter("ABCDEFGHIJKLMNOPQRSTUVW" if len(operands) > 1 else "X")
    texts: list[str] = []
    known: dict[str, str] = {}
    for o in operands:
        scalar = o.scalar if not (len(operands) == 1 or all(p.scalar is not None for p in operands)) else None
        if scalar is None and o.name not in known:
            known[o.name] = site.parameter(next(letters, f"V{len(known)}"), o)
        texts.append(scalar if scalar is not None else place(known[o.name], stretched(o.shape, names)))
    read = [o.shape for o in operands if o.name in known]
    ranges = [
        n if _is_read(read, k - len(shape), size) else f"{n} in {size}"
        for k, (n, size) in enumerate(zip(names, shape, strict=True))
    ]
    site.stage(f"{place('Y', ranges)} = {value.format(*texts)}")
    return site.computed(stem, ("Y", Tensor(dtype, shape)))


def _is_read(shapes: Sequence[tuple[int, ...]], axis: int, size: int) -> bool:
    """Whether one of the operands is read by the index of an axis, counted from the end: the range follows from it."""
    return size != 1 and any(len(s) >= -axis and s[axis] == size for s in shapes)


# --- one operand -------------------------------------------------------------------------------------------------------


def _unary(stem: str, formula: Formula, floats: bool, site: Site) -> Lowered:
    x = site.given(0)
    if floats and not x.type.is_float:
        raise Unsupported(f"elements of type {x.dtype}")
    return pointwise(site, stem, [x], x.dtype, formula(site, "{0}"))


def _number(site: Site, name: str, default: float) -> str:
    """A float attribute, as f32 has it."""
    return literal(np.float32(site.attribute(name, default)), "f32")


def _function(name: str) -> Formula:
    return lambda _, x: f"{name}({x})"


def _relu(site: Site, x: str) -> str:
    return f"max({x}, {literal(0, site.given(0).dtype)})"


def _clip(site: Site) -> Lowered:
    x, low, high = site.given(0), site.optional(1), site.optional(2)
    if low is None and high is None:
        return Viewed(x.name, x.type)
    value = "{0}" if low is None else "max({0}, {1})"
    if high is not None:
        value = f"min({value}, {{{1 if low is None else 2}}})"
    return pointwise(site, "clip", [x, *(b for b in (low, high) if b is not None)], x.dtype, value)


def _hard_sigmoid(site: Site, x: str) -> str:
    return f"max(0.0, min(1.0, {x} * {_number(site, 'alpha', 0.2)} + {_number(site, 'beta', 0.5)}))"


def _gelu(site: Site, x: str) -> str:
    if site.attribute("approximate", "none") == "tanh":
        return f"0.5 * {x} * (1.0 + tanh({sqrt(2 / np.pi)!r} * ({x} + 0.044715 * {x} * {x} * {x})))"
    return f"0.5 * {x} * (1.0 + erf({x} * {sqrt(0.5)!r}))"


def _selu(site: Site, x: str) -> str:
    alpha, gamma = _number(site, "alpha", 1.67326319217681884765625), _number(site, "gamma", 1.05070102214813232421875)
    return f"{gamma} * ({x} if {x} > 0.0 else {alpha} * expm1({x}))"


def _celu(site: Site, x: str) -> str:
    alpha = _number(site, "alpha", 1.0)
    return f"max(0.0, {x}) + min(0.0, {alpha} * expm1({x} / {alpha}))"


def _shrink(site: Site, x: str) -> str:
    lambd, bias = _number(site, "lambd", 0.5), _number(site, "bias", 0.0)
    return f"{x} + {bias} if {x} < -{lambd} else {x} - {bias} if {x} > {lambd} else 0.0"


_FLOATS: Mapping[str, tuple[str, Formula]] = {
    **{
        op: (name, _function(name))
        for op, name in {
            "Sigmoid": "sigmoid", "Tanh": "tanh", "Erf": "erf", "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Floor": "floor",
            "Ceil": "ceil", "Round": "round", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos",
            "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh",
        }.items()
    },
    "LeakyRelu": ("leaky_relu", lambda s, x: f"{x} if {x} >= 0.0 else {x} * {_number(s, 'alpha', 0.01)}"),
    "Elu": ("elu", lambda s, x: f"{x} if {x} >= 0.0 else {_number(s, 'alpha', 1.0)} * expm1({x})"),
    "ThresholdedRelu": ("thresholded_relu", lambda s, x: f"{x} if {x} > {_number(s, 'alpha', 1.0)} else 0.0"),
    "Selu": ("selu", _selu),
    "Celu": ("celu", _celu),
    "Shrink": ("shrink", _shrink),
    "HardSigmoid": ("hard_sigmoid", _hard_sigmoid),
    "HardSwish": ("hard_swish", lambda _, x: f"{x} * max(0.0, min(1.0, {x} * {1 / 6!r} + 0.5))"),
    "Swish": ("swish", lambda s, x: f"{x} * sigmoid({x} * {_number(s, 'alpha', 1.0)})"),
    "Mish": ("mish", lambda _, x: f"{x} * tanh(max({x}, 0.0) + log1p(exp(-abs({x}))))"),
    "Gelu": ("gelu", _gelu),
    "Softplus": ("softplus", lambda _, x: f"max({x}, 0.0) + log1p(exp(-abs({x})))"),
    "Softsign": ("softsign", lambda _, x: f"{x} / (1.0 + abs({x}))"),
    "Reciprocal": ("reciprocal", lambda _, x: f"1.0 / {x}"),
}  # fmt: skip

_NUMBERS: Mapping[str, tuple[str, Formula]] = {
    "Relu": ("relu", _relu),
    "Neg": ("negate", lambda _, x: f"-{x}"),
    "Abs": ("abs", _function("abs")),
    "Sign": ("sign", _function("sign")),
    "Not": ("not", lambda _, x: f"not {x}"),
    "BitwiseNot": ("bit_not", _function("bit_not")),
}


def _is_nan(site: Site) -> Lowered:
    return pointwise(site, "isnan", [site.given(0)], "bool", "isnan({0})")


def _is_inf(site: Site) -> Lowered:
    x = site.given(0)
    above, below = site.attribute("detect_positive", 1), site.attribute("detect_negative", 1)

    if above and below:
        value = "isinf({0})"
    else:
        value = "{0} == inf" if above else "{0} == -inf" if below else "{0} != {0} and {0} == {0}"
    return pointwise(site, "isinf", [x], "bool", value)


def _cast(site: Site) -> Lowered:
    from onnx import helper

    x = site.given(0)
    if site.node.op == "CastLike":
        to = site.given(1).dtype
    else:
        try:
            to = DTYPES[helper.tensor_dtype_to_np_dtype(site.attribute("to", 0)).name]
        except (KeyError, ValueError):
            raise Unsupported("a cast to a type that is not supported") from None
    if to == x.dtype:
        return Viewed(x.name, x.type)
    zero = literal(0, x.dtype)
    return pointwise(site, f"cast_{to}", [x], to, f"{{0}} != {zero}" if to == "bool" else f"{to}({{0}})")


# --- several operands --------------------------------------------------------------------------------------------------


def _common(site: Site) -> list[Operand]:
    """All operands, which have one type."""
    found = [site.given(n) for n in range(len(site.operands))]
    if not found or len({o.dtype for o in found}) != 1:
        raise Unsupported(f"operands of types {', '.join(o.dtype for o in found) or 'that are missing'}")
    return found


def _binary(stem: str, value: str, site: Site) -> Lowered:
    a, b = _common(site)
    return pointwise(site, stem, [a, b], a.dtype, value)


def _compared(stem: str, sign: str, site: Site) -> Lowered:
    a, b = _common(site)
    if a.dtype == "bool":  # the language compares numbers
        return pointwise(site, stem, [a, b], "bool", "({0} and {1}) or not ({0} or {1})")
    return pointwise(site, stem, [a, b], "bool", f"{{0}} {sign} {{1}}")


def _divided(site: Site) -> Lowered:
    a, b = _common(site)
    # ONNX truncates the quotients of integers, and `/` floors.
    value = "sign({0}) * sign({1}) * (abs({0}) / abs({1}))" if a.dtype in _SIGNED else "{0} / {1}"
    return pointwise(site, "divide", [a, b], a.dtype, value)


def _remainder(site: Site) -> Lowered:
    a, b = _common(site)
    value = "{0} % {1}"
    if site.attribute("fmod", 0) and a.type.is_float:
        value = "copysign(abs({0}) % abs({1}), {0})"
    elif site.attribute("fmod", 0) and a.dtype in _SIGNED:
        value = "sign({0}) * (abs({0}) % abs({1}))"
    return pointwise(site, "remainder", [a, b], a.dtype, value)


_POWERS = {1.0: "{0}", 2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}"}
_ROOTS = {0.5: "sqrt({0})", -1.0: "1.0 / {0}", -0.5: "rsqrt({0})"}


def _power(site: Site) -> Lowered:
    a, b = site.given(0), site.given(1)
    known = _POWERS | _ROOTS if a.type.is_float else _POWERS
    if b.value is not None and b.value.size == 1 and broadcast([a.shape, b.shape]) == a.shape:
        exact = float(b.value.reshape(()).item())
        if exact in known:
            return pointwise(site, "power", [a], a.dtype, known[exact])
    if a.type.is_float:
        value = "pow({0}, {1})" if b.dtype == a.dtype else f"pow({{0}}, {a.dtype}({{1}}))"
    else:
        value = f"{a.dtype}(round(pow(f64({{0}}), f64({{1}}))))"
    return pointwise(site, "power", [a, b], a.dtype, value)


def _variadic(stem: str, join: str, site: Site) -> Lowered:
    operands = _common(site)
    if len(operands) == 1:
        return Viewed(operands[0].name, operands[0].type)
    value = "{0}"
    for n in range(1, len(operands)):
        value = join.format(value, f"{{{n}}}")
    if stem == "mean":
        value = f"({value}) / {len(operands)}.0"
    return pointwise(site, stem, operands, operands[0].dtype, value)


def _where(site: Site) -> Lowered:
    c, x, y = (site.given(n) for n in range(3))
    return pointwise(site, "where", [c, x, y], x.dtype, "{1} if {0} else {2}")


def _prelu(site: Site) -> Lowered:
    x, slope = _common(site)
    return pointwise(site, "prelu", [x, slope], x.dtype, f"{{0}} if {{0}} >= {literal(0, x.dtype)} else {{0}} * {{1}}")


def _shift(site: Site) -> Lowered:
    a, b = _common(site)
    name = "shift_left" if site.attribute("direction") == "LEFT" else "shift_right"
    return pointwise(site, name, [a, b], a.dtype, f"{name}({{0}}, {{1}})")


def _xor(site: Site) -> Lowered:
    return pointwise(site, "xor", _common(site), "bool", "({0} or {1}) and not ({0} and {1})")


# --- quantized values --------------------------------------------------------------------------------------------------


def along(o: Operand, axis: int, rank: int) -> Operand:
    """A vector as an operand that is broadcast along all axes but one; a single value as it is."""
    if o.type.rank != 1 or o.type.size == 1:
        return o
    shape = tuple(o.type.size if k == axis else 1 for k in range(axis, rank))
    value = None if o.value is None else o.value.reshape(shape)
    return Operand(o.name, Tensor(o.dtype, shape), value)


RANGES = {"u8": (0, 255), "i8": (-128, 127), "u16": (0, 65535), "i16": (-32768, 32767)}


def write_places(
    site: Site, names: Sequence[str], x: Operand, others: Mapping[str, Operand], axis: int
) -> dict[str, str]:
    """Parameters for `x` and vectors along one of its axes; their elements at the place of an element of `x`."""
    out = {"x": place(site.parameter("X", x), names)}
    for name, o in others.items():
        if o.scalar is not None:
            out[name] = o.scalar
        elif o.type.rank == 0:
            out[name] = site.parameter(name, o)
        elif o.type.rank == 1:
            out[name] = place(site.parameter(name, o), ["0" if o.type.size == 1 else names[axis]])
        else:
            raise Unsupported("blocks of values with a scale each")
    return out


def _dequantized(site: Site) -> Lowered:
    x, scale, zero = site.given(0), site.given(1), site.optional(2)
    rank = x.type.rank
    axis = site.attribute("axis", 1) % max(rank, 1)
    others = {"S": scale} | ({} if zero is None else {"Z": zero})
    names = indices(rank)
    at = write_places(site, names, x, others, axis)
    wide = "i32" if x.dtype != "i32" else "i64"
    value = f"{wide}({at['x']})" if zero is None else f"{wide}({at['x']}) - {wide}({at['Z']})"
    site.stage(f"{place('Y', ranged(names, x.shape))} = {scale.dtype}({value}) * {at['S']}")
    return site.computed("dequantize", ("Y", Tensor(scale.dtype, x.shape)))


def _quantized(site: Site) -> Lowered:
    x, scale, zero = site.given(0), site.given(1), site.optional(2)
    to = "u8" if zero is None else zero.dtype
    if to not in RANGES or not x.type.is_float:
        raise Unsupported(f"to elements of type {to}")
    axis = site.attribute("axis", 1) % max(x.type.rank, 1)
    names = indices(x.type.rank)
    at = write_places(site, names, x, {"S": scale} | ({} if zero is None else {"Z": zero}), axis)
    shift = "" if zero is None else f" + {x.dtype}({at['Z']})"
    site.stage(f"{place('Y', ranged(names, x.shape))} = saturate({to}, round({at['x']} / {at['S']}){shift})")
    return site.computed("quantize", ("Y", Tensor(to, x.shape)))


def _dynamically_quantized(site: Site) -> Lowered:
    x = site.given(0)
    names = indices(x.type.rank)
    at = place(site.parameter("X", x), names)
    inner = f"[{', '.join(names)}]" if names else ""
    for word, stage in (("max", "high"), ("min", "low")):
        site.stage(
            f"let {stage} = {word}({word}{inner} {at}, 0.0)" if not inner else f"let {stage} = {word}{inner} {at}"
        )
    site.stage("S = (max(high, 0.0) - min(low, 0.0)) / 255.0")
    site.stage("Z = saturate(u8, round(-min(low, 0.0) / S))")
    site.stage(f"{place('Y', ranged(names, x.shape))} = saturate(u8, round({at} / S) + f32(Z))")
    return site.computed("quantize", ("Y", Tensor("u8", x.shape)), ("S", Tensor("f32", ())), ("Z", Tensor("u8", ())))


def _identity(site: Site) -> Lowered:
    x = site.given(0)
    if site.node.op == "Dropout":
        training = site.constant(2, "training_mode")
        if site.wants(1) or (training is not None and training.any()):
            raise Unsupported("training")
    return Viewed(x.name, x.type)


def _filled(site: Site) -> Lowered:
    shape = site.ints(0, "the shape")
    value = site.attribute("value", np.zeros(1, np.float32))
    assert shape is not None
    return Known((np.broadcast_to(value.reshape(()), tuple(shape)),))


TABLE: Mapping[str, Writer] = {
    **{op: partial(_unary, stem, formula, True) for op, (stem, formula) in _FLOATS.items()},
    **{op: partial(_unary, stem, formula, False) for op, (stem, formula) in _NUMBERS.items()},
    **{
        op: partial(_binary, stem, value)
        for op, stem, value in (
            ("Add", "add", "{0} + {1}"),
            ("Sub", "subtract", "{0} - {1}"),
            ("Mul", "multiply", "{0} * {1}"),
            ("And", "and", "{0} and {1}"),
            ("Or", "or", "{0} or {1}"),
            ("BitwiseAnd", "bit_and", "bit_and({0}, {1})"),
            ("BitwiseOr", "bit_or", "bit_or({0}, {1})"),
            ("BitwiseXor", "bit_xor", "xor({0}, {1})"),
        )
    },
    **{
        op: partial(_compared, stem, sign)
        for op, stem, sign in (
            ("Equal", "equal", "=="),
            ("Greater", "greater", ">"),
            ("GreaterOrEqual", "at_least", ">="),
            ("Less", "less", "<"),
            ("LessOrEqual", "at_most", "<="),
        )
    },
    **{
        op: partial(_variadic, stem, join)
        for op, stem, join in (
            ("Min", "min", "min({0}, {1})"),
            ("Max", "max", "max({0}, {1})"),
            ("Sum", "add", "{0} + {1}"),
            ("Mean", "mean", "{0} + {1}"),
        )
    },
    "Clip": _clip,
    "Div": _divided,
    "Mod": _remainder,
    "Pow": _power,
    "Where": _where,
    "PRelu": _prelu,
    "BitShift": _shift,
    "Xor": _xor,
    "IsNaN": _is_nan,
    "IsInf": _is_inf,
    "Cast": _cast,
    "CastLike": _cast,
    "DequantizeLinear": _dequantized,
    "QuantizeLinear": _quantized,
    "DynamicQuantizeLinear": _dynamically_quantized,
    "Identity": _identity,
    "Dropout": _identity,
    "ConstantOfShape": _filled,
}

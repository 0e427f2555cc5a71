"""Operators that make each element of the elements at its place: unary ones, and those that broadcast their operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial, reduce
from math import sqrt

import numpy as np

from tensorc_dsl.base.frozen import frozen
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
    offset,
    place,
    ranged,
    stretched,
)

SIGNED = ("i8", "i16", "i32", "i64")
"""Integers with a sign."""


def pointwise(site: Site, stem: str, operands: Sequence[Operand], dtype: str, value: str, **others: str) -> Lowered:
    """A result with the broadcast shape of the operands. Its elements are `value`, with `{0}` for that of the first.

    Each stands there as a name or a literal, so that it may stand several times; a constant of one element is a literal.
    `others` are what stands for other words in braces.
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
    site.stage(f"{place('Y', ranges)} = {value.format(*texts, **others)}")
    return site.computed(stem, ("Y", Tensor(dtype, shape)))


def _is_read(shapes: Sequence[tuple[int, ...]], axis: int, size: int) -> bool:
    """Whether one of the operands is read by the index of an axis, counted from the end: the range follows from it."""
    return size != 1 and any(len(s) >= -axis and s[axis] == size for s in shapes)


# --- one formula -------------------------------------------------------------------------------------------------------


@frozen
class _Formula:
    """The element of a result: `{0}` and `{1}` are those of the operands, `{zero}` is 0 of their type."""

    stem: str
    value: str
    attributes: Mapping[str, float] = field(default_factory=dict[str, float])
    """Attributes that are numbers, which stand in the formula by name, with their defaults."""
    floats: bool = False
    """Whether it is of floats only."""
    result: str = ""
    """The type of the result, if it is not that of the operands."""
    many: bool = False
    """Whether it joins any number of operands, two after two."""


def _common(site: Site) -> list[Operand]:
    """All operands, which have one type."""
    found = [site.given(n) for n in range(len(site.operands))]
    if not found or len({o.dtype for o in found}) != 1:
        raise Unsupported(f"operands of types {', '.join(o.dtype for o in found) or 'that are missing'}")
    return found


def _elements(formula: _Formula, site: Site) -> Lowered:
    operands = _common(site)
    dtype = operands[0].dtype
    if formula.floats and not operands[0].type.is_float:
        raise Unsupported(f"elements of type {dtype}")
    value = formula.value
    if formula.many:
        if len(operands) == 1:
            return Viewed(operands[0].name, operands[0].type)
        value = reduce(formula.value.format, (f"{{{n}}}" for n in range(len(operands))))
    elif len(operands) != 1 + ("{1}" in value):
        raise Unsupported(f"{len(operands)} operands")
    numbers = {name: _number(site, name, default) for name, default in formula.attributes.items()}
    zero = literal(0, dtype)
    return pointwise(site, formula.stem, operands, formula.result or dtype, value, zero=zero, **numbers)


def _number(site: Site, name: str, default: float) -> str:
    """A float attribute, as f32 has it."""
    return literal(np.float32(site.attribute(name, default)), "f32")


_FUNCTIONS = (
    "Sigmoid", "Tanh", "Erf", "Sqrt", "Exp", "Log", "Floor", "Ceil", "Round", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan",
    "Sinh", "Cosh", "Asinh", "Acosh", "Atanh",
)  # fmt: skip
"""Functions of floats that the language has by the same name."""

_FORMULAS: Mapping[str, _Formula] = {
    **{op: _Formula(op.lower(), f"{op.lower()}({{0}})", floats=True) for op in _FUNCTIONS},
    "LeakyRelu": _Formula("leaky_relu", "{0} if {0} >= 0.0 else {0} * {alpha}", {"alpha": 0.01}, floats=True),
    "Elu": _Formula("elu", "{0} if {0} >= 0.0 else {alpha} * expm1({0})", {"alpha": 1.0}, floats=True),
    "ThresholdedRelu": _Formula("thresholded_relu", "{0} if {0} > {alpha} else 0.0", {"alpha": 1.0}, floats=True),
    "Selu": _Formula(
        "selu",
        "{gamma} * ({0} if {0} > 0.0 else {alpha} * expm1({0}))",
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
        floats=True,
    ),
    "Celu": _Formula("celu", "max(0.0, {0}) + min(0.0, {alpha} * expm1({0} / {alpha}))", {"alpha": 1.0}, floats=True),
    "Shrink": _Formula(
        "shrink",
        "{0} + {bias} if {0} < -{lambd} else {0} - {bias} if {0} > {lambd} else 0.0",
        {"lambd": 0.5, "bias": 0.0},
        floats=True,
    ),
    "HardSigmoid": _Formula(
        "hard_sigmoid", "max(0.0, min(1.0, {0} * {alpha} + {beta}))", {"alpha": 0.2, "beta": 0.5}, floats=True
    ),
    "HardSwish": _Formula("hard_swish", f"{{0}} * max(0.0, min(1.0, {{0}} * {1 / 6!r} + 0.5))", floats=True),
    "Swish": _Formula("swish", "{0} * sigmoid({0} * {alpha})", {"alpha": 1.0}, floats=True),
    "SwiGLU": _Formula("swiglu", "{0} * sigmoid({0} * {alpha}) * {1}", {"alpha": 1.0}, floats=True),
    "Mish": _Formula("mish", "{0} * tanh(max({0}, 0.0) + log1p(exp(-abs({0}))))", floats=True),
    "Softplus": _Formula("softplus", "max({0}, 0.0) + log1p(exp(-abs({0})))", floats=True),
    "Softsign": _Formula("softsign", "{0} / (1.0 + abs({0}))", floats=True),
    "Reciprocal": _Formula("reciprocal", "1.0 / {0}", floats=True),
    "Relu": _Formula("relu", "max({0}, {zero})"),
    "Neg": _Formula("negate", "-{0}"),
    "Abs": _Formula("abs", "abs({0})"),
    "Sign": _Formula("sign", "sign({0})"),
    "Not": _Formula("not", "not {0}"),
    "BitwiseNot": _Formula("bit_not", "bit_not({0})"),
    "IsNaN": _Formula("isnan", "isnan({0})", result="bool"),
    "Add": _Formula("add", "{0} + {1}"),
    "Sub": _Formula("subtract", "{0} - {1}"),
    "Mul": _Formula("multiply", "{0} * {1}"),
    "PRelu": _Formula("prelu", "{0} if {0} >= {zero} else {0} * {1}"),
    "And": _Formula("and", "{0} and {1}"),
    "Or": _Formula("or", "{0} or {1}"),
    "Xor": _Formula("xor", "({0} or {1}) and not ({0} and {1})"),
    "BitwiseAnd": _Formula("bit_and", "bit_and({0}, {1})"),
    "BitwiseOr": _Formula("bit_or", "bit_or({0}, {1})"),
    "BitwiseXor": _Formula("bit_xor", "xor({0}, {1})"),
    "Greater": _Formula("greater", "{0} > {1}", result="bool"),
    "GreaterOrEqual": _Formula("at_least", "{0} >= {1}", result="bool"),
    "Less": _Formula("less", "{0} < {1}", result="bool"),
    "LessOrEqual": _Formula("at_most", "{0} <= {1}", result="bool"),
    "Min": _Formula("min", "min({0}, {1})", many=True),
    "Max": _Formula("max", "max({0}, {1})", many=True),
    "Sum": _Formula("add", "{0} + {1}", many=True),
}


# --- formulas that depend on more --------------------------------------------------------------------------------------


def _gelu(site: Site) -> Lowered:
    value = f"0.5 * {{0}} * (1.0 + erf({{0}} * {sqrt(0.5)!r}))"
    if site.word("approximate", "none", "tanh") == "tanh":
        value = f"0.5 * {{0}} * (1.0 + tanh({sqrt(2 / np.pi)!r} * ({{0}} + 0.044715 * {{0}} * {{0}} * {{0}})))"
    return _elements(_Formula("gelu", value, floats=True), site)


def _clip(site: Site) -> Lowered:
    x, low, high = site.given(0), site.optional(1), site.optional(2)
    if low is None and high is None:
        return Viewed(x.name, x.type)
    value = "{0}" if low is None else "max({0}, {1})"
    if high is not None:
        value = f"min({value}, {{{1 if low is None else 2}}})"
    return pointwise(site, "clip", [x, *(b for b in (low, high) if b is not None)], x.dtype, value)


def _is_inf(site: Site) -> Lowered:
    x = site.given(0)
    above, below = site.attribute("detect_positive", 1), site.attribute("detect_negative", 1)

    if above and below:
        value = "isinf({0})"
    else:
        value = "{0} == inf" if above else "{0} == -inf" if below else "{0} != {0} and {0} == {0}"
    return pointwise(site, "isinf", [x], "bool", value)


def _type_of(number: int) -> str:
    """The element type that ONNX gives a number. Raises Unsupported."""
    from onnx import helper

    try:
        return DTYPES[helper.tensor_dtype_to_np_dtype(number).name]
    except (KeyError, ValueError):
        raise Unsupported("a cast to a type that is not supported") from None


def _cast(site: Site) -> Lowered:
    x = site.given(0)
    to = site.given(1).dtype if site.node.op == "CastLike" else _type_of(site.attribute("to", 0))
    if to == x.dtype:
        return Viewed(x.name, x.type)
    zero = literal(0, x.dtype)
    return pointwise(site, f"cast_{to}", [x], to, f"{{0}} != {zero}" if to == "bool" else f"{to}({{0}})")


def _equal(site: Site) -> Lowered:
    # The language compares numbers.
    value = "({0} and {1}) or not ({0} or {1})" if site.given(0).dtype == "bool" else "{0} == {1}"
    return _elements(_Formula("equal", value, result="bool"), site)


def _divided(site: Site) -> Lowered:
    a, b = _common(site)
    # ONNX truncates the quotients of integers, and `/` floors.
    value = "sign({0}) * sign({1}) * (abs({0}) / abs({1}))" if a.dtype in SIGNED else "{0} / {1}"
    return pointwise(site, "divide", [a, b], a.dtype, value)


def _remainder(site: Site) -> Lowered:
    a, b = _common(site)
    value = "{0} % {1}"
    if site.attribute("fmod", 0) and a.type.is_float:
        value = "copysign(abs({0}) % abs({1}), {0})"
    elif site.attribute("fmod", 0) and a.dtype in SIGNED:
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
        if b.type.is_float:  # less its fraction, but for one of rounding
            power = "pow(f64({0}), f64({1}))"
            value = f"{a.dtype}(round({power}) if abs({power} - round({power})) < 1e-9 * abs({power}) else {power})"
    return pointwise(site, "power", [a, b], a.dtype, value)


def _mean(site: Site) -> Lowered:
    terms = " + ".join(f"{{{n}}}" for n in range(len(site.operands)))
    return pointwise(site, "mean", _common(site), site.given(0).dtype, f"({terms}) / {len(site.operands)}.0")


def _where(site: Site) -> Lowered:
    c, x, y = (site.given(n) for n in range(3))
    return pointwise(site, "where", [c, x, y], x.dtype, "{1} if {0} else {2}")


def _shift(site: Site) -> Lowered:
    a, b = _common(site)
    name = "shift_left" if site.word("direction", "RIGHT", "LEFT") == "LEFT" else "shift_right"
    return pointwise(site, name, [a, b], a.dtype, f"{name}({{0}}, {{1}})")


# --- quantized values --------------------------------------------------------------------------------------------------


RANGES = {"u8": (0, 255), "i8": (-128, 127), "u16": (0, 65535), "i16": (-32768, 32767)}


def _write_places(
    site: Site, names: Sequence[str], x: Operand, others: Mapping[str, Operand], axis: int
) -> dict[str, str]:
    """Parameters for `x`, and for what is one value, a vector along one of its axes, or one value for each block along it;
    their elements at the place of an element of `x`."""
    out = {"x": place(site.parameter("X", x), names)}
    block = site.attribute("block_size", 0)
    for name, o in others.items():
        if o.scalar is not None:
            out[name] = o.scalar
        elif o.type.rank == 0:
            out[name] = site.parameter(name, o)
        elif o.type.rank == 1 and not block:
            if o.type.size not in (1, x.shape[axis] if x.type.rank else 1):
                raise Unsupported(f"{o.type} for the axis {axis} of {x.type}")
            out[name] = place(site.parameter(name, o), ["0" if o.type.size == 1 else names[axis]])
        elif block > 0 and o.shape == tuple(-(-n // block) if k == axis else n for k, n in enumerate(x.shape)):
            at = [f"{n} / {block}" if k == axis and block > 1 else n for k, n in enumerate(names)]
            out[name] = place(site.parameter(name, o), at)
        else:
            raise Unsupported(f"{o.type} for blocks of {block} elements of {x.type}")
    return out


def _quantized_axis(site: Site, x: Operand) -> int:
    """The axis of vectors of scales; one that `x` lacks is none of a single scale."""
    axis = site.attribute("axis", 1)
    return axis % max(x.type.rank, 1)


def _dequantized(site: Site) -> Lowered:
    x, scale, zero = site.given(0), site.given(1), site.optional(2)
    others = {"S": scale} | ({} if zero is None else {"Z": zero})
    names = indices(x.type.rank)
    at = _write_places(site, names, x, others, _quantized_axis(site, x))
    to = _type_of(site.attribute("output_dtype")) if site.attribute("output_dtype") else scale.dtype
    wide = "i32" if x.dtype != "i32" else "i64"
    value = f"{wide}({at['x']})" if zero is None else f"{wide}({at['x']}) - {wide}({at['Z']})"
    value = f"{scale.dtype}({value}) * {at['S']}"
    site.stage(f"{place('Y', ranged(names, x.shape))} = {value if to == scale.dtype else f'{to}({value})'}")
    return site.computed("dequantize", ("Y", Tensor(to, x.shape)))


def _quantized(site: Site) -> Lowered:
    x, scale, zero = site.given(0), site.given(1), site.optional(2)
    asked = _type_of(site.attribute("output_dtype")) if site.attribute("output_dtype") else "u8"
    to = asked if zero is None else zero.dtype
    if to not in RANGES or not x.type.is_float:
        raise Unsupported(f"to elements of type {to}")
    names = indices(x.type.rank)
    others = {"S": scale} | ({} if zero is None else {"Z": zero})
    at = _write_places(site, names, x, others, _quantized_axis(site, x))
    divided = at["S"] if scale.dtype == x.dtype else f"{x.dtype}({at['S']})"
    shift = "" if zero is None else f" + {x.dtype}({at['Z']})"
    site.stage(f"{place('Y', ranged(names, x.shape))} = saturate({to}, round({at['x']} / {divided}){shift})")
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
    return Viewed(x.name, x.type)


def _dropout(site: Site) -> Lowered:
    training, ratio = site.constant(2, "training_mode"), site.constant(1, "ratio")
    if training is not None and training.any() and (ratio is None or ratio.any()):
        raise Unsupported("training")
    if not site.wants(1):
        return _identity(site)
    x = site.given(0)
    names = indices(x.type.rank)
    site.stage(f"{place('Y', ranged(names, x.shape))} = {place(site.parameter('X', x), names)}")
    site.stage(f"{place('M', ranged(names, x.shape))} = true")
    return site.computed("dropout", ("Y", x.type), ("M", Tensor("bool", x.shape)))


def _filled(site: Site) -> Lowered:
    shape = site.ints(0, "the shape")
    value = site.attribute("value", np.zeros(1, np.float32))
    assert shape is not None
    return Known((np.broadcast_to(value.reshape(()), tuple(shape)),))


def _eye(site: Site) -> Lowered:
    x, shift = site.given(0), site.attribute("k", 0)
    if x.type.rank != 2:
        raise Unsupported(f"a diagonal of {x.type}")
    dtype = _type_of(site.attribute("dtype")) if site.attribute("dtype") else x.dtype
    value = f"{offset('i', shift)} == j"
    site.stage(f"{place('Y', ranged('ij', x.shape))} = {value if dtype == 'bool' else f'{dtype}({value})'}")
    return site.computed("eye", ("Y", Tensor(dtype, x.shape)))


CONVERSIONS: Mapping[str, Writer] = {
    "Cast": _cast,
    "CastLike": _cast,
    "Identity": _identity,
    "Dropout": _dropout,
    "ConstantOfShape": _filled,
    "EyeLike": _eye,
    "Where": _where,
}

TABLE: Mapping[str, Writer] = {
    **CONVERSIONS,
    **{op: partial(_elements, formula) for op, formula in _FORMULAS.items()},
    "Gelu": _gelu,
    "Clip": _clip,
    "Equal": _equal,
    "Div": _divided,
    "Mod": _remainder,
    "Pow": _power,
    "Mean": _mean,
    "BitShift": _shift,
    "IsInf": _is_inf,
    "DequantizeLinear": _dequantized,
    "QuantizeLinear": _quantized,
    "DynamicQuantizeLinear": _dynamically_quantized,
}

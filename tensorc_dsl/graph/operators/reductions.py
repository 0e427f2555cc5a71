"""Operators that reduce over axes: sums and their like, positions of extremes, softmax, and normalizations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.graph import Tensor, Unsupported, literal
from tensorc_dsl.graph.operators.elementwise import SIGNED
from tensorc_dsl.graph.operators.lowering import (
    Lowered,
    Operand,
    Site,
    Viewed,
    Writer,
    axes_of,
    axis_of,
    broadcast,
    indices,
    place,
    ranged,
    scaled,
    stretched,
)
from tensorc_dsl.graph.operators.windows import norm


def _axes(site: Site, rank: int) -> list[int] | None:
    """The axes that a reduction names, as an attribute or as an input; None for none."""
    named = site.attribute("axes")
    if named is None:
        named = site.ints(1, "axes")
    return None if not named else axes_of(named, rank)


_REDUCTIONS: Mapping[str, tuple[str, str]] = {
    "ReduceSum": ("sum", "{sum}{x}"),
    "ReduceMean": ("mean", "({sum}{x}) / {count}"),
    "ReduceMax": ("max", "{max}{x}"),
    "ReduceMin": ("min", "{min}{x}"),
    "ReduceProd": ("prod", "{prod}{x}"),
    "ReduceL1": ("l1", "{sum}abs({x})"),
    "ReduceL2": ("l2", "sqrt({sum}{x} * {x})"),
    "ReduceLogSum": ("log_sum", "log({sum}{x})"),
    "ReduceSumSquare": ("sum_square", "{sum}{x} * {x}"),
}
"""For each operator its name, and the result by an element `x` and the reductions over the axes."""


def _reduced(stem: str, formula: str, site: Site) -> Lowered:
    x = site.given(0)
    rank = x.type.rank
    axes = _axes(site, rank)
    if axes is None:
        is_whole = not site.attribute("noop_with_empty_axes", 0)
        if not is_whole and stem in ("sum", "mean", "max", "min", "prod", "log_sum_exp"):
            return Viewed(x.name, x.type)
        # Without axes, what is done before and after the sum is done to each element.
        axes = list(range(rank)) if is_whole else []
    kept = site.attribute("keepdims", 1) == 1
    names = indices(rank)
    site.parameter("X", x)
    ones = iter(f"o{n}" for n in range(rank))
    results = [next(ones) if k in axes else n for k, n in enumerate(names) if kept or k not in axes]
    shape = tuple(1 if k in axes else size for k, size in enumerate(x.shape) if kept or k not in axes)
    if stem == "log_sum_exp":
        if not x.type.is_float:
            raise Unsupported(f"elements of type {x.dtype}")
        if not axes:
            return Viewed(x.name, x.type)
        return _log_sum_exp(site, x, axes, names, results, shape)
    inner = ", ".join(f"{names[k]} in {x.shape[k]}" for k in axes)
    words = {"sum": "sum", "prod": "prod", "max": "max", "min": "min"}
    if x.dtype == "bool":
        words |= {"max": "any", "min": "all"}
    over = {name: f"{word}[{inner}] " if inner else "" for name, word in words.items()}
    count = literal(prod(x.shape[a] for a in axes), x.dtype)
    if not x.type.is_float and formula.startswith(("sqrt", "log")):
        raise Unsupported(f"elements of type {x.dtype}")
    value = formula.format(x=place("X", names), count=count, **over)
    if stem == "mean" and x.dtype in SIGNED and inner:
        # ONNX truncates the quotients of integers, and `/` floors.
        rest = [n for k, n in enumerate(names) if k not in axes]
        total = place("total", rest)
        left = place("total", ranged(rest, [s for k, s in enumerate(x.shape) if k not in axes]))
        site.stage(f"let {left} = {over['sum']}{place('X', names)}")
        value = f"sign({total}) * (abs({total}) / {count})"
    site.stage(f"{place('Y', ranged(results, shape))} = {value}")
    return site.computed(f"reduce_{stem}", ("Y", Tensor(x.dtype, shape)))


def _log_sum_exp(
    site: Site, x: Operand, axes: Sequence[int], names: list[str], results: list[str], shape: tuple[int, ...]
) -> Lowered:
    rest = [n for k, n in enumerate(names) if k not in axes]
    inner = ", ".join(n for k, n in enumerate(names) if k in axes)
    greatest = place("top", rest)
    site.stage(f"let {greatest} = max[{inner}] {place('X', names)}")
    shift = f"({greatest} if isfinite({greatest}) else 0.0)"
    value = f"log(sum[{inner}] exp({place('X', names)} - {shift})) + {shift}"
    site.stage(f"{place('Y', ranged(results, shape))} = {value}")
    return site.computed("reduce_log_sum_exp", ("Y", Tensor(x.dtype, shape)))


def _position(word: str, site: Site) -> Lowered:
    x = site.given(0)
    axis = axis_of(site.attribute("axis", 0), x.type.rank)
    names = indices(x.type.rank)
    kept, last = site.attribute("keepdims", 1) == 1, site.attribute("select_last_index", 0)
    site.parameter("X", x)
    size = x.shape[axis]
    at = names.copy()
    if last:
        at[axis] = f"{size - 1} - {names[axis]}"
    results = [n if k != axis else "o" for k, n in enumerate(names) if kept or k != axis]
    shape = tuple(s if k != axis else 1 for k, s in enumerate(x.shape) if kept or k != axis)
    value = f"{word}[{names[axis]} in {size}] {place('X', at)}"
    if last:
        rest = [n for k, n in enumerate(names) if k != axis]
        site.stage(f"let {place('at', ranged(rest, [s for k, s in enumerate(x.shape) if k != axis]))} = {value}")
        value = f"{size - 1} - {place('at', rest)}"
    site.stage(f"{place('Y', ranged(results, shape))} = {value}")
    return site.computed(word, ("Y", Tensor("i64", shape)))


@frozen
class _Line:
    """An element of the input `X` of a node, its indices, those that the node names, and the others."""

    type: Tensor
    value: str
    names: list[str]
    index: str
    rest: list[str]


def _line(site: Site, flat: bool = False) -> _Line:
    """The line along the axis that the node names; `flat` means along all axes from it on."""
    x = site.given(0)
    axis = axis_of(site.attribute("axis", -1), x.type.rank)
    names = indices(x.type.rank)
    chosen = names[axis:] if flat else names[axis : axis + 1]
    rest = [n for n in names if n not in chosen]
    return _Line(x.type, place(site.parameter("X", x), names), names, ", ".join(chosen), rest)


FLAT_SOFTMAX = "Softmax over all axes from one on"
"""The operator of opsets before 13, which the converter of opsets spells out; ONNX has none of that name."""


def softmax(logarithm: bool, flat: bool, site: Site) -> Lowered:
    """The softmax, or its logarithm, along an axis; `flat` means along all axes from it on."""
    x = _line(site, flat)
    site.stage(f"let {place('top', x.rest)} = max[{x.index}] {x.value}")
    shifted = f"{x.value} - {place('top', x.rest)}"
    if logarithm:
        site.stage(f"let {place('total', x.rest)} = sum[{x.index}] exp({shifted})")
        site.stage(f"{place('Y', x.names)} = {shifted} - log({place('total', x.rest)})")
        return site.computed("log_softmax", ("Y", x.type))
    site.stage(f"let {place('e', x.names)} = exp({shifted})")
    site.stage(f"let {place('total', x.rest)} = sum[{x.index}] {place('e', x.names)}")
    site.stage(f"{place('Y', x.names)} = {place('e', x.names)} / {place('total', x.rest)}")
    return site.computed("softmax", ("Y", x.type))


FLAT = "flat"
"""The attribute of a Hardmax over all axes from one on, as before opset 13; ONNX has none of that name."""


def _hardmax(site: Site) -> Lowered:
    flat = bool(site.attribute(FLAT, 0))
    x = _line(site, flat)
    site.stage(f"let {place('at', x.rest)} = argmax[{x.index}] {x.value}")
    left = place("Y", ranged(x.names, x.type.shape))
    chosen = x.index.split(", ")
    # The number of an element of the line, counted row by row.
    steps = [prod(x.type.shape[len(x.names) - len(chosen) + k + 1 :]) if flat else 1 for k in range(len(chosen))]
    number = " + ".join(scaled(f"i64({n})", step) for n, step in zip(chosen, steps, strict=True))
    site.stage(f"{left} = 1.0 if {number} == {place('at', x.rest)} else 0.0")
    return site.computed("hardmax", ("Y", x.type))


# --- normalizations ----------------------------------------------------------------------------------------------------


def _epsilon(site: Site) -> str:
    return literal(np.float32(site.attribute("epsilon", 1e-5)), "f32")


@frozen
class _Rows:
    """An element of the input `X` of a node, and what a norm over its last axes, from `axis` on, is written with."""

    x: Operand
    axis: int
    value: str
    names: list[str]
    outer: list[str]
    over: str
    count: str

    def factor(self, site: Site, name: str, o: Operand) -> str:
        """A parameter that is broadcast, at the place of the element."""
        if broadcast([o.shape, self.x.shape]) != self.x.shape:
            raise Unsupported(f"{o.type} for {self.x.type}")
        return place(site.parameter(name, o), stretched(o.shape, self.names))


def _rows(site: Site) -> _Rows:
    x = site.given(0)
    axis = axis_of(site.attribute("axis", -1), x.type.rank)
    names = indices(x.type.rank)
    count = literal(prod(x.shape[axis:]), x.dtype)
    value = place(site.parameter("X", x), names)
    return _Rows(x, axis, value, names, names[:axis], f"[{', '.join(names[axis:])}]", count)


def _layer_norm(site: Site) -> Lowered:
    scale, bias = site.given(1), site.optional(2)
    r = _rows(site)
    site.stage(f"let {place('mean', r.outer)} = (sum{r.over} {r.value}) / {r.count}")
    centred = f"({r.value} - {place('mean', r.outer)})"
    site.stage(f"let {place('d', r.outer)} = rsqrt((sum{r.over} {centred} * {centred}) / {r.count} + {_epsilon(site)})")
    text = f"{centred} * {place('d', r.outer)} * {r.factor(site, 'S', scale)}"
    if bias is not None:
        text += f" + {r.factor(site, 'B', bias)}"
    site.stage(f"{place('Y', r.names)} = {text}")
    results = [("Y", r.x.type)]
    ones = [f"o{k}" for k in range(r.axis, r.x.type.rank)]
    shape = (*r.x.shape[: r.axis], *(1 for _ in ones))
    for n, (name, source) in enumerate((("M", "mean"), ("D", "d")), 1):
        if site.wants(n):
            site.stage(f"{place(name, ranged([*r.outer, *ones], shape))} = {place(source, r.outer)}")
            results.append((name, Tensor(r.x.dtype, shape)))
    return site.computed("layer_norm", *results)


def _rms_norm(site: Site) -> Lowered:
    scale = site.given(1)
    r = _rows(site)
    mean = f"(sum{r.over} {r.value} * {r.value}) / {r.count}"
    site.stage(f"let {place('d', r.outer)} = rsqrt({mean} + {_epsilon(site)})")
    site.stage(f"{place('Y', r.names)} = {r.value} * {place('d', r.outer)} * {r.factor(site, 'S', scale)}")
    return site.computed("rms_norm", ("Y", r.x.type))


def _batch_norm(site: Site) -> Lowered:
    x, scale, bias, mean, variance = (site.given(n) for n in range(5))
    trains = bool(site.attribute("training_mode", 0))
    if site.wants(1) and not trains:
        raise Unsupported("statistics that an opset before 14 makes in training")
    names = indices(x.type.rank)
    channels = x.shape[1] if x.type.rank > 1 else 1
    site.parameter("X", x)
    for name, o in zip("SBMV", (scale, bias, mean, variance), strict=True):
        if name in "SB" or not trains or site.wants("MV".index(name) + 1):
            site.parameter(name, o, (channels,))
    c = names[1] if x.type.rank > 1 else "0"
    used, results = ("M", "V"), [("Y", x.type)]
    if trains:
        used = _statistics(site, x, names, results)
    value = f"({place('X', names)} - {used[0]}[{c}]) * (S[{c}] * rsqrt({used[1]}[{c}] + {_epsilon(site)})) + B[{c}]"
    site.stage(f"{place('Y', names)} = {value}")
    return site.computed("batch_norm", *results)


def _statistics(site: Site, x: Operand, names: Sequence[str], results: list[tuple[str, Tensor]]) -> tuple[str, str]:
    """The mean and the variance of each channel, by the names of their stages; running ones are results of the node."""
    if x.type.rank < 2:
        raise Unsupported(f"statistics of {x.type}")
    c, channels = names[1], x.shape[1]
    over = f"sum[{', '.join((names[0], *names[2:]))}]"
    count = literal(x.type.size // max(channels, 1), x.dtype)
    site.stage(f"let mean[{c}] = ({over} {place('X', names)}) / {count}")
    centred = f"({place('X', names)} - mean[{c}])"
    site.stage(f"let variance[{c}] = ({over} {centred} * {centred}) / {count}")
    momentum = site.attribute("momentum", 0.9)
    kept, new = literal(np.float32(momentum), x.dtype), literal(np.float32(1 - momentum), x.dtype)
    for n, (old, made) in enumerate((("M", "mean"), ("V", "variance")), 1):
        if site.wants(n):
            site.stage(f"R{old}[{c}] = {old}[{c}] * {kept} + {made}[{c}] * {new}")
            results.append((f"R{old}", Tensor(x.dtype, (channels,))))
    return "mean", "variance"


def _group_norm(site: Site) -> Lowered:
    x, scale, bias = (site.given(n) for n in range(3))
    channels = x.shape[1]
    groups = channels if site.node.op == "InstanceNormalization" else site.attribute("num_groups", 0)
    if groups < 1 or channels % groups:
        raise Unsupported(f"{groups} groups of {channels} channels")
    each = channels // groups
    names = indices(x.type.rank)
    n, c, rest = names[0], names[1], names[2:]
    is_grouped = scale.shape == (groups,) and groups != channels
    site.parameter("X", x)
    for name, o in zip("SB", (scale, bias), strict=True):
        site.parameter(name, o, (groups if is_grouped else channels,))
    over = f"[{', '.join((*(() if each == 1 else (f'e in {each}',)), *ranged(rest, x.shape[2:])))}]"
    inner = place("X", [n, "g" if each == 1 else f"g * {each} + e", *rest])
    count = literal(each * prod(x.shape[2:]), x.dtype)
    head = f"{n}, g in {groups}"
    total = f"sum{over} {inner}" if over != "[]" else inner
    site.stage(f"let mean[{n} in {x.shape[0]}, g in {groups}] = ({total}) / {count}")
    square = f"({inner} - mean[{n}, g]) * ({inner} - mean[{n}, g])"
    total = f"sum{over} {square}" if over != "[]" else square
    site.stage(f"let d[{head}] = rsqrt(({total}) / {count} + {_epsilon(site)})")
    g = c if each == 1 else f"{c} / {each}"
    per = f"{c} / {each}" if is_grouped else c
    value = f"({place('X', names)} - mean[{n}, {g}]) * d[{n}, {g}] * S[{per}] + B[{per}]"
    site.stage(f"{place('Y', names)} = {value}")
    return site.computed("group_norm", ("Y", x.type))


def _lp_norm(site: Site) -> Lowered:
    x = _line(site)
    site.stage(f"let {place('total', x.rest)} = {norm(site.attribute('p', 2), f'[{x.index}]', x.value)}")
    total = place("total", x.rest)
    site.stage(f"{place('Y', x.names)} = {x.value} / {total} if {total} != 0.0 else 0.0")
    return site.computed("lp_norm", ("Y", x.type))


def _mean_variance_norm(site: Site) -> Lowered:
    x = site.given(0)
    axes = axes_of(site.attribute("axes", [0, 2, 3]), x.type.rank)
    names = indices(x.type.rank)
    rest = [n for k, n in enumerate(names) if k not in axes]
    over, count = ", ".join(names[a] for a in axes), literal(prod(x.shape[a] for a in axes), x.dtype)
    value, mean, deviation = place(site.parameter("X", x), names), place("mean", rest), place("d", rest)
    site.stage(f"let {mean} = (sum[{over}] {value}) / {count}")
    site.stage(f"let {deviation} = sqrt((sum[{over}] ({value} - {mean}) * ({value} - {mean})) / {count})")
    site.stage(f"{place('Y', names)} = ({value} - {mean}) / ({deviation} + 1e-09)")
    return site.computed("mean_variance_norm", ("Y", x.type))


def _local_response(site: Site) -> Lowered:
    x = site.given(0)
    size, channels = site.attribute("size", 1), x.shape[1]
    alpha, beta, bias = (
        literal(np.float32(site.attribute(name, default)), "f32")
        for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    names = indices(x.type.rank)
    site.parameter("X", x)
    c, before = names[1], (size - 1) // 2
    near = place("X", [names[0], f"{c} + q - {before}", *names[2:]])
    site.stage(
        f"let {place('total', ranged(names, x.shape))} = "
        f"sum[q in {size}] ({near} * {near} if 0 <= {c} + q - {before} < {channels} else 0.0)"
    )
    value = f"{place('X', names)} * pow({bias} + {alpha} / {size}.0 * {place('total', names)}, -{beta})"
    site.stage(f"{place('Y', names)} = {value}")
    return site.computed("local_response", ("Y", x.type))


def _cumulative(stem: str, sign: str, neutral: int, site: Site) -> Lowered:
    x = site.given(0)
    named = site.ints(1, "axis")
    assert named is not None
    axis = axis_of(named[0], x.type.rank)
    names = indices(x.type.rank)
    site.parameter("X", x)
    n, size = names[axis], x.shape[axis]
    back, apart = site.attribute("reverse", 0), site.attribute("exclusive", 0)
    first = size - 1 if back else 0

    def at(name: str, index: str) -> str:
        return place(name, [index if k == axis else i for k, i in enumerate(names)])

    step = f"{n} + 1" if back else f"{n} - 1"
    start = literal(neutral, x.dtype)
    init, joined = (start, at("X", step)) if apart else (at("X", str(first)), at("X", n))
    site.stage(f"{place('Y', ranged(names, x.shape))} = scan[{n}] init {init} step {at('Y', step)} {sign} {joined}")
    return site.computed(stem, ("Y", x.type))


SINGLE: Mapping[str, frozenset[str]] = {"LayerNormalization": frozenset(("M", "D"))}
"""Results that are f32 where the others have 16 bits, by operator."""

TABLE: Mapping[str, Writer] = {
    **{op: partial(_reduced, *how) for op, how in _REDUCTIONS.items()},
    "ReduceLogSumExp": partial(_reduced, "log_sum_exp", ""),
    "ArgMax": partial(_position, "argmax"),
    "ArgMin": partial(_position, "argmin"),
    "Softmax": partial(softmax, False, False),
    "LogSoftmax": partial(softmax, True, False),
    "Hardmax": _hardmax,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _group_norm,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance_norm,
    "LRN": _local_response,
    "CumSum": partial(_cumulative, "cumulative_sum", "+", 0),
    "CumProd": partial(_cumulative, "cumulative_product", "*", 1),
}

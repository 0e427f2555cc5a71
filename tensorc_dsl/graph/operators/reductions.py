"""Operators that reduce over axes: sums and their like, positions of extremes, softmax, and normalizations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

import numpy as np

from tensorc_dsl.graph.graph import Tensor, Unsupported, literal
from tensorc_dsl.graph.operators.lowering import (
    Lowered,
    Operand,
    Site,
    Viewed,
    Writer,
    axes_of,
    axis_of,
    indices,
    place,
    ranged,
    stretched,
)
from tensorc_dsl.graph.operators.windows import norm


def _axes(site: Site, rank: int) -> list[int] | None:
    """The axes that a reduction names, as an attribute or as an input; None for none."""
    named = site.attribute("axes")
    if named is None:
        named = site.ints(1, "axes")
    return None if not named else axes_of(named, rank)


def _reduced(word: str, site: Site) -> Lowered:
    x = site.given(0)
    rank = x.type.rank
    axes = _axes(site, rank)
    if axes is None:
        if site.attribute("noop_with_empty_axes", 0):
            return Viewed(x.name, x.type)
        axes = list(range(rank))
    kept = bool(site.attribute("keepdims", 1))
    names = indices(rank)
    site.parameter("X", x)
    inner = [f"{n} in {x.shape[k]}" for k, n in enumerate(names) if k in axes]
    value = place("X", names)
    reduced = f"[{', '.join(inner)}]"
    count = prod(x.shape[a] for a in axes)
    ones = iter(f"o{n}" for n in range(rank))
    results = [next(ones) if k in axes else n for k, n in enumerate(names) if kept or k not in axes]
    shape = tuple(1 if k in axes else size for k, size in enumerate(x.shape) if kept or k not in axes)
    at = place("Y", ranged(results, shape))
    total = f"(sum{reduced} {value})" if inner else value
    match word:
        case "mean":
            text = f"{total} / {literal(count, x.dtype)}"
        case "l1":
            text = f"sum{reduced} abs({value})" if inner else f"abs({value})"
        case "l2":
            text = norm(2, reduced, value) if inner else f"abs({value})"
        case "log_sum":
            text = f"log({total})"
        case "sum_square":
            text = f"sum{reduced} {value} * {value}" if inner else f"{value} * {value}"
        case "log_sum_exp":
            return _log_sum_exp(site, x, axes, names, results, shape)
        case _:
            text = f"{word}{reduced} {value}" if inner else value
    if x.dtype == "bool":
        text = text.replace("max[", "any[", 1).replace("min[", "all[", 1)
    site.stage(f"{at} = {text}")
    return site.computed(f"reduce_{word}", ("Y", Tensor(x.dtype, shape)))


def _log_sum_exp(
    site: Site, x: Operand, axes: Sequence[int], names: list[str], results: list[str], shape: tuple[int, ...]
) -> Lowered:
    rest = [n for k, n in enumerate(names) if k not in axes]
    inner = ", ".join(n for k, n in enumerate(names) if k in axes)
    greatest = place("m", rest)
    site.stage(f"let {greatest} = max[{inner}] {place('X', names)}")
    shift = f"({greatest} if isfinite({greatest}) else 0.0)"
    value = f"log(sum[{inner}] exp({place('X', names)} - {shift})) + {shift}"
    site.stage(f"{place('Y', ranged(results, shape))} = {value}")
    return site.computed("reduce_log_sum_exp", ("Y", Tensor(x.dtype, shape)))


def _position(word: str, site: Site) -> Lowered:
    x = site.given(0)
    axis = axis_of(site.attribute("axis", 0), x.type.rank)
    names = indices(x.type.rank)
    kept, last = site.attribute("keepdims", 1), site.attribute("select_last_index", 0)
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
        site.stage(f"let {place('p', ranged(rest, [s for k, s in enumerate(x.shape) if k != axis]))} = {value}")
        value = f"{size - 1} - {place('p', rest)}"
    site.stage(f"{place('Y', ranged(results, shape))} = {value}")
    return site.computed(word, ("Y", Tensor("i64", shape)))


def _softmax(logarithm: bool, site: Site) -> Lowered:
    x = site.given(0)
    axis = axis_of(site.attribute("axis", -1), x.type.rank)
    names = indices(x.type.rank)
    site.parameter("X", x)
    rest = [n for k, n in enumerate(names) if k != axis]
    n = names[axis]
    value = place("X", names)
    site.stage(f"let {place('m', rest)} = max[{n}] {value}")
    shifted = f"{value} - {place('m', rest)}"
    if logarithm:
        site.stage(f"let {place('s', rest)} = sum[{n}] exp({shifted})")
        site.stage(f"{place('Y', names)} = {shifted} - log({place('s', rest)})")
        return site.computed("log_softmax", ("Y", x.type))
    site.stage(f"let {place('e', names)} = exp({shifted})")
    site.stage(f"let {place('s', rest)} = sum[{n}] {place('e', names)}")
    site.stage(f"{place('Y', names)} = {place('e', names)} / {place('s', rest)}")
    return site.computed("softmax", ("Y", x.type))


def _hardmax(site: Site) -> Lowered:
    x = site.given(0)
    axis = axis_of(site.attribute("axis", -1), x.type.rank)
    names = indices(x.type.rank)
    site.parameter("X", x)
    rest = [n for k, n in enumerate(names) if k != axis]
    site.stage(f"let {place('p', rest)} = argmax[{names[axis]}] {place('X', names)}")
    site.stage(f"{place('Y', ranged(names, x.shape))} = 1.0 if i64({names[axis]}) == {place('p', rest)} else 0.0")
    return site.computed("hardmax", ("Y", x.type))


# --- normalizations ----------------------------------------------------------------------------------------------------


def _epsilon(site: Site) -> str:
    return literal(np.float32(site.attribute("epsilon", 1e-5)), "f32")


def _layer_norm(site: Site) -> Lowered:
    x, scale, bias = site.given(0), site.given(1), site.optional(2)
    rank = x.type.rank
    axis = axis_of(site.attribute("axis", -1), rank)
    names = indices(rank)
    outer, inner = names[:axis], names[axis:]
    count = literal(prod(x.shape[axis:]), x.dtype)
    site.parameter("X", x)
    value, over = place("X", names), f"[{', '.join(inner)}]"
    site.stage(f"let {place('mean', outer)} = (sum{over} {value}) / {count}")
    centred = f"({value} - {place('mean', outer)})"
    site.stage(f"let {place('d', outer)} = rsqrt((sum{over} {centred} * {centred}) / {count} + {_epsilon(site)})")
    text = f"{centred} * {place('d', outer)} * {place(site.parameter('S', scale), stretched(scale.shape, names))}"
    if bias is not None:
        text += f" + {place(site.parameter('B', bias), stretched(bias.shape, names))}"
    site.stage(f"{place('Y', names)} = {text}")
    results = [("Y", x.type)]
    ones = [f"o{k}" for k in range(axis, rank)]
    shape = (*x.shape[:axis], *(1 for _ in ones))
    for n, (name, source) in enumerate((("M", "mean"), ("D", "d")), 1):
        if site.wants(n):
            site.stage(f"{place(name, ranged([*outer, *ones], shape))} = {place(source, outer)}")
            results.append((name, Tensor(x.dtype, shape)))
    if site.wants(2) and not site.wants(1):
        raise Unsupported("the deviation without the mean")
    return site.computed("layer_norm", *results)


def _rms_norm(site: Site) -> Lowered:
    x, scale = site.given(0), site.given(1)
    rank = x.type.rank
    axis = axis_of(site.attribute("axis", -1), rank)
    names = indices(rank)
    outer, inner = names[:axis], names[axis:]
    value = place(site.parameter("X", x), names)
    count = literal(prod(x.shape[axis:]), x.dtype)
    mean = f"(sum[{', '.join(inner)}] {value} * {value}) / {count}"
    site.stage(f"let {place('d', outer)} = rsqrt({mean} + {_epsilon(site)})")
    weight = place(site.parameter("S", scale), stretched(scale.shape, names))
    site.stage(f"{place('Y', names)} = {value} * {place('d', outer)} * {weight}")
    return site.computed("rms_norm", ("Y", x.type))


def _batch_norm(site: Site) -> Lowered:
    x, scale, bias, mean, variance = (site.given(n) for n in range(5))
    if site.attribute("training_mode", 0) or site.wants(1):
        raise Unsupported("training")
    names = indices(x.type.rank)
    for name, o in zip("XSBMV", (x, scale, bias, mean, variance), strict=True):
        site.parameter(name, o)
    c = names[1] if x.type.rank > 1 else "0"
    value = f"({place('X', names)} - M[{c}]) * (S[{c}] * rsqrt(V[{c}] + {_epsilon(site)})) + B[{c}]"
    site.stage(f"{place('Y', names)} = {value}")
    return site.computed("batch_norm", ("Y", x.type))


def _group_norm(site: Site) -> Lowered:
    x, scale, bias = (site.given(n) for n in range(3))
    channels = x.shape[1]
    groups = channels if site.node.op == "InstanceNormalization" else site.attribute("num_groups", 0)
    if groups < 1 or channels % groups:
        raise Unsupported(f"{groups} groups of {channels} channels")
    each = channels // groups
    names = indices(x.type.rank)
    n, c, rest = names[0], names[1], names[2:]
    for name, o in zip("XSB", (x, scale, bias), strict=True):
        site.parameter(name, o)
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
    per = f"{c} / {each}" if scale.shape == (groups,) and groups != channels else c
    value = f"({place('X', names)} - mean[{n}, {g}]) * d[{n}, {g}] * S[{per}] + B[{per}]"
    site.stage(f"{place('Y', names)} = {value}")
    return site.computed("group_norm", ("Y", x.type))


def _lp_norm(site: Site) -> Lowered:
    x = site.given(0)
    axis = axis_of(site.attribute("axis", -1), x.type.rank)
    names = indices(x.type.rank)
    site.parameter("X", x)
    rest = [n for k, n in enumerate(names) if k != axis]
    value = place("X", names)
    site.stage(f"let {place('s', rest)} = {norm(site.attribute('p', 2), f'[{names[axis]}]', value)}")
    site.stage(f"{place('Y', names)} = {value} / {place('s', rest)} if {place('s', rest)} != 0.0 else 0.0")
    return site.computed("lp_norm", ("Y", x.type))


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
        f"let {place('s', ranged(names, x.shape))} = "
        f"sum[q in {size}] ({near} * {near} if 0 <= {c} + q - {before} < {channels} else 0.0)"
    )
    value = f"{place('X', names)} * pow({bias} + {alpha} / {size}.0 * {place('s', names)}, -{beta})"
    site.stage(f"{place('Y', names)} = {value}")
    return site.computed("local_response", ("Y", x.type))


def _cumulative(site: Site) -> Lowered:
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
    zero = literal(0, x.dtype)
    init, added = (zero, at("X", step)) if apart else (at("X", str(first)), at("X", n))
    site.stage(f"{place('Y', ranged(names, x.shape))} = scan[{n}] init {init} step {at('Y', step)} + {added}")
    return site.computed("cumulative_sum", ("Y", x.type))


TABLE: Mapping[str, Writer] = {
    **{
        op: partial(_reduced, word)
        for op, word in {
            "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
            "ReduceL1": "l1", "ReduceL2": "l2", "ReduceLogSum": "log_sum", "ReduceLogSumExp": "log_sum_exp",
            "ReduceSumSquare": "sum_square",
        }.items()
    },
    "ArgMax": partial(_position, "argmax"),
    "ArgMin": partial(_position, "argmin"),
    "Softmax": partial(_softmax, False),
    "LogSoftmax": partial(_softmax, True),
    "Hardmax": _hardmax,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _group_norm,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_norm,
    "LRN": _local_response,
    "CumSum": _cumulative,
}  # fmt: skip

"""Operators that become several others once the types of their inputs are known: attention, and loops of fixed length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod, sqrt
from typing import Any

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.control import MOST_NODES
from tensorc_dsl.graph.graph import Array, Graph, Node, Unsupported, anchor, copied, onnx_dtype
from tensorc_dsl.graph.operators.lowering import Site, axis_of, broadcast
from tensorc_dsl.graph.operators.products import ATTENTION, ROTATION, AttentionForm

_INT32, _BOOL = 6, 9
"""ONNX's numbers of element types."""


@dataclass(slots=True)
class Expansion:
    """The nodes that stand for one, and the constants among their inputs."""

    node: Node
    nodes: list[Node] = field(default_factory=list[Node])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])

    _parts: int = 0

    def add(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Add a node."""
        self.nodes.append(Node(op, tuple(inputs), tuple(outputs), attributes, self.node.place))

    def emit(self, op: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        """The output of a node that is added; `to` is its name."""
        name = to or self.part()
        self.add(op, inputs, [name], **attributes)
        return name

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = self.part()
        self.constants[name] = np.asarray(value, dtype)
        return name

    def reshaped(self, name: str, shape: Sequence[int], to: str = "") -> str:
        return self.emit("Reshape", name, self.constant(shape), to=to)

    def part(self) -> str:
        """A name for a value of the node's own. A node that expands again has the same outputs, and is another operator."""
        self._parts += 1
        return f"{anchor(self.node)}/{self.node.op}.{self._parts}"

    def cast(self, name: str, kind: int) -> str:
        """A value in another element type, by ONNX's number of that."""
        made = self.part()
        self.add("Cast", (name,), [made], to=kind)
        return made


# --- loops -------------------------------------------------------------------------------------------------------------


def _scan(site: Site, out: Expansion) -> None:
    """A copy of the body for each step."""
    body, count = site.attribute("body"), site.attribute("num_scan_inputs", 0)
    first = len(site.operands) - count
    if not isinstance(body, Graph) or count < 1 or first < 0 or len(body.inputs) != len(site.operands):
        raise Unsupported("a body that does not fit the inputs")
    scanned = [site.given(first + k) for k in range(count)]
    states = [site.given(k).name for k in range(first)]
    axes = [
        axis_of(a, o.type.rank) for a, o in zip(site.attribute("scan_input_axes", [0] * count), scanned, strict=True)
    ]
    lengths = {o.shape[a] for o, a in zip(scanned, axes, strict=True) if o.type.rank}
    steps = lengths.pop() if lengths else 0
    if lengths or not 0 < steps * (len(body.nodes) + 2) <= MOST_NODES:
        raise Unsupported(f"{steps} steps of {len(body.nodes)} nodes")
    made = len(body.outputs) - first
    backwards = [
        site.attribute("scan_input_directions", [0] * count),
        site.attribute("scan_output_directions", [0] * made),
    ]
    parts: list[list[str]] = []
    for o, axis in zip(scanned, axes, strict=True):
        names = [f"{anchor(out.node)}/{o.name}.{axis}.{t}" for t in range(steps)]
        out.add("Split", (o.name,), names, axis=axis)
        parts.append([out.emit("Squeeze", n, out.constant([axis])) for n in names])
    results: list[list[str]] = [[] for _ in range(made)]
    for t in range(steps):
        given = [*states, *(p[steps - 1 - t if back else t] for p, back in zip(parts, backwards[0], strict=True))]
        nodes, constants, ends = copied(body, f"{anchor(out.node)}/{t}", dict(zip(body.inputs, given, strict=True)))
        out.constants |= constants
        out.nodes += nodes
        states = ends[:first]
        for k, end in enumerate(ends[first:]):
            results[k].append(end)
    for source, name in zip(states, out.node.outputs, strict=False):
        if name:
            out.emit("Identity", source, to=name)
    joins = site.attribute("scan_output_axes", [0] * made)
    for name, elements, axis, back in zip(out.node.outputs[first:], results, joins, backwards[1], strict=True):
        if name:
            lines = [out.emit("Unsqueeze", e, out.constant([axis])) for e in elements]
            out.emit("Concat", *(lines[::-1] if back else lines), to=name, axis=axis)


# --- attention ---------------------------------------------------------------------------------------------------------

_Sized = tuple[str, tuple[int, ...]]
"""A value with its shape."""


@frozen
class _Heads:
    """An operand of an attention; its axes in `order` are those of batches, heads, a sequence, and parts of its elements."""

    name: str
    shape: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.shape[a] for a in self.order)

    def grouped(self, out: Expansion, groups: int) -> _Heads:
        """With the heads as groups of heads."""
        a = self.order[1]
        shape = (*self.shape[:a], groups, self.shape[a] // groups, *self.shape[a + 1 :])
        return _Heads(out.reshaped(self.name, shape), shape, _split_axis(self.order, a))

    def plain(self, out: Expansion) -> _Heads:
        """In the order of batches, heads, elements and parts."""
        order = tuple(range(len(self.order)))
        if self.order == order:
            return self
        return _Heads(out.emit("Transpose", self.name, perm=list(self.order)), self.sizes, order)


def _split_axis(order: Sequence[int], axis: int) -> tuple[int, ...]:
    """The order of axes after one of them has become two."""
    return tuple(b for a in order for b in ((a, a + 1) if a == axis else (a + (a > axis),)))


def _heads(site: Site, out: Expansion, n: int) -> _Heads:
    o = site.given(n)
    if o.type.rank == 4:
        orders: Sequence[tuple[int, ...]] = site.attribute("orders", [(0, 1, 2, 3)] * 3)
        return _Heads(o.name, o.shape, orders[n])
    count = site.attribute("kv_num_heads" if n else "q_num_heads", 0)
    if o.type.rank != 3 or count < 1 or o.shape[2] % count:
        raise Unsupported(f"{count} heads of {o.type}")
    shape = (*o.shape[:2], count, o.shape[2] // count)
    return _Heads(out.reshaped(o.name, shape), shape, (0, 2, 1, 3))


def _attention(site: Site, out: Expansion) -> None:
    q, k, v = (_heads(site, out, n) for n in range(3))
    past = site.optional(4)
    if past is not None or site.wants(1) or site.wants(2):
        k, v = (_present(site, out, n, x) for n, x in ((1, k), (2, v)))
    dtype = onnx_dtype(site.given(0).dtype)
    heads, groups = q.sizes[1], k.sizes[1]
    if not groups or heads % groups or v.sizes[1] != groups:
        raise Unsupported(f"{heads} heads of queries for {groups} of keys and {v.sizes[1]} of values")
    mask, is_masked = _mask(site, out, q.sizes, k.sizes, past.shape[2] if past is not None else 0)
    result: tuple[int, ...] = (0, 2, 1, 3) if site.given(0).type.rank == 3 else site.attribute("result", ())
    made = (*q.sizes[:3], v.sizes[3])
    if heads != groups:
        q, k, v = q.grouped(out, groups), k.grouped(out, groups), v.grouped(out, groups)
        if mask is not None and len(mask[1]) > 2:
            split = (groups, heads // groups) if mask[1][-3] == heads else (1, 1)
            shape = (*mask[1][:-3], *split, *mask[1][-2:])
            mask = out.reshaped(mask[0], shape), shape
    scale, cap = site.attribute("scale") or 1 / sqrt(q.sizes[-1]), site.attribute("softcap", 0.0)
    if site.wants(3):
        name = _spelled(
            site, out, (q, k, v), out.constant(scale, dtype), out.constant(cap, dtype) if cap else "", mask, is_masked
        )
        _shaped(site, out, name, made, heads != groups, result)
        return
    others = [out.constant(scale, dtype)]
    changes: list[tuple[str, tuple[int, ...]]] = [("Mul", (-1, 3))]
    if cap:
        others.append(out.constant(cap, dtype))
        changes += [("Div", (-1, 4)), ("Tanh", (-1,)), ("Mul", (-1, 4))]
    if mask is not None:
        place = 3 + len(others)
        others.append(mask[0])
        given = site.optional(3)
        if given is None or given.dtype == "bool":
            others.append(out.constant(-np.inf, dtype))
            changes.append(("Where", (place, -1, place + 1)))
        else:
            changes.append(("Add", (-1, place)))
    order = () if is_masked else result
    shape = made if is_masked else tuple(made[a] for a in result or range(4))
    if order and heads != groups:
        order = _split_axis(order, 1)
    keys = (*k.order[:-2], k.order[-1], k.order[-2])
    form = AttentionForm(q.order, keys, v.order, order, tuple(changes), -1)
    name = out.emit(ATTENTION, q.name, k.name, v.name, *others, form=form)
    if is_masked:
        assert mask is not None
        name = out.emit("Where", _some(site, out, mask[0]), name, out.constant(0, dtype))
    _shaped(site, out, name, shape, heads != groups, result if is_masked else ())


def _shaped(
    site: Site, out: Expansion, name: str, shape: tuple[int, ...], is_grouped: bool, order: tuple[int, ...]
) -> None:
    """The result of heads in the shape that the node has, after a transposition."""
    if is_grouped:
        name = out.reshaped(name, shape)
    if order:
        name, shape = out.emit("Transpose", name, perm=list(order)), tuple(shape[a] for a in order)
    if site.given(0).type.rank == 3:
        out.reshaped(name, (*shape[:2], shape[2] * shape[3]))
    out.nodes[-1] = replace(out.nodes[-1], outputs=out.node.outputs[:1])


def _spelled(
    site: Site,
    out: Expansion,
    heads: tuple[_Heads, _Heads, _Heads],
    scale: str,
    cap: str,
    mask: _Sized | None,
    is_masked: bool,
) -> str:
    """An attention node by node, since its scores are an output, too: the result of each head."""
    q, k, v = (x.plain(out) for x in heads)
    mode, dtype = site.attribute("qk_matmul_output_mode", 0), onnx_dtype(site.given(0).dtype)
    turned = [*k.order[:-2], k.order[-1], k.order[-2]]
    scores = shown = out.emit("Mul", out.emit("MatMul", q.name, out.emit("Transpose", k.name, perm=turned)), scale)
    if cap:
        scores = out.emit("Mul", out.emit("Tanh", out.emit("Div", scores, cap)), cap)
    shown = scores if mode == 1 else shown
    if mask is not None:
        given = site.optional(3)
        if given is None or given.dtype == "bool":
            scores = out.emit("Where", mask[0], scores, out.constant(-np.inf, dtype))
        else:
            scores = out.emit("Add", scores, mask[0])
    shown = scores if mode == 2 else shown
    weights = out.emit("Softmax", scores, axis=-1)
    if is_masked:
        assert mask is not None
        weights = out.emit("Where", _some(site, out, mask[0]), weights, out.constant(0, dtype))
    shown = weights if mode == 3 else shown
    batch, count, rows, columns = q.shape[0], prod(q.shape[1:-2]), q.shape[-2], k.shape[-2]
    out.reshaped(shown, (batch, count, rows, columns), to=out.node.outputs[3])
    return out.emit("MatMul", weights, v.name)


def _some(site: Site, out: Expansion, mask: str) -> str:
    """Whether a row has elements that are not masked."""
    o = site.optional(3)
    if o is None or o.dtype == "bool":
        # Opsets before 20 have no reductions of flags.
        return out.cast(out.emit("ReduceMax", out.cast(mask, _INT32), out.constant([-1]), keepdims=1), _BOOL)
    top = out.emit("ReduceMax", mask, out.constant([-1]), keepdims=1)
    return out.emit("Greater", top, out.constant(-np.inf, onnx_dtype(o.dtype)))


def _present(site: Site, out: Expansion, n: int, x: _Heads) -> _Heads:
    """The keys or values with those before them."""
    past, named = site.optional(n + 3), site.node.outputs[n] if site.wants(n) else ""
    plain = x.plain(out)
    if past is None:
        return replace(plain, name=out.emit("Identity", plain.name, to=named))
    name = out.emit("Concat", past.name, plain.name, to=named, axis=2)
    return _Heads(name, (*plain.shape[:2], past.shape[2] + plain.shape[2], plain.shape[3]), plain.order)


def _mask(site: Site, out: Expansion, q: Sequence[int], k: Sequence[int], offset: int) -> tuple[_Sized | None, bool]:
    """What is added to scores or, of type bool, keeps them; and whether a row may have none that counts."""
    given, lengths = site.optional(3), site.optional(6)
    rows, columns = q[2], k[2]
    row, column = np.arange(rows)[:, None] + offset, np.arange(columns)
    causal, left, right = (
        site.attribute(n, d) for n, d in (("is_causal", 0), ("left_window_size", -1), ("right_window_size", -1))
    )
    seen = np.ones((rows, columns), np.bool_)
    if left >= 0:
        seen &= row - column <= left
    if right >= 0:
        seen &= column - row <= right
    if causal and lengths is None:
        seen &= column <= row
    kept: list[_Sized] = [] if seen.all() else [(out.constant(seen, np.bool_), seen.shape)]
    is_masked = not seen.any(-1).all() or lengths is not None
    if lengths is not None:
        if left >= 0 or right >= 0:
            raise Unsupported("a window of keys that are padded")
        count = out.reshaped(lengths.name, (q[0], 1, 1, 1))
        kept.append((out.emit("Less", out.constant(column), count), (q[0], 1, 1, columns)))
        if causal:
            kept.append((out.emit("LessOrEqual", out.constant(column - row + rows), count), (q[0], 1, rows, columns)))
    added: _Sized | None = None
    if given is not None:
        mask = given.name, given.shape
        fill = False if given.dtype == "bool" else -np.inf
        if given.dtype not in ("bool", site.given(0).dtype):
            raise Unsupported(f"a mask {given.type} of scores of {site.given(0).dtype}")
        missing = columns - given.shape[-1]
        if missing > 0 and given.shape[-1] > 1:
            pads = [0] * (2 * given.type.rank - 1) + [missing]
            name = out.emit("Pad", given.name, out.constant(pads), out.constant(fill, onnx_dtype(given.dtype)))
            mask = name, (*given.shape[:-1], columns)
        if given.value is None or missing or lengths is not None:
            is_masked = True
        else:
            is_masked = not (seen & (given.value if given.dtype == "bool" else given.value > -np.inf)).any(-1).all()
        if given.dtype == "bool":
            kept.append(mask)
        else:
            added = mask
    if not kept:
        return added, is_masked
    name, shape = kept[0]
    for other, size in kept[1:]:
        name, shape = out.emit("And", name, other), broadcast([shape, size])
    if added is None:
        return (name, shape), is_masked
    assert given is not None
    made = out.emit("Where", name, added[0], out.constant(-np.inf, onnx_dtype(given.dtype)))
    return (made, broadcast([shape, added[1]])), is_masked


# --- rotations ---------------------------------------------------------------------------------------------------------


def _rotary(site: Site, out: Expansion) -> None:
    """The rotation of heads; those of three dimensions are split into heads."""
    x, inputs = site.given(0), site.node.inputs[1:]
    attributes = {name: v for name, v in site.node.attributes.items() if name != "num_heads"}
    if x.type.rank == 4:
        out.emit(ROTATION, x.name, *inputs, to=out.node.outputs[0], sequence=2, **attributes)
        return
    heads = site.attribute("num_heads", 0)
    if x.type.rank != 3 or heads < 1 or x.shape[2] % heads:
        raise Unsupported(f"{heads} heads of {x.type}")
    split = out.reshaped(x.name, (*x.shape[:2], heads, x.shape[2] // heads))
    made = out.emit(ROTATION, split, *inputs, sequence=1, **attributes)
    out.reshaped(made, x.shape, to=out.node.outputs[0])


# --- pools -------------------------------------------------------------------------------------------------------------


def _unpooled(site: Site, out: Expansion) -> None:
    """Zeros with values at their places, which are counted in all images, and are in the value's own."""
    x, at, extents = site.given(0), site.given(1), site.attribute("kernel_shape", [])
    rank = x.type.rank - 2
    strides, pads = site.attribute("strides") or [1] * rank, site.attribute("pads") or [0] * (2 * rank)
    if rank < 1 or (len(extents), len(strides), len(pads)) != (rank, rank, 2 * rank) or at.shape != x.shape:
        raise Unsupported(f"{x.type} at {at.type}")
    sizes = [
        (n - 1) * s + k - pads[d] - pads[d + rank]
        for d, (n, s, k) in enumerate(zip(x.shape[2:], strides, extents, strict=True))
    ]
    asked = site.ints(2, "the shape of the result")
    shape = (*x.shape[:2], *sizes)
    if min(sizes) < 1 or (asked is not None and tuple(asked) != shape):
        raise Unsupported(f"a result of the shape {asked}, where the window makes {list(shape)}")
    rows = (prod(x.shape[:2]), -1)
    places = out.emit("Mod", out.reshaped(at.name, rows), out.constant(prod(sizes)))
    zeros = out.constant(np.zeros((rows[0], prod(sizes))), onnx_dtype(x.dtype))
    made = out.emit("ScatterElements", zeros, places, out.reshaped(x.name, rows), axis=1)
    out.reshaped(made, shape, to=out.node.outputs[0])


EXPANSIONS: Mapping[str, Callable[[Site, Expansion], None]] = {
    "Attention": _attention,
    "MaxUnpool": _unpooled,
    "RotaryEmbedding": _rotary,
    "Scan": _scan,
}
"""What adds the nodes for an operator."""

"""Rewrites nodes before they are written out: batch norms into the convolutions before them, and what exporters spell out as
several nodes into the operator that it is.

Each rewrite replaces the node that makes the last value; the nodes before it are left out if nothing else needs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.graph import Array, Graph, Node, live
from tensorc_dsl.graph.operators.products import ATTENTION, AttentionForm
from tensorc_dsl.graph.operators.reductions import FLAT_SOFTMAX


@dataclass(slots=True)
class _View:
    """A graph by value: who makes it, how often it is read, and what constants there are."""

    constants: dict[str, Array]
    makers: dict[str, Node]
    reads: Counter[str]

    def maker(self, name: str, *ops: str) -> Node | None:
        """The node that makes a value, if it is one of these operators."""
        node = self.makers.get(name)
        return node if node is not None and node.op in ops else None

    def inner(self, name: str, *ops: str) -> Node | None:
        """As `maker`, if nothing else reads the value, so that the node may go."""
        return self.maker(name, *ops) if self.reads[name] == 1 else None

    def number(self, name: str) -> float | None:
        """The value of a constant of one element. One of more dimensions may give a product more than its factor has."""
        value = self.constants.get(name)
        return None if value is None or value.size != 1 or value.ndim > 1 else float(value.reshape(()).item())

    def is_number(self, name: str, wanted: float) -> bool:
        """Whether it is that constant, as its element type rounds it."""
        value = self.number(name)
        if value is None:
            return False
        rounded = float(np.asarray(wanted).astype(self.constants[name].dtype))
        return abs(value - rounded) <= 1e-6 * abs(wanted)

    def either(self, node: Node) -> Iterator[tuple[str, str]]:
        """The two operands of a node whose operands may be swapped, in both orders."""
        if len(node.inputs) == 2:
            yield node.inputs[0], node.inputs[1]
            yield node.inputs[1], node.inputs[0]


Rewrite = Callable[[_View, Node], Node | None]


def rewritten(graph: Graph) -> Graph:
    """The graph with all rewrites done, and without nodes that no output needs. Branches of `If` stay as they are."""
    constants = dict(graph.constants)
    nodes: list[Node] = []
    for node in graph.nodes:
        value = node.attributes.get("value") if node.op == "Constant" else None
        if value is None:
            nodes.append(node)
        else:
            constants[node.outputs[0]] = value
    changed = True
    while changed:  # what one rewrite leaves out may be all that keeps another from its nodes
        nodes = live(nodes, graph.outputs)
        reads = Counter(i for n in nodes for i in n.inputs) + Counter(graph.outputs)
        view = _View(constants, {o: n for n in nodes for o in n.outputs if o}, reads)
        changed = False
        for n in range(len(nodes)):
            for rewrite in REWRITES:
                try:
                    with np.errstate(all="ignore"):
                        made = rewrite(view, nodes[n])
                except (ValueError, IndexError, TypeError):  # constants that do not fit: what is written says so
                    made = None
                if made is not None:
                    nodes[n] = made
                    view.makers |= {o: made for o in made.outputs if o}
                    changed = True
    return replace(graph, nodes=live(nodes, graph.outputs), constants=constants)


# --- batch norms -------------------------------------------------------------------------------------------------------


def _batch_norm(view: _View, node: Node) -> Node | None:
    """conv(x, f) * s + b is conv(x, f * s) + b, with constants s and b for each channel of the result."""
    if node.op != "BatchNormalization" or node.attributes.get("training_mode") or any(node.outputs[1:]):
        return None
    source, *rest = node.inputs
    conv = view.maker(source, "Conv")
    parameters = [view.constants.get(name) for name in (*rest, *(conv.inputs[1:] if conv is not None else ()))]
    known = [p for p in parameters if p is not None]
    if conv is None or view.reads[source] != 1 or len(known) != len(parameters):
        return None
    scale, bias, mean, variance, weight, *old = known
    epsilon = node.attributes.get("epsilon", 1e-5)
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    before = old[0].astype(np.float64) if old else 0.0
    names = f"{node.outputs[0]}.weight", f"{node.outputs[0]}.bias"
    wide = weight.astype(np.float64) * factor.reshape(-1, *(1,) * (weight.ndim - 1))
    view.constants[names[0]] = wide.astype(weight.dtype)
    view.constants[names[1]] = ((before - mean) * factor + bias).astype(weight.dtype)
    return replace(conv, inputs=(conv.inputs[0], *names), outputs=node.outputs[:1])


# --- activations -------------------------------------------------------------------------------------------------------


def _swish(view: _View, node: Node) -> Node | None:
    """x * sigmoid(x), and x * clip(x / 6 + 1 / 2, 0, 1)."""
    if node.op != "Mul":
        return None
    for x, gate in view.either(node):
        if (s := view.maker(gate, "Sigmoid")) is not None and s.inputs == (x,):
            return replace(node, op="Swish", inputs=(x,), attributes={})
        h = view.maker(gate, "HardSigmoid")
        if h is not None and h.inputs == (x,):
            alpha, beta = h.attributes.get("alpha", 0.2), h.attributes.get("beta", 0.5)
            if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
                return replace(node, op="HardSwish", inputs=(x,), attributes={})
    return None


def _hard_swish(view: _View, node: Node) -> Node | None:
    """x * clip(x + 3, 0, 6) / 6, in the orders in which it is spelled."""
    product = node
    scaled = False
    if node.op in ("Div", "Mul"):
        for inner, number in view.either(node) if node.op == "Mul" else [node.inputs]:
            if view.is_number(number, 6.0 if node.op == "Div" else 1 / 6):
                found = view.maker(inner, "Mul")
                if found is not None:
                    product, scaled = found, True
    if product.op != "Mul":
        return None
    for x, gate in view.either(product):
        clip = view.maker(gate, "Clip")
        if clip is None and not scaled:
            part = view.maker(gate, "Div", "Mul")
            if part is not None and view.is_number(part.inputs[1], 6.0 if part.op == "Div" else 1 / 6):
                clip = view.maker(part.inputs[0], "Clip")
            inner_scaled = clip is not None
        else:
            inner_scaled = False
        if clip is None or not (scaled or inner_scaled) or len(clip.inputs) != 3:
            continue
        added = view.maker(clip.inputs[0], "Add")
        if view.number(clip.inputs[1]) != 0.0 or not view.is_number(clip.inputs[2], 6.0) or added is None:
            continue
        if any(a == x and view.is_number(b, 3.0) for a, b in view.either(added)):
            return replace(node, op="HardSwish", inputs=(x,), attributes={})
    return None


def _gelu(view: _View, node: Node) -> Node | None:
    """x * (1 + erf(x / sqrt(2))) / 2: three factors, in any order."""
    if node.op != "Mul":
        return None
    factors = _factors(view, node, 3)
    halves = [f for f in factors if view.is_number(f, 0.5)]
    others = [f for f in factors if f not in halves]
    if len(halves) != 1 or len(others) != 2:
        return None
    for x, gate in (others, others[::-1]):
        added = view.maker(gate, "Add")
        if added is None:
            continue
        for one, inner in view.either(added):
            erf = view.maker(inner, "Erf") if view.is_number(one, 1.0) else None
            if erf is None:
                continue
            part = view.maker(erf.inputs[0], "Div", "Mul")
            if part is None:
                continue
            wanted = sqrt(2) if part.op == "Div" else sqrt(0.5)
            pairs = view.either(part) if part.op == "Mul" else [part.inputs]
            if any(a == x and view.is_number(b, wanted) for a, b in pairs):
                return replace(node, op="Gelu", inputs=(x,), attributes={})
    return None


def _factors(view: _View, node: Node, most: int) -> list[str]:
    """The factors of a product of products, up to so many."""
    found = list(node.inputs)
    for k, name in enumerate(node.inputs):
        inner = view.maker(name, "Mul")
        if inner is not None and len(found) < most:
            found[k : k + 1] = inner.inputs
            break
    return found


def _flat_softmax(view: _View, node: Node) -> Node | None:
    """A softmax over all axes from one on, as one of opset 11 is converted: flat, and in its shape again."""
    softmax = view.inner(node.inputs[0], "Softmax") if node.op == "Reshape" else None
    flat = view.inner(softmax.inputs[0], "Flatten") if softmax is not None else None
    if softmax is None or flat is None or softmax.attributes.get("axis", -1) not in (-1, 1):
        return None
    shape = view.maker(node.inputs[1], "Shape")
    if shape is None or shape.inputs != flat.inputs or shape.attributes.get("start") or shape.attributes.get("end"):
        return None
    attributes = {"axis": flat.attributes.get("axis", 1)}
    return Node(FLAT_SOFTMAX, flat.inputs, node.outputs, attributes, node.place)


# --- norms -------------------------------------------------------------------------------------------------------------


def _layer_norm(view: _View, node: Node) -> Node | None:
    """(x - mean) / sqrt(mean((x - mean)²) + ε) * scale + bias over the last dimension."""
    if node.op != "Add":
        return None
    for product, bias in view.either(node):
        multiplied = view.maker(product, "Mul")
        for normed, scale in view.either(multiplied) if multiplied is not None else ():
            found = _normalized(view, normed)
            vectors = [view.constants.get(v) for v in (scale, bias)]
            if found is None or any(v is None or v.ndim != 1 for v in vectors):
                continue
            x, epsilon = found
            return replace(
                node, op="LayerNormalization", inputs=(x, scale, bias), attributes={"axis": -1, "epsilon": epsilon}
            )
    return None


def _normalized(view: _View, name: str) -> tuple[str, float] | None:
    """The value that is normalized over its last dimension, and ε."""
    quotient = view.maker(name, "Div")
    if quotient is None:
        return None
    centred, root = view.maker(quotient.inputs[0], "Sub"), view.maker(quotient.inputs[1], "Sqrt")
    added = view.maker(root.inputs[0], "Add") if root is not None else None
    if centred is None or added is None:
        return None
    x, mean = centred.inputs
    if not _is_mean(view, mean, x):
        return None
    for variance, number in view.either(added):
        epsilon = view.number(number)
        mean_of = view.maker(variance, "ReduceMean")
        if epsilon is None or mean_of is None or not _is_mean(view, variance, mean_of.inputs[0]):
            continue
        square = view.maker(mean_of.inputs[0], "Pow", "Mul")
        if square is None:
            continue
        base, other = square.inputs
        is_square = view.number(other) == 2.0 if square.op == "Pow" else base == other
        difference = view.maker(base, "Sub")
        if is_square and difference is not None and difference.inputs == centred.inputs:
            return x, epsilon
    return None


def _is_mean(view: _View, name: str, of: str) -> bool:
    """Whether it is the mean of a value over its last dimension, which is kept."""
    node = view.maker(name, "ReduceMean")
    if node is None or node.inputs[0] != of or node.attributes.get("keepdims", 1) != 1:
        return False
    given = view.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    axes: Sequence[int] = node.attributes.get("axes") or ([] if given is None else given.reshape(-1).tolist())
    return list(axes) == [-1]


# --- attention ---------------------------------------------------------------------------------------------------------

_FIXED = (
    "Sqrt",
    "Cast",
    "Div",
    "Mul",
    "Reciprocal",
    "Pow",
    "Gather",
    "Slice",
    "Squeeze",
    "Unsqueeze",
    "Constant",
    "Shape",
)
"""Operators by which exporters compute the scale of scores from a shape."""


def _attention(view: _View, node: Node) -> Node | None:
    """softmax(Q · K, changed element by element) · V, with the transpositions of Q, K and V.

    The inputs of the new node are Q, K, V and the other operands of the changes.
    """
    softmax = view.inner(node.inputs[0], "Softmax", FLAT_SOFTMAX) if node.op == "MatMul" else None
    found = _scores(view, softmax.inputs[0], 4) if softmax is not None else None
    if softmax is None or found is None:
        return None
    product, changes = found
    q, k, v = (_factor(view, name) for name in (*product.inputs, node.inputs[1]))
    ranks = {len(f.order) for f in (q, k, v) if f.order}
    lines = {r - 1 for r in ranks}
    if softmax.op == "Softmax":
        lines.add(-1)
    axis = softmax.attributes.get("axis", -1)
    if v.scales or len(ranks) > 1 or axis not in lines:
        return None
    inputs = [q.name, k.name, v.name]
    steps: list[tuple[str, tuple[int, ...]]] = []
    for op, operands in (*q.scales, *k.scales, *changes):
        places: list[int] = []
        for name in operands:
            places.append(len(inputs) if name else -1)
            inputs += [name] if name else []
        steps.append((op, tuple(places)))
    form = AttentionForm(q.order, k.order, v.order, (), tuple(steps), axis, len(q.scales) + len(k.scales))
    return Node(ATTENTION, tuple(inputs), node.outputs, {"form": form}, node.place)


def _attention_transposed(view: _View, node: Node) -> Node | None:
    """The transposition of the result of an attention goes into it."""
    inner = view.inner(node.inputs[0], ATTENTION) if node.op == "Transpose" else None
    order = node.attributes.get("perm")
    if inner is None or not order or inner.attributes["form"].result:
        return None
    form = replace(inner.attributes["form"], result=tuple(order))
    return replace(inner, outputs=node.outputs, attributes={"form": form})


def _ordered_attention(view: _View, node: Node) -> Node | None:
    """The operator Attention takes in the transpositions of its operands and of its result, as `orders` and `result`."""
    if node.op == "Attention" and "orders" not in node.attributes and not any(node.outputs[1:]):
        found = [_factor(view, name, scaled=False) for name in node.inputs[:3]]
        if "q_num_heads" in node.attributes or any(node.inputs[4:6]) or {len(f.order) for f in found} - {0, 4}:
            return None
        orders = [f.order or (0, 1, 2, 3) for f in found]
        inputs = (*(f.name for f in found), *node.inputs[3:])
        return replace(node, inputs=inputs, attributes={**node.attributes, "orders": orders})
    inner = view.inner(node.inputs[0], "Attention") if node.op == "Transpose" else None
    order = node.attributes.get("perm")
    if inner is None or "orders" not in inner.attributes or "result" in inner.attributes or not order:
        return None
    return replace(inner, outputs=node.outputs, attributes={**inner.attributes, "result": tuple(order)})


_Change = tuple[str, tuple[str, ...]]
"""An operator on scores, which are "" among its operands."""


def _scores(view: _View, name: str, most: int) -> tuple[Node, list[_Change]] | None:
    """The product that scores are made of, and what is done to its elements, the first change first."""
    product = view.inner(name, "MatMul")
    if product is not None or most == 0:
        return None if product is None else (product, [])
    node = view.inner(name, "Mul", "Add", "Div", "Where")
    for k in {"Mul": (0, 1), "Add": (0, 1), "Div": (0,), "Where": (1, 2)}[node.op] if node is not None else ():
        assert node is not None
        found = _scores(view, node.inputs[k], most - 1)
        if found is not None:
            product, changes = found
            return product, [*changes, (node.op, (*node.inputs[:k], "", *node.inputs[k + 1 :]))]
    return None


@frozen
class _Factor:
    """A factor of a product: the value, the order in which its axes are taken, and what scales it."""

    name: str
    order: tuple[int, ...]
    scales: tuple[_Change, ...]


def _factor(view: _View, name: str, scaled: bool = True) -> _Factor:
    order: tuple[int, ...] = ()
    scales: list[_Change] = []
    while (node := view.maker(name, "Transpose", "Mul", "Div")) is not None:
        if node.op == "Transpose":
            taken = node.attributes.get("perm")
            if not taken or (order and len(order) != len(taken)):
                break
            order = tuple(taken[k] for k in order) if order else tuple(taken)
            name = node.inputs[0]
        elif scaled and _is_fixed(view, node.inputs[1], 8):
            scales.append((node.op, ("", node.inputs[1])))
            name = node.inputs[0]
        else:
            break
    return _Factor(name, order, tuple(scales))


def _is_fixed(view: _View, name: str, most: int) -> bool:
    """Whether it is a number, or computed from shapes alone, as such numbers are."""
    if view.number(name) is not None:
        return True
    node = view.maker(name, *_FIXED)
    if node is None or most == 0:
        return False
    return node.op == "Shape" or all(i in view.constants or _is_fixed(view, i, most - 1) for i in node.inputs if i)


REWRITES: tuple[Rewrite, ...] = (
    _batch_norm, _swish, _hard_swish, _gelu, _layer_norm, _flat_softmax, _attention, _attention_transposed,
    _ordered_attention,
)  # fmt: skip

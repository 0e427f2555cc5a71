"""Recurrent layers: one compute, in which a scan carries the states of all directions.

The states before the first step are element 0 of the scan, so step `t` reads input `t - 1`.
https://onnx.ai/onnx/operators/onnx__LSTM.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.graph import Tensor, Unsupported, literal
from tensorc_dsl.graph.operators.lowering import Lowered, Operand, Site, Writer

Activation = Callable[[str], str]


def _activations(site: Site, default: Sequence[str]) -> list[Activation]:
    """The functions of the gates. The directions of a layer have the same ones."""
    names: list[str] = site.attribute("activations") or [*default]
    count = len(default)
    if any(names[k] != names[k % count] for k in range(len(names))):
        raise Unsupported("directions with other activations")
    alphas: list[float] = [*site.attribute("activation_alpha", ())]
    betas: list[float] = [*site.attribute("activation_beta", ())]

    def number(values: list[float], default: float) -> str:
        return literal(np.float32(values.pop(0) if values else default), "f32")

    found: list[Activation] = []
    for name in names[:count]:
        match name.lower():
            case "sigmoid" | "tanh" as f:
                found.append(lambda x, f=f: f"{f}({x})")
            case "relu":
                found.append(lambda x: f"max({x}, 0.0)")
            case "hardsigmoid":
                a, b = number(alphas, 0.2), number(betas, 0.5)
                found.append(lambda x, a=a, b=b: f"clamp({x} * {a} + {b}, 0.0, 1.0)")
            case "affine":
                a, b = number(alphas, 1.0), number(betas, 0.0)
                found.append(lambda x, a=a, b=b: f"(({x}) * {a} + {b})")
            case "softsign":
                found.append(lambda x: f"(({x}) / (1.0 + abs({x})))")
            case "softplus":
                found.append(lambda x: f"(max({x}, 0.0) + log1p(exp(-abs({x}))))")
            case other:
                raise Unsupported(f"the activation {other}")
    clip = site.attribute("clip")
    if clip is not None:
        bound = literal(np.float32(clip), "f32")
        # What enters the gates is bounded, and not the cell behind them, as in ONNX Runtime.
        found[:2] = [lambda x, f=f: f(f"clamp({x}, -{bound}, {bound})") for f in found[:2]]
    return found


@frozen
class _Layer:
    """The sizes of a layer, and the texts of what its gates read."""

    site: Site
    steps: int
    batch: int
    hidden: int
    directions: int
    lengths: bool
    batch_first: bool
    direction: str

    def of_direction(self, d: str, forward: str, back: str) -> str:
        """One of two texts by the direction `d`."""
        if self.direction == "bidirectional":
            return forward if forward == back else f"({forward} if {d} == 0 else {back})"
        return back if self.direction == "reverse" else forward

    def at(self, t: str) -> str:
        """The place in the input of step `t` in direction `d`; and of an input in the steps."""
        last = f"clamp(L[b], 0, {self.steps}) - 1" if self.lengths else str(self.steps - 1)
        back = f"{last} - {t}"
        return self.of_direction("d", t, f"clamp({back}, 0, {self.steps - 1})" if self.lengths else back)

    def kept(self, step: str, before: str) -> str:
        """The value of a step, or beyond the end of a sequence that before."""
        return f"({step}) if i32(t) <= i32(L[b]) else {before}" if self.lengths else step

    def pre(self, gate: int, state: str) -> str:
        """What comes into a gate, but for its biases of the state: of the input and of the state before."""
        row = f"n + {gate * self.hidden}" if gate else "n"
        return f"G[t - 1, d, b, {row}] + (sum[k in {self.hidden}] R[d, {row}, k] * {state})"

    @property
    def result(self) -> Tensor:
        shape = (self.steps, self.directions, self.batch, self.hidden)
        return Tensor("f32", (self.batch, self.steps, self.directions, self.hidden) if self.batch_first else shape)

    @property
    def state(self) -> Tensor:
        shape = (self.directions, self.batch, self.hidden)
        return Tensor("f32", (self.batch, self.directions, self.hidden) if self.batch_first else shape)

    def state_at(self, name: str) -> str:
        """An element of an initial state or of a last one."""
        return f"{name}[b, d, n]" if self.batch_first else f"{name}[d, b, n]"

    def head(self, name: str, *extra: str) -> str:
        """The left side of the scan."""
        rest = [f"d in {self.directions}", *extra, f"b in {self.batch}", f"n in {self.hidden}"]
        return f"let {name}[t in {self.steps + 1}, {', '.join(rest)}]"

    def ends(self, states: Sequence[tuple[str, str]], stem: str) -> Lowered:
        """The compute with the outputs that the node names. The first state is also the result of each step."""
        ranges = f"d in {self.directions}, b in {self.batch}, n in {self.hidden}"
        results: list[tuple[str, Tensor]] = []
        first = states[0][1]
        if self.site.wants(0):
            index = f"{self.at('t')} + 1"
            value = first.replace("T", index)
            if self.lengths:
                value = f"{value} if i32(t) < i32(L[b]) else 0.0"
            names = f"b in {self.batch}, t in {self.steps}, d in {self.directions}, n in {self.hidden}"
            if not self.batch_first:
                names = f"t in {self.steps}, {ranges}"
            self.site.stage(f"Y[{names}] = {value}")
            results.append(("Y", self.result))
        for n, (name, source) in enumerate(states, 1):
            if self.site.wants(n):
                names = f"b in {self.batch}, d in {self.directions}, n in {self.hidden}" if self.batch_first else ranges
                self.site.stage(f"{name}[{names}] = {source.replace('T', str(self.steps))}")
                results.append((name, self.state))
        return self.site.computed(stem, *results)


def _layer(site: Site, gates: int) -> _Layer:
    """The layer of a node, with its parameters, and the stage `G`: what the input and the biases give to each gate."""
    x, w, r, bias, lengths = site.given(0), site.given(1), site.given(2), site.optional(3), site.optional(4)
    if x.dtype != "f32" or x.type.rank != 3:
        raise Unsupported(f"an input {x.type}")
    batch_first = bool(site.attribute("layout", 0))
    batch, steps = x.shape[:2] if batch_first else x.shape[1::-1]
    directions, hidden = w.shape[0], r.shape[-1]
    direction = site.word("direction", "forward", "reverse", "bidirectional")
    width = x.shape[2]
    count = 2 if direction == "bidirectional" else 1
    shapes = (count, gates * hidden, width), (count, gates * hidden, hidden)
    if (w.shape, r.shape) != shapes or site.attribute("hidden_size", hidden) != hidden:
        raise Unsupported(f"weights {w.type} and {r.type}")
    if lengths is not None and lengths.value is not None and (lengths.value >= steps).all():
        lengths = None
    layer = _Layer(site, steps, batch, hidden, directions, lengths is not None, batch_first, direction)
    site.parameter("X", x)
    site.parameter("W", w)
    site.parameter("R", r)
    if lengths is not None:
        site.parameter("L", lengths, (batch,))
    at = layer.at("t")
    source = f"X[b, {at}, k]" if batch_first else f"X[{at}, b, k]"
    product = f"sum[k in {width}] W[d, m, k] * {source}"
    if bias is not None:
        site.parameter("B", bias, (count, 2 * gates * hidden))
    biased = "B[d, m] + " if bias is not None else ""
    site.stage(f"let G[t in {steps}, d in {directions}, b in {batch}, m in {gates * hidden}] = {biased}({product})")
    return layer


def _first(site: Site, layer: _Layer, name: str, o: Operand | None) -> str:
    """An initial state, which is 0 if it is left out."""
    if o is None:
        return "0.0"
    site.parameter(name, o, layer.state.shape)
    return layer.state_at(name)


def _lstm(site: Site) -> Lowered:
    layer = _layer(site, 4)
    f, g, h = _activations(site, ("Sigmoid", "Tanh", "Tanh"))
    bias, peep = site.optional(3) is not None, site.optional(7)
    starts = _first(site, layer, "H", site.optional(5)), _first(site, layer, "C", site.optional(6))
    size = layer.hidden
    if peep is not None:
        site.parameter("P", peep, (layer.directions, 3 * size))

    def row(gate: int) -> str:
        return f"n + {gate * size}" if gate else "n"

    def pre(gate: int, cell: str, peephole: int) -> str:
        text = layer.pre(gate, "Z[t - 1, d, 0, b, k]") + (f" + B[d, {row(gate + 4)}]" if bias else "")
        if peep is not None and peephole >= 0:
            text += f" + P[d, {row(peephole)}] * {cell}"
        return f"({text})"

    before = "Z[t - 1, d, 1, b, n]"
    enter = f(pre(0, before, 0))
    forget = f"(1.0 - {enter})" if site.attribute("input_forget", 0) else f(pre(2, before, 2))
    cell = f"({forget} * {before} + {enter} * {g(pre(3, before, -1))})"
    out = f"{f(pre(1, cell, 1))} * {h(cell)}"
    start = starts[0] if starts == ("0.0", "0.0") else f"{starts[0]} if s == 0 else {starts[1]}"
    step = layer.kept(f"{out} if s == 0 else {cell}", "Z[t - 1, d, s, b, n]")
    site.stage(f"{layer.head('Z', 's in 2')} = scan[t] init {start} step {step}")
    return layer.ends((("Yh", "Z[T, d, 0, b, n]"), ("Yc", "Z[T, d, 1, b, n]")), "lstm")


def _gru(site: Site) -> Lowered:
    layer = _layer(site, 3)
    f, g = _activations(site, ("Sigmoid", "Tanh"))
    bias, size = site.optional(3) is not None, layer.hidden
    start = _first(site, layer, "H", site.optional(5))

    def gate(number: int, index: str) -> str:
        row = f"{index} + {number * size}" if number else index
        product = f"sum[q in {size}] R[d, {row}, q] * Z[t - 1, d, b, q]"
        return f"(G[t - 1, d, b, {row}] + ({product})" + (f" + B[d, {index} + {(number + 3) * size}])" if bias else ")")

    own = f"n + {2 * size}"
    added = f" + B[d, n + {5 * size}]" if bias else ""
    if site.attribute("linear_before_reset", 0):
        product = f"(sum[k in {size}] R[d, {own}, k] * Z[t - 1, d, b, k])"
        inner = f"(G[t - 1, d, b, {own}] + {f(gate(1, 'n'))} * ({product}{added}))"
    else:
        product = f"(sum[k in {size}] R[d, {own}, k] * Z[t - 1, d, b, k] * {f(gate(1, 'k'))})"
        inner = f"(G[t - 1, d, b, {own}] + {product}{added})"
    update = f(gate(0, "n"))
    step = f"(1.0 - {update}) * {g(inner)} + {update} * Z[t - 1, d, b, n]"
    site.stage(f"{layer.head('Z')} = scan[t] init {start} step {layer.kept(step, 'Z[t - 1, d, b, n]')}")
    return layer.ends((("Yh", "Z[T, d, b, n]"),), "gru")


def _rnn(site: Site) -> Lowered:
    layer = _layer(site, 1)
    (f,) = _activations(site, ("Tanh",))
    start = _first(site, layer, "H", site.optional(5))
    added = f" + B[d, n + {layer.hidden}]" if site.optional(3) is not None else ""
    step = layer.kept(f(f"({layer.pre(0, 'Z[t - 1, d, b, k]')}{added})"), "Z[t - 1, d, b, n]")
    site.stage(f"{layer.head('Z')} = scan[t] init {start} step {step}")
    return layer.ends((("Yh", "Z[T, d, b, n]"),), "rnn")


TABLE: Mapping[str, Writer] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}

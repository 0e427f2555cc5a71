"""Brings a graph to calls of computes: sizes are fixed, constants folded, and each node that is left is written out.

One pass in the order of the nodes does this, since each step needs the one before: the type of a value is that of the compute
which makes it, and a shape that a node asks for is a constant by the time it is needed. Then the axes of all values come into
the order in which they lie in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tensorc_dsl.base.diagnostic import Note, TschedError, problem
from tensorc_dsl.graph.calls import Asks, Computes, Imported, Step, without_redundant_views
from tensorc_dsl.graph.control import CONTROL
from tensorc_dsl.graph.expanding import EXPANSIONS, Expansion
from tensorc_dsl.graph.folding import EVALUATORS, fold
from tensorc_dsl.graph.graph import (
    MOST_ELEMENTS,
    RANDOM,
    REASON,
    Array,
    Asked,
    Graph,
    Node,
    Tensor,
    Unsupported,
    anchor,
    copied,
    onnx_dtype,
    type_of,
)
from tensorc_dsl.graph.layouts import with_layouts
from tensorc_dsl.graph.onnx_file import body_of, has_body, require_asked, require_types
from tensorc_dsl.graph.operators import (
    elementwise,
    lookups,
    movement,
    products,
    recurrent,
    reductions,
    sampling,
    windows,
)
from tensorc_dsl.graph.operators.halves import in_single
from tensorc_dsl.graph.operators.lowering import Computed, Definition, Known, Operand, Site, Viewed, Writer
from tensorc_dsl.graph.rewriting import rewritten
from tensorc_dsl.graph.runtime_operators import RUNTIME

TABLE: Mapping[str, Writer] = {
    **elementwise.TABLE,
    **lookups.TABLE,
    **movement.TABLE,
    **products.TABLE,
    **recurrent.TABLE,
    **reductions.TABLE,
    **sampling.TABLE,
    **windows.TABLE,
}
"""Which function writes which operator."""

_EXACT = frozenset(
    (
        *movement.TABLE,
        *elementwise.CONVERSIONS,
        *"Compress Gather GatherElements GatherND OneHot TensorScatter TopK".split(),
    )
)
"""Operators that round nothing, or say by themselves what they round to."""

_WRITERS: Mapping[str, Writer] = {
    op: write if op in _EXACT else in_single(write, reductions.SINGLE.get(op, frozenset()))
    for op, write in (
        *TABLE.items(),
        (products.ATTENTION, products.attention),
        (products.ROTATION, products.rotation),
        (products.GROUPED, products.grouped),
        (reductions.FLAT_SOFTMAX, partial(reductions.softmax, False, True)),
    )
}

_ASKS: Mapping[str, Asks] = {
    **dict.fromkeys(windows.CONVOLUTIONS, Asks.LAST),
    **dict.fromkeys(windows.POOLS, Asks.RATHER_LAST),
    **dict.fromkeys((*products.TABLE, products.ATTENTION, *recurrent.TABLE), Asks.FILE),
}
"""What operators ask of the order of axes; the others ask nothing."""


@problem(
    "E0941", "{count} of the model cannot be imported", help="export the model without them, or leave the part out"
)
def UNSUPPORTED(*, count: str) -> None: ...
@problem("E0942", "the size {dims} of the input `{name}` is open", help="give it: `--shape {name}={example}`")
def OPEN_SIZE(*, name: str, dims: str, example: str) -> None: ...
@problem("E0942", "the shape {given} does not fit the input `{name}`, which is {wanted}", help="{repair}")
def OTHER_SHAPE(*, name: str, given: str, wanted: str, repair: str) -> None: ...


def import_graph(graph: Graph, shapes: Mapping[str, Sequence[int]], values: Mapping[str, int | float]) -> Imported:
    """The graph with inputs of these shapes, and scalar inputs of these values.

    Raises TschedError: E0942 if a size stays open or does not fit, E0941 with every node that is not supported.
    """
    given, graph = graph, rewritten(graph)
    try:
        types = _input_types(given, shapes, values)
    except TschedError:
        # Sizes are of no use to a model with operators that no sizes make known.
        unknown = [(f"`{n.place}` ({n.op})", _why(n)) for n in graph.nodes if not _is_known(n.op)]
        if unknown:
            raise _unsupported(unknown) from None
        raise
    worker = _Importer(dict(graph.constants), graph.opset)
    for name, type_ in types.items():
        if name in values:
            worker.constants[name] = np.full(type_.shape, values[name], onnx_dtype(type_.dtype))
        else:
            worker.types[name] = type_
    worker.run(graph.nodes)
    worker.require(given.traced)
    for name in worker.sequences.keys() & graph.outputs:
        worker.refused.append((f"the output `{name}`", "a sequence: name its elements as outputs"))
    if worker.refused:
        raise _unsupported(worker.refused)
    inputs = {name: t for name, t in types.items() if name not in values}
    return with_layouts(worker.imported(inputs, graph.outputs))


def _unsupported(refused: Sequence[tuple[str, str]]) -> TschedError:
    """The error with all nodes that are refused, each with its reason."""
    notes = tuple(Note("note", f"{place}: {reason}") for place, reason in refused)
    return TschedError(UNSUPPORTED(None, notes, count=f"{len(refused)} node{'s' * (len(refused) != 1)}"))


def _input_types(
    graph: Graph, shapes: Mapping[str, Sequence[int]], values: Mapping[str, int | float]
) -> dict[str, Tensor]:
    """The types of the inputs. A dimension with a name has the same size in all inputs."""
    found: list[Exception] = []
    unknown = [n for n in (*shapes, *values) if n not in graph.inputs]
    for name in unknown:
        wanted = ", ".join(graph.inputs) or "none"
        raise TschedError(OTHER_SHAPE(None, name=name, given=str(list(shapes.get(name, ()))), wanted="none of the model",
                                      repair=f"its inputs are {wanted}"))  # fmt: skip
    named: dict[str, int] = {}
    for name, (_, dims) in graph.inputs.items():
        given = shapes.get(name)
        if given is None or dims is None:
            continue
        if len(given) != len(dims) or any(isinstance(d, int) and d != g for d, g in zip(dims, given, strict=True)):
            wanted = f"[{', '.join('?' if d is None else str(d) for d in dims)}]"
            repair = "give as many sizes as it has dimensions, and those that it has"
            raise TschedError(OTHER_SHAPE(None, name=name, given=str(list(given)), wanted=wanted, repair=repair))
        for d, g in zip(dims, given, strict=True):
            if isinstance(d, str):
                named.setdefault(d, g)
    types: dict[str, Tensor] = {}
    for name, (dtype, dims) in graph.inputs.items():
        shape = shapes.get(name) or [named.get(d, d) if isinstance(d, str) else d for d in dims or ()]
        missing = [d for d in shape if not isinstance(d, int)]
        is_open = dims is None and name not in shapes
        if (missing or is_open) and name not in values:
            shown = " and ".join("without a name" if d is None else f"`{d}`" for d in missing) or "of each dimension"
            example = ",".join(str(d) if isinstance(d, int) else "1" for d in shape) or "1,1"
            found.append(TschedError(OPEN_SIZE(None, name=name, dims=shown, example=example)))
        types[name] = Tensor(dtype, tuple(d if isinstance(d, int) else 1 for d in shape))
    if found:
        raise TschedError(*(d for e in found if isinstance(e, TschedError) for d in e.diagnostics))
    return types


_UNKNOWN = "this operator is not supported"
_SIZED_BY_DATA = "the size of its result depends on data: leave it out, and compute it of the outputs of the model"

_REASONS: Mapping[str, str] = {
    **dict.fromkeys(("NonZero", "NonMaxSuppression", "Unique"), _SIZED_BY_DATA),
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"), RANDOM
    ),
    "Range": "its bounds are computed: give the inputs that tell them values with `--set`",
}
"""Why operators are not supported where their inputs are no constants, and what to do."""


def _why(node: Node) -> str:
    """Why the operator of a node is not supported."""
    return node.attributes.get(REASON) or _REASONS.get(node.op, _UNKNOWN)


_EXPANSIONS = {**EXPANSIONS, **RUNTIME}


def _require_inputs(site: Site, passed_on: Collection[int] = ()) -> None:
    """Raise Unsupported if the translation of a node did not ask for each input, and passed it on to no other node."""
    ignored = [n + 1 for n, o in enumerate(site.operands) if o is not None and n not in site.asked.union(passed_on)]
    if ignored:
        raise Unsupported(f"its input {' and '.join(map(str, ignored))} is not supported in this form of it")


_NO_MATTER: Mapping[str, frozenset[str]] = {
    op: frozenset(names.split())
    for op, names in {
        "Attention": "kv_num_heads q_num_heads qk_matmul_output_mode softmax_precision",
        "AveragePool": "count_include_pad",
        "BatchNormalization": "momentum",
        "Cast": "round_mode saturate",  # of floats of 8 bits
        "CastLike": "round_mode saturate",
        "Dropout": "seed",
        "Gemm": "beta",
        "GroupNormalization": "stash_type",
        "LayerNormalization": "stash_type",
        "QuantizeLinear": "precision saturate",
        "RMSNormalization": "stash_type",
        "Range": "stash_type",
        "Resize": "cubic_coeff_a exclude_outside extrapolation_value",
        "SequenceEmpty": "dtype",
        "TopK": "sorted",
    }.items()
}
"""Attributes that change no result beyond a rounding, or none in those forms of an operator whose translation does not ask
for them."""


_TOLD = ("Shape", "Size")
"""Operators of the types of their inputs."""


def _is_known(op: str) -> bool:
    """Whether there are inputs for which the operator is supported."""
    tables = (_WRITERS, EVALUATORS, _EXPANSIONS, CONTROL, _TOLD)
    return any(op in known for known in tables) or (op not in _REASONS and has_body(op))


@dataclass(slots=True)
class _Importer:
    constants: dict[str, Array]
    opset: int
    types: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    calls: dict[int, tuple[Computed, Computed]] = field(default_factory=dict[int, tuple[Computed, Computed]])
    """For the number of a step what it calls, and that with numbers as parameters."""
    steps: list[Step] = field(default_factory=list[Step])
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    sequences: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    _same: dict[str, str] = field(default_factory=dict[str, str])
    """Values that are others by another name."""
    _lost: set[str] = field(default_factory=set[str])
    """Values of nodes that are refused, and those that need them."""

    def run(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if self.is_lost(node.inputs):
                self.lose(node)
                if not _is_known(node.op):
                    self.refused.append((f"`{node.place}` ({node.op})", _why(node)))
                continue
            try:
                self._node(node)
            except Unsupported as e:
                self.refused.append((f"`{node.place}` ({node.op})", str(e)))
                self.lose(node)
            except (ValueError, IndexError, KeyError, TypeError, ArithmeticError) as e:
                # A rank, a number of outputs or an attribute that no such operator has.
                self.refused.append((f"`{node.place}` ({node.op})", f"inputs or attributes that do not fit it: {e}"))
                self.lose(node)

    def require(self, traced: Mapping[str, tuple[str, Tensor]]) -> None:
        """Refuse values of other types than they had when they were traced; of those in a row, the first."""
        for name, (place, wanted) in traced.items():
            made = self.type(name)
            if made is not None and made != wanted and not self.refused:
                self.refused.append(
                    (f"`{place}`", f"it is {made} as it is translated, and was {wanted} when it was traced")
                )

    # --- what control flow asks for (`control.Runner`) ---

    def store(self, name: str, value: Array) -> None:
        self.constants[name] = value

    def constant(self, name: str) -> Array | None:
        return self.constants.get(self._same.get(name, name))

    def type(self, name: str) -> Tensor | None:
        value, source = self.constant(name), self._same.get(name, name)
        return self.types.get(source) if value is None else type_of(value)

    def is_lost(self, names: Sequence[str]) -> bool:
        return not self._lost.isdisjoint(names)

    def lose(self, node: Node) -> None:
        self._lost |= {*node.outputs} - {""}

    # --- nodes ---

    def _node(self, node: Node) -> None:
        inputs = tuple(self._same.get(i, i) for i in node.inputs)
        attributes = Asked(node.attributes)
        self._translate(replace(node, inputs=inputs, attributes=attributes))
        require_asked(node, attributes.names | {REASON} | _NO_MATTER.get(node.op, frozenset()), self.opset)

    def _translate(self, node: Node) -> None:
        inputs = node.inputs
        if node.op in _TOLD:
            self._told(node)
            return
        if node.op in CONTROL:
            CONTROL[node.op](self, node)
            return
        if node.op == "Identity" and inputs[0] in self.sequences:
            self.sequences[node.outputs[0]] = self.sequences[inputs[0]]
            return
        given = [self.constants.get(i) for i in inputs]
        operands = tuple(map(self._operand, inputs))
        if self.opset:
            require_types(node, [None if o is None else o.type for o in operands], self.opset)
        if all(v is not None or not i for v, i in zip(given, inputs, strict=True)):
            made = fold(node, given)
            if made is not None:
                self.constants |= {name: v for name, v in zip(node.outputs, made, strict=False) if name}
                return
        if node.op in _EXPANSIONS:
            made, site = Expansion(node), Site(node, operands)
            _EXPANSIONS[node.op](site, made)
            passed_on = {i for n in made.nodes for i in n.inputs}
            _require_inputs(site, {n for n, i in enumerate(inputs) if i in passed_on})
            self.constants |= made.constants
            self.run(made.nodes)
            return
        if node.op not in _WRITERS:
            self._body(node, operands)
            return
        site = Site(node, operands)
        lowered = _WRITERS[node.op](site)
        _require_inputs(site)
        match lowered:
            case Known(values=values):
                self.constants |= dict(zip(node.outputs, values, strict=False))
            case Viewed(source=source, type=type_):
                self._view(source, node.outputs[0], type_)
            case Computed():
                self._call(node, lowered, operands)

    def _body(self, node: Node, operands: Sequence[Operand | None]) -> None:
        """The nodes by which ONNX says what the operator is."""
        body = None if node.op in _REASONS else body_of(node, [None if o is None else o.type for o in operands])
        if body is None:
            raise Unsupported(_why(node))
        inputs = dict(zip(body.inputs, (*node.inputs, *[""] * len(body.inputs)), strict=False))
        nodes, constants, ends = copied(body, anchor(node), inputs)
        self.constants |= constants
        places = (replace(n, place=node.place) for n in nodes)
        self.run(
            [
                *places,
                *(Node("Identity", (e,), (o,), {}, node.place) for e, o in zip(ends, node.outputs, strict=False) if o),
            ]
        )

    def _told(self, node: Node) -> None:
        """A shape, or a number of elements."""
        x = self._operand(node.inputs[0])
        assert x is not None
        start, end = node.attributes.get("start") or 0, node.attributes.get("end")
        shape = np.array(x.shape, np.int64)
        self.constants[node.outputs[0]] = shape[start:end] if node.op == "Shape" else np.array(x.type.size, np.int64)

    def _operand(self, name: str) -> Operand | None:
        if not name:
            return None
        value = self.constants.get(name)
        if value is None and name not in self.types:
            raise Unsupported(f"`{name}`, which it reads, is no tensor")
        return Operand(name, self.types[name] if value is None else type_of(value), value)

    def _view(self, source: str, name: str, type_: Tensor) -> None:
        if source in self.constants:
            self.constants[name] = self.constants[source].reshape(type_.shape)
        elif self.types[source] == type_:
            self._same[name] = self._same.get(source, source)
            self.types[name] = type_
        else:
            self.steps.append(Step("", (source,), (name,)))
            self.types[name] = type_

    def _call(self, node: Node, made: Computed, operands: Sequence[Operand | None]) -> None:
        for t in made.types:
            if t.size > MOST_ELEMENTS:
                raise Unsupported(f"a result of the type {t}, which is too large")
        # Values without elements are constants.
        results = self._results(node, made)
        self.constants |= {r: np.empty(t.shape, onnx_dtype(t.dtype)) for r, t in zip(results, made.types, strict=True)
                           if r and not t.size}  # fmt: skip
        if not any(t.size for t in made.types):
            return
        made = made.without_empty()
        general = made
        if any(o is not None and o.scalar is not None and o.type.is_float for o in operands):
            others = tuple(replace(o, varies=o.type.is_float) if o is not None else None for o in operands)
            again = _WRITERS[node.op](Site(node, others))
            assert isinstance(again, Computed)
            general = again.without_empty()
        results = [r for r in results if r not in self.constants]
        self.calls[len(self.steps)] = made, general
        self.steps.append(Step("called", (), tuple(results), _ASKS.get(node.op, Asks.NOTHING)))
        self.types |= dict(zip(results, made.types, strict=True))

    def _results(self, node: Node, made: Computed) -> list[str]:
        """The values that a call makes. It leaves out what the node does, or makes all; what the node does not name is ""."""
        named = [o for o in node.outputs if o]
        count = len(made.types)
        return named if len(named) == count else [*node.outputs, *[""] * count][:count]

    def _named(self) -> Computes:
        """Name the computes of all calls. Numbers are literals, but for those that equal nodes have different ones of."""
        literals: dict[Definition, set[Definition]] = {}
        for made, general in self.calls.values():
            literals.setdefault(general.definition, set()).add(made.definition)
        computes = Computes()
        for number, (made, general) in self.calls.items():
            chosen = made if len(literals[general.definition]) == 1 else general
            name = computes.add(chosen.stem, chosen.definition)
            self.steps[number] = replace(self.steps[number], compute=name, arguments=chosen.arguments)
            self.constants |= chosen.tables
        return computes

    def imported(self, inputs: dict[str, Tensor], outputs: Sequence[str]) -> Imported:
        """The calls, without those that no output needs."""
        computes = self._named()
        # A constant that is an output leaves it its name.
        stored = {name: f"{name}/constant" for name in outputs if name in self.constants}
        for name, inner in stored.items():
            self.types[name], self.constants[inner] = type_of(self.constants[name]), self.constants.pop(name)
        self.steps = [replace(s, arguments=tuple(stored.get(a, a) for a in s.arguments)) for s in self.steps]
        self.steps += [Step("", (inner,), (name,)) for name, inner in stored.items()]
        ends: list[str] = []
        for name in outputs:
            source = self._same.get(name, name)
            if source != name or name in inputs or name in ends:
                # An input or another value by a name of its own; an output that the file names twice is two.
                end = f"{name}/output" if source == name else name
                while end in ends or (end != name and end in self.types):
                    end += "/again"
                self.types[end] = self.types[source]
                self.steps.append(Step("", (source,), (end,)))
                ends.append(end)
            else:
                ends.append(name)
        return without_redundant_views(
            Imported(inputs, tuple(ends), self.constants, computes.items, self.steps, self.types)
        )

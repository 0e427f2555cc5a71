"""Reads ONNX files into graphs: the file is checked as one from a stranger, brought to one opset, and its data is read.

The large data of constants stays where it lies in the file: neither the parser nor the converter of opsets copies it.

https://onnx.ai/onnx/repo-docs/IR.html
https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import heapq
import mmap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import repeat
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.outputs import reason
from tensorc_dsl.graph.graph import (
    DTYPES,
    MOST_ELEMENTS,
    REASON,
    Array,
    Dims,
    Graph,
    Node,
    Tensor,
    Unsupported,
    onnx_dtype,
)
from tensorc_dsl.graph.operators.reductions import FLAT
from tensorc_dsl.graph.operators.sampling import SIMPLE
from tensorc_dsl.graph.runtime_operators import OWN, RUNTIME

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        SparseTensorProto,
        TensorProto,
        ValueInfoProto,
    )

OPSET = 18
"""Files of earlier opsets are converted to this one; the operators of the table are as in it, and as in later ones."""

_LARGE = 1024
"""Bytes of a constant from which on its data stays in the file, and the converter of opsets is told its type only."""


@problem("E0940", "`{path}` cannot be imported: {why}", help="{repair}")
def NOT_IMPORTED(*, path: str, why: str, repair: str) -> None: ...


class _Wrong(Exception):
    """What is wrong with a file."""


def read_onnx(path: Path) -> Graph:
    """The graph of an ONNX file. Data outside of it is read if it lies in the folder of the file or below.

    Raises TschedError (E0940) with the reason if `onnx` is not installed, the file cannot be read, or it is no valid model.
    """
    try:
        import onnx
    except ImportError:
        repair = "install it: `pip install 'tensorc-dsl[onnx]'`"
        raise TschedError(
            NOT_IMPORTED(None, path=path.name, why="the package `onnx` is missing", repair=repair)
        ) from None
    repair = "export it again; `onnx.checker.check_model` says more"
    try:
        model, data = _load(onnx, path)
        return _graph_of(model, data, path.parent)
    except _Wrong as e:
        raise TschedError(NOT_IMPORTED(None, path=path.name, why=str(e), repair=repair)) from e
    except OSError as e:
        raise TschedError(NOT_IMPORTED(None, path=path.name, why=reason(e), repair="name another file")) from e


def _load(onnx: Any, path: Path) -> tuple[ModelProto, Mapping[int, memoryview]]:
    """The model without the large data of its constants, and that data by the number of the constant."""
    from google.protobuf.message import DecodeError

    content = _content(path)
    cutter = _Cutter()
    try:
        message = cutter.cut(content)
    except (ValueError, IndexError):  # the parser says what is wrong
        message, cutter = bytes(content), _Cutter()
    model = onnx.ModelProto()
    try:
        model.ParseFromString(message)
    except DecodeError:
        raise _Wrong("it is cut off, or no ONNX file") from None
    _require_text(model)
    if not model.graph.output or not model.opset_import:
        raise _Wrong("there is no graph in it")
    return model, cutter.data


def _require_text(message: Any) -> None:
    """Raise _Wrong if a name in the message, or in one inside it, is no text: protobuf lets it be bytes."""
    for f, value in message.ListFields():
        values = value if f.is_repeated else [value]
        if f.type == f.TYPE_STRING and any(isinstance(v, bytes) for v in values):
            raise _Wrong(f"a `{f.name}` in it is no text in UTF-8")
        if f.message_type is not None:
            for inner in values:
                _require_text(inner)


def _content(path: Path) -> memoryview:
    """The bytes of a file, mapped where that is possible."""
    with path.open("rb") as file:
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (ValueError, OSError):  # it is empty, or a pipe
            return memoryview(file.read())


def _graph_of(model: ModelProto, data: Mapping[int, memoryview], folder: Path) -> Graph:
    from onnx import defs

    _put_in_order(model.graph)
    _require_order(model.graph, frozenset())
    _clear_negative(model.graph)
    reader = _Reader(folder)
    reader.make_dense(model.graph)
    large = _take_large(model, data, reader)
    if model.functions:
        model = _without_functions(model)
    version = next((o.version for o in model.opset_import if o.domain in _STANDARD), OPSET)
    newest = defs.onnx_opset_version()
    if not 1 <= version <= newest:
        raise _Wrong(f"it is of opset {version}, and the package `onnx` here knows 1 to {newest}")
    if version < OPSET:
        model = _converted(model, version)
    reader.opset = max(version, OPSET)
    graph = replace(reader.graph(model.graph), opset=reader.opset)
    graph.constants |= large
    for name in large:
        graph.inputs.pop(name, None)
    return graph


_STANDARD = ("", "ai.onnx")
"""The domains of ONNX's own operators."""


def _clear_negative(graph: GraphProto) -> None:
    """Let sizes below 0 be open: the converter of opsets ends the process on some of them."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for d in value.type.tensor_type.shape.dim:
            if d.dim_value < 0:
                d.ClearField("dim_value")
    for node in graph.node:
        for branch in _branches(node):
            _clear_negative(branch)


_MOST_NODES = 1 << 18
"""The nodes of a model with the bodies of its functions in their places."""


def _without_functions(model: ModelProto) -> ModelProto:
    """The model with the body of each function where it is called. Raises _Wrong if they call each other in a circle."""
    from onnx.inliner import inline_local_functions

    bodies = {(f.domain, f.name): f.node for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(nodes: Iterable[NodeProto], inside: tuple[tuple[str, str], ...]) -> int:
        count = 0
        for n in nodes:
            key = n.domain, n.op_type
            if key in inside:
                raise _Wrong(f"the function `{n.op_type}` calls itself")
            if key in bodies and key not in sizes:
                sizes[key] = size(bodies[key], (*inside, key))
            count += sizes.get(key, 1) + sum(size(g.node, inside) for g in _branches(n))
            if count > _MOST_NODES:
                raise _Wrong(f"its functions make more than {_MOST_NODES} nodes of it")
        return count

    size(model.graph.node, ())
    try:
        return inline_local_functions(model, convert_version=True)
    except (RuntimeError, ValueError, IndexError) as e:
        raise _Wrong(f"its functions cannot be put where they are called: {_last_line(e)}") from e


def _branches(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in the attributes of a node."""
    for a in node.attribute:
        yield from (*((a.g,) if a.HasField("g") else ()), *a.graphs)


def _last_line(e: Exception) -> str:
    lines = str(e).strip().splitlines() or [type(e).__name__]
    return lines[-1]


def _converted(model: ModelProto, version: int) -> ModelProto:
    """The model in the opset `OPSET`, or the nodes of it alone whose operators nobody here knows. Raises _Wrong."""
    from onnx import shape_inference, version_converter

    if version < 9 and any(n.op_type == "Scan" for n in model.graph.node):
        raise _Wrong("`Scan` was another operator before opset 9")
    # What C++ raises: its two own kinds, and those of the standard library, but for a lack of memory.
    kinds = (version_converter.ConvertError, shape_inference.InferenceError, RuntimeError, ValueError, IndexError)

    for node in model.graph.node:
        if node.domain in _STANDARD and node.op_type in RUNTIME:
            node.domain = OWN  # where the converter leaves it alone
    _name_captured(model.graph)
    try:
        made = version_converter.convert_version(model, OPSET)
    except kinds as e:
        foreign = _foreign(model)
        if foreign:
            # What no opset of ONNX has may be all that keeps the converter from its work.
            return foreign
        raise _Wrong(f"opset {version} cannot be converted to {OPSET}: {_last_line(e)}") from e
    _as_before(made.graph, version)
    return made


def _name_captured(graph: GraphProto) -> None:
    """Let bodies read values from outside by names of their own: the converter cannot replace a value that they read."""
    nodes = list(graph.node)
    del graph.node[:]
    for number, node in enumerate(nodes):
        bodies = list(_branches(node))
        for name in sorted({n for b in bodies for n in _captured(b)}):
            held = f"{name}/held {number}"
            graph.node.add(op_type="Identity", input=[name], output=[held])
            for body in bodies:
                _rename(body, name, held)
        for body in bodies:
            _name_captured(body)
        graph.node.append(node)


def _captured(body: GraphProto) -> set[str]:
    """The values that a body reads from outside."""
    own = {*_given(body), *(o for n in body.node for o in n.output)}
    read = {i for n in body.node for i in n.input} | {o.name for o in body.output}
    return (read | {name for n in body.node for b in _branches(n) for name in _captured(b)}) - own - {""}


def _rename(body: GraphProto, name: str, new: str) -> None:
    """Let a body read another value from outside."""
    if name not in _captured(body):
        return
    for node in body.node:
        node.input[:] = [new if i == name else i for i in node.input]
        for inner in _branches(node):
            _rename(inner, name, new)
    for o in body.output:
        if o.name == name:
            o.name = new


def _foreign(model: ModelProto) -> ModelProto | None:
    """A model of the nodes alone whose operators nobody here knows, for `import_graph` to report; None if there are none."""
    from onnx import ModelProto as Model
    from onnx import defs

    nodes = [
        n
        for n in model.graph.node
        if (not defs.has(n.op_type) if n.domain in _STANDARD else f"{n.domain}.{n.op_type}" not in RUNTIME)
    ]
    if not nodes:
        return None
    made = Model(opset_import=model.opset_import)
    made.graph.name = model.graph.name
    made.graph.input.extend(model.graph.input)
    for n in nodes:
        kept = made.graph.node.add(op_type=n.op_type, domain=n.domain, name=n.name)
        kept.output.extend(n.output)
        for o in n.output:
            made.graph.output.add(name=o)
    return made


def _as_before(graph: GraphProto, version: int) -> None:
    """Let nodes be what they were in an opset where the converter leaves them at today's defaults."""
    from onnx import helper

    for node in graph.node:
        if node.op_type == "Resize" and version < 11:
            # What it and Upsample were.
            how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": SIMPLE}
            node.attribute.extend(helper.make_attribute(name, value) for name, value in how.items())
        if node.op_type == "Hardmax" and version < 13:
            named = [a for a in node.attribute if a.name == "axis"]
            node.attribute.extend([] if named else [helper.make_attribute("axis", 1)])
            node.attribute.append(helper.make_attribute(FLAT, 1))
        for branch in _branches(node):
            _as_before(branch, version)


def _take_large(model: ModelProto, data: Mapping[int, memoryview], reader: _Reader) -> dict[str, Array]:
    """The large constants, which become inputs of the model, so that the converter of opsets does not copy them."""
    from onnx import helper

    graph = model.graph
    taken: dict[str, Array] = {}
    kept: list[TensorProto] = []
    inputs = {i.name for i in graph.input}
    for number, t in enumerate(graph.initializer):
        value = reader.tensor(t, data.get(number))
        if value.nbytes < _LARGE:
            kept.append(t)
            continue
        taken[t.name] = value
        if t.name not in inputs:
            graph.input.append(helper.make_tensor_value_info(t.name, t.data_type, t.dims))
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return taken


def _put_in_order(graph: GraphProto) -> None:
    """Put each node behind those that make what it uses, which not all tools do; those of a cycle come last."""
    for node in graph.node:
        for branch in _branches(node):
            _put_in_order(branch)
    makers = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
    needs = [{makers[name] for name in _used(node) if name in makers} for node in graph.node]
    if all(max(some, default=-1) < number for number, some in enumerate(needs)):
        return
    waiting: dict[int, list[int]] = {}
    for number, some in enumerate(needs):
        for maker in some:
            waiting.setdefault(maker, []).append(number)
    missing = [len(some) for some in needs]
    ready = [number for number, count in enumerate(missing) if not count]
    order: dict[int, None] = {}
    while ready:
        number = heapq.heappop(ready)
        order[number] = None
        for other in waiting.get(number, ()):
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, other)
    every = list(graph.node)
    nodes = [every[n] for n in (*order, *(n for n in range(len(every)) if n not in order))]
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _used(node: NodeProto) -> set[str]:
    """What a node and its branches use of the graph around it."""
    used = set(node.input)
    for branch in _branches(node):
        own = {*_given(branch), *(o for n in branch.node for o in n.output)}
        used |= {o.name for o in branch.output}.union(*map(_used, branch.node)) - own
    return used


def _require_order(graph: GraphProto, outer: frozenset[str]) -> None:
    """Raise _Wrong unless each value is named once, and before it is used: then there is no cycle."""
    known = set(outer)
    own: set[str] = set()
    for name in _given(graph):
        if name in own:
            raise _Wrong(f"two values are called `{name}`")
        own.add(name)
    known |= own
    for number, node in enumerate(graph.node):
        place = node.name or f"node {number}"
        for name in node.input:
            if name and name not in known:
                raise _Wrong(
                    f"`{place}` ({node.op_type}) uses `{name}`, which nothing before it makes: it is missing, or in a cycle"
                )
        for branch in _branches(node):
            _require_order(branch, frozenset(known))
        for name in node.output:
            if name and name in own:
                raise _Wrong(f"two values are called `{name}`")
            if name:
                own.add(name)
                known.add(name)
    for o in graph.output:
        if o.name not in known:
            raise _Wrong(f"the output `{o.name}` is made by no node")


def _given(graph: GraphProto) -> Iterator[str]:
    """The names of inputs and constants; a constant may be an input too, whose default it is."""
    constants = [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer]
    yield from constants
    yield from (i.name for i in graph.input if i.name not in set(constants))


_PATH = (7, 5, 9)
"""The fields that lead to the data of constants: `graph` of a model, `initializer` of a graph, `raw_data` of a tensor."""

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
"""The types of fields, by which their ends are found. Groups have others, and are in no ONNX file."""


@dataclass(slots=True)
class _Cutter:
    """Takes the large data of constants out of the bytes of a model. `data` has it by the number of the constant."""

    data: dict[int, memoryview] = field(default_factory=dict[int, memoryview])
    _constants: int = 0

    def cut(self, message: memoryview, depth: int = 0) -> bytes:
        """The bytes of a message at that depth of the path, without the data.

        Raises ValueError or IndexError if the parser might find other fields in them.
        """
        kept: list[bytes | memoryview] = []
        at = 0
        while at < len(message):
            start = at
            key, at = _varint(message, at)
            size, begin = _extent(message, key & 7, at)
            at = begin + size
            if at > len(message) or key >> 32:
                raise ValueError
            if key != _PATH[depth] << 3 | _BYTES:
                kept.append(message[start:at])
            elif depth < len(_PATH) - 1:
                inner = self.cut(message[begin:at], depth + 1)
                kept += (_as_varint(key), _as_varint(len(inner)), inner)
                self._constants += depth == 1
            else:
                # The last data of a constant is the one that counts.
                self.data.pop(self._constants, None)
                if size >= _LARGE:
                    self.data[self._constants] = message[begin:at]
                else:
                    kept.append(message[start:at])
        return b"".join(kept)


def _extent(message: memoryview, kind: int, at: int) -> tuple[int, int]:
    """The size of the content of a field of that type, and where it begins. Raises ValueError or IndexError."""
    if kind == _BYTES:
        return _varint(message, at)
    if kind == _VARINT:
        return _varint(message, at)[1] - at, at
    if kind in (_FIXED_32, _FIXED_64):
        return 4 if kind == _FIXED_32 else 8, at
    raise ValueError


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest ones first, and the place behind it. Raises ValueError or IndexError."""
    value = 0
    for n in range(10):
        value |= (message[at + n] & 127) << 7 * n
        if message[at + n] < 128:
            return value, at + n + 1
    raise ValueError


def _as_varint(number: int) -> bytes:
    """The number as `_varint` reads it."""
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


_MOST_DENSE = 1 << 28
"""The elements of a sparse constant."""

_PACKED: Mapping[int, str] = {21: "uint8", 22: "int8"}
"""Element types of 4 bits by their numbers, UINT4 and INT4, with those that hold them."""

_MOVES = ("Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Gather", "Constant")
"""Operators whose result has elements of their first input."""

_FOREIGN: Mapping[str, str] = {
    "ai.onnx.ml": "operators of this domain, as of trees and strings, are not supported: export the network alone",
    **dict.fromkeys(
        ("ai.onnx.preview.training", "ai.onnx.training"), "training is not supported: export the model for inference"
    ),
    "com.microsoft.nchwc": "the file was optimized for one machine: optimize it at the level `extended`, or not",
}
"""Why operators of other domains are not supported, by domain or by operator."""


class _Reader:
    """Reads what a file has of graphs. External data lies in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self.opset = OPSET

    def body(self, function: FunctionProto, attributes: Mapping[str, Any]) -> Graph:
        """The body of a function, with these attributes of a call of it."""
        nodes: list[Node] = []
        for number, n in enumerate(function.node):
            own = {
                a.name: attributes.get(a.ref_attr_name) if a.ref_attr_name else self.attribute(a) for a in n.attribute
            }
            op = n.op_type if n.domain in _STANDARD else f"{n.domain}.{n.op_type}"
            nodes.append(Node(op, tuple(n.input), tuple(n.output), own, n.name or f"node {number}"))
        return Graph(function.name, dict.fromkeys(function.input, ("", ())), tuple(function.output), nodes)

    def graph(self, graph: GraphProto, is_body: bool = False) -> Graph:
        """The graph; of a branch or of the body of a loop, whose inputs may have no types."""
        constants = {t.name: self.tensor(t) for t in graph.initializer}
        given = [i for i in graph.input if i.name not in constants]
        inputs = {i.name: ("", ()) if is_body else self._input(i) for i in given}
        nodes: list[Node] = []
        for number, n in enumerate(graph.node):
            op = n.op_type if n.domain in _STANDARD else f"{n.domain}.{n.op_type}"
            attributes = {a.name: self.attribute(a) for a in n.attribute}
            if n.domain in _STANDARD:
                self._require_form(n, n.name or f"node {number}")
            else:
                whole = _FOREIGN.get(n.domain, f"the operators of the domain `{n.domain}` are not supported")
                attributes[REASON] = _FOREIGN.get(op, whole)
            nodes.append(Node(op, tuple(n.input), tuple(n.output), attributes, n.name or f"node {number}"))
        self._require_wide(nodes, graph)
        return Graph(graph.name, inputs, tuple(o.name for o in graph.output), nodes, constants)

    def _require_form(self, node: NodeProto, place: str) -> None:
        """Raise _Wrong if the operator has other numbers of inputs and outputs, or other attributes or lacks some."""
        schema = schema_of(node.op_type, self.opset)
        if schema is None:
            return
        if not schema.min_input <= len(node.input) <= schema.max_input:
            raise _Wrong(f"`{place}` ({node.op_type}) has {len(node.input)} inputs")
        for parameter, name in zip(schema.inputs, node.input, strict=False):
            if not name and parameter.option == parameter.option.Single:
                raise _Wrong(f"`{place}` ({node.op_type}) leaves its input `{parameter.name}` out, which it needs")
        if len(node.output) < schema.min_output:  # the converter of opsets leaves nodes more than they have today
            raise _Wrong(f"`{place}` ({node.op_type}) has {len(node.output)} outputs")
        missing = {n for n, a in schema.attributes.items() if a.required}.difference(a.name for a in node.attribute)
        if missing:
            raise _Wrong(
                f"`{place}` ({node.op_type}) has no attribute {' and '.join(f'`{n}`' for n in sorted(missing))}"
            )
        for a in node.attribute:
            known = schema.attributes.get(a.name)
            if known is not None and a.type not in (int(known.type.value), a.UNDEFINED):
                raise _Wrong(f"the attribute `{a.name}` of `{place}` ({node.op_type}) is of another kind")

    def make_dense(self, graph: GraphProto) -> None:
        """Let the sparse constants of a graph be as the others: the converter of opsets does not know them."""
        from onnx import helper, numpy_helper

        made = [numpy_helper.from_array(self.dense(t), t.values.name) for t in graph.sparse_initializer]
        del graph.sparse_initializer[:]
        graph.initializer.extend(made)
        for node in graph.node:
            for a in node.attribute:
                if a.HasField("sparse_tensor"):
                    a.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(self.dense(a.sparse_tensor))))
            for branch in _branches(node):
                self.make_dense(branch)

    def dense(self, t: SparseTensorProto) -> Array:
        """The content of a sparse constant, whose elements are told by their numbers or by their subscripts."""
        name, shape = t.values.name or "a constant", tuple(t.dims)
        values, at = self.tensor(t.values).reshape(-1), self.tensor(t.indices)
        if min(shape, default=0) < 0 or prod(shape) > _MOST_DENSE or at.shape[:1] != values.shape or at.ndim > 2:
            raise _Wrong(f"`{name}` has the shape {list(shape)}, which no sparse tensor here can have")
        out = np.zeros(shape, values.dtype)
        try:
            numbers = at if at.ndim == 1 else np.ravel_multi_index(tuple(at.T), shape)
            if at.size and at.min() < 0:
                raise IndexError
            out.reshape(-1)[numbers] = values
        except (ValueError, IndexError) as e:
            raise _Wrong(f"`{name}` has elements outside of its shape {list(shape)}") from e
        return out

    def _require_wide(self, nodes: Sequence[Node], graph: GraphProto) -> None:
        """Raise _Wrong if elements of 4 bits, which are held as 8, tell the type of a result."""
        narrow = {t.name for t in graph.initializer if t.data_type in _PACKED}
        narrow |= {
            n.output[0] for n in graph.node for a in n.attribute if a.name == "value" and a.t.data_type in _PACKED
        }
        for n in nodes:
            if n.op in _MOVES and narrow.intersection(n.inputs[:1]):
                narrow |= set(n.outputs)
            elif n.op not in (*_MOVES, "DequantizeLinear", "Cast") and narrow.intersection(n.inputs):
                raise _Wrong(f"`{n.place}` ({n.op}) reads elements of 4 bits, which only DequantizeLinear can here")
        if narrow.intersection(o.name for o in graph.output):
            raise _Wrong("an output has elements of 4 bits")

    def _input(self, value: ValueInfoProto) -> tuple[str, Dims]:
        from onnx import helper

        if not value.type.HasField("tensor_type"):
            raise _Wrong(f"the input `{value.name}` is no tensor")
        t = value.type.tensor_type
        try:
            dtype = DTYPES[helper.tensor_dtype_to_np_dtype(t.elem_type).name]
        except (KeyError, ValueError):
            raise _Wrong(f"the input `{value.name}` has elements of a type that is not supported") from None
        if not t.HasField("shape"):
            return dtype, None
        dims = (
            d.dim_value if d.HasField("dim_value") else d.dim_param if d.HasField("dim_param") and d.dim_param else None
            for d in t.shape.dim
        )
        return dtype, tuple(d if not isinstance(d, int) or d >= 0 else None for d in dims)

    def attribute(self, a: AttributeProto) -> Any:
        """The value of an attribute; None for one of a kind that no operator here has."""
        from onnx import AttributeProto as Kinds

        read: Mapping[int, Callable[[], Any]] = {
            Kinds.FLOAT: lambda: a.f,
            Kinds.INT: lambda: a.i,
            Kinds.STRING: lambda: a.s.decode(errors="replace"),
            Kinds.TENSOR: lambda: self.tensor(a.t),
            Kinds.GRAPH: lambda: self.graph(a.g, is_body=True),
            Kinds.FLOATS: lambda: list(a.floats),
            Kinds.INTS: lambda: list(a.ints),
            Kinds.STRINGS: lambda: [s.decode(errors="replace") for s in a.strings],
        }
        kind = a.type
        if kind == Kinds.UNDEFINED:  # as in files of the first versions
            fields = {"f": Kinds.FLOAT, "i": Kinds.INT, "s": Kinds.STRING, "t": Kinds.TENSOR, "g": Kinds.GRAPH}
            lists = {"floats": Kinds.FLOATS, "ints": Kinds.INTS, "strings": Kinds.STRINGS}
            kind = next((k for name, k in fields.items() if a.HasField(name)), kind)
            kind = next((k for name, k in lists.items() if len(getattr(a, name))), kind)
        return read[kind]() if kind in read else None

    def tensor(self, t: TensorProto, data: memoryview | None = None) -> Array:
        """The content of a constant, whose data may lie in the file. Its size is compared with its shape before memory is
        taken."""
        from onnx import TensorProto as Kinds
        from onnx import helper, numpy_helper

        name = t.name or "a constant"
        if t.data_type == Kinds.STRING:
            raise _Wrong(f"`{name}` holds strings")
        try:
            dtype = helper.tensor_dtype_to_np_dtype(t.data_type)
        except (KeyError, ValueError):
            raise _Wrong(f"`{name}` has elements of an unknown type") from None
        if any(d < 0 for d in t.dims) or prod(t.dims) > MOST_ELEMENTS:
            raise _Wrong(f"`{name}` has the shape {list(t.dims)}, which no tensor here can have")
        if t.data_type in _PACKED:
            return self._packed(t, name, data)
        if dtype.name not in DTYPES:
            raise _Wrong(f"`{name}` has elements of the type {dtype.name}, which is not supported")
        if t.data_location == Kinds.EXTERNAL:
            return self._external(t, name, prod(t.dims) * dtype.itemsize).view(dtype).reshape(tuple(t.dims))
        try:
            if data is not None and not t.HasField("segment"):
                ordered = dtype if dtype.isbuiltin != 1 else dtype.newbyteorder("<")
                return np.frombuffer(data, ordered).reshape(tuple(t.dims))
            value = numpy_helper.to_array(t)
        except (ValueError, TypeError) as e:
            raise _Wrong(f"`{name}` has other data than its shape {list(t.dims)} says") from e
        return value

    def _packed(self, t: TensorProto, name: str, data: memoryview | None) -> Array:
        """Elements of 4 bits, two in a byte, the lower half first; as integers of 8 bits."""
        from onnx import TensorProto as Kinds

        count = prod(t.dims)
        if t.data_location == Kinds.EXTERNAL:
            content = self._external(t, name, -(-count // 2))
        elif data is not None or t.HasField("raw_data"):
            content = np.frombuffer(t.raw_data if data is None else data, np.uint8)
        else:
            content = np.array([n & 255 for n in t.int32_data], np.uint8)
        if content.size != -(-count // 2):
            raise _Wrong(f"`{name}` has other data than its shape {list(t.dims)} says")
        halves = np.stack([content & 15, content >> 4], -1).reshape(-1)[:count].reshape(tuple(t.dims))
        if _PACKED[t.data_type] == "uint8":
            return halves
        return ((halves ^ 8).astype(np.int8) - 8).astype(np.int8)

    def _external(self, t: TensorProto, name: str, size: int) -> Array:
        """The bytes of a constant in a file of its own, mapped."""
        facts = {e.key: e.value for e in t.external_data}
        if "\0" in facts.get("location", ""):
            raise _Wrong(f"the data of `{name}` is in a file that no system can have")
        place = (self._folder / facts.get("location", "")).resolve()
        if not place.is_relative_to(self._folder) or place == self._folder:
            raise _Wrong(f"the data of `{name}` is outside of the folder of the model: {facts.get('location')}")
        try:
            begin, length = int(facts.get("offset", 0)), int(facts.get("length", size))
        except ValueError:
            raise _Wrong(f"the data of `{name}` has no place in its file") from None
        if begin < 0:
            raise _Wrong(f"the data of `{name}` begins at {begin} of its file")
        if length != size:
            raise _Wrong(f"the data of `{name}` has {length} bytes, and its shape {list(t.dims)} needs {size}")
        if not place.is_file():
            raise _Wrong(f"the file `{facts['location']}` with the data of `{name}` is missing")
        if place.stat().st_size < begin + size:
            raise _Wrong(f"the file `{facts['location']}` ends before the data of `{name}`")
        return np.memmap(place, np.uint8, "r", begin, (size,)) if size else np.empty(0, np.uint8)


# --- operators that ONNX says in others --------------------------------------------------------------------------------


_NEWEST = 1 << 16
"""An opset above all that there are."""


@cache
def schema_of(op: str, opset: int) -> Any:
    """What ONNX says of an operator in an opset; None if it has none of this name, or is not installed."""
    try:
        from onnx import defs
    except ImportError:
        return None
    try:
        return defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return None


def require_types(node: Node, types: Sequence[Tensor | None], opset: int) -> None:
    """Raise Unsupported if the operator does not take inputs of these types, or not together."""
    schema = schema_of(node.op, opset)
    if schema is None:
        return
    allowed = _allowed(node.op, opset)
    last = schema.inputs[-1] if schema.inputs else None
    bound: dict[str, str] = {}
    for parameter, t in zip((*schema.inputs, *repeat(last, len(types))), types, strict=False):
        if t is None or parameter is None:
            continue
        name = parameter.type_str
        is_alike = parameter.is_homogeneous and name in allowed
        if t.dtype not in allowed.get(name, (t.dtype,)) or (is_alike and bound.setdefault(name, t.dtype) != t.dtype):
            raise Unsupported(f"`{parameter.name}` of the type {t}, which it does not take")


def require_asked(node: Node, names: Collection[str], opset: int) -> None:
    """Raise Unsupported if a translation asked for `names` alone, and the node has other attributes that change its result.

    These are those that have other values than where they are left out, or that its operator does not know.
    """
    usual = _usual(node.op, opset)
    ignored = {n: v for n, v in node.attributes.items() if n not in names and v is not None and v != usual.get(n)}
    if ignored:
        shown = " and ".join(f"`{n}={v}`" for n, v in ignored.items())
        raise Unsupported(f"{shown}, which is not supported in this form of it")


@cache
def _usual(op: str, opset: int) -> Mapping[str, Any]:
    """The values of the attributes of an operator where they are left out."""
    schema = schema_of(op, opset or _NEWEST)
    reader = _Reader(Path())
    if schema is None:
        return {}
    return {name: reader.attribute(a.default_value) for name, a in schema.attributes.items() if a.default_value.name}


@cache
def _allowed(op: str, opset: int) -> Mapping[str, frozenset[str]]:
    """The element types that the operator has for each name of a type; elements of 4 bits are held as 8."""
    return {
        c.type_param_str: frozenset(_ELEMENTS[t] for t in c.allowed_type_strs if t in _ELEMENTS)
        for c in schema_of(op, opset).type_constraints
    }


_ELEMENTS: Mapping[str, str] = {
    "tensor(float)": "f32", "tensor(double)": "f64", "tensor(int4)": "i8", "tensor(uint4)": "u8",
    **{f"tensor({theirs})": ours for theirs, ours in DTYPES.items()},
}  # fmt: skip
"""Our element types by ONNX's names of types."""


def has_body(op: str) -> bool:
    """Whether ONNX says the operator in others for some inputs."""
    schema = schema_of(op, _NEWEST)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def body_of(node: Node, types: Sequence[Tensor | None]) -> Graph | None:
    """The body, whose inputs and outputs are those of the node in their order; None if ONNX has none, or is not installed.

    Raises Unsupported if the node does not fit its operator.
    """
    schema = schema_of(node.op, _NEWEST)
    if schema is None:
        return None
    from onnx import FunctionProto, helper

    if schema.has_function:
        function = schema.function_body
    elif schema.has_context_dependent_function:
        kinds = [_type(helper, t) for t in types]
        try:
            made = schema.get_context_dependent_function(_node(helper, node).SerializeToString(), kinds)
        except (RuntimeError, ValueError, IndexError) as e:
            raise Unsupported("inputs or attributes that do not fit it") from e
        function = FunctionProto.FromString(made)
        if not function.node:
            raise Unsupported("inputs or attributes that do not fit it")
    else:
        return None
    return _Reader(Path()).body(function, {**_usual(node.op, _NEWEST), **node.attributes})


def _type(helper: Any, t: Tensor | None) -> bytes:
    """The type of an input as ONNX writes it; empty for one that is left out."""
    if t is None:
        return b""
    kind = helper.np_dtype_to_tensor_dtype(onnx_dtype(t.dtype))
    return helper.make_tensor_type_proto(kind, t.shape).SerializeToString()


def _node(helper: Any, node: Node) -> Any:
    """The node as ONNX writes it. Raises Unsupported for a graph among its attributes."""
    from onnx import numpy_helper

    made = helper.make_node(node.op, list(node.inputs), list(node.outputs))
    for name, value in node.attributes.items():
        if isinstance(value, Graph):
            raise Unsupported("a body")
        if value is not None and value != []:
            shown: Any = numpy_helper.from_array(cast("Array", value)) if isinstance(value, np.ndarray) else value
            made.attribute.append(helper.make_attribute(name, shown))
    return made

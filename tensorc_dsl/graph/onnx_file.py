"""Reads ONNX files into graphs: the file is checked as one from a stranger, brought to one opset, and its data is read.

The large data of constants stays where it lies in the file: neither the parser nor the converter of opsets copies it.

https://onnx.ai/onnx/repo-docs/IR.html
https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.outputs import reason
from tensorc_dsl.graph.graph import DTYPES, MOST_ELEMENTS, Array, Graph, Node
from tensorc_dsl.graph.operators.movement import SIMPLE

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, ValueInfoProto

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
    if not model.graph.output or not model.opset_import:
        raise _Wrong("there is no graph in it")
    return model, cutter.data


def _content(path: Path) -> memoryview:
    """The bytes of a file, mapped where that is possible."""
    with path.open("rb") as file:
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (ValueError, OSError):  # it is empty, or a pipe
            return memoryview(file.read())


def _graph_of(model: ModelProto, data: Mapping[int, memoryview], folder: Path) -> Graph:
    _require_order(model.graph, frozenset())
    reader = _Reader(folder)
    large = _take_large(model, data, reader)
    if model.functions:
        from onnx.inliner import inline_local_functions

        model = inline_local_functions(model)
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if version < OPSET:
        model = _converted(model, version)
    graph = reader.graph(model.graph)
    graph.constants |= large
    for name in large:
        graph.inputs.pop(name, None)
    return graph


def _converted(model: ModelProto, version: int) -> ModelProto:
    from onnx import shape_inference, version_converter

    if version < 9 and any(n.op_type == "Scan" for n in model.graph.node):
        raise _Wrong("`Scan` was another operator before opset 9")
    # What C++ raises: its two own kinds, and those of the standard library, but for a lack of memory.
    kinds = (version_converter.ConvertError, shape_inference.InferenceError, RuntimeError, ValueError, IndexError)
    try:
        made = version_converter.convert_version(model, OPSET)
    except kinds as e:
        lines = str(e).strip().splitlines() or [type(e).__name__]
        raise _Wrong(f"opset {version} cannot be converted to {OPSET}: {lines[-1]}") from e
    if version < 11:
        _resize_as_before(made.graph)
    return made


def _resize_as_before(graph: GraphProto) -> None:
    """Let each Resize be what it and Upsample were before opset 11: the converter leaves them at today's defaults."""
    from onnx import helper

    for node in graph.node:
        if node.op_type == "Resize":
            how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": SIMPLE}
            node.attribute.extend(helper.make_attribute(name, value) for name, value in how.items())
        for a in node.attribute:
            for branch in (*((a.g,) if a.HasField("g") else ()), *a.graphs):
                _resize_as_before(branch)


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
        for a in node.attribute:
            for branch in (*((a.g,) if a.HasField("g") else ()), *a.graphs):
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


class _Reader:
    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def graph(self, graph: GraphProto) -> Graph:
        constants = {t.name: self.tensor(t) for t in graph.initializer}
        if graph.sparse_initializer:
            raise _Wrong("it has sparse tensors")
        inputs = {i.name: self._input(i) for i in graph.input if i.name not in constants}
        nodes: list[Node] = []
        for number, n in enumerate(graph.node):
            op = n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}.{n.op_type}"
            attributes = {a.name: self._attribute(a) for a in n.attribute}
            nodes.append(Node(op, tuple(n.input), tuple(n.output), attributes, n.name or f"node {number}"))
        return Graph(graph.name, inputs, tuple(o.name for o in graph.output), nodes, constants)

    def _input(self, value: ValueInfoProto) -> tuple[str, tuple[int | str | None, ...]]:
        from onnx import helper

        if not value.type.HasField("tensor_type"):
            raise _Wrong(f"the input `{value.name}` is no tensor")
        t = value.type.tensor_type
        try:
            dtype = DTYPES[helper.tensor_dtype_to_np_dtype(t.elem_type).name]
        except (KeyError, ValueError):
            raise _Wrong(f"the input `{value.name}` has elements of a type that is not supported") from None
        if not t.HasField("shape"):
            raise _Wrong(f"the input `{value.name}` has no number of dimensions")
        dims = (
            d.dim_value if d.HasField("dim_value") else d.dim_param if d.HasField("dim_param") and d.dim_param else None
            for d in t.shape.dim
        )
        return dtype, tuple(d if not isinstance(d, int) or d >= 0 else None for d in dims)

    def _attribute(self, a: AttributeProto) -> Any:
        from onnx import AttributeProto as Kinds

        read: Mapping[int, Callable[[], Any]] = {
            Kinds.FLOAT: lambda: a.f,
            Kinds.INT: lambda: a.i,
            Kinds.STRING: lambda: a.s.decode(errors="replace"),
            Kinds.TENSOR: lambda: self.tensor(a.t),
            Kinds.GRAPH: lambda: self.graph(a.g),
            Kinds.FLOATS: lambda: list(a.floats),
            Kinds.INTS: lambda: list(a.ints),
            Kinds.STRINGS: lambda: [s.decode(errors="replace") for s in a.strings],
        }
        return read[a.type]() if a.type in read else None

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
        if dtype.name not in DTYPES:
            raise _Wrong(f"`{name}` has elements of the type {dtype.name}, which is not supported")
        if t.data_location == Kinds.EXTERNAL:
            return self._external(t, name, dtype)
        try:
            if data is not None and not t.HasField("segment"):
                return np.frombuffer(data, dtype.newbyteorder("<")).reshape(tuple(t.dims))
            value = numpy_helper.to_array(t)
        except (ValueError, TypeError) as e:
            raise _Wrong(f"`{name}` has other data than its shape {list(t.dims)} says") from e
        return value

    def _external(self, t: TensorProto, name: str, dtype: np.dtype[Any]) -> Array:
        facts = {e.key: e.value for e in t.external_data}
        place = (self._folder / facts.get("location", "")).resolve()
        if not place.is_relative_to(self._folder) or place == self._folder:
            raise _Wrong(f"the data of `{name}` is outside of the folder of the model: {facts.get('location')}")
        size = prod(t.dims) * dtype.itemsize
        try:
            begin, length = int(facts.get("offset", 0)), int(facts.get("length", size))
        except ValueError:
            raise _Wrong(f"the data of `{name}` has no place in its file") from None
        if length != size or begin < 0:
            raise _Wrong(f"the data of `{name}` has {length} bytes, and its shape {list(t.dims)} needs {size}")
        if not place.is_file():
            raise _Wrong(f"the file `{facts['location']}` with the data of `{name}` is missing")
        if place.stat().st_size < begin + size:
            raise _Wrong(f"the file `{facts['location']}` ends before the data of `{name}`")
        if not size:
            return np.empty(tuple(t.dims), dtype)
        return (
            np.memmap(place, dtype, "r", begin, tuple(t.dims))
            if t.dims
            else np.fromfile(place, dtype, 1, offset=begin)[0]
        )

"""A call in a trace of PyTorch, with its arguments, and the graph that its translation adds nodes and constants to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.graph import DTYPES, Array, Node, Unsupported, onnx_dtype

Torch = Any
"""The package, or an object of it: it is no dependency of this one."""

Value = Any
"""What an argument of a node is: the name of a value (`Name`), a number, a list of these, None."""


class Name(str):
    """The name of a value of the graph; other strings are options of operators."""

    __slots__ = ()


@frozen
class Pair:
    """A complex tensor, whose parts are two real ones, or a complex number."""

    real: Value
    imaginary: Value

    @property
    def parts(self) -> tuple[Value, Value]:
        return self.real, self.imaginary


@dataclass(slots=True)
class Growing:
    """The nodes and constants of a graph while it is made. `place` names the node of the trace that is translated."""

    torch: Torch
    nodes: list[Node] = field(default_factory=list[Node])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    inputs: set[str] = field(default_factory=set[str])
    """The names of inputs."""
    place: str = ""
    _made: int = 0
    _known: dict[tuple[object, ...], Name] = field(default_factory=dict[tuple[object, ...], Name])

    def dtype(self, dtype: Torch) -> str:
        """The name in the language of an element type. Raises Unsupported."""
        name = str(dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise Unsupported(f"elements of type {name}")
        return DTYPES[name]

    def array_dtype(self, dtype: Torch) -> np.dtype[Any]:
        """The element type of a constant for an element type of PyTorch. Raises Unsupported."""
        return onnx_dtype(self.dtype(dtype))

    def tensor(self, name: str, value: Torch) -> Value:
        """A constant with the content of a tensor. Tensors with one memory are one constant."""
        if value.is_complex():
            whole = value.detach().resolve_conj()
            return Pair(
                *(self.tensor(f"{name}.{part}", getattr(whole, part).contiguous()) for part in ("real", "imag"))
            )
        dtype = self.array_dtype(value.dtype)
        key = value.data_ptr(), tuple(value.shape), tuple(value.stride()), str(value.dtype)
        if value.numel() == 0 or key not in self._known:
            held = value.detach().cpu().contiguous()
            if value.dtype == self.torch.bfloat16:  # no array of NumPy
                held = held.view(self.torch.int16)
            self._known[key] = self.constant(held.numpy().view(dtype), name)
        return self._known[key]

    def constant(self, value: Array, name: str = "") -> Name:
        """The name of a constant."""
        named = Name(name or self.fresh("constant"))
        while named in self.constants or named in self.inputs:
            named = Name(f"{named}_")
        self.constants[named] = value
        return named

    def fresh(self, stem: str) -> str:
        """A name that no value has."""
        self._made += 1
        return f"{stem}/{self._made}"

    def emit(self, op: str, inputs: Sequence[Value], count: int = 1, **attributes: Any) -> list[Name]:
        """Add a node. Returns the names of its outputs."""
        outputs = [Name(self.fresh(op.lower())) for _ in range(count)]
        given = tuple("" if i is None else str(i) for i in inputs)
        self.nodes.append(Node(op, given, tuple(map(str, outputs)), attributes, self.place))
        return outputs


@frozen
class Call:
    """A node of the trace, with its arguments by the names in the schema of its operator."""

    graph: Growing
    node: Torch
    given: Mapping[str, Value]
    metas: Mapping[str, Torch]

    def __getitem__(self, name: str) -> Value:
        if name not in self.given:
            raise Unsupported(f"this form of it, without `{name}`, is not supported")
        return self.given[name]

    def get(self, name: str, default: Value = None) -> Value:
        """An argument; the default if it is None, or no argument of this overload."""
        found = self.given.get(name)
        return default if found is None else found

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor among the arguments."""
        return tuple(int(n) for n in self.metas[name].meta["val"].shape)

    def rank(self, name: str) -> int:
        return len(self.shape(name))

    def axis(self, name: str = "dim", of: str = "self") -> int:
        """An axis, counted from the front."""
        return int(self.given[name]) % max(self.rank(of), 1)

    @property
    def result(self) -> Torch:
        """The type of the result, or of the first of several."""
        value: Torch = self.node.meta["val"]
        return cast("Sequence[Torch]", value)[0] if isinstance(value, tuple | list) else value

    @property
    def result_shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.result.shape)

    def emit(self, op: str, *inputs: Value, **attributes: Any) -> Name:
        return self.graph.emit(op, inputs, **attributes)[0]

    def ints(self, *values: int) -> Name:
        return self.graph.constant(np.array(values, np.int64))

    def number(self, value: Any, dtype: Torch) -> Name:
        """A constant of one element."""
        return self.graph.constant(np.asarray(value, self.graph.array_dtype(dtype)))

    def cast(self, value: Value, dtype: Torch) -> Name:
        """A tensor or a number with elements of a type."""
        if not isinstance(value, Name):
            return self.number(value, dtype)
        return self.emit("CastLike", value, self.number(0, dtype))

    def typed(self, name: str) -> Value:
        """An argument with elements of the type of the result."""
        meta = self.metas[name]
        same = hasattr(meta, "meta") and meta.meta["val"].dtype == self.result.dtype
        return self.given[name] if same else self.cast(self.given[name], self.result.dtype)

    def same_type(self, *names: str) -> tuple[Torch, list[Name]]:
        """The type that operands have together, and the operands with it."""
        values = [self.metas[n] for n in names]
        metas = [v.meta["val"] if hasattr(v, "meta") else v for v in values]
        dtype = self.graph.torch.result_type(*metas) if len(metas) == 2 else metas[0].dtype
        return dtype, [
            self.given[n] if hasattr(m, "dtype") and m.dtype == dtype else self.cast(self.given[n], dtype)
            for n, m in zip(names, metas, strict=True)
        ]

    def reshaped(self, value: Value, shape: Sequence[int]) -> Name:
        return self.emit("Reshape", value, self.ints(*shape), allowzero=1)

    def array(self, value: Value) -> Array:
        """The content of a weight. Raises Unsupported if it is computed."""
        found = self.graph.constants.get(value)
        if found is None:
            raise Unsupported("weights that are computed")
        return found

    def refuse_unless(self, condition: bool, reason: str) -> None:
        if not condition:
            raise Unsupported(reason)


Translator = Callable[[Call], Value]

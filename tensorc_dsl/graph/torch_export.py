"""Reads modules of PyTorch into graphs: `torch.export` traces a module, and each node of the trace becomes operators of ONNX.

The trace is not decomposed, so it has the layers that people write: a linear layer, a layer norm, attention, an LSTM.
https://docs.pytorch.org/docs/stable/export.html
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import sqrt
from typing import Any, cast

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.graph.graph import DTYPES, REASON, Array, Graph, Node, Unsupported
from tensorc_dsl.graph.onnx_file import NOT_IMPORTED

Torch = Any
"""The package, or an object of it: it is no dependency of this one."""

Value = Any
"""What an argument of a node is: the name of a value (`Name`), a number, a list of these, None."""


class Name(str):
    """The name of a value of the graph; other strings are options of operators."""

    __slots__ = ()


def read_torch(module: Torch, example: Any) -> Graph:
    """The graph of a module for inputs of the types and shapes of an example: a tensor, a tuple, or a dict of inputs by name.

    Raises TschedError (E0940) if PyTorch is not installed, the module is in training mode, or it cannot be exported. Nodes
    that are no operator of the table stay in the graph with the reason, for `import_graph` to report.
    """
    name = type(module).__name__
    try:
        torch: Torch = import_module("torch")
        import_module("torch.export")
    except ImportError:
        repair = "install it: `pip install 'tensorc-dsl[torch]'`"
        raise TschedError(NOT_IMPORTED(None, path=name, why="the package `torch` is missing", repair=repair)) from None
    if module.training:
        why, repair = "it is in training mode", "call `.eval()` of the module first"
        raise TschedError(NOT_IMPORTED(None, path=name, why=why, repair=repair))
    program = _exported(torch, module, name, example)
    try:
        return _Reader(torch, name).graph(program)
    except Unsupported as e:  # of an input or a weight
        repair = "convert the module and the example first, `module.float()`"
        raise TschedError(NOT_IMPORTED(None, path=name, why=f"it has {e}", repair=repair)) from None


def _exported(torch: Torch, module: Torch, name: str, example: Any) -> Torch:
    kwargs = dict(cast("Mapping[str, Any]", example)) if isinstance(example, Mapping) else {}
    args = (
        ()
        if isinstance(example, Mapping)
        else cast("tuple[Any, ...]", example)
        if isinstance(example, tuple)
        else (example,)
    )
    fast = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)  # one operator for a whole layer of an encoder
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about how it traces
            return torch.export.export(module, args, kwargs)
    except MemoryError:
        raise
    except Exception as e:  # of no kind that is documented
        lines = str(e).strip().splitlines() or [type(e).__name__]
        repair = "`torch.export.export(module, example)` says more"
        raise TschedError(NOT_IMPORTED(None, path=name, why=lines[0].strip(), repair=repair)) from e
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@dataclass(slots=True)
class _Reader:
    torch: Torch
    name: str
    nodes: list[Node] = field(default_factory=list[Node])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    """By the name of a node of the trace."""
    made: int = 0
    place: str = ""
    _taken: set[str] = field(default_factory=set[str])
    """The names of inputs."""
    _known: dict[tuple[object, ...], Name] = field(default_factory=dict[tuple[object, ...], Name])

    # --- the trace ---

    def graph(self, program: Torch) -> Graph:
        inputs: dict[str, tuple[str, tuple[int | str | None, ...]]] = {}
        self._taken = {s.arg.name for s in program.graph_signature.input_specs if s.target is None}
        kinds = {s.arg.name: s for s in program.graph_signature.input_specs if hasattr(s.arg, "name")}
        outputs: list[Name] = []
        for node in program.graph.nodes:
            match node.op:
                case "placeholder":
                    self.values[node.name] = self._placeholder(program, node, kinds[node.name], inputs)
                case "get_attr":
                    self.values[node.name] = self._attribute(program, node)
                case "call_function":
                    self._call(node)
                case "output":
                    outputs = self._outputs(program, node)
                case _:
                    self._refuse(node, f"a node of the kind {node.op}")
        return self._named(inputs, outputs)

    def _placeholder(
        self, program: Torch, node: Torch, spec: Torch, inputs: dict[str, tuple[str, tuple[int | str | None, ...]]]
    ) -> Value:
        if spec.target is not None:
            table = program.constants if spec.target in program.constants else program.state_dict
            return self.tensor(str(spec.target), table[spec.target])
        value = node.meta["val"]
        if not isinstance(value, self.torch.Tensor):
            return value  # a number or a flag of the example: the trace is for it
        inputs[node.name] = self.dtype(value.dtype), tuple(int(n) for n in value.shape)
        return Name(node.name)

    def _attribute(self, program: Torch, node: Torch) -> Value:
        found = program.constants.get(node.target)
        found = getattr(program.graph_module, node.target) if found is None else found
        return self.tensor(str(node.target), found) if isinstance(found, self.torch.Tensor) else None

    def _outputs(self, program: Torch, node: Torch) -> list[Name]:
        """The outputs of the module; a trace that also changes what the module keeps has further ones."""
        out: list[Name] = []
        for spec, value in zip(program.graph_signature.output_specs, node.args[0], strict=True):
            if spec.kind.name != "USER_OUTPUT":
                self._refuse(node, f"it changes `{spec.target}`, which the module keeps")
            elif hasattr(value, "name"):
                found = self.values[value.name]
                out.append(found if isinstance(found, Name) else self.constant(np.asarray(found)))
        return out

    def _named(self, inputs: dict[str, tuple[str, tuple[int | str | None, ...]]], outputs: list[Name]) -> Graph:
        """The graph with the outputs called `output`, or by their numbers if there are several."""
        made = {o for n in self.nodes for o in n.outputs}
        names: dict[str, str] = {}
        for k, name in enumerate(outputs):
            if name in made and name not in names:
                named = f"output_{k}" if len(outputs) > 1 else "output"
                while named in inputs or named in self.constants:
                    named += "_"
                names[name] = named
        nodes = [
            replace(
                n,
                inputs=tuple(names.get(i, i) for i in n.inputs),
                outputs=tuple(names.get(o, o) for o in n.outputs),
            )
            for n in self.nodes
        ]
        return Graph(self.name, inputs, tuple(names.get(o, o) for o in outputs), nodes, self.constants)

    def _call(self, node: Torch) -> None:
        path = [str(p) for p, _ in node.meta.get("nn_module_stack", {}).values()]
        self.place = f"{path[-1]}: {node.name}" if path and path[-1] else str(node.name)
        if getattr(node.target, "__name__", "") == "getitem":
            whole = self.values[node.args[0].name]
            self.values[node.name] = whole[node.args[1]] if isinstance(whole, tuple | list) else whole
            return
        before = len(self.nodes)
        try:
            self.values[node.name] = self._translated(node)
        except Unsupported as e:
            del self.nodes[before:]
            self._refuse(node, str(e))

    def _refuse(self, node: Torch, reason: str) -> None:
        used = [v for n in node.all_input_nodes if isinstance(v := self.values.get(n.name), Name)]
        self.nodes.append(Node(str(node.target), tuple(used), (node.name,), {REASON: reason}, self.place))
        self.values[node.name] = Name(node.name)

    def _translated(self, node: Torch) -> Value:
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            raise Unsupported("this operator is not supported")
        name = str(schema.name).partition("::")[2]
        if not node.all_input_nodes and self.torch.Tag.nondeterministic_seeded not in node.target.tags:
            made = node.target(*node.args, **node.kwargs)
            return self.tensor(node.name, made) if isinstance(made, self.torch.Tensor) else made
        if name.endswith("_") and not name.startswith("_"):
            name = name[:-1]
            self._require_last_use(node)
        if name not in TARGETS:
            raise Unsupported("this operator is not supported")
        given: dict[str, Value] = {}
        metas: dict[str, Torch] = {}
        for k, a in enumerate(schema.arguments):
            value = node.args[k] if k < len(node.args) else node.kwargs.get(a.name, a.default_value)
            given[a.name], metas[a.name] = self._argument(value), value
        return TARGETS[name](_Call(self, node, given, metas))

    def _argument(self, value: Any) -> Value:
        if isinstance(value, list | tuple):
            return [self._argument(v) for v in cast("Sequence[Any]", value)]
        return self.values[value.name] if hasattr(value, "all_input_nodes") else value

    def _require_last_use(self, node: Torch) -> None:
        """Raise Unsupported if the tensor that a node changes in place is used later by another name."""
        root = node.args[0]
        while root.op == "call_function" and _base_name(root) in _VIEWS:
            root = root.args[0]
        shared, work = {root}, [root]
        while work:
            for user in work.pop().users:
                if user not in shared and user is not node and _base_name(user) in _VIEWS:
                    shared.add(user)
                    work.append(user)
        order = {n: k for k, n in enumerate(node.graph.nodes)}
        kept = root.op != "call_function" and self.values[root.name] in self.constants
        if kept or any(order[u] > order[node] for s in shared for u in s.users):
            raise Unsupported(f"it changes `{root.name}` in place, which is used again")

    # --- values ---

    def dtype(self, dtype: Torch) -> str:
        """The name in the language of an element type. Raises Unsupported."""
        name = str(dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise Unsupported(f"elements of type {name}")
        return DTYPES[name]

    def tensor(self, name: str, value: Torch) -> Name:
        """A constant with the content of a tensor. Tensors with one memory are one constant."""
        self.dtype(value.dtype)
        key = value.data_ptr(), tuple(value.shape), tuple(value.stride()), str(value.dtype)
        if value.numel() == 0 or key not in self._known:
            self._known[key] = self.constant(value.detach().cpu().contiguous().numpy(), name)
        return self._known[key]

    def constant(self, value: Array, name: str = "") -> Name:
        """The name of a constant."""
        named = Name(name or self.fresh("constant"))
        while named in self.constants or named in self._taken:
            named = Name(f"{named}_")
        self.constants[named] = value
        return named

    def fresh(self, stem: str) -> str:
        """A name that no value has."""
        self.made += 1
        return f"{stem}/{self.made}"

    def emit(self, op: str, inputs: Sequence[Value], count: int = 1, **attributes: Any) -> list[Name]:
        """Add a node. Returns the names of its outputs."""
        outputs = [Name(self.fresh(op.lower())) for _ in range(count)]
        given = tuple("" if i is None else str(i) for i in inputs)
        self.nodes.append(Node(op, given, tuple(map(str, outputs)), attributes, self.place))
        return outputs


_VIEWS = frozenset(
    (
        "view", "reshape", "transpose", "permute", "t", "select", "slice", "expand", "squeeze", "unsqueeze", "flatten",
        "detach", "alias", "chunk", "split", "split_with_sizes", "unbind", "narrow", "unflatten", "view_as", "getitem",
    )
)  # fmt: skip
"""What may share the memory of what it is given."""


def _base_name(node: Torch) -> str:
    schema = getattr(node.target, "_schema", None)
    return str(schema.name).partition("::")[2] if schema is not None else str(getattr(node.target, "__name__", ""))


@dataclass(frozen=True, slots=True)
class _Call:
    """A node of the trace, with its arguments by the names in the schema of its operator."""

    reader: _Reader
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
        return self.reader.emit(op, inputs, **attributes)[0]

    def ints(self, *values: int) -> Name:
        return self.reader.constant(np.array(values, np.int64))

    def number(self, value: Any, dtype: Torch) -> Name:
        """A constant of one element."""
        name = str(dtype).removeprefix("torch.")
        self.reader.dtype(dtype)
        return self.reader.constant(np.asarray(value, np.dtype(name)))

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
        dtype = self.reader.torch.result_type(*metas) if len(metas) == 2 else metas[0].dtype
        return dtype, [
            self.given[n] if hasattr(m, "dtype") and m.dtype == dtype else self.cast(self.given[n], dtype)
            for n, m in zip(names, metas, strict=True)
        ]

    def reshaped(self, value: Value, shape: Sequence[int]) -> Name:
        return self.emit("Reshape", value, self.ints(*shape), allowzero=1)

    def array(self, value: Value) -> Array:
        """The content of a weight. Raises Unsupported if it is computed."""
        found = self.reader.constants.get(value)
        if found is None:
            raise Unsupported("weights that are computed")
        return found

    def refuse_unless(self, condition: bool, reason: str) -> None:
        if not condition:
            raise Unsupported(reason)


Translator = Callable[[_Call], Value]


# --- elementwise -------------------------------------------------------------------------------------------------------


def _unary(op: str, **attributes: Any) -> Translator:
    return lambda c: c.emit(op, c.get("self", c.get("input")), **attributes)


def _same(c: _Call) -> Value:
    return c.get("self", c.get("input"))


def _dropped(c: _Call) -> Value:
    c.refuse_unless(not c["train"] or not c["p"], "training")
    return _same(c)


def _binary(op: str) -> Translator:
    def translate(c: _Call) -> Value:
        dtype, (a, b) = c.same_type("self", "other")
        if c.get("alpha", 1) != 1:
            b = c.emit("Mul", b, c.number(c["alpha"], dtype))
        return c.emit(op, a, b)

    return translate


def _subtracted_from(c: _Call) -> Value:
    dtype, (a, b) = c.same_type("self", "other")
    if c.get("alpha", 1) != 1:
        a = c.emit("Mul", a, c.number(c["alpha"], dtype))
    return c.emit("Sub", b, a)


def _divided(c: _Call) -> Value:
    mode = c.get("rounding_mode")
    dtype, (a, b) = c.same_type("self", "other")
    if mode is None and not dtype.is_floating_point:
        dtype = c.result.dtype
        a, b = c.cast(a, dtype), c.cast(b, dtype)
    if mode == "floor" and not dtype.is_floating_point:
        raise Unsupported("a quotient of integers that is rounded down")
    c.refuse_unless(mode != "trunc" or not dtype.is_floating_point, "a quotient that is rounded to 0")
    made = c.emit("Div", a, b)
    return c.emit("Floor", made) if mode == "floor" else made


def _power(c: _Call) -> Value:
    base, exponent = c["self"], c["exponent"]
    dtype = c.result.dtype
    if not isinstance(base, Name):
        return c.emit("Pow", c.number(base, dtype), c.cast(exponent, dtype))
    return c.emit("Pow", c.cast(base, dtype), exponent if isinstance(exponent, Name) else c.number(exponent, dtype))


def _compared(op: str) -> Translator:
    def translate(c: _Call) -> Value:
        _, (a, b) = c.same_type("self", "other")
        return c.emit("Not", c.emit("Equal", a, b)) if op == "NotEqual" else c.emit(op, a, b)

    return translate


def _logical(op: str) -> Translator:
    def translate(c: _Call) -> Value:
        boolean = c.reader.torch.bool
        return c.emit(op, *(c.cast(c[n], boolean) for n in ("self", "other")))

    return translate


def _bitwise(op: str) -> Translator:
    def translate(c: _Call) -> Value:
        dtype, operands = c.same_type("self", "other")
        return c.emit(op if dtype == c.reader.torch.bool else f"Bitwise{op}", *operands)

    return translate


def _bits_turned(c: _Call) -> Value:
    return c.emit("Not" if c.result.dtype == c.reader.torch.bool else "BitwiseNot", c["self"])


def _clamped(low: str, high: str) -> Translator:
    def translate(c: _Call) -> Value:
        dtype = c.result.dtype
        bounds = [None if c.get(n) is None else c.cast(c[n], dtype) for n in (low, high)]
        return c.emit("Clip", c.typed("self"), *bounds)

    return translate


def _relu6(c: _Call) -> Value:
    return c.emit("Clip", c["self"], c.number(0, c.result.dtype), c.number(6, c.result.dtype))


def _elu(c: _Call) -> Value:
    c.refuse_unless((c.get("scale", 1), c.get("input_scale", 1)) == (1, 1), "a scale")
    return c.emit("Elu", c["self"], alpha=float(c.get("alpha", 1.0)))


def _softplus(c: _Call) -> Value:
    c.refuse_unless(c.get("beta", 1) == 1, f"`beta` is {c.get('beta')}")
    return c.emit("Softplus", c["self"])


def _prelu(c: _Call) -> Value:
    weight, shape = c["weight"], c.shape("weight")
    if shape != (1,) and c.rank("self") > 1:
        weight = c.reshaped(weight, (*shape, *(1,) * (c.rank("self") - 2)))
    return c.emit("PRelu", c["self"], weight)


def _rsqrt(c: _Call) -> Value:
    return c.emit("Reciprocal", c.emit("Sqrt", c["self"]))


def _glu(c: _Call) -> Value:
    axis = c.axis()
    a, b = c.reader.emit("Split", [c["self"]], 2, axis=axis)
    return c.emit("Mul", a, c.emit("Sigmoid", b))


def _where(c: _Call) -> Value:
    condition = c["condition"]
    return c.emit("Where", condition, c.typed("self"), c.typed("other"))


def _masked_fill(c: _Call) -> Value:
    return c.emit("Where", c["mask"], c.typed("value"), c["self"])


def _converted(c: _Call) -> Value:
    return c.typed("self" if "self" in c.given else "input")


def _full_like(value: float | None) -> Translator:
    def translate(c: _Call) -> Value:
        content = c["fill_value"] if value is None else value
        dtype = str(c.result.dtype).removeprefix("torch.")
        c.reader.dtype(c.result.dtype)
        c.refuse_unless(not isinstance(content, Name), "a value that is computed")
        return c.reader.constant(np.full(c.result_shape, content, np.dtype(dtype)))

    return translate


# --- products ----------------------------------------------------------------------------------------------------------


def _linear(c: _Call) -> Value:
    x, weight, bias = c["input"], c["weight"], c.get("bias")
    if c.rank("input") == 2:
        return c.emit("Gemm", x, weight, bias, transB=1) if bias is not None else c.emit("Gemm", x, weight, transB=1)
    product = c.emit("MatMul", x, _turned(c, weight))
    return product if bias is None else c.emit("Add", product, bias)


def _turned(c: _Call, weight: Name) -> Name:
    """The transpose of a matrix; of a weight a constant, which is made once."""
    value = c.reader.constants.get(weight)
    if value is None:
        return c.emit("Transpose", weight, perm=[1, 0])
    name = Name(f"{weight}.T")
    if name not in c.reader.constants:
        c.reader.constant(np.ascontiguousarray(value.T), name)
    return name


def _matrix_product(second: str) -> Translator:
    return lambda c: c.emit("MatMul", c["self"], c[second])


def _added_product(c: _Call) -> Value:
    inputs = (c["mat1"], c["mat2"], c["self"])
    return c.emit("Gemm", *inputs, alpha=float(c.get("alpha", 1)), beta=float(c.get("beta", 1)))


def _einsum(c: _Call) -> Value:
    return c.emit("Einsum", *c["tensors"], equation=c["equation"])


def _attention(c: _Call) -> Value:
    """softmax(query · keyᵀ · scale + mask) · value."""
    query, key, value, mask = c["query"], c["key"], c["value"], c.get("attn_mask")
    c.refuse_unless(not c.get("dropout_p", 0.0), "dropout")
    c.refuse_unless(not c.get("enable_gqa", False) or c.shape("query")[:-2] == c.shape("key")[:-2], "groups of queries")
    dtype, rank = c.result.dtype, c.rank("key")
    order = [*range(rank - 2), rank - 1, rank - 2]
    scale = c.get("scale", 1 / sqrt(c.shape("query")[-1]))
    scores = c.emit("Mul", c.emit("MatMul", query, c.emit("Transpose", key, perm=order)), c.number(scale, dtype))
    if c.get("is_causal", False):
        rows, columns = c.shape("query")[-2], c.shape("key")[-2]
        scores = _masked(c, scores, c.reader.constant(np.tri(rows, columns, dtype=np.bool_)))
    if mask is not None:
        is_condition = c.metas["attn_mask"].meta["val"].dtype == c.reader.torch.bool
        scores = _masked(c, scores, mask) if is_condition else c.emit("Add", scores, mask)
    return c.emit("MatMul", c.emit("Softmax", scores, axis=-1), value)


def _masked(c: _Call, scores: Name, mask: Name) -> Name:
    return c.emit("Where", mask, scores, c.number(-np.inf, c.result.dtype))


# --- windows -----------------------------------------------------------------------------------------------------------


def _spread(value: Value, rank: int) -> list[int]:
    """A number for each dimension; one may stand for all."""
    found = [value] if isinstance(value, int) else list(value)
    return [int(v) for v in (found * rank if len(found) == 1 else found)]


def _convolution(c: _Call) -> Value:
    if c.get("transposed", False):
        return _convolution_transposed(c)
    rank = c.rank("weight") - 2
    dilations = _spread(c["dilation"], rank)
    padding = c["padding"]
    if isinstance(padding, str):
        whole = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilations, c.shape("weight")[2:], strict=True)]
        pads = [*(n // 2 for n in whole), *(n - n // 2 for n in whole)]
    else:
        pads = _spread(padding, rank) * 2
    return _over_batch(
        c, "Conv", rank, strides=_spread(c["stride"], rank), pads=pads, dilations=dilations, group=c["groups"]
    )


def _convolution_transposed(c: _Call) -> Value:
    rank = c.rank("weight") - 2
    strides, dilations, more = (_spread(c[n], rank) for n in ("stride", "dilation", "output_padding"))
    return _over_batch(
        c, "ConvTranspose", rank, strides=strides, pads=_spread(c["padding"], rank) * 2, dilations=dilations,
        group=c["groups"], output_padding=more,
    )  # fmt: skip


def _over_batch(c: _Call, op: str, rank: int, **attributes: Any) -> Value:
    """The node; an input without the dimension of a batch gets one."""
    inputs = [c["weight"], *([] if c.get("bias") is None else [c["bias"]])]
    if c.rank("input") == rank + 2:
        return c.emit(op, c["input"], *inputs, **attributes)
    made = c.emit(op, c.reshaped(c["input"], (1, *c.shape("input"))), *inputs, **attributes)
    return c.reshaped(made, c.result_shape)


def _max_pool(rank: int, with_positions: bool = False) -> Translator:
    def translate(c: _Call) -> Value:
        extents = _spread(c["kernel_size"], rank)
        made = _pooled(
            c, "MaxPool", rank, kernel_shape=extents, strides=_spread(c.get("stride") or extents, rank),
            pads=_spread(c["padding"], rank) * 2, dilations=_spread(c["dilation"], rank), ceil_mode=int(c["ceil_mode"]),
        )  # fmt: skip
        return (made, None) if with_positions else made

    return translate


def _average_pool(rank: int) -> Translator:
    def translate(c: _Call) -> Value:
        c.refuse_unless(c.get("divisor_override") is None, "a divisor")
        extents = _spread(c["kernel_size"], rank)
        return _pooled(
            c, "AveragePool", rank, kernel_shape=extents, strides=_spread(c.get("stride") or extents, rank),
            pads=_spread(c["padding"], rank) * 2, ceil_mode=int(c["ceil_mode"]),
            count_include_pad=int(c.get("count_include_pad", True)),
        )  # fmt: skip

    return translate


def _adaptive(op: str, rank: int, with_positions: bool = False) -> Translator:
    def translate(c: _Call) -> Value:
        wanted, sizes = c.result_shape[-rank:], c.shape("self")[-rank:]
        if any(n % m for n, m in zip(sizes, wanted, strict=True)):
            raise Unsupported(f"windows of other sizes: {list(sizes)} to {list(wanted)}")
        if set(wanted) == {1}:
            made = _pooled(c, f"Global{op}", rank)
        elif wanted == sizes:
            made = c["self"]
        else:
            extents = [n // m for n, m in zip(sizes, wanted, strict=True)]
            made = _pooled(c, op, rank, kernel_shape=extents, strides=extents)
        return (made, None) if with_positions else made

    return translate


def _pooled(c: _Call, op: str, rank: int, **attributes: Any) -> Value:
    x = c["self"]
    if c.rank("self") == rank + 2:
        return c.emit(op, x, **attributes)
    return c.reshaped(c.emit(op, c.reshaped(x, (1, *c.shape("self"))), **attributes), c.result_shape)


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _padded(c: _Call) -> Value:
    mode, given = c.get("mode", "constant"), c["pad"]
    rank = c.rank("self")
    before, after = [0] * rank, [0] * rank
    for k in range(len(given) // 2):
        before[rank - 1 - k], after[rank - 1 - k] = int(given[2 * k]), int(given[2 * k + 1])
    fill = c.number(c.get("value", 0), c.result.dtype)
    return c.emit("Pad", c["self"], c.ints(*before, *after), fill, mode=_MODES[mode])


def _resized(mode: str, rank: int) -> Translator:
    def translate(c: _Call) -> Value:
        how = "asymmetric" if mode == "nearest" else "align_corners" if c.get("align_corners") else "half_pixel"
        shape, result = c.shape("input" if "input" in c.given else "self"), c.result_shape
        factors = c.get("scale_factors")
        if factors is None:
            sizes = [None, None, None, c.ints(*result)]
        else:
            scales = np.array([1.0] * (len(shape) - rank) + [float(f) for f in factors], np.float32)
            sizes = [None, None, c.reader.constant(scales)]
        x = c.get("input", c.get("self"))
        inputs = [x, *sizes[1:]]
        attributes: dict[str, Any] = {"cubic_coeff_a": -0.75} if mode == "cubic" else {}
        return c.emit(
            "Resize", *inputs, mode=mode, coordinate_transformation_mode=how, nearest_mode="floor", **attributes
        )

    return translate


# --- norms and reductions ----------------------------------------------------------------------------------------------


def _weight_or(c: _Call, name: str, value: float, shape: Sequence[int]) -> Value:
    dtype = np.dtype(str(c.result.dtype).removeprefix("torch."))
    return c.reader.constant(np.full(tuple(shape), value, dtype)) if c.get(name) is None else c[name]


def _batch_norm(c: _Call) -> Value:
    c.refuse_unless(not c["training"] and c.get("running_mean") is not None, "statistics of the batch")
    channels = c.shape("input")[1:2]
    scale, bias = _weight_or(c, "weight", 1.0, channels), _weight_or(c, "bias", 0.0, channels)
    inputs = (c["input"], scale, bias, c["running_mean"], c["running_var"])
    return c.emit("BatchNormalization", *inputs, epsilon=float(c["eps"]))


def _instance_norm(c: _Call) -> Value:
    c.refuse_unless(bool(c["use_input_stats"]), "kept statistics")
    channels = c.shape("input")[1:2]
    scale, bias = _weight_or(c, "weight", 1.0, channels), _weight_or(c, "bias", 0.0, channels)
    return c.emit("InstanceNormalization", c["input"], scale, bias, epsilon=float(c["eps"]))


def _group_norm(c: _Call) -> Value:
    channels = c.shape("input")[1:2]
    scale, bias = _weight_or(c, "weight", 1.0, channels), _weight_or(c, "bias", 0.0, channels)
    groups = int(c["num_groups"])
    return c.emit("GroupNormalization", c["input"], scale, bias, epsilon=float(c["eps"]), num_groups=groups)


def _layer_norm(c: _Call) -> Value:
    shape = [int(n) for n in c["normalized_shape"]]
    inputs = [c["input"], _weight_or(c, "weight", 1.0, shape), *([] if c.get("bias") is None else [c["bias"]])]
    return c.emit("LayerNormalization", *inputs, axis=-len(shape), epsilon=float(c["eps"]))


def _rms_norm(c: _Call) -> Value:
    shape = [int(n) for n in c["normalized_shape"]]
    least = c.get("eps", float(np.finfo(str(c.result.dtype).removeprefix("torch.")).eps))
    return c.emit(
        "RMSNormalization", c["input"], _weight_or(c, "weight", 1.0, shape), axis=-len(shape), epsilon=float(least)
    )


def _softmax(op: str) -> Translator:
    return lambda c: c.emit(op, c.typed("self"), axis=c.axis())


def _reduced(op: str) -> Translator:
    def translate(c: _Call) -> Value:
        dims = c.get("dim", [])
        axes = [int(d) for d in ([dims] if isinstance(dims, int) else dims)]
        kept = int(c.get("keepdim", False))
        x = c.typed("self")
        return c.emit(op, x, axes=axes, keepdims=kept) if axes else c.emit(op, x, keepdims=kept)

    return translate


def _extreme(op: str, position: str) -> Translator:
    """`max` and `min`: of two tensors, of all elements, or along a dimension, then with positions."""

    def translate(c: _Call) -> Value:
        if "other" in c.given:
            return _binary(op.removeprefix("Reduce"))(c)
        if "dim" not in c.given:
            return c.emit(op, c["self"], keepdims=0)
        kept = int(c["keepdim"])
        values = c.emit(op, c["self"], axes=[int(c["dim"])], keepdims=kept)
        return values, c.emit(position, c["self"], axis=c.axis(), keepdims=kept)

    return translate


def _position(op: str) -> Translator:
    def translate(c: _Call) -> Value:
        if c.get("dim") is None:
            flat = c.reshaped(c["self"], (-1,))
            return c.emit(op, flat, axis=0, keepdims=0)
        return c.emit(op, c["self"], axis=c.axis(), keepdims=int(c["keepdim"]))

    return translate


def _cumulative(c: _Call) -> Value:
    return c.emit("CumSum", c.typed("self"), c.ints(c.axis()))


def _greatest(c: _Call) -> Value:
    return tuple(
        c.reader.emit("TopK", [c["self"], c.ints(int(c["k"]))], 2, axis=c.axis(), largest=int(c["largest"]), sorted=1)
    )


# --- movement ----------------------------------------------------------------------------------------------------------


def _reshaped(c: _Call) -> Value:
    return c.reshaped(c["self"], c.result_shape)


def _permuted(c: _Call) -> Value:
    rank = c.rank("self")
    return c.emit("Transpose", c["self"], perm=[int(d) % rank for d in c["dims"]])


def _swapped(c: _Call) -> Value:
    rank = c.rank("self")
    order = list(range(rank))
    names = ("dim0", "dim1") if "dim0" in c.given else ("axis0", "axis1")
    a, b = (int(c.get(n, k)) % max(rank, 1) for k, n in enumerate(names))
    if rank > 1:
        order[a], order[b] = order[b], order[a]
    return c.emit("Transpose", c["self"], perm=order)


def _last_swapped(c: _Call) -> Value:
    rank = c.rank("self")
    return c.emit("Transpose", c["self"], perm=[*range(rank - 2), rank - 1, rank - 2])


def _expanded(c: _Call) -> Value:
    return c.emit("Expand", c["self"], c.ints(*c.result_shape))


def _repeated(c: _Call) -> Value:
    repeats = [int(n) for n in c["repeats"]]
    x = c.reshaped(c["self"], (*(1,) * (len(repeats) - c.rank("self")), *c.shape("self")))
    return c.emit("Tile", x, c.ints(*repeats))


def _concatenated(c: _Call) -> Value:
    dtype, given = c.result.dtype, zip(c["tensors"], c.metas["tensors"], strict=True)
    parts = [t if m.meta["val"].dtype == dtype else c.cast(t, dtype) for t, m in given]
    return c.emit("Concat", *parts, axis=int(c["dim"]) % len(c.result_shape))


def _stacked(c: _Call) -> Value:
    axis, rank = int(c["dim"]), len(c.result_shape)
    parts = [c.emit("Unsqueeze", t, c.ints(axis % rank)) for t in c["tensors"]]
    return c.emit("Concat", *parts, axis=axis % rank)


def _split(c: _Call) -> Value:
    axis = c.axis()
    sizes = [int(part.shape[axis]) for part in c.node.meta["val"]]
    return tuple(c.reader.emit("Split", [c["self"], c.ints(*sizes)], len(sizes), axis=axis))


def _unbound(c: _Call) -> Value:
    axis, count = c.axis(), len(c.node.meta["val"])
    parts = c.reader.emit("Split", [c["self"], c.ints(*[1] * count)], count, axis=axis)
    return tuple(c.reshaped(p, c.result_shape) for p in parts)


def _sliced(c: _Call) -> Value:
    axis = c.axis()
    start, end, step = c.get("start", 0), c.get("end", c.shape("self")[axis]), int(c.get("step", 1))
    if "length" in c.given:
        end = int(start) + int(c["length"])
    return c.emit("Slice", c["self"], c.ints(start), c.ints(end), c.ints(axis), c.ints(step))


def _selected(c: _Call) -> Value:
    axis, index = c.axis(), int(c["index"])
    index += c.shape("self")[axis] if index < 0 else 0
    return c.reshaped(c.emit("Slice", c["self"], c.ints(index), c.ints(index + 1), c.ints(axis)), c.result_shape)


def _embedded(c: _Call) -> Value:
    return c.emit("Gather", c["weight"], c["indices"], axis=0)


def _index_selected(c: _Call) -> Value:
    return c.emit("Gather", c["self"], c["index"], axis=c.axis())


def _gathered(c: _Call) -> Value:
    return c.emit("GatherElements", c["self"], c["index"], axis=c.axis())


def _indexed(c: _Call) -> Value:
    given = [(k, i) for k, i in enumerate(c["indices"]) if i is not None]
    kinds = [i.meta["val"].dtype for i in c.metas["indices"] if i is not None]
    c.refuse_unless(len(given) == 1 and kinds[0] != c.reader.torch.bool, "several indices, or a mask")
    ((axis, index),) = given
    return c.emit("Gather", c["self"], index, axis=axis)


def _rolled(c: _Call) -> Value:
    x = c["self"]
    c.refuse_unless(bool(c["dims"]), "no dimensions")
    for shift, dim in zip(c["shifts"], c["dims"], strict=True):
        axis = int(dim) % c.rank("self")
        size = c.shape("self")[axis]
        at = -int(shift) % max(size, 1)
        if at:
            begin, end = (c.emit("Slice", x, c.ints(a), c.ints(b), c.ints(axis)) for a, b in ((0, at), (at, size)))
            x = c.emit("Concat", end, begin, axis=axis)
    return x


def _triangle(upper: int) -> Translator:
    return lambda c: c.emit("Trilu", c["self"], c.ints(int(c["diagonal"])), upper=upper)


def _shuffled(c: _Call) -> Value:
    return c.emit("DepthToSpace", c["self"], blocksize=int(c["upscale_factor"]), mode="CRD")


# --- recurrent layers --------------------------------------------------------------------------------------------------


def _gates(array: Array, order: Sequence[int]) -> Array:
    """The rows of the gates in another order."""
    size = array.shape[0] // len(order)
    return np.concatenate([array[k * size : (k + 1) * size] for k in order])


def _recurrent(op: str, order: Sequence[int], **attributes: Any) -> Translator:
    """A stack of layers. `order` has the gates of ONNX among those of PyTorch."""

    def translate(c: _Call) -> Value:
        lstm = op == "LSTM"
        c.refuse_unless("batch_first" in c.given and c.rank("input") == 3, "a batch of sequences of several lengths")
        c.refuse_unless(not (c["train"] and c["dropout"]), "dropout")
        states = list(c["hx"]) if lstm else [c["hx"]]
        both, layers, biased = bool(c["bidirectional"]), int(c["num_layers"]), bool(c["has_biases"])
        directions, each = 2 if both else 1, 4 if biased else 2
        parameters = [c.array(p) for p in c["params"]]
        c.refuse_unless(len(parameters) == layers * directions * each, "a projection of the states")
        x = c["input"]
        if c["batch_first"]:
            x = c.emit("Transpose", x, perm=[1, 0, 2])
        ends: list[list[Name]] = [[] for _ in states]
        batch, steps = (c.shape("input")[k] for k in ((0, 1) if c["batch_first"] else (1, 0)))
        hidden = parameters[1].shape[1]
        for layer in range(layers):
            first = layer * directions
            rows = [parameters[(first + d) * each : (first + d + 1) * each] for d in range(directions)]
            w, r = (np.stack([_gates(p[k], order) for p in rows]) for k in (0, 1))
            inputs: list[Value] = [x, c.reader.constant(w), c.reader.constant(r), None, None]
            if biased:
                b = np.stack([np.concatenate([_gates(p[2], order), _gates(p[3], order)]) for p in rows])
                inputs[3] = c.reader.constant(b)
            at = c.ints(first), c.ints(first + directions), c.ints(0)
            inputs += [c.emit("Slice", s, *at) for s in states]
            direction = "bidirectional" if both else "forward"
            made = c.reader.emit(op, inputs, 1 + len(states), hidden_size=hidden, direction=direction, **attributes)
            for end, value in zip(ends, made[1:], strict=True):
                end.append(value)
            turned = c.emit("Transpose", made[0], perm=[0, 2, 1, 3])
            x = c.reshaped(turned, (steps, batch, directions * hidden))
        if c["batch_first"]:
            x = c.emit("Transpose", x, perm=[1, 0, 2])
        return (x, *(c.emit("Concat", *end, axis=0) for end in ends))

    return translate


TARGETS: Mapping[str, Translator] = {
    **dict.fromkeys(
        ("contiguous", "clone", "detach", "alias", "lift_fresh_copy"), _same
    ),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), _dropped),
    **{
        name: _unary(op)
        for name, op in {
            "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "silu": "Swish", "hardswish": "HardSwish", "mish": "Mish",
            "selu": "Selu", "erf": "Erf", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "reciprocal": "Reciprocal",
            "abs": "Abs", "neg": "Neg", "sin": "Sin", "cos": "Cos", "tan": "Tan", "floor": "Floor", "ceil": "Ceil",
            "round": "Round", "sign": "Sign", "isnan": "IsNaN", "isinf": "IsInf", "softsign": "Softsign",
            "logical_not": "Not",
        }.items()
    },
    "hardsigmoid": _unary("HardSigmoid", alpha=1 / 6, beta=0.5),
    "gelu": lambda c: c.emit("Gelu", c["self"], approximate=c.get("approximate", "none")),
    "leaky_relu": lambda c: c.emit("LeakyRelu", c["self"], alpha=float(c["negative_slope"])),
    "celu": lambda c: c.emit("Celu", c["self"], alpha=float(c["alpha"])),
    "relu6": _relu6,
    "hardtanh": _clamped("min_val", "max_val"),
    "clamp": _clamped("min", "max"),
    "clamp_min": _clamped("min", ""),
    "clamp_max": _clamped("", "max"),
    "elu": _elu,
    "softplus": _softplus,
    "prelu": _prelu,
    "rsqrt": _rsqrt,
    "square": lambda c: c.emit("Mul", c["self"], c["self"]),
    "glu": _glu,
    "add": _binary("Add"),
    "sub": _binary("Sub"),
    "mul": _binary("Mul"),
    "rsub": _subtracted_from,
    "div": _divided,
    "pow": _power,
    "maximum": _binary("Max"),
    "minimum": _binary("Min"),
    **{
        name: _compared(op)
        for name, op in {
            "eq": "Equal", "ne": "NotEqual", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
        }.items()
    },
    "logical_and": _logical("And"),
    "logical_or": _logical("Or"),
    "logical_xor": _logical("Xor"),
    **dict.fromkeys(("bitwise_and", "__and__"), _bitwise("And")),
    **dict.fromkeys(("bitwise_or", "__or__"), _bitwise("Or")),
    **dict.fromkeys(("bitwise_xor", "__xor__"), _bitwise("Xor")),
    "bitwise_not": _bits_turned,
    "where": _where,
    "masked_fill": _masked_fill,
    **dict.fromkeys(("to", "type_as", "_to_copy"), _converted),
    **dict.fromkeys(("zeros_like", "new_zeros"), _full_like(0.0)),
    **dict.fromkeys(("ones_like", "new_ones"), _full_like(1.0)),
    **dict.fromkeys(("full_like", "new_full"), _full_like(None)),
    "linear": _linear,
    "matmul": _matrix_product("other"),
    "bmm": _matrix_product("mat2"),
    "mm": _matrix_product("mat2"),
    "addmm": _added_product,
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convolution_transposed),
    **{f"max_pool{r}d": _max_pool(r) for r in (1, 2, 3)},
    **{f"max_pool{r}d_with_indices": _max_pool(r, True) for r in (1, 2, 3)},
    **{f"avg_pool{r}d": _average_pool(r) for r in (1, 2, 3)},
    **{f"adaptive_avg_pool{r}d": _adaptive("AveragePool", r) for r in (1, 2, 3)},
    **{f"adaptive_max_pool{r}d": _adaptive("MaxPool", r, True) for r in (1, 2, 3)},
    "pad": _padded,
    "constant_pad_nd": _padded,
    "upsample_nearest1d": _resized("nearest", 1),
    "upsample_nearest2d": _resized("nearest", 2),
    "upsample_bilinear2d": _resized("linear", 2),
    "upsample_bicubic2d": _resized("cubic", 2),
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    **dict.fromkeys(("softmax", "_softmax"), _softmax("Softmax")),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _softmax("LogSoftmax")),
    "mean": _reduced("ReduceMean"),
    "sum": _reduced("ReduceSum"),
    "prod": _reduced("ReduceProd"),
    "amax": _reduced("ReduceMax"),
    "amin": _reduced("ReduceMin"),
    "max": _extreme("ReduceMax", "ArgMax"),
    "min": _extreme("ReduceMin", "ArgMin"),
    "argmax": _position("ArgMax"),
    "argmin": _position("ArgMin"),
    "cumsum": _cumulative,
    "topk": _greatest,
    **dict.fromkeys(
        ("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"),
        _reshaped,
    ),
    "permute": _permuted,
    **dict.fromkeys(("transpose", "t", "swapaxes"), _swapped),
    "numpy_T": lambda c: c.emit("Transpose", c["self"]),
    "mT": _last_swapped,
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expanded),
    "repeat": _repeated,
    **dict.fromkeys(("cat", "concat"), _concatenated),
    "stack": _stacked,
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), _split),
    "unbind": _unbound,
    **dict.fromkeys(("slice", "narrow"), _sliced),
    "select": _selected,
    "embedding": _embedded,
    "index_select": _index_selected,
    "gather": _gathered,
    "index": _indexed,
    "roll": _rolled,
    "tril": _triangle(0),
    "triu": _triangle(1),
    "pixel_shuffle": _shuffled,
    "lstm": _recurrent("LSTM", (0, 3, 1, 2)),
    "gru": _recurrent("GRU", (1, 0, 2), linear_before_reset=1),
    "rnn_tanh": _recurrent("RNN", (0,)),
    "rnn_relu": _recurrent("RNN", (0,), activations=["Relu", "Relu"]),
}  # fmt: skip
"""How the operators of PyTorch are translated, by their names without overloads."""

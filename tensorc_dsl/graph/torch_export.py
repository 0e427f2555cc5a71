"""Reads modules of PyTorch into graphs: `torch.export` traces a module, and each node of the trace becomes operators of ONNX.

The trace is not decomposed, so it has the layers that people write: a linear layer, a layer norm, attention, an LSTM.
https://docs.pytorch.org/docs/stable/export.html
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, cast

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.graph.aten import along_axes, complex_numbers, layers, places, pointwise
from tensorc_dsl.graph.aten.traced import Call, Growing, Name, Pair, Torch, Translator, Value
from tensorc_dsl.graph.graph import DTYPES, RANDOM, REASON, Asked, Dims, Graph, Node, Tensor, Unsupported
from tensorc_dsl.graph.onnx_file import NOT_IMPORTED

_TABLES: Mapping[str, Translator] = {**pointwise.TABLE, **layers.TABLE, **along_axes.TABLE, **places.TABLE}

_OTHER_NAMES: Mapping[str, str] = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "clip": "clamp", "concatenate": "cat", "divide": "div", "greater": "gt",
    "greater_equal": "ge", "less": "lt", "less_equal": "le", "moveaxis": "movedim", "multiply": "mul", "negative": "neg",
    "not_equal": "ne", "special_erf": "erf", "special_erfc": "erfc", "special_exp2": "exp2", "special_expm1": "expm1",
    "special_log1p": "log1p", "special_logsumexp": "logsumexp", "subtract": "sub", "swapdims": "swapaxes",
    "true_divide": "div",
}  # fmt: skip
"""Operators that are others by another name."""

TARGETS: Mapping[str, Translator] = {**_TABLES, **{name: _TABLES[known] for name, known in _OTHER_NAMES.items()}}
"""How the operators of PyTorch are translated, by their names without overloads."""

COMPLEX = complex_numbers.table(TARGETS)
"""How those are translated that take or make complex numbers."""


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
        return _Reader(name, Growing(torch)).graph(program)
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
            program = torch.export.export(module, args, kwargs)
            # What changes tensors in place makes new ones instead.
            if any(map(_changes, _nodes_of(program))):
                program = program.run_decompositions({})
            return _with_known(torch, program)
    except MemoryError:
        raise
    except Exception as e:  # of no kind that is documented
        lines = str(e).strip().splitlines() or [type(e).__name__]
        repair = "`torch.export.export(module, example)` says more"
        raise TschedError(NOT_IMPORTED(None, path=name, why=lines[0].strip(), repair=repair)) from e
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


_ROUNDS = 8
"""How often unknown operators are decomposed at most: what they consist of may be unknown as well."""


def _with_known(torch: Torch, program: Torch) -> Torch:
    """The trace with operators that are not known here decomposed by PyTorch, and all others left as they are."""
    every = torch.export.default_decompositions()
    failed: set[Torch] = set()
    for _ in range(_ROUNDS):
        targets = {n.target for n in _nodes_of(program) if n.op == "call_function"} - failed
        unknown = [t for t in targets if _name_of(t) and _name_of(t) not in TARGETS and _name_of(t) not in COMPLEX]
        chosen = {t: every[t] for t in unknown if t in every}
        # Operators that are written as others need no entry in the table.
        chosen |= {t: t.decompose for t in unknown if t not in every and t._can_decompose()}
        if not chosen:
            break
        made = _decomposed(program, chosen)
        for t, how in chosen.items() if made is None else ():
            one = _decomposed(program, {t: how})
            program = program if one is None else one
            failed |= {t} if one is None else set()
        program = program if made is None else made
    return program


def _nodes_of(program: Torch) -> Iterator[Torch]:
    """The nodes of the trace, and those of branches and bodies in it."""
    for module in program.graph_module.modules():
        yield from module.graph.nodes


def _decomposed(program: Torch, table: Mapping[Torch, Torch]) -> Torch | None:
    """The trace with operators decomposed; None if that asks for the content of a tensor, or fails otherwise."""
    try:
        return program.run_decompositions(dict(table))
    except MemoryError:
        raise
    except Exception:  # of no kind that is documented
        return None


def _name_of(target: Torch) -> str:
    """The name of an operator without its overload, and without its library if that is PyTorch's; "" if it is none."""
    schema = getattr(target, "_schema", None)
    return "" if schema is None else str(schema.name).removeprefix("aten::")


def _changes(node: Torch) -> bool:
    """Whether a node of a trace changes one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


_UNKNOWN = "this operator is not supported"

_REASONS: Mapping[str, str] = dict.fromkeys(
    "nonzero _unique2 unique_dim unique_consecutive bincount masked_select torchvision::nms".split(),
    "the size of its result depends on data: leave it out, and compute it of the outputs of the model",
)
"""Why operators are not supported."""


_NO_MATTER = frozenset(
    "check compute_mode copy cudnn_enable cudnn_enabled device dtype end_dim generator implicit include_last_offset layout "
    "memory_format momentum non_blocking out_dtype output_size padding_idx path pin_memory scale_grad_by_freq sorted sparse "
    "sparse_grad stable start_dim".split()
)
"""Arguments that change no value, or what a result's type and shape tell."""


@dataclass(slots=True)
class _Reader:
    name: str
    made: Growing
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    """By the name of a node of the trace."""
    traced: dict[str, tuple[str, Tensor]] = field(default_factory=dict[str, tuple[str, Tensor]])

    def graph(self, program: Torch) -> Graph:
        inputs: dict[str, tuple[str, Dims]] = {}
        self.made.inputs = {s.arg.name for s in program.graph_signature.input_specs if s.target is None}
        kinds = {s.arg.name: s for s in program.graph_signature.input_specs if hasattr(s.arg, "name")}
        outputs: list[Name] = []
        for node in program.graph.nodes:
            match node.op:
                case "placeholder":
                    self.values[node.name] = self._placeholder(program, node, kinds[node.name], inputs)
                case "get_attr":
                    self.values[node.name] = self._attribute(node, program.constants)
                case "call_function":
                    self._call(node)
                case "output":
                    outputs = self._outputs(program, node)
                case _:
                    self._refuse(node, f"a node of the kind {node.op}")
        return self._named(inputs, outputs)

    def _placeholder(self, program: Torch, node: Torch, spec: Torch, inputs: dict[str, tuple[str, Dims]]) -> Value:
        if spec.target is not None:
            table = program.constants if spec.target in program.constants else program.state_dict
            return self.made.tensor(str(spec.target), table[spec.target])
        value = node.meta["val"]
        if not isinstance(value, self.made.torch.Tensor):
            return value  # a number or a flag of the example: the trace is for it
        inputs[node.name] = self.made.dtype(value.dtype), tuple(int(n) for n in value.shape)
        return Name(node.name)

    def _attribute(self, node: Torch, constants: Mapping[str, Torch]) -> Value:
        """A constant, or a module of the trace: a branch, or a body."""
        found = constants.get(node.target)
        found = getattr(node.graph.owning_module, node.target) if found is None else found
        return self.made.tensor(str(node.target), found) if isinstance(found, self.made.torch.Tensor) else found

    def _outputs(self, program: Torch, node: Torch) -> list[Name]:
        """The outputs of the module; a trace that also changes what the module keeps has further ones."""
        out: list[Name] = []
        for spec, value in zip(program.graph_signature.output_specs, node.args[0], strict=True):
            if spec.kind.name == "TOKEN":  # of an assertion
                continue
            if spec.kind.name != "USER_OUTPUT":
                reason = f"it changes `{spec.target}` in place, which is there after the call"
                out.append(self._refused_output(self.made.place, reason))
            elif hasattr(value, "name"):
                found = self.values[value.name]
                if isinstance(found, Pair):
                    found = self._refused_output(value.name, "complex numbers: return `torch.view_as_real` of them")
                out.append(found if isinstance(found, Name) else self.made.constant(np.asarray(found)))
        return out

    def _refused_output(self, place: str, reason: str) -> Name:
        refused = Name(self.made.fresh("refused"))
        self.made.nodes.append(Node("output", (), (refused,), {REASON: reason}, place))
        return refused

    def _named(self, inputs: dict[str, tuple[str, Dims]], outputs: list[Name]) -> Graph:
        """The graph with the outputs called `output`, or by their numbers if there are several."""
        made = {o for n in self.made.nodes for o in n.outputs}
        names: dict[str, str] = {}
        for k, name in enumerate(outputs):
            if name in made and name not in names:
                named = f"output_{k}" if len(outputs) > 1 else "output"
                while named in inputs or named in self.made.constants:
                    named += "_"
                names[name] = named
        nodes = [
            replace(
                n,
                inputs=tuple(names.get(i, i) for i in n.inputs),
                outputs=tuple(names.get(o, o) for o in n.outputs),
            )
            for n in self.made.nodes
        ]
        traced = {names.get(name, name): found for name, found in self.traced.items()}
        outs = tuple(names.get(o, o) for o in outputs)
        return Graph(self.name, inputs, outs, nodes, self.made.constants, traced=traced)

    def _call(self, node: Torch) -> None:
        path = [str(p) for p, _ in node.meta.get("nn_module_stack", {}).values()]
        self.made.place = f"{path[-1]}: {node.name}" if path and path[-1] else str(node.name)
        if getattr(node.target, "__name__", "") == "getitem":
            whole = self.values[node.args[0].name]
            self.values[node.name] = whole[node.args[1]] if isinstance(whole, tuple | list) else whole
            return
        before = len(self.made.nodes)
        try:
            made = self.values[node.name] = self._translated(node)
            self._note_types(made, node.meta.get("val"))
        except Unsupported as e:
            del self.made.nodes[before:]
            self._refuse(node, str(e))
        except (KeyError, IndexError, ValueError, TypeError, AttributeError):
            # An overload, or a kind of argument, that its translator does not know.
            del self.made.nodes[before:]
            self._refuse(node, "this form of it is not supported")

    def _note_types(self, made: Value, traced: Value) -> None:
        """What a node makes has the types that it had in the trace."""
        if isinstance(made, list | tuple) and isinstance(traced, list | tuple):
            for one, known in zip(cast("Sequence[Value]", made), cast("Sequence[Value]", traced), strict=False):
                self._note_types(one, known)
        elif isinstance(made, Name) and isinstance(traced, self.made.torch.Tensor):
            dtype = DTYPES.get(str(traced.dtype).removeprefix("torch."))
            if dtype is not None and all(isinstance(n, int) for n in traced.shape):  # others depend on data
                self.traced[made] = self.made.place, Tensor(dtype, tuple(traced.shape))

    def _refuse(self, node: Torch, reason: str) -> None:
        used = [v for n in node.all_input_nodes if isinstance(v := self.values.get(n.name), Name)]
        self.made.nodes.append(Node(str(node.target), tuple(used), (node.name,), {REASON: reason}, self.made.place))
        self.values[node.name] = Name(node.name)

    def _translated(self, node: Torch) -> Value:
        name = _name_of(node.target)
        if not name:
            if str(node.target) not in _CONTROL:
                raise Unsupported(_UNKNOWN)
            return _CONTROL[str(node.target)](self, *map(self._argument, node.args))
        schema = node.target._schema
        if not node.all_input_nodes and self.made.torch.Tag.nondeterministic_seeded not in node.target.tags:
            made = node.target(*node.args, **node.kwargs)
            return self.made.tensor(node.name, made) if isinstance(made, self.made.torch.Tensor) else made
        given: dict[str, Value] = {}
        metas: dict[str, Torch] = {}
        for k, a in enumerate(schema.arguments):
            value = node.args[k] if k < len(node.args) else node.kwargs.get(a.name, a.default_value)
            given[a.name], metas[a.name] = self._argument(value), value
        call = Call(self.made, node, given, metas)
        if complex_numbers.is_complex(call):
            if name not in COMPLEX:
                raise Unsupported("complex numbers" if name in TARGETS else _UNKNOWN)
            return COMPLEX[name](call)
        if name not in TARGETS:
            is_random = self.made.torch.Tag.nondeterministic_seeded in node.target.tags
            raise Unsupported(_REASONS.get(name, RANDOM if is_random else _UNKNOWN))
        read = Asked(given)
        made = TARGETS[name](replace(call, given=read))
        ignored = [
            a.name
            for a in schema.arguments
            if (metas[a.name] != a.default_value if a.has_default_value() else a.kwarg_only)
            and a.name not in read.names | _NO_MATTER
        ]
        call.refuse_unless(not ignored, f"this form of it, with `{'` and `'.join(ignored)}`, is not supported")
        return made

    # --- modules of the trace ---

    def inside(self, module: Torch, given: Sequence[Value]) -> list[Value]:
        """The outputs of a module for these inputs. Its nodes are added."""
        outer, self.values = self.values, {}
        inputs = iter(given)
        outputs: Value = None
        try:
            for node in module.graph.nodes:
                match node.op:
                    case "placeholder":
                        self.values[node.name] = next(inputs)
                    case "get_attr":
                        self.values[node.name] = self._attribute(node, {})
                    case "output":
                        outputs = self._argument(node.args[0])
                    case _:
                        self._call(node)
        finally:
            self.values = outer
        return cast("list[Value]", outputs) if isinstance(outputs, list) else [outputs]

    def graph_of(self, make: Callable[[], Sequence[Value]], inputs: Sequence[str] = ()) -> Graph:
        """A branch or a body with the nodes that `make` adds, whose outputs are what it returns."""
        outer, self.made.nodes = self.made.nodes, []
        try:
            outputs = tuple(map(self.name_of, make()))
            return Graph(self.made.place, dict.fromkeys(inputs, ("", ())), outputs, self.made.nodes)
        finally:
            self.made.nodes = outer

    def name_of(self, value: Value) -> Name:
        """The name of a value that control flow takes or makes: a tensor, or a number, which is a constant."""
        if isinstance(value, Pair):
            raise Unsupported("complex numbers: take and return `torch.view_as_real` of them")
        return value if isinstance(value, Name) else self.made.constant(np.asarray(value))

    def _argument(self, value: Any) -> Value:
        if isinstance(value, list | tuple):
            return [self._argument(v) for v in cast("Sequence[Any]", value)]
        return self.values[value.name] if hasattr(value, "all_input_nodes") else value


# --- control flow ------------------------------------------------------------------------------------------------------


def _branch(reader: _Reader, condition: Value, first: Torch, second: Torch, given: Sequence[Value] = ()) -> Value:
    """`torch.cond`."""
    place, graphs = reader.made.place, [reader.graph_of(partial(reader.inside, m, given)) for m in (first, second)]
    reader.made.place = place
    return reader.made.emit(
        "If", [reader.name_of(condition)], len(graphs[0].outputs), then_branch=graphs[0], else_branch=graphs[1]
    )


def _loop(reader: _Reader, goes_on: Torch, body: Torch, states: Sequence[Value], given: Sequence[Value]) -> Value:
    """`while_loop`."""
    place, carried = reader.made.place, [reader.name_of(s) for s in states]
    (going,) = reader.inside(goes_on, [*carried, *given])
    names = [Name(reader.made.fresh("state")) for _ in carried]

    def step() -> list[Value]:
        ends = reader.inside(body, [*names, *given])
        return [*reader.inside(goes_on, [*ends, *given]), *ends]

    inputs = [reader.made.fresh("step"), reader.made.fresh("going"), *names]
    whole = reader.graph_of(step, inputs)
    reader.made.place = place
    return reader.made.emit("Loop", [None, reader.name_of(going), *carried], len(carried), body=whole)


def _without_gradients(reader: _Reader, _: bool, module: Torch, *given: Value) -> Value:
    """A block with `torch.no_grad()`."""
    return reader.inside(module, given)


def _in_own_types(
    reader: _Reader, _device: str, _dtype: Value, enabled: bool, _cache: Value, module: Torch, *given: Value
) -> Value:
    """A block with `torch.autocast(…, enabled=False)`."""
    if enabled:
        raise Unsupported("`torch.autocast`: export the module with the types that it shall have")
    return reader.inside(module, given)


_CONTROL: Mapping[str, Callable[..., Value]] = {
    "cond": _branch,
    "while_loop": _loop,
    "wrap_with_set_grad_enabled": _without_gradients,
    "wrap_with_autocast": _in_own_types,
}
"""What calls modules of the trace, by its name in `torch.ops.higher_order`."""

"""ONNX files with mistakes: `python -m campaigns.broken_models --seed 0 --count 100`.

A random model is changed in a few bytes, or in a few fields, or cut off. Its import ends in a file that checks, or in E0940,
E0941 or E0942, within a time and a memory; it neither raises nor crashes. What ONNX Runtime still runs is compared, too.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx

from campaigns.random_models import grown
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.graph.importing import import_graph
from tensorc_dsl.graph.onnx_file import read_onnx
from tensorc_dsl.graph.writing import written
from tests.graph.onnx_cases import Array, by_reference, by_runtime, silence

SECONDS = 60
MEMORY = 6 << 30
"""Bytes of addresses, those of the libraries included."""

REFUSALS = ("E0940", "E0941", "E0942")

INTEGERS = (0, 1, -1, 2, 3, -7, 64, 1 << 16, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e30, 1e-30)
WORDS = ("", "x", "NOTSET", "SAME_UPPER", "add", "linear", "a b\n", "é", "/", "\0")


# --- changes -----------------------------------------------------------------------------------------------------------


def changed_bytes(rng: Random, content: bytes) -> bytes:
    """The file with a few bytes changed, moved, left out, or without its end."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) or 1)
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                data[at : at + 1] = bytes([data[at] ^ 1 << rng.randrange(8)]) if data else b""
            case 2:
                del data[at : at + rng.randint(1, 8)]
            case 3:
                data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 8)))
            case _:
                del data[at if rng.random() < 0.2 else len(data) :]
    return bytes(data)


def changed_fields(rng: Random, content: bytes) -> bytes:
    """The file with a few fields of its messages changed, left out, said twice, or taken from elsewhere in it."""
    model = onnx.ModelProto()
    model.ParseFromString(content)
    for _ in range(rng.randint(1, 3)):
        places = [model, *_messages(model.graph)]
        by_kind: dict[str, list[Any]] = {}
        for m in places:
            by_kind.setdefault(m.DESCRIPTOR.name, []).append(m)
        message = rng.choice(by_kind[rng.choice(list(by_kind))])
        _change(rng, message, by_kind)
    return model.SerializeToString()


def _messages(message: Any) -> Any:
    yield message
    for _, value in message.ListFields():
        for inner in value if hasattr(value, "__len__") and not isinstance(value, str | bytes) else [value]:
            if hasattr(inner, "ListFields"):
                yield from _messages(inner)


def _change(rng: Random, message: Any, others: Mapping[str, list[Any]]) -> None:
    used = [f for f, _ in message.ListFields()]
    field = rng.choice(used if used and rng.random() < 0.9 else message.DESCRIPTOR.fields)
    is_list = field.is_repeated
    if rng.random() < 0.15:
        message.ClearField(field.name)
        return
    if field.message_type is not None:
        kind = others.get(field.message_type.name)
        value = getattr(message, field.name)
        if not is_list:
            if kind:
                value.ParseFromString(rng.choice(kind).SerializeToString())
            return
        if len(value) and rng.random() < 0.4:
            del value[rng.randrange(len(value))]
        elif kind:
            value.add().ParseFromString(rng.choice(kind).SerializeToString())
        return
    try:
        if not is_list:
            setattr(message, field.name, _drawn(rng, field, getattr(message, field.name), others))
            return
        values = list(getattr(message, field.name))
        at = rng.randrange(len(values) + 1)
        if at < len(values) and rng.random() < 0.7:
            values[at] = _drawn(rng, field, values[at], others)
        elif at < len(values) and rng.random() < 0.5:
            del values[at]
        else:
            values.insert(at, _drawn(rng, field, None, others))
        message.ClearField(field.name)
        getattr(message, field.name).extend(values)
    except (ValueError, TypeError):  # a value that the field cannot have
        message.ClearField(field.name)


def _drawn(rng: Random, field: Any, old: Any, others: Mapping[str, list[Any]]) -> Any:
    """A value for a field: an odd one, one near the old one, or one of another message."""
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice((*FLOATS, (old or 1.0) * 2))
    if field.cpp_type == field.CPPTYPE_STRING:
        nodes = others.get("NodeProto", [])
        names = [n for m in nodes for n in (*m.input, *m.output)] if field.name in ("input", "output", "name") else []
        names += [m.op_type for m in nodes] if field.name == "op_type" else []
        word = rng.choice(names) if names and rng.random() < 0.7 else rng.choice(WORDS)
        return word.encode() if field.type == field.TYPE_BYTES else word
    if field.cpp_type == field.CPPTYPE_ENUM:
        return rng.choice(list(field.enum_type.values_by_number))
    if rng.random() < 0.6 and isinstance(old, int):
        return old + rng.choice((-2, -1, 1, 2))
    return rng.choice(INTEGERS)


# --- what the import makes of it ---------------------------------------------------------------------------------------


def outcome(content: bytes, inputs: Mapping[str, Array], folder: Path) -> str:
    """ "right", "refused", "alone" if ONNX Runtime refuses what is imported, or what is wrong."""
    path = folder / "net.onnx"
    path.write_bytes(content)
    try:
        graph = import_graph(read_onnx(path), {}, {})
        text, weights = written(graph, "net", path.name, "net.safetensors")
        file = load_source(Source.of(text.encode(), "net.tsched"))
    except TschedError as e:
        (d, *_) = e.diagnostics
        return "refused" if d.code in REFUSALS else f"{d.code}: {d.message}"
    if file.errors:
        return "; ".join(d.message for d in file.diagnostics)
    model = onnx.ModelProto()
    model.ParseFromString(content)
    draw = np.random.default_rng(0)
    stored = {t.name for t in model.graph.initializer}
    given: dict[str, Array] = {}
    for i in (i for i in model.graph.input if i.name not in stored):
        t = i.type.tensor_type
        shape = tuple(d.dim_value for d in t.shape.dim)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        old = inputs.get(i.name)
        given[i.name] = old if old is not None and (old.dtype, old.shape) == (dtype, shape) else np.asarray(
            draw.uniform(-2, 2, shape)).astype(dtype)  # fmt: skip
    try:
        wanted = by_runtime(model, given)
    except Exception:  # of ONNX Runtime's own kinds
        return "alone"
    made = by_reference(file, weights, list(given.values()))
    for o, m, w in zip(model.graph.output, made, wanted, strict=True):
        if (m.dtype, m.shape) != (w.dtype, w.shape):
            return f"`{o.name}` is {m.dtype}{m.shape}, and {w.dtype}{w.shape} in ONNX Runtime"
        if w.dtype.kind == "f":
            near = 2e-2 if any(x.dtype == np.float16 for x in (w, *given.values())) else 1e-3
            finite = np.isfinite(w) & np.isfinite(m)
            if not np.allclose(m[finite], w[finite], near, near):
                return f"`{o.name}` differs by {np.abs(m[finite].astype(float) - w[finite]).max()}"
        elif np.abs(m.astype(float) - w.astype(float)).max(initial=0) > 1:
            return f"`{o.name}` differs"
    return "right"


def broken(seed: int) -> tuple[bytes, dict[str, Array]]:
    """The content of a file with mistakes, and inputs of the model before it had them."""
    rng = Random(seed)
    model, inputs, _ = grown(rng.randrange(1 << 16))
    content = model.SerializeToString()
    return (changed_bytes if rng.random() < 0.3 else changed_fields)(rng, content), inputs


def isolated(seed: int) -> str:
    """The outcome in a process of its own, which has a time and a memory."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            faulthandler.enable()
            signal.alarm(SECONDS)
            with tempfile.TemporaryDirectory() as folder:
                content, inputs = broken(seed)
                said = outcome(content, inputs, Path(folder))
        except BaseException:
            said = traceback.format_exc()
        os.write(write, said[-4000:].encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return said or f"ended by signal {os.WTERMSIG(status)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    silence()
    ends: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        said = isolated(seed)
        end = said if said in ("right", "refused", "alone") else "wrong"
        ends[end] += 1
        if end == "wrong":
            print(f"seed {seed}: {said}", flush=True)
    print("; ".join(f"{count} {end}" for end, count in sorted(ends.items())))
    sys.exit(ends["wrong"] > 0)


if __name__ == "__main__":
    main()

"""Files of weights in the format of safetensors: a header in JSON, then the tensors one after another.

https://huggingface.co/docs/safetensors/index#format
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import file_digest, sha256
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.outputs import reason
from tensorc_dsl.graph.graph import DTYPES, NUMPY, Array, Tensor

_NAMES = {
    "f64": "F64", "f32": "F32", "f16": "F16", "i64": "I64", "i32": "I32", "i16": "I16", "i8": "I8", "u64": "U64",
    "u32": "U32", "u16": "U16", "u8": "U8", "bool": "BOOL", "bf16": "BF16",
}  # fmt: skip
_DTYPES = {theirs: ours for ours, theirs in _NAMES.items()}

_WRITER = {"writer": "tensorc-dsl import"}
"""What a header says of its file: other programs that change weights leave it out."""

MOST_HEADER = 100_000_000
"""The longest header, in bytes, as in the format's own library."""


@problem(
    "E0943",
    "the weights `{path}` cannot be used: {why}",
    help="import the model again; the file of weights lies beside the `.tsched`",
)
def BAD_WEIGHTS(*, path: str, why: str) -> None: ...


def weights_parts(tensors: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    """The content of a file with the tensors, in parts of which each is read where it lies: no tensor is copied.

    Those of larger elements come first, so that each is aligned.
    """
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": _WRITER}
    at = 0
    for name, value in ordered:
        entry = {"dtype": _NAMES[DTYPES[value.dtype.name]], "shape": list(value.shape)}
        header[name] = {**entry, "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, value in ordered:
        yield np.ascontiguousarray(value).reshape(-1).view(np.uint8).data


def are_imported(path: Path) -> bool:
    """Whether `weights_parts` made the content of a file, by its header."""
    try:
        with path.open("rb") as file:
            start = file.read(256)[8:]
    except OSError:
        return False
    return start.startswith(f'{{"__metadata__":{json.dumps(_WRITER, separators=(",", ":"))}'.encode())


def digest_of(parts: Iterable[bytes | memoryview]) -> str:
    """The SHA-256 of a content in parts."""
    whole = sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()


def mapped_weights(path: Path, digest: str, wanted: Mapping[str, Tensor]) -> dict[str, Array]:
    """The tensors of a file by name, mapped and read-only: memory is taken as they are read. Those of bf16 are their bits.

    Raises TschedError (E0943) if the file cannot be read, has another digest, or lacks a wanted tensor of that type.
    """
    shown = path.name
    try:
        with path.open("rb") as file:
            found = file_digest(file, "sha256").hexdigest()
        if found != digest:
            raise TschedError(BAD_WEIGHTS(None, path=shown, why=f"its SHA-256 is {found}, and the model says {digest}"))
        data = np.memmap(path, np.uint8, "r")
        tensors = _views(data)
    except OSError as e:
        raise TschedError(BAD_WEIGHTS(None, path=shown, why=reason(e))) from e
    except ValueError as e:
        raise TschedError(BAD_WEIGHTS(None, path=shown, why=str(e))) from e
    for name, type_ in wanted.items():
        if name not in tensors:
            raise TschedError(BAD_WEIGHTS(None, path=shown, why=f"there is no tensor `{name}` in it"))
        has, _ = tensors[name]
        if has != type_:
            raise TschedError(BAD_WEIGHTS(None, path=shown, why=f"`{name}` is {has} there, and {type_} in the model"))
    return {name: tensors[name][1] for name in wanted}


def _views(data: Array) -> dict[str, tuple[Tensor, Array]]:
    """The tensors in the bytes of a file, with their types. Raises ValueError with what is wrong with them."""
    size = data.size
    length = int.from_bytes(data[:8].tobytes(), "little") if size >= 8 else size
    if length > min(size - 8, MOST_HEADER):
        raise ValueError("it is cut off, or no file of safetensors")
    try:
        header = cast("dict[str, dict[str, Any]]", json.loads(data[8 : 8 + length].tobytes()))
        entries = [
            (name, _DTYPES[e["dtype"]], tuple(map(int, e["shape"])), *map(int, e["data_offsets"]))
            for name, e in header.items()
            if name != "__metadata__"
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError("its header is no header of safetensors") from None
    out: dict[str, tuple[Tensor, Array]] = {}
    for name, dtype, shape, begin, end in entries:
        item = np.dtype(NUMPY[dtype])
        if not (0 <= begin <= end <= size - 8 - length and min(shape, default=0) >= 0):
            raise ValueError(f"`{name}` is not inside of it")
        if end - begin != prod(shape) * item.itemsize:
            raise ValueError(f"`{name}` has another size than its shape")
        content = data[8 + length + begin : 8 + length + end].view(item).reshape(shape)
        out[name] = Tensor(dtype, shape), content
    return out

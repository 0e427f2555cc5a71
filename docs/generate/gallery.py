"""Make the pictures of docs/gallery.md: the programs of the page, compiled, on a scene made by code."""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tensorc_dsl as td
from docs.generate.scene import WIDTH, brightness, foggy, mosaic, night, noisy, scene
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.arrays import Array
from tests.docs.pages import fences

PAGE = Path(__file__).resolve().parents[1] / "gallery.md"
PICTURES = PAGE.parent / "gallery"

COLOURS = np.array([[1.06, -0.04, -0.02], [-0.03, 1.05, -0.02], [-0.01, -0.05, 1.06]])
"""What `developed` makes of a sensor's colours: a little more of each."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A pipeline's inputs by name, and the picture of them."""

    inputs: Mapping[str, Array]
    picture: Array


def shown() -> dict[str, Shown]:
    """What each file of the page takes."""
    day = scene()
    grey, dark = brightness(day), brightness(night(day))
    raw = mosaic(day)
    halves = np.concatenate([grey[:, : WIDTH // 2], dark[:, WIDTH // 2 :]], 1)
    developing = {"X": raw, "gain": np.array([1.6, 1.0, 1.4], np.float32), "M": COLOURS.astype(np.float32)}
    return {
        "corners": Shown({"X": grey, "least": np.array(20.0, np.float32)}, grey),
        "raw": Shown(developing, (raw >> 2).astype(np.uint8)),
        "noise": Shown({"X": noisy(day)}, noisy(day)),
        "fog": Shown({"X": foggy(day)}, foggy(day)),
        "night": Shown({"A": grey, "B": dark}, halves),
    }


def task(name: str, folder: Path) -> Task:
    """The task of a file of the page. All files are written to the folder: they use each other."""
    for fence in fences(PAGE.read_text(encoding="utf-8")):
        if fence.file_name is not None:
            (folder / fence.file_name).write_text(fence.text, encoding="utf-8")
    return td.load(folder / f"{name}.tsched")[f"{name}_160"]


def png(picture: Array) -> bytes:
    """A picture of bytes, grey or in three colours, as a PNG file. Each row is stored as its change from that above."""
    height, width, *colours = picture.shape
    rows = np.diff(picture.reshape(height, -1), axis=0, prepend=np.zeros((1, picture[0].size), np.uint8))
    data = np.concatenate([np.full((height, 1), 2, np.uint8), rows], 1).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if colours else 0, 0, 0, 0)

    def part(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(data, 9)) + part(b"IEND", b"")


def read_png(data: bytes) -> Array:
    """The picture that `png` wrote."""
    width, height, _, kind = struct.unpack(">IIBB", data[16:26])
    length = struct.unpack(">I", data[33:37])[0]
    rows = np.frombuffer(zlib.decompress(data[41 : 41 + length]), np.uint8).reshape(height, -1)
    picture = np.cumsum(rows[:, 1:], axis=0, dtype=np.uint8)
    return picture.reshape((height, width, 3) if kind == 2 else (height, width))


def main() -> None:
    """Write the pictures to docs/gallery."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, given in shown().items():
            made = task(name, Path(folder))
            result = made.replay(made.sample(0))(*(given.inputs[b.name] for b in made.program.inputs))
            (PICTURES / f"{name}-in.png").write_bytes(png(given.picture))
            (PICTURES / f"{name}-out.png").write_bytes(png(result))


if __name__ == "__main__":
    main()

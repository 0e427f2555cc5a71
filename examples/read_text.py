"""Reads the text in a picture with three networks of PP-OCR: where lines are, which way up they are, and what they say.

`python read_text.py MODELS [PICTURE]`, with the folder of the ONNX files of the package `rapidocr-onnxruntime`, which brings
them; without a picture one is drawn. The networks are imported once, into build/ocr/. Needs `tensorc-dsl[onnx]` and Pillow.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import scipy.ndimage
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import tensorc_dsl

Picture = NDArray[np.uint8]
"""Rows of pixels of red, green and blue."""

Planes = NDArray[np.float32]
"""What the networks take: [1, 3, rows, columns], blue first, from -1 to 1."""

FOLDER = Path("build/ocr")

PAGE, LINE, LABEL = (320, 640), (48, 320), (48, 192)
"""The sizes of what the three networks take: the whole picture, and a line."""

TEXT, LINES, TURNED = 0.3, 0.5, 0.9
"""How sure the networks have to be that a pixel is of a line, that a region is one, and that it is upside down."""

GROWN = 1.6
"""Regions are the cores of lines: the line is larger by so many times its area over its perimeter."""


@dataclass(frozen=True)
class Box:
    """A region of a picture, without its last row and column."""

    top: int
    left: int
    bottom: int
    right: int


def network(models: Path, name: str, shape: tuple[int, int]) -> Any:
    """The network whose file has that in its name, for one picture of that size."""
    (file,) = models.glob(f"*{name}*.onnx")
    made = FOLDER / f"{name}_{shape[0]}_{shape[1]}.tsched"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        tensorc_dsl.import_onnx(file, made, shapes={"x": (1, 3, *shape)})
    return tensorc_dsl.load_model(made)


def characters(models: Path) -> list[str]:
    """What the third network's results count: nothing, the characters that its file lists, and a space."""
    (file,) = models.glob("*rec*.onnx")
    known = {p.key: p.value for p in onnx.load(file, load_external_data=False).metadata_props}
    return ["", *known["character"].splitlines(), " "]


def fitted(picture: Picture, shape: tuple[int, int]) -> tuple[Planes, float]:
    """The picture, as large as it fits into the shape at the top left, and by how much it was scaled."""
    rows, columns = shape
    scale = min(rows / picture.shape[0], columns / picture.shape[1])
    size = max(1, round(scale * picture.shape[1])), max(1, round(scale * picture.shape[0]))
    small = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR), np.float32)
    out = np.zeros((1, 3, rows, columns), np.float32)
    out[0, :, : size[1], : size[0]] = (small[:, :, ::-1] / 127.5 - 1.0).transpose(2, 0, 1)
    return out, scale


def boxes(chance: NDArray[np.float32], scale: float, shape: Sequence[int]) -> list[Box]:
    """The lines of a picture of that shape, the uppermost first, by the chance of each pixel of the scaled one."""
    labels, _ = scipy.ndimage.label(chance > TEXT)
    found: list[Box] = []
    for n, place in enumerate(scipy.ndimage.find_objects(labels), 1):
        rows, columns = place
        if chance[place][labels[place] == n].mean() < LINES:
            continue
        height, width = rows.stop - rows.start, columns.stop - columns.start
        grown = GROWN * height * width / (2.0 * (height + width))
        top, left = (max(0, int((s.start - grown) / scale)) for s in (rows, columns))
        bottom, right = (
            min(most, round((s.stop + grown) / scale)) for s, most in ((rows, shape[0]), (columns, shape[1]))
        )
        found.append(Box(top, left, bottom, right))
    return sorted(found, key=lambda b: (b.top, b.left))


def said(chances: NDArray[np.float32], known: Sequence[str]) -> str:
    """The text of a line, by the chances of all characters at each place: equal neighbours are one character."""
    best: list[int] = chances.argmax(axis=1).tolist()
    return "".join(known[c] for n, c in enumerate(best) if n == 0 or c != best[n - 1])


def drawn() -> Picture:
    """A picture with two lines, the second one upside down."""
    whole = Image.new("RGB", (640, 240), "white")
    font = ImageFont.load_default(size=36)
    for top, words, turned in ((30, "Schedules are programs", False), (140, "PROVED AND MEASURED", True)):
        line = Image.new("RGB", (600, 60), "white")
        ImageDraw.Draw(line).text((10, 6), words, fill="black", font=font)
        whole.paste(line.rotate(180) if turned else line, (20, top))
    return np.asarray(whole)


def main() -> None:
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    models = Path(sys.argv[1])
    picture = drawn() if len(sys.argv) == 2 else np.asarray(Image.open(sys.argv[2]).convert("RGB"))
    detect, direct, read = network(models, "det", PAGE), network(models, "cls", LABEL), network(models, "rec", LINE)
    known = characters(models)
    page, scale = fitted(picture, PAGE)
    for box in boxes(detect(page)[0, 0], scale, picture.shape):
        line = picture[box.top : box.bottom, box.left : box.right]
        if direct(fitted(line, LABEL)[0])[0, 1] > TURNED:
            line = line[::-1, ::-1]
        print(said(read(fitted(line, LINE)[0])[0], known))


if __name__ == "__main__":
    main()

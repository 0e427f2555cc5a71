"""`show --stage graph`: the groups of a model as text and as a picture."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from tensorc_dsl.faces.cli.main import main

TEXT = """
use std.cpu
use std.graph

compute half(X: f32[N]) -> Y: f32[N] { Y[i] = 0.5 * X[i] }
compute total(X: f32[N]) -> Y: f32[1] { Y[o in 1] = sum[k] X[k] }
compute both(X: f32[M], Z: f32[M]) -> Y: f32[M] { Y[i] = X[i] + Z[i] }

model net(x: f32[6], z: f32[2, 3]) -> y: f32[1] {
    let a = half(x)
    let b = total(a)
    let v = reshape(z, [6])
    let c = half(v)
    let d = total(c)
    y = both(b, d)
}
"""


def shown(folder: Path, *options: str) -> tuple[int, str]:
    (folder / "net.tsched").write_text(TEXT)
    result = CliRunner().invoke(main, ["show", str(folder / "net.tsched"), "--stage", "graph", *options])
    return result.exit_code, result.output


def test_groups_are_shown_with_their_tasks(tmp_path: Path) -> None:
    status, text = shown(tmp_path)
    assert status == 0
    assert text.splitlines()[0].startswith("model net: 5 calls of 3 tasks, joined into 2 calls of 2 tasks; ")
    assert "v = reshape(z, [6])" in text and "    let v = half(X)" in text


def test_the_picture_has_a_box_for_each_group(tmp_path: Path) -> None:
    status, text = shown(tmp_path, "--svg", str(tmp_path / "net.svg"))
    assert (status, text) == (0, "")
    root = ET.parse(tmp_path / "net.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f".//{space}g/{space}rect")) == 2 and len(root.findall(f".//{space}path")) == 1


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("nut",), 1, "E0905"),
        (("--condition", "chained=true"), 1, "E0556"),
        (("--block", "chained"), 2, "--condition and --threads"),
        (("--svg", "missing/net.svg"), 1, "E0903"),
    ],
)
def test_what_does_not_fit_is_told(tmp_path: Path, options: tuple[str, ...], status: int, message: str) -> None:
    found, text = shown(tmp_path, *options)
    assert (found, message in text) == (status, True), text

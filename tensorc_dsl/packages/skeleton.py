"""The files of a new package of modules, as text."""

from __future__ import annotations

import keyword

from tensorc_dsl.packages.installed import GROUP

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{dashed}"
version = "0.1.0"
description = "Modules for tensorc-dsl."
requires-python = ">=3.11"
dependencies = ["tensorc-dsl"]

# `use {name}.tiles` reads `tiles.tsched` in the package that stands here; nothing of it is imported.
[project.entry-points."{group}"]
{name} = "{name}"

[tool.hatch.build.targets.wheel]
packages = ["{name}"]
"""

_MODULE = """\
/// Cut the last loop of `b` into vectors, and run the first one on all cores.
module vectors(b: Block, width: int = 8)
when b.is_injective and len(b.loops) > 1
{{
    let [outer, inner] = split(b.loops[-1], [_, width], partial=true)
    vectorize(inner)
    parallel(b.loops[0])
}}

/// All that this package does with a block.
space {name}_cpu for llvm {{
    vectors
}}
"""

_TEST = '''\
"""The modules of this package, tried on a small task. Install the package first: `pip install -e .`"""

from pathlib import Path

import tensorc_dsl

TASK = """\\
use {name}.tiles.{{{name}_cpu}}

compute scale(A: f32[M, N]) -> B: f32[M, N] {{
    B[i, j] = A[i, j] * 2.0
}}

task small = scale(M=16, N=40) with {name}_cpu
"""


def test_a_schedule_applies(tmp_path: Path) -> None:
    file = tmp_path / "small.tsched"
    file.write_text(TASK, encoding="utf-8")
    task = tensorc_dsl.load(file)["small"]
    trace = task.check()
    assert "vectorize" in trace.text
'''


def good_name(name: str) -> bool:
    """Whether a package of modules can have this name: valid in Python and in `use`, and not one of ours."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and name not in ("std", "tensorc_dsl")


def skeleton(name: str) -> dict[str, str]:
    """The files of the package by path."""
    facts = {"name": name, "dashed": name.replace("_", "-"), "group": GROUP}
    return {
        "pyproject.toml": _PROJECT.format(**facts),
        f"{name}/__init__.py": "",
        f"{name}/tiles.tsched": _MODULE.format(**facts),
        f"tests/test_{name}.py": _TEST.format(**facts),
    }

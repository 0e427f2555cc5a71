"""The sizes that `make style` holds: what counts, and that growth needs a reason."""

from __future__ import annotations

import tomllib

import pytest

from tools.size import FIGURES, code_lines, grown, record_text, shared_stems, small_modules, stem

TEXT = '''"""A module."""

# A comment.
X = 1  # of a line
"""A constant."""


def f() -> str:
    """A function."""
    return (
        "text"
    )
'''


def test_docstrings_comments_and_blank_lines_do_not_count() -> None:
    assert code_lines(TEXT) == 5
    assert code_lines('X = """a\n\nb"""\n') == 3


def test_inflected_names_share_a_stem_within_a_room() -> None:
    assert stem("inversion") != stem("layout_inverse")
    assert stem("fill") == stem("filling")
    assert stem("once") == stem("at_once")
    assert shared_stems(["tensorc_dsl/a/fill.py", "tensorc_dsl/a/sub/filling.py", "tensorc_dsl/b/fill.py"]) == 1
    assert shared_stems(["tensorc_dsl/a/__init__.py", "tensorc_dsl/a/b/__init__.py"]) == 0


def test_small_modules_with_one_importer_are_found() -> None:
    texts = {
        "tensorc_dsl/a/one.py": "from tensorc_dsl.a import small, both\nfrom tensorc_dsl.b.large import X\n",
        "tensorc_dsl/a/two.py": "from .both import Y\n",
        "tensorc_dsl/a/small.py": "Z = 1\n",
        "tensorc_dsl/a/both.py": "Y = 1\n",
        "tensorc_dsl/b/large.py": "X = 1\n" * 80,
    }
    assert small_modules(texts) == ["tensorc_dsl/a/small.py"]


def test_a_figure_grows_only_with_a_reason() -> None:
    old = dict.fromkeys(FIGURES, 10)
    more = old | {"files": 11, "code_lines": 9}
    assert grown(old, old) == []
    assert [line.split(":")[0] for line in grown(more, old)] == ["files"]
    with pytest.raises(ValueError, match="files 10 -> 11"):
        record_text(more, old, [], " ")
    written = tomllib.loads(record_text(more, old, ["before"], 'a new "idea"'))
    assert written == more | {"reasons": ["before", 'files 10 -> 11: a new "idea"']}
    assert tomllib.loads(record_text(old | {"files": 9}, old, ["before"], ""))["reasons"] == ["before"]

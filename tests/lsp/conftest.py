from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lsp.editor import Editor


@pytest.fixture(scope="package")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    """One editor for all tests: a server serves its documents as long as the editor runs."""
    editor = Editor(tmp_path_factory.mktemp("editor"))
    try:
        yield editor
        assert editor.close() == 0
    finally:
        editor.stop()
    assert [m for m in editor.messages if "Error" in m] == []

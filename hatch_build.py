"""Build hook: the wheel holds `grammar/`, `stdlib/` and `docs/errors/` as `tensorc_dsl/_data/…`.

They stand in the repository where people read them. An editable install adds nothing: there,
`tensorc_dsl/resources.py` finds them beside the package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("grammar", "stdlib", "docs/errors")


class DataHook(BuildHookInterface[Any]):
    """Maps the folders into a standard wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        for name in FOLDERS:
            folder = Path(self.root, name)
            if not folder.is_dir():
                raise FileNotFoundError(f"{folder} is missing: the wheel would lack tensorc_dsl/_data/{folder.name}")
            build_data["force_include"][str(folder)] = f"tensorc_dsl/_data/{folder.name}"

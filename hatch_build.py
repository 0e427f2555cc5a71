"""Build hooks: what the wheel holds besides code, and what the page of the package says.

The wheel holds `grammar/`, `stdlib/`, `docs/errors/` and `docs/glossary.md` as `tensorc_dsl/_data/…`. They stand in the
repository where people read them. An editable install adds nothing: there, `tensorc_dsl/base/resources.py` finds them
beside the package.

The page of the package is the README. Its links into the repository lead nowhere from there, so each becomes the name of
the file, which the source archive holds.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

DATA = ("grammar", "stdlib", "docs/errors", "docs/glossary.md")

_LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)\s#]+)(?:#[^)\s]*)?\)")
"""A link of Markdown to a file beside the page."""


class PageHook(MetadataHookInterface):
    """Makes the page of the package of the README."""

    def update(self, metadata: dict[str, Any]) -> None:
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        page = _LINK.sub(r"\1 (`\2`)", readme) + "\nThe files that this page names are in the source archive.\n"
        metadata["readme"] = {"content-type": "text/markdown", "text": page}


class DataHook(BuildHookInterface[Any]):
    """Maps the data into a standard wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        for name in DATA:
            place = Path(self.root, name)
            if not place.exists():
                raise FileNotFoundError(f"{place} is missing: the wheel would lack tensorc_dsl/_data/{place.name}")
            build_data["force_include"][str(place)] = f"tensorc_dsl/_data/{place.name}"

"""Finds installed Python packages that ship modules, by their entry points, without importing them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tensorc_dsl.packages.places import SearchFolder

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tensorc_dsl.modules"


def installed() -> Iterator[SearchFolder]:
    """The place of each entry point of the group `tensorc_dsl.modules`, or several places for a namespace package.

    The entry point `vendor = "vendor_kernels.tsched"` means that `use vendor.…` reads the folder `tsched` of the package
    `vendor_kernels`.
    """
    from importlib.metadata import entry_points  # slow to load, and most files use no package

    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        for folder in _folders(point):
            yield SearchFolder(folder, f"package {_distribution(point)}", (point.name,))


def _folders(point: EntryPoint) -> list[Path]:
    package, *below = point.value.strip().split(".")
    # For a name without a dot this finds the package without running any of it.
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return []
    locations = (spec.submodule_search_locations or []) if spec is not None else []
    return [Path(location).joinpath(*below) for location in locations]


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value

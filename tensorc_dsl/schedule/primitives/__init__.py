"""The primitives, one file each. Importing this package imports every file in it, which declares its primitive.

Import `PRIMITIVES` from here, so that the table is filled.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tensorc_dsl.schedule.step import PRIMITIVES

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["PRIMITIVES"]

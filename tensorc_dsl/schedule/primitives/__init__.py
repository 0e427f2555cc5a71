"""The primitives, one file each. Importing this package imports every file in it, which declares its primitive.

Import `PRIMITIVES` and `ALL_STEPS` from here, so that the tables are filled.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tensorc_dsl.schedule.step import ALL_STEPS, PRIMITIVES

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["ALL_STEPS", "PRIMITIVES"]

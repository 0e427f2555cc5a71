"""Write the generated parts of pages and all generated files; with `--check`, only say which are stale."""

from __future__ import annotations

import gc
import sys
from functools import partial

from docs.generate.all import FILES, PARTS
from docs.generate.pages import PAGES, filled


def main() -> int:
    gc.set_threshold(100_000, 20, 20)  # trees are many objects and few cycles
    check = sys.argv[1:] == ["--check"]
    stale: list[str] = []
    pages = {path: partial(filled, path.read_text(encoding="utf-8"), PARTS) for path in PAGES}
    for path, made in {**pages, **FILES}.items():
        text = made()
        if not path.exists() or text != path.read_text(encoding="utf-8"):
            stale.append(path.name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if stale:
        print(("stale: " if check else "written: ") + ", ".join(stale))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())

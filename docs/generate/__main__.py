"""Write the generated parts of the reference; with `--check`, only say which are stale."""

from __future__ import annotations

import sys

from docs.generate.all import PARTS
from docs.generate.pages import PAGES, filled


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    stale: list[str] = []
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        new = filled(page, PARTS)
        if new != page:
            stale.append(path.name)
            if not check:
                path.write_text(new, encoding="utf-8")
    if stale:
        print(("stale: " if check else "written: ") + ", ".join(stale))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())

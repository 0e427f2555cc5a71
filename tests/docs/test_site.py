"""The site has every page and every file that it links to, under the repository's paths; its navigation is the map."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.generate.links import anchors, links
from docs.generate.site import MAP, REFERENCE, ROOT, START, LostLinkError, navigation, pages, rows, write

FILES = {
    START: "# Start\n\n[map](docs/README.md#a-heading), [room](room), [other host](https://example.org/x)\n",
    MAP: "# A heading\n\n| to | read |\n|---|---|\n| look | [Pages](page.md), [`Code`](../room/a.py) |\n",
    REFERENCE: "| [Errors](../page.md) |\n",
    "docs/page.md": "```tsched error=E0312\n[a](b)\n```\n\n`[a](b)` [up](../README.md)\n",
    "room/a.py": 'TEXT = """\n```\n"""\n',
    "room/inner/b.tsched": "task\n",
    "room/.hidden": "",
    "elsewhere/c.py": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "repository" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path / "repository"


def test_what_is_linked_to_becomes_a_page_and_nothing_else(root: Path) -> None:
    made = {"room/README.md", "room/a.py.md", "room/inner/README.md", "room/inner/b.tsched.md"}
    assert set(pages(root)) == {START, MAP, REFERENCE, "docs/page.md"} | made


def test_links_are_of_the_site(root: Path) -> None:
    site = pages(root)
    assert links(site[START]) == ["docs/README.md#a-heading", "room/README.md"]
    assert links(site["room/README.md"]) == ["a.py.md", "inner/README.md"]
    assert "(https://example.org/x)" in site[START]


def test_files_and_folders_are_shown(root: Path) -> None:
    site = pages(root)
    assert site["room/a.py.md"] == '# room/a.py\n\n````python\nTEXT = """\n```\n"""\n````\n'
    assert site["room/inner/README.md"] == "# room/inner\n\n- [b.tsched](b.tsched.md)\n"


def test_what_the_tests_are_told_is_left_out_and_code_is_kept(root: Path) -> None:
    assert pages(root)["docs/page.md"] == "```tsched\n[a](b)\n```\n\n`[a](b)` [up](../README.md)\n"


def test_the_navigation_is_the_map(root: Path) -> None:
    assert navigation(pages(root)) == [
        {"Start": START},
        {"Map": MAP},
        {"Pages": [{"Pages": "docs/page.md"}, {"Code": "room/a.py.md"}]},
        {"Reference": [{"Errors": "docs/page.md"}]},
    ]


@pytest.mark.parametrize("target", ["nowhere.md", "../../outside.md", "room/a.txt"])
def test_a_link_that_leads_nowhere_is_an_error(root: Path, target: str) -> None:
    (root / "docs" / "page.md").write_text(f"[a]({target})", encoding="utf-8")
    (root.parent / "outside.md").write_text("", encoding="utf-8")
    with pytest.raises(LostLinkError, match=f"docs/page.md: the link to {target} leads nowhere"):
        pages(root)


def test_what_is_written_is_what_mkdocs_reads(root: Path, tmp_path: Path) -> None:
    (root / "mkdocs.yml").write_text("site_name: a\n", encoding="utf-8")
    folder = root / "build" / "site"
    folder.mkdir(parents=True)
    assert write(root, folder) == len(pages(root))
    config = json.loads((folder / "mkdocs.yml").read_text(encoding="utf-8"))
    assert (folder / config["INHERIT"]).resolve() == root / "mkdocs.yml"
    assert (folder / config["docs_dir"] / "room" / "a.py.md").is_file()
    assert ".codehilite .k " in (folder / config["docs_dir"] / "pygments.css").read_text(encoding="utf-8")


def test_a_picture_is_copied_and_no_page(root: Path) -> None:
    (root / "mkdocs.yml").write_text("site_name: a\n", encoding="utf-8")
    (root / "docs" / "page.md").write_text("![what it shows](a.png)", encoding="utf-8")
    (root / "docs" / "a.png").write_bytes(b"\x89PNG")
    (root / "docs" / "gallery").mkdir()  # a folder without a page
    (root / "docs" / "gallery" / "b.png").write_bytes(b"\x89PNG")
    assert pages(root)["docs/page.md"] == "![what it shows](a.png)" and "docs/a.png.md" not in pages(root)
    write(root, root / "site")
    for name in ("a.png", "gallery/b.png"):
        assert (root / "site" / "pages" / "docs" / name).read_bytes() == b"\x89PNG"


def test_the_pages_of_this_repository_lead_somewhere() -> None:
    """All that can be reached, pages of other folders too. Headings are looked up in what they are on."""
    site = pages(ROOT)
    lost: list[str] = []
    for path, page in site.items():
        for target in links(page):
            file, _, heading = target.partition("#")
            there = (Path("/") / path).parent / file if file else Path("/") / path
            place = there.resolve().relative_to("/").as_posix()
            if heading and heading not in anchors(site[place]):
                lost.append(f"{path}: {target}")
    assert lost == []


def test_the_map_names_every_page() -> None:
    named = {file for _, file in rows((ROOT / MAP).read_text(encoding="utf-8"))}
    assert {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"} <= named

"""Packs what a machine with a GPU and without a network needs for `bench.gpu`: `python -m bench.gpu_bundle build/device`.

The folder has `source.tar.xz`, the package, its library and what measures, as committed; `wheels` for the machine's Python
(`--python 3.12`), and the source of PyCUDA, which is built there; `llvmlite.tar.xz`, without symbols; `saved.json`, schedules
that `cal` times; and `device.sh`, which runs a stage: `sh device.sh env OUT`, then `cal`, `proofs` and `torch`. NumPy, SciPy
and torch are the machine's own. Needs `strip` of the binutils and a package index, and no GPU.
"""

from __future__ import annotations

import argparse
import io
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SOURCES = ("tensorc_dsl", "stdlib", "grammar", "bench", "tests/gpu/fake", "pyproject.toml")

PACKAGES = (
    "click", "filelock", "islpy", "lark", "msgspec", "platformdirs", "psutil", "pygments", "rich", "markdown-it-py", "mdurl",
    "pytools", "siphash24", "typing-extensions",
)  # fmt: skip
"""What the package and PyCUDA need beside NumPy and SciPy."""

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "any")

MOST = 48 << 20
"""The bytes that the bundle may have."""


def source(folder: Path, *, root: Path = ROOT) -> Path:
    """The committed files of the project that a stage needs, as an archive in the folder."""
    made = subprocess.run(["git", "archive", "HEAD", *SOURCES], cwd=root, check=True, capture_output=True)
    path = folder / "source.tar.xz"
    path.write_bytes(lzma.compress(made.stdout, preset=0))  # 3.1 MB; the usual preset takes eight times as long for 2.6
    return path


def script(folder: Path, *, root: Path = ROOT) -> Path:
    return Path(shutil.copy(root / "bench" / "device.sh", folder))


def _download(into: Path, packages: Sequence[str], python: str) -> None:
    platforms = [word for p in PLATFORMS for word in ("--platform", p)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, "--python-version", python, *platforms, "--dest", str(into), *packages], check=True)


def wheels(folder: Path, python: str) -> None:
    """The wheels for that version of Python, and the source of PyCUDA."""
    into = folder / "wheels"
    _download(into, PACKAGES, python)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=pycuda"]
    subprocess.run([*command, "--dest", str(into), "pycuda"], check=True)


def llvmlite(folder: Path, python: str) -> None:
    """llvmlite's files as an archive, its library without symbols."""
    with tempfile.TemporaryDirectory() as name:
        there = Path(name)
        _download(there, ["llvmlite>=0.48"], python)
        (wheel,) = there.glob("*.whl")
        with zipfile.ZipFile(wheel) as file:
            file.extractall(there / "files")
        for library in (there / "files").rglob("*.so"):
            subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(there / "files" / "llvmlite", "llvmlite")
        (folder / "llvmlite.tar.xz").write_bytes(lzma.compress(packed.getvalue()))


def saved(folder: Path, each: int) -> None:
    """Schedules for `cal`, so many of each case."""
    command = [sys.executable, "-m", "bench.gpu_calibration", "save", str(folder / "saved.json"), "--each", str(each)]
    subprocess.run(command, cwd=ROOT, check=True)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the bundle is made; it must not be there yet")
    parser.add_argument("--python", default="3.12", help="the version of the machine's Python")
    parser.add_argument("--each", type=int, default=9, help="saved schedules of each case")
    given = parser.parse_args(argv)
    begun = time.monotonic()
    try:
        given.folder.mkdir(parents=True)
    except FileExistsError:
        parser.error(f"{given.folder} is there already")
    source(given.folder)
    script(given.folder)
    wheels(given.folder, given.python)
    llvmlite(given.folder, given.python)
    saved(given.folder, given.each)
    found = size(given.folder)
    print(f"{given.folder}: {found / (1 << 20):.1f} MiB, made in {time.monotonic() - begun:.0f} s")
    if found > MOST:
        print(f"gpu_bundle: that is more than {MOST >> 20} MiB", file=sys.stderr)
    return int(found > MOST)


if __name__ == "__main__":
    sys.exit(main())

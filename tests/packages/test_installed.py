"""A foreign package: written by `module new`, built, installed into a fresh environment, found, never imported."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tensorc_dsl.faces.packages import good_name, skeleton
from tests.docs.pages import fences

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "from tensorc_dsl.faces.cli.main import main; main()"


def run(python: Path | str, *arguments: str, cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TSCHED_PATH", "NO_COLOR")}
    if path:
        environment["PYTHONPATH"] = path
    return subprocess.run(
        [str(python), *arguments], check=False, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def write(folder: Path, name: str) -> None:
    for path, text in skeleton(name).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A fresh environment with a wheel of the package `vendor` in it, and the source of that."""
    folder = tmp_path_factory.mktemp("fresh")
    source = folder / "source"
    write(source, "vendor")
    # The rule of `docs/write-a-module.md`, put beside the package's own.
    page = fences((ROOT / "docs" / "write-a-module.md").read_text(encoding="utf-8"))
    (source / "vendor" / "columns.tsched").write_text(next(f.text for f in page if f.file_name == "columns.tsched"))
    # The package must not run when its modules are used.
    (source / "vendor" / "__init__.py").write_text("raise SystemExit('imported')\n")
    wheel = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=source)
    assert wheel.returncode == 0, wheel.stdout + wheel.stderr
    made = run(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"), cwd=folder)
    assert made.returncode == 0, made.stderr
    python = folder / "venv" / "bin" / "python"
    # What we need of our own environment comes by its path; nothing is downloaded.
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).stdout.strip())
    (site / "ours.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    (archive,) = folder.glob("*.whl")
    install = ["-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps", "--quiet", str(archive)]
    done = run(sys.executable, *install, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return python, source


def test_its_modules_are_found_and_it_is_not_imported(fresh: tuple[Path, Path], tmp_path: Path) -> None:
    python, _ = fresh
    (tmp_path / "main.tsched").write_text("use vendor.tiles.{vectors}\nspace s for llvm { vectors }\n")
    done = run(python, "-c", COMMAND, "check", "main.tsched", cwd=tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "main.tsched: ok, 0 tasks\n")
    which = run(python, "-c", COMMAND, "module", "which", "vendor.vectors", cwd=tmp_path)
    assert which.stdout.endswith("site-packages/vendor/tiles.tsched:2\n"), which
    listed = run(python, "-c", COMMAND, "module", "list", cwd=tmp_path).stdout
    assert "\npackage vendor\n  vendor.down_columns " in listed and "\n  vendor.vectors " in listed


def test_a_rule_that_was_written_by_the_page_works_where_it_is_installed(
    fresh: tuple[Path, Path], tmp_path: Path
) -> None:
    python, _ = fresh
    uses = "use vendor.columns.{down_columns}\nuse std.cpu.{parallelize_vectorize_unroll}\n"
    mine = "space mine for llvm { down_columns; parallelize_vectorize_unroll }\n"
    sums = "compute sums(X: f32[M, N]) -> S: f32[N] {\n    S[j] = sum[i] X[i, j]\n}\n"
    (tmp_path / "main.tsched").write_text(f"{uses}{sums}{mine}task small = sums(M=33, N=20) with mine\n")
    drawn = run(python, "-c", COMMAND, "sample", "main.tsched", "small", cwd=tmp_path)
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert "let width ~ sample_categorical([16, 32, 64, 128])" in drawn.stdout
    (tmp_path / "t.tsched").write_text(drawn.stdout)
    proved = run(python, "-c", COMMAND, "verify", "main.tsched", "small", "t.tsched", cwd=tmp_path)
    assert proved.returncode == 0, proved.stdout + proved.stderr


def test_its_errors_point_into_its_own_file(fresh: tuple[Path, Path], tmp_path: Path) -> None:
    python, _ = fresh
    site = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).stdout.strip()
    )
    wrong = site / "vendor" / "wrong.tsched"
    wrong.write_text("/// Misspelt.\nmodule w(b: Block) {\n    paralel(b.loops[0])\n}\n")
    (tmp_path / "main.tsched").write_text("use vendor.wrong\n")
    done = run(python, "-c", COMMAND, "check", "main.tsched", cwd=tmp_path)
    assert done.returncode == 1
    assert f"--> {wrong}:3:5" in done.stderr, done.stderr
    assert "did you mean `parallel`?" in done.stderr


def test_its_refusals_point_into_its_own_file(fresh: tuple[Path, Path], tmp_path: Path) -> None:
    python, _ = fresh
    compute = "compute scale(A: f32[M, N]) -> B: f32[M, N] {\n    B[i, j] = A[i, j] * 2.0\n}\n"
    twice = "schedule twice for scale {\n    vectors(B)\n    vectors(B)\n}\n"
    main = f"use vendor.tiles.{{vectors}}\n{compute}{twice}task small = scale(M=16, N=40)\n"
    (tmp_path / "main.tsched").write_text(main)
    done = run(python, "-c", COMMAND, "check", "--expand", "main.tsched", cwd=tmp_path)
    assert done.returncode == 1
    assert "error[E0310]: cannot split `j_1`: it is already vectorized" in done.stderr
    assert "vendor/tiles.tsched:5:32" in done.stderr, done.stderr
    assert "  = trace: step 1 of vendor.tiles.vectors\n" in done.stderr


def test_a_file_beside_it_is_an_error_that_lists_both(fresh: tuple[Path, Path], tmp_path: Path) -> None:
    python, _ = fresh
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / "tiles.tsched").write_text("module vectors(b: Block) {}\n")
    (tmp_path / "main.tsched").write_text("use vendor.tiles\n")
    done = run(python, "-c", COMMAND, "check", "main.tsched", cwd=tmp_path)
    assert "error[E0234]: `vendor.tiles` is found in several places" in done.stderr
    assert "vendor/tiles.tsched: the folder of main.tsched" in done.stderr
    assert "site-packages/vendor/tiles.tsched: package vendor" in done.stderr


def test_the_test_of_a_new_package_passes(fresh: tuple[Path, Path], tmp_path: Path) -> None:
    python, source = fresh
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(source / "tests"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_entry_point_without_a_package(tmp_path: Path) -> None:
    info = tmp_path / "site" / "odd-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[tensorc_dsl.modules]\nmissing = no_such_package\nstd = odd\nodd = odd.kernels\nfile = odd_file\n"
    )
    (tmp_path / "site" / "odd" / "kernels").mkdir(parents=True)
    (tmp_path / "site" / "odd" / "kernels" / "x.tsched").write_text("module mine(b: Block) {}\n")
    (tmp_path / "site" / "odd_file.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "main.tsched").write_text("use odd.x\nuse std.cpu.{unroll_root}\nuse file.x\nuse missing\nuse std.mine")
    done = run(sys.executable, "-c", COMMAND, "check", "main.tsched", cwd=tmp_path, path=f"{tmp_path / 'site'}:{ROOT}")
    assert [line for line in done.stderr.split("\n") if line.startswith("error")] == [
        "error[E0232]: `file.x` is not found",
        "error[E0232]: `missing` is not found",
        "error[E0232]: `std.mine` is not found",
    ]


@pytest.mark.parametrize("name", ["", "std", "tensorc_dsl", "a-b", "a.b", "1a", "class", "../x", "ä", "a b"])
def test_names_that_no_package_can_have(name: str) -> None:
    assert not good_name(name)

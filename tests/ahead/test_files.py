"""The files: headers that C and C++ accept, objects that link into one program, libraries that export three names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tensorc_dsl.faces.cli.main import main
from tests.ahead.made import HERE, export, needs_compiler, run_c, symbols, task

PROGRAM = """
#include "mm.h"
#include "mm_packed.h"
#include "mm_any.h"
#include "scale.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static float a[mm_A_COUNT], b[mm_B_COUNT], want[mm_C_COUNT];
static float large[mm_packed_B_COUNT];
static const int64_t shape[mm_A_RANK] = mm_A_SHAPE;

static void *work(void *wrong) {
    float *c = (float *)malloc(sizeof(float) * mm_C_COUNT);
    for (int n = 0; n < 40; n++) {
        int64_t rows = n % 2 ? 24 : 1 + n % 23;
        if (mm_packed(large, large, c) || c[n % mm_C_COUNT] != 600) *(int *)wrong += 1;
        if (n % 2 ? mm(a, b, c) : mm_any(rows, a, b, c)) *(int *)wrong += 1;
        for (int64_t k = 0; k < mm_any_C_COUNT(rows); k++) {
            if (c[k] != want[k]) *(int *)wrong += 1;
            c[k] = -1;
        }
    }
    free(c);
    return NULL;
}

int main(void) {
    int wrong[4] = {0, 0, 0, 0};
    pthread_t threads[4];
    int64_t m = shape[0], k = shape[1], n = mm_B_COUNT / k;
    for (int64_t i = 0; i < mm_packed_B_COUNT; i++) large[i] = 1;
    for (int64_t i = 0; i < m * k; i++) a[i] = (float)(i % 7) - 3;
    for (int64_t i = 0; i < k * n; i++) b[i] = (float)(i % 5) / 2;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t x = 0; x < k; x++) want[i * n + j] += a[i * k + x] * b[x * n + j];
    for (int t = 0; t < 4; t++) pthread_create(&threads[t], NULL, work, &wrong[t]);
    for (int t = 0; t < 4; t++) pthread_join(threads[t], NULL);
    int32_t refused = mm_any(mm_any_M_MAX + 1, a, b, want);
    int32_t null = mm(a, NULL, want);
    printf("%d %d %d %d", wrong[0] + wrong[1] + wrong[2] + wrong[3], (int)(TENSORC_STATUS(refused) == TENSORC_SIZE),
           (int)(TENSORC_STATUS(null) == TENSORC_NULL), (int)TENSORC_ARGUMENT(null));
    printf(" %c\\n", mm_metadata[0]);
    return 0;
}
"""


@pytest.mark.corpus
@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
def test_objects_in_one_program_and_four_callers_at_once(threads: int, tmp_path: Path) -> None:
    for name in ("mm", "mm_any", "mm_packed", "scale"):
        export(tmp_path, name, "obj", "header", threads=threads)
    assert run_c(tmp_path, PROGRAM, "mm.o", "mm_any.o", "mm_packed.o", "scale.o") == "0 1 1 1 {\n"


@needs_compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_the_header_is_cpp_too(tmp_path: Path) -> None:
    for name in ("mm", "mm_any", "mm_packed", "scale"):
        export(tmp_path, name, "obj", "header")
    twice = '#include "mm.h"\n' + PROGRAM
    assert run_c(tmp_path, twice, "mm.o", "mm_any.o", "mm_packed.o", compiler=("g++", "-std=c++11")) == "0 1 1 1 {\n"


@needs_compiler
def test_no_memory_for_intermediate_results(tmp_path: Path) -> None:
    export(tmp_path, "mm_packed", "obj", "header")
    program = """
#include "mm_packed.h"
#include <stdio.h>
#include <stdlib.h>

static float a[mm_packed_A_COUNT], b[mm_packed_B_COUNT], c[mm_packed_C_COUNT];
static int full = 1;

int posix_memalign(void **out, size_t alignment, size_t size) {
    if (full) return 12;
    *out = aligned_alloc(alignment, size);
    return 0;
}

int main(void) {
    int first = mm_packed(a, b, c);
    full = 0;
    printf("%d %d\\n", first == TENSORC_MEMORY, mm_packed(a, b, c));
    return 0;
}
"""
    assert run_c(tmp_path, program, "mm_packed.o", compiler=("cc", "-std=c11")) == "1 0\n"


@needs_compiler
def test_a_library_stays_in_memory_with_its_threads(tmp_path: Path) -> None:
    export(tmp_path, "mm", "so", "header", threads=2)
    program = """
#include "mm.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static float a[mm_A_COUNT], b[mm_B_COUNT], c[mm_C_COUNT];

int main(void) {
    int bad = 0;
    struct timespec moment = {0, 5000000};
    for (int n = 0; n < 3; n++) {
        void *library = dlopen("./mm.so", RTLD_NOW | RTLD_LOCAL);
        void *symbol = library ? dlsym(library, "mm") : NULL;
        int32_t (*f)(const float *, const float *, float *);
        if (!symbol) return 1;
        memcpy(&f, &symbol, sizeof f);
        for (int k = 0; k < 50; k++) bad += f(a, b, c) != 0;
        dlclose(library);
        nanosleep(&moment, NULL); /* the workers fall asleep, in code of the library */
    }
    printf("%d\\n", bad);
    return 0;
}
"""
    assert run_c(tmp_path, program) == "0\n"


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
def test_a_library_shows_its_interface_and_nothing_else(threads: int, tmp_path: Path) -> None:
    shared = export(tmp_path, "mm", "obj", "so", threads=threads)
    assert symbols(shared, "-D", "--defined-only") == ["mm", "mm_checked", "mm_metadata"]
    in_object = symbols(tmp_path / "mm.o", "--defined-only", "--extern-only")
    assert in_object == sorted(["mm", "mm_checked", "mm_metadata", *["tensorc_parallel_for"] * (threads > 1)])
    needed = symbols(tmp_path / "mm.o", "--undefined-only")
    assert ("pthread_create" in needed) == (threads > 1)


def test_a_kernel_without_intermediate_results_asks_for_no_memory() -> None:
    text = task("scale").library(task("scale").sample(0)).make("asm").decode()
    assert "posix_memalign" not in text
    assert "pthread" not in text


def test_the_header_says_everything(tmp_path: Path) -> None:
    text = export(tmp_path, "scale", "header").read_text("utf-8")
    assert "int32_t scale(const float *new_, const float *factor, float *Y);" in text
    assert "factor: input, f32\n" in text
    assert "#define scale_factor_RANK 0\n#define scale_factor_COUNT INT64_C(1)\n" in text
    text = export(tmp_path, "paired", "header").read_text("utf-8")
    assert "int32_t paired(int64_t N, int64_t M, const float *X, const float *Z, float *Y);" in text
    assert "paired_X_COUNT" not in text  # not a plain product: the comment says it
    assert "X: input, f32[N * 2]" in text
    text = export(tmp_path, "bf16_twice", "header").read_text("utf-8")
    assert "const uint16_t *X" in text
    assert "X: input, bf16[N] as its bits" in text
    text = export(tmp_path, "f8_quantized", "header").read_text("utf-8")
    assert "const float *X, uint8_t *Y" in text
    assert "Y: output, f8e4m3[N] as its bits" in text


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, ["compile", str(HERE / "tasks.tsched"), *arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_texts_are_printed_and_files_are_named_after_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "define i32 @mm(ptr %p0, ptr %p1, ptr %p2)" in run("mm", "--emit", "llvm")
    assert "mm_checked:" in run("mm", "--emit", "asm", "-o", "-")
    assert not list(tmp_path.iterdir())
    run("mm")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mm.h", "mm.o"]
    run("mm", "--emit", "asm", "--emit", "llvm", "-o", "new/out")
    assert sorted(p.name for p in (tmp_path / "new" / "out").iterdir()) == ["mm.ll", "mm.s"]
    run("mm", "--emit", "header", "-o", "other.h")
    assert (tmp_path / "other.h").read_bytes() == (tmp_path / "mm.h").read_bytes()
    assert "makes no text" in run("mm", "--emit", "obj", "-o", "-", status=2)
    assert "one `--emit`" in run("mm", "-o", "-", status=2)


def test_nothing_is_written_when_something_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    (tmp_path / "mm.h").write_text("old", encoding="utf-8")
    assert "E0913" in run("mm", "--emit", "header", "--emit", "so", "-o", str(tmp_path), status=1)
    assert [(p.name, p.read_text("utf-8")) for p in tmp_path.iterdir()] == [("mm.h", "old")]
    monkeypatch.setenv("CC", "false")
    assert "ends with status 1" in run("mm", "--emit", "so", "-o", str(tmp_path / "mm.so"), status=1)
    monkeypatch.delenv("CC")
    assert "E0903" in run("mm", "--emit", "obj", "-o", str(tmp_path / "none" / "mm.o"), status=1)


def test_open_draws_are_pinned_drawn_or_refused(tmp_path: Path) -> None:
    said = run("mm_open", "--emit", "llvm", status=1)
    assert "E0911" in said
    assert "its draws are open: `rows`, `columns`" in said
    pins = ("--condition", "rows=[6, 4]", "--condition", "columns=[3, 16]")
    assert "its draw is open: `columns`" in run("mm_open", "--emit", "llvm", *pins[:2], status=1)
    pinned = run("mm_open", "--emit", "asm", *pins)
    drawn = [run("mm_open", "--emit", "asm", "--seed", seed) for seed in ("1", "1", "2")]
    assert drawn[0] == drawn[1]
    trace = tmp_path / "frozen.tsched"
    sampled = CliRunner().invoke(main, ["sample", str(HERE / "tasks.tsched"), "mm_open", *pins])
    trace.write_text(sampled.output, encoding="utf-8")
    assert run("mm_open", "--emit", "asm", "--replay", str(trace)) == pinned


@pytest.mark.parametrize("name", ["double", "exp"])
def test_a_function_of_c_keeps_its_name(name: str) -> None:
    assert "E0912" in run(name, "--emit", "llvm", status=1)


SINGLE = """
#include "scaled_total.h"
#include <stdio.h>

int main(void) {
    float x[scaled_total_X_COUNT], scale = 0.5f, total = 0;
    int32_t n = 21, twice = 0;
    for (int64_t k = 0; k < scaled_total_X_COUNT; k++) x[k] = (float)k;
    int32_t result = scaled_total(x, &scale, &n, &total, &twice);
    printf("%d %g %d %d %d\\n", result, total, twice, scaled_total_scale_RANK, (int)scaled_total_total_COUNT);
    return 0;
}
"""


@needs_compiler
def test_single_values_from_c(tmp_path: Path) -> None:
    export(tmp_path, "scaled_total", "obj", "header")
    assert run_c(tmp_path, SINGLE, "scaled_total.o") == "0 14 42 0 1\n"
    header = (tmp_path / "scaled_total.h").read_text("utf-8")
    assert "   scale: input, f32\n" in header
    assert "   total: output, f32\n" in header

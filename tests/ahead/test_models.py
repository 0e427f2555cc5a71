"""Libraries of models: a C program runs one with the bits of Python, in several instances, and what is refused."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tensorc_dsl.backend.llvm.ahead.interface import Status
from tensorc_dsl.faces.api.models import LoadedModel, load_model
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.graph.weights import weights_parts
from tests.ahead.made import needs_compiler, run_c, symbols

pytestmark = needs_compiler

MODEL = """
space plain for llvm {}

compute dense(X: f32[M, K], W: const f32[K, N], b: const f32[N]) -> Y: f32[M, N] {
    let V[k, j] = W[k, j] * 2.0
    let S[i, j] = sum[k] X[i, k] * V[k, j]
    Y[i, j] = tanh(S[i, j] + b[j])
}

compute both(X: f32[M, N]) -> Y: f32[M, N], Z: f32[M] {
    Y[i, j] = X[i, j] / 3.0
    Z[i] = sum[j] X[i, j]
}

schedule rows for dense {
    let [i, j, k] = S.loops
    parallel(i)
}

model net(x: f32[3, 70], s: f32) -> y: f32[3, 11], z: f32[3], again: f32[33]
weights "w.safetensors" sha256 "DIGEST" (v: f32[4900], w: f32[70, 11], b: f32[70], c: f32[11])
{
    let square = reshape(v, [70, 70])
    let h = dense(x, square, b)
    let g = dense(h, square, b)
    let d = dense(g, w, c)
    (y, z) = both(d)
    again = reshape(y, [33])
}
"""

PLAIN = """
space plain for llvm {}

compute copy(X: f32[N]) -> Y: f32[N] { Y[i] = max(X[i], 0.0) }
compute parallel_for(X: f32[N]) -> Y: f32[N] { Y[i] = X[i] * 2.0 }

model plain(x: f32[6], instance: f32[0]) -> y: f32[2, 3], same: f32[3, 2] {
    let a = copy(x)
    let b = parallel_for(a)
    y = reshape(b, [2, 3])
    same = reshape(x, [3, 2])
}

model views(x: f32[4]) -> y: f32[2, 2] {
    y = reshape(x, [2, 2])
}
"""


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def net(folder: Path, threads: int = 2) -> LoadedModel:
    tensors = {
        "v": floats(4900, seed=1), "w": floats(70, 11, seed=2), "b": floats(70, seed=3), "c": floats(11, seed=4),
    }  # fmt: skip
    data = b"".join(weights_parts(tensors))
    (folder / "w.safetensors").write_bytes(data)
    (folder / "net.tsched").write_text(MODEL.replace("DIGEST", sha256(data).hexdigest()))
    return load_model(folder / "net.tsched", threads=threads)


def compiled(folder: Path, *words: str) -> None:
    done = CliRunner().invoke(main, ["compile", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output


PROGRAM = """
#include "net.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static float x[net_x_COUNT], y[2][net_y_COUNT], z[2][net_z_COUNT], again[2][net_again_COUNT], s;
static net_instance *models[2];

static void *many(void *model) {
    float a[net_y_COUNT], b[net_z_COUNT], c[net_again_COUNT];
    size_t wrong = 0;
    for (int n = 0; n < 50; n++) {
        if (net_run(x, &s, a, b, c, (net_instance *)model) || memcmp(a, y[0], sizeof a)) wrong++;
    }
    return (void *)wrong;
}

int main(void) {
    FILE *f = fopen("in", "rb");
    if (!f || fread(x, sizeof x, 1, f) != 1) return 1;
    fclose(f);
    for (int k = 0; k < 2; k++) if (net_create("net.weights", &models[k]) != TENSORC_OK) return 2;
    for (int k = 0; k < 2; k++) if (net_run(x, &s, y[k], z[k], again[k], models[k])) return 3;
    if (memcmp(y[0], y[1], sizeof y[0]) || memcmp(y[0], again[1], sizeof y[0])) return 4;

    pthread_t threads[4];
    void *wrong = NULL;
    for (int t = 0; t < 4; t++) pthread_create(&threads[t], NULL, many, models[t % 2]);
    for (int t = 0; t < 4; t++) {
        pthread_join(threads[t], &wrong);
        if (wrong) return 5;
    }

    int64_t shape[2] = {3, 70};
    tensorc_array arrays[5] = {{x, 1, 0, 2, 2, 32, 1, shape, NULL, 0}};
    if (net_run_checked(arrays, 4, models[0]) != TENSORC_COUNT) return 6;
    int64_t rows[1] = {3}, whole[1] = {33}, matrix[2] = {3, 11};
    arrays[1] = (tensorc_array){&s, 1, 0, 0, 2, 32, 1, NULL, NULL, 0};
    arrays[2] = (tensorc_array){y[1], 1, 0, 2, 2, 32, 1, matrix, NULL, 0};
    arrays[3] = (tensorc_array){z[1], 1, 0, 1, 2, 32, 1, rows, NULL, 0};
    arrays[4] = (tensorc_array){again[1], 1, 0, 1, 2, 32, 1, whole, NULL, 0};
    memset(y[1], 0, sizeof y[1]);
    if (net_run_checked(arrays, 5, models[1]) || memcmp(y[0], y[1], sizeof y[0])) return 7;
    shape[1] = 71;
    if (net_run_checked(arrays, 5, models[1]) != TENSORC_SHAPE) return 8;

    int32_t refused = net_run(x, &s, y[1], z[1], x, models[0]);
    if (TENSORC_STATUS(refused) != TENSORC_OVERLAP || TENSORC_ARGUMENT(refused) != 4) return 9;
    refused = net_run(x, &s, y[1], NULL, again[1], models[0]);
    if (TENSORC_STATUS(refused) != TENSORC_NULL || TENSORC_ARGUMENT(refused) != 3) return 10;
    refused = net_run(x, &s, y[1], z[1], again[1], NULL);
    if (TENSORC_STATUS(refused) != TENSORC_NULL || TENSORC_ARGUMENT(refused) != 5) return 11;

    net_instance *none = NULL;
    const char *paths[] = {"missing", "short", "longer", "other", "empty", ".", "pipe"};
    for (int k = 0; k < 7; k++) {
        refused = net_create(paths[k], &none);
        if (refused != (k == 0 ? TENSORC_FILE : TENSORC_WEIGHTS) || none) return 20 + k;
    }
    if (TENSORC_STATUS(net_create(NULL, &none)) != TENSORC_NULL) return 12;
    if (TENSORC_STATUS(net_create("net.weights", NULL)) != TENSORC_NULL) return 13;
    for (int k = 0; k < 2; k++) net_destroy(models[k]);
    net_destroy(NULL);
    f = fopen("out", "wb");
    if (!f || fwrite(y[0], sizeof y[0], 1, f) != 1 || fwrite(z[0], sizeof z[0], 1, f) != 1) return 14;
    return fclose(f);
}
"""


def test_from_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = net(tmp_path)
    compiled(tmp_path, "net.tsched", "--threads", "2", "--emit", "so", "--emit", "header", "--emit", "weights")
    weights = Path("net.weights").read_bytes()
    Path("short").write_bytes(weights[:-1])
    Path("longer").write_bytes(weights + b"\0")
    Path("other").write_bytes(bytes([weights[0] ^ 1]) + weights[1:])
    Path("empty").touch()
    subprocess.run(["mkfifo", "pipe"], check=True)
    x = floats(3, 70)
    Path("in").write_bytes(x.tobytes())
    run_c(tmp_path, PROGRAM, "./net.so")
    y, z, _ = loaded(x, np.float32(0))
    assert Path("out").read_bytes() == y.tobytes() + z.tobytes()
    assert symbols(tmp_path / "net.so", "-D", "--defined-only") == [
        "net_create", "net_destroy", "net_metadata", "net_run", "net_run_checked",
    ]  # fmt: skip


def test_a_model_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain.tsched").write_text(PLAIN)
    compiled(tmp_path, "plain.tsched", "plain", "--threads", "1", "-o", "made")
    assert sorted(p.name for p in Path("made").iterdir()) == ["plain.h", "plain.so"]
    compiled(tmp_path, "plain.tsched", "plain", "--threads", "1", "--emit", "obj", "-o", "made/plain.o")
    compiled(tmp_path, "plain.tsched", "views", "--emit", "obj", "--emit", "header", "-o", "made")
    program = """
#include "plain.h"
#include "views.h"
#include <stdio.h>

int main(void) {
    float x[6] = {-1, 2, -3, 4, -5, 6}, y[6], same[6];
    plain_instance *model;
    views_instance *other;
    if (plain_create(NULL, &model) || plain_run(x, NULL, y, same, model)) return 1;
    if (views_create(NULL, &other) || views_run(same, y + 2, other)) return 2;
    plain_destroy(model);
    views_destroy(other);
    for (int k = 0; k < 6; k++) printf("%g ", y[k]);
    return 0;
}
"""
    assert run_c(tmp_path / "made", program, "plain.o", "views.o") == "0 4 -1 2 -3 4 "


def test_no_memory_is_a_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("large.tsched").write_text(
        PLAIN.replace("plain", "large")
        .replace("[6]", "[600000000]")
        .replace("2, 3]", "2, 300000000]")
        .replace("3, 2]", "300000000, 2]")
    )
    compiled(tmp_path, "large.tsched", "large", "--threads", "1", "--emit", "obj", "--emit", "header", "-o", ".")
    program = """
#include "large.h"
#include <sys/resource.h>

int main(void) {
    struct rlimit most = {1 << 30, 1 << 30};
    large_instance *model = 0;
    setrlimit(RLIMIT_AS, &most);
    return large_create(0, &model) != TENSORC_MEMORY || model;
}
"""
    run_c(tmp_path, program, "large.o")


def test_what_a_model_does_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain.tsched").write_text(PLAIN)

    def said(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["compile", "plain.tsched", *words])
        return done.exit_code, done.output

    assert said("plain", "--replay", "x")[0] == 2
    assert "'llvm' is not one of obj, so, header, weights" in said("plain", "--emit", "llvm")[1]
    assert "x86-64" in said("plain", "--mcpu", "help")[1]
    assert said("other")[0] == 1
    Path("plain.tsched").write_text(f"use std.gpu.targets.{{sm_80}}\n{PLAIN}")
    assert "E0910" in said("plain", "--target", "sm_80")[1]
    Path("plain.tsched").write_text(PLAIN.replace("model plain", "model float"))
    code, text = said("float")
    assert code == 1 and "E0912" in text
    assert Status.FILE == 14 and Status.WEIGHTS == 15

"""Modules of PyTorch: what an import computes beside PyTorch, and what it refuses; and what is said without it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tensorc_dsl
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.graph.graph import Graph, Node, Tensor
from tensorc_dsl.graph.importing import TABLE, import_graph
from tensorc_dsl.graph.torch_export import TARGETS, read_torch
from tensorc_dsl.graph.writing import written
from tests.graph.onnx_cases import by_reference

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
Torch = Any
"""The package, or what is of it."""


def torch_() -> Torch:
    return import_module("torch")


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TschedError) as caught:
        tensorc_dsl.from_torch(object(), (), tmp_path / "net.tsched")
    (found,) = caught.value.diagnostics
    assert found.code == "E0940" and "tensorc-dsl[torch]" in "".join(n.text for n in found.notes)
    assert not list(tmp_path.iterdir())


def checked(module: Torch, example: Any, folder: Path, rtol: float = 1e-4) -> str:
    """The text of the import of a module, whose outputs are compared with its own."""
    torch = torch_()
    module.eval()
    args, kwargs = (
        ((), example) if isinstance(example, dict) else (example if isinstance(example, tuple) else (example,), {})
    )
    with torch.no_grad():
        wanted = module(*args, **kwargs)
    path = tensorc_dsl.from_torch(module, example, folder / "net.tsched")
    made = tensorc_dsl.load_model(path, threads=1)(*(a.numpy() for a in (*args, *kwargs.values())))
    every = wanted if isinstance(wanted, tuple) else (wanted,)
    found = made if isinstance(made, tuple) else (made,)
    assert len(found) == len(every)
    for a, b in zip(found, every, strict=True):
        assert a.shape == tuple(b.shape) and str(a.dtype) == str(b.dtype).removeprefix("torch.")
        np.testing.assert_allclose(a, b.numpy(), rtol=rtol, atol=rtol)
    return path.read_text()


def block(torch: Torch) -> Torch:
    """A block of a ResNet, whose rectifiers work in place."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(8)
            self.b = nn.Conv2d(8, 8, 3, padding="same", groups=4)
            self.pool = nn.MaxPool2d(3, 2, 1)
            self.head = nn.Linear(8, 5)

        def forward(self, x: Torch) -> Torch:
            h = nn.functional.relu(self.norm(self.a(x)), inplace=True)
            h = h + nn.functional.hardswish(self.b(h))
            h = nn.functional.adaptive_avg_pool2d(self.pool(h), 1)
            return self.head(torch.flatten(h, 1))

    return Block()


def encoder(torch: Torch) -> Torch:
    return torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True), 1, enable_nested_tensor=False
    )


def recurrent(torch: Torch) -> Torch:
    nn = torch.nn

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(11, 6)
            self.a = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
            self.b = nn.GRU(10, 4)
            self.c = nn.Linear(4, 3)

        def forward(self, ids: Torch) -> tuple[Torch, Torch]:
            h, (_, c) = self.a(self.words(ids))
            h, _ = self.b(h.transpose(0, 1))
            return torch.log_softmax(self.c(h), -1), c[-1]

    return Tagger()


def rotated(torch: Torch) -> Torch:
    """Attention with rotated positions, a mask, parts of one projection, and RMS norm."""
    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.RMSNorm(12)
            self.qkv = nn.Linear(12, 36)
            self.out = nn.Linear(12, 12, bias=False)

        def turned(self, x: Torch) -> Torch:
            angles = torch.arange(5)[:, None] * 10000.0 ** (-torch.arange(3) / 3.0)
            a, b = x.chunk(2, -1)
            return torch.cat((a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()), -1)

        def forward(self, x: Torch, keep: Torch) -> Torch:
            q, k, v = self.qkv(self.norm(x)).view(2, 5, 3, 2, 6).permute(2, 0, 3, 1, 4).unbind(0)
            mask = keep[:, None, None, :] & torch.ones(5, 5, dtype=torch.bool).tril()
            o = nn.functional.scaled_dot_product_attention(self.turned(q), self.turned(k), v, attn_mask=mask)
            hidden = torch.zeros_like(keep, dtype=torch.float32).masked_fill_(~keep, -1.0)
            return (
                x + self.out(o.transpose(1, 2).reshape(2, 5, 12)).masked_fill(~keep[..., None], 0.0) + hidden[..., None]
            )

    return Attention()


NETWORKS: dict[str, tuple[Callable[[Torch], Torch], Callable[[Torch], Any]]] = {
    "a block of a ResNet": (block, lambda t: t.rand(2, 3, 17, 13)),
    "an encoder": (encoder, lambda t: t.rand(2, 5, 16)),
    "a tagger": (recurrent, lambda t: (t.randint(0, 11, (3, 4)),)),
    "attention": (
        rotated,
        lambda t: {"x": t.rand(2, 5, 12), "keep": t.tensor([[True] * 5, [True, True, True, False, False]])},
    ),
}


@needs_torch
@pytest.mark.parametrize("name", NETWORKS)
def test_a_module_computes_what_it_does_in_pytorch(name: str, tmp_path: Path) -> None:
    torch = torch_()
    torch.manual_seed(0)
    make, example = NETWORKS[name]
    text = checked(make(torch), example(torch), tmp_path)
    if name == "a block of a ResNet":
        assert "batch_norm" not in text  # it is in the weights of the convolution before it


def functions(torch: Torch) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions of all kinds, each with its arguments."""
    f = torch.nn.functional
    x, y, n = torch.randn(2, 3, 8), torch.rand(2, 3, 8) + 0.5, torch.randint(0, 3, (2, 3, 8))
    image = torch.randn(1, 4, 6, 7)
    return {
        "activations": (
            lambda a: f.silu(a) + f.mish(a) + f.elu(a) + f.selu(a) + f.softplus(a) + f.hardsigmoid(a) + f.relu6(4 * a)
            + f.leaky_relu(a, 0.2) + f.hardtanh(a) + f.gelu(a, approximate="tanh") + f.glu(torch.cat((a, a), 1), 1),
            (x,),
        ),
        "numbers": (lambda a: 2 - a / 3 + a.clamp(min=0) ** 2 + 2**a + a.sub(a, alpha=0.5) + a.erf() + abs(a), (x,)),
        "types": (lambda a, i: (a + i, i / 2, i + 1, a.to(torch.int32), i == 1, (a > 0) & (i != 2), a.double()), (x, n)),
        "reductions": (
            lambda a: (
                a.mean(), a.sum((0, 2)), a.mean(-1, keepdim=True), *a.max(1), a.amin(0), a.argmax(), a.argmin(2), a.cumsum(1),
                *a.topk(2), a.max(), a.softmax(1), a.abs().prod(2),
            ),
            (x,),
        ),
        "movement": (
            lambda a: (
                a.transpose(0, 2), a.permute(2, 0, 1), a.flatten(1), a.unsqueeze(1).squeeze(1), a[:, 1:, ::3], a[0],
                a[..., -1], a.expand(4, 2, 3, 8), a.repeat(2, 1, 1), torch.stack((a, a), -1), *a.split((2, 6), 2),
                *a.chunk(3, 1), a.roll(3, 2), a.tril(1), f.pad(a, (1, 2)), a.mT, a.narrow(2, 3, 4),
                torch.zeros_like(a) + torch.ones(8),
            ),
            (x,),
        ),
        "look-ups": (
            lambda a, i: (a[:, i[0, :, 0]], a.gather(1, i), a.index_select(2, i[0, 0]), torch.where(i > 1, a, 0.0)),
            (x, n),
        ),
        "products": (
            lambda a, b: (
                a @ b.mT, torch.bmm(a, b.transpose(1, 2)), torch.einsum("bik,bjk->bij", a, b),
                torch.addmm(a[0, 0, :3], a[0], b[0].T, beta=2.0), torch.maximum(a, b), a.rsqrt(),
            ),
            (y, y + 1),
        ),
        "images": (
            lambda i: (
                f.avg_pool2d(i, 2, padding=1), f.adaptive_avg_pool2d(i, (3, 7)), f.interpolate(i, scale_factor=2),
                f.interpolate(i, size=(5, 9), mode="bilinear"), f.group_norm(i, 2), f.instance_norm(i), f.pixel_shuffle(i, 2),
                f.conv_transpose2d(i, torch.ones(4, 2, 3, 3), stride=2, output_padding=1),
                f.pad(i, (1, 1, 2, 0), mode="reflect"), f.layer_norm(i, (6, 7)), f.max_pool2d(i, 3, 2, ceil_mode=True),
            ),
            (image,),
        ),
    }  # fmt: skip


KINDS = ("activations", "numbers", "types", "reductions", "movement", "look-ups", "products", "images")


@needs_torch
@pytest.mark.parametrize("kind", KINDS)
def test_functions_compute_what_they_do_in_pytorch(kind: str, tmp_path: Path) -> None:
    torch = torch_()
    torch.manual_seed(0)
    known = functions(torch)
    assert tuple(known) == KINDS
    function, arguments = known[kind]

    class Module(torch.nn.Module):
        def forward(self, *given: Torch) -> Any:
            return function(*given)

    checked(Module(), arguments, tmp_path)


def complex_results(torch: Torch, a: Torch, b: Torch) -> list[Torch]:
    """What is computed of complex numbers with these parts, as real numbers."""
    c, d = torch.complex(a, b), torch.view_as_complex(torch.stack((b, a), -1))
    made = [
        c * d, c / d, c + a, 1 - c, c / 2, 2 / c, c * a, a * c, c * 1j, c.conj() @ d.mT, torch.exp(c), c**2, torch.sgn(c),
        torch.cat((c, d), 1)[:, 1:], c.sum(1), torch.polar(a, b), c.reciprocal(), c.flip(0), torch.where(a > 0, c, 0),
        torch.einsum("bij,bkj->bik", c, d), torch.zeros_like(c) + d, c.mT.clone(),
    ]  # fmt: skip
    return [*map(torch.view_as_real, made), c.abs(), c.angle(), c.real, c.imag]


def more_functions(torch: Torch) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """What only the reference computes here: kernels of each would take seconds."""
    f, inf = torch.nn.functional, float("inf")
    attend = f.scaled_dot_product_attention
    x = torch.rand(2, 5, 6) * 4 - 2
    n = torch.randint(0, 5, (2, 5, 6))
    rows, columns = torch.tensor([[0, -1], [3, 2]]), torch.tensor([1, 5])
    mask = torch.tensor([True, False, True, True, False])
    image = torch.rand(2, 3, 5, 7)
    return {
        "quotients": (
            lambda a, i: (
                torch.remainder(a, -0.7), torch.fmod(a, 0.7), torch.remainder(i - 2, 3), torch.floor_divide(i - 2, 3),
                torch.div(i - 2, 3, rounding_mode="trunc"), torch.div(a, 0.3, rounding_mode="trunc"), torch.trunc(a),
                torch.frac(a), torch.lerp(a, a.flip(0), 0.3), torch.addcmul(a, a, a, value=0.5), torch.addcdiv(a, a, a + 9),
                torch.atan2(a, a.flip(1)), torch.clamp(a, min=a.flip(0)), torch.where(a > 1, a, inf).nan_to_num(posinf=3.0),
            ),
            (x, n),
        ),
        "curves": (
            lambda a: (
                a.abs().log1p(), a.expm1(), a.exp2(), (a.abs() + 1).log2(), (a.abs() + 1).log10(), torch.erfc(a), a.atan(),
                a.asinh(), f.logsigmoid(a), f.softshrink(a, 0.2), f.hardshrink(a, 0.3), f.threshold(a, 0.1, 7.0),
                f.softplus(a, beta=2), torch.isfinite(a), torch.isclose(a, a + 1e-7), f.tanhshrink(a),
            ),
            (x,),
        ),
        "integers": (
            lambda i: (
                i.sqrt(), i.exp(), i.sigmoid(), i.reciprocal(), i.rsqrt(), i.erf(), i.tanh(), i.neg(), i.abs(), i.sign(),
                i.floor(), i.ceil(), i.round(), i.trunc(), i.logical_not(), i / torch.sqrt(torch.tensor(5)), i.log1p(),
                i.exp2(), i.expm1(), i.square(), i.clamp(1, 3), i > 1.5, torch.where(i > 2, i, 0.5), i.sum(1),
                i.bool().sum(2), i.prod(1), i.cumsum(1), (i > 2).cumsum(1), (i - 2).logical_not(), (i + 1).log(),
                i.add(0.5), i.pow(2), i.pow(0.5), 2**i, i // 2,
            ),
            (n,),
        ),
        "statistics": (
            lambda a: (
                a.var(1), a.std((0, 2), keepdim=True), a.var(unbiased=False), a.norm(dim=1), a.norm(1, 2),
                a.abs().norm(inf, 1), a.logsumexp(1), (a > 1).any(1), (a > -1).all(2, keepdim=True), (a > 1).any(),
                a.norm(3, 1), a.relu().norm(0, 2), torch.dist(a, a * 3, 1), torch.dist(a, a[0], 4),
                f.batch_norm(a, None, None, a[0, :, 0], training=True), f.batch_norm(a, a[0, :, 0], a[0, :, 1].abs()),
                a.round(decimals=2), (a * 100).round(decimals=-1),
                a.cumprod(2), a.diff(dim=1), a.diff(2, dim=2, prepend=a[..., :1]), f.normalize(a, dim=1),
            ),
            (x,),
        ),
        "places": (
            lambda a, r, c: (
                a[:, r, c], a[r % 2, :, c], a[0][:, c], a[:, mask], a[:, 1:][0, r[:, :1]], a.diagonal(1, 2, 1), a.flip(0, 2),
                *a.sort(-1, descending=True), a.argsort(1), a.repeat_interleave(3, 1), a.unfold(2, 3, 2), a.movedim(0, 2),
                a.tile(2, 1), torch.bucketize(a, torch.tensor([-1.0, 0.0, 1.0])), f.one_hot(r % 4, 4),
                torch.outer(a[0, 0], a[1, 1]), a[0, :, 0].addmv(a[0], a[0, 0], beta=0.5, alpha=2),
                a[0, :, :5].addbmm(a, a.transpose(1, 2)),
                *torch.meshgrid(a[0, 0], a[0, :, 0], indexing="xy"), torch.cdist(a, a.flip(1)),
            ),
            (x, rows, columns),
        ),
        "updates": (
            lambda a, i, r, c: (
                a.scatter(1, i % 5, 7.0), a.scatter_add(1, i, a * 2), a.scatter_reduce(1, i, a, "amax"),
                a.index_add(1, r[1], a[:, :2], alpha=2), a.index_copy(2, c, a[..., :2]),
                a.index_put((r % 2, c % 5), a[0, 0, 0]),
                a.slice_scatter(a[:, :2], 1, 0, 4, 2), a.select_scatter(a[0], 0, 1),
                a.diagonal_scatter(a[:, 0, :5], 1, 1, 2), torch.full_like(a[0], 2).fill_diagonal_(1.0),
                torch.as_strided_scatter(a, a[0, :2, :2], (2, 2), (12, 2), 1),
                a.masked_scatter(a > 0.3, a.flip(0)), a.masked_scatter(a[:, :, :1] > 0.3, a + 1),
                a[0].masked_scatter(a > 1, a),
                a.put(r, a[0, :2, :2] * 3, accumulate=True), a.put(c, a[0, 0, : c.numel()].view_as(c)),
                torch.full_like(a, 2).masked_fill(a > 0, 1.5),
            ),
            (x, n, rows, columns),
        ),
        "attentions": (
            lambda a: (
                attend(a, a[:, :3], a[:, :3], a[0, :, :3] > 0), attend(a[0], a[1], a[0]), attend(a[:1], a, a, is_causal=True),
                attend(*[a[:, None, None]] * 3, torch.where(a > 1, a, -inf)[:, None, None, :, :5]),
                attend(a.view(1, 2, 5, 6), a[None, :1], a[None, 1:], scale=0.3, enable_gqa=True),
            ),
            (torch.cat((x, -x.abs().max(1, keepdim=True)[0] - 3), 1)[:, 1:],),
        ),
        "windows": (
            lambda i: (
                f.unfold(i, 3, padding=1, stride=2),
                f.fold(f.unfold(i, 3, padding=1, stride=2), (5, 7), 3, padding=1, stride=2),
                f.adaptive_avg_pool2d(i, (2, 3)), f.adaptive_avg_pool2d(i, (6, 4)), f.pixel_unshuffle(i[:, :, :4, :6], 2),
                torch.ops.aten.upsample_bilinear2d(i, [7, 10], False, 1.5, 1.5),
                torch.ops.aten.upsample_nearest1d(i[0], [10], 1.5),
                f.channel_shuffle(i, 3), f.grid_sample(i, i[:, :2].permute(0, 2, 3, 1) * 2 - 1, align_corners=False),
                f.affine_grid(i[:, 0, :2, :3], [2, 3, 4, 5], align_corners=False),
                f.affine_grid(i[:, 0, :2, :3], [2, 3, 4, 5], align_corners=True),
            ),
            (image,),
        ),
        "uneven pools": (
            lambda i: (
                f.adaptive_max_pool2d(i, (3, 4)), f.adaptive_max_pool2d(i, (9, 2)), f.adaptive_max_pool1d(i[0], 5),
                f.adaptive_avg_pool2d(i, (None, 4)), *f.adaptive_max_pool2d(i[:, :, :4, :6], 2, return_indices=True),
                f.avg_pool2d(i, 2, divisor_override=3), *f.max_pool2d(i, 2, return_indices=True),
                f.max_unpool2d(*f.max_pool2d(i, 2, return_indices=True), 2, output_size=(5, 7)),
            ),
            (image,),
        ),
        "sizes": (
            lambda i: (
                f.interpolate(i, size=(7, 9), mode="nearest-exact"), f.interpolate(i, scale_factor=0.6, mode="nearest-exact"),
                f.interpolate(i, size=(3, 3), mode="bilinear", antialias=True), f.interpolate(i[0], size=9, mode="linear"),
                f.interpolate(i, size=(3, 4), mode="bicubic", antialias=True), f.interpolate(i[0], size=9),
                f.interpolate(i[None], size=(2, 8, 7), mode="trilinear"), f.interpolate(i[None], scale_factor=2),
            ),
            (image,),
        ),
        "transforms": (
            lambda a: (
                torch.view_as_real(torch.fft.rfft(a, n=7)), torch.fft.irfft(torch.fft.rfft(a, dim=1), n=5, dim=1),
                torch.fft.fft2(a).real, torch.fft.ifftn(torch.fft.fftn(a, norm="ortho"), norm="ortho").real,
                torch.fft.irfft2(torch.fft.rfft2(a, norm="forward") * 2j), torch.fft.ifft(a, norm="forward").imag * 2,
                torch.fft.fftshift(torch.fft.fft(a, norm="ortho"), dim=-1).abs(),
            ),
            (x,),
        ),
        "complex numbers": (lambda a, b: complex_results(torch, a, b), (x, x.flip(1) + 0.5)),
        "orders": (
            lambda a: (
                *a.cummax(1), *a.cummin(2), a.logcumsumexp(1), *a.median(1), a.median(), *a.kthvalue(2, 2),
                torch.searchsorted(a.sort()[0], a), torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), a, side="right"),
                *torch.std_mean(a, 1), *torch.var_mean(a), *a.tensor_split(4, 2), a.as_strided((3, 2), (7, 2), 1),
            ),
            (x,),
        ),
        "signs": (
            lambda a, b: (
                torch.hypot(a, b), torch.hypot(a * 1e25, b * 1e25), torch.copysign(a, b), a.signbit(), a.sgn(),
               (-a * 0).signbit(),
                torch.fmax(torch.where(a > 1, torch.nan, a), b), torch.fmin(a, torch.where(b > 1, torch.nan, b)),
                f.rrelu(a), f.bilinear(a, b, torch.ones(3, 6, 6)),
            ),
            (x, x.flip(0)),
        ),
        "histograms": (
            lambda a, i: (torch.histc(a, 7, -1, 1.5), torch.histc(i.float(), 5, 0, 4), torch.histc(i.float(), 5, max=4)),
            (x, n),
        ),
        "shifts": (lambda i: ((i << 3) >> 1, (i - 3) >> 1), (n,)),
        "joined updates": (
            lambda a, i: tuple(
                a.scatter_reduce(1, i, a * 2 - 1, how, include_self=kept)
                for how in ("sum", "mean", "amax", "prod")
                for kept in (True, False)
            )
            + tuple(
                a.index_reduce(1, i[0, :3, 0], a[:, :3] * 2 - 1, how, include_self=kept)
                for how in ("mean", "amax", "amin", "prod")
                for kept in (True, False)
            ),
            (x, n),
        ),
        "bags": (
            lambda w: (
                f.embedding_bag(torch.tensor([[0, 1], [2, 2]]), w),
                f.embedding_bag(torch.tensor([[0, 1], [2, 3]]), w, mode="sum"),
                f.embedding_bag(torch.tensor([0, 1, 4, 3]), w, torch.tensor([0, 1]), mode="mean"),
                f.embedding_bag(torch.tensor([[0, 1], [2, 3]]), w, mode="max"),
                f.embedding_bag(torch.tensor([[0, 1], [2, 2]]), w, mode="mean", padding_idx=1),
                f.embedding_bag(torch.tensor([[0, 1], [2, 2]]), w, mode="sum", padding_idx=2),
            ),
            (x[0],),
        ),
        "experts": (
            lambda a, w: (
                torch._grouped_mm(a.bfloat16(), w.bfloat16(), offs=torch.tensor([2, 2, 5], dtype=torch.int32)).float(),
            ),
            (torch.randint(0, 4, (5, 8)).float(), torch.randint(0, 4, (3, 8, 16)).float()),  # sums are exact
        ),
        "what PyTorch decomposes": (
            lambda a: (
                f.smooth_l1_loss(a, a * 2), f.cosine_similarity(a, a + 1, 1), a.sinc(), torch.logaddexp(a, -a), a.logit(1e-3),
                torch.tensordot(a, a, ([1], [1])), torch.kron(a[0], a[1]), a.nansum(1), torch.diag_embed(a),
                a.rot90(1, (0, 1)),
                *torch.hsplit(a, 5), torch.cartesian_prod(a[0, 0], a[1, 0]),
                torch.cross(a[..., :3], a[..., 1:4], dim=2), a.heaviside(torch.tensor(0.5)), f.local_response_norm(a, 3),
            ),
            (x,),
        ),
    }  # fmt: skip


MORE_KINDS = (
    "quotients", "curves", "integers", "statistics", "places", "updates", "attentions", "windows", "uneven pools", "sizes",
    "transforms", "complex numbers", "orders", "signs", "histograms", "shifts", "joined updates", "bags", "experts",
    "what PyTorch decomposes",
)  # fmt: skip


def require_reference(module: Torch, arguments: tuple[Any, ...]) -> None:
    """The computes of an import make what the module does, by the reference."""
    torch = torch_()
    with torch.no_grad():
        wanted = module.eval()(*(a.clone() for a in arguments))
        text, weights = written(import_graph(read_torch(module, arguments), {}, {}), "net", "net", "weights")
    made = by_reference(load_source(Source.of(text.encode(), "net.tsched")), weights, [a.numpy() for a in arguments])
    for a, b in zip(made, wanted, strict=True):
        assert a.shape == tuple(b.shape) and str(a.dtype) == str(b.dtype).removeprefix("torch.")
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-5)


@needs_torch
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("kind", MORE_KINDS)
def test_more_functions_compute_what_they_do_in_pytorch(kind: str) -> None:
    torch = torch_()
    torch.manual_seed(0)
    known = more_functions(torch)
    assert tuple(known) == MORE_KINDS
    function, arguments = known[kind]

    class Module(torch.nn.Module):
        def forward(self, *given: Torch) -> Any:
            return function(*given)

    require_reference(Module(), arguments)


@needs_torch
def test_an_argument_that_its_translator_ignores_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = torch_()

    class Module(torch.nn.Module):
        def forward(self, x: Torch) -> Any:
            return x.round(decimals=2), torch.rand_like(x)

    monkeypatch.setitem(cast("dict[str, Any]", TARGETS), "round", lambda c: c.emit("Round", c["self"]))
    with pytest.raises(TschedError) as found:
        import_graph(read_torch(Module().eval(), torch.ones(3)), {}, {})
    (d,) = found.value.diagnostics
    assert "with `decimals`" in d.notes[0].text and "random numbers" in d.notes[1].text


@needs_torch
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_states_of_layers_are_projected(kept: bool, biased: bool) -> None:
    torch = torch_()
    torch.manual_seed(0)

    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 6, 2, bias=biased, bidirectional=True, proj_size=3)

        def forward(self, x: Torch, *states: Torch) -> tuple[Torch, ...]:
            y, (h, c) = self.lstm(x, states or None)
            return y, h, c

    states = (torch.randn(4, 2, 3), torch.randn(4, 2, 6)) if kept else ()
    require_reference(Layers(), (torch.randn(5, 2, 4), *states))


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_operators_of_torchvision() -> None:
    torch, ops = torch_(), import_module("torchvision.ops")
    torch.manual_seed(0)

    class Vision(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = ops.DeformConv2d(4, 6, 3, stride=2, padding=1, groups=2)

        def forward(self, x: Torch, at: Torch, kept: Torch, regions: Torch) -> tuple[Torch, ...]:
            cells = ops.roi_align(x, regions, 3, 0.5, 2), ops.roi_align(x, regions, (2, 3), 1.0, 1, aligned=True)
            return self.conv(x, at), self.conv(x, at, kept), *cells

    regions = torch.tensor([[1.0, 1, 2, 7, 5], [0, 0, 0, 3.5, 6]])
    given = (torch.randn(2, 4, 7, 9), torch.randn(2, 36, 4, 5) * 2, torch.rand(2, 18, 4, 5), regions)
    require_reference(Vision(), given)


def test_a_value_of_another_type_than_it_had_in_the_trace_is_refused() -> None:
    wanted = Tensor("f32", (2,))
    nodes = [Node("Neg", ("n",), ("r",), {}, "root")]
    graph = Graph("net", {"n": ("i64", (2,))}, ("r",), nodes, traced={"r": ("head: root", wanted)})
    with pytest.raises(TschedError) as caught:
        import_graph(graph, {}, {})
    (found,) = caught.value.diagnostics
    assert found.code == "E0941"
    assert "`head: root`: it is i64[2] as it is translated, and was f32[2]" in found.notes[0].text


@needs_torch
def test_spectra_of_frames_and_signals_of_them() -> None:
    torch = torch_()

    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("window", torch.hann_window(12))

        def forward(self, x: Torch) -> tuple[Torch, ...]:
            z = torch.stft(x, 16, 4, 12, self.window, return_complex=True, normalized=True)
            whole = torch.stft(x[0], 8, window=self.window[2:10], return_complex=True, onesided=False, center=False)
            made = torch.istft(z * torch.sigmoid(z.abs()), 16, 4, 12, self.window, normalized=True, length=60)
            return made, z.abs() ** 2, torch.view_as_real(whole)

    require_reference(Masked(), (torch.randn(2, 64),))


@needs_torch
def test_a_module_of_bf16_computes_what_it_does_in_pytorch(tmp_path: Path) -> None:
    torch = torch_()
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)).bfloat16().eval()
    x = torch.randn(3, 8).bfloat16()
    model = tensorc_dsl.load_model(tensorc_dsl.from_torch(net, x, tmp_path / "net.tsched"), threads=1)
    (wanted,) = (net(x).detach().float().numpy(),)
    made = torch.from_numpy(model(x.view(torch.int16).numpy().view(np.uint16)).view(np.int16)).view(torch.bfloat16)
    np.testing.assert_allclose(made.float().numpy(), wanted, rtol=3e-2, atol=3e-2)


@needs_torch
def test_complex_outputs_and_places_in_uneven_windows_are_refused() -> None:
    torch = torch_()

    class Module(torch.nn.Module):
        def forward(self, x: Torch) -> tuple[Torch, ...]:
            return torch.fft.fft(x), *torch.nn.functional.adaptive_max_pool1d(x, 3, return_indices=True)

    with pytest.raises(TschedError) as caught:
        import_graph(read_torch(Module().eval(), torch.rand(2, 5)), {}, {})
    told = " ".join(n.text for n in caught.value.diagnostics[0].notes)
    assert "return `torch.view_as_real` of them" in told and "places in windows that differ in size" in told


def control(torch: Torch) -> dict[str, Callable[[Torch], Torch]]:
    """Functions with branches, loops and blocks of their own."""
    repeated = import_module("torch._higher_order_ops.while_loop").while_loop

    def inner(y: Torch) -> Torch:
        return torch.cond(y[0, 1] > 0, lambda z: z * 2, torch.exp, (y,))

    def block(x: Torch) -> Torch:
        with torch.no_grad():
            y = x.clone()
            y[0] = 1.0
        with torch.autocast("cpu", enabled=False):
            return y @ x.mT

    return {
        "branches": lambda x: torch.cond(x.sum() > 0, inner, lambda y: y.cumsum(1), (x,)) + x,
        "steps": lambda x: repeated(lambda n, _: n < 4, lambda n, y: (n + 1, y.sin() + n), (torch.tensor(0), x))[1],
        "blocks": block,
    }


@needs_torch
@pytest.mark.parametrize("name", ["branches", "steps", "blocks"])
def test_branches_and_loops_are_as_in_pytorch(name: str, tmp_path: Path) -> None:
    """Both signs of what decides: the branches are chosen when the model runs."""
    torch = torch_()
    function = control(torch)[name]

    class Module(torch.nn.Module):
        def forward(self, x: Torch) -> Torch:
            return function(x)

    module = Module().eval()
    x = torch.tensor([[0.3, 0.7, -0.2, 0.4, 1.1], [0.2, -0.4, 0.5, 0.1, 0.6], [0.9, 0.8, -0.1, 0.3, 0.2]])
    text, weights = written(import_graph(read_torch(module, x), {}, {}), "net", "net", "net.safetensors")
    file = load_source(Source.of(text.encode(), "net.tsched"))
    for given in (x, -x, x * torch.tensor([1.0, -0.1, 1.0, 1.0, 1.0])):
        (made,) = by_reference(file, weights, [given.numpy()])
        np.testing.assert_allclose(made, module(given).numpy(), rtol=1e-4, atol=1e-5)


@needs_torch
def test_a_loop_that_data_ends_is_refused(tmp_path: Path) -> None:
    torch = torch_()
    repeated = import_module("torch._higher_order_ops.while_loop").while_loop

    class Module(torch.nn.Module):
        def forward(self, x: Torch) -> Torch:
            return repeated(lambda y: y.sum() < 5, lambda y: (y.abs() + 0.1,), (x,))[0]

    with pytest.raises(TschedError) as caught:
        tensorc_dsl.from_torch(Module().eval(), torch.rand(3, 5), tmp_path / "net.tsched")
    (found,) = caught.value.diagnostics
    assert found.code == "E0941" and "the number of its steps depends on data" in found.notes[0].text


@needs_torch
def test_what_changes_in_place_is_read_as_changed() -> None:
    """By whatever name: a part that is written into, a view of a view, and what was read before."""
    torch = torch_()

    class Module(torch.nn.Module):
        def forward(self, x: Torch) -> tuple[Torch, ...]:
            out = torch.zeros_like(x)
            for k in range(x.shape[0]):
                out[k] = x[k] * (k + 1)
            part = out[:, 1:]
            before = part.sum(1)
            part[:, 0].add_(1)
            out[out > 4] = 0.5
            out[:, torch.tensor([0, 2])] += 1
            return out, part * 2, before, x.clone().fill_(x[0, 0]).mul_(2)

    require_reference(Module(), (torch.rand(3, 4) * 3,))


@needs_torch
@pytest.mark.parametrize("what", ["x", "kept", "count"])
def test_what_stays_changed_after_a_call_is_refused(what: str) -> None:
    torch = torch_()

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = torch.nn.Parameter(torch.zeros(3))
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: Torch) -> Torch:
            changed = {"x": x, "kept": self.kept, "count": self.count}[what]
            y = x * 2
            changed.add_(1)
            return y

    with pytest.raises(TschedError) as caught:
        import_graph(read_torch(Module().eval(), torch.rand(3)), {}, {})
    assert f"it changes `{what}` in place" in " ".join(n.text for n in caught.value.diagnostics[0].notes)


@needs_torch
def test_all_that_is_not_supported_is_in_one_error(tmp_path: Path) -> None:
    torch = torch_()

    class Inner(torch.nn.Module):
        def forward(self, x: Torch) -> Torch:
            return torch.bincount(x[0].long(), minlength=8).float()

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = torch.nn.Parameter(torch.zeros(8))
            self.part = Inner()

        def forward(self, x: Torch) -> Torch:
            view = x[0]
            first = view + self.part(x).sum()
            x.add_(1.0)
            first = first + torch.nn.functional.dropout(x, 0.5, training=True)
            return torch.linalg.det(x @ x.T) + first + view

    with pytest.raises(TschedError) as caught:
        tensorc_dsl.from_torch(Outer().eval(), torch.rand(8, 8), tmp_path / "net.tsched")
    (found,) = caught.value.diagnostics
    told = " ".join(n.text for n in found.notes)
    assert (
        found.code == "E0941"
        and "`part: bincount` (aten.bincount.default): the size of its result depends on data" in told
        and "in place" in told
        and "linalg_det" in told
    )
    assert "native_dropout" in told
    assert not list(tmp_path.iterdir())


@needs_torch
def test_what_cannot_be_traced_is_refused_with_the_reason(tmp_path: Path) -> None:
    torch = torch_()

    class Branch(torch.nn.Module):
        def forward(self, x: Torch) -> Torch:
            return x if x.sum() > 0 else -x

    turned = torch.nn.Flatten().eval()
    for module, says in ((Branch().eval(), ""), (torch.nn.Linear(2, 2), "training mode"), (turned, "complex64")):
        example = torch.rand(2, 2, dtype=torch.complex64 if module is turned else torch.float32)
        with pytest.raises(TschedError) as caught:
            tensorc_dsl.from_torch(module, example, tmp_path / "net.tsched")
        assert caught.value.diagnostics[0].code == "E0940" and says in caught.value.diagnostics[0].message
    assert not list(tmp_path.iterdir())


@needs_torch
def test_weights_that_share_memory_are_one(tmp_path: Path) -> None:
    torch = torch_()
    a = torch.nn.Linear(6, 6)
    b = torch.nn.Linear(6, 6)
    b.weight = a.weight
    graph = read_torch(torch.nn.Sequential(a, torch.nn.ReLU(), b).eval(), torch.rand(3, 6))
    assert sum(v.shape == (6, 6) for v in graph.constants.values()) == 1
    assert graph.outputs == ("output",) and list(graph.inputs) == ["input"]
    assert {n.op for n in graph.nodes} <= {*TABLE} and "linear" in TARGETS


@needs_torch
def test_values_have_names_of_their_own(tmp_path: Path) -> None:
    """A weight that is called as an input is, and an input as the output."""
    torch = torch_()

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = torch.nn.Parameter(torch.rand(3))

        def forward(self, x: Torch, output: Torch) -> Torch:
            return x * self.x + output

    checked(Named(), (torch.rand(2, 3), torch.rand(3)), tmp_path)


@needs_torch
def test_the_example_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    (text,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(text, "models.md", "exec"), {})

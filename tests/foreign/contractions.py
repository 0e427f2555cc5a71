"""References of `contractions.tsched`."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from tests.foreign.references import Array, Foreign, einsum, sized


def eight(a: Array, b: Array) -> Array:
    rows = b[..., np.clip(np.arange(3), 0, b.shape[3] - 1)]
    return np.einsum("abcdefgh,hgfe->abcd", a, rows)


def tropical(a: Array, b: Array) -> Array:
    return (a[:, :, None] + b).max(1)


def toeplitz(c: Array, x: Array) -> Array:
    n = len(x)
    return linalg.toeplitz(c[n - 1 :], c[n - 1 :: -1]) @ x


NN = sized("N", (5,), (70,))
MKN = sized("M K N", (3, 5, 7), (17, 33, 40))
CONTRACTIONS: dict[str, Foreign] = {
    "diagonal": einsum("ii->i", *NN),
    "trace": einsum("ii->", *NN),
    "diagonal_product": einsum("bii,bij->bj", *sized("B N M", (2, 3, 5), (3, 17, 33))),
    "outer": einsum("i,j,k->ijk", *sized("M N K", (2, 3, 5), (3, 5, 33))),
    "inner": einsum("i,i->", *sized("N", (5,), (1000,))),
    "scaled": einsum("ij,->ij", *sized("M N", (3, 5), (17, 70))),
    "column_sums": Foreign(lambda a: (a.sum(0), a.T), sized("M N", (3, 5), (40, 70))),
    "scores": einsum("bhid,bhjd->bhij", *sized("B H M D N", (1, 2, 3, 5, 4), (2, 3, 5, 16, 33))),
    "chain": einsum("abcd,cdef,efg->abg", *sized("P Q R S T U V", (2, 1, 3, 2, 2, 3, 5), (3, 2, 2, 3, 2, 5, 17))),
    "four_at_once": einsum("ij,jk,kl,lm->im", *sized("M N K L P", (2, 3, 1, 3, 2), (3, 5, 4, 5, 17))),
    "eight": Foreign(eight, sized("K", (1,), (5,))),
    "hadamard": Foreign(
        lambda a, b: (np.einsum("ijk,ijk->k", a, b), np.einsum("ijk,ijk->", a, b)),
        sized("M N K", (2, 3, 5), (5, 3, 33)),
    ),
    "batch_sum": einsum("bij,bjk->ik", *sized("B M K N", (2, 3, 5, 4), (3, 5, 17, 33))),
    "mttkrp": einsum("ijk,jl,kl->il", *sized("M N K L", (2, 3, 5, 4), (5, 7, 9, 33))),
    "bilinear": einsum("ni,ij,nj->n", *sized("N M K", (2, 3, 5), (17, 7, 20))),
    "apart": Foreign(
        lambda a, b, c: np.einsum("i,j,k->ijk", a.sum(1), b.sum(1), c.sum(1)),
        sized("M K N L", (2, 3, 5, 4), (5, 17, 7, 33)),
    ),
    "doubles": einsum("ik,kj,k->ij", *MKN),
    "tropical": Foreign(tropical, MKN),
    "halves_product": einsum("ik,kj->ij", *MKN),
    "toeplitz": Foreign(toeplitz, sized("N", (5,), (17,))),
    "kronecker": Foreign(np.kron, sized("M N P Q", (2, 3, 1, 5), (3, 5, 2, 17))),
}

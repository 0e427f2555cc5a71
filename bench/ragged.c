// What `ragged.tsched` computes, as one writes it in C.
#include <math.h>

static int first(int x) { return x < 3 ? 0 : (x - 1) / 2; }
static int last(int x) { return x / 2 + 1 < 56 ? x / 2 + 1 : 56; }

void pool_gradient_56(const float *G, float *X) {
    for (int b = 0; b < 8; b++)
        for (int y = 0; y < 113; y++)
            for (int x = 0; x < 113; x++) {
                float a = 0;
                for (int o = first(y); o < last(y); o++)
                    for (int r = first(x); r < last(x); r++) a += G[(b * 56 + o) * 56 + r];
                X[(b * 113 + y) * 113 + x] = a;
            }
}

void sparse_100000(const int *R, const int *J, const float *V, const float *X, float *Y) {
    for (int i = 0; i < 100000; i++) {
        float a = 0;
        for (int p = R[i]; p < R[i + 1]; p++) a += V[p] * X[J[p]];
        Y[i] = a;
    }
}

void triangular_512(const float *A, const float *B, float *C) {
    for (int i = 0; i < 512; i++) {
        for (int j = 0; j < 512; j++) C[i * 512 + j] = 0;
        for (int k = 0; k <= i; k++)
            for (int j = 0; j < 512; j++) C[i * 512 + j] += A[i * 512 + k] * B[k * 512 + j];
    }
}

void causal_512(const float *Q, const float *K, const float *V, float *O) {
    float S[512];
    for (int i = 0; i < 512; i++) {
        float m = -INFINITY, l = 0;
        for (int j = 0; j <= i; j++) {
            float a = 0;
            for (int d = 0; d < 64; d++) a += Q[i * 64 + d] * K[j * 64 + d];
            S[j] = a;
            m = fmaxf(m, a);
        }
        for (int j = 0; j <= i; j++) l += S[j] = expf(S[j] - m);
        for (int d = 0; d < 64; d++) O[i * 64 + d] = 0;
        for (int j = 0; j <= i; j++)
            for (int d = 0; d < 64; d++) O[i * 64 + d] += S[j] * V[j * 64 + d];
        for (int d = 0; d < 64; d++) O[i * 64 + d] /= l;
    }
}

void lengths_1000(const float *X, const int *L, float *S) {
    for (int i = 0; i < 1000; i++) {
        float a = 0;
        for (int t = 0; t < L[i]; t++) a += X[i * 4096 + t];
        S[i] = a;
    }
}

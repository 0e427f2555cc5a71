// Stencils over time between two arrays: y has the result of the given number of steps from x, z what is between.
// Elements at the border stay as they are. A step is a nest of loops that reads `s` and writes `d`.
#include <string.h>

#define STEPS(elements, nest)                                              \
    float *from = steps % 2 ? z : y, *to = steps % 2 ? y : z;              \
    memcpy(from, x, sizeof(float) * (elements));                           \
    memcpy(to, x, sizeof(float) * (elements));                             \
    _Pragma("omp parallel")                                                \
    {                                                                      \
        float *restrict s = from, *restrict d = to;                        \
        for (long t = 0; t < steps; t++) {                                 \
            _Pragma("omp for schedule(static)") nest                       \
            float *swap = s;                                               \
            s = d;                                                         \
            d = swap;                                                      \
        }                                                                  \
    }

#define PLANE(name, value)                                                                 \
    void name(const float *x, float *y, float *z, long steps, long n, long m) {            \
        STEPS(n * m, for (long i = 1; i < n - 1; i++)                                      \
                         for (long j = i * m + 1; j < i * m + m - 1; j++) d[j] = (value);) \
    }

PLANE(jacobi_2d, 0.2f * (s[j] + s[j - 1] + s[j + 1] + s[j + m] + s[j - m]))

PLANE(five_point, s[j] + 0.1f * (s[j - 1] + s[j + 1] + s[j + m] + s[j - m] - 4.0f * s[j]))

void heat_3d(const float *x, float *y, float *z, long steps, long n, long m, long l) {
    long plane = m * l;
    STEPS(n * plane, for (long i = 1; i < n - 1; i++)
                         for (long j = 1; j < m - 1; j++)
                             for (long k = i * plane + j * l + 1; k < i * plane + j * l + l - 1; k++)
                                 d[k] = 0.125f * (s[k + plane] - 2.0f * s[k] + s[k - plane])
                                      + 0.125f * (s[k + l] - 2.0f * s[k] + s[k - l])
                                      + 0.125f * (s[k + 1] - 2.0f * s[k] + s[k - 1]) + s[k];)
}

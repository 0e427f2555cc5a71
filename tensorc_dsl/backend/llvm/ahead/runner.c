/* Runs the kernel of one task on inputs from a seed or a file, and prints its times as JSON. "task.h" describes the task. */

#define _DEFAULT_SOURCE
#include "task.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: " NAME " [SIZE=N …] [--seed S] [--inputs FILE] [--output FILE] [--seconds T] [--samples N] [--best NS]\n"
    "  [--limit T]\n"
    "  --inputs   the bytes of all inputs, one array behind the other; otherwise they are made from the seed, 0 by default\n"
    "  --output   where the bytes of all outputs are written, in the same way; behind them those of the last call that is\n"
    "             timed, where they differ\n"
    "  --seconds  how long to repeat the kernel, 1 by default; with 0 it runs once and is not timed\n"
    "  --samples  how many times are taken at most, which are printed\n"
    "  --best     nanoseconds to beat: a kernel that takes far longer is timed for a moment only\n"
    "  --limit    how many whole seconds all calls may take, from the first one on; then a signal ends the program\n";

static int64_t size[SIZES + 1];
static void *data[ARRAYS];
static void *given[ARRAYS]; /* what inputs that the kernel overwrites have before a call */
static struct span { unsigned char *begin, *end; } around[ARRAYS]; /* the memory of an array with what lies beside it */
enum { FAILED = 1, MISUSED = 2, WRONG = 3, GAVE_UP = 4, BESIDE = 0xC5 };

static int64_t bytes_of(int k) { return tensorc_runner_bytes(k, size); }

static void end(int status, const char *what, const char *which) {
    fprintf(stderr, NAME ": %s %s\n", what, which);
    exit(status);
}

static void fail(const char *what, const char *which) { end(FAILED, what, which); }

static void misused(void) {
    fputs(usage, stderr);
    for (int k = 0; k < SIZES; k++)
        fprintf(stderr, "  %s=N is needed, %lld to %lld\n", sizes[k].name, (long long)sizes[k].low, (long long)sizes[k].high);
    exit(MISUSED);
}

/* Memory between pages without access, up to the padding of its alignment to 64 bytes; what lies beside it has a pattern. */
static void *memory(int64_t bytes, const char *name, struct span *span) {
    int64_t page = sysconf(_SC_PAGESIZE), padded = (bytes + 63) / 64 * 64, whole = (padded + page) / page * page;
    if (bytes < 0 || bytes > INT64_C(1) << 46) fail("there is no memory for", name);
    unsigned char *at = mmap(NULL, (size_t)(whole + 2 * page), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + page, (size_t)whole, PROT_READ | PROT_WRITE)) fail("there is no memory for", name);
    span->begin = at + page, span->end = span->begin + whole;
    unsigned char *data = span->end - padded;
    memset(span->begin, BESIDE, (size_t)(data - span->begin));
    memset(data + bytes, BESIDE, (size_t)(padded - bytes));
    return data;
}

static void require_within(int k) {
    unsigned char *first = data[k], beside = 0;
    for (unsigned char *p = around[k].begin; p < first; p++) beside |= *p ^ BESIDE;
    for (unsigned char *p = first + bytes_of(k); p < around[k].end; p++) beside |= *p ^ BESIDE;
    if (beside) end(WRONG, "it writes outside of", arrays[k].name);
}

/* The generator is splitmix64. Element n of all inputs together is made of its word n. */
static uint64_t word(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* The bits of a float with so many bits of exponent and fraction, for a number that it has as a normal one, or 0. */
static uint64_t float_bits(double x, int exponent, int fraction) {
    int e;
    double m = frexp(fabs(x), &e);
    if (x == 0) return 0;
    uint64_t biased = (uint64_t)(e - 2 + (1 << (exponent - 1)));
    return (uint64_t)(x < 0) << (exponent + fraction) | biased << fraction | (uint64_t)ldexp(2 * m - 1, fraction);
}

/* Floats are multiples of 2^-fraction in [-1, 1), of up to 53 bits; integers in [-9, 9], unsigned ones in [0, 9]; bools 0, 1. */
static void fill(const struct array *a, void *data, int64_t bytes, uint64_t *state) {
    for (char *p = data, *end = p + bytes; p < end; p += a->bytes) {
        uint64_t z = word(state);
        int64_t i = a->kind == 'b' ? (int64_t)(z >> 63) : a->kind == 'u' ? (int64_t)(z % 10) : (int64_t)(z % 19) - 9;
        if (a->kind == 'f') {
            double x = ldexp((double)(z >> (63 - a->fraction)), -a->fraction) - 1;
            i = (int64_t)float_bits(x, a->exponent, a->fraction);
        }
        memcpy(p, &i, (size_t)a->bytes); /* the machine is little-endian */
    }
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Nanoseconds of one of so many calls. */
static double sample(int64_t calls) {
    for (int k = 0; k < ARRAYS; k++)
        if (given[k]) memcpy(data[k], given[k], (size_t)bytes_of(k));
    int64_t start = now();
    for (int64_t n = 0; n < calls; n++) tensorc_runner_call(size, data);
    return (double)(now() - start) / (double)calls;
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void require(int32_t result) {
    if (result) end((result & 255) == LACKING ? FAILED : GAVE_UP, meanings[result & 255], "");
}

/* How many calls of a kernel that takes so many nanoseconds are one sample: a tenth of a millisecond or a call. */
static int64_t together(double once) { return once < 1e5 ? (int64_t)(1e5 / (once + 1)) + 1 : 1; }

/* Samples of so many seconds, at most so many, in order. A sample is one call where an input is overwritten; before them is a
   tenth of the time in which nothing is recorded, and which tells the calls of a sample: the first call is longer than others.
   A kernel that takes far longer than the best has fewer: one, or those of a hundredth of a second. One call of less
   than a tenth of a second may only have been interrupted, so that is decided by another one or a few. */
static double *timed(double seconds, size_t most, double best, size_t *count, int64_t *calls) {
    double once = sample(1), least = once, *samples = NULL;
    int updates = 0;
    for (int k = 0; k < ARRAYS; k++) updates |= given[k] != NULL;
    int64_t first = now();
    for (int k = 0; k < 5 && best > 0 && least > 15 * best && once < 1e8; k++) {
        least = fmin(least, sample(1));
        if ((double)(now() - first) >= 1e7) break;
    }
    int far = best > 0 && least > 15 * best;
    for (int64_t start = now(); !far && (double)(now() - start) < seconds * 1e8;) {
        *calls = updates ? 1 : together(least);
        double taken = sample(*calls);
        if (taken < least) least = taken;
    }
    int64_t start = now();
    do {
        if ((*count & (*count - 1)) == 0) samples = realloc(samples, sizeof *samples * (*count ? 2 * *count : 1));
        if (!samples) fail("there is no memory for", "the samples");
        double taken = samples[(*count)++] = far ? least : sample(*calls);
        if (taken < least) least = taken;
        if (best > 0 && least > 1.5 * best && (double)(now() - start) >= 1e7) break;
    } while (!far && *count < most && (double)(now() - start) < seconds * 1e9);
    return samples;
}

/* The hash (FNV-1a) of all outputs, which are written if there is a file. */
static uint64_t take(FILE *file, const char *output) {
    uint64_t digest = UINT64_C(0xCBF29CE484222325);
    for (int k = 0; k < ARRAYS; k++) {
        size_t bytes = arrays[k].output ? (size_t)bytes_of(k) : 0;
        for (size_t n = 0; n < bytes; n++) digest = (digest ^ ((unsigned char *)data[k])[n]) * UINT64_C(0x100000001B3);
        if (file && fwrite(data[k], 1, bytes, file) != bytes) fail("cannot write", output);
        require_within(k);
    }
    return digest;
}

int main(int argc, char **argv) {
    const char *inputs = NULL, *output = NULL;
    uint64_t seed = 0, limit = 0, most = UINT64_MAX;
    double seconds = 1, best = 0;
    int told[SIZES + 1] = {0};
    for (int k = 1; k < argc; k++) {
        const char *value = k + 1 < argc ? argv[k + 1] : NULL, *equals = strchr(argv[k], '=');
        char *end = "";
        int known = 0;
        if (equals && argv[k][0] != '-') {
            for (int d = 0; d < SIZES; d++)
                if (!strncmp(argv[k], sizes[d].name, (size_t)(equals - argv[k])) && !sizes[d].name[equals - argv[k]])
                    known = told[d] = equals[1] != 0, size[d] = strtoll(equals + 1, &end, 10);
        } else if (value) {
            known = 1, k++;
            if (!strcmp(argv[k - 1], "--seed")) seed = strtoull(value, &end, 10);
            else if (!strcmp(argv[k - 1], "--seconds")) seconds = strtod(value, &end);
            else if (!strcmp(argv[k - 1], "--samples")) most = strtoull(value, &end, 10);
            else if (!strcmp(argv[k - 1], "--best")) best = strtod(value, &end);
            else if (!strcmp(argv[k - 1], "--limit")) limit = strtoull(value, &end, 10);
            else if (!strcmp(argv[k - 1], "--inputs")) inputs = value;
            else if (!strcmp(argv[k - 1], "--output")) output = value;
            else known = 0;
        }
        if (!known || *end || !most) misused();
    }
    for (int d = 0; d < SIZES; d++)
        if (!told[d] || size[d] < sizes[d].low || size[d] > sizes[d].high) misused();

    uint64_t state = seed;
    FILE *file = inputs ? fopen(inputs, "rb") : NULL;
    if (inputs && !file) fail("cannot read", inputs);
    for (int k = 0; k < ARRAYS; k++) {
        size_t bytes = (size_t)bytes_of(k);
        data[k] = memory(bytes_of(k), arrays[k].name, &around[k]);
        if (!arrays[k].given) memset(data[k], 255, bytes); /* no number, so that an element that is not written is seen */
        else if (!file) fill(&arrays[k], data[k], bytes_of(k), &state);
        else if (fread(data[k], 1, bytes, file) != bytes) fail("too short is", inputs);
        struct span whole;
        if (arrays[k].given && arrays[k].output) memcpy(given[k] = memory(bytes_of(k), arrays[k].name, &whole), data[k], bytes);
    }
    for (int k = 0; k < ARRAYS; k++) /* a kernel that changes an input ends */
        if (!arrays[k].output) mprotect(around[k].begin, (size_t)(around[k].end - around[k].begin), PROT_READ);
    if (file && (fgetc(file) != EOF || fclose(file))) fail("too long is", inputs);

    alarm(limit < UINT32_MAX ? (unsigned)limit : UINT32_MAX); /* whose signal ends the program */
    require(tensorc_runner_prepare(size, data));
    require(tensorc_runner_call(size, data));
    file = output ? fopen(output, "wb") : NULL;
    if (output && !file) fail("cannot write", output);
    uint64_t digest = take(file, output), last = digest;
    size_t count = 0;
    int64_t calls = 1;
    double *found = seconds > 0 ? timed(seconds, (size_t)most, best, &count, &calls) : NULL;
    if (found && (last = take(NULL, output)) != digest) take(file, output);
    alarm(0);
    if (file && fclose(file)) fail("cannot write", output);

    printf("{\"task\": \"" NAME "\", \"cpu\": \"" CPU "\", \"threads\": %d, \"sizes\": {", THREADS);
    for (int d = 0; d < SIZES; d++) printf("%s\"%s\": %lld", d ? ", " : "", sizes[d].name, (long long)size[d]);
    if (inputs) printf("}, \"seed\": null");
    else printf("}, \"seed\": %llu", (unsigned long long)seed);
    printf(", \"digest\": \"%016llx\"", (unsigned long long)digest);
    if (found) {
        if (most != UINT64_MAX) {
            printf(", \"last\": \"%016llx\", \"times_ns\": [", (unsigned long long)last);
            for (size_t n = 0; n < count; n++) printf("%s%.1f", n ? ", " : "", found[n]);
            printf("]");
        }
        qsort(found, count, sizeof *found, order);
        printf(", \"samples\": %zu, \"calls\": %lld, \"lower_quartile_ns\": %.1f, \"median_ns\": %.1f, \"upper_quartile_ns\": %.1f",
               count, (long long)calls, found[count / 4], found[count / 2], found[count - 1 - count / 4]);
    }
    puts("}");
    return 0;
}

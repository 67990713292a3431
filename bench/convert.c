/* What the kernels of src/convert take, one thread, beside memcpy of the source: the rounds in turn, a JSON object
 * each.
 *
 *     convert [--variant NAME] [--rounds N] */
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "convert/convert.h"
#include "convert/kernels.h"

#define SOURCE_BYTES ((size_t)64 << 20)
/* A matrix of an expert, two values a byte: gate's of 512 by 2048. */
#define ROWS ((size_t)512)
#define COLS ((size_t)1024)

static uint8_t *src, *dst;

static void copy(void)
{
    memcpy(dst, src, SOURCE_BYTES);
}

static void f32(void)
{
    convert_f32_to_bf16(dst, src, SOURCE_BYTES / 4);
}

static void f16(void)
{
    convert_f16_to_bf16(dst, src, SOURCE_BYTES / 2);
}

static void transpose(void)
{
    for (size_t at = 0; at < SOURCE_BYTES; at += ROWS * COLS)
        convert_transpose_bytes(dst + at, ROWS, src + at, COLS, ROWS, COLS);
}

static const struct kernel {
    const char *name;
    void (*run)(void);
} kernels[] = { { "f32_to_bf16", f32 }, { "f16_to_bf16", f16 }, { "transpose_bytes", transpose } };

/* GB/s of source. */
static double speed(void (*run)(void))
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    run();
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)SOURCE_BYTES / ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec));
}

/* Kernel, rival and the rival again, in turn, each at its best of ten: what disturbs only slows. */
static void round_of(void (*run)(void), double best[3])
{
    void (*const in_turn[3])(void) = { run, copy, copy };
    best[0] = best[1] = best[2] = 0;
    for (int i = 0; i < 30; i++) {
        double rate = speed(in_turn[i % 3]);
        best[i % 3] = rate > best[i % 3] ? rate : best[i % 3];
    }
}

/* F16 and F32 as weights are: none of the values that take longer, but for the zeros and subnormals of one in 256. */
static void fill(bool halves)
{
    uint32_t state = 1;
    for (size_t i = 0; i < SOURCE_BYTES; i += 4) {
        state = state * 1664525 + 1013904223;
        uint32_t word = halves ? (state & 0x83ff83ff) | 0x28002400 : (state & 0x807fffff) | 0x3c000000;
        if (state >> 24 == 0)
            word &= 0x83ff83ff;
        memcpy(src + i, &word, sizeof word);
    }
}

static bool choose(const char *name)
{
    for (size_t i = 0; convert_kernels_at(i); i++)
        if (strcmp(convert_kernels_at(i)->name, name) == 0) {
            convert_kernels_use(convert_kernels_at(i));
            return true;
        }
    return false;
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "variant", required_argument, NULL, 'v' },
                                             { "rounds", required_argument, NULL, 'r' },
                                             { 0 } };
    long rounds = 5;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'r')
            rounds = strtol(optarg, NULL, 10);
        else if (c != 'v' || !choose(optarg)) {
            fprintf(stderr, "usage: convert [--variant avx2|sse2|portable] [--rounds N]\n");
            return 2;
        }
    }
    src = aligned_alloc(4096, SOURCE_BYTES);
    dst = aligned_alloc(4096, SOURCE_BYTES);
    if (!src || !dst)
        return 1;
    memset(dst, 1, SOURCE_BYTES);
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        fill(kernels[k].run == f16);
        for (long i = 0; i < rounds; i++) {
            double best[3];
            round_of(kernels[k].run, best);
            printf("{\"kernel\":\"%s\",\"ours\":%.3f,\"rival\":%.3f,\"rival again\":%.3f}\n", kernels[k].name, best[0],
                   best[1], best[2]);
        }
    }
    free(src);
    free(dst);
    return 0;
}

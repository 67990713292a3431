/* make_model DIR TENSORS BYTES: a directory with config.json and one model.safetensors of that many BF16 tensors and
 * about that many bytes, their lengths spread evenly between half and one and a half of the average (multiples of 16
 * bytes); a single tensor has exactly BYTES. The contents are bench_word's. */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* splitmix64: the same model on every machine. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Returns the tensors' bytes in all. */
static uint64_t write_header(FILE *out, uint64_t tensors, uint64_t bytes)
{
    static const char *const parts[] = { "gate_proj", "up_proj", "down_proj" };
    uint64_t average = bytes / tensors / 16 * 16, at = 0, random = 7;
    fputc('{', out);
    for (uint64_t i = 0; i < tensors; i++) {
        uint64_t len = tensors == 1 ? bytes : (average / 2 + next_random(&random) % (average + 1)) / 16 * 16;
        fprintf(out,
                "%s\"model.layers.%llu.mlp.experts.%llu.%s.weight\":{\"dtype\":\"BF16\",\"shape\":[%llu,8],"
                "\"data_offsets\":[%llu,%llu]}",
                i ? "," : "", (unsigned long long)(i / 3 / 512), (unsigned long long)(i / 3 % 512), parts[i % 3],
                (unsigned long long)(len / 16), (unsigned long long)at, (unsigned long long)(at + len));
        at += len;
    }
    fputc('}', out);
    while (ftell(out) % 8 != 0)
        fputc(' ', out);
    return at;
}

static void make_shard(const char *path, uint64_t tensors, uint64_t bytes)
{
    char *header;
    size_t header_len;
    FILE *text = open_memstream(&header, &header_len);
    if (!text)
        bench_die("no memory for the header");
    uint64_t data_len = write_header(text, tensors, bytes);
    fclose(text);

    uint64_t prefix = header_len, total = 8 + header_len + data_len;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, (off_t)total) < 0)
        bench_die("%s: %s", path, strerror(errno));
    int full = posix_fallocate(fd, 0, (off_t)total);
    if (full != 0)
        bench_die("%s: %s", path, strerror(full));
    uint8_t *file = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        bench_die("%s: %s", path, strerror(errno));
    memcpy(file, &prefix, 8); /* little-endian, as every machine that this runs on */
    memcpy(file + 8, header, header_len);
    uint64_t *words = (uint64_t *)(void *)file;
    for (uint64_t i = 1 + header_len / 8; i < total / 8; i++)
        words[i] = bench_word(i);
    munmap(file, total);
    close(fd);
    free(header);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        bench_die("usage: make_model DIR TENSORS BYTES");
    uint64_t tensors = bench_number(argv[2], "TENSORS"), bytes = bench_number(argv[3], "BYTES");
    if (tensors == 0 || bytes / tensors < 32 || bytes % 16 != 0)
        bench_die("at least one tensor, at least 32 bytes each, and a multiple of 16 in all");
    if (mkdir(argv[1], 0755) < 0 && errno != EEXIST)
        bench_die("%s: %s", argv[1], strerror(errno));
    char path[4096];
    snprintf(path, sizeof path, "%s/config.json", argv[1]);
    FILE *config = fopen(path, "w");
    if (!config || fputs("{\"model_type\":\"bench\"}\n", config) < 0 || fclose(config) != 0)
        bench_die("%s: %s", path, strerror(errno));
    snprintf(path, sizeof path, "%s/model.safetensors", argv[1]);
    make_shard(path, tensors, bytes);
    return 0;
}

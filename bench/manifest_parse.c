/* From a directory of 124,306 tensors to an index at the client, against simdjson's own two parses of the same header
 * and the same manifest. Prints JSON. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "model/stage.h"
#include "json/write.h"

enum { EXPERTS = 256, TENSORS = 124306, PAIRS = 5 };

uint64_t bench_rival_parse(const char *text, size_t len);

static void die(const char *what, const struct penstock_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error ? error->message : "failed");
    exit(1);
}

/* A mixture of experts, quantised: long names, short tensors. */
static void make_header(struct base_buf *out)
{
    static const char *const projections[] = { "gate_proj", "up_proj", "down_proj" };
    static const char *const kinds[] = { "weight_packed", "weight_scale", "weight_global_scale", "input_global_scale" };
    uint64_t at = 0;
    base_buf_printf(out, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (unsigned i = 0; i < TENSORS; i++) {
        unsigned kind = i % 4, projection = i / 4 % 3, expert = i / 12 % EXPERTS, layer = i / 12 / EXPERTS;
        uint64_t len = kind == 0 ? 16384 : kind == 1 ? 2048 : 4;
        base_buf_printf(out,
                        ",\"model.language_model.layers.%u.mlp.experts.%u.%s.%s\":{\"dtype\":\"%s\",\"shape\":", layer,
                        expert, projections[projection], kinds[kind],
                        kind == 0   ? "U8"
                        : kind == 1 ? "F8_E4M3"
                                    : "F32");
        base_buf_printf(out, "%s,\"data_offsets\":[%llu,%llu]}",
                        kind == 0   ? "[128,128]"
                        : kind == 1 ? "[128,16]"
                                    : "[1]",
                        (unsigned long long)at, (unsigned long long)(at + len));
        at += len;
    }
    base_buf_append(out, "}", 1);
    while (out->n % 8 != 0)
        base_buf_append(out, " ", 1);
    if (out->failed)
        die("header", NULL);
}

static void make_model(const char *directory, const struct base_buf *header)
{
    char path[PATH_MAX];
    uint64_t len = header->n;
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || write(fd, &len, 8) != 8 || write(fd, header->at, header->n) != (ssize_t)header->n ||
        ftruncate(fd, (off_t)(8 + len) + (off_t)TENSORS * 16384) != 0)
        die(path, NULL);
    close(fd);
}

static void send_all(int fd, const void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = send(fd, (const char *)bytes + done, len - done, MSG_NOSIGNAL);
        if (n <= 0)
            die("send", NULL);
        done += (size_t)n;
    }
}

static void receive_all(int fd, void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = recv(fd, (char *)bytes + done, len - done, 0);
        if (n <= 0)
            die("receive", NULL);
        done += (size_t)n;
    }
}

struct client {
    int fd;
    struct model_manifest manifest;
};

static void *run_client(void *argument)
{
    struct client *client = argument;
    struct penstock_error error;
    uint32_t len;
    receive_all(client->fd, &len, 4);
    char *text = malloc((size_t)len + MODEL_JSON_PADDING);
    if (!text)
        die("client", NULL);
    receive_all(client->fd, text, len);
    memset(text + len, ' ', MODEL_JSON_PADDING);
    if (model_manifest_read(text, len, (size_t)len + MODEL_JSON_PADDING, &client->manifest, &error) != 0)
        die("client", &error);
    free(text);
    return NULL;
}

/* Everything, from the directory to the client's index. keep: the manifest's text, for the rival; may be NULL. */
static int64_t run_ours(const char *directory, struct base_buf *keep)
{
    struct penstock_error error;
    struct model_staged staged;
    struct base_buf text = { 0 };
    struct client client;
    pthread_t thread;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        die("socketpair", NULL);
    int64_t begin = base_now_ns();
    client.fd = pair[1];
    if (pthread_create(&thread, NULL, run_client, &client) != 0)
        die("thread", NULL);
    if (model_stage(directory, NULL, &staged, &error) != 0 ||
        model_manifest_write(&staged.manifest, &text, &error) != 0)
        die("stage", &error);
    uint32_t len = (uint32_t)text.n;
    send_all(pair[0], &len, 4);
    send_all(pair[0], text.at, text.n);
    pthread_join(thread, NULL);
    int64_t took = base_now_ns() - begin;
    if (client.manifest.tensors.n != TENSORS)
        die("client: another number of tensors", NULL);
    if (keep)
        base_buf_append(keep, text.at, text.n);
    model_manifest_fini(&client.manifest);
    model_staged_fini(&staged);
    base_buf_fini(&text);
    close(pair[0]);
    close(pair[1]);
    return took;
}

static int64_t run_rival(const struct base_buf *header, const struct base_buf *manifest, size_t manifest_len)
{
    int64_t begin = base_now_ns();
    uint64_t sum = bench_rival_parse((const char *)header->at, header->n - MODEL_JSON_PADDING) +
                   bench_rival_parse((const char *)manifest->at, manifest_len);
    int64_t took = base_now_ns() - begin;
    if (sum == 0)
        die("rival", NULL);
    return took;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static double median_ms(int64_t *times, size_t n)
{
    qsort(times, n, sizeof *times, compare);
    return (double)times[n / 2] / 1e6;
}

int main(void)
{
    char directory[] = "/tmp/penstock-bench-XXXXXX", path[PATH_MAX];
    struct base_buf header = { 0 }, manifest = { 0 }, out = { 0 };
    static const uint8_t padding[MODEL_JSON_PADDING];
    int64_t ours[2 * PAIRS], rival[2 * PAIRS];
    make_header(&header);
    if (!mkdtemp(directory))
        die("mkdtemp", NULL);
    make_model(directory, &header);
    base_buf_append(&header, padding, sizeof padding);
    run_ours(directory, &manifest);
    size_t manifest_len = manifest.n;
    base_buf_append(&manifest, padding, sizeof padding);
    run_rival(&header, &manifest, manifest_len);
    for (size_t i = 0; i < PAIRS; i++) { /* ABBA, so that a drift of the machine falls on both */
        ours[2 * i] = run_ours(directory, NULL);
        rival[2 * i] = run_rival(&header, &manifest, manifest_len);
        rival[2 * i + 1] = run_rival(&header, &manifest, manifest_len);
        ours[2 * i + 1] = run_ours(directory, NULL);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    (void)unlink(path);
    (void)rmdir(directory);

    int64_t first[PAIRS], second[PAIRS];
    for (size_t i = 0; i < PAIRS; i++) {
        first[i] = rival[2 * i];
        second[i] = rival[2 * i + 1];
    }
    double ours_ms = median_ms(ours, 2 * PAIRS), rival_ms = median_ms(rival, 2 * PAIRS);
    struct json_writer w = { .buf = &out };
    json_write_object(&w);
    json_write_key_text(&w, "bench", "manifest_parse");
    json_write_key_u64(&w, "tensors", TENSORS);
    json_write_key_u64(&w, "text_bytes", header.n + manifest.n - 2 * MODEL_JSON_PADDING);
    json_write_key(&w, "ours_ms");
    json_write_double(&w, ours_ms);
    json_write_key(&w, "rival_ms");
    json_write_double(&w, rival_ms);
    json_write_key(&w, "ratio");
    json_write_double(&w, ours_ms / rival_ms);
    json_write_key(&w, "rival_to_itself");
    json_write_double(&w, median_ms(first, PAIRS) / median_ms(second, PAIRS));
    json_write_key(&w, "gate");
    json_write_double(&w, 2.0);
    json_write_object_end(&w);
    base_buf_append(&out, "", 1);
    puts((char *)out.at);
    base_buf_fini(&header);
    base_buf_fini(&manifest);
    base_buf_fini(&out);
    return ours_ms / rival_ms <= 2.0 ? 0 : 1;
}

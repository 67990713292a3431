/* idle_connections N HOST:PORT MODEL: joins N connections to a model (protocol 2.5), sends each one's mode byte, says
 * so on stdout, and holds them until stdin ends. Raw sockets, so that the memory is the peer's and the kernel's. */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void request(int fd, const char *words)
{
    char message[4 + 8192];
    uint32_t len = (uint32_t)strlen(words);
    for (int i = 0; i < 4; i++)
        message[i] = (char)(len >> 8 * i);
    memcpy(message + 4, words, len);
    bench_send(fd, message, 4 + len);
}

/* A reply's text, in a buffer of the caller's. */
static void reply(int fd, char *text, size_t size)
{
    uint8_t prefix[4];
    bench_receive(fd, prefix, sizeof prefix);
    size_t len = (size_t)prefix[0] | (size_t)prefix[1] << 8 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 24;
    if (len >= size)
        bench_die("a reply of %zu bytes is too long", len);
    bench_receive(fd, text, len);
    text[len] = 0;
    if (strstr(text, "\"error\""))
        bench_die("the peer refused: %s", text);
}

static void model_version(const char *peer, const char *model, char *version, size_t size)
{
    static char list[1 << 20];
    int fd = bench_dial(peer);
    request(fd, "penstock:models");
    reply(fd, list, sizeof list);
    close(fd);

    char id[1024];
    snprintf(id, sizeof id, "\"id\":\"%s\"", model);
    const char *at = strstr(list, id);
    at = at ? strstr(at, "\"model_version\":\"") : NULL;
    if (!at)
        bench_die("the peer has no model %s", model);
    at += strlen("\"model_version\":\"");
    snprintf(version, size, "%.*s", (int)strcspn(at, "\""), at);
}

int main(int argc, char **argv)
{
    if (argc != 4 || strlen(argv[3]) > 512)
        bench_die("usage: idle_connections N HOST:PORT MODEL");
    uint64_t n = bench_number(argv[1], "N");
    struct rlimit files = { .rlim_cur = n + 64, .rlim_max = n + 64 }, now;
    if (getrlimit(RLIMIT_NOFILE, &now) < 0 || (now.rlim_cur < files.rlim_cur && setrlimit(RLIMIT_NOFILE, &files) < 0))
        bench_die("%llu connections are more open files than this process may have", (unsigned long long)n);

    char version[256], join[1024], text[1024];
    model_version(argv[2], argv[3], version, sizeof version);
    snprintf(join, sizeof join, "penstock:join %s %s", version, argv[3]);
    for (uint64_t i = 0; i < n; i++) {
        int fd = bench_dial(argv[2]);
        request(fd, join);
        reply(fd, text, sizeof text);
        bench_send(fd, "\0", 1); /* MODE_TCP */
    }
    printf("{\"connections\":%llu}\n", (unsigned long long)n);
    fflush(stdout);
    while (read(STDIN_FILENO, text, sizeof text) > 0)
        ;
    return 0;
}

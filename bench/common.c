#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

void bench_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

uint64_t bench_number(const char *text, const char *what)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-')
        bench_die("%s: not a number: %s", what, text);
    return n;
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) < 0)
        bench_die("clock_gettime: %s", strerror(errno));
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t bench_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

int64_t bench_cpu_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t bench_resident_bytes(void)
{
    unsigned long long total, resident;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f || fscanf(f, "%llu %llu", &total, &resident) != 2)
        bench_die("/proc/self/statm cannot be read");
    fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

void *bench_memory(size_t len_bytes)
{
    void *m = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (m == MAP_FAILED)
        bench_die("mmap of %zu bytes: %s", len_bytes, strerror(errno));
    return m;
}

int bench_dial(const char *address)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    if (!colon || (size_t)(colon - address) >= sizeof host)
        bench_die("not HOST:PORT: %s", address);
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = 0;

    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct addrinfo *found;
    int rc = getaddrinfo(host, colon + 1, &hints, &found);
    if (rc != 0)
        bench_die("%s: %s", address, gai_strerror(rc));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) < 0)
        bench_die("connect to %s: %s", address, strerror(errno));
    freeaddrinfo(found);
    int one = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0)
        bench_die("TCP_NODELAY: %s", strerror(errno));
    return fd;
}

void bench_send(int fd, const void *from, size_t len)
{
    const char *at = from;
    while (len) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n < 0)
            bench_die("send: %s", strerror(errno));
        at += n;
        len -= (size_t)n;
    }
}

void bench_receive(int fd, void *to, size_t len)
{
    char *at = to;
    while (len) {
        ssize_t n = recv(fd, at, len, MSG_WAITALL);
        if (n <= 0)
            bench_die("recv: %s", n < 0 ? strerror(errno) : "the server closed the connection");
        at += n;
        len -= (size_t)n;
    }
}

bool bench_send_all(int fd, const void *from, size_t len, int flags)
{
    for (size_t sent = 0; sent < len;) {
        ssize_t n = send(fd, (const char *)from + sent, len - sent, flags | MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        sent += (size_t)n;
    }
    return true;
}

static void (*serve_client)(int fd);

static void *serve_in_thread(void *argument)
{
    int fd = (int)(intptr_t)argument, one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    serve_client(fd);
    close(fd);
    return NULL;
}

void bench_serve(const char *congestion, void (*serve_one)(int fd))
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    serve_client = serve_one;
    if (congestion && setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)))
        bench_die("no congestion control %s", congestion);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, len) != 0 || listen(listener, 64) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &len) != 0)
        bench_die("can't listen");
    printf("%u\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        pthread_t thread;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || pthread_create(&thread, NULL, serve_in_thread, (void *)(intptr_t)fd) != 0)
            bench_die("can't serve a connection");
        pthread_detach(thread);
    }
}

void bench_check(const void *memory, uint64_t file_offset, uint64_t len, const char *what)
{
    const uint64_t *words = memory;
    for (uint64_t i = 0; i < len / 8; i++)
        if (words[i] != bench_word(file_offset / 8 + i))
            bench_die("%s: wrong bytes at file offset %llu", what, (unsigned long long)(file_offset + 8 * i));
}

struct runner {
    const struct bench_clients *clients;
    pthread_barrier_t *start, *end;
    size_t client;
};

static void *run_one(void *arg)
{
    struct runner *r = arg;
    if (r->clients->get_ready)
        r->clients->get_ready(r->client, r->clients->context);
    pthread_barrier_wait(r->start);
    r->clients->go(r->client, r->clients->context);
    pthread_barrier_wait(r->end);
    return NULL;
}

struct bench_times bench_clients_run(const struct bench_clients *clients)
{
    pthread_barrier_t start, end;
    struct runner *runners = calloc(clients->n, sizeof *runners);
    pthread_t *threads = calloc(clients->n, sizeof *threads);
    if (!runners || !threads || pthread_barrier_init(&start, NULL, (unsigned)clients->n + 1) != 0 ||
        pthread_barrier_init(&end, NULL, (unsigned)clients->n + 1) != 0)
        bench_die("no memory for %zu clients", clients->n);
    for (size_t i = 0; i < clients->n; i++) {
        runners[i] = (struct runner){ .clients = clients, .start = &start, .end = &end, .client = i };
        int rc = pthread_create(&threads[i], NULL, run_one, &runners[i]);
        if (rc != 0)
            bench_die("thread %zu: %s", i, strerror(rc));
    }
    pthread_barrier_wait(&start);
    int64_t began = bench_now_ns(), cpu_began = bench_cpu_ns();
    pthread_barrier_wait(&end);
    struct bench_times times = { .wall_s = (double)(bench_now_ns() - began) / 1e9,
                                 .client_cpu_s = (double)(bench_cpu_ns() - cpu_began) / 1e9 };
    for (size_t i = 0; i < clients->n; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    pthread_barrier_destroy(&end);
    free(threads);
    free(runners);
    return times;
}

/* ---- fetches ---- */

void bench_fetch_choose(const struct bench_fetches *f, uint64_t i, uint32_t *layer, uint32_t *expert)
{
    *layer = (uint32_t)(i % f->layers);
    *expert = (uint32_t)(bench_word(i) >> 32) % f->experts;
}

void bench_fetches_begin(struct bench_fetches *f)
{
    f->latencies = calloc(f->count, sizeof *f->latencies);
    if (!f->latencies)
        bench_die("no memory for %llu latencies", (unsigned long long)f->count);
    for (uint64_t i = 0; i < f->count; i++)
        f->latencies[i] = 1; /* the pages are there */
    f->cpu_ns = bench_cpu_ns();
    f->begun_ns = bench_now_ns();
}

void bench_fetches_took(struct bench_fetches *f, int64_t ns)
{
    f->latencies[f->taken++] = ns;
}

static int compare_ns(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

void bench_fetches_end(struct bench_fetches *f, uint64_t record_bytes)
{
    double wall_s = (double)(bench_now_ns() - f->begun_ns) / 1e9;
    double cpu_s = (double)(bench_cpu_ns() - f->cpu_ns) / 1e9;
    qsort(f->latencies, f->taken, sizeof *f->latencies, compare_ns);
    printf("{\"records\":%llu,\"bytes\":%llu,\"wall_s\":%.6f,\"client_cpu_s\":%.6f,\"p50_us\":%.1f,\"p99_us\":%.1f}\n",
           (unsigned long long)f->taken, (unsigned long long)(f->taken * record_bytes), wall_s, cpu_s,
           (double)f->latencies[f->taken / 2] / 1e3, (double)f->latencies[f->taken * 99 / 100] / 1e3);
    free(f->latencies);
}

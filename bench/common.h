/* What the benchmark programs share. They are programs, not a library: whatever goes wrong ends them with words. */
#ifndef PENSTOCK_BENCH_COMMON_H
#define PENSTOCK_BENCH_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__attribute__((noreturn, format(printf, 1, 2))) void bench_die(const char *format, ...);

/* A decimal number, or an end with words that name what it was for. */
uint64_t bench_number(const char *text, const char *what);

int64_t bench_now_ns(void);
int64_t bench_cpu_ns(void); /* of this process: user and system, all threads */

/* Memory that is already there: no page of it faults while the clock runs. */
void *bench_memory(size_t len_bytes);

/* Of this process, files' pages among them. */
uint64_t bench_resident_bytes(void);

/* "HOST:PORT", blocking, TCP_NODELAY. */
int bench_dial(const char *address);
void bench_send(int fd, const void *from, size_t len);
void bench_receive(int fd, void *to, size_t len);
/* For a server: false where its client has gone. */
bool bench_send_all(int fd, const void *from, size_t len, int flags);
/* Prints a port of loopback and serves whoever comes there, each in a thread, which gets the fd and closes it; until
 * the process is ended. congestion NULL: the system's. */
__attribute__((noreturn)) void bench_serve(const char *congestion, void (*serve_one)(int fd));

/* The bench models' contents: the 8-byte word at file offset 8 * i is bench_word(i), so that whoever reads a range can
 * tell whether it is the right one. Offsets and lengths are multiples of 8. */
static inline uint64_t bench_word(uint64_t i)
{
    return i * UINT64_C(0x9E3779B97F4A7C15) + 1;
}
void bench_check(const void *memory, uint64_t file_offset, uint64_t len, const char *what);

/* n clients, a thread each: all get ready, and when the last one is they start together. */
struct bench_clients {
    size_t n;
    void (*get_ready)(size_t client, void *context);
    void (*go)(size_t client, void *context);
    void *context;
};
struct bench_times {
    double wall_s;       /* from the common start to the last one's end */
    double client_cpu_s; /* of all of them, in that time */
};
struct bench_times bench_clients_run(const struct bench_clients *clients);

/* Records of a store, layer after layer, every expert as often: the same for whoever is measured. */
struct bench_fetches {
    uint64_t depth, count;
    uint32_t layers, experts;

    int64_t begun_ns, cpu_ns;
    int64_t *latencies;
    uint64_t taken;
};
void bench_fetch_choose(const struct bench_fetches *f, uint64_t i, uint32_t *layer, uint32_t *expert);
void bench_fetches_begin(struct bench_fetches *f);
void bench_fetches_took(struct bench_fetches *f, int64_t ns);
/* Prints the JSON object. */
void bench_fetches_end(struct bench_fetches *f, uint64_t record_bytes);

#endif

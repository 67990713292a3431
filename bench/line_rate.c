/* The rail engine at line rates that no device here has: on the simulated fabric, with a virtual clock, so that every
 * run prints the same figures.
 *
 *     line_rate
 *
 * One JSON object a row on stdout; exit status 1 where one misses its gate. bench/README.md says what the rows are. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "common.h"
#include "fabric.h"
#include "lists.h"
#include "tensor_sizes.h"

#define RAIL_BYTES_PER_NS 12.0
#define COPY_BYTES_PER_NS 10.0
#define OBJECTS 100000
#define OBJECT_BYTES 1024

static const struct fabric_options model = {
    .n_rails = 2,
    .gbps = RAIL_BYTES_PER_NS * 8,
    .bytes = BENCH_TENSOR_BYTES,
    .costs = { .post_ns = 150, .completion_ns = 150, .wake_ns = 5500 },
};

/* ---- rows ---- */

static bool all_met = true;

/* What every row begins with: bench/run's table is made of it. */
static void begin_row(const char *name, const char *sense, double gate, double figure, bool met)
{
    all_met = all_met && met;
    printf("{\"name\": \"%s\", \"sense\": \"%s\", \"gate\": %g, \"median\": %.4g, \"met\": %s, \"met_outright\": %s",
           name, sense, gate, figure, met ? "true" : "false", met ? "true" : "false");
}

static void print_rails(const struct fabric *f)
{
    printf(", \"rails\": [");
    for (size_t i = 0; i < f->options.n_rails; i++) {
        struct sim_counters counters = sim_port_counters(f->client.ports[i]);
        printf("%s{\"work_requests\": %llu, \"doorbells\": %llu, \"signaled\": %llu, \"bytes\": %llu}",
               i == 0 ? "" : ", ", (unsigned long long)counters.work_requests, (unsigned long long)counters.doorbells,
               (unsigned long long)counters.signaled, (unsigned long long)counters.bytes);
    }
    printf("]");
}

static void print_list(const struct bench_list *list, double seconds)
{
    printf(", \"seconds\": %.6f, \"us_a_range\": %.3f, \"ranges\": %zu, \"bytes\": %llu", seconds,
           seconds * 1e6 / (double)list->n, list->n, (unsigned long long)list->bytes);
}

/* The fraction of the line rate that there was. */
static void fraction_row(const char *name, double least, double line_seconds, double seconds,
                         const struct bench_list *list, const struct fabric *f)
{
    begin_row(name, "at least", least, line_seconds / seconds, line_seconds / seconds >= least);
    print_list(list, seconds);
    print_rails(f);
    printf("}\n");
}

static double line_seconds(uint64_t bytes, double rails)
{
    return (double)bytes / (rails * RAIL_BYTES_PER_NS) / 1e9;
}

/* What such a model takes today: it has to come near. */
static void row_baseline(const struct bench_list *list)
{
    struct fabric f;
    fabric_init(&f, &model);
    double seconds = (double)fabric_read_one_by_one(&f, list->at, list->n, COPY_BYTES_PER_NS) / 1e9;
    double fraction = line_seconds(list->bytes, 2) / seconds;
    begin_row("line rate, one READ outstanding, each copied", "near", 0.17, fraction,
              fraction > 0.165 && fraction < 0.175);
    print_list(list, seconds);
    printf("}\n");
    fabric_fini(&f);
}

static void row_ours(const char *name, const struct bench_list *list, double least)
{
    struct fabric f;
    fabric_init(&f, &model);
    double seconds = (double)fabric_read(&f, list->at, list->n, NULL) / 1e9;
    fraction_row(name, least, line_seconds(list->bytes, 2), seconds, list, &f);
    fabric_fini(&f);
}

static void halve_a_rail(struct fabric *f)
{
    sim_port_rate(f->client.ports[1], model.gbps / 2);
}

static void row_one_slow(const char *name, const struct bench_list *list)
{
    struct fabric f;
    fabric_init(&f, &model);
    halve_a_rail(&f);
    double seconds = (double)fabric_read(&f, list->at, list->n, NULL) / 1e9;
    fraction_row(name, 0.9, line_seconds(list->bytes, 1.5), seconds, list, &f);
    fabric_fini(&f);
}

static void row_one_slows_down(const char *name, const struct bench_list *list)
{
    struct fabric f;
    fabric_init(&f, &model);
    double seconds = (double)fabric_read(&f, list->at, list->n, halve_a_rail) / 1e9;
    double line = line_seconds(list->bytes / 2, 2) + line_seconds(list->bytes / 2, 1.5);
    fraction_row(name, 0.9, line, seconds, list, &f);
    fabric_fini(&f);
}

/* Small objects are bound by CPU time and round trips: what counts is how many times faster than one at a time. */
static void row_objects(const struct bench_list *list)
{
    double seconds[2];
    struct fabric f;
    for (int deep = 0; deep < 2; deep++) {
        struct fabric_options options = model;
        options.outstanding_max = deep ? 0 : 1;
        fabric_init(&f, &options);
        seconds[deep] = (double)fabric_read(&f, list->at, list->n, NULL) / 1e9;
        if (!deep)
            fabric_fini(&f);
    }
    double times = seconds[0] / seconds[1];
    begin_row("1 KiB objects scattered, times one outstanding", "at least", 10, times, times >= 10);
    printf(", \"seconds_one_outstanding\": %.6f", seconds[0]);
    print_list(list, seconds[1]);
    print_rails(&f);
    printf("}\n");
    fabric_fini(&f);
}

int main(void)
{
    struct bench_list list = bench_tensors();
    row_baseline(&list);
    row_ours("line rate, file order", &list, 0.97);
    row_one_slow("line rate left, file order, a rail at half speed", &list);
    row_one_slows_down("the same, at half speed from the middle on", &list);
    bench_shuffle(&list);
    row_ours("line rate, random order", &list, 0.95);
    row_one_slow("line rate left, random order, a rail at half speed", &list);
    free(list.at);

    list = bench_objects(OBJECTS, OBJECT_BYTES);
    bench_shuffle(&list);
    row_objects(&list);
    free(list.at);
    return all_met ? 0 : 1;
}

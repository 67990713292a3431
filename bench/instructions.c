/* How many instructions the client takes from a list of ranges to its last completion: run by instructions.py under
 * callgrind, which leaves out whatever is not the engine's. The device costs nothing: whatever is posted has ended when
 * it is polled for.
 *
 *     instructions file|random|objects
 *
 * One JSON object on stdout. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/plan.h"
#include "client/weights/catalogue.h"
#include "common.h"
#include "fabric.h"
#include "lists.h"
#include "tensor_sizes.h"

/* ---- the device ---- */

/* The signaled requests of a QP that have not been polled for. */
struct free_device {
    const struct verbs_cq *cq;
    void *contexts[RAIL_DEPTH];
    size_t first, n;
};
static struct free_device devices[PENSTOCK_RAILS_MAX];

static struct free_device *device_of(const struct verbs_cq *cq)
{
    struct free_device *device = devices;
    while (device->cq && device->cq != cq)
        device++;
    device->cq = cq;
    return device;
}

/* The two names are instructions.py', to be left out. */
static int free_device_post(struct verbs_qp *qp, const struct verbs_request *requests, size_t n, size_t *posted,
                            struct penstock_error *error)
{
    struct free_device *device = device_of(qp->cq);
    (void)error;
    for (size_t i = 0; i < n; i++)
        if (requests[i].signaled)
            device->contexts[(device->first + device->n++) % RAIL_DEPTH] = requests[i].context;
    *posted = n;
    return 0;
}

static int free_device_poll(struct verbs_cq *cq, struct verbs_completion *completions, int max,
                            struct penstock_error *error)
{
    struct free_device *device = device_of(cq);
    int n = 0;
    (void)error;
    for (; n < max && device->n > 0; n++, device->n--) {
        completions[n] = (struct verbs_completion){ .context = device->contexts[device->first] };
        device->first = (device->first + 1) % RAIL_DEPTH;
    }
    return n;
}

static struct verbs_ops without_a_device;

/* From here on the client's QPs are connected to nothing. */
static void take_the_device_away(struct fabric *f)
{
    without_a_device = *f->client.host->ops;
    without_a_device.post = free_device_post;
    without_a_device.cq_poll = free_device_poll;
    f->client.host->ops = &without_a_device;
}

/* ---- what is counted ---- */

static struct bench_list list_named(const char *name)
{
    if (strcmp(name, "objects") == 0) {
        struct bench_list list = bench_objects(20000, 4096);
        bench_shuffle(&list);
        return list;
    }
    struct bench_list list = bench_tensors();
    if (strcmp(name, "random") == 0)
        bench_shuffle(&list);
    else if (strcmp(name, "file") != 0)
        bench_die("%s: file, random or objects", name);
    return list;
}

/* A model of one shard, which is all that a plan wants to know. */
static struct penstock_catalogue *catalogue_new(void)
{
    struct penstock_catalogue *catalogue;
    struct penstock_error error;
    char json[1024] = { 0 };
    int len = snprintf(json, sizeof json - MODEL_JSON_PADDING,
                       "{\"version\":1,\"model_id\":\"m\",\"shard_files\":[\"m.safetensors\"],\"shard_lens\":[%llu],"
                       "\"tensors\":[]}",
                       (unsigned long long)BENCH_TENSOR_BYTES);
    if (client_catalogue_read(json, (size_t)len, sizeof json, &catalogue, &error) != 0)
        bench_die("%s", error.message);
    return catalogue;
}

/* What penstock_submit makes of a list. */
static struct client_split plan(const struct bench_list *list)
{
    struct penstock_catalogue *catalogue = catalogue_new();
    struct penstock_range *ranges = calloc(list->n, sizeof *ranges);
    struct penstock_error error;
    struct client_split split;
    if (!ranges)
        bench_die("no memory for %zu ranges", list->n);
    for (size_t i = 0; i < list->n; i++)
        ranges[i] = (struct penstock_range){ .offset_bytes = list->at[i].remote_offset,
                                             .len_bytes = list->at[i].len_bytes,
                                             .dst_bytes = list->at[i].local_offset };
    if (client_split_make(catalogue, ranges, list->n, BENCH_TENSOR_BYTES, &split, &error) != 0)
        bench_die("%s", error.message);
    free(ranges);
    penstock_catalogue_unref(catalogue);
    return split;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        bench_die("usage: instructions file|random|objects");
    struct bench_list list = list_named(argv[1]);
    struct fabric f;
    fabric_init(&f, &(struct fabric_options){ .n_rails = 2, .gbps = 96, .bytes = BENCH_TENSOR_BYTES });
    take_the_device_away(&f);
    struct client_split split = plan(&list);
    fabric_read(&f, split.rails, split.n_rails, NULL);
    struct rail_stats all = { 0 };
    for (size_t i = 0; i < f.options.n_rails; i++) {
        struct rail_stats stats;
        rail_engine_stats(f.engine, i, &stats);
        all.work_requests += stats.work_requests;
        all.doorbells += stats.doorbells;
        all.completions += stats.completions;
    }
    printf("{\"ranges\": %zu, \"work_requests\": %llu, \"doorbells\": %llu, \"completions\": %llu}\n", list.n,
           (unsigned long long)all.work_requests, (unsigned long long)all.doorbells,
           (unsigned long long)all.completions);
    client_split_fini(&split);
    fabric_fini(&f);
    free(list.at);
    return 0;
}

#include "pull_plan.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/checked.h"
#include "base/error.h"
#include "text.h"

static const char *component_fault(const char *at, size_t len)
{
    if (len == 0)
        return "an empty component";
    if (len > NAME_MAX)
        return "a component that is too long";
    if (strncmp(at, "..", len) == 0)
        return "a . or .. component"; /* strncmp: either of the two */
    if (strncmp(at, PULL_OWN_PREFIX, sizeof PULL_OWN_PREFIX - 1) == 0)
        return "a component that begins with " PULL_OWN_PREFIX;
    return NULL;
}

const char *pull_name_fault(const char *name, bool shard)
{
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return "a control character";
    if (shard && strchr(name, '/'))
        return "a slash";
    if (strlen(name) >= PATH_MAX)
        return "too many characters";
    for (const char *at = name;;) {
        size_t len = strcspn(at, "/");
        const char *fault = component_fault(at, len);
        if (fault || !at[len])
            return fault;
        at += len + 1;
    }
}

int pull_plan_add(struct pull_plan *plan, const char *name, uint64_t len_bytes, uint64_t head_bytes, uint32_t source,
                  struct penstock_error *error)
{
    uint64_t body = len_bytes - head_bytes;
    uint64_t chunks = body / PENSTOCK_DIGEST_CHUNK_BYTES + (body % PENSTOCK_DIGEST_CHUNK_BYTES != 0);
    size_t total;
    if (len_bytes > INT64_MAX || !base_add_size(plan->chunks, chunks, &total) ||
        !base_add_u64(plan->bytes, body, &plan->bytes))
        return base_error_set(error, PENSTOCK_EPROTO, "%s: a length of %llu bytes is not plausible", name,
                              (unsigned long long)len_bytes);
    struct pull_file file = {
        .name = strdup(name),
        .len_bytes = len_bytes,
        .head_bytes = head_bytes,
        .source = source,
        .first_chunk = plan->chunks,
        .chunks = chunks,
    };
    if (!file.name || !base_vec_push(&plan->files, file)) {
        free(file.name);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the list of files");
    }
    plan->chunks = total;
    return 0;
}

/* A name of the peer's, and the file it belongs to: shards come first, and win. */
struct claim {
    const char *name;
    size_t file;
    bool refused;
};

static int by_name(const void *a, const void *b)
{
    const struct claim *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->file > y->file) - (x->file < y->file);
}

/* Whether name[0..len) is claimed by another file; claims are sorted. */
static struct claim *find_claim(struct claim *claims, size_t n, const char *name, size_t len)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strncmp(claims[middle].name, name, len);
        if (order == 0 && claims[middle].name[len])
            order = 1;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < n && strncmp(claims[low].name, name, len) == 0 && !claims[low].name[len];
    return found ? &claims[low] : NULL;
}

/* Of two files that cannot both exist, a name twice or a file where another needs a directory, the later is refused. */
static void refuse_collisions(struct claim *claims, size_t n)
{
    for (size_t i = 1; i < n; i++)
        claims[i].refused |= strcmp(claims[i].name, claims[i - 1].name) == 0;
    for (size_t i = 0; i < n; i++) {
        for (const char *slash = strchr(claims[i].name, '/'); slash; slash = strchr(slash + 1, '/')) {
            struct claim *as_file = find_claim(claims, n, claims[i].name, (size_t)(slash - claims[i].name));
            if (as_file)
                (as_file->file > claims[i].file ? as_file : &claims[i])->refused = true;
        }
    }
}

static int refuse_shard(const char *name, const char *fault, struct penstock_error *error)
{
    char escaped[256];
    cli_escape(escaped, sizeof escaped, name);
    return base_error_set(error, PENSTOCK_EPROTO, "the peer's shard name \"%s\" is not acceptable: it has %s", escaped,
                          fault);
}

/* Sets refused[file] for each name that cannot be pulled; fails where that is a shard's. */
static int judge_names(const struct penstock_catalogue *catalogue, size_t total, bool *refused,
                       struct penstock_error *error)
{
    struct claim *claims = calloc(total + 1, sizeof *claims);
    if (!claims)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the list of files");
    size_t shards = penstock_catalogue_shards(catalogue), n = 0;
    int rc = 0;
    for (size_t i = 0; i < total && rc == 0; i++) {
        const char *name = penstock_catalogue_file(catalogue, i)->name;
        if (!name) { /* the catalogue has refused it, and counted it as skipped */
            refused[i] = true;
            continue;
        }
        const char *fault = pull_name_fault(name, i < shards);
        refused[i] = fault != NULL;
        if (!fault)
            claims[n++] = (struct claim){ .name = name, .file = i };
        else if (i < shards)
            rc = refuse_shard(name, fault, error);
    }
    qsort(claims, n, sizeof *claims, by_name);
    refuse_collisions(claims, n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        refused[claims[i].file] |= claims[i].refused;
        if (claims[i].refused && claims[i].file < shards)
            rc = refuse_shard(claims[i].name, "been given before", error);
    }
    free(claims);
    return rc;
}

int pull_plan_model(const struct penstock_catalogue *catalogue, struct pull_plan *plan, struct penstock_error *error)
{
    *plan = (struct pull_plan){ .skipped = penstock_catalogue_skipped(catalogue) };
    size_t total = penstock_catalogue_shards(catalogue) + penstock_catalogue_files(catalogue);
    bool *refused = calloc(total + 1, sizeof *refused);
    if (!refused)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the list of files");
    int rc = judge_names(catalogue, total, refused, error);
    for (size_t i = 0; i < total && rc == 0; i++) {
        const struct penstock_file *file = penstock_catalogue_file(catalogue, i);
        if (refused[i])
            plan->skipped += file->name != NULL;
        else
            rc = pull_plan_add(plan, file->name, file->len_bytes, 0, (uint32_t)i, error);
    }
    free(refused);
    if (rc < 0)
        pull_plan_fini(plan);
    return rc;
}

void pull_plan_fini(struct pull_plan *plan)
{
    base_vec_for_each (file, &plan->files)
        free(file->name);
    base_vec_free(&plan->files);
    base_vec_free(&plan->runs);
    base_buf_fini(&plan->head);
    *plan = (struct pull_plan){ 0 };
}

struct pull_chunk_place pull_plan_place(const struct pull_plan *plan, size_t chunk)
{
    size_t low = 0, high = plan->files.n; /* the last file whose first_chunk <= chunk and that has chunks */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (plan->files.at[middle].first_chunk <= chunk)
            low = middle;
        else
            high = middle;
    }
    const struct pull_file *file = &plan->files.at[low];
    uint64_t offset = (chunk - file->first_chunk) * PENSTOCK_DIGEST_CHUNK_BYTES;
    uint64_t left = file->len_bytes - file->head_bytes - offset;
    return (struct pull_chunk_place){
        .file = low,
        .offset_bytes = offset,
        .len_bytes = base_min_u64(left, PENSTOCK_DIGEST_CHUNK_BYTES),
    };
}

/* The run that holds byte offset. */
static size_t run_at(const struct pull_plan *plan, uint64_t offset)
{
    size_t low = 0, high = plan->runs.n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (plan->runs.at[middle].dst_bytes <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint64_t pull_plan_ranges(const struct pull_plan *plan, size_t file, uint64_t offset, uint64_t len, uint64_t dst_bytes,
                          struct penstock_range *ranges, size_t max, size_t *n)
{
    if (plan->runs.n == 0) {
        ranges[0] = (struct penstock_range){
            .offset_bytes = offset,
            .len_bytes = len,
            .dst_bytes = dst_bytes,
            .file = plan->files.at[file].source,
        };
        *n = 1;
        return len;
    }
    uint64_t covered = 0;
    *n = 0;
    for (size_t i = run_at(plan, offset); covered < len && *n < max; i++) {
        const struct pull_run *run = &plan->runs.at[i];
        uint64_t into = offset + covered - run->dst_bytes;
        uint64_t take = base_min_u64(run->len_bytes - into, len - covered);
        ranges[(*n)++] = (struct penstock_range){
            .offset_bytes = run->src_bytes + into,
            .len_bytes = take,
            .dst_bytes = dst_bytes + covered,
            .file = run->source,
        };
        covered += take;
    }
    return covered;
}

void pull_plan_mark(const struct pull_plan *plan, char out[PULL_MARK_MAX])
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < plan->files.n; i++) {
        const struct pull_file *file = &plan->files.at[i];
        uint64_t numbers[] = { file->len_bytes, file->head_bytes, file->source };
        XXH3_128bits_update(&state, file->name, strlen(file->name) + 1);
        XXH3_128bits_update(&state, numbers, sizeof numbers);
    }
    for (size_t i = 0; i < plan->runs.n; i++) {
        const struct pull_run *run = &plan->runs.at[i];
        uint64_t numbers[] = { run->dst_bytes, run->src_bytes, run->len_bytes, run->source };
        XXH3_128bits_update(&state, numbers, sizeof numbers);
    }
    if (plan->head.n > 0)
        XXH3_128bits_update(&state, plan->head.at, plan->head.n);
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    snprintf(out, PULL_MARK_MAX, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

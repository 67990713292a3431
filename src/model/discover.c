#include "discover.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/checked.h"
#include "base/error.h"
#include "names.h"
#include "safetensors.h"
#include "json/records.h"

#define INDEX_BYTES_MAX (UINT64_C(256) << 20)

static const char extra_name[] = "extra_weights.safetensors";

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool has(const char *const *names, size_t n, const char *name)
{
    return n > 0 && bsearch(&name, names, n, sizeof *names, compare) != NULL;
}

static int no_memory(struct penstock_error *error)
{
    return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the index");
}

/* The map's entry for a tensor, or the slot where it would go. */
static uint32_t *find_slot(const struct model_shards *s, const char *tensor, size_t len)
{
    size_t at = (size_t)XXH3_64bits(tensor, len) & s->mask;
    for (; s->slots[at] != 0; at = (at + 1) & s->mask) {
        const struct model_mapped *entry = &s->map.at[s->slots[at] - 1];
        if (entry->len == len && memcmp(entry->tensor, tensor, len) == 0)
            break;
    }
    return &s->slots[at];
}

static bool grow_slots(struct model_shards *s)
{
    size_t n = s->mask == 0 ? 64 : (s->mask + 1) * 2;
    uint32_t *slots = calloc(n, sizeof *slots);
    if (!slots)
        return false;
    free(s->slots);
    s->slots = slots;
    s->mask = n - 1;
    for (size_t i = 0; i < s->map.n; i++)
        *find_slot(s, s->map.at[i].tensor, s->map.at[i].len) = (uint32_t)i + 1;
    return true;
}

/* Until all are known and sorted, shards are numbered as they come. Neighbours in an index mostly share one. */
static int number_shard(struct model_shards *s, const struct json_string *shard, uint32_t *out,
                        struct penstock_error *error)
{
    for (size_t i = s->names.n; i-- > 0;)
        if (strlen(s->names.at[i]) == shard->len && memcmp(s->names.at[i], shard->at, shard->len) == 0) {
            *out = (uint32_t)i;
            return 0;
        }
    if (!model_name_plain(shard->at, shard->len))
        return base_error_set(error, PENSTOCK_ECORRUPT, "weight_map: \"%.*s\" is no plain file name",
                              (int)base_min_u64(shard->len, 200), shard->at);
    if (s->names.n == 4096)
        return base_error_set(error, PENSTOCK_ECORRUPT, "weight_map: more than 4096 shards");
    const char *name = base_pool_string(&s->pool, shard->at, shard->len);
    *out = (uint32_t)s->names.n;
    return name && base_vec_push(&s->names, name) ? 0 : no_memory(error);
}

static int take_pair(void *context, const struct json_string *tensor, const struct json_string *shard,
                     struct penstock_error *error)
{
    struct model_shards *s = context;
    struct model_mapped entry = { .len = (uint32_t)tensor->len };
    int status = number_shard(s, shard, &entry.shard, error);
    if (status != 0)
        return status;
    if (2 * (s->map.n + 1) > s->mask && !grow_slots(s))
        return no_memory(error);
    uint32_t *slot = find_slot(s, tensor->at, tensor->len);
    if (*slot != 0)
        return base_error_set(error, PENSTOCK_ECORRUPT, "weight_map: tensor \"%.*s\" is there twice",
                              (int)base_min_u64(tensor->len, 200), tensor->at);
    entry.tensor = base_pool_string(&s->pool, tensor->at, tensor->len);
    if (!entry.tensor || !base_vec_push(&s->map, entry))
        return no_memory(error);
    *slot = (uint32_t)s->map.n;
    return 0;
}

/* Sorts the names and renumbers the map, extra_weights left out: it is taken whole, and last. */
static int sort_shards(struct model_shards *s, struct penstock_error *error)
{
    size_t n = s->names.n;
    const char **sorted = malloc((n + 1) * sizeof *sorted);
    uint32_t *place = malloc((n + 1) * sizeof *place);
    if (!sorted || !place) {
        free(sorted);
        free(place);
        return no_memory(error);
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(s->names.at[i], extra_name) != 0)
            sorted[kept++] = s->names.at[i];
        else
            s->extra = true;
    qsort(sorted, kept, sizeof *sorted, compare);
    for (size_t i = 0; i < n; i++) {
        const char **at = bsearch(&s->names.at[i], sorted, kept, sizeof *sorted, compare);
        place[i] = at ? (uint32_t)(at - sorted) : UINT32_MAX;
    }
    base_vec_for_each (entry, &s->map)
        entry->shard = place[entry->shard];
    if (kept > 0)
        memcpy(s->names.at, sorted, kept * sizeof *sorted);
    s->names.n = kept;
    free(sorted);
    free(place);
    return 0;
}

static int read_index(const struct model_root *root, const char *name, struct model_shards *s,
                      struct penstock_error *error)
{
    struct stat st;
    int fd, status = model_root_file(root, name, &fd, &st, error);
    if (status != 0)
        return status;
    char *text = NULL;
    uint64_t len = (uint64_t)st.st_size;
    if (len > INDEX_BYTES_MAX)
        status = base_error_set(error, PENSTOCK_ECORRUPT, "larger than 256 MiB");
    else if (!(text = malloc((size_t)len + JSON_PADDING)))
        status = no_memory(error);
    if (status == 0) {
        memset(text + len, ' ', JSON_PADDING);
        status = model_pread(fd, text, (size_t)len, 0, error);
    }
    if (status == 0)
        status = json_weight_map_read(text, (size_t)len, PENSTOCK_ECORRUPT, take_pair, s, error);
    free(text);
    close(fd);
    if (status != 0) {
        (void)base_error_in(error, "%s", name);
        return status;
    }
    s->mapped = true;
    return sort_shards(s, error);
}

static bool matches(const char *name, const char *prefix)
{
    static const char suffix[] = ".safetensors";
    size_t n = strlen(name), p = strlen(prefix), m = sizeof suffix - 1;
    return n >= p + m && memcmp(name, prefix, p) == 0 && memcmp(name + n - m, suffix, m) == 0;
}

static int by_name(const struct model_listing *listing, struct model_shards *s, struct penstock_error *error)
{
    static const char *const singles[] = { "model.safetensors", "adapter_model.safetensors" };
    for (size_t i = 0; i < 2; i++)
        if (has(listing->weights.at, listing->weights.n, singles[i]))
            return base_vec_push(&s->names, singles[i]) ? 0 : no_memory(error);
    base_vec_for_each (name, &listing->weights) {
        if (!matches(*name, "model.safetensors-") && !matches(*name, "consolidated-"))
            continue;
        const char *copy = base_pool_string(&s->pool, *name, strlen(*name));
        if (!copy || !base_vec_push(&s->names, copy))
            return no_memory(error);
    }
    return 0;
}

int model_discover(const struct model_root *root, const struct model_listing *listing, struct model_shards *out,
                   struct penstock_error *error)
{
    static const char *const indexes[] = { "model.safetensors.index.json", "consolidated.safetensors.index.json" };
    *out = (struct model_shards){ 0 };
    int status = 1;
    for (size_t i = 0; i < 2 && status == 1; i++)
        if (has(listing->files.at, listing->files.n, indexes[i]))
            status = read_index(root, indexes[i], out, error);
    if (status == 1)
        status = by_name(listing, out, error);
    if (status == 0 && (out->extra || has(listing->weights.at, listing->weights.n, extra_name))) {
        out->extra = true;
        status = base_vec_push(&out->names, extra_name) ? 0 : no_memory(error);
    }
    if (status == 0 && out->names.n == 0)
        status = base_error_set(error, PENSTOCK_ENOTFOUND,
                                "no weights here: no model.safetensors, no index, no other safetensors file that "
                                "staging knows");
    if (status != 0)
        model_shards_fini(out);
    return status;
}

bool model_shards_take(struct model_shards *s, size_t shard, const char *tensor, size_t len)
{
    if (!s->mapped || (s->extra && shard == s->names.n - 1))
        return true;
    if (s->map.n == 0)
        return false;
    uint32_t slot = *find_slot(s, tensor, len);
    if (slot == 0 || s->map.at[slot - 1].shard != shard)
        return false;
    s->map.at[slot - 1].found = true;
    return true;
}

void model_shards_fini(struct model_shards *s)
{
    base_vec_free(&s->names);
    base_vec_free(&s->map);
    free(s->slots);
    base_pool_fini(&s->pool);
    *s = (struct model_shards){ 0 };
}

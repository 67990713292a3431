#include "stats.h"

#include <stdlib.h>

#include "base/error.h"
#include "rail/listing.h"
#include "json/write.h"

static void write_pair(struct json_writer *w, const char *key, uint64_t used, uint64_t cap)
{
    json_write_key(w, key);
    json_write_object(w);
    json_write_key_u64(w, "used", used);
    json_write_key_u64(w, "cap", cap);
    json_write_object_end(w);
}

static void write_arena(struct json_writer *w, const struct residency_arena_stats *a)
{
    json_write_object(w);
    json_write_key_text(w, "kind", a->kind == RESIDENCY_KV ? "kv" : "ssm");
    json_write_key_u64(w, "blob_bytes", a->blob_bytes);
    json_write_key_u64(w, "arena_bytes", a->arena_bytes);
    json_write_key_u64(w, "slots", a->slots);
    json_write_key_u64(w, "resident", a->resident);
    json_write_key_u64(w, "on_disk", a->on_disk);
    json_write_key_u64(w, "reserved", a->reserved);
    json_write_key_u64(w, "pinned", a->pinned);
    json_write_key_u64(w, "connections", a->connections);
    json_write_key_u64(w, "hits", a->hits);
    json_write_key_u64(w, "misses", a->misses);
    json_write_key_u64(w, "puts", a->puts);
    json_write_key_u64(w, "spills", a->spills);
    json_write_key_u64(w, "faults", a->faults);
    json_write_key_u64(w, "drops", a->drops);
    json_write_key_u64(w, "errors", a->errors);
    json_write_object_end(w);
}

int peer_cache_stats_write(struct peer_server *server, struct base_buf *json, struct penstock_error *error)
{
    struct residency_swap_stats swap = { 0 };
    struct residency_arena_stats *arenas = calloc(RESIDENCY_ARENAS_MAX, sizeof *arenas);
    if (!arenas)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the cache's statistics");
    size_t n = residency_stats(server->cache.residency, arenas, RESIDENCY_ARENAS_MAX);
    if (server->cache.swap)
        residency_swap_stats(server->cache.swap, &swap);

    struct json_writer w = { .buf = json };
    json_write_object(&w);
    json_write_key_u64(&w, "version", 1);
    write_pair(&w, "memory", residency_used(&server->ledger), server->options->max_memory_bytes);
    write_pair(&w, "swap", swap.used_bytes, swap.cap_bytes);
    json_write_key(&w, "arenas");
    json_write_array(&w);
    for (size_t i = 0; i < n; i++)
        write_arena(&w, &arenas[i]);
    json_write_array_end(&w);
    json_write_key(&w, "rails");
    rail_listing_write(&w, &server->rails);
    json_write_object_end(&w);
    free(arenas);
    return json->failed ? base_error_set(error, PENSTOCK_ENOMEM, "no memory for the cache's statistics") : 0;
}

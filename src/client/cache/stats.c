#include "stats.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "client/session.h"
#include "client/tier.h"
#include "json/json.h"

struct penstock_cache_stats {
    struct penstock_cache_totals totals;
    BASE_VEC(struct penstock_cache_arena) arenas;
    struct json_doc doc;
    char *text;
};

/* ---- the reply ---- */

/* Kinds that come later are no arenas that this version could join: they are left out. */
static int read_kind(const struct json_value *v, int *kind, bool *known, struct penstock_error *error)
{
    const char *name;
    int code = json_get_string(v, "kind", &name, error);
    if (code)
        return code;
    *known = strcmp(name, "kv") == 0 || strcmp(name, "ssm") == 0;
    *kind = strcmp(name, "kv") == 0 ? PENSTOCK_CACHE_KV : PENSTOCK_CACHE_SSM;
    return 0;
}

static int read_arena(const struct json_value *v, struct penstock_cache_arena *a, bool *known,
                      struct penstock_error *error)
{
    *a = (struct penstock_cache_arena){ 0 };
    const struct {
        const char *name;
        uint64_t *out;
    } numbers[] = { { "blob_bytes", &a->blob_bytes },
                    { "arena_bytes", &a->arena_bytes },
                    { "slots", &a->slots },
                    { "resident", &a->resident },
                    { "on_disk", &a->on_disk },
                    { "reserved", &a->reserved },
                    { "pinned", &a->pinned },
                    { "connections", &a->connections },
                    { "hits", &a->hits },
                    { "misses", &a->misses },
                    { "puts", &a->puts },
                    { "spills", &a->spills },
                    { "faults", &a->faults },
                    { "drops", &a->drops },
                    { "errors", &a->errors } };
    int code = read_kind(v, &a->kind, known, error);
    for (size_t i = 0; code == 0 && i < sizeof numbers / sizeof *numbers; i++)
        code = json_get_u64(v, numbers[i].name, UINT64_MAX, numbers[i].out, error);
    if (code == 0 && *known && (a->blob_bytes == 0 || a->blob_bytes > PENSTOCK_ARENA_BYTES_MAX))
        code = base_error_set(error, PENSTOCK_EPROTO, "field \"blob_bytes\": no arena has blobs of %llu bytes",
                              (unsigned long long)a->blob_bytes);
    return code;
}

static int read_used(const struct json_value *root, const char *of, uint64_t *used, uint64_t *cap,
                     struct penstock_error *error)
{
    const struct json_value *v;
    int code = json_get_object(root, of, &v, error);
    if (code)
        return code;
    code = json_get_u64(v, "used", UINT64_MAX, used, error);
    code = code ? code : json_get_u64(v, "cap", UINT64_MAX, cap, error);
    if (code)
        base_error_in(error, "%s", of);
    return code;
}

static int read_arenas(struct penstock_cache_stats *s, struct penstock_error *error)
{
    const struct json_value *list;
    int code = json_get_array(&s->doc.root, "arenas", &list, error);
    for (size_t i = 0; code == 0 && i < list->array.n; i++) {
        struct penstock_cache_arena arena;
        bool known;
        code = read_arena(&list->array.at[i], &arena, &known, error);
        if (code)
            base_error_in(error, "arenas[%zu]", i);
        else if (known && !base_vec_push(&s->arenas, arena))
            code = base_error_set(error, PENSTOCK_ENOMEM, "no memory for statistics of %zu arenas", list->array.n);
    }
    return code;
}

static int read_all(struct penstock_cache_stats *s, struct penstock_error *error)
{
    uint64_t version;
    struct penstock_cache_totals *t = &s->totals;
    const struct json_value *root = &s->doc.root;
    int code = json_get_u64(root, "version", UINT64_MAX, &version, error);
    if (code == 0 && version != 1)
        code = base_error_set(error, PENSTOCK_EPROTO, "statistics of version %llu, not 1", (unsigned long long)version);
    code = code ? code : read_used(root, "memory", &t->memory_used, &t->memory_cap, error);
    code = code ? code : read_used(root, "swap", &t->swap_used, &t->swap_cap, error);
    return code ? code : read_arenas(s, error);
}

int client_cache_stats_read(const char *json, size_t len, struct penstock_cache_stats **stats,
                            struct penstock_error *error)
{
    struct penstock_cache_stats *s = calloc(1, sizeof *s);
    if (!s || !(s->text = strndup(json, len))) {
        free(s);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a peer's statistics");
    }
    int code = json_parse(json, len, &s->doc, error);
    if (code == PENSTOCK_ECORRUPT) {
        code = PENSTOCK_EPROTO;
        if (error)
            error->code = code;
    }
    code = code ? code : read_all(s, error);
    if (code)
        penstock_cache_stats_free(s);
    else
        *stats = s;
    return code;
}

/* ---- what it says ---- */

const struct penstock_cache_totals *penstock_cache_stats_totals(const struct penstock_cache_stats *stats)
{
    return stats ? &stats->totals : NULL;
}

size_t penstock_cache_stats_arenas(const struct penstock_cache_stats *stats)
{
    return stats ? stats->arenas.n : 0;
}

const struct penstock_cache_arena *penstock_cache_stats_arena(const struct penstock_cache_stats *stats, size_t index)
{
    return stats && index < stats->arenas.n ? &stats->arenas.at[index] : NULL;
}

const char *penstock_cache_stats_json(const struct penstock_cache_stats *stats)
{
    return stats ? stats->text : NULL;
}

int client_cache_stats_rails(const struct penstock_cache_stats *stats, struct rail_listing *out,
                             struct penstock_error *error)
{
    return rail_listing_read(&stats->doc.root, out, error);
}

int client_cache_listed(const struct penstock_session *asked, struct rail_listing *out, struct penstock_error *error)
{
    if (asked->cache_stats)
        return client_cache_stats_rails(asked->cache_stats, out, error);
    *error = asked->error;
    return error->code;
}

void penstock_cache_stats_free(struct penstock_cache_stats *stats)
{
    if (!stats)
        return;
    base_vec_free(&stats->arenas);
    json_doc_fini(&stats->doc);
    free(stats->text);
    free(stats);
}

/* ---- a connection that asks for it ---- */

static int greet(struct penstock_session *s, struct penstock_error *error)
{
    (void)error;
    const struct penstock_paging_header header = { .kind = PENSTOCK_ARENA_STATISTICS };
    penstock_paging_header_encode(&header, s->out);
    s->out_end = PENSTOCK_PAGING_HEADER_BYTES;
    return 0;
}

static enum penstock_text text(const struct penstock_session *s)
{
    (void)s;
    return PENSTOCK_TEXT_CACHE_STATISTICS;
}

static const char *awaits(const struct penstock_session *s)
{
    (void)s;
    return "statistics";
}

static int take(struct penstock_session *s, struct penstock_error *error)
{
    int code = client_cache_stats_read((const char *)s->body, s->body_len, &s->cache_stats, error);
    if (code)
        return code;
    client_op_end(s, client_op_find(s, s->open_id), 0, NULL);
    return base_error_set(error, PENSTOCK_ECLOSED, "the statistics are complete");
}

static int failed(struct penstock_session *s, struct penstock_error *error)
{
    if (error->code == PENSTOCK_ECLOSED && error->sys_errno == 0 && s->step == CLIENT_ASKING && s->head_bytes == 0)
        base_error_set(error, PENSTOCK_ECLOSED,
                       "closed without an answer: was it stopped? (a peer of the frozen protocol, which keeps no "
                       "statistics, closes as well)");
    return error->code;
}

static void fini(struct penstock_session *s)
{
    penstock_cache_stats_free(s->cache_stats);
}

const struct client_tier client_cache_stats_tier = { .peer = "cache peer",
                                                     .port = PENSTOCK_PORT_CACHE,
                                                     .fini = fini,
                                                     .greet = greet,
                                                     .text = text,
                                                     .awaits = awaits,
                                                     .take = take,
                                                     .failed = failed };

static const struct client_start start = { .tier = &client_cache_stats_tier, .purpose = CLIENT_FOR_MODELS };

static int wait_for(struct penstock_session *s, penstock_op op, struct penstock_cache_stats **stats,
                    struct penstock_error *error)
{
    int code = penstock_wait(s, op, NULL, error);
    if (code == 0) {
        *stats = s->cache_stats;
        s->cache_stats = NULL;
    }
    penstock_session_free(s);
    return code;
}

int penstock_cache_stats_get(const char *peer, const struct penstock_options *options,
                             struct penstock_cache_stats **stats, struct penstock_error *error)
{
    struct penstock_session *s;
    penstock_op op;
    if (!peer || !stats)
        return client_missing("peer and stats", error);
    int code = client_session_start(&start, peer, options, &s, &op, error);
    return code ? code : wait_for(s, op, stats, error);
}

int client_cache_stats_on_stream(struct net_stream *stream, const struct penstock_options *options,
                                 struct penstock_cache_stats **stats, struct penstock_error *error)
{
    struct penstock_session *s;
    penstock_op op;
    int code = client_session_start_on(&start, stream, options, &s, &op, error);
    return code ? code : wait_for(s, op, stats, error);
}

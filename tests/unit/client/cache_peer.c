#include "cache_peer.h"

#include <sched.h>

/* One connection, past the rail handshake. */
struct conversation {
    struct cache_peer *c;
    int fd;
    struct penstock_paging_framing framing;
    struct cache_slot *pin; /* of the last GET */
    struct {
        struct penstock_key key;
        struct cache_slot *slot;
    } pins[CACHE_PINS_MAX]; /* of MGETs, oldest first */
    size_t n_pins;
    unsigned reserved;
};

static bool same(const struct penstock_key *a, const struct penstock_key *b)
{
    return a->low == b->low && a->high == b->high;
}

static struct cache_slot *find(struct cache_peer *c, const struct penstock_key *key)
{
    for (size_t i = 0; i < CACHE_SLOTS; i++)
        if (c->slots[i].committed && same(&c->slots[i].key, key))
            return &c->slots[i];
    return NULL;
}

static struct cache_slot *find_reserved(struct cache_peer *c, int fd, const struct penstock_key *key)
{
    for (size_t i = 0; i < CACHE_SLOTS; i++)
        if (c->slots[i].reserved_by == fd && same(&c->slots[i].key, key))
            return &c->slots[i];
    return NULL;
}

static struct cache_slot *find_free(struct cache_peer *c)
{
    for (size_t i = 0; i < CACHE_SLOTS; i++)
        if (!c->slots[i].committed && !c->slots[i].reserved_by && c->slots[i].pins == 0)
            return &c->slots[i];
    return NULL;
}

static unsigned quota(const struct cache_peer *c)
{
    return c->quota ? c->quota : CACHE_SLOTS / 4;
}

/* ---- ops: statuses ---- */

static uint64_t offset_of(const struct cache_peer *c, const struct cache_slot *slot)
{
    return (uint64_t)(slot - c->slots) * CACHE_BLOB + c->beyond;
}

static uint8_t alloc(struct conversation *v, const struct penstock_key *key, uint64_t *offset)
{
    struct cache_slot *slot = find_reserved(v->c, v->fd, key);
    if (!slot) {
        slot = find_free(v->c);
        if (!slot || v->reserved >= quota(v->c) || v->c->no_slots)
            return PENSTOCK_ST_ERR;
        slot->reserved_by = v->fd;
        slot->key = *key;
        v->reserved++;
    }
    *offset = offset_of(v->c, slot);
    return PENSTOCK_ST_OK;
}

static uint8_t commit(struct conversation *v, const struct penstock_key *key)
{
    struct cache_slot *slot = find_reserved(v->c, v->fd, key), *old = find(v->c, key);
    if (!slot)
        return old ? PENSTOCK_ST_OK : PENSTOCK_ST_ERR;
    if (old)
        old->committed = false;
    slot->committed = true;
    slot->reserved_by = 0;
    v->reserved--;
    return PENSTOCK_ST_OK;
}

static uint8_t get(struct conversation *v, const struct penstock_key *key, bool many, uint64_t *offset)
{
    struct cache_slot *slot = find(v->c, key);
    if (!slot)
        return PENSTOCK_ST_MISS;
    if ((many && v->n_pins >= quota(v->c)) || v->c->no_slots)
        return PENSTOCK_ST_ERR;
    slot->pins++;
    *offset = offset_of(v->c, slot);
    if (!many) {
        v->pin = slot;
        return PENSTOCK_ST_OK;
    }
    v->pins[v->n_pins].key = *key;
    v->pins[v->n_pins++].slot = slot;
    return PENSTOCK_ST_OK;
}

static void release(struct conversation *v, const struct penstock_key *key)
{
    for (size_t i = 0; i < v->n_pins; i++) {
        if (!same(&v->pins[i].key, key))
            continue;
        v->pins[i].slot->pins--;
        memmove(&v->pins[i], &v->pins[i + 1], (--v->n_pins - i) * sizeof v->pins[0]);
        return;
    }
}

static void drop_pin(struct conversation *v)
{
    if (v->pin)
        v->pin->pins--;
    v->pin = NULL;
}

static uint8_t remove_key(struct conversation *v, const struct penstock_key *key)
{
    struct cache_slot *slot = find(v->c, key);
    if (slot)
        slot->committed = false;
    return PENSTOCK_ST_OK;
}

/* ---- requests ---- */

static uint32_t any(struct cache_peer *c, uint32_t below)
{
    c->nonsense = c->nonsense * 1664525 + 1013904223;
    return (c->nonsense >> 8) % below;
}

/* Any status, with any offset: of a slot, of none, or beyond the arena. Seldom a byte too many. */
static void answer_nonsense(struct conversation *v, uint8_t op)
{
    struct penstock_paging_reply reply = { .status = (uint8_t)(any(v->c, 4) ? 0 : any(v->c, 5)) };
    uint8_t bytes[PENSTOCK_PAGING_REPLY_BYTES_MAX + 1] = { 0 };
    reply.value = (uint64_t)any(v->c, CACHE_SLOTS) * CACHE_BLOB + (any(v->c, 8) ? 0 : any(v->c, 1u << 20));
    penstock_paging_reply_encode(op, &reply, bytes);
    (void)!send(v->fd, bytes, penstock_paging_reply_size(op, &reply) + !any(v->c, 64), MSG_NOSIGNAL);
}

static void answer(struct conversation *v, uint8_t op, uint8_t status, uint64_t value)
{
    if (v->c->nonsense && op != PENSTOCK_OP_FEATURES) {
        answer_nonsense(v, op);
        return;
    }
    uint8_t bytes[PENSTOCK_PAGING_REPLY_BYTES_MAX];
    const struct penstock_paging_reply reply = { .status = status, .value = value };
    penstock_paging_reply_encode(op, &reply, bytes);
    (void)!send(v->fd, bytes, penstock_paging_reply_size(op, &reply), MSG_NOSIGNAL);
    if (status == PENSTOCK_ST_ERR)
        atomic_fetch_add(&v->c->errors, 1);
}

static void answer_keys(struct conversation *v, const struct penstock_paging_request *r)
{
    bool many = r->op == PENSTOCK_OP_MGET;
    atomic_fetch_add(many ? &v->c->mget_keys : &v->c->released, r->n_keys);
    if (many && r->n_keys > atomic_load(&v->c->most_keys))
        atomic_store(&v->c->most_keys, r->n_keys);
    for (uint32_t i = 0; i < r->n_keys; i++) {
        uint64_t value = 0;
        if (!many)
            release(v, &r->keys[i]);
        else
            answer(v, r->op, get(v, &r->keys[i], true, &value), value);
    }
    if (!many)
        answer(v, r->op, PENSTOCK_ST_OK, 0);
}

static void answer_request(struct conversation *v, const struct penstock_paging_request *r)
{
    uint64_t value = 0;
    uint8_t status = PENSTOCK_ST_ERR;
    bool ours = !v->c->frozen;
    if (r->op < PENSTOCK_OP_PUT || (r->op == PENSTOCK_OP_FEATURES && v->c->frozen))
        drop_pin(v);
    if (r->op == PENSTOCK_OP_ALLOC)
        status = alloc(v, &r->key, &value);
    else if (r->op == PENSTOCK_OP_COMMIT)
        status = commit(v, &r->key);
    else if (r->op == PENSTOCK_OP_GET)
        status = get(v, &r->key, false, &value);
    else if (r->op == PENSTOCK_OP_REMOVE)
        status = remove_key(v, &r->key);
    else if (r->op == PENSTOCK_OP_EXISTS && ours)
        status = find(v->c, &r->key) ? PENSTOCK_ST_OK : PENSTOCK_ST_MISS;
    else if (r->op == PENSTOCK_OP_FEATURES && ours)
        status = PENSTOCK_ST_OK, value = v->framing.tcp ? 0xD : 0xF;
    else if ((r->op == PENSTOCK_OP_OWN || r->op == PENSTOCK_OP_WIDE) && ours)
        status = PENSTOCK_ST_OK;
    if ((r->op == PENSTOCK_OP_MGET || r->op == PENSTOCK_OP_RELEASE) && ours)
        answer_keys(v, r);
    else
        answer(v, r->op, status, value);
    if (r->op == PENSTOCK_OP_WIDE)
        v->framing.wide = r->value != 0;
}

static void converse(struct conversation *v)
{
    static _Thread_local struct penstock_key keys[PENSTOCK_KEYS_MAX];
    uint8_t in[20000];
    size_t n = 0;
    ssize_t got;
    while ((got = recv(v->fd, in + n, sizeof in - n, 0)) > 0) {
        size_t at = 0, consumed;
        unsigned together = 0;
        struct penstock_paging_request r;
        struct penstock_wire_fault fault;
        n += (size_t)got;
        atomic_fetch_add(&v->c->control_bytes, (unsigned long)got);
        while (penstock_paging_request_decode(in + at, n - at, &v->framing, keys, &r, &consumed, &fault) ==
               PENSTOCK_DECODE_OK) {
            at += consumed;
            if (++together > atomic_load(&v->c->most_unanswered))
                atomic_store(&v->c->most_unanswered, together);
            while ((v->c->held_at == 0 || r.op == v->c->held_at) && atomic_load(&v->c->held))
                sched_yield();
            atomic_fetch_add(&v->c->asked[r.op], 1);
            if (v->c->close_at != 0 && r.op == v->c->close_at)
                return;
            pthread_mutex_lock(&v->c->lock);
            answer_request(v, &r);
            pthread_mutex_unlock(&v->c->lock);
        }
        memmove(in, in + at, n -= at);
    }
}

/* Once its rails are gone. */
static void forget(struct conversation *v)
{
    pthread_mutex_lock(&v->c->lock);
    drop_pin(v);
    for (size_t i = 0; i < v->n_pins; i++)
        v->pins[i].slot->pins--;
    for (size_t i = 0; i < CACHE_SLOTS; i++)
        if (v->c->slots[i].reserved_by == v->fd)
            v->c->slots[i].reserved_by = 0;
    pthread_mutex_unlock(&v->c->lock);
}

/* ---- a connection ---- */

static void write_used(struct json_writer *w, const char *of)
{
    json_write_key(w, of);
    json_write_object(w);
    json_write_key_u64(w, "used", 0);
    json_write_key_u64(w, "cap", 0);
    json_write_object_end(w);
}

static void send_statistics(struct verbs_peer *p, int fd)
{
    struct base_buf json = { 0 };
    struct json_writer w = { .buf = &json };
    json_write_object(&w);
    json_write_key_u64(&w, "version", 1);
    write_used(&w, "memory");
    write_used(&w, "swap");
    json_write_key(&w, "arenas");
    json_write_array(&w);
    json_write_array_end(&w);
    json_write_key(&w, "rails");
    rail_listing_write(&w, p->lists_none ? NULL : &p->devices);
    json_write_object_end(&w);
    uint32_t len = (uint32_t)json.n;
    (void)!send(fd, &len, sizeof len, MSG_NOSIGNAL);
    (void)!send(fd, json.at, json.n, MSG_NOSIGNAL);
    base_buf_fini(&json);
}

static void idle(struct cache_peer *c, int fd)
{
    uint8_t byte;
    while (recv(fd, &byte, 1, 0) > 0)
        atomic_fetch_add(&c->raw_bytes, 1);
}

static void serve_arena(struct cache_peer *c, int fd, bool raw)
{
    static const struct net_handshake_deadlines deadlines = { .patient_ns = 20000000000, .message_ns = 20000000000 };
    struct net_rail_ops ops = rail_set_ops;
    struct net_stream stream;
    struct rail_set set;
    size_t n = 0;
    struct penstock_error error;
    const struct rail_set_config config = { .devices = &c->p.devices,
                                            .pds = c->p.pds,
                                            .at_peer = true,
                                            .access = VERBS_REMOTE_READ | VERBS_REMOTE_WRITE | VERBS_LOCAL_WRITE,
                                            .depth = 1,
                                            .sges_max = 1,
                                            .tables = c->p.tables };
    if (c->frozen)
        ops.choose = NULL;
    rail_set_init(&set, &config);
    net_stream_plain(&stream, fd);
    const struct net_handshake_config h = { .dialect = PENSTOCK_READ_WRITE,
                                            .ops = &ops,
                                            .rails = &set,
                                            .n_rails = c->p.lists_none ? 0 : c->p.devices.n,
                                            .tcp = !c->frozen };
    if (net_handshake_as_peer(&stream, &h, &deadlines, &n, &error) == 0) {
        struct conversation v = { .c = c, .fd = fd, .framing.tcp = n == 0 };
        atomic_store(&c->p.rails_granted, (unsigned)n);
        atomic_fetch_add(&c->p.shaken, 1);
        if (raw)
            idle(c, fd);
        else
            converse(&v);
        shutdown(fd, SHUT_RDWR); /* before the rails go: the client is to know why */
        rail_set_fini(&set);
        forget(&v);
    }
    rail_set_fini(&set);
}

static void serve(struct verbs_peer *p, int fd)
{
    struct cache_peer *c = p->service_data;
    uint8_t bytes[PENSTOCK_PAGING_HEADER_BYTES];
    struct penstock_paging_header header;
    struct penstock_wire_fault fault;
    size_t consumed;
    if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes ||
        penstock_paging_header_decode(bytes, sizeof bytes, &header, &consumed, &fault) != PENSTOCK_DECODE_OK)
        return;
    atomic_fetch_add(&p->asked, 1);
    if (header.kind != PENSTOCK_ARENA_STATISTICS)
        serve_arena(c, fd, header.blob_bytes == 0);
    else if (!c->frozen)
        send_statistics(p, fd);
}

/* ---- its life ---- */

void cache_peer_begin(struct cache_peer *c, size_t rails)
{
    c->p.service = serve;
    c->p.service_data = c;
    c->p.arena_bytes = (uint64_t)CACHE_SLOTS * CACHE_BLOB;
    pthread_mutex_init(&c->lock, NULL);
    verbs_peer_begin(&c->p, rails);
}

void cache_peer_end(struct cache_peer *c)
{
    verbs_peer_end(&c->p);
    pthread_mutex_destroy(&c->lock);
}

const uint8_t *cache_peer_blob(struct cache_peer *c, uint64_t key)
{
    const struct penstock_key wanted = { .low = key };
    pthread_mutex_lock(&c->lock);
    const struct cache_slot *slot = find(c, &wanted);
    pthread_mutex_unlock(&c->lock);
    return slot ? c->p.regions[0] + (size_t)(slot - c->slots) * CACHE_BLOB : NULL;
}

size_t cache_peer_in_use(struct cache_peer *c)
{
    size_t n = 0;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < CACHE_SLOTS; i++)
        n += c->slots[i].pins > 0 || c->slots[i].reserved_by != 0;
    pthread_mutex_unlock(&c->lock);
    return n;
}

#include "cache_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_rig.h"

enum { CLIENTS = 5, KEYS = 24, SLOTS_MAX = 40, PINS = 12 };

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))
__attribute__((noreturn)) static void fail(const char *what, int line)
{
    fprintf(stderr, "cache_model.c:%d: %s\n", line, what);
    abort();
}

/* What a client has been promised: a slot that says so until it lets go. */
struct held {
    bool held;
    uint64_t key, what, offset;
};

struct user {
    struct residency_client *client;
    bool own;
    struct held reserved[KEYS];
    struct held got;
    struct held pins[PINS]; /* in the order they came */
    size_t n_pins;
    struct held put, fetch;
    struct residency_copy put_copy, fetch_copy;
};

struct model {
    struct rig rig;
    cache_model_choose *choose;
    void *user;
    bool over;
    uint32_t slots;
    uint64_t last_what;
    struct {
        uint64_t what; /* 0: none */
        int owner;     /* of the blob, -1: nobody */
    } keys[KEYS];
    struct user users[CLIENTS];
    uint64_t losses; /* misses that the reference had no reason for */
    uint64_t damaged;
    uint64_t drops; /* of caches that were killed */
    bool failing;   /* the disk is, now */
    bool failed;    /* it was, in this life of the cache */
};

static uint64_t choose(struct model *m, uint64_t below)
{
    return m->over ? 0 : m->choose(m->user, below, &m->over);
}

static uint32_t quarter(const struct model *m)
{
    return m->slots < 8 ? 1 : m->slots / 4;
}

/* ---- the reference ---- */

static void each_held(struct model *m, void (*each)(struct model *m, struct user *u, struct held *held, void *context),
                      void *context)
{
    for (struct user *u = m->users; u < m->users + CLIENTS; u++) {
        for (size_t i = 0; i < KEYS; i++)
            each(m, u, &u->reserved[i], context);
        for (size_t i = 0; i < u->n_pins; i++)
            each(m, u, &u->pins[i], context);
        each(m, u, &u->got, context);
        each(m, u, &u->put, context);
        each(m, u, &u->fetch, context);
    }
}

static void mark_busy(struct model *m, struct user *u, struct held *held, void *context)
{
    (void)m, (void)u;
    if (held->held)
        ((bool *)context)[held->offset / RIG_BLOB] = true;
}

static uint32_t busy_slots(struct model *m)
{
    bool busy[SLOTS_MAX] = { 0 };
    uint32_t n = 0;
    each_held(m, mark_busy, busy);
    for (size_t i = 0; i < SLOTS_MAX; i++)
        n += busy[i];
    return n;
}

static void check_apart(struct model *m, struct user *u, struct held *held, void *context)
{
    (void)m, (void)u;
    const struct held *new = context;
    CHECK(!held->held || held == new || held->offset != new->offset);
}

/* Nobody else has the slot that somebody may now write. */
static void reserve(struct model *m, struct user *u, struct held *held, uint64_t key, uint64_t offset)
{
    CHECK(offset % RIG_BLOB == 0 && offset / RIG_BLOB < m->slots);
    *held = (struct held){ .held = true, .key = key, .what = ++m->last_what, .offset = offset };
    each_held(m, check_apart, held);
    rig_fill(rig_blob(u->client, offset), held->what);
}

static void check_content(struct model *m, struct user *u, struct held *held, void *context)
{
    (void)m, (void)context;
    if (held->held)
        CHECK(rig_begins(rig_blob(u->client, held->offset), held == &u->fetch ? u->fetch_copy.here_bytes : RIG_BLOB,
                         held->what));
}

static void forget(struct model *m, uint64_t key)
{
    m->keys[key].what = 0;
    m->keys[key].owner = -1;
}

static void publish(struct model *m, struct user *u, struct held *held)
{
    m->keys[held->key].what = held->what;
    m->keys[held->key].owner = u->own ? (int)(u - m->users) : -1;
    held->held = false;
}

static uint64_t lost_on_purpose(struct model *m)
{
    return rig_stats(&m->rig).drops + m->drops + m->damaged;
}

/* A hit says what was committed last; a miss of what is there must be one of those that the cache counts. */
static bool check_found(struct model *m, uint64_t key, enum residency_status status, const void *blob, uint64_t bytes,
                        bool limited)
{
    if (status == RESIDENCY_OK) {
        CHECK(!limited && m->keys[key].what != 0);
        CHECK(rig_begins(blob, bytes, m->keys[key].what));
        return true;
    }
    if (status == RESIDENCY_MISS) {
        m->losses += m->keys[key].what != 0;
        CHECK(m->losses <= lost_on_purpose(m));
        forget(m, key);
        return false;
    }
    CHECK(limited || m->failing || busy_slots(m) == m->slots);
    return false;
}

static struct held pinned(const struct model *m, uint64_t key, uint64_t offset)
{
    return (struct held){ .held = true, .key = key, .what = m->keys[key].what, .offset = offset };
}

/* ---- operations ---- */

static void do_alloc(struct model *m, struct user *u, uint64_t key)
{
    size_t n = 0;
    uint64_t offset;
    u->got.held = false;
    for (size_t i = 0; i < KEYS; i++)
        n += u->reserved[i].held;
    enum residency_status status = residency_alloc(u->client, rig_key(key), &offset);
    if (u->reserved[key].held)
        CHECK(status == RESIDENCY_OK && offset == u->reserved[key].offset);
    else if (n >= quarter(m))
        CHECK(status == RESIDENCY_ERR);
    else if (status == RESIDENCY_OK)
        reserve(m, u, &u->reserved[key], key, offset);
    else
        CHECK(status == RESIDENCY_ERR && (m->failing || busy_slots(m) == m->slots));
}

static void do_commit(struct model *m, struct user *u, uint64_t key)
{
    u->got.held = false;
    enum residency_status status = residency_commit(u->client, rig_key(key));
    if (!u->reserved[key].held) {
        CHECK(status == RESIDENCY_ERR || m->keys[key].what != 0);
        return;
    }
    CHECK(status == RESIDENCY_OK);
    publish(m, u, &u->reserved[key]);
}

static void do_get(struct model *m, struct user *u, uint64_t key)
{
    uint64_t offset = 0;
    u->got.held = false;
    bool limited = u->n_pins >= quarter(m);
    enum residency_status status = residency_get(u->client, rig_key(key), &offset);
    if (check_found(m, key, status, rig_blob(u->client, offset), RIG_BLOB, limited))
        u->got = pinned(m, key, offset);
}

static void do_mget(struct model *m, struct user *u, uint64_t key)
{
    uint64_t offset = 0;
    bool limited = u->n_pins + u->got.held >= quarter(m);
    enum residency_status status = residency_mget(u->client, rig_key(key), &offset);
    if (check_found(m, key, status, rig_blob(u->client, offset), RIG_BLOB, limited))
        u->pins[u->n_pins++] = pinned(m, key, offset);
}

static void do_release(struct user *u, uint64_t key)
{
    residency_mget_release(u->client, rig_key(key));
    for (size_t i = 0; i < u->n_pins; i++)
        if (u->pins[i].key == key) {
            memmove(&u->pins[i], &u->pins[i + 1], (--u->n_pins - i) * sizeof *u->pins);
            return;
        }
}

static void do_remove(struct model *m, struct user *u, uint64_t key)
{
    u->got.held = false;
    CHECK(residency_remove(u->client, rig_key(key)) == RESIDENCY_OK);
    u->reserved[key].held = false;
    forget(m, key);
    CHECK(residency_exists(u->client, rig_key(key)) == RESIDENCY_MISS);
}

static void do_exists(struct model *m, struct user *u, uint64_t key)
{
    enum residency_status status = residency_exists(u->client, rig_key(key));
    if (status == RESIDENCY_OK) {
        CHECK(m->keys[key].what != 0);
        return;
    }
    m->losses += m->keys[key].what != 0;
    CHECK(m->losses <= lost_on_purpose(m));
    forget(m, key);
}

/* A put or a fetch over TCP, begun, or ended as it may be. */
static void do_put(struct model *m, struct user *u, uint64_t key)
{
    if (!u->put.held) {
        if (residency_put_begin(u->client, rig_key(key), &u->put_copy) == RESIDENCY_OK)
            reserve(m, u, &u->put, key, (uint64_t)(u->put_copy.blob - (uint8_t *)residency_memory(u->client).base));
        else
            CHECK(m->failing || busy_slots(m) == m->slots);
    } else if (key % 4 == 0) {
        residency_put_abandon(u->client, &u->put_copy);
        u->put.held = false;
    } else {
        CHECK(residency_put_commit(u->client, &u->put_copy) == RESIDENCY_OK);
        publish(m, u, &u->put);
    }
}

/* The rest of a blob whose first bytes are there: what has become of its key meanwhile is nothing to it. */
static void do_fetch_more(struct model *m, struct user *u)
{
    enum residency_status status = residency_fetch_more(u->client, &u->fetch_copy);
    u->fetch.held = status == RESIDENCY_OK;
    CHECK(u->fetch.held == (u->fetch_copy.blob != NULL));
    CHECK(status != RESIDENCY_MISS || m->damaged > 0);
    CHECK(status != RESIDENCY_ERR || m->failed);
    check_content(m, u, &u->fetch, NULL);
}

static void do_fetch(struct model *m, struct user *u, uint64_t key)
{
    if (u->fetch.held && u->fetch_copy.here_bytes < RIG_BLOB && key % 3 > 0) {
        do_fetch_more(m, u);
        return;
    }
    if (u->fetch.held) {
        residency_fetch_end(u->client, &u->fetch_copy);
        u->fetch.held = false;
        return;
    }
    enum residency_status status = residency_fetch_begin(u->client, rig_key(key), key % 5 > 0, &u->fetch_copy);
    const uint8_t *blob = u->fetch_copy.blob;
    if (check_found(m, key, status, blob, u->fetch_copy.here_bytes, false))
        u->fetch = pinned(m, key, (uint64_t)(blob - (uint8_t *)residency_memory(u->client).base));
}

static void join(struct model *m, struct user *u)
{
    *u = (struct user){ .client = rig_join(&m->rig, m->slots) };
    m->slots = (uint32_t)(residency_memory(u->client).len_bytes / RIG_BLOB);
}

static void end(struct model *m, struct user *u)
{
    if (u->put.held)
        residency_put_abandon(u->client, &u->put_copy);
    if (u->fetch.held)
        residency_fetch_end(u->client, &u->fetch_copy);
    residency_client_free(u->client);
    *u = (struct user){ 0 };
    for (uint64_t key = 0; key < KEYS; key++)
        if (m->keys[key].owner == (int)(u - m->users))
            forget(m, key);
}

/* What comes back after a kill may be less, never older: a miss is no loss then. */
static void kill_and_restart(struct model *m)
{
    struct residency_swap *killed = fake_swap_after_kill(m->rig.swap);
    *fake_swap_control(m->rig.swap) = (struct fake_swap_control){ 0 };
    for (struct user *u = m->users; u < m->users + CLIENTS; u++)
        end(m, u);
    m->drops += rig_stats(&m->rig).drops;
    rig_restart(&m->rig, killed);
    const struct fake_swap_control *disk = fake_swap_control(killed);
    m->failing = m->failed = disk->write_errno || disk->read_errno || disk->disk_full;
    for (struct user *u = m->users; u < m->users + CLIENTS; u++)
        join(m, u);
    for (uint64_t key = 0; key < KEYS; key++)
        if (residency_exists(m->users[0].client, rig_key(key)) == RESIDENCY_MISS)
            forget(m, key);
        else
            CHECK(m->keys[key].what != 0);
}

static void change_the_disk(struct model *m)
{
    struct fake_swap_control *control = fake_swap_control(m->rig.swap);
    uint64_t what = choose(m, 12);
    control->write_errno = what == 1 ? ENOSPC : 0;
    control->read_errno = what == 2 ? EIO : 0;
    control->disk_full = what == 3;
    m->failing = what >= 1 && what <= 3;
    m->failed |= m->failing;
}

static void misfortune(struct model *m)
{
    uint64_t what = choose(m, 16), key = choose(m, KEYS);
    if (what < 6) {
        struct user *u = &m->users[choose(m, CLIENTS)];
        end(m, u);
        join(m, u);
    } else if (what < 9) {
        change_the_disk(m);
    } else if (what < 11) {
        m->damaged += fake_swap_damage(m->rig.swap, rig_key(key));
    } else if (what < 15) {
        rig_pass_s((int64_t)choose(m, 20));
        residency_sweep(m->rig.cache);
    } else if (m->rig.options.swap) {
        kill_and_restart(m);
    }
}

/* The client's next reservation from that key on, or that key. */
static uint64_t reserved_key(const struct user *u, uint64_t key)
{
    for (uint64_t i = 0; i < KEYS; i++)
        if (u->reserved[(key + i) % KEYS].held)
            return (key + i) % KEYS;
    return key;
}

static void do_something_else(struct model *m, struct user *u, uint64_t key)
{
    switch (choose(m, 5)) {
    case 0:
        do_remove(m, u, key);
        break;
    case 1:
        residency_prefetch(u->client, rig_key(key));
        break;
    case 2:
        u->own = key % 3 == 0;
        residency_own(u->client, u->own);
        break;
    case 3:
        do_commit(m, u, key);
        break;
    default:
        residency_let_go(u->client);
        u->got.held = false;
    }
}

static void do_something(struct model *m, struct user *u, uint64_t key)
{
    static void (*const often[])(struct model * m, struct user * u, uint64_t key) = {
        do_alloc, do_alloc, do_get, do_get, do_get, do_mget, do_exists, do_put, do_put, do_put, do_fetch, do_fetch,
    };
    uint64_t what = choose(m, 20);
    if (what < sizeof often / sizeof *often)
        often[what](m, u, key);
    else if (what < 15)
        do_commit(m, u, reserved_key(u, key));
    else if (what < 17)
        do_release(u, u->n_pins > 0 ? u->pins[0].key : key);
    else
        do_something_else(m, u, key);
}

static void count_reserved(struct model *m, struct user *u, struct held *held, void *context)
{
    (void)m;
    if (held->held && (held == &u->put || (held >= u->reserved && held < u->reserved + KEYS)))
        ++*(uint64_t *)context;
}

static void check_all(struct model *m)
{
    struct residency_arena_stats stats = rig_stats(&m->rig);
    uint64_t reserved = 0;
    each_held(m, check_content, NULL);
    each_held(m, count_reserved, &reserved);
    CHECK(stats.reserved == reserved);
    CHECK(stats.reserved + stats.pinned == busy_slots(m));
    CHECK(stats.resident <= stats.slots && stats.connections == CLIENTS);
    CHECK(stats.errors == 0 || m->failed || m->damaged > 0);
}

static void begin(struct model *m)
{
    static const uint32_t sizes[] = { 1, 2, 3, 8, 12, 20, SLOTS_MAX };
    uint64_t how = choose(m, 8);
    m->slots = sizes[choose(m, sizeof sizes / sizeof *sizes)];
    rig_init(&m->rig);
    fake_swap_control(m->rig.swap)->random = 1 + choose(m, 1u << 16);
    fake_swap_control(m->rig.swap)->cap_records = how == 1 ? 6 : 0;
    fake_swap_control(m->rig.swap)->pieces = choose(m, 4) > 0;
    fake_swap_control(m->rig.swap)->cap_kind_records = how == 2 ? 1 : 0;
    m->rig.options.ram_only = how == 3;
    m->rig.options.swap = how == 3 ? NULL : m->rig.swap;
    m->rig.options.ttl_s[RESIDENCY_KV] = how == 4 ? 15 : 0;
    m->rig.options.keep = true;
    rig_start(&m->rig);
    for (uint64_t key = 0; key < KEYS; key++)
        forget(m, key);
    for (struct user *u = m->users; u < m->users + CLIENTS; u++)
        join(m, u);
}

static void finish(struct model *m)
{
    check_all(m);
    for (struct user *u = m->users; u < m->users + CLIENTS; u++)
        end(m, u);
    rig_land_all(&m->rig);
    struct residency_arena_stats stats = rig_stats(&m->rig);
    CHECK(stats.reserved == 0 && stats.pinned == 0 && stats.connections == 0);
    rig_stop(&m->rig);
}

uint64_t cache_model_run(cache_model_choose *choose_one, void *user, uint64_t operations)
{
    struct model *m = calloc(1, sizeof *m);
    CHECK(m);
    m->choose = choose_one;
    m->user = user;
    begin(m);
    uint64_t done = 0;
    for (; done < operations && !m->over; done++) {
        if (choose(m, 256) == 0)
            misfortune(m);
        struct user *u = &m->users[choose(m, CLIENTS)];
        do_something(m, u, choose(m, KEYS));
        if (choose(m, 4) == 0)
            (void)fake_swap_land(m->rig.swap);
        if (done % 64 == 0)
            check_all(m);
    }
    finish(m);
    free(m);
    return done;
}

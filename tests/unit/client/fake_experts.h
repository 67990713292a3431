/* A small expert store, and the peer that serves it in the test's own thread. */
#ifndef PENSTOCK_TEST_FAKE_EXPERTS_H
#define PENSTOCK_TEST_FAKE_EXPERTS_H

#include "client/experts/experts.h"
#include "fake_peer.h"

enum { STORE_LAYERS = 3, STORE_EXPERTS = 40 };

static inline struct model_expert_manifest store_manifest(const char *model_version)
{
    static const uint32_t model_layers[STORE_LAYERS] = { 1, 3, 4 };
    const struct model_expert_geometry given = { .num_moe_layers = STORE_LAYERS,
                                                 .num_experts = STORE_EXPERTS,
                                                 .inter = 32,
                                                 .hidden = 64,
                                                 .group_size = 16,
                                                 .sub_align = MODEL_EXPERT_SUB_ALIGN,
                                                 .fs_block_size = MODEL_EXPERT_FS_BLOCK };
    struct model_expert_manifest m;
    assert_int_equal(model_expert_manifest_init(&m, &given, model_layers, NULL), 0);
    if (model_version)
        snprintf(m.model_version, sizeof m.model_version, "%s", model_version);
    return m;
}

/* NUL-terminated, of malloc. */
static inline char *store_json(const char *model_version)
{
    struct model_expert_manifest m = store_manifest(model_version);
    struct base_buf json = { 0 };
    assert_int_equal(model_expert_manifest_write(&m, false, &json, NULL), 0);
    char *text = calloc(1, json.n + 1);
    memcpy(text, json.at, json.n);
    base_buf_fini(&json);
    model_expert_manifest_fini(&m);
    return text;
}

static inline uint64_t store_stride(void)
{
    struct model_expert_manifest m = store_manifest(NULL);
    uint64_t stride = m.geometry.record_stride;
    model_expert_manifest_fini(&m);
    return stride;
}

/* The record of (layer, expert), as in the layer's file. */
static inline void store_record(uint32_t layer, uint32_t expert, uint8_t *out)
{
    const struct penstock_record_header header = { .layer = layer,
                                                   .expert = expert,
                                                   .inter = 32,
                                                   .hidden = 64,
                                                   .group_size = 16,
                                                   .input_scale_flags = 5,
                                                   .scale2 = { 0.5F, (float)layer, (float)expert },
                                                   .input_scale = { 1.5F, 0, 2.5F } };
    uint64_t stride = store_stride();
    for (uint64_t i = PENSTOCK_RECORD_HEADER_BYTES; i < stride; i++)
        out[i] = fake_byte(layer << 16 | expert, i);
    penstock_record_header_encode(&header, out);
}

static inline void assert_record(const struct penstock_session *s, uint64_t slot, uint32_t layer, uint32_t expert)
{
    struct penstock_expert at = { .size = sizeof at };
    struct penstock_expert_geometry g = { .size = sizeof g };
    uint8_t *want = malloc(store_stride());
    store_record(layer, expert, want);
    assert_int_equal(penstock_expert_at(s, slot, &at), 0);
    assert_int_equal(penstock_experts_geometry(s, &g), 0);
    assert_int_equal(at.layer, layer);
    assert_int_equal(at.expert, expert);
    for (size_t i = 0; i < PENSTOCK_EXPERT_PARTS; i++)
        assert_memory_equal(at.parts[i], want + g.part_offset[i], g.part_bytes[i]);
    assert_true(at.scale2[0] == 0.5F && at.scale2[1] == (float)layer && at.scale2[2] == (float)expert);
    assert_true(at.input_scale[0] == 1.5F && at.input_scale[1] == 0 && at.input_scale[2] == 2.5F);
    assert_int_equal(at.input_scale_flags, 5);
    free(want);
}

/* ---- over TCP, by a peer in the test's own thread ---- */

static inline struct fake_peer experts_begin(const char *model_version, const struct penstock_options *options)
{
    int fds[2];
    struct fake_peer f;
    struct net_stream stream;
    struct penstock_error error = { 0 };
    int room = 1 << 20;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    (void)setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    net_stream_plain(&stream, fds[1]);
    f.fd = fds[0];
    assert_int_equal(client_experts_on_stream(&stream, model_version, options, &f.session, &f.open, &error), 0);
    return f;
}

/* Past the mode byte, with an arena of the library's own. */
static inline struct fake_peer experts_ready(uint64_t slots)
{
    struct fake_peer f = experts_begin(NULL, NULL);
    struct penstock_completion c = { 0 };
    char *json = store_json("v1");
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_expect_nothing(&f); /* the peer speaks first */
    fake_send_text(&f, json);
    free(json);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, f.open);
    assert_int_equal(c.code, 0);
    fake_expect(&f, "\0", 1);
    const struct penstock_expert_arena arena = { .size = sizeof arena, .slots = slots };
    if (slots > 0)
        assert_int_equal(penstock_experts_arena(f.session, &arena, NULL), 0);
    return f;
}

static inline penstock_op fetch(struct penstock_session *s, uint32_t layer, uint32_t expert, uint64_t slot,
                                int priority)
{
    penstock_op op = 0;
    struct penstock_error error = { 0 };
    const struct penstock_fetch one = {
        .size = sizeof one, .layer = layer, .expert = expert, .slot = slot, .priority = priority
    };
    int code = penstock_submit_fetch(s, &one, &op, &error);
    if (code)
        print_error("%s\n", error.message);
    assert_int_equal(code, 0);
    return op;
}

static inline int fetch_fails(struct penstock_session *s, uint32_t layer, uint32_t expert, uint64_t slot)
{
    penstock_op op;
    struct penstock_error error = { 0 };
    const struct penstock_fetch one = { .size = sizeof one, .layer = layer, .expert = expert, .slot = slot };
    int code = penstock_submit_fetch(s, &one, &op, &error);
    assert_int_equal(code, error.code);
    assert_int_not_equal(error.message[0], 0);
    return code;
}

/* The next request that was sent. */
static inline struct penstock_expert_request asked_for(const struct fake_peer *f)
{
    uint8_t bytes[PENSTOCK_EXPERT_REQUEST_BYTES];
    struct penstock_expert_request r = { 0 };
    struct penstock_wire_fault fault;
    size_t consumed;
    assert_int_equal(recv(f->fd, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(penstock_expert_request_decode(bytes, sizeof bytes, &r, &consumed, &fault), PENSTOCK_DECODE_OK);
    return r;
}

static inline void send_record(const struct fake_peer *f, uint32_t layer, uint32_t expert)
{
    uint64_t stride = store_stride();
    uint8_t *reply = malloc(1 + stride);
    reply[0] = PENSTOCK_STATUS_OK;
    store_record(layer, expert, reply + 1);
    fake_send(f, reply, 1 + stride);
    free(reply);
}

#endif

#include "verbs_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

static const char manifest[] =
    "{\"version\":1,\"model_id\":\"/m\",\"shard_files\":[\"a.safetensors\",\"b.safetensors\"],"
    "\"shard_lens\":[100000,3145728],\"tensors\":[{\"name\":\"%s\",\"dtype\":\"U8\",\"shape\":[100],"
    "\"offset_in_shard\":8,\"len\":100,\"shard_index\":0,\"extra\":false}%s]%s}";
static const char ours[] = ",\"model_version\":\"v1\",\"files\":[{\"name\":\"config.json\",\"len\":50}]";

/* ---- the service ---- */

static bool read_all(int fd, void *to, size_t n)
{
    return recv(fd, to, n, MSG_WAITALL) == (ssize_t)n;
}

static void send_text(int fd, const char *text, size_t n)
{
    uint32_t len = (uint32_t)n;
    (void)!send(fd, &len, sizeof len, MSG_NOSIGNAL);
    (void)!send(fd, text, n, MSG_NOSIGNAL);
}

static void send_models(struct verbs_peer *p, int fd)
{
    struct base_buf json = { 0 };
    struct json_writer w = { .buf = &json };
    json_write_object(&w);
    json_write_key_u64(&w, "version", 1);
    json_write_key(&w, "models");
    json_write_array(&w);
    json_write_array_end(&w);
    json_write_key(&w, "rails");
    rail_listing_write(&w, p->lists_none ? NULL : &p->devices);
    json_write_object_end(&w);
    send_text(fd, (const char *)json.at, json.n);
    base_buf_fini(&json);
}

static void serve_tcp(struct verbs_peer *p, int fd)
{
    uint8_t bytes[PENSTOCK_RANGE_REQUEST_BYTES];
    while (read_all(fd, bytes, sizeof bytes)) {
        struct penstock_range_request r;
        struct penstock_wire_fault fault;
        size_t consumed;
        if (penstock_range_request_decode(bytes, sizeof bytes, &r, &consumed, &fault) != PENSTOCK_DECODE_OK)
            return;
        atomic_fetch_add(&p->over_tcp, 1);
        uint8_t ok = PENSTOCK_STATUS_OK;
        (void)!send(fd, &ok, 1, MSG_NOSIGNAL);
        if (r.file == PENSTOCK_FILE_DIGESTS) {
            uint8_t one[4 + PENSTOCK_DIGEST_BYTES] = { 1 };
            memset(one + 4, 0x5A, PENSTOCK_DIGEST_BYTES);
            (void)!send(fd, one, sizeof one, MSG_NOSIGNAL);
            continue;
        }
        uint8_t *payload = malloc(r.len);
        for (uint64_t i = 0; i < r.len; i++)
            payload[i] = fake_byte(r.file, r.offset + i);
        (void)!send(fd, payload, r.len, MSG_NOSIGNAL);
        free(payload);
    }
}

static void serve_rails(struct verbs_peer *p, int fd)
{
    static const struct net_handshake_deadlines deadlines = { .patient_ns = 20000000000, .message_ns = 20000000000 };
    static const struct net_rail_ops no_choice_yet;
    struct net_rail_ops ops = rail_set_ops;
    struct net_stream stream;
    struct rail_set set;
    size_t n = 0;
    struct penstock_error error;
    const struct rail_set_config config = { .devices = &p->devices,
                                            .pds = p->pds,
                                            .at_peer = true,
                                            .access = VERBS_REMOTE_READ,
                                            .depth = 1,
                                            .sges_max = 1,
                                            .tables = p->tables };
    if (p->frozen)
        ops.choose = no_choice_yet.choose;
    rail_set_init(&set, &config);
    net_stream_plain(&stream, fd);
    const struct net_handshake_config h = { .dialect = PENSTOCK_READ_ONLY,
                                            .ops = &ops,
                                            .rails = &set,
                                            .n_rails = p->devices.n,
                                            .n_regions = p->tables[0].n_regions };
    if (net_handshake_as_peer(&stream, &h, &deadlines, &n, &error) == 0) {
        uint8_t byte;
        atomic_store(&p->rails_granted, (unsigned)n);
        atomic_fetch_add(&p->shaken, 1);
        while (recv(fd, &byte, 1, 0) > 0)
            ;
    }
    shutdown(fd, SHUT_RDWR); /* before the rails go: the client is to know why */
    rail_set_fini(&set);
}

static void serve_records(struct verbs_peer *p, int fd)
{
    uint8_t bytes[PENSTOCK_EXPERT_REQUEST_BYTES];
    const uint64_t stride = store_stride();
    while (read_all(fd, bytes, sizeof bytes)) {
        struct penstock_expert_request r;
        struct penstock_wire_fault fault;
        size_t consumed;
        if (penstock_expert_request_decode(bytes, sizeof bytes, &r, &consumed, &fault) != PENSTOCK_DECODE_OK)
            return;
        atomic_fetch_add(&p->over_tcp, 1);
        uint8_t ok = PENSTOCK_STATUS_OK;
        (void)!send(fd, &ok, 1, MSG_NOSIGNAL);
        (void)!send(fd, p->regions[r.layer] + r.expert * stride, stride, MSG_NOSIGNAL);
    }
}

static void serve_experts(struct verbs_peer *p, int fd)
{
    uint8_t mode;
    char *json = store_json(p->frozen ? NULL : atomic_load(&p->changed) ? "v2" : "v1");
    send_text(fd, json, strlen(json));
    free(json);
    if (!read_all(fd, &mode, 1))
        return;
    if (mode == PENSTOCK_MODE_VERBS && !p->refuses_verbs)
        serve_rails(p, fd);
    else if (mode == PENSTOCK_MODE_TCP)
        serve_records(p, fd);
}

static void serve(struct verbs_peer *p, int fd)
{
    uint32_t len;
    char request[64] = { 0 }, text[2000];
    uint8_t mode;
    if (!read_all(fd, &len, sizeof len) || len >= sizeof request || !read_all(fd, request, len))
        return;
    atomic_fetch_add(&p->asked, 1);
    if (strcmp(request, "penstock:models") == 0 && !p->frozen) {
        send_models(p, fd);
        return;
    }
    if (strcmp(request, "penstock:join v1 m") == 0 && !p->frozen)
        snprintf(text, sizeof text, "{\"version\":1,\"model_version\":\"v1\"}");
    else if (strcmp(request, "m") == 0)
        snprintf(text, sizeof text, manifest, atomic_load(&p->changed) ? "another" : "t", p->tensors ? p->tensors : "",
                 p->frozen ? "" : ours);
    else
        return;
    send_text(fd, text, strlen(text));
    if (!read_all(fd, &mode, 1))
        return;
    if (mode == PENSTOCK_MODE_VERBS && !p->refuses_verbs)
        serve_rails(p, fd);
    else if (mode == PENSTOCK_MODE_TCP && !p->frozen)
        serve_tcp(p, fd);
}

struct serving {
    struct verbs_peer *peer;
    int fd;
};

static void *connection(void *arg)
{
    struct serving s = *(struct serving *)arg;
    free(arg);
    if (s.peer->service)
        s.peer->service(s.peer, s.fd);
    else if (s.peer->experts)
        serve_experts(s.peer, s.fd);
    else
        serve(s.peer, s.fd);
    shutdown(s.fd, SHUT_RDWR);
    return NULL;
}

static void *accept_all(void *arg)
{
    struct verbs_peer *p = arg;
    for (;;) {
        int fd = accept(p->listener, NULL, NULL);
        if (fd < 0)
            return NULL;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
        struct serving *s = malloc(sizeof *s);
        *s = (struct serving){ p, fd };
        pthread_mutex_lock(&p->lock);
        p->fds[p->n_connections] = fd;
        pthread_create(&p->threads[p->n_connections++], NULL, connection, s);
        pthread_mutex_unlock(&p->lock);
    }
}

/* ---- its life ---- */

static uint64_t fill_region(struct verbs_peer *p, uint32_t region)
{
    const uint64_t stride = store_stride();
    const uint64_t len_bytes = p->service    ? p->arena_bytes
                               : p->experts  ? STORE_EXPERTS * stride
                               : region == 0 ? PEER_SHARD0
                                             : PEER_SHARD1;
    p->regions[region] = calloc(1, len_bytes);
    for (uint32_t e = 0; p->experts && e < STORE_EXPERTS; e++)
        store_record(region, e, p->regions[region] + e * stride);
    for (uint64_t i = 0; !p->experts && !p->service && i < len_bytes; i++)
        p->regions[region][i] = fake_byte(region, i);
    return len_bytes;
}

static void publish(struct verbs_peer *p)
{
    uint64_t len_bytes[PEER_REGIONS_MAX];
    struct penstock_error error;
    unsigned access = p->service ? VERBS_REMOTE_READ | VERBS_REMOTE_WRITE | VERBS_LOCAL_WRITE : VERBS_REMOTE_READ;
    p->n_regions = p->service ? 1 : p->experts ? STORE_LAYERS : 2;
    for (size_t s = 0; s < p->n_regions; s++)
        len_bytes[s] = fill_region(p, (uint32_t)s);
    for (size_t i = 0; i < p->devices.n; i++) {
        assert_int_equal(verbs_pd_new(p->devices.devices[i], &p->pds[i], &error), 0);
        for (size_t s = 0; s < p->n_regions; s++) {
            assert_int_equal(verbs_mr_new(p->pds[i], p->regions[s], len_bytes[s], access, &p->mrs[i][s], &error), 0);
            p->layers[i][s] = (struct penstock_layer){ .base = p->mrs[i][s]->base, .rkey = p->mrs[i][s]->rkey };
        }
        p->tables[i] = (struct rail_table){ .regions = p->layers[i], .n_regions = p->n_regions - p->short_table };
    }
}

static void listen_on_loopback(struct verbs_peer *p)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof address;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(p->listener, 64), 0);
    assert_int_equal(getsockname(p->listener, (struct sockaddr *)&address, &len), 0);
    snprintf(p->name, sizeof p->name, "127.0.0.1:%u", ntohs(address.sin_port));
}

void verbs_peer_begin(struct verbs_peer *p, size_t rails)
{
    const struct sim_options options = { .automatic = true, .retry_ns = 1000000 };
    const struct rail_wishes all = { 0 };
    struct penstock_error error = { 0 };
    p->fabric = sim_new(&options);
    p->host = sim_host(p->fabric);
    p->client = sim_host(p->fabric);
    for (size_t i = 0; i < rails; i++) {
        char device[16];
        snprintf(device, sizeof device, "peer%zu", i);
        if (i < (p->n_rails ? p->n_rails : rails))
            p->theirs[i] = sim_port(p->host, device, NULL);
        snprintf(device, sizeof device, "nic%zu", i);
        p->ports[i] = sim_port(p->client, device, NULL);
    }
    assert_int_equal(rail_devices_open(p->host, &all, &p->devices, &error), 0);
    publish(p);
    pthread_mutex_init(&p->lock, NULL);
    listen_on_loopback(p);
    pthread_create(&p->acceptor, NULL, accept_all, p);
}

void verbs_peer_stop_listening(struct verbs_peer *p)
{
    if (p->listener < 0)
        return;
    shutdown(p->listener, SHUT_RDWR);
    pthread_join(p->acceptor, NULL);
    close(p->listener);
    p->listener = -1;
}

void verbs_peer_die(struct verbs_peer *p)
{
    verbs_peer_stop_listening(p);
    for (size_t i = 0; i < p->n_connections; i++)
        shutdown(p->fds[i], SHUT_RDWR);
    for (size_t i = 0; i < p->n_connections; i++) {
        pthread_join(p->threads[i], NULL);
        close(p->fds[i]);
    }
    p->n_connections = 0;
}

void verbs_peer_end(struct verbs_peer *p)
{
    verbs_peer_die(p);
    const struct sim_objects left = sim_host_objects(p->client);
    assert_int_equal(left.devices + left.pds + left.mrs + left.cqs + left.qps, 0);
    for (size_t i = 0; i < p->devices.n; i++) {
        for (size_t s = 0; s < p->n_regions; s++)
            verbs_mr_free(p->mrs[i][s]);
        verbs_pd_free(p->pds[i]);
    }
    rail_devices_close(&p->devices);
    for (size_t s = 0; s < p->n_regions; s++)
        free(p->regions[s]);
    pthread_mutex_destroy(&p->lock);
    sim_free(p->fabric);
}

/* ---- the client's end ---- */

static int open_session(struct verbs_peer *p, const struct penstock_options *options, struct penstock_session **s,
                        struct penstock_error *error)
{
    penstock_op op;
    int code = p->experts ? client_experts_start(p->client, p->name, NULL, options, s, &op, error)
                          : client_session_in_world(p->client, p->name, options, CLIENT_FOR_MANIFEST, "m", NULL, s, &op,
                                                    error);
    if (code)
        return code;
    code = penstock_wait(*s, op, NULL, error);
    if (code)
        penstock_session_free(*s);
    return code;
}

struct penstock_session *verbs_open(struct verbs_peer *p, const struct penstock_options *options)
{
    struct penstock_session *s = NULL;
    struct penstock_error error = { 0 };
    int code = open_session(p, options, &s, &error);
    if (code)
        print_error("%s\n", error.message);
    assert_int_equal(code, 0);
    return s;
}

int verbs_open_fails(struct verbs_peer *p, const struct penstock_options *options, struct penstock_error *error)
{
    struct penstock_session *s = NULL;
    int code = open_session(p, options, &s, error);
    assert_int_not_equal(code, 0);
    return code;
}

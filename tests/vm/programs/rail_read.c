/* A client's rails with nothing above them: READs lists of ranges through the rail engine and says how long each took
 * and exactly what was posted for it.
 *
 *     rail_read [--rails WISHES] [--reads N] [--outstanding N] PEER MODEL SHARD < LISTS
 *
 * Each line of standard input is a list of BYTES of shard 0, which has to hold what SHARD does:
 *     whole BYTES            one range
 *     order PIECE BYTES      pieces that touch, in order, as tensors lie in a file
 *     scattered PIECE BYTES  every other piece, shuffled, landing one behind the other: nothing to join
 * and each is answered with a line of JSON. --reads N: READs outstanding a rail as agreed with the peer (all that both
 * devices can); --outstanding N: work requests outstanding on all rails together (no limit). Every byte is compared. */
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "model/manifest.h"
#include "net/address.h"
#include "rail/engine.h"

#define LIST_BYTES_MAX ((uint64_t)64 << 20)
#define SPIN_NS INT64_C(50000) /* before waiting: as a client does */
#define SHARDS_MAX 16
#define TIMEOUT_NS (INT64_C(60) * 1000000000)

static struct {
    const char *rails;
    unsigned long reads, outstanding;
} options = { .rails = "auto" };

static struct {
    struct rail_devices devices;
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX];
    struct net_stream control;
    struct rail_engine *engine;
    struct rail_memory memory;
    uint64_t shard_bytes[SHARDS_MAX];
    size_t n_shards;
    const uint8_t *shard; /* what shard 0 holds */
    struct rail_range *ranges;
    size_t n_ranges;
} client;

static struct penstock_error error;

static void must(int code, const char *what)
{
    if (code >= 0)
        return;
    fprintf(stderr, "rail_read: %s: %s\n", what, error.message);
    exit(1);
}

static void *must_have(void *pointer, const char *what)
{
    if (!pointer || pointer == MAP_FAILED) {
        fprintf(stderr, "rail_read: %s: %m\n", what);
        exit(1);
    }
    return pointer;
}

/* ---- connecting ---- */

static void ask(const char *peer, const char *model)
{
    int fd;
    must(net_dial(peer, 9910, TIMEOUT_NS, &fd, &error), peer);
    net_stream_plain(&client.control, fd);
    uint32_t len = (uint32_t)strlen(model); /* little-endian, as this machine is */
    must(net_stream_write_all(&client.control, &len, sizeof len, TIMEOUT_NS, &error), "request");
    must(net_stream_write_all(&client.control, model, len, TIMEOUT_NS, &error), "request");
}

static void read_manifest(void)
{
    uint32_t len;
    struct model_manifest manifest;
    must(net_stream_read_all(&client.control, &len, sizeof len, TIMEOUT_NS, NULL, &error), "manifest");
    char *json = must_have(malloc((size_t)len + MODEL_JSON_PADDING), "manifest");
    must(net_stream_read_all(&client.control, json, len, TIMEOUT_NS, NULL, &error), "manifest");
    must(model_manifest_read(json, len, (size_t)len + MODEL_JSON_PADDING, &manifest, &error), "manifest");
    client.n_shards = manifest.shards.n < SHARDS_MAX ? manifest.shards.n : SHARDS_MAX;
    for (size_t i = 0; i < client.n_shards; i++)
        client.shard_bytes[i] = manifest.shards.at[i].len_bytes;
    model_manifest_fini(&manifest);
    free(json);
}

static void connect_rails(struct rail_set *set)
{
    struct penstock_rail_choice wishes[PENSTOCK_RAILS_MAX];
    for (size_t i = 0; i < client.devices.n; i++)
        wishes[i] = (struct penstock_rail_choice){
            .peer_rail = client.devices.ports[i].peer_rail,
            .path_mtu = client.devices.ports[i].mtu,
            .rd_atomic = options.reads ? (uint8_t)options.reads : rail_port_reads(&client.devices.ports[i]),
        };
    const struct net_handshake_config config = {
        .dialect = PENSTOCK_READ_ONLY,
        .other = "weight peer",
        .ops = &rail_set_ops,
        .rails = set,
        .n_rails = client.devices.n,
        .n_regions = client.n_shards,
        .wishes = wishes,
    };
    size_t n;
    uint8_t mode = PENSTOCK_MODE_VERBS;
    must(net_stream_write_all(&client.control, &mode, 1, TIMEOUT_NS, &error), "mode");
    must(net_handshake_as_client(&client.control, &config, NULL, &n, &error), "rail handshake");
}

static void rail_failed(void *context, size_t slot, const struct penstock_error *why)
{
    (void)context;
    fprintf(stderr, "rail_read: rail %zu: %s\n", slot, why->message);
    exit(1);
}

static void open_rails(const char *peer, const char *model)
{
    struct rail_wishes wishes = { 0 };
    must(rail_wishes_add(&wishes, options.rails, false, &error), "--rails");
    must(rail_devices_open(NULL, &wishes, &client.devices, &error), "devices");
    for (size_t i = 0; i < client.devices.n; i++)
        must(verbs_pd_new(client.devices.devices[i], &client.pds[i], &error), "protection domain");
    ask(peer, model);
    read_manifest();
    struct rail_set set;
    rail_set_init(&set, &(struct rail_set_config){ .devices = &client.devices,
                                                   .pds = client.pds,
                                                   .depth = RAIL_DEPTH,
                                                   .sges_max = RAIL_SGES,
                                                   .expected_bytes = client.shard_bytes,
                                                   .n_expected = client.n_shards });
    connect_rails(&set);
    const struct rail_engine_config config = { .devices = &client.devices,
                                               .pds = client.pds,
                                               .n_rails = set.n,
                                               .outstanding_max = (uint32_t)options.outstanding,
                                               .rail_failed = rail_failed };
    must(rail_engine_new(&config, &client.engine, &error), "engine");
    for (size_t i = 0; i < config.n_rails; i++)
        must(rail_engine_attach(client.engine, i, &set.rails[i], false, &error), "rail");
}

static void open_memory(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    must_have(fd < 0 ? NULL : &fd, path);
    client.shard = must_have(mmap(NULL, client.shard_bytes[0], PROT_READ, MAP_SHARED, fd, 0), path);
    close(fd);
    client.memory.len_bytes = LIST_BYTES_MAX;
    client.memory.address =
        must_have(mmap(NULL, LIST_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), "memory");
    for (size_t i = 0; i < client.devices.n; i++)
        must(verbs_mr_new(client.pds[i], client.memory.address, LIST_BYTES_MAX, VERBS_LOCAL_WRITE,
                          &client.memory.mrs[i], &error),
             "memory");
}

/* ---- lists ---- */

static void shuffle(struct rail_range *ranges, size_t n)
{
    uint64_t random = 88172645463325252u; /* xorshift64: the same order every time */
    for (size_t i = n; i > 1; i--) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        struct rail_range swap = ranges[i - 1];
        ranges[i - 1] = ranges[random % i];
        ranges[random % i] = swap;
    }
}

static void lay_out(uint64_t piece, uint64_t bytes, uint64_t every, bool shuffled)
{
    client.n_ranges = bytes / piece;
    if (bytes > LIST_BYTES_MAX || client.n_ranges * piece * every > client.shard_bytes[0]) {
        fprintf(stderr, "rail_read: %" PRIu64 " bytes are more than there are\n", bytes);
        exit(2);
    }
    client.ranges = must_have(realloc(client.ranges, (client.n_ranges + 1) * sizeof *client.ranges), "ranges");
    for (size_t i = 0; i < client.n_ranges; i++)
        client.ranges[i] = (struct rail_range){ .remote_offset = i * piece * every, .len_bytes = piece };
    if (shuffled)
        shuffle(client.ranges, client.n_ranges);
    for (size_t i = 0; i < client.n_ranges; i++)
        client.ranges[i].local_offset = i * piece;
}

static void parse_list(const char *line)
{
    uint64_t piece, bytes;
    if (sscanf(line, "whole %" SCNu64, &bytes) == 1 && bytes) {
        lay_out(bytes, bytes, 1, false);
    } else if (sscanf(line, "order %" SCNu64 " %" SCNu64, &piece, &bytes) == 2 && piece) {
        lay_out(piece, bytes, 1, false);
    } else if (sscanf(line, "scattered %" SCNu64 " %" SCNu64, &piece, &bytes) == 2 && piece) {
        lay_out(piece, bytes, 2, true);
    } else {
        fprintf(stderr, "rail_read: not a list: %s", line);
        exit(2);
    }
}

/* ---- reading ---- */

static void done(struct rail_transfer *transfer, int code, const struct penstock_error *why)
{
    if (code)
        error = *why;
    must(code, "transfer");
    *(bool *)transfer->user = true;
}

static void wait_for_rails(void)
{
    struct pollfd fds[PENSTOCK_RAILS_MAX];
    nfds_t n = 0;
    rail_engine_arm(client.engine);
    if (rail_engine_poll(client.engine, base_now_ns()))
        return;
    for (size_t i = 0; i < client.devices.n; i++) {
        const struct rail *rail = rail_engine_rail(client.engine, i);
        if (rail)
            fds[n++] = (struct pollfd){ .fd = rail->cq->fd, .events = POLLIN };
    }
    (void)poll(fds, n, 100);
}

static double read_list(void)
{
    bool ended = false;
    struct rail_transfer transfer = { .opcode = VERBS_READ,
                                      .ranges = client.ranges,
                                      .n_ranges = client.n_ranges,
                                      .memory = &client.memory,
                                      .done = done,
                                      .user = &ended };
    int64_t began_ns = base_now_ns(), moved_ns = began_ns;
    must(rail_engine_submit(client.engine, &transfer, &error), "submit");
    while (!ended) {
        int64_t now_ns = base_now_ns();
        if (rail_engine_poll(client.engine, now_ns))
            moved_ns = now_ns;
        else if (now_ns - moved_ns > SPIN_NS)
            wait_for_rails();
    }
    return (double)(base_now_ns() - began_ns) / 1e9;
}

static uint64_t compare(void)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < client.n_ranges; i++) {
        const struct rail_range *r = &client.ranges[i];
        bytes += r->len_bytes;
        if (memcmp(client.memory.address + r->local_offset, client.shard + r->remote_offset, r->len_bytes) == 0)
            continue;
        fprintf(stderr, "rail_read: range %zu, at %" PRIu64 ", is not what it should be\n", i, r->remote_offset);
        exit(1);
    }
    return bytes;
}

static void say(const struct rail_stats *before, double seconds, uint64_t bytes)
{
    printf("{\"ranges\":%zu,\"bytes\":%" PRIu64 ",\"seconds\":%.6f,\"rails\":[", client.n_ranges, bytes, seconds);
    for (size_t i = 0; i < client.devices.n; i++) {
        struct rail_stats now;
        rail_engine_stats(client.engine, i, &now);
        uint64_t doorbells = now.doorbells - before[i].doorbells;
        printf("%s{\"work_requests\":%" PRIu64 ",\"doorbells\":%" PRIu64 ",\"completions\":%" PRIu64
               ",\"bytes\":%" PRIu64 ",\"outstanding_mean\":%.2f,\"outstanding_max\":%u}",
               i ? "," : "", now.work_requests - before[i].work_requests, doorbells,
               now.completions - before[i].completions, now.bytes - before[i].bytes,
               doorbells ? (double)(now.outstanding_sum - before[i].outstanding_sum) / (double)doorbells : 0,
               now.outstanding_max);
    }
    printf("]}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = { { "rails", required_argument, NULL, 'r' },
                                                  { "reads", required_argument, NULL, 'd' },
                                                  { "outstanding", required_argument, NULL, 'o' },
                                                  { 0 } };
    int c;
    while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        switch (c) {
        case 'r':
            options.rails = optarg;
            break;
        case 'd':
            options.reads = strtoul(optarg, NULL, 10);
            break;
        case 'o':
            options.outstanding = strtoul(optarg, NULL, 10);
            break;
        default:
            return 2;
        }
    if (argc - optind != 3 || options.reads > 128) {
        fprintf(stderr, "usage: rail_read [--rails WISHES] [--reads N] [--outstanding N] PEER MODEL SHARD < LISTS\n");
        return 2;
    }
    open_rails(argv[optind], argv[optind + 1]);
    open_memory(argv[optind + 2]);
    char line[128];
    while (fgets(line, sizeof line, stdin)) {
        struct rail_stats before[PENSTOCK_RAILS_MAX];
        parse_list(line);
        memset(client.memory.address, 0, LIST_BYTES_MAX);
        for (size_t i = 0; i < client.devices.n; i++)
            rail_engine_stats(client.engine, i, &before[i]);
        double seconds = read_list();
        say(before, seconds, compare());
    }
    rail_engine_free(client.engine);
    client.control.ops->close(&client.control);
    return 0; /* devices and memory end with the process */
}

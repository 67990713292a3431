#include "raw.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: raw_client [OPTION]... ADDRESS PORT MODEL\n"
    "       raw_client --experts BYTES [OPTION]... ADDRESS PORT\n"
    "       raw_client --read-write [OPTION]... ADDRESS PORT\n"
    "A client of the frozen protocol that uses nothing of Penstock. READs the given files' bytes from the peer and\n"
    "compares them; with --experts, files of records of so many bytes, one READ each; with --read-write, WRITEs a "
    "pattern into the peer's region and READs it back.\n"
    "  --device DEV        one rail, repeatable; rxe0 by default\n"
    "  --gid-index N       on every device; 1 by default\n"
    "  --file SHARD=PATH   what this shard holds, repeatable\n"
    "  --range OFF:LEN     what to READ of each file, repeatable; all of it by default\n"
    "  --forever           READ again and again, after a line \"reading\"\n"
    "to misbehave:\n"
    "  --rails N           ask for N in step 1\n"
    "  --rails-again N     say N in step 3, and send as many identities\n"
    "  --wrong-gid         an identity that nothing leads to\n"
    "  --wrong-rkey        for the READs\n"
    "  --write             into a read-only region, before anything else\n"
    "  --stop-after STEP   request, manifest, mode, step1, step2, step3 or ack; then close\n"
    "  --wait              do not close there, nor in the end: say \"waiting\", and wait to be killed\n"
    "exit status: 0 as the protocol says, 1 otherwise, 2 usage, 3 the peer refused, 4 a work request failed\n";

#define FILES_MAX 16
#define RANGES_MAX 64
#define CHUNK_BYTES (256u << 10)
#define LAYERS_MAX 4096

struct range {
    uint64_t offset, len;
};

struct file {
    uint32_t shard;
    uint8_t *bytes;
    size_t len;
};

static struct {
    const char *devices[RAW_RAILS_MAX];
    int n_devices, gid_index;
    struct file files[FILES_MAX];
    int n_files;
    struct range ranges[RANGES_MAX];
    int n_ranges;
    int rails, rails_again; /* -1: as many as there are devices */
    uint32_t record_bytes;  /* 0: not the expert tier */
    bool read_write, forever, wrong_gid, wrong_rkey, write, wait;
    const char *stop_after;
} options = { .gid_index = 1, .rails = -1, .rails_again = -1 };

/* A peer's region, on one rail. */
struct layer {
    uint64_t base;
    uint32_t rkey;
};

static struct client {
    int fd;
    int n; /* rails */
    struct raw_rail rails[RAW_RAILS_MAX];
    struct raw_identity peers[RAW_RAILS_MAX];
    struct layer *layers[RAW_RAILS_MAX];
    uint32_t n_layers;
    uint8_t *landing; /* CHUNK_BYTES, registered on every rail */
    struct ibv_mr *mrs[RAW_RAILS_MAX];
} client;

static void stay(void)
{
    if (!options.wait)
        return;
    raw_say("waiting");
    for (;;)
        (void)pause();
}

static void after(const char *step)
{
    if (!options.stop_after || strcmp(options.stop_after, step) != 0)
        return;
    stay();
    raw_end(RAW_OK, "stopped after %s", step);
}

static void send_bytes(const void *bytes, size_t len, const char *step)
{
    if (!raw_write(client.fd, bytes, len))
        raw_end(RAW_REFUSED, "refused: %s was not taken", step);
    after(step);
}

/* ---- the preambles of the weight and the expert tier (protocol 1.5, 1.4) ---- */

static void ask_for_model(const char *model)
{
    uint8_t request[4 + 8192];
    size_t len = strlen(model);
    if (len > 8192)
        raw_end(RAW_USAGE, "the model's name is too long");
    memcpy(raw_put_u32(request, (uint32_t)len), model, len);
    send_bytes(request, 4 + len, "request");
}

static void take_manifest(uint32_t most_bytes)
{
    uint8_t head[4];
    raw_expect(client.fd, head, sizeof head, "manifest");
    uint32_t manifest_len = raw_u32(head);
    if (manifest_len == 0 || manifest_len > most_bytes)
        raw_end(RAW_WRONG, "a manifest of %u bytes", manifest_len);
    char *manifest = calloc(1, manifest_len + 1);
    if (!manifest || !raw_read(client.fd, manifest, manifest_len))
        raw_end(RAW_WRONG, "no manifest after its length");
    raw_say("manifest of %u bytes, %s model_version", manifest_len,
            strstr(manifest, "\"model_version\"") ? "with a" : "without");
    free(manifest);
    after("manifest");
    send_bytes("\1", 1, "mode"); /* MODE_VERBS */
}

/* ---- the handshake (protocol 1.3) ---- */

static void open_rails(void)
{
    client.n = options.n_devices;
    client.landing = aligned_alloc(4096, CHUNK_BYTES);
    for (int i = 0; i < client.n; i++) {
        raw_rail_open(&client.rails[i], options.devices[i], options.gid_index, 0xABCD00u + (uint32_t)i);
        client.mrs[i] = raw_register(&client.rails[i], client.landing, CHUNK_BYTES, IBV_ACCESS_LOCAL_WRITE);
    }
}

static void read_layer(struct layer *layer)
{
    uint8_t bytes[12];
    raw_expect(client.fd, bytes, sizeof bytes, "region");
    *layer = (struct layer){ raw_u64(bytes), raw_u32(bytes + 8) };
}

/* Step 2: [u8 n]{[identity][u32 layers]{[u64 base][u32 rkey]}*layers}*n, or [u8 n]{[identity][u64 base][u32 rkey]}*n.
 */
static void read_tables(void)
{
    uint8_t n, identity[RAW_IDENTITY_BYTES], count[4];
    raw_expect(client.fd, &n, 1, "step2");
    if (n != client.n)
        raw_end(RAW_WRONG, "the peer granted %u rails, not %d", n, client.n);
    for (int i = 0; i < client.n; i++) {
        raw_expect(client.fd, identity, sizeof identity, "identity");
        client.peers[i] = raw_identity_read(identity);
        uint32_t layers = 1;
        if (!options.read_write) {
            raw_expect(client.fd, count, sizeof count, "number of regions");
            layers = raw_u32(count);
        }
        if (layers == 0 || layers > LAYERS_MAX || (i > 0 && layers != client.n_layers))
            raw_end(RAW_WRONG, "rail %d has %u regions", i, layers);
        client.n_layers = layers;
        client.layers[i] = calloc(layers, sizeof *client.layers[i]);
        for (uint32_t l = 0; l < layers; l++)
            read_layer(&client.layers[i][l]);
        for (uint32_t l = 0; l < layers; l++)
            if (client.layers[i][l].base != client.layers[0][l].base)
                raw_end(RAW_WRONG, "region %u has another base on rail %d", l, i);
        raw_say("rail %d: peer QP 0x%x PSN 0x%x, %u regions", i, client.peers[i].qpn, client.peers[i].psn, layers);
    }
    after("step2");
}

static void send_identities(void)
{
    uint8_t out[1 + 255 * RAW_IDENTITY_BYTES], *at = out;
    int n = options.rails_again < 0 ? client.n : options.rails_again;
    *at++ = (uint8_t)n;
    for (int i = 0; i < n; i++) {
        struct raw_identity mine = raw_identity(&client.rails[i % client.n]);
        if (options.wrong_gid) /* 203.0.113.9, of the documentation's network */
            memcpy(mine.gid, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xcb\0\x71\x09", sizeof mine.gid);
        at = raw_identity_write(at, &mine);
    }
    send_bytes(out, (size_t)(at - out), "step3");
}

static void shake_hands(void)
{
    uint8_t ack, n = (uint8_t)(options.rails < 0 ? options.n_devices : options.rails);
    send_bytes(&n, 1, "step1");
    open_rails();
    read_tables();
    send_identities();
    for (int i = 0; i < client.n; i++)
        if (!raw_rail_connect(&client.rails[i], &client.peers[i]))
            raw_end(RAW_WRONG, "rail %d cannot be connected", i);
    raw_expect(client.fd, &ack, 1, "ack");
    if (ack != 0)
        raw_end(RAW_REFUSED, "refused: ack %u", ack);
    raw_say("connected %d rails", client.n);
    after("ack");
}

/* ---- work ---- */

static void move(int rail, enum ibv_wr_opcode opcode, uint32_t shard, uint64_t offset, uint32_t len)
{
    if (shard >= client.n_layers)
        raw_end(RAW_WRONG, "there is no region %u", shard);
    const struct layer *layer = &client.layers[rail][shard];
    enum ibv_wc_status status = raw_move(&client.rails[rail], opcode, client.mrs[rail], client.landing,
                                         layer->base + offset, layer->rkey ^ (options.wrong_rkey ? 0x5A : 0), len);
    if (status != IBV_WC_SUCCESS)
        raw_end(RAW_FAILED, "%s failed: status %d, %s", opcode == IBV_WR_RDMA_READ ? "READ" : "WRITE", (int)status,
                ibv_wc_status_str(status));
}

/* A range in chunks, over the rails in turn: expert e's record by rail e mod rails, where the range is the file. */
static void compare(const struct file *file, const struct range *range)
{
    const uint32_t chunk = options.record_bytes ? options.record_bytes : CHUNK_BYTES;
    int rail = 0;
    for (uint64_t at = range->offset; at < range->offset + range->len; rail = (rail + 1) % client.n) {
        uint64_t left = range->offset + range->len - at;
        uint32_t len = left < chunk ? (uint32_t)left : chunk;
        memset(client.landing, 0, len);
        move(rail, IBV_WR_RDMA_READ, file->shard, at, len);
        if (memcmp(client.landing, file->bytes + at, len) != 0)
            raw_end(RAW_WRONG, "shard %u differs at %llu", file->shard, (unsigned long long)at);
        at += len;
    }
}

static uint64_t read_files(void)
{
    uint64_t bytes = 0;
    for (int f = 0; f < options.n_files; f++) {
        const struct file *file = &options.files[f];
        const struct range whole = { 0, file->len };
        const struct range *ranges = options.n_ranges ? options.ranges : &whole;
        for (int r = 0; r < (options.n_ranges ? options.n_ranges : 1); r++) {
            if (ranges[r].offset > file->len || ranges[r].len > file->len - ranges[r].offset)
                raw_end(RAW_USAGE, "shard %u is %zu bytes long", file->shard, file->len);
            compare(file, &ranges[r]);
            bytes += ranges[r].len;
        }
    }
    return bytes;
}

/* What one rail wrote is read over the next. */
static void write_and_read(void)
{
    static uint8_t pattern[4096];
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)(i * 31 + i / 256);
    for (int i = 0; i < client.n; i++) {
        uint64_t offset = (uint64_t)i * sizeof pattern;
        memcpy(client.landing, pattern, sizeof pattern);
        move(i, IBV_WR_RDMA_WRITE, 0, offset, sizeof pattern);
        memset(client.landing, 0, sizeof pattern);
        move((i + 1) % client.n, IBV_WR_RDMA_READ, 0, offset, sizeof pattern);
        if (memcmp(client.landing, pattern, sizeof pattern) != 0)
            raw_end(RAW_WRONG, "what rail %d wrote is not what was read", i);
    }
    raw_say("wrote and read %zu bytes on each of %d rails", sizeof pattern, client.n);
}

static void work(void)
{
    if (options.write)
        move(0, IBV_WR_RDMA_WRITE, 0, 0, 64);
    if (options.read_write)
        write_and_read();
    else if (options.wrong_rkey || options.wrong_gid)
        move(0, IBV_WR_RDMA_READ, 0, 0, 64);
    else
        raw_say("read %llu bytes over %d rails", (unsigned long long)read_files(), client.n);
    if (options.forever) {
        raw_say("reading");
        for (;;)
            (void)read_files();
    }
}

static void close_rails(void)
{
    for (int i = 0; i < client.n; i++) {
        (void)ibv_dereg_mr(client.mrs[i]);
        raw_rail_close(&client.rails[i]);
        free(client.layers[i]);
    }
    free(client.landing);
    (void)close(client.fd);
}

/* ---- the command line ---- */

static unsigned long long number(const char *text, char **end)
{
    unsigned long long value = strtoull(text, end, 0);
    if (*end == text)
        raw_end(RAW_USAGE, "%s is no number", text);
    return value;
}

static int small_number(const char *text)
{
    char *end;
    unsigned long long value = number(text, &end);
    if (*end || value > 255)
        raw_end(RAW_USAGE, "%s is not 0 to 255", text);
    return (int)value;
}

static void add_file(const char *text)
{
    char *end;
    unsigned long long shard = number(text, &end);
    if (*end != '=' || options.n_files == FILES_MAX || shard > LAYERS_MAX)
        raw_end(RAW_USAGE, "--file SHARD=PATH, not %s", text);
    struct file *file = &options.files[options.n_files++];
    file->shard = (uint32_t)shard;
    file->bytes = raw_read_file(end + 1, &file->len);
}

static void add_range(const char *text)
{
    char *end;
    unsigned long long offset = number(text, &end);
    if (*end != ':' || options.n_ranges == RANGES_MAX)
        raw_end(RAW_USAGE, "--range OFF:LEN, not %s", text);
    options.ranges[options.n_ranges++] = (struct range){ offset, number(end + 1, &end) };
}

static void add_device(const char *name)
{
    if (options.n_devices == RAW_RAILS_MAX)
        raw_end(RAW_USAGE, "more than %d devices", RAW_RAILS_MAX);
    options.devices[options.n_devices++] = name;
}

static uint32_t record_size(const char *text)
{
    char *end;
    unsigned long long value = number(text, &end);
    if (*end || value == 0 || value > CHUNK_BYTES)
        raw_end(RAW_USAGE, "records of %s bytes, not of 1 to %u", text, CHUNK_BYTES);
    return (uint32_t)value;
}

static void set_option(int option, const char *value)
{
    switch (option) {
    case 'd':
        add_device(value);
        break;
    case 'g':
        options.gid_index = small_number(value);
        break;
    case 'f':
        add_file(value);
        break;
    case 'r':
        add_range(value);
        break;
    case 'F':
        options.forever = true;
        break;
    case 'n':
        options.rails = small_number(value);
        break;
    case 'N':
        options.rails_again = small_number(value);
        break;
    case 'G':
        options.wrong_gid = true;
        break;
    case 'K':
        options.wrong_rkey = true;
        break;
    case 'W':
        options.write = true;
        break;
    case 's':
        options.stop_after = value;
        break;
    case 'w':
        options.wait = true;
        break;
    case 'e':
        options.record_bytes = record_size(value);
        break;
    case 'x':
        options.read_write = true;
        break;
    case 'h':
        raw_end(RAW_OK, "%s", help);
    default:
        raw_end(RAW_USAGE, "%s", help);
    }
}

static void read_options(int argc, char **argv)
{
    static const struct option known[] = {
        { "device", 1, NULL, 'd' },      { "gid-index", 1, NULL, 'g' },
        { "file", 1, NULL, 'f' },        { "range", 1, NULL, 'r' },
        { "forever", 0, NULL, 'F' },     { "rails", 1, NULL, 'n' },
        { "rails-again", 1, NULL, 'N' }, { "wrong-gid", 0, NULL, 'G' },
        { "wrong-rkey", 0, NULL, 'K' },  { "write", 0, NULL, 'W' },
        { "stop-after", 1, NULL, 's' },  { "wait", 0, NULL, 'w' },
        { "read-write", 0, NULL, 'x' },  { "experts", 1, NULL, 'e' },
        { "help", 0, NULL, 'h' },        { 0 },
    };
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;)
        set_option(option, optarg);
    if (argc - optind != (options.read_write || options.record_bytes ? 2 : 3))
        raw_end(RAW_USAGE, "%s", help);
    if (options.n_devices == 0)
        add_device("rxe0");
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    char *end;
    unsigned long long port = number(argv[optind + 1], &end);
    client.fd = raw_dial(argv[optind], (uint16_t)port);
    if (!options.read_write && !options.record_bytes)
        ask_for_model(argv[optind + 2]);
    if (!options.read_write)
        take_manifest(options.record_bytes ? 16u << 20 : 256u << 20);
    shake_hands();
    work();
    stay();
    close_rails();
    return RAW_OK;
}

#include "raw.h"

#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char help[] =
    "usage: raw_peer [OPTION]... --manifest FILE MODEL SHARD...\n"
    "A weight peer of the frozen protocol that uses nothing of Penstock and knows no extension: one model, RDMA only,\n"
    "PSNs that are always the same, a protection domain and a registration for each rail. A process a connection.\n"
    "  --listen ADDRESS    127.0.0.1 by default\n"
    "  --port N            any by default; the first line says which\n"
    "  --device DEV        one rail, repeatable; rxe0 by default\n"
    "  --gid-index N       on every device; 1 by default\n"
    "  --manifest FILE     the JSON to send\n"
    "to misbehave:\n"
    "  --wrong-rkey        publish keys that open nothing\n"
    "  --wrong-gid         publish an identity that nothing leads to\n"
    "  --regions N         publish N regions a rail, whatever there is\n"
    "  --grant N           frame N rails in step 2, whatever was asked for\n"
    "  --ack N             in step 5\n"
    "  --close-after STEP  request, manifest, mode, step1, step2, step3, ack\n"
    "  --drop-after MS     destroy the QPs so long after the ack, and leave the stream open\n"
    "It says what clients do: \"request MODEL\", \"mode 1\", \"rails 2\", \"connected\", \"closed\".\n";

#define SHARDS_MAX 16
#define PSN 0x1000u

static struct {
    const char *listen, *model, *close_after;
    unsigned port;
    const char *devices[RAW_RAILS_MAX];
    int n_devices, gid_index;
    bool wrong_rkey, wrong_gid;
    int regions, grant, ack, drop_after; /* -1: as it should be */
} options = { .listen = "127.0.0.1", .gid_index = 1, .regions = -1, .grant = -1, .ack = -1, .drop_after = -1 };

static uint8_t *manifest;
static size_t manifest_len;
static struct shard {
    uint8_t *bytes;
    size_t len;
} shards[SHARDS_MAX];
static int n_shards;

static struct connection {
    int fd, n;
    struct raw_rail rails[RAW_RAILS_MAX];
    struct ibv_mr *mrs[RAW_RAILS_MAX][SHARDS_MAX];
} connection;

__attribute__((noreturn)) static void closed(const char *why)
{
    raw_end(RAW_OK, "closed: %s", why);
}

static void after(const char *step)
{
    if (options.close_after && strcmp(options.close_after, step) == 0)
        closed(step);
}

static void take(void *bytes, size_t len)
{
    if (!raw_read(connection.fd, bytes, len))
        closed("by the client");
}

static void give(const void *bytes, size_t len)
{
    if (!raw_write(connection.fd, bytes, len))
        closed("by the client");
}

/* Protocol 1.5. */
static void preamble(void)
{
    uint8_t head[4], mode;
    char request[8192 + 1] = "";
    take(head, sizeof head);
    uint32_t len = raw_u32(head);
    if (len == 0 || len > 8192)
        closed("implausible model request length");
    take(request, len);
    raw_say("request %s", request);
    after("request");
    if (strcmp(request, options.model) != 0)
        closed("no such model");
    (void)raw_put_u32(head, (uint32_t)manifest_len);
    give(head, sizeof head);
    give(manifest, manifest_len);
    after("manifest");
    take(&mode, 1);
    raw_say("mode %u", mode);
    if (mode != 1)
        closed("unknown mode");
    after("mode");
}

static uint8_t *write_rail(uint8_t *at, int i)
{
    struct raw_identity mine = raw_identity(&connection.rails[i]);
    if (options.wrong_gid) /* 203.0.113.9, of the documentation's network */
        memcpy(mine.gid, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xcb\0\x71\x09", sizeof mine.gid);
    int regions = options.regions < 0 ? n_shards : options.regions;
    at = raw_put_u32(raw_identity_write(at, &mine), (uint32_t)regions);
    for (int s = 0; s < regions; s++) {
        at = raw_put_u64(at, (uintptr_t)shards[s % n_shards].bytes);
        at = raw_put_u32(at, connection.mrs[i][s % n_shards]->rkey ^ (options.wrong_rkey ? 0x5A : 0));
    }
    return at;
}

static void publish(void)
{
    static uint8_t out[1 + 255 * (RAW_IDENTITY_BYTES + 4 + 12 * 256)];
    uint8_t *at = out;
    int n = options.grant < 0 ? connection.n : options.grant;
    *at++ = (uint8_t)n;
    for (int i = 0; i < n; i++)
        at = write_rail(at, i % connection.n);
    give(out, (size_t)(at - out));
    after("step2");
}

/* Protocol 1.3. */
static void shake_hands(void)
{
    uint8_t n, again, identity[RAW_IDENTITY_BYTES];
    struct raw_identity clients[RAW_RAILS_MAX];
    take(&n, 1);
    raw_say("rails %u", n);
    after("step1");
    if (n == 0 || n > options.n_devices)
        closed("implausible number of rails");
    connection.n = n;
    for (int i = 0; i < n; i++) {
        raw_rail_open(&connection.rails[i], options.devices[i], options.gid_index, PSN + (uint32_t)i);
        for (int s = 0; s < n_shards; s++)
            connection.mrs[i][s] =
                raw_register(&connection.rails[i], shards[s].bytes, shards[s].len, IBV_ACCESS_REMOTE_READ);
    }
    publish();
    take(&again, 1);
    if (again != n)
        closed("the number of rails changed");
    for (int i = 0; i < n; i++) {
        take(identity, sizeof identity);
        clients[i] = raw_identity_read(identity);
    }
    after("step3");
    for (int i = 0; i < n; i++)
        if (!raw_rail_connect(&connection.rails[i], &clients[i]))
            closed("a rail cannot be connected");
    give(&(uint8_t){ (uint8_t)(options.ack < 0 ? 0 : options.ack) }, 1);
    raw_say("connected");
    after("ack");
}

/* Reads and discards until the client closes. */
static void idle(void)
{
    uint8_t bytes[256];
    if (options.drop_after >= 0) {
        (void)usleep((useconds_t)options.drop_after * 1000);
        for (int i = 0; i < connection.n; i++)
            (void)ibv_destroy_qp(connection.rails[i].qp);
        raw_say("dropped");
    }
    while (recv(connection.fd, bytes, sizeof bytes, 0) > 0)
        ;
}

__attribute__((noreturn)) static void serve(int fd)
{
    connection.fd = fd;
    preamble();
    shake_hands();
    idle();
    closed("by the client"); /* the kernel frees the rest, in the right order */
}

/* ---- the command line ---- */

static int small_number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 0);
    if (end == text || *end || value > 65535)
        raw_end(RAW_USAGE, "%s is not 0 to 65535", text);
    return (int)value;
}

static void add_device(const char *name)
{
    if (options.n_devices == RAW_RAILS_MAX)
        raw_end(RAW_USAGE, "more than %d devices", RAW_RAILS_MAX);
    options.devices[options.n_devices++] = name;
}

static void set_option(int option, const char *value)
{
    switch (option) {
    case 'l':
        options.listen = value;
        break;
    case 'p':
        options.port = (unsigned)small_number(value);
        break;
    case 'd':
        add_device(value);
        break;
    case 'g':
        options.gid_index = small_number(value);
        break;
    case 'm':
        manifest = raw_read_file(value, &manifest_len);
        break;
    case 'K':
        options.wrong_rkey = true;
        break;
    case 'G':
        options.wrong_gid = true;
        break;
    case 'r':
        options.regions = small_number(value) % 256;
        break;
    case 'n':
        options.grant = small_number(value) % 256;
        break;
    case 'a':
        options.ack = small_number(value) % 256;
        break;
    case 'c':
        options.close_after = value;
        break;
    case 'D':
        options.drop_after = small_number(value);
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
        { "listen", 1, NULL, 'l' },      { "port", 1, NULL, 'p' },
        { "device", 1, NULL, 'd' },      { "gid-index", 1, NULL, 'g' },
        { "manifest", 1, NULL, 'm' },    { "wrong-rkey", 0, NULL, 'K' },
        { "wrong-gid", 0, NULL, 'G' },   { "regions", 1, NULL, 'r' },
        { "grant", 1, NULL, 'n' },       { "ack", 1, NULL, 'a' },
        { "close-after", 1, NULL, 'c' }, { "drop-after", 1, NULL, 'D' },
        { "help", 0, NULL, 'h' },        { 0 },
    };
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;)
        set_option(option, optarg);
    if (argc - optind < 2 || argc - optind > 1 + SHARDS_MAX || !manifest)
        raw_end(RAW_USAGE, "%s", help);
    options.model = argv[optind++];
    while (optind < argc) {
        shards[n_shards].bytes = raw_read_file(argv[optind++], &shards[n_shards].len);
        n_shards++;
    }
    if (options.n_devices == 0)
        add_device("rxe0");
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    (void)signal(SIGCHLD, SIG_IGN); /* children are not waited for */
    int listener = raw_listen(options.listen, (uint16_t)options.port);
    raw_say("listening on %u", raw_port(listener));
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0 && fork() == 0)
            serve(fd);
        (void)close(fd);
    }
}

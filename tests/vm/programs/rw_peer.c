/* usage: rw_peer [RAILS]
 * The peer's side of the read-write dialect on our own rail set and handshake: one region for whoever connects, on
 * RAILS ("auto" by default, as in --rail). There is no tier behind it: what the dialect needs is tested without one.
 * The first line says on which port of every address it listens; a client after the other is served. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rail/set.h"

#define REGION_BYTES (1u << 20)
#define ACCESS (VERBS_REMOTE_READ | VERBS_REMOTE_WRITE)

static struct penstock_error error;

static void must(int code, const char *what)
{
    if (code == 0)
        return;
    printf("%s: %s\n", what, error.message);
    exit(1);
}

/* The region, on every device: the same address, a key each. */
struct region {
    struct rail_devices devices;
    void *memory;
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX];
    struct penstock_layer layers[PENSTOCK_RAILS_MAX];
    struct rail_table tables[PENSTOCK_RAILS_MAX];
};

static void open_region(struct region *region, const char *rails)
{
    struct rail_wishes wishes = { 0 };
    must(rail_wishes_add(&wishes, rails, true, &error), "rails");
    must(rail_devices_open(NULL, &wishes, &region->devices, &error), "devices");
    region->memory = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(region->memory == MAP_FAILED, "mmap");
    for (size_t i = 0; i < region->devices.n; i++) {
        struct verbs_mr *mr;
        must(verbs_pd_new(region->devices.devices[i], &region->pds[i], &error), "protection domain");
        must(verbs_mr_new(region->pds[i], region->memory, REGION_BYTES, ACCESS | VERBS_LOCAL_WRITE, &mr, &error),
             "region");
        region->layers[i] = (struct penstock_layer){ .base = mr->base, .rkey = mr->rkey };
        region->tables[i] = (struct rail_table){ .regions = &region->layers[i], .n_regions = 1 };
    }
}

/* Waits for the end of the stream, with the rails up. */
static void serve(struct region *region, int fd)
{
    const struct rail_set_config rails = { .devices = &region->devices,
                                           .pds = region->pds,
                                           .at_peer = true,
                                           .access = ACCESS,
                                           .depth = 1,
                                           .sges_max = 1,
                                           .tables = region->tables };
    struct rail_set set;
    struct net_stream stream;
    size_t n;
    char byte;
    rail_set_init(&set, &rails);
    net_stream_plain(&stream, fd);
    const struct net_handshake_config config = { .dialect = PENSTOCK_READ_WRITE,
                                                 .other = "client",
                                                 .ops = &rail_set_ops,
                                                 .rails = &set,
                                                 .n_rails = region->devices.n };
    if (net_handshake_as_peer(&stream, &config, NULL, &n, &error) != 0) {
        printf("refused: %s\n", error.message);
    } else {
        printf("connected %zu rails\n", n);
        while (read(fd, &byte, 1) > 0)
            ;
        printf("closed\n");
    }
    rail_set_fini(&set);
    stream.ops->close(&stream);
}

static int listen_anywhere(void)
{
    struct sockaddr_in in = { .sin_family = AF_INET };
    socklen_t len = sizeof in;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd < 0 || bind(fd, (const struct sockaddr *)&in, len) != 0 || listen(fd, 8) != 0 ||
             getsockname(fd, (struct sockaddr *)&in, &len) != 0,
         "listen");
    printf("listening on %u\n", ntohs(in.sin_port));
    return fd;
}

int main(int argc, char **argv)
{
    struct region region = { 0 };
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    open_region(&region, argc > 1 ? argv[1] : "auto");
    int listener = listen_anywhere();
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        must(fd < 0, "accept");
        serve(&region, fd);
    }
}

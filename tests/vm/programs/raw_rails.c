#include "raw.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "usage: raw_rails FILE BYTES DEVICE...\n"
    "A client's rails without its connection, for a script that speaks the protocol by itself. It registers FILE "
    "(which\n"
    "the script maps as well), says \"rails HEX...\", the identities of its QPs, and then answers each line of its "
    "input\n"
    "with one:\n"
    "  connect HEX...                                     the peer's identities: \"ok\"\n"
    "  read RAIL LOCAL ADDRESS RKEY BYTES                 \"ok\", or \"failed STATUS\"\n"
    "  write RAIL LOCAL ADDRESS RKEY BYTES                likewise\n"
    "  time-read RAIL ADDRESS RKEY BYTES COUNT DEPTH      COUNT slots in turn, DEPTH outstanding, until there were\n"
    "  time-write RAIL ADDRESS RKEY BYTES COUNT DEPTH     64: nanoseconds\n"
    "  write-forever RAIL LOCAL ADDRESS RKEY BYTES        \"writing\", and then nothing until it is killed\n"
    "  devices are opened at GID index 1\n";

#define TIMED 64u

static struct {
    struct raw_rail rails[RAW_RAILS_MAX];
    struct ibv_mr *mrs[RAW_RAILS_MAX];
    int n;
    uint8_t *memory;
    size_t len;
} client;

static void map_memory(const char *path, size_t len)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    client.len = len;
    client.memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || client.memory == MAP_FAILED)
        raw_end(RAW_WRONG, "%s cannot be mapped", path);
}

static void open_rails(int n, char **devices)
{
    uint8_t identity[RAW_IDENTITY_BYTES];
    client.n = n;
    printf("rails");
    for (int i = 0; i < n; i++) {
        raw_rail_open(&client.rails[i], devices[i], 1, (uint32_t)getpid() * 16 + (uint32_t)i);
        client.mrs[i] = raw_register(&client.rails[i], client.memory, client.len, IBV_ACCESS_LOCAL_WRITE);
        struct raw_identity mine = raw_identity(&client.rails[i]);
        (void)raw_identity_write(identity, &mine);
        printf(" ");
        for (size_t b = 0; b < sizeof identity; b++)
            printf("%02x", identity[b]);
    }
    raw_say("%s", "");
}

/* ---- the words of a line ---- */

static const char *word(void)
{
    const char *found = strtok(NULL, " \n");
    if (!found)
        raw_end(RAW_USAGE, "%s", help);
    return found;
}

static uint64_t number(void)
{
    return strtoull(word(), NULL, 0);
}

static int rail_number(void)
{
    uint64_t i = number();
    if (i >= (uint64_t)client.n)
        raw_end(RAW_USAGE, "there is no rail %" PRIu64, i);
    return (int)i;
}

static struct raw_identity identity(void)
{
    uint8_t bytes[RAW_IDENTITY_BYTES];
    const char *hex = word();
    for (size_t b = 0; b < sizeof bytes; b++) {
        unsigned value;
        if (sscanf(hex + 2 * b, "%2x", &value) != 1)
            raw_end(RAW_USAGE, "%s is no identity", hex);
        bytes[b] = (uint8_t)value;
    }
    return raw_identity_read(bytes);
}

/* ---- what is asked for ---- */

static void connect_rails(void)
{
    for (int i = 0; i < client.n; i++) {
        struct raw_identity peer = identity();
        if (!raw_rail_connect(&client.rails[i], &peer))
            raw_end(RAW_WRONG, "rail %d cannot be connected", i);
    }
    raw_say("ok");
}

static void move(enum ibv_wr_opcode opcode, bool forever)
{
    int rail = rail_number();
    uint64_t local = number(), remote = number(), rkey = number(), len = number();
    if (local > client.len || len > client.len - local)
        raw_end(RAW_USAGE, "beyond the memory of %zu bytes", client.len);
    if (forever)
        raw_say("writing");
    enum ibv_wc_status status;
    do
        status = raw_move(&client.rails[rail], opcode, client.mrs[rail], client.memory + local, remote, (uint32_t)rkey,
                          (uint32_t)len);
    while (forever && status == IBV_WC_SUCCESS);
    if (status == IBV_WC_SUCCESS)
        raw_say("ok");
    else
        raw_say("failed %d %s", (int)status, ibv_wc_status_str(status));
}

static void post(enum ibv_wr_opcode opcode, int rail, uint64_t remote, uint32_t rkey, uint32_t len, unsigned i,
                 unsigned depth)
{
    struct ibv_sge sge = { .addr = (uintptr_t)client.memory + (uint64_t)(i % depth) * len,
                           .length = len,
                           .lkey = client.mrs[rail]->lkey };
    struct ibv_send_wr *bad, wr = { .sg_list = &sge,
                                    .num_sge = 1,
                                    .opcode = opcode,
                                    .send_flags = IBV_SEND_SIGNALED,
                                    .wr.rdma = { .remote_addr = remote, .rkey = rkey } };
    if (ibv_post_send(client.rails[rail].qp, &wr, &bad) != 0)
        raw_end(RAW_WRONG, "ibv_post_send");
}

static void time_moves(enum ibv_wr_opcode opcode)
{
    int rail = rail_number();
    uint64_t remote = number();
    uint32_t rkey = (uint32_t)number(), len = (uint32_t)number();
    unsigned count = (unsigned)number(), depth = (unsigned)number();
    if (count == 0 || depth == 0 || depth > 16 || (uint64_t)depth * len > client.len)
        raw_end(RAW_USAGE, "beyond the memory of %zu bytes", client.len);
    struct timespec began, ended;
    (void)clock_gettime(CLOCK_MONOTONIC, &began);
    for (unsigned posted = 0, done = 0; done < TIMED;) {
        for (; posted < TIMED && posted - done < depth; posted++)
            post(opcode, rail, remote + (uint64_t)(posted % count) * len, rkey, len, posted, depth);
        struct ibv_wc wc;
        int n = ibv_poll_cq(client.rails[rail].cq, 1, &wc);
        if (n < 0 || (n == 1 && wc.status != IBV_WC_SUCCESS))
            raw_end(RAW_FAILED, "a work request failed");
        done += (unsigned)n;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &ended);
    raw_say("%lld", (long long)(ended.tv_sec - began.tv_sec) * 1000000000 + ended.tv_nsec - began.tv_nsec);
}

static void obey(char *line)
{
    const char *what = strtok(line, " \n");
    if (!what)
        raw_end(RAW_USAGE, "%s", help);
    if (strcmp(what, "connect") == 0)
        connect_rails();
    else if (strcmp(what, "read") == 0)
        move(IBV_WR_RDMA_READ, false);
    else if (strcmp(what, "write") == 0)
        move(IBV_WR_RDMA_WRITE, false);
    else if (strcmp(what, "write-forever") == 0)
        move(IBV_WR_RDMA_WRITE, true);
    else if (strcmp(what, "time-read") == 0)
        time_moves(IBV_WR_RDMA_READ);
    else if (strcmp(what, "time-write") == 0)
        time_moves(IBV_WR_RDMA_WRITE);
    else
        raw_end(RAW_USAGE, "%s", help);
}

int main(int argc, char **argv)
{
    char line[1024];
    if (argc < 4 || argc - 3 > RAW_RAILS_MAX)
        raw_end(RAW_USAGE, "%s", help);
    map_memory(argv[1], strtoull(argv[2], NULL, 0));
    open_rails(argc - 3, argv + 3);
    while (fgets(line, sizeof line, stdin))
        obey(line);
    for (int i = 0; i < client.n; i++) {
        (void)ibv_dereg_mr(client.mrs[i]);
        raw_rail_close(&client.rails[i]);
    }
    return RAW_OK;
}

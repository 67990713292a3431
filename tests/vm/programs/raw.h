/* The frozen protocol by hand: plain libibverbs, sockets and bytes, and nothing of our libraries, so that they are not
 * tested against themselves. What fails ends the program, with words. */
#ifndef PENSTOCK_TEST_RAW_H
#define PENSTOCK_TEST_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/* How a program ends. */
enum raw_exit {
    RAW_OK = 0,
    RAW_WRONG = 1, /* not what the protocol says, or bytes that differ */
    RAW_USAGE = 2,
    RAW_REFUSED = 3, /* the other side closed: the last line says at which step */
    RAW_FAILED = 4,  /* a work request failed: the last line says with which status */
};

__attribute__((format(printf, 2, 3), noreturn)) void raw_end(enum raw_exit how, const char *format, ...);

/* Prints a line at once: whoever runs the program waits for it. */
__attribute__((format(printf, 1, 2))) void raw_say(const char *format, ...);

/* ---- bytes ---- */

uint32_t raw_u32(const uint8_t *bytes);
uint64_t raw_u64(const uint8_t *bytes);
uint8_t *raw_put_u32(uint8_t *out, uint32_t value); /* where the next goes */
uint8_t *raw_put_u64(uint8_t *out, uint64_t value);
uint8_t *raw_read_file(const char *path, size_t *len); /* on pages of their own, shared with children */

/* ---- sockets ---- */

int raw_dial(const char *address, uint16_t port);
int raw_listen(const char *address, uint16_t port);
uint16_t raw_port(int fd);
bool raw_write(int fd, const void *bytes, size_t len);              /* false: the other side has closed */
bool raw_read(int fd, void *bytes, size_t len);                     /* false: it closed before the first byte */
void raw_expect(int fd, void *bytes, size_t len, const char *step); /* ends with RAW_REFUSED */

/* ---- rails ---- */

#define RAW_RAILS_MAX 8

struct raw_rail {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp; /* in INIT; every access, as the fleet sets it */
    union ibv_gid gid;
    enum ibv_mtu mtu;
    int gid_index;
    uint32_t psn;
};

/* VerbsClientParams, and what server records begin with: [u32 qpn][u32 psn][16 gid]. */
#define RAW_IDENTITY_BYTES 24

struct raw_identity {
    uint32_t qpn, psn;
    uint8_t gid[16];
};

void raw_rail_open(struct raw_rail *rail, const char *device, int gid_index, uint32_t psn);
void raw_rail_close(struct raw_rail *rail); /* regions first */
struct ibv_mr *raw_register(struct raw_rail *rail, void *memory, size_t len, unsigned access);

struct raw_identity raw_identity(const struct raw_rail *rail);
struct raw_identity raw_identity_read(const uint8_t *bytes);
uint8_t *raw_identity_write(uint8_t *out, const struct raw_identity *identity);

/* To RTR and RTS, as protocol 1.3 has it. false: the device refused. */
bool raw_rail_connect(struct raw_rail *rail, const struct raw_identity *other);

/* One READ or WRITE, waited for: its ibv_wc_status. */
enum ibv_wc_status raw_move(struct raw_rail *rail, enum ibv_wr_opcode opcode, struct ibv_mr *mr, void *local,
                            uint64_t remote, uint32_t rkey, uint32_t len);

#endif

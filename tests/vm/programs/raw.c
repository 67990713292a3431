#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void raw_end(enum raw_exit how, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
    exit((int)how);
}

void raw_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

static void need(bool fine, const char *what)
{
    if (!fine)
        raw_end(RAW_WRONG, "%s: %s", what, strerror(errno));
}

/* ---- bytes ---- */

uint32_t raw_u32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

uint64_t raw_u64(const uint8_t *bytes)
{
    return raw_u32(bytes) | (uint64_t)raw_u32(bytes + 4) << 32;
}

uint8_t *raw_put_u32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        *out++ = (uint8_t)(value >> 8 * i);
    return out;
}

uint8_t *raw_put_u64(uint8_t *out, uint64_t value)
{
    return raw_put_u32(raw_put_u32(out, (uint32_t)value), (uint32_t)(value >> 32));
}

uint8_t *raw_read_file(const char *path, size_t *len)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    need(fd >= 0 && fstat(fd, &st) == 0, path);
    *len = (size_t)st.st_size;
    uint8_t *bytes = mmap(NULL, *len + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(bytes != MAP_FAILED, path);
    for (size_t at = 0; at < *len;) {
        ssize_t n = read(fd, bytes + at, *len - at);
        need(n > 0, path);
        at += (size_t)n;
    }
    (void)close(fd);
    return bytes;
}

/* ---- sockets ---- */

static struct sockaddr_in name_of(const char *address, uint16_t port)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
    if (inet_pton(AF_INET, address, &in.sin_addr) != 1)
        raw_end(RAW_USAGE, "%s is no IPv4 address", address);
    return in;
}

int raw_dial(const char *address, uint16_t port)
{
    const struct sockaddr_in in = name_of(address, port);
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    need(fd >= 0 && connect(fd, (const struct sockaddr *)&in, sizeof in) == 0, "connect");
    need(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
    return fd;
}

int raw_listen(const char *address, uint16_t port)
{
    const struct sockaddr_in in = name_of(address, port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    need(fd >= 0 && bind(fd, (const struct sockaddr *)&in, sizeof in) == 0 && listen(fd, 64) == 0, "listen");
    return fd;
}

uint16_t raw_port(int fd)
{
    struct sockaddr_in in = { 0 };
    socklen_t len = sizeof in;
    need(getsockname(fd, (struct sockaddr *)&in, &len) == 0, "getsockname");
    return ntohs(in.sin_port);
}

bool raw_write(int fd, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return false;
        need(n > 0, "send");
        at += n;
        len -= (size_t)n;
    }
    return true;
}

bool raw_read(int fd, void *bytes, size_t len)
{
    size_t at = 0;
    while (at < len) {
        ssize_t n = recv(fd, (uint8_t *)bytes + at, len - at, 0);
        if (n < 0 && errno == ECONNRESET)
            n = 0;
        need(n >= 0, "recv");
        if (n == 0 && at == 0)
            return false;
        if (n == 0)
            raw_end(RAW_WRONG, "end of stream after %zu of %zu bytes", at, len);
        at += (size_t)n;
    }
    return true;
}

void raw_expect(int fd, void *bytes, size_t len, const char *step)
{
    if (!raw_read(fd, bytes, len))
        raw_end(RAW_REFUSED, "refused: no %s", step);
}

/* ---- rails ---- */

static struct ibv_context *open_device(const char *name)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    need(list != NULL, "ibv_get_device_list");
    struct ibv_context *context = NULL;
    for (size_t i = 0; list[i] && !context; i++)
        if (strcmp(ibv_get_device_name(list[i]), name) == 0)
            context = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    need(context != NULL, name);
    return context;
}

void raw_rail_open(struct raw_rail *rail, const char *device, int gid_index, uint32_t psn)
{
    struct ibv_port_attr port;
    *rail = (struct raw_rail){ .context = open_device(device), .gid_index = gid_index, .psn = psn };
    need(ibv_query_port(rail->context, 1, &port) == 0, "ibv_query_port");
    need(ibv_query_gid(rail->context, 1, gid_index, &rail->gid) == 0, "ibv_query_gid");
    rail->mtu = port.active_mtu;
    rail->pd = ibv_alloc_pd(rail->context);
    need(rail->pd != NULL, "ibv_alloc_pd");
    rail->cq = ibv_create_cq(rail->context, 64, NULL, NULL, 0);
    need(rail->cq != NULL, "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .send_cq = rail->cq, .recv_cq = rail->cq, .cap = { 64, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC
    };
    rail->qp = ibv_create_qp(rail->pd, &init);
    need(rail->qp != NULL, "ibv_create_qp");
    const int every = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)every };
    need(ibv_modify_qp(rail->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
         "ibv_modify_qp to INIT");
}

void raw_rail_close(struct raw_rail *rail)
{
    need(ibv_destroy_qp(rail->qp) == 0 && ibv_destroy_cq(rail->cq) == 0 && ibv_dealloc_pd(rail->pd) == 0 &&
             ibv_close_device(rail->context) == 0,
         "closing a rail");
}

struct ibv_mr *raw_register(struct raw_rail *rail, void *memory, size_t len, unsigned access)
{
    struct ibv_mr *mr = ibv_reg_mr(rail->pd, memory, len, access);
    need(mr != NULL, "ibv_reg_mr");
    return mr;
}

struct raw_identity raw_identity(const struct raw_rail *rail)
{
    struct raw_identity identity = { .qpn = rail->qp->qp_num, .psn = rail->psn };
    memcpy(identity.gid, rail->gid.raw, sizeof identity.gid);
    return identity;
}

struct raw_identity raw_identity_read(const uint8_t *bytes)
{
    struct raw_identity identity = { .qpn = raw_u32(bytes), .psn = raw_u32(bytes + 4) };
    memcpy(identity.gid, bytes + 8, sizeof identity.gid);
    return identity;
}

uint8_t *raw_identity_write(uint8_t *out, const struct raw_identity *identity)
{
    out = raw_put_u32(raw_put_u32(out, identity->qpn), identity->psn);
    memcpy(out, identity->gid, sizeof identity->gid);
    return out + sizeof identity->gid;
}

bool raw_rail_connect(struct raw_rail *rail, const struct raw_identity *other)
{
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = rail->mtu,
        .dest_qp_num = other->qpn,
        .rq_psn = other->psn & 0xFFFFFF,
        .max_dest_rd_atomic = 16,
        .min_rnr_timer = 12,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64, .sgid_index = (uint8_t)rail->gid_index } }
    };
    memcpy(rtr.ah_attr.grh.dgid.raw, other->gid, sizeof other->gid);
    if (ibv_modify_qp(rail->qp, &rtr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
        return false;
    /* Not the frozen retry_cnt of 7, which Soft-RoCE takes as "for ever"; it is not seen on the wire. */
    struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS,
                               .timeout = 14,
                               .retry_cnt = 6,
                               .rnr_retry = 7,
                               .sq_psn = rail->psn & 0xFFFFFF,
                               .max_rd_atomic = 16 };
    return ibv_modify_qp(rail->qp, &rts,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

enum ibv_wc_status raw_move(struct raw_rail *rail, enum ibv_wr_opcode opcode, struct ibv_mr *mr, void *local,
                            uint64_t remote, uint32_t rkey, uint32_t len)
{
    struct ibv_sge sge = { .addr = (uintptr_t)local, .length = len, .lkey = mr->lkey };
    struct ibv_send_wr *bad, wr = { .sg_list = &sge,
                                    .num_sge = 1,
                                    .opcode = opcode,
                                    .send_flags = IBV_SEND_SIGNALED,
                                    .wr.rdma = { .remote_addr = remote, .rkey = rkey } };
    need(ibv_post_send(rail->qp, &wr, &bad) == 0, "ibv_post_send");
    struct ibv_wc wc;
    int n;
    do
        n = ibv_poll_cq(rail->cq, 1, &wc);
    while (n == 0);
    need(n == 1, "ibv_poll_cq");
    return wc.status;
}

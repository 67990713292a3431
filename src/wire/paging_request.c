#include "cursor.h"
#include "fault.h"

/* What comes after the op. */
enum shape { SHAPE_END, SHAPE_KEY, SHAPE_KEYS, SHAPE_VALUE, SHAPE_RANGE, SHAPE_UNKNOWN };

static const char unknown_op[] = "unknown paging op on a TCP data plane: {hex}";
static const char implausible_keys[] = "implausible paging key count: {value}";
static const char implausible_write[] = "implausible paging write length: {value}";

static enum shape shape_of(uint8_t op, const struct penstock_paging_framing *framing)
{
    switch (op) {
    case PENSTOCK_OP_BYE:
        return SHAPE_END;
    case PENSTOCK_OP_ALLOC:
    case PENSTOCK_OP_COMMIT:
    case PENSTOCK_OP_GET:
    case PENSTOCK_OP_REMOVE:
    case PENSTOCK_OP_EXISTS:
        return SHAPE_KEY;
    case PENSTOCK_OP_MGET:
    case PENSTOCK_OP_RELEASE:
        return SHAPE_KEYS;
    case PENSTOCK_OP_OWN:
    case PENSTOCK_OP_WIDE:
    case PENSTOCK_OP_FEATURES:
        return SHAPE_VALUE;
    default:
        break;
    }
    /* On verbs an op that is not known has a key behind it, like every frozen one. */
    if (!framing->tcp || op == PENSTOCK_OP_PUT || op == PENSTOCK_OP_FETCH)
        return SHAPE_KEY;
    return op == PENSTOCK_OP_WRITE || op == PENSTOCK_OP_READ ? SHAPE_RANGE : SHAPE_UNKNOWN;
}

static size_t key_bytes(const struct penstock_paging_framing *framing)
{
    return framing->wide ? 16 : 8;
}

/* With the op byte, and without the keys of SHAPE_KEYS. */
static size_t head_bytes(enum shape shape, const struct penstock_paging_framing *framing)
{
    static const size_t fixed[] = { [SHAPE_END] = 1, [SHAPE_KEYS] = 5, [SHAPE_VALUE] = 9, [SHAPE_RANGE] = 13 };
    return shape == SHAPE_KEY ? 1 + key_bytes(framing) : fixed[shape];
}

/* The bounds, for both sides. */
static enum penstock_decode judge(const struct penstock_paging_request *r, enum shape shape,
                                  struct penstock_wire_fault *fault)
{
    if (shape == SHAPE_UNKNOWN)
        return wire_refuse(fault, "paging op", r->op, 0, unknown_op);
    if (shape == SHAPE_KEYS && (r->n_keys == 0 || r->n_keys > PENSTOCK_KEYS_MAX))
        return wire_refuse(fault, "paging key count", r->n_keys, 0, implausible_keys);
    if (r->op == PENSTOCK_OP_WRITE && shape == SHAPE_RANGE && r->len_bytes > PENSTOCK_RANGE_BYTES_MAX)
        return wire_refuse(fault, "paging length", r->len_bytes, 0, implausible_write);
    return PENSTOCK_DECODE_OK;
}

size_t penstock_paging_request_size(const struct penstock_paging_request *request,
                                    const struct penstock_paging_framing *framing)
{
    const enum shape shape = shape_of(request->op, framing);
    struct penstock_wire_fault fault;
    if (judge(request, shape, &fault) != PENSTOCK_DECODE_OK)
        return 0;
    if (shape == SHAPE_END)
        return 1 + key_bytes(framing);
    return head_bytes(shape, framing) + (shape == SHAPE_KEYS ? request->n_keys * key_bytes(framing) : 0);
}

static uint8_t *put_key(uint8_t *out, const struct penstock_key *key, const struct penstock_paging_framing *framing)
{
    out = wire_put_u64(out, key->low);
    return framing->wide ? wire_put_u64(out, key->high) : out;
}

size_t penstock_paging_request_encode(const struct penstock_paging_request *request,
                                      const struct penstock_paging_framing *framing, uint8_t *out,
                                      struct penstock_wire_fault *fault)
{
    const enum shape shape = shape_of(request->op, framing);
    if (judge(request, shape, fault) != PENSTOCK_DECODE_OK)
        return 0;

    out = wire_put_u8(out, request->op);
    switch (shape) {
    case SHAPE_END:
    case SHAPE_KEY:
        put_key(out, &request->key, framing);
        break;
    case SHAPE_KEYS:
        out = wire_put_u32(out, request->n_keys);
        for (uint32_t i = 0; i < request->n_keys; i++)
            out = put_key(out, &request->keys[i], framing);
        break;
    case SHAPE_VALUE:
        wire_put_u64(out, request->value);
        break;
    case SHAPE_RANGE:
        wire_put_u32(wire_put_u64(out, request->offset), request->len_bytes);
        break;
    case SHAPE_UNKNOWN:
        break;
    }
    return penstock_paging_request_size(request, framing);
}

static struct penstock_key read_key(struct wire_cursor *c, const struct penstock_paging_framing *framing)
{
    struct penstock_key key = { .low = wire_cursor_u64(c, "paging key") };
    if (framing->wide)
        key.high = wire_cursor_u64(c, "paging key high");
    return key;
}

enum penstock_decode penstock_paging_request_decode(const uint8_t *buf, size_t len,
                                                    const struct penstock_paging_framing *framing,
                                                    struct penstock_key *keys, struct penstock_paging_request *out,
                                                    size_t *consumed, struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    struct penstock_paging_request r = { .op = wire_cursor_u8(&c, "paging op") };
    if (c.missing)
        return wire_more(fault, c.missing, 1);

    const enum shape shape = shape_of(r.op, framing);
    if (shape == SHAPE_KEY) {
        r.key = read_key(&c, framing);
    } else if (shape == SHAPE_KEYS) {
        r.n_keys = wire_cursor_u32(&c, "paging key count");
    } else if (shape == SHAPE_VALUE) {
        r.value = wire_cursor_u64(&c, "paging value");
    } else if (shape == SHAPE_RANGE) {
        r.offset = wire_cursor_u64(&c, "paging offset");
        r.len_bytes = wire_cursor_u32(&c, "paging length");
    }
    if (c.missing)
        return wire_more(fault, c.missing, head_bytes(shape, framing));

    enum penstock_decode d = judge(&r, shape, fault);
    if (d != PENSTOCK_DECODE_OK)
        return d;
    if (shape == SHAPE_KEYS) {
        r.keys = keys;
        for (uint32_t i = 0; i < r.n_keys; i++)
            keys[i] = read_key(&c, framing);
        if (c.missing)
            return wire_more(fault, c.missing, head_bytes(shape, framing) + r.n_keys * key_bytes(framing));
    }
    *out = r;
    *consumed = (size_t)(c.at - buf);
    return PENSTOCK_DECODE_OK;
}

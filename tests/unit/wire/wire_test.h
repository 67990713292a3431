/* What every codec is put through. A test gives its decoder as a function of bytes; what it decodes it keeps itself. */
#ifndef PENSTOCK_WIRE_TEST_H
#define PENSTOCK_WIRE_TEST_H

#include <penstock/wire.h>

#include "../../golden/wire.h"
#include "../test.h"

typedef enum penstock_decode (*wire_test_decoder)(const uint8_t *buf, size_t len, size_t *consumed,
                                                  struct penstock_wire_fault *fault);

/* A field of a message: who has fewer than end bytes of it, and all of the one before, misses this one. */
struct wire_test_field {
    size_t end;
    const char *name;
};

#define WIRE_TEST_UNTOUCHED ((size_t)0xABCDEF)

/* Decodes n bytes that lie against a page that faults, and checks what holds for all decoders. */
static inline enum penstock_decode wire_test_decode(wire_test_decoder decode, const void *bytes, size_t n,
                                                    size_t *consumed, struct penstock_wire_fault *fault)
{
    *consumed = WIRE_TEST_UNTOUCHED;
    *fault = (struct penstock_wire_fault){ 0 };
    enum penstock_decode d = decode(test_against_a_guard_page(bytes, n), n, consumed, fault);
    if (d == PENSTOCK_DECODE_OK) {
        assert_true(*consumed <= n);
        return d;
    }
    assert_int_equal(*consumed, WIRE_TEST_UNTOUCHED);
    assert_non_null(fault->field);
    if (d == PENSTOCK_DECODE_MORE) {
        assert_null(fault->reason);
        assert_true(fault->need > n);
    } else {
        assert_non_null(fault->reason);
    }
    return d;
}

/* The n bytes are one whole message, whatever follows. */
static inline void wire_test_whole(wire_test_decoder decode, const void *bytes, size_t n)
{
    static uint8_t more[TEST_GUARDED_MAX];
    size_t consumed;
    struct penstock_wire_fault fault;

    assert_int_equal(wire_test_decode(decode, bytes, n, &consumed, &fault), PENSTOCK_DECODE_OK);
    assert_int_equal(consumed, n);

    memcpy(more, bytes, n);
    memset(more + n, 0xEE, 40);
    assert_int_equal(wire_test_decode(decode, more, n + 40, &consumed, &fault), PENSTOCK_DECODE_OK);
    assert_int_equal(consumed, n);
}

/* A whole message, cut after every byte: each time the field that was cut is named. And a reader that trusts `need`
 * comes to the message's end and not further. fields ends at n. */
static inline void wire_test_truncations(wire_test_decoder decode, const void *bytes, size_t n,
                                         const struct wire_test_field *fields)
{
    size_t consumed;
    struct penstock_wire_fault fault;

    for (size_t len = 0; len < n; len++) {
        while (fields->end <= len)
            fields++;
        assert_int_equal(wire_test_decode(decode, bytes, len, &consumed, &fault), PENSTOCK_DECODE_MORE);
        assert_true(fault.need <= n);
        char message[64];
        penstock_wire_fault_format(&fault, message, sizeof message);
        assert_string_equal(message, fields->name);
    }
    assert_int_equal(fields->end, n);

    size_t len = 0;
    while (wire_test_decode(decode, bytes, len, &consumed, &fault) == PENSTOCK_DECODE_MORE)
        len = fault.need;
    assert_int_equal(len, n);
}

static inline void wire_test_message(const struct penstock_wire_fault *fault, const char *message)
{
    char buf[200];
    assert_int_equal(penstock_wire_fault_format(fault, buf, sizeof buf), strlen(message));
    assert_string_equal(buf, message);
}

/* Refused with just these bytes, and with this message. */
static inline void wire_test_refused(wire_test_decoder decode, const void *bytes, size_t n, const char *message)
{
    size_t consumed;
    struct penstock_wire_fault fault;
    assert_int_equal(wire_test_decode(decode, bytes, n, &consumed, &fault), PENSTOCK_DECODE_MALFORMED);
    wire_test_message(&fault, message);
}

static inline void wire_test_random_bytes(uint64_t *seed, void *out, size_t n)
{
    for (uint8_t *at = out; n > 0; n--)
        *at++ = (uint8_t)test_random(seed);
}

static inline struct penstock_qp_identity wire_test_random_qp(uint64_t *seed)
{
    struct penstock_qp_identity qp = { .qpn = (uint32_t)test_random(seed), .psn = (uint32_t)test_random(seed) };
    wire_test_random_bytes(seed, qp.gid, sizeof qp.gid);
    return qp;
}

static inline void wire_test_qp_equal(const struct penstock_qp_identity *a, const struct penstock_qp_identity *b)
{
    assert_int_equal(a->qpn, b->qpn);
    assert_int_equal(a->psn, b->psn);
    assert_memory_equal(a->gid, b->gid, sizeof a->gid);
}

/* The golden records' identity, with the sixteen bytes of its GID from first on. */
static inline struct penstock_qp_identity wire_test_golden_qp(uint8_t first)
{
    struct penstock_qp_identity qp = { .qpn = GOLDEN_QPN, .psn = GOLDEN_PSN };
    for (size_t i = 0; i < sizeof qp.gid; i++)
        qp.gid[i] = (uint8_t)(first + i);
    return qp;
}

#endif

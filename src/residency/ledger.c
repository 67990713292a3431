#include "ledger.h"

#include <stdio.h>

#include "base/error.h"

void residency_ledger_init(struct residency_ledger *ledger, uint64_t limit_bytes)
{
    *ledger = (struct residency_ledger){ .limit_bytes = limit_bytes };
    pthread_mutex_init(&ledger->lock, NULL);
    base_list_init(&ledger->reservations);
}

void residency_ledger_fini(struct residency_ledger *ledger)
{
    pthread_mutex_destroy(&ledger->lock);
}

#define SIZE_TEXT_MAX 24

/* As --max-memory takes it: "17 B", "1.25 GiB". */
static const char *size_text(uint64_t bytes, char out[SIZE_TEXT_MAX])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    snprintf(out, SIZE_TEXT_MAX, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return out;
}

/* "a 1.00 GiB, b 2.00 GiB", as much as fits. Under the lock. */
static void list_users(const struct residency_ledger *ledger, char *out, size_t size)
{
    size_t at = 0;
    char text[SIZE_TEXT_MAX];
    out[0] = 0;
    base_list_for_each (node, &ledger->reservations) {
        const struct residency_reservation *r = base_list_entry(node, struct residency_reservation, node);
        char one[RESIDENCY_WHAT_MAX + SIZE_TEXT_MAX + 8];
        int n = snprintf(one, sizeof one, "%s%s %s", at ? ", " : "", r->what, size_text(r->bytes, text));
        if (at + (size_t)n + sizeof ", ..." > size) {
            snprintf(out + at, size - at, "%s...", at ? ", " : "");
            return;
        }
        at += (size_t)snprintf(out + at, size - at, "%s", one);
    }
}

static int refuse(const struct residency_ledger *ledger, uint64_t bytes, const char *what, struct penstock_error *error)
{
    char asked[SIZE_TEXT_MAX], limit[SIZE_TEXT_MAX], used[SIZE_TEXT_MAX], users[240];
    list_users(ledger, users, sizeof users);
    return base_error_set(error, PENSTOCK_ELIMIT,
                          "%.*s needs %s of memory, and of the %s that --max-memory allows %s are in use%s%s%s",
                          RESIDENCY_WHAT_MAX - 1, what, size_text(bytes, asked), size_text(ledger->limit_bytes, limit),
                          size_text(ledger->used_bytes, used), *users ? " (" : "", users, *users ? ")" : "");
}

int residency_reserve(struct residency_ledger *ledger, struct residency_reservation *reservation, uint64_t bytes,
                      const char *what, struct penstock_error *error)
{
    int code = 0;
    pthread_mutex_lock(&ledger->lock);
    uint64_t left = (ledger->limit_bytes ? ledger->limit_bytes : UINT64_MAX) - ledger->used_bytes;
    if (bytes > left) {
        code = refuse(ledger, bytes, what, error);
    } else {
        *reservation = (struct residency_reservation){ .ledger = ledger, .bytes = bytes };
        snprintf(reservation->what, sizeof reservation->what, "%s", what);
        base_list_append(&ledger->reservations, &reservation->node);
        ledger->used_bytes += bytes;
    }
    pthread_mutex_unlock(&ledger->lock);
    return code;
}

void residency_release(struct residency_reservation *reservation)
{
    struct residency_ledger *ledger = reservation->ledger;
    if (!ledger)
        return;
    pthread_mutex_lock(&ledger->lock);
    ledger->used_bytes -= reservation->bytes;
    base_list_remove(&reservation->node);
    pthread_mutex_unlock(&ledger->lock);
    reservation->ledger = NULL;
}

uint64_t residency_used(struct residency_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    uint64_t used = ledger->used_bytes;
    pthread_mutex_unlock(&ledger->lock);
    return used;
}

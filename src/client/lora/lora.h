/* An adapter from inside (lora.c opens it, land.c lands it). */
#ifndef PENSTOCK_CLIENT_LORA_LORA_H
#define PENSTOCK_CLIENT_LORA_LORA_H

#include <stdatomic.h>
#include <stdbool.h>

#include <penstock/lora.h>

#include "model/lora/layout.h"

/* Where an entry's matrices lie in what a landing gathers. */
struct client_lora_offsets {
    uint64_t a, b;
};

struct penstock_lora {
    atomic_uint refs; /* the caller's, and those of operations under way */
    struct penstock_catalogue *catalogue;
    struct model_lora_slot slot; /* as asked for; places and their strings are in pool */
    struct base_pool pool;

    /* Immutable once open is set. */
    bool open, rslora, fan_in_fan_out;
    struct model_lora_layout layout;
    struct penstock_range *ranges; /* of all matrices, in the order of the files, end to end in what is gathered */
    size_t n_ranges;
    struct client_lora_offsets *offsets; /* one for each entry */
    uint64_t pull_bytes;
};

void client_lora_unref(struct penstock_lora *lora);

#endif

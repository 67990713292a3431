#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "model/digest_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* The bytes get a sum that is right, so that what lies behind it is reached. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct penstock_file files[] = { { .name = "a", .len_bytes = 1 } };
    struct model_opened opened[] = { { .identity = { .len_bytes = 1 } } };
    struct model_staged staged = { .manifest = { .shards = { .at = files, .n = 1 } },
                                   .opened = { .at = opened, .n = 1 } };
    struct model_digests digests;
    if (model_digests_init(&staged, &digests, NULL) != 0)
        return 0;
    uint8_t *bytes = malloc(len + 8);
    if (!bytes)
        abort();
    memcpy(bytes, data, len);
    uint64_t sum = XXH3_64bits(bytes, len);
    for (size_t i = 0; i < 8; i++)
        bytes[len + i] = (uint8_t)(sum >> 8 * i);
    uint64_t taken = model_digests_decode(bytes, len + 8, &staged, &digests);
    if (taken > 1 || taken != digests.files[0].known)
        abort();
    free(bytes);
    model_digests_fini(&digests);
    return 0;
}

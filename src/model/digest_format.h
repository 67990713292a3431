/* The digest cache as bytes: "penstock" "digests1", then a record for each file, then XXH3-64 of all before it.
 * A record: name length u16, name, inode u64, length u64, mtime u64, ctime u64, known u64, digests. Little-endian. */
#ifndef PENSTOCK_MODEL_DIGEST_FORMAT_H
#define PENSTOCK_MODEL_DIGEST_FORMAT_H

#include "digest.h"

#define MODEL_DIGEST_CACHE_BYTES_MAX (UINT64_C(1) << 30)

PENSTOCK_CHECKED int model_digests_encode(const struct model_staged *staged, const struct model_digests *digests,
                                          struct base_buf *out, struct penstock_error *error);

/* Takes over what fits files that are staged; the number of chunks. Bytes that are damaged anywhere give 0. */
uint64_t model_digests_decode(const uint8_t *bytes, size_t len, const struct model_staged *staged,
                              struct model_digests *digests);

#endif

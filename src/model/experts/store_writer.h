/* Writing an expert store (protocol 1.4). A layer is written under a temporary name, synced, renamed; the manifest
 * comes last: without it nothing takes the directory for a store. What was finished before an interruption stays, and a
 * plan beside it says of which source it was made. */
#ifndef PENSTOCK_MODEL_EXPERTS_STORE_WRITER_H
#define PENSTOCK_MODEL_EXPERTS_STORE_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "model/experts/manifest.h"

struct model_store_writer;

/* Makes the directory where there is none (its parent has to be there, and is synced), locks it against other writers
 * and looks at what it holds. source: what the records are made from, as model_version would say it
 * (penstock_model_version_valid). Layers of the same source and manifest that are whole (size, and every record's
 * header) are kept, and what else was left of an interrupted writer is removed. EINVAL: source; ELIMIT: another writer
 * has the directory; EDENIED: it holds a finished store, or layers of another source or geometry, or such that nothing
 * is known of. */
PENSTOCK_CHECKED int model_store_writer_open(const char *directory, const struct model_expert_manifest *manifest,
                                             const char *source, struct model_store_writer **out,
                                             struct penstock_error *error);

/* Whether the layer's file is finished, by this writer or one before it. */
bool model_store_writer_has(const struct model_store_writer *writer, uint32_t layer);

/* Layers may be written at once and in any order, each by one thread at a time. begin opens a file of layer_bytes for
 * reading and writing, zeros throughout, disk space for it taken where the file system can (ENOSPC shows here, as
 * ESYS); the caller fills it by pwrite, record e at model_expert_record_at. The descriptor stays the writer's. */
PENSTOCK_CHECKED int model_store_writer_begin(struct model_store_writer *writer, uint32_t layer, int *fd,
                                              struct penstock_error *error);
/* Checks the size and every record's header, syncs, renames, syncs the directory. After a failure the layer can be
 * begun again. */
PENSTOCK_CHECKED int model_store_writer_commit(struct model_store_writer *writer, uint32_t layer,
                                               struct penstock_error *error);
/* Gives up a begun layer and removes its temporary file. */
void model_store_writer_abandon(struct model_store_writer *writer, uint32_t layer);

/* Removes a finished layer that proved to be wrong: the next writer makes it anew. */
PENSTOCK_CHECKED int model_store_writer_drop(struct model_store_writer *writer, uint32_t layer,
                                             struct penstock_error *error);

/* All layers being there, writes the manifest: now it is a store. EINVAL names a layer that is missing. */
PENSTOCK_CHECKED int model_store_writer_finish(struct model_store_writer *writer, struct penstock_error *error);

/* Abandons what is begun; what is finished stays for the next writer. NULL is fine. */
void model_store_writer_free(struct model_store_writer *writer);

#endif

#include "store_writer.h"

#include "base/error.h"

int model_store_writer_open(const char *directory, const struct model_expert_manifest *manifest, const char *source,
                            struct model_store_writer **out, struct penstock_error *error)
{
    (void)directory, (void)manifest, (void)source, (void)out;
    return base_error_set(error, PENSTOCK_EUNSUPPORTED, "not yet");
}

bool model_store_writer_has(const struct model_store_writer *writer, uint32_t layer)
{
    (void)writer, (void)layer;
    return false;
}

int model_store_writer_begin(struct model_store_writer *writer, uint32_t layer, int *fd, struct penstock_error *error)
{
    (void)writer, (void)layer, (void)fd;
    return base_error_set(error, PENSTOCK_EUNSUPPORTED, "not yet");
}

int model_store_writer_commit(struct model_store_writer *writer, uint32_t layer, struct penstock_error *error)
{
    (void)writer, (void)layer;
    return base_error_set(error, PENSTOCK_EUNSUPPORTED, "not yet");
}

void model_store_writer_abandon(struct model_store_writer *writer, uint32_t layer)
{
    (void)writer, (void)layer;
}

int model_store_writer_finish(struct model_store_writer *writer, struct penstock_error *error)
{
    (void)writer;
    return base_error_set(error, PENSTOCK_EUNSUPPORTED, "not yet");
}

void model_store_writer_free(struct model_store_writer *writer)
{
    (void)writer;
}

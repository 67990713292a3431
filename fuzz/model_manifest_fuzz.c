#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "model/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A manifest that reads keeps what manifest.h promises, and reads again when it is written. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct model_manifest m;
    struct penstock_error error = { 0 };
    char *text = malloc(len + MODEL_JSON_PADDING);
    if (!text)
        return 0;
    memcpy(text, data, len);
    memset(text + len, len > 0 ? data[0] : '}', MODEL_JSON_PADDING);
    int status = model_manifest_read(text, len, len + MODEL_JSON_PADDING, &m, &error);
    free(text);
    if (status != 0) {
        if (error.code != status || m.tensors.at)
            abort();
        return 0;
    }
    for (size_t i = 0; i < m.tensors.n; i++) {
        const struct penstock_tensor *t = &m.tensors.at[i];
        if (model_manifest_find(&m, t->name) != t || t->shard >= m.shards.n ||
            !base_range_inside(t->offset_bytes, t->len_bytes, m.shards.at[t->shard].len_bytes))
            abort();
    }
    struct base_buf out = { 0 };
    m.files.n = m.skipped_files > 0 ? 0 : m.files.n; /* a name that was not accepted cannot be written */
    if (model_manifest_write(&m, &out, NULL) != 0)
        abort();
    model_manifest_fini(&m);
    size_t n = out.n;
    if (!base_buf_room(&out, MODEL_JSON_PADDING) ||
        model_manifest_read((char *)out.at, n, n + MODEL_JSON_PADDING, &m, NULL) != 0)
        abort();
    model_manifest_fini(&m);
    base_buf_fini(&out);
    return 0;
}

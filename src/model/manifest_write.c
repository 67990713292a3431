#include <string.h>

#include "base/error.h"
#include "manifest.h"
#include "json/write.h"

#define PUT(to, literal) ((char *)memcpy(to, literal, sizeof(literal) - 1) + sizeof(literal) - 1)

static char *put_tensor(char *to, const struct penstock_tensor *tensor, size_t name_len, size_t dtype_len)
{
    to = PUT(to, "{\"name\":");
    to = json_put_string(to, tensor->name, name_len);
    to = PUT(to, ",\"dtype\":");
    to = json_put_string(to, tensor->dtype, dtype_len);
    to = PUT(to, ",\"shape\":[");
    for (uint64_t i = 0; i < tensor->rank; i++) {
        if (i > 0)
            *to++ = ',';
        to = json_put_u64(to, tensor->shape[i]);
    }
    to = PUT(to, "],\"offset_in_shard\":");
    to = json_put_u64(to, tensor->offset_bytes);
    to = PUT(to, ",\"len\":");
    to = json_put_u64(to, tensor->len_bytes);
    to = PUT(to, ",\"shard_index\":");
    to = json_put_u64(to, tensor->shard);
    return tensor->extra ? PUT(to, ",\"extra\":true}") : PUT(to, ",\"extra\":false}");
}

/* The loop that counts: a model has 100,000 of these. Room for the longest record is made once, then it is filled in
 * without a check. */
static void write_tensor(struct json_writer *w, const struct penstock_tensor *tensor)
{
    enum { REST = 128 + 3 * JSON_U64_MAX_BYTES };
    size_t name_len = strlen(tensor->name), dtype_len = strlen(tensor->dtype);
    size_t most = JSON_STRING_MAX_BYTES(name_len) + JSON_STRING_MAX_BYTES(dtype_len) + REST +
                  (size_t)tensor->rank * (JSON_U64_MAX_BYTES + 1);
    char *room = (char *)base_buf_room(w->buf, most);
    if (!room)
        return;
    char *to = room;
    if (w->comma)
        *to++ = ',';
    w->comma = true;
    w->buf->n += (size_t)(put_tensor(to, tensor, name_len, dtype_len) - room);
}

static void write_files(struct json_writer *w, const struct model_manifest *manifest)
{
    json_write_key(w, "files");
    json_write_array(w);
    base_vec_for_each (file, &manifest->files) {
        json_write_object(w);
        json_write_key_text(w, "name", file->name);
        json_write_key_u64(w, "len", file->len_bytes);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

int model_manifest_write(const struct model_manifest *manifest, struct base_buf *out, struct penstock_error *error)
{
    struct json_writer w = { .buf = out };
    json_write_object(&w);
    json_write_key_u64(&w, "version", 1);
    json_write_key_text(&w, "model_id", manifest->model_id);
    json_write_key(&w, "shard_files");
    json_write_array(&w);
    base_vec_for_each (shard, &manifest->shards)
        json_write_text(&w, shard->name);
    json_write_array_end(&w);
    json_write_key(&w, "shard_lens");
    json_write_array(&w);
    base_vec_for_each (shard, &manifest->shards)
        json_write_u64(&w, shard->len_bytes);
    json_write_array_end(&w);
    json_write_key(&w, "tensors");
    json_write_array(&w);
    base_vec_for_each (tensor, &manifest->tensors)
        write_tensor(&w, tensor);
    json_write_array_end(&w);
    if (manifest->model_version)
        json_write_key_text(&w, "model_version", manifest->model_version);
    if (manifest->files.n > 0)
        write_files(&w, manifest);
    json_write_object_end(&w);
    return out->failed ? base_error_set(error, PENSTOCK_ENOMEM, "no memory to write the manifest") : 0;
}

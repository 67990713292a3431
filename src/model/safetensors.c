#include "safetensors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "dtype.h"
#include "json/records.h"

struct parsing {
    model_safetensor_fn each;
    void *context;
    uint64_t data_at, data_bytes; /* what follows the header */
};

__attribute__((format(printf, 3, 4))) static int refuse(const struct json_header_tensor *t,
                                                        struct penstock_error *error, const char *format, ...)
{
    char words[200];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    return base_error_set(error, PENSTOCK_ECORRUPT, "tensor \"%.*s\": %s", (int)base_min_u64(t->name.len, 200),
                          t->name.at, words);
}

static int check_tensor(void *context, const struct json_header_tensor *t, struct penstock_error *error)
{
    const struct parsing *p = context;
    if (t->name.len == 0)
        return base_error_set(error, PENSTOCK_ECORRUPT, "a tensor without a name");
    if (t->begin > t->end)
        return refuse(t, error, "data_offsets: reversed");
    if (t->end > p->data_bytes)
        return refuse(t, error, "data_offsets: end %llu bytes past the end of the file",
                      (unsigned long long)(t->end - p->data_bytes));
    unsigned bits = model_dtype_bits(t->dtype.at, t->dtype.len);
    uint64_t len = t->end - t->begin, want;
    if (bits != 0 && !model_dtype_bytes(bits, t->shape, t->rank, &want))
        return refuse(t, error, "shape: no whole number of bytes, or more than 64 bits can say");
    if (bits != 0 && want != len)
        return refuse(t, error, "data_offsets: %llu bytes, but dtype and shape make %llu", (unsigned long long)len,
                      (unsigned long long)want);
    struct model_safetensor out = {
        .name = t->name,
        .dtype = t->dtype,
        .known_dtype = bits != 0 ? model_dtype_name(t->dtype.at, t->dtype.len) : NULL,
        .shape = t->shape,
        .rank = t->rank,
        .offset_bytes = p->data_at + t->begin,
        .len_bytes = len,
    };
    return p->each(p->context, &out, error);
}

int model_safetensors_parse(const char *header, size_t len, uint64_t file_bytes, model_safetensor_fn each,
                            void *context, struct penstock_error *error)
{
    struct parsing p = { .each = each, .context = context, .data_at = 8 + len, .data_bytes = file_bytes - 8 - len };
    if (len == 0 || header[0] != '{')
        return base_error_set(error, PENSTOCK_ECORRUPT, "header: not a JSON object");
    return json_header_read(header, len, PENSTOCK_ECORRUPT, check_tensor, &p, error);
}

int model_pread(int fd, void *to, size_t len, uint64_t offset, struct penstock_error *error)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(fd, (char *)to + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return base_error_sys(error, errno, "read");
        if (n == 0)
            return base_error_set(error, PENSTOCK_ECORRUPT, "ends at byte %llu", (unsigned long long)(offset + done));
        done += (size_t)n;
    }
    return 0;
}

int model_safetensors_read(int fd, uint64_t file_bytes, model_safetensor_fn each, void *context,
                           struct penstock_error *error)
{
    uint8_t prefix[8];
    uint64_t len = 0;
    if (file_bytes == 0)
        return base_error_set(error, PENSTOCK_ECORRUPT, "empty");
    if (file_bytes < sizeof prefix)
        return base_error_set(error, PENSTOCK_ECORRUPT, "shorter than the length of a header");
    int status = model_pread(fd, prefix, sizeof prefix, 0, error);
    if (status != 0)
        return status;
    for (int i = 7; i >= 0; i--)
        len = len << 8 | prefix[i];
    if (len > MODEL_HEADER_BYTES_MAX)
        return base_error_set(error, PENSTOCK_ECORRUPT, "header: %llu bytes, and 64 MiB are the most",
                              (unsigned long long)len);
    if (len > file_bytes - sizeof prefix)
        return base_error_set(error, PENSTOCK_ECORRUPT, "header: %llu bytes, and the file ends before",
                              (unsigned long long)len);
    char *header = malloc((size_t)len + JSON_PADDING);
    if (!header)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a header of %llu bytes", (unsigned long long)len);
    memset(header + len, ' ', JSON_PADDING);
    status = model_pread(fd, header, (size_t)len, sizeof prefix, error);
    if (status == 0)
        status = model_safetensors_parse(header, (size_t)len, file_bytes, each, context, error);
    free(header);
    return status;
}

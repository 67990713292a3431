#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "model/experts/store.h"

/* In memory where that is to be had, under a name that stays the same for all inputs. */
static const char *directory(void)
{
    static char path[64];
    if (path[0] == 0) {
        snprintf(path, sizeof path, "%s/penstock-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        FUZZ_CHECK(mkdtemp(path));
    }
    (void)mkdir(path, 0700); /* each input removes it */
    return path;
}

static void write_file(const char *name, const uint8_t *data, size_t len)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, data, len) == (ssize_t)len && close(fd) == 0);
}

static void clear(void)
{
    static const char *const names[] = { "manifest.json", "experts_00000.xpr", "experts_00001.xpr", "" };
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", directory(), names[i]);
        FUZZ_CHECK(remove(path) == 0);
    }
}

/* A manifest, a NUL, and the bytes of two layers' files, which get as many as the manifest would have where they are
 * few: whatever opens can be read wherever its geometry says that there is a record. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const uint8_t *end = len > 0 ? memchr(data, 0, len) : NULL;
    size_t manifest_len = end ? (size_t)(end - data) : len;
    struct model_expert_manifest m;
    struct model_store store;
    struct penstock_error error = { 0 };
    write_file(MODEL_STORE_MANIFEST, data, manifest_len);
    bool good = model_expert_manifest_read((const char *)data, manifest_len, &m, NULL) == 0;
    for (int layer = 0; layer < 2; layer++) {
        char name[MODEL_LAYER_NAME_BYTES], path[128];
        model_layer_name((uint32_t)layer, name);
        write_file(name, end ? end + 1 : data, end ? len - manifest_len - 1 : 0);
        snprintf(path, sizeof path, "%s/%s", directory(), name);
        if (good && m.geometry.layer_bytes <= 1 << 20)
            FUZZ_CHECK(truncate(path, (off_t)m.geometry.layer_bytes) == 0);
    }
    if (good)
        model_expert_manifest_fini(&m);
    int status = model_store_open(directory(), NULL, &store, &error);
    FUZZ_CHECK(status == 0 ? store.layers.n == store.manifest.geometry.num_moe_layers : error.code == status);
    if (status == 0) {
        struct penstock_record_header header;
        for (uint32_t layer = 0; layer < store.layers.n; layer++)
            for (uint32_t expert = 0; expert < store.manifest.geometry.num_experts; expert++)
                if (model_store_header(&store, layer, expert, &header, &error) == 0)
                    FUZZ_CHECK(header.layer == layer && header.expert == expert);
                else
                    FUZZ_CHECK(error.code == PENSTOCK_ECORRUPT);
        FUZZ_CHECK(model_store_changed(&store) == MODEL_SAME);
        model_store_close(&store);
    }
    clear();
    return 0;
}

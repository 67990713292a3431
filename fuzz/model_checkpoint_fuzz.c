#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "model/experts/pack.h"

#define DATA_BYTES 65536

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

/* The header, and behind it scales of 1. */
static void write_shard(const char *path, const uint8_t *header, size_t len)
{
    static const uint8_t one[4] = { 0, 0, 0x80, 0x3f };
    uint8_t *file = malloc(8 + len + DATA_BYTES);
    FUZZ_CHECK(file);
    for (size_t i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)len >> (8 * i));
    if (len > 0)
        memcpy(file + 8, header, len);
    for (size_t i = 0; i < DATA_BYTES; i++)
        file[8 + len + i] = one[i % 4];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, file, 8 + len + DATA_BYTES) == (ssize_t)(8 + len + DATA_BYTES) && close(fd) == 0);
    free(file);
}

/* Whatever is taken for an expert can be packed, and is then what was packed; a scale may be refused. */
static void pack(const struct model_checkpoint *c, uint32_t layer, uint32_t expert, int fd)
{
    struct model_packer packer;
    bool differs = true;
    FUZZ_CHECK(model_packer_init(&packer, c, 64, NULL) == 0);
    int status = model_packer_write(&packer, fd, layer, expert, NULL);
    FUZZ_CHECK(status == 0 || status == PENSTOCK_ECORRUPT);
    if (status == 0)
        FUZZ_CHECK(model_packer_verify(&packer, fd, layer, expert, &differs, NULL) == 0 && !differs);
    model_packer_fini(&packer);
}

static void look_at(const struct model_checkpoint *c)
{
    const struct model_expert_geometry *g = &c->manifest.geometry;
    int fd = memfd_create("layer", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    for (uint32_t layer = 0; layer < g->num_moe_layers; layer++) {
        FUZZ_CHECK(layer == 0 || c->manifest.model_layers[layer - 1] < c->manifest.model_layers[layer]);
        for (uint32_t expert = 0; expert < g->num_experts; expert++) {
            const struct model_checkpoint_projection *p = model_checkpoint_expert(c, layer, expert);
            for (size_t i = 0; i < (size_t)MODEL_EXPERT_PROJECTIONS * MODEL_CHECKPOINT_INPUT; i++)
                FUZZ_CHECK(p[i / MODEL_CHECKPOINT_INPUT].of[i % MODEL_CHECKPOINT_INPUT]);
        }
    }
    pack(c, 0, 0, fd);
    pack(c, g->num_moe_layers - 1, g->num_experts - 1, fd);
    close(fd);
}

/* The header of a checkpoint's only shard. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char path[128];
    struct model_checkpoint c;
    struct penstock_error error = { 0 };
    snprintf(path, sizeof path, "%s/model.safetensors", directory());
    write_shard(path, data, len);
    int status = model_checkpoint_open(directory(), 0, NULL, &c, &error);
    FUZZ_CHECK(status == 0 || (error.code == status && error.message[0] != 0));
    if (status == 0) {
        look_at(&c);
        model_checkpoint_close(&c);
    }
    FUZZ_CHECK(remove(path) == 0 && rmdir(directory()) == 0);
    return 0;
}

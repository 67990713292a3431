/* A checkpoint of one layer and two experts, made here, and the records that it is packed into. */
#include "../directory.h"

#include <stdlib.h>
#include <unistd.h>

#include "model/experts/pack.h"

enum { INTER = 16, HIDDEN = 32, GROUP = 16, EXPERTS = 2 };

static const struct {
    const char *name;
    size_t rows, columns; /* values */
} projections[] = { { "gate_proj", INTER, HIDDEN }, { "up_proj", INTER, HIDDEN }, { "down_proj", HIDDEN, INTER } };

static uint8_t data[16384];
static size_t data_bytes;

static void add(char *header, size_t size, const char *name, const char *dtype, size_t rows, size_t columns, size_t len)
{
    size_t at = strlen(header);
    int n = rows ? snprintf(header + at, size - at, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu,%zu]", at > 1 ? "," : "",
                            name, dtype, rows, columns)
                 : snprintf(header + at, size - at, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[1]", at > 1 ? "," : "", name,
                            dtype);
    at += (size_t)n;
    snprintf(header + at, size - at, ",\"data_offsets\":[%zu,%zu]}", data_bytes, data_bytes + len);
    data_bytes += len;
}

/* Bytes of matrices are their place in the file; every global scale is 4. */
static int set_up(void **state)
{
    if (test_directory_setup(state) != 0)
        return -1;
    static char header[16384];
    char name[128];
    snprintf(header, sizeof header, "{");
    data_bytes = 0;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7 + i / 256);
    for (int expert = 0; expert < EXPERTS; expert++)
        for (size_t p = 0; p < 3; p++) {
            size_t rows = projections[p].rows, columns = projections[p].columns;
            int n = snprintf(name, sizeof name, "m.layers.0.mlp.experts.%d.%s.", expert, projections[p].name);
            snprintf(name + n, sizeof name - (size_t)n, "weight_packed");
            add(header, sizeof header, name, "U8", rows, columns / 2, rows * columns / 2);
            snprintf(name + n, sizeof name - (size_t)n, "weight_scale");
            add(header, sizeof header, name, "F8_E4M3", rows, columns / GROUP, rows * columns / GROUP);
            snprintf(name + n, sizeof name - (size_t)n, "weight_global_scale");
            const float four = 4;
            memcpy(data + data_bytes, &four, sizeof four);
            add(header, sizeof header, name, "F32", 0, 0, sizeof four);
        }
    snprintf(header + strlen(header), 2, "}");
    static uint8_t file[sizeof header + sizeof data];
    uint64_t header_bytes = strlen(header); /* little-endian, as this machine is */
    memcpy(file, &header_bytes, 8);
    memcpy(file + 8, header, header_bytes);
    memcpy(file + 8 + header_bytes, data, data_bytes);
    test_file("model.safetensors", file, 8 + header_bytes + data_bytes);
    return 0;
}

static void open_with(struct model_checkpoint *c, struct model_packer *packer, uint64_t piece_bytes)
{
    const struct model_stage_options options = { 0 };
    struct penstock_error error = { 0 };
    int status = model_checkpoint_open(test_path("."), 0, &options, c, &error);
    if (status)
        print_error("%s\n", error.message);
    assert_int_equal(status, 0);
    assert_int_equal(model_packer_init(packer, c, piece_bytes, NULL), 0);
}

static void open_checkpoint(struct model_checkpoint *c, struct model_packer *packer)
{
    open_with(c, packer, MODEL_PACKER_PIECE_BYTES);
}

static void close_checkpoint(struct model_checkpoint *c, struct model_packer *packer)
{
    model_packer_fini(packer);
    model_checkpoint_close(c);
}

static int layer_file(void)
{
    test_file("layer", "", 0);
    int fd = open(test_path("layer"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void matrices_are_stored_transposed_and_scales_inverted(void **state)
{
    (void)state;
    struct model_checkpoint c;
    struct model_packer packer;
    struct penstock_record_header header;
    static uint8_t record[8192];
    open_checkpoint(&c, &packer);
    int fd = layer_file();
    const struct model_expert_geometry *g = &c.manifest.geometry;
    assert_string_equal(c.prefix, "m");
    assert_int_equal(g->inter, INTER);
    assert_int_equal(g->hidden, HIDDEN);
    assert_int_equal(g->group_size, GROUP);
    assert_int_equal(g->num_experts, EXPERTS);
    for (uint32_t expert = 0; expert < EXPERTS; expert++) {
        assert_true(g->record_stride <= sizeof record);
        assert_int_equal(model_packer_write(&packer, fd, 0, expert, NULL), 0);
        assert_int_equal(pread(fd, record, g->record_stride, (off_t)model_expert_record_at(g, expert)),
                         g->record_stride);
        assert_int_equal(model_expert_header_check(g, 0, expert, record, &header, NULL), 0);
        assert_true(header.scale2[0] == 0.25f && header.scale2[2] == 0.25f);
        assert_int_equal(header.input_scale_flags, 0);
        size_t at = expert * (data_bytes / EXPERTS);
        for (size_t p = 0; p < 3; p++) {
            size_t rows = projections[p].rows, packed = projections[p].columns / 2;
            const uint8_t *stored = record + g->parts[2 * p].offset_bytes;
            for (size_t r = 0; r < rows; r++)
                for (size_t k = 0; k < packed; k++)
                    assert_int_equal(stored[k * rows + r], data[at + r * packed + k]);
            at += rows * packed;
            size_t scales = projections[p].columns / GROUP;
            stored = record + g->parts[2 * p + 1].offset_bytes;
            for (size_t r = 0; r < rows; r++)
                for (size_t k = 0; k < scales; k++)
                    assert_int_equal(stored[k * rows + r], data[at + r * scales + k]);
            at += rows * scales + 4;
        }
    }
    close(fd);
    close_checkpoint(&c, &packer);
}

/* Down to a column at a time, and with a rest: what the largest experts need. */
static void pieces_of_any_size_make_the_same_record(void **state)
{
    (void)state;
    static uint8_t want[16384], got[sizeof want];
    for (uint64_t piece_bytes = 1024; piece_bytes > 0; piece_bytes /= 3) {
        struct model_checkpoint c;
        struct model_packer packer;
        bool differs;
        open_with(&c, &packer, piece_bytes);
        uint64_t bytes = c.manifest.geometry.layer_bytes;
        int fd = layer_file();
        assert_true(bytes <= sizeof want);
        for (uint32_t expert = 0; expert < EXPERTS; expert++) {
            assert_int_equal(model_packer_write(&packer, fd, 0, expert, NULL), 0);
            assert_int_equal(model_packer_verify(&packer, fd, 0, expert, &differs, NULL), 0);
        }
        assert_int_equal(pread(fd, piece_bytes == 1024 ? want : got, bytes, 0), bytes);
        if (piece_bytes < 1024)
            assert_memory_equal(got, want, bytes);
        close(fd);
        close_checkpoint(&c, &packer);
    }
}

/* Grok's: a record of 340 MB, of which two with their sources would not fit in 512 MiB. */
static void memory_is_bounded_whatever_an_expert_takes(void **state)
{
    (void)state;
    struct model_expert_geometry g = { .num_moe_layers = 64,
                                       .num_experts = 8,
                                       .inter = 32768,
                                       .hidden = 6144,
                                       .group_size = 16,
                                       .sub_align = 256,
                                       .fs_block_size = 4096 };
    assert_int_equal(model_expert_geometry_compute(&g, NULL), 0);
    assert_true(g.record_stride > 300 << 20);
    assert_true(model_packer_bytes(&g, MODEL_PACKER_PIECE_BYTES) <= 3 * MODEL_PACKER_PIECE_BYTES);
}

static void a_record_that_differs_is_named_by_its_part(void **state)
{
    (void)state;
    struct model_checkpoint c;
    struct model_packer packer;
    struct penstock_error error = { 0 };
    bool differs = true;
    open_checkpoint(&c, &packer);
    const struct model_expert_geometry *g = &c.manifest.geometry;
    int fd = layer_file();
    for (uint32_t expert = 0; expert < EXPERTS; expert++)
        assert_int_equal(model_packer_write(&packer, fd, 0, expert, NULL), 0);
    assert_int_equal(model_packer_verify(&packer, fd, 0, 1, &differs, NULL), 0);
    assert_false(differs);

    uint8_t byte;
    off_t at = (off_t)(model_expert_record_at(g, 1) + g->parts[MODEL_EXPERT_UP_SCALE].offset_bytes);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(model_packer_verify(&packer, fd, 0, 1, &differs, &error), PENSTOCK_ECORRUPT);
    assert_true(differs);
    assert_non_null(strstr(error.message, "layer 0: expert 1: up.scale is not what the checkpoint has"));
    assert_int_equal(model_packer_verify(&packer, fd, 0, 0, &differs, NULL), 0);
    assert_false(differs);
    close(fd);
    close_checkpoint(&c, &packer);
}

static void a_checkpoint_that_was_cut_is_not_the_stores_fault(void **state)
{
    (void)state;
    struct model_checkpoint c;
    struct model_packer packer;
    struct penstock_error error = { 0 };
    bool differs = true;
    open_checkpoint(&c, &packer);
    int fd = layer_file();
    for (uint32_t expert = 0; expert < EXPERTS; expert++)
        assert_int_equal(model_packer_write(&packer, fd, 0, expert, NULL), 0);
    struct stat whole;
    assert_int_equal(stat(test_path("model.safetensors"), &whole), 0);
    assert_int_equal(truncate(test_path("model.safetensors"), whole.st_size - 1), 0);
    assert_int_not_equal(model_packer_verify(&packer, fd, 0, 1, &differs, &error), 0);
    assert_false(differs);
    assert_non_null(strstr(error.message, "m.layers.0.mlp.experts.1.down_proj.weight_global_scale"));
    close(fd);
    close_checkpoint(&c, &packer);
}

/* The shards alone are what is packed: a file beside them may change, and between two runs as well. */
static void a_shard_that_is_written_to_is_told_and_another_file_is_not(void **state)
{
    (void)state;
    struct model_checkpoint c, again;
    struct model_packer packer, other;
    struct penstock_error error = { 0 };
    open_checkpoint(&c, &packer);
    test_text_file("config.json", "{}");
    assert_int_equal(model_checkpoint_unchanged(&c, NULL), 0);
    open_checkpoint(&again, &other);
    assert_string_equal(again.source, c.source);
    close_checkpoint(&again, &other);

    int fd = open(test_path("model.safetensors"), O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    assert_int_equal(model_checkpoint_unchanged(&c, &error), PENSTOCK_ESTALE);
    assert_non_null(strstr(error.message, "/model.safetensors was written to meanwhile"));
    close_checkpoint(&c, &packer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_shard_that_is_written_to_is_told_and_another_file_is_not, set_up,
                                        test_directory_teardown),
        cmocka_unit_test_setup_teardown(matrices_are_stored_transposed_and_scales_inverted, set_up,
                                        test_directory_teardown),
        cmocka_unit_test_setup_teardown(pieces_of_any_size_make_the_same_record, set_up, test_directory_teardown),
        cmocka_unit_test(memory_is_bounded_whatever_an_expert_takes),
        cmocka_unit_test_setup_teardown(a_record_that_differs_is_named_by_its_part, set_up, test_directory_teardown),
        cmocka_unit_test_setup_teardown(a_checkpoint_that_was_cut_is_not_the_stores_fault, set_up,
                                        test_directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

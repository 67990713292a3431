#include "geometry.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/error.h"

/* What off_t and every reader's arithmetic can have. */
#define BYTES_MAX ((uint64_t)INT64_MAX)

static int check_given(const struct model_expert_geometry *g, struct penstock_error *error)
{
    const struct {
        const char *name;
        uint32_t value;
    } fields[] = {
        { "num_moe_layers", g->num_moe_layers },
        { "num_experts", g->num_experts },
        { "inter", g->inter },
        { "hidden", g->hidden },
        { "group_size", g->group_size },
        { "sub_align", g->sub_align },
        { "fs_block_size", g->fs_block_size },
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].value == 0)
            return base_error_set(error, PENSTOCK_EINVAL, "%s: 0", fields[i].name);
    if (g->num_moe_layers > PENSTOCK_LAYERS_MAX)
        return base_error_set(error, PENSTOCK_EINVAL, "num_moe_layers: %" PRIu32 ", and %u are the most",
                              g->num_moe_layers, PENSTOCK_LAYERS_MAX);
    if ((g->sub_align & (g->sub_align - 1)) != 0)
        return base_error_set(error, PENSTOCK_EINVAL, "sub_align: %" PRIu32 " is no power of two", g->sub_align);
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "inter" : "hidden";
        uint32_t value = i == 0 ? g->inter : g->hidden;
        if (value % 2 != 0)
            return base_error_set(error, PENSTOCK_EINVAL, "%s: %" PRIu32 " is odd, and a byte holds two values", name,
                                  value);
        if (value % g->group_size != 0)
            return base_error_set(error, PENSTOCK_EINVAL,
                                  "%s: %" PRIu32 " is no multiple of group_size, which is %" PRIu32, name, value,
                                  g->group_size);
    }
    return 0;
}

/* Up to the next multiple of any step but 0. */
static bool round_up(uint64_t n, uint64_t step, uint64_t *out)
{
    uint64_t above = n % step;
    return above == 0 ? (*out = n, true) : base_add_u64(n, step - above, out);
}

static bool place_parts(struct model_expert_geometry *g)
{
    uint64_t at = PENSTOCK_RECORD_HEADER_BYTES;
    g->payload_bytes = 0;
    for (enum model_expert_part part = 0; part < MODEL_EXPERT_PARTS; part++) {
        struct model_expert_range *range = &g->parts[part];
        uint64_t values = (uint64_t)model_expert_rows(g, part) * model_expert_columns(g, part);
        range->len_bytes = part % 2 == 0 ? values / 2 : values / g->group_size;
        if (!round_up(at, g->sub_align, &range->offset_bytes) ||
            !base_add_u64(range->offset_bytes, range->len_bytes, &at) ||
            !base_add_u64(g->payload_bytes, range->len_bytes, &g->payload_bytes))
            return false;
    }
    return round_up(at, g->sub_align, &g->record_raw_bytes) &&
           round_up(g->record_raw_bytes, g->fs_block_size, &g->record_stride);
}

int model_expert_geometry_compute(struct model_expert_geometry *geometry, struct penstock_error *error)
{
    int status = check_given(geometry, error);
    if (status != 0)
        return status;
    if (!place_parts(geometry) || geometry->record_stride > BYTES_MAX)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "inter and hidden: a record of %" PRIu32 " by %" PRIu32 " is more than a file can hold",
                              geometry->inter, geometry->hidden);
    if (!base_mul_u64(geometry->num_experts, geometry->record_stride, &geometry->layer_bytes) ||
        !base_mul_u64(geometry->num_moe_layers, geometry->layer_bytes, &geometry->total_bytes) ||
        geometry->total_bytes > BYTES_MAX)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "num_experts: %" PRIu32 " records of %" PRIu64 " bytes in each of %" PRIu32
                              " layers are more than files can hold",
                              geometry->num_experts, geometry->record_stride, geometry->num_moe_layers);
    return 0;
}

static bool is_down(enum model_expert_part part)
{
    return part == MODEL_EXPERT_DOWN_PACKED || part == MODEL_EXPERT_DOWN_SCALE;
}

uint32_t model_expert_rows(const struct model_expert_geometry *geometry, enum model_expert_part part)
{
    return is_down(part) ? geometry->hidden : geometry->inter;
}

uint32_t model_expert_columns(const struct model_expert_geometry *geometry, enum model_expert_part part)
{
    return is_down(part) ? geometry->inter : geometry->hidden;
}

const char *model_expert_part_name(enum model_expert_part part)
{
    static const char *const names[] = {
        "gate.packed", "gate.scale", "up.packed", "up.scale", "down.packed", "down.scale",
    };
    return names[part];
}

int model_expert_header_check(const struct model_expert_geometry *geometry, uint32_t layer, uint32_t expert,
                              const uint8_t *record, struct penstock_record_header *out, struct penstock_error *error)
{
    struct penstock_record_header header;
    struct penstock_wire_fault fault;
    size_t consumed;
    if (penstock_record_header_decode(record, PENSTOCK_RECORD_HEADER_BYTES, &header, &consumed, &fault) !=
        PENSTOCK_DECODE_OK) {
        char words[100];
        penstock_wire_fault_format(&fault, words, sizeof words);
        return base_error_set(error, PENSTOCK_ECORRUPT, "layer %" PRIu32 ", expert %" PRIu32 ": %s", layer, expert,
                              words);
    }
    const struct {
        const char *name;
        uint32_t value, want;
    } fields[] = {
        { "layer", header.layer, layer },
        { "expert", header.expert, expert },
        { "inter", header.inter, geometry->inter },
        { "hidden", header.hidden, geometry->hidden },
        { "group_size", header.group_size, geometry->group_size },
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].value != fields[i].want)
            return base_error_set(error, PENSTOCK_ECORRUPT,
                                  "layer %" PRIu32 ", expert %" PRIu32 ": record %s: %" PRIu32 ", not %" PRIu32, layer,
                                  expert, fields[i].name, fields[i].value, fields[i].want);
    if (out)
        *out = header;
    return 0;
}

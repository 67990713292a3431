#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <penstock/lora.h>

#include "arguments.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/vec.h"
#include "cmd.h"
#include "patience.h"
#include "pull_rails.h"
#include "reach.h"
#include "save.h"
#include "text.h"

#define CONFIG_BYTES_MAX (16 << 20)

static const char help[] =
    "usage: penstock lora PEER ADAPTER --max-rank R [-o SLOT.bin] [OPTIONS]\n"
    "\n"
    "Lands a PEFT adapter as an engine's pool slot would hold it: BF16, each A padded to R rows and each B to R "
    "columns,\n"
    "by layer and module. Shows what lies where, and the scale that each module's product is to be multiplied by.\n"
    "PEER is HOST, HOST:PORT or [IPV6]:PORT (9910 where no port is given).\n"
    "\n"
    "      --max-rank R       of the slot, 1 to 65536: the adapter's ranks may be up to that\n"
    "  -o, --output FILE      write the slot there, once all of it has come; without it nothing is pulled\n"
    "      --config FILE      the adapter_config.json to use, where the peer publishes none\n"
    "      --timeout SECONDS  give up on a peer that brings no byte for so long; default: 30, 300 for the manifest\n"
    "      --transport T      rdma, tcp, or auto: RDMA where both ends have it, else TCP (the default)\n"
    "      --rail RAIL        a port for RDMA, as for `penstock pull`; can be given several times\n"
    "      --json             print one JSON object in place of the table\n"
    "\n"
    "Environment: PENSTOCK_TRANSPORT, PENSTOCK_RAILS and PENSTOCK_CONGESTION, as for `penstock pull`.\n";

struct lora_command {
    const char *peer, *adapter, *output, *config;
    uint64_t max_rank;
    bool json;
    struct reach reach;
};

enum { OPT_MAX_RANK = 256, OPT_CONFIG, OPT_JSON };

static const struct option long_options[] = {
    { "max-rank", required_argument, NULL, OPT_MAX_RANK },
    { "output", required_argument, NULL, 'o' },
    { "config", required_argument, NULL, OPT_CONFIG },
    REACH_LONG_OPTIONS,
    { "json", no_argument, NULL, OPT_JSON },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

static int wrong(const char *words, const char *what)
{
    return cli_wrong("lora", words, what);
}

/* CLI_OK with *help_asked, or a filled command, or CLI_USAGE. */
static int parse(int argc, char **argv, struct lora_command *command, bool *help_asked)
{
    int status = CLI_OK;
    optind = 1;
    for (int c; status == CLI_OK && (c = getopt_long(argc, argv, "o:h", long_options, NULL)) != -1;) {
        switch (c) {
        case OPT_MAX_RANK:
            if (!cli_number(optarg, 1, 65536, &command->max_rank))
                return wrong("--max-rank takes a number from 1 to 65536, not ", optarg);
            break;
        case 'o':
            command->output = optarg;
            break;
        case OPT_CONFIG:
            command->config = optarg;
            break;
        case OPT_JSON:
            command->json = true;
            break;
        case 'h':
            *help_asked = true;
            return CLI_OK;
        default:
            status = reach_take(&command->reach, "lora", c, optarg);
        }
    }
    if (status != CLI_OK)
        return status;
    if (argc - optind != 2)
        return wrong("", "a PEER and an ADAPTER are needed");
    if (command->max_rank == 0)
        return wrong("", "--max-rank is needed");
    if (command->output && !*command->output)
        return wrong("", "-o is empty");
    command->peer = argv[optind];
    command->adapter = argv[optind + 1];
    return reach_settle(&command->reach, "lora");
}

/* ---- files ---- */

static int read_config(const char *path, struct base_buf *out, struct penstock_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return base_error_sys(error, errno, "%s", path);
    ssize_t n = 1;
    while (n > 0 && !out->failed && out->n <= CONFIG_BYTES_MAX) {
        uint8_t *room = base_buf_room(out, 1 << 16);
        n = room ? read(fd, room, 1 << 16) : 0;
        out->n += n > 0 ? (size_t)n : 0;
    }
    int failed = errno;
    close(fd);
    if (n < 0)
        return base_error_sys(error, failed, "%s", path);
    if (out->failed)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %s", path);
    return out->n > CONFIG_BYTES_MAX ? base_error_set(error, PENSTOCK_ELIMIT, "%s: it is above 16 MiB", path) : 0;
}

/* ---- what came ---- */

struct outcome {
    struct penstock_lora_info info;
    const char *adapter, *version;
    double seconds;
    struct pull_rails rails;
};

static void entries_json(const struct penstock_lora *lora)
{
    const struct penstock_lora_entry *e;
    fputs("\"entries\":[", stdout);
    for (size_t i = 0; (e = penstock_lora_at(lora, i)); i++) {
        printf("%s{\"layer\":%llu,\"module\":", i ? "," : "", (unsigned long long)e->layer);
        cli_print_json(stdout, e->module);
        printf(",\"in\":%llu,\"out\":%llu,\"rank\":%llu,\"scale\":%.17g,\"a\":{\"offset\":%llu,\"bytes\":%llu},"
               "\"b\":{\"offset\":%llu,\"bytes\":%llu}}",
               (unsigned long long)e->in, (unsigned long long)e->out, (unsigned long long)e->rank, e->scale,
               (unsigned long long)e->a_offset_bytes, (unsigned long long)e->a_len_bytes,
               (unsigned long long)e->b_offset_bytes, (unsigned long long)e->b_len_bytes);
    }
    fputs("],\"left_out\":[", stdout);
    const char *name;
    for (size_t i = 0; (name = penstock_lora_left_out(lora, i)); i++) {
        fputs(i ? "," : "", stdout);
        cli_print_json(stdout, name);
    }
    fputs("]", stdout);
}

static void print_json(const struct lora_command *command, const struct penstock_lora *lora, const struct outcome *o)
{
    fputs("{\"adapter\":", stdout);
    cli_print_json(stdout, o->adapter);
    fputs(",\"model_version\":", stdout);
    if (o->version)
        cli_print_json(stdout, o->version);
    else
        fputs("null", stdout);
    fputs(",\"output\":", stdout);
    if (command->output)
        cli_print_json(stdout, command->output);
    else
        fputs("null", stdout);
    printf(",\"max_rank\":%llu,\"slot_bytes\":%llu,\"pull_bytes\":%llu,\"seconds\":%.6f,\"rslora\":%s,"
           "\"fan_in_fan_out\":%s,",
           (unsigned long long)o->info.max_rank, (unsigned long long)o->info.slot_bytes,
           (unsigned long long)o->info.pull_bytes, o->seconds, o->info.rslora ? "true" : "false",
           o->info.fan_in_fan_out ? "true" : "false");
    entries_json(lora);
    fputc(',', stdout);
    pull_rails_print_json(&o->rails, stdout);
    fputs("}\n", stdout);
}

static void print_table(const struct lora_command *command, const struct penstock_lora *lora, const struct outcome *o)
{
    const struct penstock_lora_entry *e;
    const char *name;
    size_t width = 6;
    for (size_t i = 0; (e = penstock_lora_at(lora, i)); i++)
        width = cli_escape(NULL, 0, e->module) > width ? cli_escape(NULL, 0, e->module) : width;
    printf("LAYER  %-*s  %6s  %10s  %8s  %8s  %14s  %14s\n", (int)width, "MODULE", "RANK", "SCALE", "IN", "OUT", "A AT",
           "B AT");
    for (size_t i = 0; (e = penstock_lora_at(lora, i)); i++) {
        printf("%5llu  ", (unsigned long long)e->layer);
        size_t columns = cli_print_escaped(stdout, e->module);
        printf("%*s  %6llu  %10.6g  %8llu  %8llu  %14llu  %14llu\n", (int)(width - columns), "",
               (unsigned long long)e->rank, e->scale, (unsigned long long)e->in, (unsigned long long)e->out,
               (unsigned long long)e->a_offset_bytes, (unsigned long long)e->b_offset_bytes);
    }
    for (size_t i = 0; (name = penstock_lora_left_out(lora, i)); i++) {
        fputs("left out, since it has no layer: ", stdout);
        cli_print_escaped(stdout, name);
        putchar('\n');
    }
    if (o->info.fan_in_fan_out)
        puts("fan_in_fan_out: the base model keeps these weights transposed, [in, out]");
    char size[CLI_SIZE_MAX], pulled[CLI_SIZE_MAX], count[CLI_COUNT_MAX], over[PULL_OVER_MAX];
    cli_print_escaped(stdout, command->output ? command->output : o->adapter);
    printf(": %s, max_rank %llu, %s%s", cli_count(o->info.entries, "module", count),
           (unsigned long long)o->info.max_rank, cli_size(o->info.slot_bytes, size),
           command->output ? "" : " a slot; nothing pulled (no -o)");
    if (command->output)
        printf("; pulled %s in %.2f s %s", cli_size(o->info.pull_bytes, pulled), o->seconds,
               pull_rails_over(&o->rails, over));
    putchar('\n');
}

static int land(const struct lora_command *command, struct penstock_session *session, struct penstock_lora *lora,
                struct outcome *o, struct penstock_error *error)
{
    /* Whole pages of zeros that cost nothing until they are written. */
    void *slot = mmap(NULL, o->info.slot_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slot == MAP_FAILED)
        return base_error_sys(error, errno, "no memory for a slot of %llu bytes",
                              (unsigned long long)o->info.slot_bytes);
    const struct penstock_memory memory = { .size = sizeof memory, .address = slot, .len_bytes = o->info.slot_bytes };
    const struct penstock_lora_landing landing = { .size = sizeof landing, .slot = &memory };
    int64_t begin_ns = base_now_ns();
    int code = penstock_lora_land_wait(session, lora, &landing, error);
    o->seconds = (double)(base_now_ns() - begin_ns) / (double)BASE_SECOND_NS;
    code = code ? code : cli_save(command->output, slot, o->info.slot_bytes, error);
    munmap(slot, o->info.slot_bytes);
    return code;
}

static int run(const struct lora_command *command, struct penstock_session *session, const struct base_buf *config,
               struct penstock_error *error)
{
    struct penstock_lora *lora;
    const struct penstock_lora_options options = { .size = sizeof options,
                                                   .max_rank = command->max_rank,
                                                   .config = command->config ? (const char *)config->at : NULL,
                                                   .config_len_bytes = config->n };
    int code = penstock_lora_open(session, &options, &lora, error);
    if (code)
        return code;
    struct penstock_catalogue *catalogue = penstock_session_catalogue(session);
    struct outcome o = { .info = { .size = sizeof o.info },
                         .adapter = penstock_catalogue_model_id(catalogue),
                         .version = penstock_catalogue_version(catalogue) };
    code = penstock_lora_about(lora, &o.info);
    if (code == 0 && command->output)
        code = land(command, session, lora, &o, error);
    pull_rails_add(&o.rails, session, true);
    if (code == 0)
        (command->json ? print_json : print_table)(command, lora, &o);
    penstock_catalogue_unref(catalogue);
    penstock_lora_free(lora);
    return code;
}

static int open_and_run(struct lora_command *command, const struct base_buf *config, struct penstock_error *error)
{
    struct penstock_session *session;
    struct penstock_options *how = &command->reach.options;
    if (!command->output && how->transport == PENSTOCK_TRANSPORT_AUTO)
        how->transport = PENSTOCK_TRANSPORT_TCP; /* nothing to be registered for */
    patience_begin("waiting for %s to stage %s...", command->peer, command->adapter);
    int code = penstock_weights_open(command->peer, command->adapter, NULL, how, &session, error);
    patience_end();
    if (code)
        return code;
    code = run(command, session, config, error);
    penstock_session_free(session);
    return code;
}

int cmd_lora(int argc, char **argv)
{
    struct lora_command command = { 0 };
    bool help_asked = false;
    reach_init(&command.reach);
    int status = parse(argc, argv, &command, &help_asked);
    if (help_asked) {
        fputs(help, stdout);
    } else if (status == CLI_OK) {
        struct penstock_error error = { 0 };
        struct base_buf config = { 0 };
        int code = command.config ? read_config(command.config, &config, &error) : 0;
        code = code ? code : open_and_run(&command, &config, &error);
        base_buf_fini(&config);
        status = code ? cli_failed(&error) : CLI_OK;
    }
    reach_fini(&command.reach);
    return status;
}

#include "cmd_wire.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cmd.h"
#include "wire_json.h"

/* No JSON of a record is longer: 8 rails of 4096 layers, written with many blanks. */
enum { JSON_BYTES_MAX = 64 << 20 };

static void usage(FILE *to)
{
    fputs("usage: penstock wire decode RECORD [--rails N] < BYTES\n"
          "       penstock wire encode RECORD < JSON\n"
          "\n"
          "Turns a record of the wire protocol into one line of JSON, and back, for debugging a capture.\n"
          "\n"
          "  --rails N   server-rails: how many were negotiated (as many as there are)\n"
          "\n"
          "RECORD is one of:\n",
          to);
    for (size_t i = 0; wire_json_at(i); i++)
        fprintf(to, "  %s\n", wire_json_at(i)->name);
}

/* All of stdin; more than max bytes are refused. */
static int read_stdin(struct base_buf *buf, size_t max, struct penstock_error *error)
{
    for (;;) {
        uint8_t *room = base_buf_room(buf, 65536);
        if (!room)
            return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the input");
        ssize_t n = read(STDIN_FILENO, room, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return base_error_sys(error, errno, "standard input");
        if (n == 0)
            return 0;
        buf->n += (size_t)n;
        if (buf->n > max)
            return base_error_set(error, PENSTOCK_EPROTO, "standard input: more than the %zu bytes that a record takes",
                                  max);
    }
}

static int decode(const struct wire_json_record *record, size_t rails, const struct base_buf *in, struct base_buf *out,
                  struct penstock_error *error)
{
    struct json_writer w = { .buf = out };
    struct penstock_wire_fault fault;
    size_t consumed = 0;
    char message[200];

    if (record->rails && rails == 0 && in->n > 0)
        rails = in->at[0];
    enum penstock_decode d = record->print(in->at, in->n, rails, &w, &consumed, &fault);
    if (d != PENSTOCK_DECODE_OK) {
        penstock_wire_fault_format(&fault, message, sizeof message);
        return base_error_set(error, PENSTOCK_EPROTO, "%s%s", message,
                              d == PENSTOCK_DECODE_MORE ? ": end of input" : "");
    }
    if (consumed < in->n)
        return base_error_set(error, PENSTOCK_EPROTO, "%zu byte%s left over after a record of %zu byte%s",
                              in->n - consumed, in->n - consumed == 1 ? "" : "s", consumed, consumed == 1 ? "" : "s");
    base_buf_append(out, "\n", 1);
    return 0;
}

static int encode(const struct wire_json_record *record, const struct base_buf *in, struct base_buf *out,
                  struct penstock_error *error)
{
    struct json_doc doc;
    int code = json_parse((const char *)in->at, in->n, &doc, error);
    if (code == 0)
        code = record->parse(&doc.root, out, error);
    json_doc_fini(&doc);
    return code;
}

static int run(const struct wire_json_record *record, bool decoding, size_t rails, struct base_buf *in,
               struct base_buf *out, struct penstock_error *error)
{
    int code = read_stdin(in, decoding ? PENSTOCK_SERVER_RAILS_BYTES_MAX : JSON_BYTES_MAX, error);
    if (code == 0)
        code = decoding ? decode(record, rails, in, out, error) : encode(record, in, out, error);
    if (code == 0 && out->failed)
        code = base_error_set(error, PENSTOCK_ENOMEM, "no memory for the output");
    if (code == 0 && (fwrite(out->at, 1, out->n, stdout) != out->n || fflush(stdout) != 0))
        code = base_error_sys(error, errno, "standard output");
    return code;
}

static int bad_usage(const char *message, const char *word)
{
    fprintf(stderr, "penstock wire: %s%s\n", message, word);
    usage(stderr);
    return CLI_USAGE;
}

int cmd_wire(int argc, char **argv)
{
    static const struct option options[] = { { "rails", required_argument, NULL, 'r' },
                                             { "help", no_argument, NULL, 'h' },
                                             { 0 } };
    char *end;
    unsigned long rails = 0;
    int option;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == 'h') {
            usage(stdout);
            return CLI_OK;
        }
        if (option != 'r') {
            usage(stderr);
            return CLI_USAGE;
        }
        rails = strtoul(optarg, &end, 10);
        if (optarg[0] < '0' || optarg[0] > '9' || *end || rails < 1 || rails > PENSTOCK_RAILS_MAX)
            return bad_usage("--rails takes 1 to 8, not ", optarg);
    }
    if (argc - optind != 2)
        return bad_usage("decode or encode, and a RECORD, are wanted", "");

    const bool decoding = strcmp(argv[optind], "decode") == 0;
    if (!decoding && strcmp(argv[optind], "encode") != 0)
        return bad_usage("neither decode nor encode: ", argv[optind]);
    const struct wire_json_record *record = wire_json_find(argv[optind + 1]);
    if (!record)
        return bad_usage("no record ", argv[optind + 1]);
    if (rails > 0 && !(decoding && record->rails))
        return bad_usage("--rails is for decode server-rails", "");
    if (!decoding && isatty(STDOUT_FILENO)) {
        fputs("penstock wire: encode writes bytes that are no text: redirect standard output to a file or a pipe\n",
              stderr);
        return CLI_USAGE;
    }

    struct base_buf in = { 0 }, out = { 0 };
    struct penstock_error error = { 0 };
    int code = run(record, decoding, rails, &in, &out, &error);
    if (code != 0)
        fprintf(stderr, "penstock wire: %s\n", error.message);
    base_buf_fini(&in);
    base_buf_fini(&out);
    return code == 0 ? CLI_OK : CLI_FAILED;
}

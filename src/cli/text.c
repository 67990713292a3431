#include "text.h"

#include <stdbool.h>
#include <string.h>

#include "json/utf8.h"

/* C0, DEL, and C1 as UTF-8 writes it (C2 80 to C2 9F): each is one or two bytes to escape; 0 for what is harmless. */
static size_t control_bytes(const unsigned char *c)
{
    if (*c < 0x20 || *c == 0x7f)
        return 1;
    return c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0 ? 2 : 0;
}

static bool begins_a_character(unsigned char c)
{
    return (c & 0xc0) != 0x80;
}

size_t cli_escape(char *out, size_t size, const char *text)
{
    size_t n = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        size_t bytes = control_bytes(c);
        char piece[12] = { (char)*c };
        size_t len = 1;
        for (size_t i = 0; i < bytes; i++)
            len = (i ? len : 0) + (size_t)snprintf(piece + 4 * i, 5, "\\x%02x", c[i]);
        for (size_t i = 0; i < len; i++, n++)
            if (n + 1 < size)
                out[n] = piece[i];
        c += bytes ? bytes : 1;
    }
    if (size > 0)
        out[n < size ? n : size - 1] = '\0';
    return n;
}

size_t cli_print_escaped(FILE *to, const char *text)
{
    size_t columns = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        size_t bytes = control_bytes(c);
        if (bytes == 0) {
            columns += begins_a_character(*c);
            putc(*c++, to);
        }
        for (; bytes > 0; bytes--, columns += 4)
            fprintf(to, "\\x%02x", *c++);
    }
    return columns;
}

void cli_print_json(FILE *to, const char *text)
{
    putc('"', to);
    size_t len = strlen(text);
    for (const char *end = text + len; text < end; text += len) {
        const unsigned char *c = (const unsigned char *)text;
        len = json_utf8_len(text, (size_t)(end - text));
        if (len == 0) {
            fputs("\\ufffd", to);
            len = 1;
        } else if (*c == '"' || *c == '\\')
            fprintf(to, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f)
            fprintf(to, "\\u%04x", *c);
        else if (control_bytes(c) == 2)
            fprintf(to, "\\u%04x", c[1]); /* C2 NN is U+00NN */
        else
            (void)fwrite(text, 1, len, to);
    }
    putc('"', to);
}

const char *cli_size(uint64_t bytes, char out[CLI_SIZE_MAX])
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    if (bytes < 1024) {
        snprintf(out, CLI_SIZE_MAX, "%d B", (int)bytes);
        return out;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    for (; value >= 1023.995 && unit < 5; unit++)
        value /= 1024;
    snprintf(out, CLI_SIZE_MAX, "%.2f %s", value, units[unit]);
    return out;
}

const char *cli_count(uint64_t n, const char *noun, char out[CLI_COUNT_MAX])
{
    snprintf(out, CLI_COUNT_MAX, "%llu %.16s%s", (unsigned long long)n, noun, n == 1 ? "" : "s");
    return out;
}

const char *cli_duration(double seconds, char out[CLI_SIZE_MAX])
{
    uint64_t s = seconds > 1e9 ? UINT64_C(1000000000) : seconds > 0 ? (uint64_t)(seconds + 0.5) : 0;
    if (s < 60)
        snprintf(out, CLI_SIZE_MAX, "%d s", (int)s);
    else if (s < 3600)
        snprintf(out, CLI_SIZE_MAX, "%d min %02d s", (int)(s / 60), (int)(s % 60));
    else
        snprintf(out, CLI_SIZE_MAX, "%d h %02d min", (int)(s / 3600), (int)(s % 3600 / 60));
    return out;
}

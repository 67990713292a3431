/* Stands in for libFuzzer where there is none: runs a target over files, and over what lies in directories. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat st;
    if (!file || fstat(fileno(file), &st) != 0) {
        perror(path);
        return 1;
    }
    /* Just as much as the input is long, for a sanitizer to see a read past it. */
    size_t len = (size_t)st.st_size;
    uint8_t *bytes = malloc(len > 0 ? len : 1);
    int bad = !bytes || fread(bytes, 1, len, file) != len;
    if (bad)
        fprintf(stderr, "%s: cannot be read\n", path);
    else
        LLVMFuzzerTestOneInput(bytes, len);
    free(bytes);
    fclose(file);
    return bad;
}

static int run_directory(const char *path, DIR *dir, unsigned *ran)
{
    int bad = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        bad |= run_file(name);
        ++*ran;
    }
    return bad;
}

int main(int argc, char **argv)
{
    unsigned ran = 0;
    int bad = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (dir) {
            bad |= run_directory(argv[i], dir, &ran);
            closedir(dir);
        } else {
            bad |= run_file(argv[i]);
            ran++;
        }
    }
    printf("%u inputs\n", ran);
    return bad || ran == 0;
}

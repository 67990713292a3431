/* Fetches one tensor of a model that a peer serves, and writes its bytes to stdout.
 *
 *     cc pull_tensor.c $(pkg-config --cflags --libs penstock) -o pull_tensor
 *     ./pull_tensor 10.0.0.2:9910 org/name model.norm.weight | od -f | head */
#include <penstock/penstock.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const struct penstock_error *error)
{
    fprintf(stderr, "%s: %s\n", penstock_error_name(error->code), error->message);
    return 1;
}

int main(int argc, char **argv)
{
    struct penstock_session *session;
    struct penstock_error error;
    if (argc != 4)
        return fprintf(stderr, "usage: pull_tensor PEER MODEL TENSOR\n"), 2;
    if (penstock_weights_open(argv[1], argv[2], NULL, NULL, &session, &error) != 0)
        return fail(&error);

    struct penstock_catalogue *catalogue = penstock_session_catalogue(session);
    const struct penstock_tensor *t = penstock_catalogue_find(catalogue, argv[3]);
    if (!t)
        return fprintf(stderr, "%s has no tensor %s\n", penstock_catalogue_model_id(catalogue), argv[3]), 1;
    fprintf(stderr, "%s, %llu bytes\n", t->dtype, (unsigned long long)t->len_bytes);

    uint32_t region;
    void *bytes = malloc(t->len_bytes + 1); /* a tensor may be empty */
    struct penstock_memory memory = { .size = sizeof memory, .address = bytes, .len_bytes = t->len_bytes };
    struct penstock_range all = { .file = t->shard, .offset_bytes = t->offset_bytes, .len_bytes = t->len_bytes };
    struct penstock_read read = { .size = sizeof read, .ranges = &all, .count = 1 };
    if (!bytes)
        return perror("malloc"), 1;
    if (penstock_register(session, &memory, &region, &error) != 0)
        return fail(&error);
    read.region = region;
    if (penstock_read_wait(session, &read, &error) != 0)
        return fail(&error);
    fwrite(bytes, 1, t->len_bytes, stdout);

    penstock_session_free(session); /* before the memory that it knows */
    penstock_catalogue_unref(catalogue);
    free(bytes);
    return 0;
}

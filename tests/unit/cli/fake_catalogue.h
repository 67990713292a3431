/* A catalogue of the test's own, in place of the client's: names as a hostile library might give them. */
#ifndef PENSTOCK_TEST_FAKE_CATALOGUE_H
#define PENSTOCK_TEST_FAKE_CATALOGUE_H

#include <penstock/penstock.h>

struct penstock_catalogue {
    const struct penstock_file *files; /* shards first */
    size_t n_shards, n_files;
    const struct penstock_tensor *tensors;
    size_t n_tensors;
};

#endif

#include "fake_catalogue.h"

size_t penstock_catalogue_tensors(const struct penstock_catalogue *catalogue)
{
    return catalogue->n_tensors;
}

size_t penstock_catalogue_shards(const struct penstock_catalogue *catalogue)
{
    return catalogue->n_shards;
}

size_t penstock_catalogue_files(const struct penstock_catalogue *catalogue)
{
    return catalogue->n_files;
}

size_t penstock_catalogue_skipped(const struct penstock_catalogue *catalogue)
{
    (void)catalogue;
    return 0;
}

const struct penstock_tensor *penstock_catalogue_tensor(const struct penstock_catalogue *catalogue, size_t index)
{
    return index < catalogue->n_tensors ? &catalogue->tensors[index] : NULL;
}

const struct penstock_file *penstock_catalogue_file(const struct penstock_catalogue *catalogue, size_t file)
{
    return file < catalogue->n_shards + catalogue->n_files ? &catalogue->files[file] : NULL;
}

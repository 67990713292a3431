#include "net_handshake_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    return fuzz_handshake(data, len, true);
}

/* <penstock/wire.h> and nothing else, as plain C17 and, in header.cc, as plain C++17. */
#include <penstock/wire.h>

int main(void)
{
    const struct penstock_wire_fault fault = { "f", "r", 0, 0, 0 };
    char buf[2];
    return penstock_wire_fault_format(&fault, buf, sizeof buf) == 1 ? 0 : 1;
}

/* See header.c. */
#include <penstock/wire.h>

int main()
{
    const struct penstock_wire_fault fault = { "f", "r", 0, 0, 0 };
    char buf[2];
    return penstock_wire_fault_format(&fault, buf, sizeof buf) == 1 ? 0 : 1;
}

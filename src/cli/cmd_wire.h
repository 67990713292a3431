#ifndef PENSTOCK_CLI_CMD_WIRE_H
#define PENSTOCK_CLI_CMD_WIRE_H

/* penstock wire decode|encode RECORD: a capture's bytes to JSON and back. */
int cmd_wire(int argc, char **argv);

#endif

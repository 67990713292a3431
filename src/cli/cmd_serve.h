#ifndef PENSTOCK_CLI_CMD_SERVE_H
#define PENSTOCK_CLI_CMD_SERVE_H

int cmd_serve(int argc, char **argv);

#endif

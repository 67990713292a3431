#include <stdlib.h>

#include "verbs/verbs.h"

void verbs_ports_fini(struct verbs_ports *ports)
{
    for (size_t i = 0; i < ports->n; i++)
        free(ports->at[i].gids);
    free(ports->at);
    *ports = (struct verbs_ports){ 0 };
}

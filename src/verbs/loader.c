#include <dlfcn.h>

#include "base/error.h"
#include "ibverbs.h"

/* POSIX says that what dlsym returns may be a function; C does not, hence the detour. */
static bool find(void *handle, const char *name, void *function)
{
    void *symbol = dlsym(handle, name);
    *(void **)function = symbol;
    return symbol != NULL;
}

int verbs_ib_load(const char *library, struct verbs_ib_api *api, struct penstock_error *error)
{
    /* Never unloaded: its providers keep pointers into it, and others in this process may use it. */
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "libibverbs cannot be loaded: apt install libibverbs1 ibverbs-providers (%s)", dlerror());
    const char *missing = NULL;
#define FIND(name, member)                                                                                             \
    if (!find(handle, #name, &api->member) && !missing)                                                                \
        missing = #name;
    VERBS_IB_FUNCTIONS(FIND)
#undef FIND
#define FIND(name, member) (void)find(handle, #name, &api->member);
    VERBS_IB_LATER_FUNCTIONS(FIND)
#undef FIND
    (void)dlclose(handle);
    if (missing)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "%s is too old, or no libibverbs: it has no %s (apt install libibverbs1)", library,
                              missing);
    return 0;
}

#include "thread.h"

int peer_thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *), void *argument)
{
    pthread_attr_t attr;
    pthread_t unused;
    int failed = pthread_attr_init(&attr);
    if (failed)
        return failed;
    failed = pthread_attr_setstacksize(&attr, stack_bytes);
    if (!failed && !thread)
        failed = pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (!failed)
        failed = pthread_create(thread ? thread : &unused, &attr, run, argument);
    pthread_attr_destroy(&attr);
    return failed;
}

int peer_thread_run_large(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    int failed = peer_thread_start(&thread, PEER_STACK_LARGE, run, argument);
    return failed ? failed : pthread_join(thread, NULL);
}

/* Threads with stacks of a chosen size. */
#ifndef PENSTOCK_PEER_THREAD_H
#define PENSTOCK_PEER_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Sanitizers make frames many times larger. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PEER_STACK_FACTOR 16
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define PEER_STACK_FACTOR 16
#endif
#endif
#ifndef PEER_STACK_FACTOR
#define PEER_STACK_FACTOR 1
#endif

#define PEER_STACK_CONNECTION ((size_t)PEER_STACK_FACTOR * (64u << 10))
#define PEER_STACK_LARGE ((size_t)PEER_STACK_FACTOR * (1u << 20))

/* 0 or an errno. thread NULL: detached. */
__attribute__((warn_unused_result)) int peer_thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *),
                                                          void *argument);

/* Runs on a large stack, and waits: for work that is too much for a connection's own. 0 or an errno. */
__attribute__((warn_unused_result)) int peer_thread_run_large(void *(*run)(void *), void *argument);

#endif

/* Doubly linked lists of things named by number, hottest first. link_of leads from a number to its link; it is a
 * constant, and these are inlined. */
#ifndef PENSTOCK_RESIDENCY_QUEUE_H
#define PENSTOCK_RESIDENCY_QUEUE_H

#include "arena.h"

typedef struct residency_link *(*residency_link_of)(const struct residency_arena *arena, uint32_t index);

#define RESIDENCY_INLINE static inline __attribute__((always_inline))

RESIDENCY_INLINE void residency_queue_push_hot(struct residency_arena *arena, struct residency_queue *queue,
                                               residency_link_of link_of, uint32_t index)
{
    *link_of(arena, index) = (struct residency_link){ .prev = RESIDENCY_NONE, .next = queue->head };
    if (queue->head == RESIDENCY_NONE)
        queue->tail = index;
    else
        link_of(arena, queue->head)->prev = index;
    queue->head = index;
}

RESIDENCY_INLINE void residency_queue_push_cold(struct residency_arena *arena, struct residency_queue *queue,
                                                residency_link_of link_of, uint32_t index)
{
    *link_of(arena, index) = (struct residency_link){ .prev = queue->tail, .next = RESIDENCY_NONE };
    if (queue->tail == RESIDENCY_NONE)
        queue->head = index;
    else
        link_of(arena, queue->tail)->next = index;
    queue->tail = index;
}

RESIDENCY_INLINE void residency_queue_remove(struct residency_arena *arena, struct residency_queue *queue,
                                             residency_link_of link_of, uint32_t index)
{
    struct residency_link link = *link_of(arena, index);
    if (link.prev == RESIDENCY_NONE)
        queue->head = link.next;
    else
        link_of(arena, link.prev)->next = link.next;
    if (link.next == RESIDENCY_NONE)
        queue->tail = link.prev;
    else
        link_of(arena, link.next)->prev = link.prev;
}

#endif

/* An intrusive doubly linked list. The head is a node of its own, linked to itself while the list is empty. */
#ifndef PENSTOCK_BASE_LIST_H
#define PENSTOCK_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct base_list {
    struct base_list *prev, *next;
};

#define base_list_entry(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* The body may remove node, and no other. */
#define base_list_for_each(node, head)                                                                                 \
    for (struct base_list *node = (head)->next, *node##_next = node->next; node != (head);                             \
         node = node##_next, node##_next = node->next)

static inline void base_list_init(struct base_list *head)
{
    head->prev = head->next = head;
}

static inline bool base_list_empty(const struct base_list *head)
{
    return head->next == head;
}

static inline void base_list_append(struct base_list *head, struct base_list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/* The node is linked to itself afterwards: removing it again does no harm. */
static inline void base_list_remove(struct base_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    base_list_init(node);
}

#endif

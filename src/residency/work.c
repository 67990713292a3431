#include "arena.h"

void residency_work_do(struct residency_arena *arena, struct residency_work *work)
{
    struct residency_work now = *work;
    work->spills = NULL;
    work->faults = NULL;
    work->n_records = 0;
    /* First what is given back: a spill may need it. */
    for (uint32_t i = 0; i < now.n_records; i++)
        residency_swap_free(arena->file, now.records[i]);
    while (now.faults) {
        struct residency_fault *fault = now.faults;
        now.faults = fault->next;
        residency_swap_read(&fault->io);
    }
    while (now.spills) {
        struct residency_spill *spill = now.spills;
        now.spills = spill->next;
        residency_spill_start(spill);
    }
}

void residency_wait(struct residency_arena *arena, pthread_cond_t *changed, const bool *done)
{
    const struct residency_cache_options *options = &arena->cache->options;
    while (!*done) {
        if (!options->while_waiting) {
            pthread_cond_wait(changed, &arena->lock);
            continue;
        }
        pthread_mutex_unlock(&arena->lock);
        options->while_waiting(options->user);
        pthread_mutex_lock(&arena->lock);
    }
}

void residency_wait_for_landing(struct residency_arena *arena)
{
    const struct residency_cache_options *options = &arena->cache->options;
    if (arena->in_flight == 0)
        return;
    if (!options->while_waiting) {
        pthread_cond_wait(&arena->landed, &arena->lock);
        return;
    }
    pthread_mutex_unlock(&arena->lock);
    options->while_waiting(options->user);
    pthread_mutex_lock(&arena->lock);
}

void residency_goodbye_wait(struct residency_arena *arena, uint32_t slot, struct residency_work *work)
{
    struct residency_goodbye goodbye = { .slot = slot };
    pthread_cond_init(&goodbye.changed, NULL);
    base_list_append(&arena->goodbyes, &goodbye.node);
    pthread_mutex_unlock(&arena->lock);
    residency_work_do(arena, work);
    pthread_mutex_lock(&arena->lock);
    residency_wait(arena, &goodbye.changed, &goodbye.done);
    pthread_mutex_unlock(&arena->lock);
    pthread_cond_destroy(&goodbye.changed);
}

void residency_goodbyes_of(struct residency_arena *arena, uint32_t slot, struct base_list *leaving)
{
    base_list_init(leaving);
    base_list_for_each (node, &arena->goodbyes) {
        struct residency_goodbye *goodbye = base_list_entry(node, struct residency_goodbye, node);
        if (goodbye->slot != slot)
            continue;
        base_list_remove(node);
        base_list_append(leaving, node);
    }
}

void residency_landed(struct residency_arena *arena, struct base_list *leaving)
{
    pthread_mutex_lock(&arena->lock);
    while (!base_list_empty(leaving)) {
        struct residency_goodbye *goodbye = base_list_entry(leaving->next, struct residency_goodbye, node);
        base_list_remove(&goodbye->node);
        goodbye->done = true;
        pthread_cond_signal(&goodbye->changed);
    }
    arena->in_flight--;
    pthread_cond_broadcast(&arena->landed);
    pthread_mutex_unlock(&arena->lock);
}

#include "arena.h"

static bool is_kept(const struct residency_arena *arena)
{
    return arena->cache->options.keep;
}

static uint32_t leaving_of(const struct residency_key *key)
{
    return (uint32_t)(((key->low ^ key->high) * UINT64_C(0x9E3779B97F4A7C15)) >> 32) % RESIDENCY_LEAVING;
}

void residency_leaves(struct residency_arena *arena, const struct residency_key *key)
{
    if (is_kept(arena))
        arena->leaving[leaving_of(key)]++;
}

static void has_left(struct residency_arena *arena, uint32_t leaving)
{
    if (--arena->leaving[leaving] == 0)
        pthread_cond_broadcast(&arena->left);
}

void residency_work_free(struct residency_arena *arena, struct residency_work *work, const struct residency_key *key,
                         uint32_t record)
{
    work->frees[work->n_frees].record = record;
    work->frees[work->n_frees].leaving = leaving_of(key);
    work->n_frees++;
    residency_leaves(arena, key);
}

static void free_records(struct residency_arena *arena, const struct residency_work *work)
{
    for (uint32_t i = 0; i < work->n_frees; i++)
        residency_swap_free(arena->file, work->frees[i].record);
    if (work->n_frees == 0 || !is_kept(arena))
        return;
    pthread_mutex_lock(&arena->lock);
    for (uint32_t i = 0; i < work->n_frees; i++)
        has_left(arena, work->frees[i].leaving);
    pthread_mutex_unlock(&arena->lock);
}

void residency_work_do(struct residency_arena *arena, struct residency_work *work)
{
    residency_work_do_and_read(arena, work, NULL);
}

void residency_work_do_and_read(struct residency_arena *arena, struct residency_work *work,
                                struct residency_fault *mine)
{
    struct residency_work now = *work;
    bool read_mine = false;
    work->spills = NULL;
    work->faults = NULL;
    work->n_frees = 0;
    /* First what is given back: a spill may need it. */
    free_records(arena, &now);
    while (now.faults) {
        struct residency_fault *fault = now.faults;
        now.faults = fault->next;
        if (fault == mine)
            read_mine = true;
        else
            residency_swap_read(&fault->io);
    }
    while (now.spills) {
        struct residency_spill *spill = now.spills;
        now.spills = spill->next;
        residency_spill_start(spill);
    }
    if (read_mine)
        residency_swap_read_here(&mine->io);
}

void residency_wait(struct residency_arena *arena, pthread_cond_t *changed)
{
    const struct residency_cache_options *options = &arena->cache->options;
    if (!options->while_waiting) {
        pthread_cond_wait(changed, &arena->lock);
        return;
    }
    pthread_mutex_unlock(&arena->lock);
    options->while_waiting(options->user);
    pthread_mutex_lock(&arena->lock);
}

void residency_wait_for_landing(struct residency_arena *arena)
{
    if (arena->in_flight > 0)
        residency_wait(arena, &arena->landed);
}

void residency_work_end(struct residency_arena *arena, struct residency_work *work, const struct residency_key *key)
{
    const uint32_t *leaving = &arena->leaving[leaving_of(key)];
    bool wait = *leaving > 0;
    pthread_mutex_unlock(&arena->lock);
    residency_work_do(arena, work);
    if (!wait)
        return;
    pthread_mutex_lock(&arena->lock);
    while (*leaving > 0)
        residency_wait(arena, &arena->left);
    pthread_mutex_unlock(&arena->lock);
}

void residency_landed(struct residency_arena *arena, const struct residency_key *forgotten)
{
    pthread_mutex_lock(&arena->lock);
    if (forgotten && is_kept(arena))
        has_left(arena, leaving_of(forgotten));
    arena->in_flight--;
    pthread_cond_broadcast(&arena->landed);
    pthread_mutex_unlock(&arena->lock);
}

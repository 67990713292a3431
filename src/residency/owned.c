#include <stdlib.h>

#include "client.h"

bool residency_owned_reserve(struct residency_client *client)
{
    return base_vec_reserve(&client->owned, client->owned.n + 1);
}

static bool still_owned(const struct residency_arena *arena, const struct residency_owned *owned)
{
    return residency_entry_at(arena, owned->entry)->generation == owned->generation;
}

/* Blobs end elsewhere, and nobody tells: with each one that comes, two are looked at, so that at most about half of the
 * list is of blobs that are no more. */
static void look_at_two(struct residency_client *client)
{
    for (int i = 0; i < 2 && client->owned.n > 0; i++) {
        if (client->owned_cursor >= client->owned.n)
            client->owned_cursor = 0;
        if (still_owned(client->arena, &client->owned.at[client->owned_cursor]))
            client->owned_cursor++;
        else
            client->owned.at[client->owned_cursor] = client->owned.at[--client->owned.n];
    }
}

void residency_owned_add(struct residency_client *client, uint32_t entry)
{
    look_at_two(client);
    client->owned.at[client->owned.n++] =
        (struct residency_owned){ .generation = residency_entry_at(client->arena, entry)->generation, .entry = entry };
}

void residency_owned_remove_all(struct residency_client *client)
{
    struct residency_arena *arena = client->arena;
    for (size_t i = 0; i < client->owned.n; i++) {
        const struct residency_owned *owned = &client->owned.at[i];
        struct residency_work work = { 0 };
        pthread_mutex_lock(&arena->lock);
        if (still_owned(arena, owned)) {
            residency_entry_remove(arena, owned->entry, &work);
            residency_settle(arena, &work);
        }
        pthread_mutex_unlock(&arena->lock);
        residency_work_do(arena, &work);
    }
    base_vec_free(&client->owned);
}

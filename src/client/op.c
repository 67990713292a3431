#include <stdlib.h>

#include "base/error.h"
#include "client/session.h"
#include "client/tier.h"

static struct client_op **bucket(const struct penstock_session *s, penstock_op id)
{
    return &s->table[id & s->table_mask];
}

/* Ids are consecutive, so that a table as large as their number has hardly any chains. Without memory it stays small.
 */
static void grow(struct penstock_session *s)
{
    size_t size = s->table ? (s->table_mask + 1) * 2 : 16;
    struct client_op **table = calloc(size, sizeof(struct client_op *)), **old = s->table;
    if (!table)
        return;
    size_t old_size = old ? s->table_mask + 1 : 0;
    s->table = table;
    s->table_mask = size - 1;
    for (size_t i = 0; i < old_size; i++)
        for (struct client_op *op = old[i], *next; op; op = next) {
            next = op->chain;
            op->chain = *bucket(s, op->id);
            *bucket(s, op->id) = op;
        }
    free(old);
}

struct client_op *client_op_new(struct penstock_session *s, enum client_op_kind kind, int64_t timeout_ns, void *user)
{
    if (!s->table || s->table_n > s->table_mask)
        grow(s);
    struct client_op *op = s->table ? calloc(1, sizeof *op) : NULL;
    if (!op)
        return NULL;
    op->id = ++s->last_id;
    op->kind = kind;
    op->timeout_ns = timeout_ns;
    op->user = user;
    base_list_init(&op->queue);
    op->chain = *bucket(s, op->id);
    *bucket(s, op->id) = op;
    s->table_n++;
    base_list_append(&s->ops, &op->node);
    return op;
}

static struct client_op *find(const struct penstock_session *s, penstock_op id, bool told)
{
    struct client_op *op = s->table ? *bucket(s, id) : NULL;
    while (op && op->id != id)
        op = op->chain;
    return op && op->told == told ? op : NULL;
}

struct client_op *client_op_find(const struct penstock_session *s, penstock_op id)
{
    return find(s, id, false);
}

const struct client_op *client_op_find_told(const struct penstock_session *s, penstock_op id)
{
    return find(s, id, true);
}

static void forget_plan(struct client_op *op)
{
    if (op->kind == CLIENT_OP_READ || op->kind == CLIENT_OP_BLOBS || op->kind == CLIENT_OP_RAW)
        client_plan_fini(&op->plan);
    client_split_fini(&op->split);
}

static void op_free(struct penstock_session *s, struct client_op *op)
{
    struct client_op **link = bucket(s, op->id);
    while (*link != op)
        link = &(*link)->chain;
    *link = op->chain;
    s->table_n--;
    base_list_remove(&op->node);
    forget_plan(op);
    if (op->then)
        op->then->free(s, op->then);
    free(op->error);
    free(op);
}

void client_op_queue(struct penstock_session *s, struct client_op *op)
{
    if (op->plan.n_requests == 0)
        client_op_end(s, op, 0, NULL); /* nothing to read */
    else
        base_list_append(&s->unsent[op->urgency], &op->queue);
}

void client_op_end(struct penstock_session *s, struct client_op *op, int code, const struct penstock_error *words)
{
    if (op->answered < op->sent)
        client_flight_drop(s, op);
    base_list_remove(&op->queue);
    if (s->tier->ended)
        s->tier->ended(s, op);
    if (s->open_id == op->id)
        s->open_id = 0;
    forget_plan(op);
    struct penstock_error after = { 0 };
    if (op->then)
        code = op->then->ended(op->then, code, &after);
    if (after.code)
        words = &after;
    op->code = code;
    op->done = true;
    if (words && words != op->error) {
        if (!op->error)
            op->error = malloc(sizeof *op->error);
        if (op->error) /* without memory there are no words, only the code */
            *op->error = *words;
    }
    base_list_remove(&op->node);
    base_list_append(&s->done, &op->node);
}

void client_op_tell(struct penstock_session *s, struct client_op *op, struct penstock_completion *completion)
{
    if (completion)
        *completion = (struct penstock_completion){
            .op = op->id, .user = op->user, .code = op->code, .landed_bytes = op->landed_bytes
        };
    if (op->code == 0) {
        op_free(s, op);
        return;
    }
    op->told = true;
    base_list_remove(&op->node);
    base_list_append(&s->told, &op->node);
}

static void free_all(struct penstock_session *s, struct base_list *list)
{
    base_list_for_each (node, list)
        op_free(s, base_list_entry(node, struct client_op, node));
}

void client_ops_forget_told(struct penstock_session *s)
{
    free_all(s, &s->told);
}

void client_ops_free(struct penstock_session *s)
{
    free_all(s, &s->ops);
    free_all(s, &s->done);
    free_all(s, &s->told);
    free(s->table);
    s->table = NULL;
}

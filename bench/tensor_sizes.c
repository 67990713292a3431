/* Names, shapes and how many there are come from the published index and configuration of a mixture of experts, 40
 * layers of hidden size 2048, every fourth with full attention; here with 256 experts, and with the experts' and the
 * attention's matrices packed to four bits (protocol 1.4), each of which is then four tensors: two scalars, the packed
 * values and a scale for every 16 of them. Half of all tensors are four bytes long. */
#include "tensor_sizes.h"

#include <stdlib.h>

#include "common.h"

#define HIDDEN 2048
#define LAYERS 40
#define EXPERTS 256
#define EXPERT_INNER 512
#define VOCABULARY 248320

/* What else such a model has: drawn up so that number and total are right. */
#define OTHERS 63

struct sizes {
    uint64_t *at;
    size_t n;
    uint64_t total;
};

static void add(struct sizes *s, uint64_t bytes)
{
    if (s->n == BENCH_TENSORS)
        bench_die("more tensors than %d", BENCH_TENSORS);
    s->at[s->n++] = bytes;
    s->total += bytes;
}

/* 16 bits an element. */
static void add_half(struct sizes *s, uint64_t rows, uint64_t columns)
{
    add(s, rows * columns * 2);
}

static void add_packed(struct sizes *s, uint64_t rows, uint64_t columns)
{
    add(s, 4);                   /* input_global_scale */
    add(s, 4);                   /* weight_global_scale */
    add(s, rows * columns / 2);  /* weight_packed */
    add(s, rows * columns / 16); /* weight_scale */
}

static void add_expert(struct sizes *s)
{
    add_packed(s, HIDDEN, EXPERT_INNER); /* down, gate, up */
    add_packed(s, EXPERT_INNER, HIDDEN);
    add_packed(s, EXPERT_INNER, HIDDEN);
}

static void add_linear_attention(struct sizes *s)
{
    add(s, 64);                  /* A_log */
    add_half(s, 8192, 4);        /* conv1d */
    add(s, 64);                  /* dt_bias */
    add_half(s, 32, HIDDEN);     /* in_proj_a */
    add_half(s, 32, HIDDEN);     /* in_proj_b */
    add_packed(s, 8192, HIDDEN); /* in_proj_qkv */
    add_packed(s, 4096, HIDDEN); /* in_proj_z */
    add(s, 256);                 /* norm */
    add_packed(s, HIDDEN, 4096); /* out_proj */
}

static void add_full_attention(struct sizes *s)
{
    add(s, 512); /* k_norm */
    add_packed(s, 512, HIDDEN);
    add_packed(s, HIDDEN, 4096);
    add(s, 512); /* q_norm */
    add_packed(s, 8192, HIDDEN);
    add_packed(s, 512, HIDDEN);
}

static void add_layer(struct sizes *s, unsigned layer)
{
    add_half(s, 1, HIDDEN); /* input_layernorm */
    if (layer % 4 == 3)
        add_full_attention(s);
    else
        add_linear_attention(s);
    for (int expert = 0; expert < EXPERTS; expert++)
        add_expert(s);
    add_half(s, EXPERTS, HIDDEN); /* gate */
    add_expert(s);                /* the shared one */
    add_half(s, 1, HIDDEN);       /* shared_expert_gate */
    add_half(s, 1, HIDDEN);       /* post_attention_layernorm */
}

uint64_t *bench_tensor_sizes(void)
{
    struct sizes s = { .at = calloc(BENCH_TENSORS, sizeof *s.at) };
    if (!s.at)
        bench_die("no memory for %d sizes", BENCH_TENSORS);
    add_half(&s, VOCABULARY, HIDDEN); /* lm_head, embed_tokens */
    add_half(&s, VOCABULARY, HIDDEN);
    for (unsigned layer = 0; layer < LAYERS; layer++)
        add_layer(&s, layer);
    add_half(&s, 1, HIDDEN); /* norm */
    if (s.n + OTHERS != BENCH_TENSORS || s.total >= BENCH_TENSOR_BYTES)
        bench_die("%zu tensors of %llu bytes: the others do not fit", s.n, (unsigned long long)s.total);
    uint64_t rest = BENCH_TENSOR_BYTES - s.total, each = rest / OTHERS;
    for (int i = 0; i < OTHERS; i++)
        add(&s, i == 0 ? rest - each * (OTHERS - 1) : each);
    return s.at;
}

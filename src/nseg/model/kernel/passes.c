/* Forward passes of a recorded network over many worlds of small graphs.
 *
 * One lane of a vector is one world. All values of one instance in LANES worlds stay in the cache, [rows, width, LANES], so
 * that a pass reads and writes hardly any memory, and no lane depends on what the others hold. Widths are multiples of TILE;
 * the columns that fill them up are never read by what follows.
 *
 * Compiled once per instruction set and number type (-DREAL, -DBYTES); loaded by nseg.model.kernel.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

#define LANES ((int)(BYTES / sizeof(REAL)))
#define TILE 8

typedef REAL vec __attribute__((vector_size(BYTES)));
typedef __typeof__(__builtin_choose_expr(sizeof(REAL) == 4, (int32_t)0, (int64_t)0)) whole;
typedef whole mask __attribute__((vector_size(BYTES)));

/* Degrees of the nodes, without the edges that are deleted. */
typedef struct {
    const int32_t *node;    /* [E] receiver of each edge */
    const int32_t *other;   /* [E] sender of each edge */
    const REAL *weight;     /* [E] weight of each edge; null for 1 */
    const REAL *loops;      /* [N] weight of the self-loops that a layer adds */
    const REAL *outside;    /* [N] weight of the edges outside the instance */
    const REAL *loose;      /* [E] weight of the reverse outside that goes with an edge; null for 0 */
} Degrees;

/* Messages of a step, ordered by receiver, and how their weights follow from those of the edges. */
typedef struct {
    const int64_t *ptr;     /* [N + 1] first message of each receiver */
    const int32_t *sender;  /* [M] */
    const int32_t *edge;    /* [M] edge of each message, -1 for self-loops that the layer added */
    const REAL *factor;     /* [M] what each is multiplied by besides; null for 1 */
    int64_t degrees;        /* number of the degrees that messages are divided by; -1 for none */
    int64_t mean;           /* whether messages are averaged */
} Messages;

enum { PRODUCT, LINEAR, SUM, TIMES, POOL, JOIN, FEATURES, LAYER_NORM, UNIT, LARGEST, RECEIVE, SENDERS, RECEIVERS };
enum { NONE, RELU, LEAKY, ELU, SIGMOID, TANH, GELU, GELU_BY_TANH, SILU, SOFTPLUS, SELU, RELU6 };

/* An operation: target = activation(operation(source, other) + bias). */
typedef struct {
    int64_t code, target, source, other; /* values by number; other is -1 if it is not used or does not vary */
    int64_t width, fan_in, stride;       /* columns of the target, of the source, and of the source in memory */
    int64_t level;                       /* number of the row counts of the target; -1: one row per instance */
    int64_t messages;                    /* number of the messages; JOIN: first column */
    int64_t chained;                     /* LINEAR: whether only the next operation, also LINEAR, uses the target */
    int64_t by_message;                  /* whether the target has rows for these messages */
    int64_t activation;
    double slope;                        /* of LEAKY and ELU */
    double least;                        /* what is added to variances (LAYER_NORM); least length (UNIT) */
    const REAL *shared;                  /* [N, width] in place of source (PRODUCT, FEATURES) or other; null if there is none */
    const REAL *row;                     /* [width] or [fan_in, width] (LINEAR): the same for all rows; null if there is none */
    const REAL *bias;                    /* [width]; null for 0 */
} Operation;

typedef struct {
    const int64_t *node_ptr, *edge_ptr;  /* [B + 1] */
    const int32_t *place;                /* [N] number of each node in its instance; here nodes are ordered by hops */
    const int32_t *rows;                 /* [levels, B] rows of a value */
    const int64_t *row_ptr;              /* [B + 1] first explained row of each instance */
    const int32_t *row;                  /* [R] explained rows of the last value; null: its only row */
    int64_t instances;
    const Degrees *degrees;
    const Messages *messages;
    const Operation *operations;
    int64_t num_degrees, num_messages, num_operations;
    int64_t outputs;                     /* columns of the last value that are returned */
    int64_t factors;                     /* factors of a node's features: 1 or one per feature */
} Pass;

/* Messages that are sent in any lane, by receiver. */
typedef struct {
    vec *weight;
    int32_t *sender;
    int32_t *place;                      /* number among all messages of the instance */
    int32_t *ptr;                        /* [nodes of the largest instance + 1] */
} Sent;

/* What one call asks: W worlds of P subsets of some instances, which may be given several times. */
typedef struct {
    const int64_t *instance;             /* [b] */
    int64_t number;                      /* b */
    const uint8_t *kept;                 /* [P, elements] whether each element is in a subset */
    int64_t subsets, elements;
    const uint8_t *keeps;                /* [W, 2] whether edges, and nodes, of the subset are kept, or all others */
    const REAL *outside;                 /* [W] whether edges outside the instances stay */
    int64_t worlds;                      /* W */
    const int64_t *edge_element;         /* element of each edge; null: edges are not changed */
    const int64_t *edge_first;           /* [b] an instance's first edge */
    const int64_t *edge_range;           /* [b + 1] and its first element among the edges */
    const int64_t *node_element;         /* [., factors] element of each node's factors; null: features are not changed */
    const int64_t *node_first, *node_range;
    REAL *output;                        /* [P, W, output_rows, outputs] */
    const int64_t *row_first;            /* [b] */
    int64_t output_rows;
    vec **values;                        /* memory of each value, for the largest instance */
    uint32_t *bits;                      /* [elements of the largest instance] lanes that keep an element */
    uint32_t *on;                        /* [edges of it] lanes in which an edge is there */
    vec *degree;                         /* [degrees, nodes of it] */
    Sent *sent;                          /* [messages] those that are sent in any lane */
} Question;

/* Where a world of an instance is asked for. */
typedef struct {
    int64_t copy, subset, world;         /* which of the instances, the subsets and the worlds of the question */
} Place;

/* Where a subset of an instance is asked for. */
typedef struct {
    int64_t copy, subset;
    int64_t same;                        /* number of the first one that is equal */
} Asked;

static inline const uint8_t *kept_by(const Question *q, int64_t subset) { return q->kept + subset * q->elements; }

static inline REAL *output_of(const Pass *p, const Question *q, int64_t copy, int64_t subset, int64_t world) {
    return q->output + ((subset * q->worlds + world) * q->output_rows + q->row_first[copy]) * p->outputs;
}

static inline vec same_in_all(REAL x) { return x - (vec){0}; }

static inline vec choose(mask yes, vec a, vec b) { return (vec)(((mask)a & yes) | ((mask)b & ~yes)); }

static REAL rarer_activation(REAL x, int64_t kind) {
    if (kind == GELU) return (REAL)0.5 * x * (1 + (REAL)erf(x * (REAL)0.70710678118654752440));
    if (kind == GELU_BY_TANH)
        return (REAL)0.5 * x * (1 + (REAL)tanh((REAL)0.79788456080286535588 * (x + (REAL)0.044715 * x * x * x)));
    if (kind == SILU) return x / (1 + (REAL)exp(-x));
    if (kind == SOFTPLUS) return x > 20 ? x : (REAL)log1p(exp(x));
    if (kind == SELU) return (REAL)1.0507009873554804934 * (x > 0 ? x : (REAL)1.6732632423543772848 * (REAL)expm1(x));
    return x < 0 ? 0 : x > 6 ? 6 : x; /* RELU6 */
}

static vec activate(vec x, int64_t kind, REAL slope) {
    vec zero = {0};
    if (kind == LEAKY) return choose(x < zero, x * slope, x);
    for (int k = 0; k < LANES; k++) {
        if (kind == ELU) x[k] = x[k] > 0 ? x[k] : slope * (REAL)expm1(x[k]);
        if (kind == SIGMOID) x[k] = (REAL)(1 / (1 + exp(-(double)x[k])));
        if (kind == TANH) x[k] = (REAL)tanh(x[k]);
        if (kind > TANH) x[k] = rarer_activation(x[k], kind);
    }
    return x;
}

/* Not in line: its many cases would keep sums out of the registers. */
__attribute__((noinline)) static void activate_all(vec *x, const Operation *op) {
    for (int t = 0; t < TILE; t++) x[t] = activate(x[t], op->activation, (REAL)op->slope);
}

static inline void finish(vec *to, const vec *sum, const Operation *op, int64_t column) {
    vec least = same_in_all(op->activation == RELU ? 0 : -INFINITY);
    for (int t = 0; t < TILE; t++) {
        vec x = op->bias ? sum[t] + op->bias[column + t] : sum[t];
        to[column + t] = choose(x < least, least, x); /* what is not a number stays so */
    }
    if (op->activation > RELU) activate_all(to + column, op);
}

/* What each node receives: the sum of its senders' rows times the weights of the messages. */
static void product(vec *to, const vec *from, const REAL *shared, const Sent *m, int64_t first, int64_t rows,
                    const Operation *op) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < op->width; c += TILE) {
            vec sum[TILE] = {0};
            for (int64_t j = m->ptr[i]; j < m->ptr[i + 1]; j++) {
                vec w = m->weight[j];
                if (shared) {
                    const REAL *sent = shared + (first + m->sender[j]) * op->width + c;
                    for (int t = 0; t < TILE; t++) sum[t] += w * sent[t];
                } else {
                    const vec *sent = from + m->sender[j] * op->width + c;
                    for (int t = 0; t < TILE; t++) sum[t] += w * sent[t];
                }
            }
            finish(to + i * op->width, sum, op, c);
        }
}

/* The same, of rows that messages have themselves; `begin` is the first message of the instance. */
static void receive(vec *to, const vec *from, const Sent *m, int64_t begin, int64_t rows, const Operation *op) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < op->width; c += TILE) {
            vec sum[TILE] = {0};
            for (int64_t j = m->ptr[i]; j < m->ptr[i + 1]; j++)
                for (int t = 0; t < TILE; t++) {
                    if (op->shared) sum[t] += m->weight[j] * op->shared[(begin + m->place[j]) * op->width + c + t];
                    else sum[t] += m->weight[j] * from[m->place[j] * op->width + c + t];
                }
            finish(to + i * op->width, sum, op, c);
        }
}

/* Rows of the senders of messages, or of their receivers. */
static void rows_of_ends(vec *to, const vec *from, const Messages *m, int64_t first, int64_t number, const Operation *op) {
    for (int64_t i = 0; i < number; i++)
        for (int64_t j = m->ptr[first + i]; j < m->ptr[first + i + 1]; j++) {
            const vec *row = from + (op->code == SENDERS ? m->sender[j] : i) * op->width;
            for (int64_t c = 0; c < op->width; c += TILE) finish(to + (j - m->ptr[first]) * op->width, row + c, op, c);
        }
}

static void linear_row(vec *to, const vec *x, const Operation *op) {
    for (int64_t c = 0; c < op->width; c += TILE) {
        vec sum[TILE] = {0};
        for (int64_t f = 0; f < op->fan_in; f++) {
            const REAL *w = op->row + f * op->width + c;
            vec value = x[f];
            for (int t = 0; t < TILE; t++) sum[t] += value * w[t];
        }
        finish(to, sum, op, c);
    }
}

enum { MOST_FEATURES = 256 };

/* One row through an operation and those that are chained to it. Only what the last one computes is kept. */
static void chain_row(vec *to, const vec *x, const Operation *op) {
    vec between[2][MOST_FEATURES];
    for (int n = 0; op->chained; op++, n = !n) {
        linear_row(between[n], x, op);
        x = between[n];
    }
    linear_row(to, x, op);
}

/* The last operation of a chain. */
static inline const Operation *end_of(const Operation *op) {
    while (op->chained) op++;
    return op;
}

#if defined(__AVX512F__) && defined(__AVX512CD__)
#include <immintrin.h>

/* Worlds of a block differ in a few edges, so most rows are the same in many lanes. Such rows are computed once: the different
 * ones of several nodes share a vector. For 16 lanes only. */
enum { MOST_DIFFERENT = 8, LEAST_WORK = 256, TRIED_FIRST = 8 };

typedef struct {
    vec x[MOST_FEATURES], y[MOST_FEATURES];
    int used;                            /* lanes that are taken */
    int rows;
    int64_t row[16];                     /* nodes */
    __m512i lane[16];                    /* for each of them, the lane here of each of its lanes */
} Packed;

static inline vec permute(vec a, __m512i lane) { return (vec)_mm512_permutexvar_ps(lane, (__m512)a); }

/* For each lane the first one in which a row is the same; `leaders` are those that are the first themselves. Returns whether
 * that is true: lanes are found by a hash, and then compared. */
static inline int find_equal_lanes(const vec *x, int64_t features, __m512i *first, __mmask16 *leaders) {
    __m512i hash = _mm512_setzero_si512(), own = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int64_t f = 0; f < features; f++) hash = _mm512_xor_si512(_mm512_rol_epi32(hash, 5), (__m512i)x[f]);
    __m512i before = _mm512_conflict_epi32(hash), none = _mm512_setzero_si512();
    *leaders = _mm512_cmpeq_epi32_mask(before, none);
    if (__builtin_popcount(*leaders) > MOST_DIFFERENT) return 0;
    before = _mm512_and_si512(before, _mm512_sub_epi32(none, before)); /* the lowest bit alone */
    *first = _mm512_mask_mov_epi32(_mm512_sub_epi32(_mm512_set1_epi32(31), _mm512_lzcnt_epi32(before)), *leaders, own);
    __m512i differs = none;
    for (int64_t f = 0; f < features; f++) { /* differs | (x ^ that of the first) */
        __m512i value = (__m512i)x[f];
        differs = _mm512_ternarylogic_epi32(differs, value, _mm512_permutexvar_epi32(*first, value), 0xF6);
    }
    return !_mm512_test_epi32_mask(differs, differs);
}

static void unpack(vec *to, Packed *packed, const Operation *op) {
    int64_t width = end_of(op)->width;
    if (packed->rows) chain_row(packed->y, packed->x, op);
    for (int r = 0; r < packed->rows; r++)
        for (int64_t c = 0; c < width; c++) to[packed->row[r] * width + c] = permute(packed->y[c], packed->lane[r]);
    packed->used = packed->rows = 0;
}

/* Adds a row if few of its lanes differ; says whether it did. */
static int pack(vec *to, Packed *packed, int64_t row, const vec *x, const Operation *op) {
    __m512i first, own = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __mmask16 leaders;
    if (!find_equal_lanes(x, op->fan_in, &first, &leaders)) return 0;
    int number = __builtin_popcount(leaders);
    if (packed->used + number > 16) unpack(to, packed, op);
    __mmask16 taken = ((1u << number) - 1) << packed->used;
    __m512i from = _mm512_maskz_expand_epi32(taken, _mm512_maskz_compress_epi32(leaders, own));
    __m512i number_of = _mm512_maskz_expand_epi32(leaders, _mm512_add_epi32(own, _mm512_set1_epi32(packed->used)));
    for (int64_t f = 0; f < op->fan_in; f++)
        packed->x[f] = (vec)_mm512_mask_permutexvar_ps((__m512)packed->x[f], taken, from, (__m512)x[f]);
    packed->lane[packed->rows] = _mm512_permutexvar_epi32(first, number_of);
    packed->row[packed->rows++] = row;
    packed->used += number;
    return 1;
}

static void linear(vec *to, const vec *from, int64_t rows, const Operation *op) {
    int64_t width = end_of(op)->width, found = 0;
    int worth = LANES == 16 && op->fan_in <= MOST_FEATURES && width <= MOST_FEATURES && op->fan_in * op->width >= LEAST_WORK;
    Packed packed;
    packed.used = packed.rows = 0;
    for (int64_t i = 0; i < rows; i++) {
        const vec *x = from + i * op->stride;
        if (i == TRIED_FIRST && found < TRIED_FIRST / 4) worth = 0; /* too many differ here */
        if (worth && pack(to, &packed, i, x, op)) found++;
        else chain_row(to + i * width, x, op);
    }
    unpack(to, &packed, op);
}
#else
static void linear(vec *to, const vec *from, int64_t rows, const Operation *op) {
    int64_t width = end_of(op)->width;
    for (int64_t i = 0; i < rows; i++) chain_row(to + i * width, from + i * op->stride, op);
}
#endif

/* Sums and products, element by element, of a value and another one, shared rows, or the same row for all. */
static void elementwise(vec *to, const vec *a, const vec *b, int64_t first, int64_t rows, const Operation *op) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < op->width; c += TILE) {
            vec sum[TILE];
            for (int t = 0; t < TILE; t++) {
                int64_t at = i * op->width + c + t;
                vec y = b ? b[at] : same_in_all(1);
                if (op->shared) y = y * op->shared[first * op->width + at];
                if (op->row) y = y * op->row[c + t];
                sum[t] = op->code == TIMES ? a[at] * y : a[at] + y;
            }
            finish(to + i * op->width, sum, op, c);
        }
}

static void pool(vec *to, const vec *from, int64_t rows, const Operation *op) {
    for (int64_t c = 0; c < op->width; c += TILE) {
        vec sum[TILE] = {0};
        for (int64_t i = 0; i < rows; i++)
            for (int t = 0; t < TILE; t++) sum[t] += from[i * op->width + c + t];
        finish(to, sum, op, c);
    }
}

static void largest(vec *to, const vec *from, int64_t rows, const Operation *op) {
    for (int64_t c = 0; c < op->width; c += TILE) {
        vec most[TILE] = {0};
        for (int64_t i = 0; i < rows; i++)
            for (int t = 0; t < TILE; t++) {
                vec x = from[i * op->width + c + t];
                most[t] = i ? choose(most[t] >= x, most[t], x) : x;
            }
        finish(to, most, op, c);
    }
}

/* Rows with mean 0 and variance 1 (LAYER_NORM), or of length 1 (UNIT). */
static void normalise(vec *to, const vec *from, int64_t rows, const Operation *op) {
    for (int64_t i = 0; i < rows; i++) {
        const vec *x = from + i * op->width;
        vec mean = {0}, squares = {0}, scale = {0};
        if (op->code == LAYER_NORM)
            for (int64_t c = 0; c < op->fan_in; c++) mean += x[c] / (REAL)op->fan_in;
        for (int64_t c = 0; c < op->fan_in; c++) squares += (x[c] - mean) * (x[c] - mean);
        for (int k = 0; k < LANES; k++) {
            REAL length = (REAL)sqrt(squares[k]);
            if (op->code == LAYER_NORM) length = (REAL)sqrt(squares[k] / (REAL)op->fan_in + (REAL)op->least);
            else if (length < (REAL)op->least) length = (REAL)op->least;
            scale[k] = 1 / length;
        }
        for (int64_t c = 0; c < op->width; c += TILE) {
            vec sum[TILE];
            for (int t = 0; t < TILE; t++) sum[t] = (x[c + t] - mean) * (op->row ? scale * op->row[c + t] : scale);
            finish(to + i * op->width, sum, op, c);
        }
    }
}

static void join(vec *to, const vec *from, int64_t rows, const Operation *op) {
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * op->width + op->messages, from + i * op->stride, op->fan_in * sizeof(vec));
}

/* Features times their factors. */
static void features(vec *to, const Pass *p, const Question *q, const Place *lane, int64_t g, const Operation *op) {
    int64_t first = p->node_ptr[g], number = p->node_ptr[g + 1] - first;
    for (int k = 0; k < LANES; k++) {
        const uint8_t *kept = kept_by(q, lane[k].subset), others = !q->keeps[2 * lane[k].world + 1];
        const int64_t *element = q->node_element + q->node_first[lane[k].copy] * p->factors;
        for (int64_t i = 0; i < number; i++) {
            const int64_t *own = element + p->place[first + i] * p->factors;
            const REAL *x = op->shared + (first + i) * op->width;
            for (int64_t c = 0; c < op->fan_in; c++)
                to[i * op->width + c][k] = kept[own[p->factors == 1 ? 0 : c]] != others ? x[c] : 0;
        }
    }
}

/* 1 in the lanes whose bits are set, 0 in the others. */
static inline vec weight_of(uint32_t bits) {
    mask lane;
    for (int k = 0; k < LANES; k++) lane[k] = (whole)1 << k;
    return (vec)(((lane & ((mask){0} + (whole)bits)) != 0) & (mask)same_in_all(1));
}

/* Finds the lanes in which each edge is there. All lanes are of one instance. */
static void find_edges(const Question *q, const Place *lane, int64_t edges) {
    if (!q->edge_element) {
        for (int64_t e = 0; e < edges; e++) q->on[e] = (1u << LANES) - 1;
        return;
    }
    const int64_t *element = q->edge_element + q->edge_first[lane->copy], *range = q->edge_range + lane->copy;
    uint32_t others = 0;
    memset(q->bits, 0, (range[1] - range[0]) * sizeof(uint32_t));
    for (int k = 0; k < LANES; k++) {
        const uint8_t *kept = kept_by(q, lane[k].subset) + q->edge_range[lane[k].copy];
        for (int64_t i = 0; i < range[1] - range[0]; i++) q->bits[i] |= (uint32_t)kept[i] << k;
        others |= (uint32_t)!q->keeps[2 * lane[k].world] << k;
    }
    for (int64_t e = 0; e < edges; e++) q->on[e] = q->bits[element[e] - range[0]] ^ others;
}

/* One over the root of the degree that each node has without the edges that are deleted; 0 if it has none. */
static void find_degrees(vec *degree, const Degrees *d, const Pass *p, const Question *q, vec outside, int64_t g) {
    int64_t first = p->node_ptr[g], number = p->node_ptr[g + 1] - first;
    int64_t edge = p->edge_ptr[g], edges = p->edge_ptr[g + 1] - edge;
    for (int64_t i = 0; i < number; i++) degree[i] = d->loops[first + i] + d->outside[first + i] * outside;
    for (int64_t e = 0; e < edges; e++) {
        if (!q->on[e]) continue;
        vec w = weight_of(q->on[e]);
        degree[d->node[edge + e]] += d->weight ? w * d->weight[edge + e] : w;
        if (d->loose) degree[d->other[edge + e]] += w * d->loose[edge + e];
    }
    for (int64_t i = 0; i < number; i++) {
        REAL *found = (REAL *)(degree + i);
        for (int k = 0; k < LANES; k++) found[k] = found[k] > (REAL)1e-3 ? 1 / sqrt(found[k]) : 0;
    }
}

/* Weighs the messages of a kind; those that no lane sends are left out. */
static void weigh(const Sent *sent, const Messages *m, const vec *root, const uint32_t *on, int64_t first, int64_t nodes) {
    int32_t found = 0;
    for (int64_t i = 0; i < nodes; i++) {
        int64_t begin = m->ptr[first + i], end = m->ptr[first + i + 1];
        vec total = {0};
        sent->ptr[i] = found;
        for (int64_t j = begin; j < end; j++) {
            if (m->edge[j] >= 0 && !on[m->edge[j]]) continue;
            vec w = m->edge[j] < 0 ? same_in_all(1) : weight_of(on[m->edge[j]]);
            total += w;
            if (root) w = w * root[m->sender[j]] * root[i];
            sent->weight[found] = m->factor ? w * m->factor[j] : w;
            sent->sender[found] = m->sender[j];
            sent->place[found++] = j - m->ptr[first];
        }
        if (m->mean) { /* torch divides by the number of all messages */
            vec least = same_in_all((REAL)1e-3), share = (REAL)(end - begin) / choose(total < least, least, total);
            for (int64_t j = sent->ptr[i]; j < found; j++) sent->weight[j] *= share;
        }
    }
    sent->ptr[nodes] = found;
}

/* Weights of all messages, from the edges that are there and the degrees that these leave. */
static void weigh_all(const Pass *p, const Question *q, const Place *lane, int64_t g) {
    int64_t first = p->node_ptr[g], nodes = p->node_ptr[g + 1] - first;
    vec outside;
    for (int k = 0; k < LANES; k++) outside[k] = q->outside[lane[k].world];
    find_edges(q, lane, p->edge_ptr[g + 1] - p->edge_ptr[g]);
    for (int64_t r = 0; r < p->num_degrees; r++) find_degrees(q->degree + r * nodes, p->degrees + r, p, q, outside, g);
    for (int64_t r = 0; r < p->num_messages; r++) {
        const Messages *m = p->messages + r;
        weigh(q->sent + r, m, m->degrees < 0 ? 0 : q->degree + m->degrees * nodes, q->on, first, nodes);
    }
}

static void run_block(const Pass *p, const Question *q, const Place *lane, int64_t g) {
    int64_t first = p->node_ptr[g];
    weigh_all(p, q, lane, g);
    for (int64_t o = 0; o < p->num_operations; o++) {
        const Operation *op = p->operations + o;
        vec *to = q->values[op->target];
        const vec *from = op->source < 0 ? 0 : q->values[op->source];
        int64_t rows = op->level < 0 ? 1 : p->rows[op->level * p->instances + g];
        if (op->code == PRODUCT)
            product(to, from, op->shared, q->sent + op->messages, first, rows, op);
        else if (op->code == RECEIVE) receive(to, from, q->sent + op->messages, p->messages[op->messages].ptr[first], rows, op);
        else if (op->code == SENDERS || op->code == RECEIVERS)
            rows_of_ends(to, from, p->messages + op->messages, first, p->node_ptr[g + 1] - first, op);
        else if (op->code == LINEAR) {
            const Operation *end = end_of(op);
            linear(q->values[end->target], from, rows, op);
            o += end - op;
        }
        else if (op->code == POOL) pool(to, from, p->node_ptr[g + 1] - first, op);
        else if (op->code == LARGEST) largest(to, from, p->node_ptr[g + 1] - first, op);
        else if (op->code == LAYER_NORM || op->code == UNIT) normalise(to, from, rows, op);
        else if (op->code == JOIN) join(to, from, rows, op);
        else if (op->code == FEATURES) features(to, p, q, lane, g, op);
        else {
            int64_t start = op->level < 0 ? g : op->by_message ? p->messages[op->messages].ptr[first] : first;
            elementwise(to, from, op->other < 0 ? 0 : q->values[op->other], start, rows, op);
        }
    }
}

static uint64_t hash(const uint8_t *value, int64_t number, uint64_t found) {
    for (; number > 0; value += 8, number -= 8) {
        uint64_t bits = 0;
        memcpy(&bits, value, number < 8 ? number : 8);
        found = (found ^ bits) * 0x9E3779B97F4A7C15u;
        found ^= found >> 29;
    }
    return found;
}

/* Elements of an instance in a part: how many, and where in a subset they begin. */
static inline int64_t part_of(const int64_t *range, int64_t copy, int64_t *first) {
    *first = range ? range[copy] : 0;
    return range ? range[copy + 1] - range[copy] : 0;
}

static int equal(const Question *q, Asked a, Asked b) {
    const uint8_t *one = kept_by(q, a.subset), *other = kept_by(q, b.subset);
    int64_t x, y, edges = part_of(q->edge_range, a.copy, &x);
    part_of(q->edge_range, b.copy, &y);
    if (memcmp(one + x, other + y, edges)) return 0;
    int64_t nodes = part_of(q->node_range, a.copy, &x);
    part_of(q->node_range, b.copy, &y);
    return !memcmp(one + x, other + y, nodes);
}

/* Moves the subsets of one instance that differ from all before to the front, and points the others to the first that is
 * equal. Returns how many differ. The table has `slots` entries, a power of two. */
static int64_t different(const Question *q, Asked *asked, int64_t number, int64_t *table, int64_t slots) {
    int64_t found = 0;
    for (int64_t t = 0; t < slots; t++) table[t] = -1;
    for (int64_t i = 0; i < number; i++) {
        Asked one = asked[i];
        int64_t first, edges = part_of(q->edge_range, one.copy, &first);
        uint64_t key = hash(kept_by(q, one.subset) + first, edges, 1);
        int64_t nodes = part_of(q->node_range, one.copy, &first);
        key = hash(kept_by(q, one.subset) + first, nodes, key);
        int64_t at = key & (slots - 1);
        while (table[at] >= 0 && !equal(q, one, asked[table[at]])) at = (at + 1) & (slots - 1);
        if (table[at] < 0) {
            table[at] = found;
            asked[i] = asked[found];
            asked[found++] = one;
        } else asked[i].same = table[at];
    }
    return found;
}

/* Runs all worlds of the different subsets of one instance, LANES at a time, and writes what is asked for. */
static void run_instance(const Pass *p, const Question *q, int64_t g, const Asked *asked, int64_t number, int64_t different) {
    const Operation *end = p->operations + p->num_operations - 1;
    const vec *last = q->values[end->target];
    int64_t rows = p->row_ptr[g + 1] - p->row_ptr[g], worlds = different * q->worlds;
    for (int64_t block = 0; block < worlds; block += LANES) {
        Place lane[LANES];
        for (int k = 0; k < LANES; k++) {
            int64_t i = block + k < worlds ? block + k : block;
            /* worlds of one kind together: most of their edges are the same */
            lane[k] = (Place){asked[i % different].copy, asked[i % different].subset, i / different};
        }
        run_block(p, q, lane, g);
        for (int k = 0; k < LANES && block + k < worlds; k++) {
            REAL *to = output_of(p, q, lane[k].copy, lane[k].subset, lane[k].world);
            for (int64_t r = 0; r < rows; r++) {
                const vec *row = last + (p->row ? p->row[p->row_ptr[g] + r] : 0) * end->width;
                for (int64_t c = 0; c < p->outputs; c++) to[r * p->outputs + c] = row[c][k];
            }
        }
    }
    for (int64_t i = different; i < number; i++)
        for (int64_t w = 0; w < q->worlds; w++)
            memcpy(output_of(p, q, asked[i].copy, asked[i].subset, w),
                   output_of(p, q, asked[asked[i].same].copy, asked[asked[i].same].subset, w),
                   rows * p->outputs * sizeof(REAL));
}

/* Adds the number of elements of each instance that each subset has, in one part. */
void count_kept(const uint8_t *kept, int64_t subsets, int64_t elements, const int64_t *range, int64_t number, int64_t *count) {
    for (int64_t k = 0; k < subsets; k++, kept += elements, count += number)
        for (int64_t s = 0; s < number; s++) {
            int64_t found = 0;
            for (int64_t i = range[s]; i < range[s + 1]; i++) found += kept[i];
            count[s] += found;
        }
}

int64_t lanes(void) { return LANES; }

/* Runs all that is asked, instance by instance. `first` and `copy`: the places in the question of each instance. */
static void run_all(const Pass *p, const Question *q, const int64_t *first, const int64_t *copy, Asked *asked, int64_t *table) {
    for (int64_t g = 0; g < p->instances; g++) {
        int64_t number = 0, slots = 1;
        for (int64_t c = first[g]; c < first[g + 1]; c++)
            for (int64_t k = 0; k < q->subsets; k++) asked[number++] = (Asked){copy[c], k, 0};
        while (slots < 2 * number) slots *= 2;
        if (number) run_instance(p, q, g, asked, number, different(q, asked, number, table, slots));
    }
}

/* Answers a question. Returns 0, or 1 if there is not enough memory. */
int64_t run_passes(const Pass *p, const Question *q) {
    int64_t *first = calloc(p->instances + 2, sizeof(int64_t)), *copy = malloc((q->number + 1) * sizeof(int64_t));
    int64_t *table = 0, most = 0, slots = 1, failed = 1;
    Asked *asked = 0;
    if (first && copy) {
        for (int64_t s = 0; s < q->number; s++) first[q->instance[s] + 2]++;
        for (int64_t g = 0; g < p->instances; g++) {
            if (first[g + 2] > most) most = first[g + 2];
            first[g + 2] += first[g + 1];
        }
        for (int64_t s = 0; s < q->number; s++) copy[first[q->instance[s] + 1]++] = s;
        while (slots < 2 * most * q->subsets) slots *= 2;
        asked = malloc((most * q->subsets + 1) * sizeof(Asked));
        table = malloc(slots * sizeof(int64_t));
        failed = !asked || !table;
        if (!failed) run_all(p, q, first, copy, asked, table);
    }
    free(first), free(copy), free(asked), free(table);
    return failed;
}

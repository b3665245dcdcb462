/* Forward passes of a recorded network over many worlds of small graphs.
 *
 * One lane of a vector is one world. All values of one instance in LANES worlds stay in the cache, [rows, width, LANES], so
 * that a pass reads and writes hardly any memory, and no lane depends on what the others hold. Widths are multiples of TILE;
 * the columns that fill them up are never read by what follows.
 *
 * Compiled once per instruction set and number type (-DREAL, -DBYTES); loaded by nseg.model.kernel.
 */
#include "pass.h"
#include "known.h"

#define LANES ((int)(BYTES / sizeof(REAL)))

typedef REAL vec __attribute__((vector_size(BYTES)));
typedef __typeof__(__builtin_choose_expr(sizeof(REAL) == 4, (int32_t)0, (int64_t)0)) whole;
typedef whole mask __attribute__((vector_size(BYTES)));

/* Messages that are sent in any lane, by receiver. */
typedef struct {
    vec *weight;
    uint32_t *lanes;                     /* in which each is sent */
    int32_t *sender;
    int32_t *place;                      /* number among all messages of the instance */
    int32_t *ptr;                        /* [nodes of the largest instance + 1] */
} Sent;

/* In which lanes a row of a value is the same. Rows may also be equal in lanes that are told apart. */
typedef struct {
    int32_t first[16];                   /* for each lane, the first one in which the row is the same */
    uint32_t leaders;                    /* lanes that are the first themselves; 1: the row is the same in all */
} Same;

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
    Same **same;                         /* and where its rows are the same */
    Same *same_degree;                   /* [degrees, nodes of it] */
    uint32_t *bits;                      /* [elements of the largest instance] lanes that keep an element */
    uint32_t *on;                        /* [edges of it] lanes in which an edge is there */
    vec *degree;                         /* [degrees, nodes of it] */
    Sent *sent;                          /* [messages] those that are sent in any lane */
    Known *known;                        /* what was answered before; null if nothing is kept */
} Question;

/* Where a world of an instance is asked for. */
typedef struct {
    int64_t copy, subset, world;         /* which of the instances, the subsets and the worlds of the question */
} Place;

/* Where a subset of an instance is asked for. */
typedef struct {
    int64_t copy, subset;
    int64_t same;                        /* number of the first one that is equal; -1 if the answer was known */
    uint64_t key;
    uint64_t *bits;                      /* its elements */
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

/* What is added to, or multiplied with, the elements of a row from a column on: those of another value, shared rows, or a row
 * that is the same for all. */
static inline void find_other(vec *found, const vec *other, const REAL *shared, const Operation *op, int64_t column) {
    for (int t = 0; t < TILE; t++) found[t] = other ? other[column + t] : same_in_all(1);
    if (shared)
        for (int t = 0; t < TILE; t++) found[t] *= shared[column + t];
    if (op->row)
        for (int t = 0; t < TILE; t++) found[t] *= op->row[column + t];
}

/* What each node receives: the sum of its senders' rows times the weights of the messages; and what is added to it by the
 * operation that this one is chained to, of which `other` is a value. */
static void product(vec *to, const vec *from, const vec *other, const Sent *m, int64_t first, int64_t rows,
                    const Operation *op) {
    const Operation *end = op + op->chained;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < op->width; c += TILE) {
            vec sum[TILE] = {0}, more[TILE];
            for (int64_t j = m->ptr[i]; j < m->ptr[i + 1]; j++) {
                vec w = m->weight[j];
                if (op->shared) {
                    const REAL *sent = op->shared + (first + m->sender[j]) * op->width + c;
                    for (int t = 0; t < TILE; t++) sum[t] += w * sent[t];
                } else {
                    const vec *sent = from + m->sender[j] * op->width + c;
                    for (int t = 0; t < TILE; t++) sum[t] += w * sent[t];
                }
            }
            if (end > op) {
                const REAL *shared = end->shared ? end->shared + (first + i) * op->width : 0;
                find_other(more, other ? other + i * op->width : 0, shared, end, c);
                for (int t = 0; t < TILE; t++) sum[t] += more[t];
            }
            finish(to + i * op->width, sum, end, c);
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
#define PACKS
#include <immintrin.h>

/* Worlds of a block differ in a few edges, so most rows are the same in many lanes. Such rows are computed once: the different
 * ones of several nodes share a vector. For 16 lanes only. */
enum { MOST_DIFFERENT = 13 };

typedef struct {
    vec x[2][MOST_FEATURES], y[2][MOST_FEATURES]; /* this vector and the one before; a row may begin there and end here */
    int now;                             /* which of both is this one */
    int used;                            /* lanes that are taken */
    int rows;                            /* that end here */
    int64_t row[17];                     /* nodes */
    __m512i lane[17];                    /* for each of them, where its lanes are: from 16 on in this vector */
} Packed;

static inline __m512i every_lane(void) { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }

static inline __m512i first_lanes(const Same *same) { return _mm512_loadu_si512(same->first); }

/* For each lane the first one that holds the same number. */
static inline __m512i find_first(__m512i number, __mmask16 *leaders) {
    __m512i before = _mm512_conflict_epi32(number), none = _mm512_setzero_si512();
    *leaders = _mm512_cmpeq_epi32_mask(before, none);
    before = _mm512_and_si512(before, _mm512_sub_epi32(none, before)); /* the lowest bit alone */
    return _mm512_mask_mov_epi32(_mm512_sub_epi32(_mm512_set1_epi32(31), _mm512_lzcnt_epi32(before)), *leaders, every_lane());
}

/* All that a row is computed from, as a number for each lane. */
typedef struct {
    __m512i number;
    int bits;                            /* that are used */
} Key;

static inline void add_bits(Key *key, __m512i more, int bits) {
    if (key->bits + bits > 32) {
        __mmask16 leaders;
        key->number = find_first(key->number, &leaders);
        key->bits = 4;
    }
    key->number = _mm512_or_si512(_mm512_sll_epi32(key->number, _mm_cvtsi32_si128(bits)), more);
    key->bits += bits;
}

static inline void note_same(Same *same, __m512i key) {
    __mmask16 leaders;
    _mm512_storeu_si512(same->first, find_first(key, &leaders));
    same->leaders = leaders;
}

/* Finds the lanes in which the rows are the same that nodes compute from messages, whose rows and weights may be the same in
 * all lanes. Without branches, which would be hard to predict. */
static inline __attribute__((always_inline)) void same_sums(Same *to, const Same *from, const Same *degree, const Sent *m,
                                                            const int32_t *source, int64_t rows, int rows_vary, int weights_vary) {
    const __m512i one = _mm512_set1_epi32(1);
    for (int64_t i = 0; i < rows; i++) {
        Key key = {weights_vary ? first_lanes(degree + i) : _mm512_setzero_si512(), 4};
        for (int64_t j = m->ptr[i]; j < m->ptr[i + 1]; j++) {
            __m512i number = rows_vary ? first_lanes(from + source[j]) : _mm512_setzero_si512();
            if (weights_vary) number = _mm512_or_si512(_mm512_slli_epi32(number, 4), first_lanes(degree + m->sender[j]));
            number = _mm512_maskz_add_epi32(m->lanes[j], number, one);
            add_bits(&key, number, 1 + 4 * rows_vary + 4 * weights_vary);
        }
        note_same(to + i, key.number);
    }
}

static void same_messages(Same *to, const Same *from, const Same *degree, const Sent *m, int64_t rows, const Operation *op) {
    const int32_t *source = op->code == PRODUCT ? m->sender : m->place;
    if (from && degree) same_sums(to, from, degree, m, source, rows, 1, 1);
    else if (from) same_sums(to, from, 0, m, source, rows, 1, 0);
    else if (degree) same_sums(to, 0, degree, m, source, rows, 0, 1);
    else same_sums(to, 0, 0, m, source, rows, 0, 0);
}

/* The same of the features; `lanes`: those that keep each element. */
static void same_features(Same *to, const uint32_t *lanes, const int64_t *element, const Pass *p, int64_t first, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        Key key = {_mm512_setzero_si512(), 0};
        for (int64_t c = 0; c < p->factors; c++)
            add_bits(&key, _mm512_maskz_set1_epi32(lanes[element[p->place[first + i] * p->factors + c]], 1), 1);
        note_same(to + i, key.number);
    }
}

/* The same of rows that are computed from one row, or two. */
static void same_rows(Same *to, const Same *a, const Same *b, int64_t rows) {
    for (int64_t i = 0; i < rows; i++)
        note_same(to + i, _mm512_or_si512(_mm512_slli_epi32(first_lanes(a + i), 4), first_lanes(b + i)));
}

/* Computes this vector, and writes the rows that end there. */
static void unpack(vec *to, Packed *packed, const Operation *op) {
    int64_t width = end_of(op)->width;
    const vec *before = packed->y[!packed->now], *now = packed->y[packed->now];
    if (packed->used) chain_row(packed->y[packed->now], packed->x[packed->now], op);
    for (int r = 0; r < packed->rows; r++)
        for (int64_t c = 0; c < width; c++)
            to[packed->row[r] * width + c] =
                (vec)_mm512_permutex2var_ps((__m512)before[c], packed->lane[r], (__m512)now[c]);
    packed->used = packed->rows = 0;
    packed->now = !packed->now;
}

/* Puts some lanes of a row into this vector, behind those that are taken. */
static inline void put(Packed *packed, const vec *x, int64_t features, __mmask16 lanes, int number) {
    vec *to = packed->x[packed->now];
    __mmask16 taken = ((1u << number) - 1) << packed->used;
    __m512i from = _mm512_maskz_expand_epi32(taken, _mm512_maskz_compress_epi32(lanes, every_lane()));
    for (int64_t f = 0; f < features; f++) to[f] = (vec)_mm512_mask_permutexvar_ps((__m512)to[f], taken, from, (__m512)x[f]);
    packed->used += number;
}

/* Adds a row of which some lanes are the same. */
static void pack(vec *to, Packed *packed, int64_t row, const vec *x, const Same *same, const Operation *op) {
    int number = __builtin_popcount(same->leaders), room = 16 - packed->used;
    int begins = packed->used + (number > room ? 0 : 16);
    __mmask16 lanes = same->leaders;
    __m512i place = _mm512_maskz_expand_epi32(lanes, _mm512_add_epi32(every_lane(), _mm512_set1_epi32(begins)));
    if (number > room) {
        put(packed, x, op->fan_in, lanes, room);
        unpack(to, packed, op);
        for (number -= room; room > 0; room--) lanes &= lanes - 1;
    }
    put(packed, x, op->fan_in, lanes, number);
    packed->lane[packed->rows] = _mm512_permutexvar_epi32(first_lanes(same), place);
    packed->row[packed->rows++] = row;
}

static void linear(vec *to, const vec *from, const Same *same, int64_t rows, const Operation *op) {
    int64_t width = end_of(op)->width;
    int packs = LANES == 16 && op->packed;
    Packed packed;
    packed.now = packed.used = packed.rows = 0;
    for (int64_t i = 0; i < rows; i++) {
        const vec *x = from + i * op->stride;
        if (packs && __builtin_popcount(same[i].leaders) <= MOST_DIFFERENT) pack(to, &packed, i, x, same + i, op);
        else chain_row(to + i * width, x, op);
    }
    unpack(to, &packed, op);
}
#else
static void linear(vec *to, const vec *from, const Same *same, int64_t rows, const Operation *op) {
    int64_t width = end_of(op)->width;
    for (int64_t i = 0; i < rows; i++) chain_row(to + i * width, from + i * op->stride, op);
}
#endif

/* Sums and products, element by element, of a value and what find_other gives. */
static void elementwise(vec *to, const vec *a, const vec *b, int64_t first, int64_t rows, const Operation *op) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < op->width; c += TILE) {
            vec more[TILE];
            find_other(more, b ? b + i * op->width : 0, op->shared ? op->shared + (first + i) * op->width : 0, op, c);
            for (int t = 0; t < TILE; t++) {
                vec x = a[i * op->width + c + t];
                more[t] = op->code == TIMES ? x * more[t] : x + more[t];
            }
            finish(to + i * op->width, more, op, c);
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

static inline mask mask_of(uint32_t bits) {
    mask lane;
    for (int k = 0; k < LANES; k++) lane[k] = (whole)1 << k;
    return (lane & ((mask){0} + (whole)bits)) != 0;
}

/* 1 in the lanes whose bits are set, 0 in the others. */
static inline vec weight_of(uint32_t bits) { return (vec)(mask_of(bits) & (mask)same_in_all(1)); }

/* Finds the lanes in which each element of a part is there: 0 are edges, 1 are nodes. All lanes are of one instance. */
static void find_elements(const Question *q, const Place *lane, const int64_t *range, int part) {
    int64_t number = range[lane->copy + 1] - range[lane->copy];
    uint32_t others = 0;
    for (int k = 0; k < LANES; k++) others |= (uint32_t)!q->keeps[2 * lane[k].world + part] << k;
    for (int64_t i = 0; i < number; i++) q->bits[i] = others;
    for (int k = 0; k < LANES; k++) {
        const uint8_t *kept = kept_by(q, lane[k].subset) + range[lane[k].copy];
        for (int64_t i = 0; i < number; i++) q->bits[i] ^= (uint32_t)kept[i] << k;
    }
}

/* Finds the lanes in which each edge is there. */
static void find_edges(const Question *q, const Place *lane, int64_t edges) {
    if (!q->edge_element) {
        for (int64_t e = 0; e < edges; e++) q->on[e] = (1u << LANES) - 1;
        return;
    }
    const int64_t *element = q->edge_element + q->edge_first[lane->copy];
    find_elements(q, lane, q->edge_range, 0);
    for (int64_t e = 0; e < edges; e++) q->on[e] = q->bits[element[e] - q->edge_range[lane->copy]];
}

/* Features, or what a matrix makes of them (LINEAR), in the lanes that keep them, and 0 in the others. */
static void features(vec *to, const Pass *p, const Question *q, const Place *lane, int64_t g, int64_t rows,
                     const Operation *op) {
    int64_t first = p->node_ptr[g];
    const int64_t *element = q->node_element + q->node_first[lane->copy] * p->factors;
    const uint32_t *bits = q->bits - q->node_range[lane->copy];
    find_elements(q, lane, q->node_range, 1);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t *own = element + p->place[first + i] * p->factors;
        const REAL *x = op->shared + (first + i) * op->width;
        mask kept = mask_of(bits[*own]);
        for (int64_t c = 0; c < (p->factors > 1 ? op->fan_in : op->width); c++) {
            if (p->factors > 1) kept = mask_of(bits[own[c]]);
            to[i * op->width + c] = (vec)(kept & (mask)same_in_all(x[c]));
        }
    }
#ifdef PACKS
    if (LANES == 16 && op->compared) same_features(q->same[op->target], bits, element, p, first, rows);
#endif
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
            sent->lanes[found] = m->edge[j] < 0 ? (1u << LANES) - 1 : on[m->edge[j]];
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
    for (int64_t r = 0; r < p->num_degrees; r++) {
        find_degrees(q->degree + r * nodes, p->degrees + r, p, q, outside, g);
#ifdef PACKS
        for (int64_t i = r * nodes; i < (r + 1) * nodes && LANES == 16; i++)
            note_same(q->same_degree + i, (__m512i)q->degree[i]);
#endif
    }
    for (int64_t r = 0; r < p->num_messages; r++) {
        const Messages *m = p->messages + r;
        weigh(q->sent + r, m, m->degrees < 0 ? 0 : q->degree + m->degrees * nodes, q->on, first, nodes);
    }
}

#ifdef PACKS
/* Finds the lanes in which rows are the same, after an operation, or one that another is chained to. */
static void find_same(const Pass *p, const Question *q, const Operation *op, int64_t g, int64_t rows) {
    int64_t first = p->node_ptr[g], nodes = p->node_ptr[g + 1] - first;
    const Operation *end = end_of(op);
    const Same *from = op->source < 0 ? 0 : q->same[op->source], *other = end->other < 0 ? 0 : q->same[end->other];
    Same *to = q->same[end->target];
    if (op->code == PRODUCT || op->code == RECEIVE) {
        int64_t degrees = p->messages[op->messages].degrees;
        const Same *degree = degrees < 0 ? 0 : q->same_degree + degrees * nodes;
        same_messages(to, op->shared ? 0 : from, degree, q->sent + op->messages, rows, op);
        if (other) same_rows(to, to, other, rows);
    } else if (op->code == SENDERS || op->code == RECEIVERS) {
        const Messages *m = p->messages + op->messages;
        for (int64_t i = 0; i < nodes; i++)
            for (int64_t j = m->ptr[first + i]; j < m->ptr[first + i + 1]; j++)
                to[j - m->ptr[first]] = from[op->code == SENDERS ? m->sender[j] : i];
    } else if (op->code == JOIN && op->messages) same_rows(to, to, from, rows);
    else if (op->code == POOL || op->code == LARGEST) {
        _mm512_storeu_si512(to->first, every_lane());
        to->leaders = (1u << LANES) - 1;
    } else if (other) same_rows(to, from, other, rows);
    else if (op->code != FEATURES) memcpy(to, from, rows * sizeof(Same));
}
#endif

/* Runs an operation and those that it is chained to; returns the last of them. */
static const Operation *run_operation(const Pass *p, const Question *q, const Place *lane, int64_t g, const Operation *op) {
    const Operation *end = end_of(op);
    int64_t first = p->node_ptr[g], nodes = p->node_ptr[g + 1] - first;
    int64_t rows = op->level < 0 ? 1 : p->rows[op->level * p->instances + g];
    vec *to = q->values[end->target];
    const vec *from = op->source < 0 ? 0 : q->values[op->source], *other = end->other < 0 ? 0 : q->values[end->other];
    if (op->code == PRODUCT) product(to, from, other, q->sent + op->messages, first, rows, op);
    else if (op->code == RECEIVE) receive(to, from, q->sent + op->messages, p->messages[op->messages].ptr[first], rows, op);
    else if (op->code == SENDERS || op->code == RECEIVERS) rows_of_ends(to, from, p->messages + op->messages, first, nodes, op);
    else if (op->code == LINEAR && op->shared && p->factors == 1) features(to, p, q, lane, g, rows, op);
    else if (op->code == LINEAR) linear(to, from, q->same[op->source], rows, op);
    else if (op->code == POOL) pool(to, from, nodes, op);
    else if (op->code == LARGEST) largest(to, from, nodes, op);
    else if (op->code == LAYER_NORM || op->code == UNIT) normalise(to, from, rows, op);
    else if (op->code == JOIN) join(to, from, rows, op);
    else if (op->code == FEATURES) features(to, p, q, lane, g, rows, op);
    else {
        int64_t start = op->level < 0 ? g : op->by_message ? p->messages[op->messages].ptr[first] : first;
        elementwise(to, from, other, start, rows, op);
    }
#ifdef PACKS
    if (LANES == 16 && end->compared) find_same(p, q, op, g, rows);
#endif
    return end;
}

static void run_block(const Pass *p, const Question *q, const Place *lane, int64_t g) {
    weigh_all(p, q, lane, g);
    for (int64_t o = 0; o < p->num_operations; o++) o = run_operation(p, q, lane, g, p->operations + o) - p->operations;
}

/* Elements of an instance in a part: how many, and where in a subset they begin. */
static inline int64_t part_of(const int64_t *range, int64_t copy, int64_t *first) {
    *first = range ? range[copy] : 0;
    return range ? range[copy + 1] - range[copy] : 0;
}

/* Packs the subsets that are asked of one instance; returns the words that each takes. */
static int64_t pack_subsets(const Question *q, int64_t g, Asked *asked, int64_t number, uint64_t *bits) {
    int64_t words = 0, edge, node;
    for (int64_t i = 0; i < number; i++) {
        const uint8_t *kept = kept_by(q, asked[i].subset);
        int64_t edges = part_of(q->edge_range, asked[i].copy, &edge), nodes = part_of(q->node_range, asked[i].copy, &node);
        words = words_of(edges) + words_of(nodes);
        asked[i].bits = bits + i * words;
        pack_bits(asked[i].bits, kept + edge, edges);
        pack_bits(asked[i].bits + words_of(edges), kept + node, nodes);
        asked[i].key = hash(asked[i].bits, words);
        if (q->known) __builtin_prefetch(q->known->key + set_of(q->known, g, asked[i].key));
    }
    return words;
}

/* What is known of an instance; null if nothing can be. All that is known is forgotten if elements mean something else. */
static Known *known_of(const Pass *p, const Question *q, int64_t g, int64_t copy, int64_t words) {
    Known *known = q->known;
    int64_t first = 0, rows = p->row_ptr[g + 1] - p->row_ptr[g];
    if (!known || words > known->words || q->worlds * rows * p->outputs > known->numbers) return 0;
    int64_t count[2] = {part_of(q->edge_range, copy, &first), part_of(q->node_range, copy, &first)};
    int same = !memcmp(known->count + 2 * g, count, sizeof count);
    memcpy(known->count + 2 * g, count, sizeof count);
    if (q->edge_element)
        same &= same_elements(known->edge + p->edge_ptr[g], q->edge_element + q->edge_first[copy],
                              p->edge_ptr[g + 1] - p->edge_ptr[g], q->edge_range[copy]);
    if (q->node_element)
        same &= same_elements(known->node + p->node_ptr[g] * p->factors, q->node_element + q->node_first[copy] * p->factors,
                              (p->node_ptr[g + 1] - p->node_ptr[g]) * p->factors, q->node_range[copy]);
    if (!same) forget(known, g);
    return known;
}

/* Copies the answer for a subset from the output to what is known, or back. */
static void copy_answer(const Pass *p, const Question *q, int64_t g, Asked one, REAL *answer, int back) {
    int64_t numbers = (p->row_ptr[g + 1] - p->row_ptr[g]) * p->outputs;
    for (int64_t w = 0; w < q->worlds; w++, answer += numbers) {
        REAL *output = output_of(p, q, one.copy, one.subset, w);
        memcpy(back ? output : answer, back ? answer : output, numbers * sizeof(REAL));
    }
}

/* Answers what is known. Moves the other subsets of one instance that differ from all before to the front, and points the rest
 * to the first that is equal. Returns how many differ. The table has `slots` entries, a power of two. */
static int64_t different(const Pass *p, const Question *q, int64_t g, Known *known, Asked *asked, int64_t number, int64_t words,
                         int64_t *table, int64_t slots) {
    int64_t found = 0;
    for (int64_t t = 0; t < slots; t++) table[t] = -1;
    for (int64_t i = 0; i < number; i++) {
        Asked one = asked[i];
        const REAL *answer = known ? find_answer(known, g, one.key, one.bits, words) : 0;
        if (answer) {
            copy_answer(p, q, g, one, (REAL *)answer, 1);
            asked[i].same = -1;
            continue;
        }
        int64_t at = one.key >> 1 & (slots - 1);
        while (table[at] >= 0 && memcmp(one.bits, asked[table[at]].bits, words * sizeof(uint64_t))) at = (at + 1) & (slots - 1);
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
        for (int64_t w = 0; w < q->worlds && asked[i].same >= 0; w++)
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

/* Log-odds of the class of each row in several worlds, its probability, and whether it is the first of the largest scores.
 * Returns whether all scores are finite; if not, torch says what is wrong. */
int64_t read_classes(const REAL *scores, int64_t worlds, int64_t rows, int64_t classes, const int64_t *target, REAL *p,
                     REAL *log_odds, REAL *holds) {
    const REAL most = 1e4, least = sizeof(REAL) == 4 ? -18 : -40; /* what e to the power of less is, adds nothing to 1 */
    REAL zero = 0;
    for (int64_t k = 0; k < worlds * rows; k++, scores += classes) {
        int64_t own = target[k % rows], other = own == 0;
        for (int64_t c = 0; c < classes; c++) {
            zero += scores[c] * 0;
            if (c != own && scores[c] > scores[other]) other = c;
        }
        REAL sum = 1, z;
        for (int64_t c = 0; c < classes; c++)
            if (c != own && c != other && scores[c] - scores[other] > least) sum += (REAL)exp(scores[c] - scores[other]);
        z = scores[own] - scores[other] - (sum == 1 ? 0 : (REAL)log(sum));
        z = z > most ? most : z < -most ? -most : z;
        log_odds[k] = z;
        p[k] = 1 / (1 + (REAL)exp(-z));
        holds[k] = scores[own] > scores[other] || (scores[own] == scores[other] && own < other);
    }
    return zero == 0;
}

int64_t lanes(void) { return LANES; }

/* Runs all that is asked, instance by instance. `first` and `copy`: the places in the question of each instance. */
static void run_all(const Pass *p, const Question *q, const int64_t *first, const int64_t *copy, Asked *asked, int64_t *table,
                    uint64_t *bits) {
    for (int64_t g = 0; g < p->instances; g++) {
        int64_t number = 0, slots = 1;
        for (int64_t c = first[g]; c < first[g + 1]; c++)
            for (int64_t k = 0; k < q->subsets; k++) asked[number++] = (Asked){.copy = copy[c], .subset = k};
        if (!number) continue;
        while (slots < 2 * number) slots *= 2;
        int64_t words = pack_subsets(q, g, asked, number, bits);
        Known *known = known_of(p, q, g, copy[first[g]], words);
        int64_t new = different(p, q, g, known, asked, number, words, table, slots);
        run_instance(p, q, g, asked, number, new);
        for (int64_t i = 0; i < new && known; i++)
            copy_answer(p, q, g, asked[i], add_answer(known, g, asked[i].key, asked[i].bits, words), 0);
    }
}

/* Answers a question. Returns 0, or 1 if there is not enough memory. */
int64_t run_passes(const Pass *p, const Question *q) {
    int64_t *first = calloc(p->instances + 2, sizeof(int64_t)), *copy = malloc((q->number + 1) * sizeof(int64_t));
    int64_t *table = 0, most = 0, words = 0, slots = 1, failed = 1, begin;
    Asked *asked = 0;
    uint64_t *bits = 0;
    if (first && copy) {
        for (int64_t s = 0; s < q->number; s++) {
            int64_t own = words_of(part_of(q->edge_range, s, &begin)) + words_of(part_of(q->node_range, s, &begin));
            if (own > words) words = own;
            first[q->instance[s] + 2]++;
        }
        for (int64_t g = 0; g < p->instances; g++) {
            if (first[g + 2] > most) most = first[g + 2];
            first[g + 2] += first[g + 1];
        }
        for (int64_t s = 0; s < q->number; s++) copy[first[q->instance[s] + 1]++] = s;
        while (slots < 2 * most * q->subsets) slots *= 2;
        asked = malloc((most * q->subsets + 1) * sizeof(Asked));
        bits = malloc((most * q->subsets * words + 1) * sizeof(uint64_t));
        table = malloc(slots * sizeof(int64_t));
        failed = !asked || !table || !bits;
        if (!failed) run_all(p, q, first, copy, asked, table, bits);
    }
    free(first), free(copy), free(asked), free(bits), free(table);
    return failed;
}

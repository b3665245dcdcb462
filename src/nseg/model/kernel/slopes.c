/* Passes of a recorded network in worlds whose edges and nodes have real weights, and gradients with respect to these.
 *
 * Such worlds are few and all different, so here a vector holds TILE features of one node in one world. All values of one
 * instance in one world stay in the cache until the way back has used them; to store them for it would take longer than to
 * compute them again. No instance depends on what the others hold.
 */
#include "pass.h"

#define SMALL ((REAL)1e-3) /* degrees, and numbers of messages, below this are none */

typedef REAL tile __attribute__((vector_size(TILE * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
typedef REAL wide __attribute__((vector_size(2 * TILE * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

/* What one call asks: K worlds of some instances, which may be given several times. */
typedef struct {
    const int64_t *instance;             /* [b] */
    int64_t number;                      /* b */
    int64_t worlds;                      /* K */
    const REAL *edge;                    /* [K, edges] weight of each edge; null for 1 */
    const REAL *outside;                 /* [K] weight of the edges outside the instances */
    const REAL *node;                    /* [K, nodes, factors] factors of each node's features; null: they are not changed */
    const int64_t *edge_first;           /* [b] an instance's first edge, node and explained row */
    const int64_t *node_first;
    const int64_t *row_first;
    int64_t edges, nodes, rows, factors;
    const int64_t *target;               /* [rows] class of each explained row, whose log-odds are the output; null for none */
    REAL *output;                        /* [K, rows, outputs], or [K, rows] log-odds. On the way back: the gradient with
                                          * respect to the output; log-odds are written then too, and their gradient is 1 */
    int64_t back;                        /* whether gradients are asked for */
    REAL *edge_slope, *node_slope;       /* gradients with respect to edge and node, which are 0 before */
} Weighed;

/* Memory for the largest instance that is asked for, in one world. What ends with _slope is a gradient. */
typedef struct {
    REAL **value, **value_slope;         /* [operations] rows of each value, by its number */
    REAL **weight, **weight_slope;       /* [messages] */
    REAL **root, **root_slope;           /* [degrees] one over the root of each node's degree */
    REAL **turned;                       /* [operations] the transposed matrix of each linear operation */
} Work;

/* An instance in a world. */
typedef struct {
    int64_t g, first, nodes, edge, edges; /* its number; its first node, and edge, and how many it has */
    const REAL *weight, *factor;          /* of its edges and nodes; null if they are not changed */
    REAL *weight_slope, *factor_slope, *output;
    REAL outside;
    int64_t factors;
    const int64_t *target;
} World;

static inline tile *at(const REAL *x) { return (tile *)x; }

static inline wide *wide_at(const REAL *x) { return (wide *)x; }

static inline REAL sum_of(tile x) { return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7])); }

static inline int64_t rows_of(const Pass *p, const Operation *op, int64_t g) {
    return op->level < 0 ? 1 : p->rows[op->level * p->instances + g];
}

/* --- weights of messages ------------------------------------------------------------------------------------------------ */

static inline REAL edge_weight(const World *w, int32_t edge) { return w->weight && edge >= 0 ? w->weight[edge] : 1; }

static void find_roots(REAL *root, const Degrees *d, const World *w) {
    for (int64_t i = 0; i < w->nodes; i++) root[i] = d->loops[w->first + i] + d->outside[w->first + i] * w->outside;
    for (int64_t e = 0; e < w->edges; e++) {
        REAL x = edge_weight(w, e);
        root[d->node[w->edge + e]] += d->weight ? x * d->weight[w->edge + e] : x;
        if (d->loose) root[d->other[w->edge + e]] += x * d->loose[w->edge + e];
    }
    for (int64_t i = 0; i < w->nodes; i++) root[i] = root[i] > SMALL ? 1 / (REAL)sqrt(root[i]) : 0;
}

/* Adds what edges owe to degrees; `slope`, with respect to the roots, is changed to that with respect to the degrees. */
static void back_roots(const REAL *root, REAL *slope, const Degrees *d, const World *w) {
    for (int64_t i = 0; i < w->nodes; i++) slope[i] *= (REAL)-0.5 * root[i] * root[i] * root[i];
    for (int64_t e = 0; e < w->edges; e++) {
        REAL x = slope[d->node[w->edge + e]];
        w->weight_slope[e] += d->weight ? x * d->weight[w->edge + e] : x;
        if (d->loose) w->weight_slope[e] += slope[d->other[w->edge + e]] * d->loose[w->edge + e];
    }
}

/* What averaged messages are multiplied by, as torch divides by the number of all; `total` is the sum of their weights. */
static inline REAL share_of(const Messages *m, int64_t begin, int64_t end, const World *w, REAL *total) {
    *total = 0;
    for (int64_t j = begin; j < end && m->mean; j++) *total += edge_weight(w, m->edge[j]);
    return m->mean ? (REAL)(end - begin) / (*total < SMALL ? SMALL : *total) : 1;
}

static void weigh(REAL *weight, const Messages *m, const REAL *root, const World *w) {
    const int64_t *ptr = m->ptr + w->first;
    for (int64_t i = 0; i < w->nodes; i++) {
        REAL total, share = share_of(m, ptr[i], ptr[i + 1], w, &total);
        for (int64_t j = ptr[i]; j < ptr[i + 1]; j++) {
            REAL x = edge_weight(w, m->edge[j]) * share;
            if (root) x *= root[m->sender[j]] * root[i];
            weight[j - ptr[0]] = m->factor ? x * m->factor[j] : x;
        }
    }
}

static void back_weigh(const REAL *weight, const REAL *slope, const Messages *m, const REAL *root, REAL *root_slope,
                       const World *w) {
    const int64_t *ptr = m->ptr + w->first;
    for (int64_t i = 0; i < w->nodes; i++) {
        REAL total, share = share_of(m, ptr[i], ptr[i + 1], w, &total), of_total = 0, of_root = 0;
        for (int64_t j = ptr[i]; j < ptr[i + 1] && m->mean && total >= SMALL; j++)
            of_total -= slope[j - ptr[0]] * weight[j - ptr[0]] / total;
        for (int64_t j = ptr[i]; j < ptr[i + 1]; j++) {
            REAL x = slope[j - ptr[0]] * (m->factor ? share * m->factor[j] : share), other = 1;
            if (root) {
                REAL both = x * edge_weight(w, m->edge[j]);
                other = root[m->sender[j]];
                root_slope[m->sender[j]] += both * root[i];
                of_root += both * other;
                other *= root[i];
            }
            if (m->edge[j] >= 0) w->weight_slope[m->edge[j]] += x * other + of_total;
        }
        if (root) root_slope[i] += of_root;
    }
}

/* --- operations --------------------------------------------------------------------------------------------------------- */

/* Adds the bias, and activates. */
static void finish(REAL *x, int64_t rows, const Operation *op) {
    REAL slope = (REAL)op->slope;
    for (int64_t i = 0; i < rows && op->bias; i++)
        for (int64_t c = 0; c < op->width; c++) x[i * op->width + c] += op->bias[c];
    int64_t number = rows * op->width;
    if (op->activation == RELU)
        for (int64_t c = 0; c < number; c++) x[c] = x[c] < 0 ? 0 : x[c];
    if (op->activation == LEAKY)
        for (int64_t c = 0; c < number; c++) x[c] = x[c] < 0 ? x[c] * slope : x[c];
    if (op->activation == ELU)
        for (int64_t c = 0; c < number; c++) x[c] = x[c] > 0 ? x[c] : slope * (REAL)expm1(x[c]);
    if (op->activation == SIGMOID)
        for (int64_t c = 0; c < number; c++) x[c] = (REAL)(1 / (1 + exp(-(double)x[c])));
    if (op->activation == TANH)
        for (int64_t c = 0; c < number; c++) x[c] = (REAL)tanh(x[c]);
}

/* From the gradient with respect to what an activation gave, to that with respect to what it was given. */
static void back_finish(REAL *slope, const REAL *x, int64_t rows, const Operation *op) {
    int64_t number = rows * op->width;
    REAL low = (REAL)op->slope;
    if (op->activation == RELU)
        for (int64_t c = 0; c < number; c++) slope[c] = x[c] > 0 ? slope[c] : 0;
    if (op->activation == LEAKY)
        for (int64_t c = 0; c < number; c++) slope[c] *= x[c] > 0 ? 1 : low;
    if (op->activation == ELU)
        for (int64_t c = 0; c < number; c++) slope[c] *= x[c] > 0 ? 1 : x[c] + low;
    if (op->activation == SIGMOID)
        for (int64_t c = 0; c < number; c++) slope[c] *= x[c] * (1 - x[c]);
    if (op->activation == TANH)
        for (int64_t c = 0; c < number; c++) slope[c] *= 1 - x[c] * x[c];
}

/* Adds a product of matrices, [rows, inner] by [inner, width]. Some rows and columns at a time: their sums stay in registers. */
static void multiply(REAL *to, const REAL *from, const REAL *matrix, int64_t rows, int64_t inner, int64_t stride,
                     int64_t width) {
#define BLOCK(type, at, rows, columns)                                                                                \
    do {                                                                                                              \
        enum { STEP = sizeof(type) / sizeof(REAL), NUMBER = columns / STEP };                                         \
        type sum[rows][NUMBER];                                                                                       \
        for (int r = 0; r < rows; r++)                                                                                \
            for (int t = 0; t < NUMBER; t++) sum[r][t] = *at(to + r * width + c + t * STEP);                          \
        for (int64_t f = 0; f < inner; f++)                                                                           \
            for (int r = 0; r < rows; r++)                                                                            \
                for (int t = 0; t < NUMBER; t++)                                                                      \
                    sum[r][t] += from[r * stride + f] * *at(matrix + f * width + c + t * STEP);                       \
        for (int r = 0; r < rows; r++)                                                                                \
            for (int t = 0; t < NUMBER; t++) *at(to + r * width + c + t * STEP) = sum[r][t];                          \
    } while (0)
    int64_t i = 0;
    for (; i + 6 <= rows; i += 6, to += 6 * width, from += 6 * stride) {
        int64_t c = 0;
        for (; c + 4 * TILE <= width; c += 4 * TILE) BLOCK(wide, wide_at, 6, 4 * TILE);
        for (; c + 2 * TILE <= width; c += 2 * TILE) BLOCK(wide, wide_at, 6, 2 * TILE);
        if (c < width) BLOCK(tile, at, 6, TILE);
    }
    for (; i < rows; i++, to += width, from += stride)
        for (int64_t c = 0; c < width; c += TILE) BLOCK(tile, at, 1, TILE);
#undef BLOCK
}

/* What each node receives: the sum of its senders' rows times the weights of the messages. */
static void product(REAL *to, const REAL *from, const REAL *weight, const Messages *m, const World *w, int64_t rows,
                    int64_t width) {
    const int64_t *ptr = m->ptr + w->first;
    for (int64_t i = 0; i < rows; i++) {
        int64_t c = 0;
        for (; c + 2 * TILE <= width; c += 2 * TILE) {
            wide sum = {0};
            for (int64_t j = ptr[i]; j < ptr[i + 1]; j++) sum += weight[j - ptr[0]] * *wide_at(from + m->sender[j] * width + c);
            *wide_at(to + i * width + c) = sum;
        }
        if (c < width) {
            tile sum = {0};
            for (int64_t j = ptr[i]; j < ptr[i + 1]; j++) sum += weight[j - ptr[0]] * *at(from + m->sender[j] * width + c);
            *at(to + i * width + c) = sum;
        }
    }
}

static void back_product(const REAL *slope, const REAL *from, REAL *from_slope, const REAL *weight, REAL *weight_slope,
                         const Messages *m, const World *w, int64_t rows, int64_t width) {
    const int64_t *ptr = m->ptr + w->first;
    for (int64_t i = 0; i < rows; i++, slope += width)
        for (int64_t j = ptr[i]; j < ptr[i + 1]; j++) {
            int64_t sender = m->sender[j] * width;
            tile sum = {0};
            for (int64_t c = 0; c < width; c += TILE) {
                sum += *at(slope + c) * *at(from + sender + c);
                if (from_slope) *at(from_slope + sender + c) += weight[j - ptr[0]] * *at(slope + c);
            }
            weight_slope[j - ptr[0]] += sum_of(sum);
        }
}

/* Sums and products, element by element, of a value and another one times what is the same in all worlds. */
static void elementwise(REAL *to, const REAL *a, const REAL *b, int64_t start, int64_t rows, const Operation *op) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < op->width; c += TILE) {
            tile other = 1 - (tile){0}, x = *at(a + i * op->width + c);
            if (b) other = *at(b + i * op->width + c);
            if (op->shared) other *= *at(op->shared + (start + i) * op->width + c);
            if (op->row) other *= *at(op->row + c);
            *at(to + i * op->width + c) = op->code == TIMES ? x * other : x + other;
        }
}

static void back_elementwise(const REAL *slope, const REAL *a, REAL *a_slope, const REAL *b, REAL *b_slope, int64_t start,
                             int64_t rows, const Operation *op) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < op->width; c += TILE) {
            int64_t here = i * op->width + c;
            tile x = *at(slope + here), constant = 1 - (tile){0};
            if (op->shared) constant *= *at(op->shared + (start + i) * op->width + c);
            if (op->row) constant *= *at(op->row + c);
            if (op->code == SUM) {
                *at(a_slope + here) += x;
                if (b) *at(b_slope + here) += x * constant;
            } else if (b) {
                *at(a_slope + here) += x * constant * *at(b + here);
                *at(b_slope + here) += x * constant * *at(a + here);
            } else *at(a_slope + here) += x * constant;
        }
}

/* Features times the factors of their nodes; or, on the way back, the gradient with respect to the factors. */
static void features(REAL *x, const Pass *p, const World *w, int64_t rows, const Operation *op, int back) {
    for (int64_t i = 0; i < rows; i++, x += op->width) {
        int64_t own = p->place[w->first + i] * w->factors;
        const REAL *given = op->shared + (w->first + i) * op->width;
        for (int64_t c = 0; c < op->fan_in; c++) {
            int64_t factor = own + (w->factors > 1 ? c : 0);
            if (back) w->factor_slope[factor] += x[c] * given[c];
            else x[c] = given[c] * w->factor[factor];
        }
    }
}

static void add_rows(REAL *to, int64_t to_stride, const REAL *from, int64_t stride, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < columns; c++) to[i * to_stride + c] += from[i * stride + c];
}

static void run(const Pass *p, const Work *k, const World *w, const Operation *op) {
    int64_t rows = rows_of(p, op, w->g), width = op->width;
    REAL *to = k->value[op->target];
    const REAL *from = op->source < 0 ? 0 : k->value[op->source], *other = op->other < 0 ? 0 : k->value[op->other];
    if (op->code == LINEAR || op->code == POOL) memset(to, 0, rows * width * sizeof(REAL));
    if (op->code == PRODUCT)
        product(to, op->shared ? op->shared + w->first * width : from, k->weight[op->messages], p->messages + op->messages, w,
                rows, width);
    else if (op->code == LINEAR) multiply(to, from, op->row, rows, op->fan_in, op->stride, width);
    else if (op->code == POOL) add_rows(to, 0, from, width, w->nodes, width);
    else if (op->code == JOIN)
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + i * width + op->messages, from + i * op->stride, op->fan_in * sizeof(REAL));
    else if (op->code == FEATURES) features(to, p, w, rows, op, 0);
    else elementwise(to, from, other, op->level < 0 ? w->g : w->first, rows, op);
    finish(to, rows, op);
}

static void back(const Pass *p, const Work *k, const World *w, const Operation *op) {
    int64_t rows = rows_of(p, op, w->g), width = op->width;
    REAL *slope = k->value_slope[op->target];
    const REAL *from = op->source < 0 ? 0 : k->value[op->source], *other = op->other < 0 ? 0 : k->value[op->other];
    REAL *from_slope = op->source < 0 ? 0 : k->value_slope[op->source];
    back_finish(slope, k->value[op->target], rows, op);
    if (op->code == PRODUCT)
        back_product(slope, op->shared ? op->shared + w->first * width : from, op->shared ? 0 : from_slope,
                     k->weight[op->messages], k->weight_slope[op->messages], p->messages + op->messages, w, rows, width);
    else if (op->code == LINEAR) multiply(from_slope, slope, k->turned[op - p->operations], rows, width, width, op->stride);
    else if (op->code == POOL) add_rows(from_slope, width, slope, 0, w->nodes, width);
    else if (op->code == JOIN) add_rows(from_slope, op->stride, slope + op->messages, width, rows, op->fan_in);
    else if (op->code == FEATURES) features(slope, p, w, rows, op, 1);
    else
        back_elementwise(slope, from, from_slope, other, op->other < 0 ? 0 : k->value_slope[op->other],
                         op->level < 0 ? w->g : w->first, rows, op);
}

/* --- passes ------------------------------------------------------------------------------------------------------------- */

static void run_forward(const Pass *p, const Work *k, const World *w) {
    for (int64_t r = 0; r < p->num_degrees; r++) find_roots(k->root[r], p->degrees + r, w);
    for (int64_t r = 0; r < p->num_messages; r++) {
        const Messages *m = p->messages + r;
        weigh(k->weight[r], m, m->degrees < 0 ? 0 : k->root[m->degrees], w);
    }
    for (int64_t o = 0; o < p->num_operations; o++) run(p, k, w, p->operations + o);
}

/* Log-odds of a class; on the way back, adds their gradient to that of the scores. */
static REAL odds_of(const REAL *score, int64_t target, int64_t classes, REAL *slope) {
    const REAL most = 1e4;
    REAL largest = -INFINITY, sum = 0;
    for (int64_t c = 0; c < classes; c++)
        if (c != target && !(score[c] <= largest)) largest = score[c];
    for (int64_t c = 0; c < classes; c++)
        if (c != target) sum += (REAL)exp(score[c] - largest);
    REAL odds = score[target] - largest - (REAL)log(sum);
    if (odds > most || odds < -most) return odds > most ? most : -most;
    for (int64_t c = 0; c < classes && slope; c++) slope[c] += c == target ? 1 : -(REAL)exp(score[c] - largest) / sum;
    return odds;
}

/* Copies the explained rows of the last value, or log-odds, to the output; on the way back, adds gradients to theirs. */
static void explained(const Pass *p, const Work *k, const World *w, int back) {
    const Operation *end = p->operations + p->num_operations - 1;
    int64_t begin = p->row_ptr[w->g], rows = p->row_ptr[w->g + 1] - begin;
    REAL *output = w->output;
    for (int64_t r = 0; r < rows; r++, output += w->target ? 1 : p->outputs) {
        int64_t row = (p->row ? p->row[begin + r] : 0) * end->width;
        REAL *value = k->value[end->target] + row, *slope = k->value_slope[end->target] + row;
        if (w->target) *output = odds_of(value, w->target[r], p->outputs, back ? slope : 0);
        else if (back) add_rows(slope, 0, output, 0, 1, p->outputs);
        else memcpy(output, value, p->outputs * sizeof(REAL));
    }
}

static inline int64_t messages_of(const Messages *m, int64_t first, int64_t nodes) { return m->ptr[first + nodes] - m->ptr[first]; }

static void run_back(const Pass *p, const Work *k, const World *w) {
    for (int64_t o = 0; o < p->num_operations; o++) {
        const Operation *op = p->operations + o;
        memset(k->value_slope[op->target], 0, rows_of(p, op, w->g) * op->width * sizeof(REAL));
    }
    for (int64_t r = 0; r < p->num_messages; r++)
        memset(k->weight_slope[r], 0, messages_of(p->messages + r, w->first, w->nodes) * sizeof(REAL));
    for (int64_t r = 0; r < p->num_degrees; r++) memset(k->root_slope[r], 0, w->nodes * sizeof(REAL));
    explained(p, k, w, 1);
    for (int64_t o = p->num_operations; o-- > 0;) back(p, k, w, p->operations + o);
    for (int64_t r = 0; r < p->num_messages && w->weight_slope; r++) {
        const Messages *m = p->messages + r;
        REAL *root = m->degrees < 0 ? 0 : k->root[m->degrees], *root_slope = m->degrees < 0 ? 0 : k->root_slope[m->degrees];
        back_weigh(k->weight[r], k->weight_slope[r], m, root, root_slope, w);
    }
    for (int64_t r = 0; r < p->num_degrees && w->weight_slope; r++) back_roots(k->root[r], k->root_slope[r], p->degrees + r, w);
}

static World find_world(const Pass *p, const Weighed *q, int64_t copy, int64_t world) {
    int64_t g = q->instance[copy], first = p->node_ptr[g], edge = p->edge_ptr[g];
    int64_t its_edge = world * q->edges + q->edge_first[copy], its_node = (world * q->nodes + q->node_first[copy]) * q->factors;
    return (World){
        .g = g, .first = first, .nodes = p->node_ptr[g + 1] - first, .edge = edge, .edges = p->edge_ptr[g + 1] - edge,
        .weight = q->edge ? q->edge + its_edge : 0, .factor = q->node ? q->node + its_node : 0,
        .weight_slope = q->edge_slope ? q->edge_slope + its_edge : 0,
        .factor_slope = q->node_slope ? q->node_slope + its_node : 0,
        .output = q->output + (world * q->rows + q->row_first[copy]) * (q->target ? 1 : p->outputs),
        .target = q->target ? q->target + q->row_first[copy] : 0,
        .outside = q->outside[world], .factors = q->factors,
    };
}

/* Lays out the memory, and returns how much is needed; `memory` is null to find that out. */
static int64_t lay_out(const Pass *p, const Weighed *q, const Work *k, REAL *memory) {
    int64_t nodes = 1, used = 0;
#define PUT(place, size) ((place) = memory + used, used += ((size) + 15) / 16 * 16)
    for (int64_t s = 0; s < q->number; s++) {
        int64_t number = p->node_ptr[q->instance[s] + 1] - p->node_ptr[q->instance[s]];
        if (number > nodes) nodes = number;
    }
    for (int64_t o = 0; o < p->num_operations; o++) {
        const Operation *op = p->operations + o;
        int64_t size = (op->level < 0 ? 1 : nodes) * op->width;
        if (o && op->target == op[-1].target) continue; /* the next part that is joined */
        PUT(k->value[op->target], size), PUT(k->value_slope[op->target], size);
    }
    for (int64_t o = 0; o < p->num_operations; o++)
        if (p->operations[o].code == LINEAR) PUT(k->turned[o], p->operations[o].width * p->operations[o].stride);
    for (int64_t r = 0; r < p->num_messages; r++) {
        int64_t most = 1;
        for (int64_t s = 0; s < q->number; s++) {
            int64_t first = p->node_ptr[q->instance[s]], number = p->node_ptr[q->instance[s] + 1] - first;
            int64_t found = messages_of(p->messages + r, first, number);
            if (found > most) most = found;
        }
        PUT(k->weight[r], most), PUT(k->weight_slope[r], most);
    }
    for (int64_t r = 0; r < p->num_degrees; r++) PUT(k->root[r], nodes), PUT(k->root_slope[r], nodes);
#undef PUT
    return used;
}

static void turn(const Pass *p, const Work *k) {
    for (int64_t o = 0; o < p->num_operations; o++) {
        const Operation *op = p->operations + o;
        for (int64_t f = 0; f < op->fan_in && op->code == LINEAR; f++)
            for (int64_t c = 0; c < op->width; c++) k->turned[o][c * op->stride + f] = op->row[f * op->width + c];
    }
}

/* Answers what is asked. Returns 0, or 1 if there is not enough memory. */
int64_t run_weighed(const Pass *p, const Weighed *q) {
    int64_t o = p->num_operations, m = p->num_messages, d = p->num_degrees;
    REAL **rows = calloc(3 * o + 2 * m + 2 * d + 1, sizeof(REAL *)), *memory = 0;
    if (rows) {
        Work k = {rows, rows + o, rows + 2 * o, rows + 2 * o + m, rows + 2 * (o + m), rows + 2 * (o + m) + d,
                  rows + 2 * (o + m + d)};
        memory = calloc(lay_out(p, q, &k, 0), sizeof(REAL));
        if (memory) {
            lay_out(p, q, &k, memory);
            if (q->back) turn(p, &k);
            for (int64_t s = 0; s < q->number; s++)
                for (int64_t world = 0; world < q->worlds; world++) {
                    World w = find_world(p, q, s, world);
                    run_forward(p, &k, &w);
                    if (q->back) run_back(p, &k, &w);
                    else explained(p, &k, &w, 0);
                }
        }
    }
    free(memory), free(rows);
    return !memory;
}

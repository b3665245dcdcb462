/* What Python tells the kernel of a recorded network and of a batch of instances. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

#define TILE 8 /* widths of values are multiples of this */

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
    int64_t chained;                     /* whether only the next operation uses the target, and is run together with this
                                          * one: LINEAR after LINEAR, or SUM of what PRODUCT gives and something else */
    int64_t compared;                    /* whether it must be known where rows of the target are the same */
    int64_t packed;                      /* LINEAR: whether rows that are the same are computed once */
    int64_t by_message;                  /* whether the target has rows for these messages */
    int64_t activation;
    double slope;                        /* of LEAKY and ELU */
    double least;                        /* what is added to variances (LAYER_NORM); least length (UNIT) */
    const REAL *shared;                  /* [N, width] in place of source (PRODUCT, FEATURES, and LINEAR where features are kept
                                          * or not as a whole) or other; null if there is none */
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

/* Which flips to make together, as nseg.search.additive says it. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define DIRECTIONS 4
#define ROUNDED(x) ((REAL)nearbyint((x) * (REAL)1e4) / (REAL)1e4)

static const REAL GAIN[DIRECTIONS] = {0, 1, 3, 1}, LOSS[DIRECTIONS] = {0, 1, 1, 3}; /* the first is by single merits */

/* Orders flips from the highest score on, of equals the first one first. */
static void order_flips(int64_t *order, REAL *score, int64_t number) {
    for (int64_t i = 0; i < number; i++) {
        REAL own = score[i];
        int64_t at = i;
        for (; at > 0 && score[at - 1] < own; at--) score[at] = score[at - 1], order[at] = order[at - 1];
        score[at] = own, order[at] = i;
    }
}

/* The merit after the first flips of an order, for all numbers of flips. */
static void add_up(REAL *merit, const int64_t *order, const REAL *odds, const REAL *change, const REAL *split, int64_t number,
                   int64_t worlds, int64_t instances) {
    for (int64_t w = 0; w < worlds; w++) {
        REAL sum = 0;
        for (int64_t i = 0; i < number; i++) {
            sum += change[(order[i] * worlds + w) * instances];
            REAL p = 1 / (1 + (REAL)exp(-(odds[w * instances] + sum)));
            merit[i] = w ? merit[i] - split[w - 1] * p : p;
        }
    }
}

/* Sets of flips that should be the best of 2, 3 to 4, 5 to 8, ... flips, [sets, flips, instances], which are 0 before.
 *
 * odds [worlds, instances], change [flips, worlds, instances], count [instances] flips of each, single [flips, instances] merit
 * after each flip alone, split [worlds - 1]. Returns 1 if there is not enough memory. */
int64_t choose_flips(const REAL *odds, const REAL *change, const int64_t *count, const REAL *single, const REAL *split,
                     int64_t flips, int64_t worlds, int64_t instances, uint8_t *sets) {
    int64_t *order = malloc(DIRECTIONS * flips * sizeof(int64_t) + 1);
    REAL *merit = malloc(DIRECTIONS * flips * sizeof(REAL) + 1), *score = malloc(flips * sizeof(REAL) + 1);
    int failed = !order || !merit || !score;
    for (int64_t b = 0; b < instances && !failed; b++) {
        for (int64_t d = 0; d < DIRECTIONS; d++) {
            for (int64_t i = 0; i < count[b]; i++) {
                const REAL *own = change + i * worlds * instances + b;
                REAL loss = 0;
                for (int64_t w = 1; w < worlds; w++) loss += own[w * instances] * split[w - 1];
                score[i] = ROUNDED(d ? GAIN[d] * *own - LOSS[d] * loss : single[i * instances + b]);
            }
            order_flips(order + d * flips, score, count[b]);
            add_up(merit + d * flips, order + d * flips, odds + b, change + b, split, count[b], worlds, instances);
        }
        uint8_t *set = sets + b;
        for (int64_t first = 1; first < count[b]; first *= 2, set += flips * instances) {
            int64_t best = first, last = 2 * first < count[b] ? 2 * first : count[b];
            for (int64_t d = 0; d < DIRECTIONS; d++)
                for (int64_t i = first; i < last; i++)
                    if (ROUNDED(merit[d * flips + i]) > ROUNDED(merit[best])) best = d * flips + i;
            for (int64_t i = best - best % flips; i <= best; i++) set[order[i] * instances] = 1;
        }
    }
    free(order), free(merit), free(score);
    return failed;
}

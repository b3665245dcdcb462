/* What subsets of each instance were answered before: a search asks for many of them again. Only the latest ones are kept.
 * Included by passes.c. */
enum { WAYS = 4 };

typedef struct {
    int64_t sets;           /* of each instance, of WAYS subsets each; a power of two */
    int64_t words;          /* that a subset may have: one bit per element, edges and nodes each in whole words */
    int64_t numbers;        /* that an answer may have */
    int64_t turn;           /* says which subset of a full set is replaced next */
    uint64_t *key;          /* [B, sets, WAYS] hash of each subset; 0 if there is none */
    uint64_t *subset;       /* [B, sets, WAYS, words] */
    REAL *answer;           /* [B, sets, WAYS, numbers] */
    int64_t *count;         /* [B, 2] elements of an instance among edges and nodes */
    int32_t *edge, *node;   /* [E] and [N, factors] element of each edge and factor, counted from the instance's first one */
} Known;

static inline int64_t words_of(int64_t elements) { return (elements + 63) / 64; }

/* Packs elements, of which each has a byte that is 0 or 1, into bits. */
static void pack_bits(uint64_t *to, const uint8_t *kept, int64_t number) {
    for (int64_t i = 0; i < number; i += 64, to++) {
        *to = 0;
        for (int64_t j = i; j < number && j < i + 64; j += 8) {
            uint64_t bytes = 0;
            if (number - j >= 8) memcpy(&bytes, kept + j, 8);
            else for (int64_t k = j; k < number; k++) bytes |= (uint64_t)kept[k] << 8 * (k - j);
            *to |= (bytes * 0x0102040810204080u) >> 56 << (j - i);
        }
    }
}

/* A hash that is not 0. */
static uint64_t hash(const uint64_t *words, int64_t number) {
    uint64_t found = 1;
    for (int64_t w = 0; w < number; w++) {
        found = (found ^ words[w]) * 0x9E3779B97F4A7C15u;
        found ^= found >> 29;
    }
    return found | 1;
}

/* Whether elements mean what they meant before; notes what they mean now. */
static int same_elements(int32_t *known, const int64_t *element, int64_t number, int64_t first) {
    int64_t differ = 0;
    for (int64_t i = 0; i < number; i++) {
        differ |= known[i] ^ (element[i] - first);
        known[i] = (int32_t)(element[i] - first);
    }
    return !differ;
}

/* Where the subsets of a hash are kept. */
static inline int64_t set_of(const Known *known, int64_t g, uint64_t key) {
    return (g * known->sets + (int64_t)(key >> 33 & (uint64_t)(known->sets - 1))) * WAYS;
}

static void forget(Known *known, int64_t g) {
    memset(known->key + g * known->sets * WAYS, 0, known->sets * WAYS * sizeof(uint64_t));
}

/* The answer for a subset of an instance; null if it is not known. */
static const REAL *find_answer(const Known *known, int64_t g, uint64_t key, const uint64_t *subset, int64_t words) {
    for (int64_t at = set_of(known, g, key), end = at + WAYS; at < end; at++)
        if (known->key[at] == key && !memcmp(known->subset + at * known->words, subset, words * sizeof(uint64_t)))
            return known->answer + at * known->numbers;
    return 0;
}

/* Memory for the answer for a subset, which is not known. */
static REAL *add_answer(Known *known, int64_t g, uint64_t key, const uint64_t *subset, int64_t words) {
    int64_t first = set_of(known, g, key), at = first;
    while (at < first + WAYS && known->key[at]) at++;
    if (at == first + WAYS) at = first + known->turn++ % WAYS;
    known->key[at] = key;
    memcpy(known->subset + at * known->words, subset, words * sizeof(uint64_t));
    return known->answer + at * known->numbers;
}

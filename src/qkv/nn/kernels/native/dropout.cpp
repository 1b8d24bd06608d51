// Dropout whose mask is a function of a seed and the place of each number, so nothing is stored for the backward pass.
#include "structures.h"
#include "threefry.h"
#include "vectors.h"

namespace {

constexpr long CHUNK = 64;  // numbers of a token that share a vector of counters

inline Floats as_floats(Words bits) {
    Floats x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline Words as_words(Floats x) {
    Words bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

// fp32 and bf16 in memory.
struct Single {
    float x;
    static Floats read(const Single* from) { return load(&from->x); }
    static void write(Single* to, Floats v) { store(&to->x, v); }
};

struct Brain {
    uint16_t x;
    using Halves = uint16_t __attribute__((vector_size(32)));
    static Floats read(const Brain* from) {
        Halves half;
        std::memcpy(&half, from, sizeof half);
        return as_floats(__builtin_convertvector(half, Words) << 16);
    }
    static void write(Brain* to, Floats v) {  // rounded to the nearest, ties to even; NaN stays NaN
        const Words bits = as_words(v), rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
        const Words kept = v == v ? rounded : bits >> 16 | 0x40u;
        const Halves half = __builtin_convertvector(kept, Halves);
        std::memcpy(to, &half, sizeof half);
    }
};

struct Sizes {
    long rows, tokens, width, row;  // `row` is the first row's number in the batch
    long channel, part;             // the first channel's number, a multiple of CHUNK, and the number of a part of the tokens
    const int32_t *document, *token;  // (rows, tokens): each token's document and its number there; or null: row and index
    uint32_t seed_low, seed_high, dropped;  // `dropped` of 65536 numbers are
    int threads;
};

// One vector: added + x / (1 - p) where it is kept.
template <typename In, typename Out>
inline void thinned(const In* x, const Out* added, Out* out, Words bits, uint32_t dropped, float grown) {
    const Floats y = bits >= dropped ? In::read(x) * grown : Floats{};
    Out::write(out, added ? Out::read(added) + y : y);
}

template <typename In, typename Out>
void token(const In* x, const Out* added, Out* out, Key key, uint32_t number, const Sizes& s, float grown) {
    for (long chunk = 0; chunk < s.width; chunk += CHUNK) {
        const Draws draws(key, number - Words{}, counted((s.channel + chunk) / 4));
        for (int i = 0; i < 4; ++i) {
            const long at = chunk + i * LANES, left = s.width - at;
            if (left >= LANES) {
                thinned(x + at, added ? added + at : nullptr, out + at, draws.at(i), s.dropped, grown);
            } else if (left > 0) {
                In own[LANES] = {};
                Out sums[2][LANES] = {};
                std::memcpy(own, x + at, left * sizeof(In));
                if (added) std::memcpy(sums[0], added + at, left * sizeof(Out));
                thinned(own, added ? sums[0] : nullptr, sums[1], draws.at(i), s.dropped, grown);
                std::memcpy(out + at, sums[1], left * sizeof(Out));
            }
        }
    }
}

template <typename In, typename Out>
void all_tokens(const void* x, const void* added, void* out, const Sizes& s) {
    const float grown = 65536.0f / (65536 - s.dropped);
    const Key key = {s.seed_low, s.seed_high};
    const long count = s.rows * s.tokens;
#pragma omp parallel for num_threads(s.threads)
    for (long i = 0; i < count; ++i) {
        const long at = i * s.width, document = s.document ? s.document[i] : s.row + i / s.tokens;
        token(static_cast<const In*>(x) + at, added ? static_cast<const Out*>(added) + at : nullptr, static_cast<Out*>(out) + at,
              derived(key, document, s.part), s.token ? s.token[i] : i % s.tokens, s, grown);
    }
}

// Where the weights are whose mask is computed, in the arguments of `qkv_kept`.
struct Kept {
    long batch, heads, queries, keys, row, query, key, head;  // counts, and the first numbers
    const int32_t *document, *token, *key_token;  // (batch, queries), (batch, queries) and (batch, keys), or null
    uint32_t seed_low, seed_high, dropped;
    int threads;
};

// Which weights of a query are kept, for keys with consecutive numbers from `first` on.
void kept_run(uint8_t* out, Key key, uint32_t query, long first, long count, uint32_t dropped) {
    for (long four = first / 4; four * 4 < first + count; four += LANES) {
        const Draws draws(key, query - Words{}, counted(four));
        for (int t = 0; t < 4; ++t) {
            const Words bits = draws.at(t);
            for (long lane = 0; lane < LANES; ++lane) {
                const long j = (four + lane) * 4 + t - first;
                if (j >= 0 && j < count) out[j] = bits[lane] >= dropped;
            }
        }
    }
}

}  // namespace

QKV_STRUCTURE(Sizes, QKV_FIELD(rows), QKV_FIELD(tokens), QKV_FIELD(width), QKV_FIELD(row), QKV_FIELD(channel), QKV_FIELD(part),
              QKV_FIELD(document), QKV_FIELD(token), QKV_FIELD(seed_low), QKV_FIELD(seed_high), QKV_FIELD(dropped),
              QKV_FIELD(threads))
QKV_STRUCTURE(Kept, QKV_FIELD(batch), QKV_FIELD(heads), QKV_FIELD(queries), QKV_FIELD(keys), QKV_FIELD(row), QKV_FIELD(query),
              QKV_FIELD(key), QKV_FIELD(head), QKV_FIELD(document), QKV_FIELD(token), QKV_FIELD(key_token), QKV_FIELD(seed_low),
              QKV_FIELD(seed_high), QKV_FIELD(dropped), QKV_FIELD(threads))

extern "C" {

// out = added + dropout(x) of (rows, tokens, width), contiguous; `added` may be null. x is fp32 or bf16, and so are both others.
void qkv_dropout(const void* x, const void* added, void* out, const Sizes* s, int brain_in, int brain_out) {
    const auto run = brain_in ? (brain_out ? all_tokens<Brain, Brain> : all_tokens<Brain, Single>)
                              : (brain_out ? all_tokens<Single, Brain> : all_tokens<Single, Single>);
    run(x, added, out, *s);
}

// Which weights of (batch, heads, queries, keys) are kept.
void qkv_kept(uint8_t* out, const Kept* k) {
    const long pairs = k->batch * k->heads;
#pragma omp parallel for collapse(2) num_threads(k->threads)
    for (long pair = 0; pair < pairs; ++pair)
        for (long i = 0; i < k->queries; ++i) {
            const long b = pair / k->heads, at = b * k->queries + i;
            const Key key = derived({k->seed_low, k->seed_high}, k->document ? k->document[at] : k->row + b,
                                    k->head + pair % k->heads);
            const uint32_t query = k->token ? k->token[at] : k->query + i;
            uint8_t* row = out + (pair * k->queries + i) * k->keys;
            const int32_t* numbers = k->key_token ? k->key_token + b * k->keys : nullptr;
            for (long j = 0, end; j < k->keys; j = end) {
                for (end = numbers ? j + 1 : k->keys; end < k->keys && numbers[end] == numbers[end - 1] + 1;) ++end;
                kept_run(row + j, key, query, numbers ? numbers[j] : k->key, end - j, k->dropped);
            }
        }
}
}

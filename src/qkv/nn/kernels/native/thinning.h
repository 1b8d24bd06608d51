// Which weights of attention dropout keeps, sixteen queries at a time.
#pragma once
#include "threefry.h"
#include "vectors.h"

namespace {

// The numbers of a row's tokens, if they are not 0, 1, 2, ...: each query's document and number there, and each key's number.
struct Numbered {
    const int32_t *document, *token, *key_token;  // each may be null
    long queries, keys;

    bool any() const { return document || token || key_token; }
    uint32_t key(long j) const { return key_token && j < keys ? key_token[j] : j; }

    Words lanes(const int32_t* numbers, long from) const {
        Words lanes;
        for (long i = 0; i < LANES; ++i) lanes[i] = from + i < queries ? numbers[from + i] : 0;
        return lanes;
    }
};

// The weights of one row and head that dropout keeps, from bits of its key, a query and four keys.
struct Thinning {
    Key seed, key;
    long head;
    uint32_t dropped;
    float grown;
    Numbered numbered;

    Thinning(Key seed, long row, long head, uint32_t dropped, Numbered numbered)
        : seed(seed), key(derived(seed, row, head)), head(head), dropped(dropped), grown(65536.0f / (65536 - dropped)),
          numbered(numbered) {}

    // Call each(offset in the block, whether sixteen weights are kept) for all weights of a part of a block.
    template <long SIDE, typename Part, typename Each>
    inline void over(Part p, long query, long first, Each each) const {
        if (numbered.any()) return over_numbered<SIDE>(p, query, first, each);
        for (long n = p.from; n < p.to; n += LANES)
            for (long j = p.start; j < p.stop; j += 4) {
                const Draws draws(key, counted(query + n), static_cast<uint32_t>((first + j) / 4) - Words{});
                for (int t = 0; t < 4 && j + t < p.stop; ++t) each((j + t) * SIDE + n, draws.at(t) >= dropped);
            }
    }

    // The same by the numbers of tokens. What queries and keys of two documents get does not matter: such pairs are masked.
    template <long SIDE, typename Part, typename Each>
    inline void over_numbered(Part p, long query, long first, Each each) const {
        for (long n = p.from; n < p.to; n += LANES) {
            const Keys own = numbered.document ? derived(seed, numbered.lanes(numbered.document, query + n), head)
                                               : Keys{key.low - Words{}, key.high - Words{}};
            const Words number = numbered.token ? numbered.lanes(numbered.token, query + n) : counted(query + n);
            for (long j = p.start; j < p.stop;) {
                const uint32_t four = numbered.key(first + j) / 4;
                const Draws draws(own, number, four - Words{});
                for (; j < p.stop && numbered.key(first + j) / 4 == four; ++j)
                    each(j * SIDE + n, draws.at(numbered.key(first + j) % 4) >= dropped);
            }
        }
    }
};

}  // namespace

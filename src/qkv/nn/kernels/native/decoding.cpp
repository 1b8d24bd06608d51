// Decoding on CPUs: attention of few queries, and a step of all layers of a decoder in one call.
//
// A step computes, for a few rows of tokens, what the modules of the layers compute, in fp32 whatever the weights: norms,
// products by `qkv_products` (products.cpp), rotary positions, new keys and values in their caches, attention and activations.
#include "coded_queries.h"
#include "mixtures.h"
#include "ranking.h"
#include "row_selection.h"

namespace {

class Run : Mixtures {
public:
    explicit Run(const Step& step) : Mixtures(step, step.rows, step.rows * step.scratch), mixed(rest(step.rows)) {}

    void layer(const Layer& l, float* x) {
        if (l.parallel) return at_once(l, x);
        for (int which = 0; which < SUBLAYERS; ++which)
            if (l.has[which]) {
                const float* y = input(l, which, x, x);
                if (mixes(l, which))
                    sum(l, which, mixture(l, which, y), x);
                else
                    end(l, which, last(l, which), before(l, which, y), x);
            }
    }

private:
    float* mixed;

    // x + attention(norm(x)) + feedforward(norm(x)): without a norm of its own, a sublayer takes the input of the one before.
    void at_once(const Layer& l, float* x) {
        const float* y = x;
        for (long i = 0; i < rows * s.width; ++i) total[i] = l.adds ? x[i] : 0.0f;
        for (int which = 0; which < SUBLAYERS; ++which) {
            if (!l.has[which]) continue;
            y = input(l, which, x, y);
            const float* found = mixes(l, which) ? mixture(l, which, y) : branch(l, which, last(l, which), before(l, which, y));
            for (long i = 0; i < rows * s.width; ++i) total[i] += found[i];
        }
        std::memcpy(x, total, rows * s.width * sizeof(float));
    }

    static bool mixes(const Layer& l, int which) { return which == FEED_FORWARD && l.mixture; }

    const float* mixture(const Layer& l, int which, const float* y) {
        mix(*l.mixture, y, added);
        return after(l, which);
    }

    static const Product& last(const Layer& l, int which) { return which == OWN ? l.out : which == CROSS ? l.cross_out : l.down; }

    // What the last product of a sublayer is of.
    const float* before(const Layer& l, int which, const float* y) {
        if (which == OWN) return attention(l, y);
        if (which == CROSS) return cross(l, y);
        expand(l, y);
        return wide;
    }

    const float* attention(const Layer& l, const float* y) {
        Attention a = l.own;
        const long queries = a.heads * a.width, keys = a.kv_heads * a.width, row = l.qkv.outs;
        product(l.qkv, y, wide);
        const int shared = threads();
#pragma omp parallel for num_threads(shared) if (shared > 1 && rows * row > MANY)
        for (long r = 0; r < rows; ++r) {
            const long b = r / a.queries, t = r % a.queries;
            float *q = wide + r * row, *k = q + queries, *v = k + keys;
            arrange(l, q, k, b, t);
            a.half_keys ? keep<uint16_t>(a, l, k, v, b, t) : keep<float>(a, l, k, v, b, t);
        }
        a.q = {a.queries * row, row, a.width};
        if (l.codes) return attend_quantized(a, l);
        return l.apart ? attend_apart(a, l.apart, l.apart_step) : attend_rows(a, l.k, l.v);
    }

    const float* cross(const Layer& l, const float* y) {
        Attention a = l.cross;
        product(l.cross_q, y, wide);
        a.q = {a.queries * l.cross_q.outs, l.cross_q.outs, a.width};
        return l.cross_apart ? attend_apart(a, l.cross_apart, l.apart_step) : attend_rows(a, l.cross_k, l.cross_v);
    }

    // Rows that keep their keys and values in different places: a thread for each row, or several rows' threads one after another.
    const float* attend_apart(Attention& a, const CacheRow* places, long step) {
        const long row = a.heads * a.values, size = a.half_keys ? 2 : 4;
        long keys = 0;
        for (long b = 0; b < rows; ++b) keys += places[b * step].keys;
        const long bytes = keys * a.kv_heads * (a.width + a.values) * size;
        const int shared = static_cast<int>(std::max(1L, std::min<long>(threads(), bytes / SMALL)));
        const bool is_shared = rows >= shared;
        a.batch = 1;
        a.out = {row, row, a.values};
#pragma omp parallel for schedule(dynamic, 1) num_threads(shared) if (is_shared && shared > 1)
        for (long b = 0; b < rows; ++b) {
            const CacheRow& own = places[b * step];
            Attention one = a;
            one.keys = own.keys;
            one.k.head = own.k_head;
            one.v.head = own.v_head;
            one.threads = is_shared ? 1 : shared;
            if (a.bias) one.bias = a.bias + b * a.bias_steps[0];
            attend_any(one, wide + b * a.q.row, own.k, own.v, mixed + b * row);
        }
        return mixed;
    }

    // Keys and values of which most are codes (coded_queries.h).
    const float* attend_quantized(Attention& a, const Layer& l) {
        const long row = a.heads * a.values;
        a.out = {a.queries * row, row, a.values};
        a.threads = threads();
        attend_coded(a, *l.codes, wide, l.k, l.v, mixed);
        return mixed;
    }

    const float* attend_rows(Attention& a, const void* k, const void* v) {
        const long row = a.heads * a.values;
        a.out = {a.queries * row, row, a.values};
        a.threads = threads();
        attend_any(a, wide, k, v, mixed);
        return mixed;
    }
};

}  // namespace

extern "C" {

void qkv_attend(const void* q, const void* k, const void* v, void* out, const Attention* a) { attend_any(*a, q, k, v, out); }

// Logits (rows, vocab): normalizers (rows), and best (rows, chunks).
void qkv_rank(const float* logits, const long* sizes, const long* forbidden, float* normalizers, float* best) {
    const long rows = sizes[0], vocab = sizes[1], chunk = sizes[2], count = sizes[3], threads = sizes[4];
    const long chunks = (vocab + chunk - 1) / chunk;
#pragma omp parallel for num_threads(static_cast<int>(threads)) if (threads > 1)
    for (long r = 0; r < rows; ++r)
        normalizers[r] = ranked(logits + r * vocab, vocab, chunk, forbidden, count, best + r * chunks);
}

// The used part of a buffer of so many rows and heads: row r becomes the old row from[r].
void qkv_select_rows(char* buffer, const long* from, long rows, long heads, const Parts* parts, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows * heads * parts->used > HELD)
    for (long h = 0; h < heads; ++h) select_rows(buffer + h * parts->head, from, rows, *parts);
}

// x (rows, width), in place: the embedded tokens become what the stack gives.
void qkv_step(float* x, const Step* step) {
    Run run(*step);
    for (long i = 0; i < step->count; ++i) run.layer(step->layers[i], x);
    normalized(step->norm, x, x, step->rows, step->width, step->width);
}
}

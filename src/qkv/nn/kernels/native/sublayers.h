// Products, norms and sums of a layer's sublayers, for some rows of tokens.
#pragma once
#include <vector>

#include "layers.h"
#include "products.h"

namespace {

class Sublayers {
protected:
    const Step& s;
    long rows;  // that are computed now
    float *normed, *added, *total, *wide;

    // Room for `most` rows at a time, and for `more` numbers.
    Sublayers(const Step& step, long most, long more) : s(step), rows(most) {
        const long each = in_lines(most * s.width);
        normed = room(held, 3 * each + in_lines(most * s.scratch) + more);
        added = normed + each;
        total = added + each;
        wide = total + each;
    }

    float* rest(long most) { return wide + in_lines(most * s.scratch); }

    int threads() { return s.available(s.threads); }

    ProductSizes sizes_of(const Product& p) {
        return {p.count, rows, p.depth, p.group, p.kind, 0, p.integer, s.threads, IDENTITY, 0, s.order};
    }

    void product(const Product& p, const float* x, float* y) {
        const ProductSizes sizes = sizes_of(p);
        s.products(x, y, p.weights, &sizes);
        adapt(p, x, y);
    }

    // y += scale · B A x for the matrices of a product that have adapters.
    void adapt(const Product& p, const float* x, float* y) {
        if (!p.adapters) return;
        const Adapters& all = *p.adapters;
        float* low = room(narrow, rows * all.down.outs);
        product(all.down, x, low);
        const int shared = threads();
        for (const Adapter* a = all.each; a != all.each + all.count; ++a) {
#pragma omp parallel for num_threads(shared) if (shared > 1 && rows * a->outs * a->rank > SHARED_OUT)
            for (long i = 0; i < rows * a->outs; ++i) {
                const long r = i / a->outs, out = i % a->outs;
                const float* own = low + r * all.down.outs + a->from;
                const float sum = a->half ? along<uint16_t>(a->b, out, a->rank, own) : along<float>(a->b, out, a->rank, own);
                y[r * p.outs + a->first + out] += a->scale * sum;
            }
        }
    }

    // The input of a sublayer: normalized, or without a norm `otherwise`.
    const float* input(const Layer& l, int which, const float* x, const float* otherwise) {
        if (l.before[which].kind == NO_NORM) return otherwise;
        normalized(l.before[which], x, normed, rows, s.width, s.width, threads());
        return normed;
    }

    // The end of a sublayer, up to what is added: its last product.
    const float* branch(const Layer& l, int which, const Product& last, const float* y) {
        product(last, y, added);
        return after(l, which);
    }

    // What is in `added`, up to what is added to the residual stream.
    const float* after(const Layer& l, int which) {
        normalized(l.after[which], added, added, rows, s.width, s.width, threads());
        if (l.multiplier != 1.0f)
            for (long i = 0; i < rows * s.width; ++i) added[i] *= l.multiplier;
        return added;
    }

    // The same, and the sum with x.
    void end(const Layer& l, int which, const Product& last, const float* y, float* x) {
        ProductSizes sizes = sizes_of(last);
        if (l.adds && l.skip == 1.0f && l.multiplier == 1.0f && l.after[which].kind == NO_NORM && s.by_panels(&sizes)) {
            sizes.adds = 1;
            s.products(y, x, last.weights, &sizes);
            adapt(last, y, x);
            normalized(l.sum[which], x, x, rows, s.width, s.width, threads());
        } else {
            sum(l, which, branch(l, which, last, y), x);
        }
    }

    void sum(const Layer& l, int which, const float* found, float* x) {
        for (long i = 0; i < rows * s.width; ++i) x[i] = l.adds ? l.skip * x[i] + found[i] : found[i];
        normalized(l.sum[which], x, x, rows, s.width, s.width, threads());
    }

    // f(W y), or f(W y) ⊙ V y, in `wide`.
    void expand(const Layer& l, const float* y) {
        ProductSizes sizes = sizes_of(l.up);
        const bool fuses = !l.gated && !l.up.adapters && s.by_panels(&sizes);
        if (fuses) sizes.activation = l.activation;
        s.products(y, wide, l.up.weights, &sizes);
        adapt(l.up, y, wide);
        if (!fuses) activate(l.activation, l.gated, wide, rows, l.down.depth, threads());
    }

    // Norms and rotary positions of the queries and keys of a token, which are at `t` of row b of the batch.
    void arrange(const Layer& l, float* q, float* k, long b, long t) {
        const Attention& a = l.own;
        if (l.norms_all) {
            normalized(l.q_norm, q, q, 1, a.heads * a.width, 0);
            normalized(l.k_norm, k, k, 1, a.kv_heads * a.width, 0);
        } else {
            normalized(l.q_norm, q, q, a.heads, a.width, a.width);
            normalized(l.k_norm, k, k, a.kv_heads, a.width, a.width);
        }
        if (!l.cos) return;
        const long at = b * l.table_step + t * (l.turned / 2);
        rotate(l, q, a.heads, l.cos + at, l.sin + at, a.width);
        rotate(l, k, a.kv_heads, l.cos + at, l.sin + at, a.width);
    }

private:
    static constexpr long SHARED_OUT = 1 << 17;  // products of two numbers above which adapters are worth all threads
    static thread_local std::vector<float> held, narrow;

    // The product of a row of B with numbers.
    template <typename T>
    static float along(const void* b, long out, long rank, const float* x) {
        const T* row = static_cast<const T*>(b) + out * rank;
        Eight sums = {};
        long i = 0;
        for (; i + EIGHT <= rank; i += EIGHT) sums += eight(row + i) * eight(x + i);
        float found = sum_of(sums);
        for (; i < rank; ++i) found += number(row + i) * x[i];
        return found;
    }

    // Numbers that fill whole lines of memory.
    static long in_lines(long numbers) { return (numbers + LINE / 4 - 1) / (LINE / 4) * (LINE / 4); }
};

thread_local std::vector<float> Sublayers::held, Sublayers::narrow;

}  // namespace

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
            for (long out = 0; out < a->outs; out += EIGHT) {
                const float* own = low + a->from;
                float* to = y + a->first + out;
                a->half ? raise<uint16_t>(*a, out, own, all.down.outs, to, p.outs) : raise<float>(*a, out, own, all.down.outs, to, p.outs);
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

    // y += scale · B x for eight rows of B, or those that are left from row `out`, which are transposed once for all rows of x.
    template <typename T>
    void raise(const Adapter& a, long out, const float* x, long x_row, float* y, long y_row) {
        thread_local std::vector<float> turned;
        const long left = std::min(EIGHT, a.outs - out);
        float* columns = room(turned, EIGHT * a.rank);
        for (long i = 0; i < a.rank; i += EIGHT) {
            const long wide = std::min(EIGHT, a.rank - i);
            Eight block[EIGHT] = {};
            for (long o = 0; o < left; ++o) {
                const T* from = static_cast<const T*>(a.b) + (out + o) * a.rank + i;
                if (wide == EIGHT)
                    block[o] = eight(from);
                else
                    for (long j = 0; j < wide; ++j) block[o][j] = number(from + j);
            }
            transpose(block);
            for (long j = 0; j < wide; ++j) put(columns + (i + j) * EIGHT, block[j]);
        }
        long r = 0;
        for (; r + 4 <= rows; r += 4) raise_rows<4>(a, columns, x + r * x_row, x_row, y + r * y_row, y_row, left);
        for (; r < rows; ++r) raise_rows<1>(a, columns, x + r * x_row, x_row, y + r * y_row, y_row, left);
    }

    // The same for R rows of x. Each output is added up in the order of ranks.
    template <int R>
    static void raise_rows(const Adapter& a, const float* columns, const float* x, long x_row, float* y, long y_row, long left) {
        Eight sums[R] = {};
        for (long j = 0; j < a.rank; ++j) {
            const Eight column = eight(columns + j * EIGHT);
            for (int r = 0; r < R; ++r) sums[r] += column * x[r * x_row + j];
        }
        for (int r = 0; r < R; ++r) {
            float own[EIGHT] = {};
            std::memcpy(own, y + r * y_row, left * sizeof(float));
            const Eight found = eight(own) + a.scale * sums[r];
            std::memcpy(y + r * y_row, &found, left * sizeof(float));
        }
    }

    // Numbers that fill whole lines of memory.
    static long in_lines(long numbers) { return (numbers + LINE / 4 - 1) / (LINE / 4) * (LINE / 4); }
};

thread_local std::vector<float> Sublayers::held, Sublayers::narrow;

}  // namespace

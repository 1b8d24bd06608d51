// Attention over blocks of 64 queries and 64 keys, those that a pattern needs, forward and backward, as FlashAttention has it
// (Dao et al. 2022): S = scale QK', L = log sum exp S, O = exp(S - L) V, with dV = W' dO, dS = W (dO V' - rowsum(dO O) + dL),
// dQ = scale dS K and dK = scale dS' Q.
//
// The scores of a block are kept with the queries side by side, S[key][query]: what is done for each query is then done for
// sixteen at once, and a product takes keys and values one number at a time, as they stand in memory.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif

namespace {

constexpr long SIDE = 64, LANES = 16, WIDEST = 128, VECTORS = SIDE / LANES;
#ifdef __AVX512F__
constexpr int MOST = 4;  // vectors of a product's row at a time: with six rows, as many as there are registers for
#else
constexpr int MOST = 1;
#endif
constexpr float SERIES[] = {1.0f, 6.9314718e-1f, 2.4022651e-1f, 5.5504109e-2f, 9.6181291e-3f, 1.3333558e-3f};  // (ln 2)^i / i!
constexpr float LOG2_E = 1.44269504088896340736f, LN_2 = 0.69314718055994530942f;

using Floats = float __attribute__((vector_size(4 * LANES)));
using Ints = int32_t __attribute__((vector_size(4 * LANES)));

// A tensor (B, rows, heads, width): numbers from one to the next of each.
struct Lies {
    long batch, row, head;
};

struct Sizes {
    long batch, heads, kv_heads, queries, keys, width, values;
    Lies q, k, v;
    long strips;
    float scale;
    int merges, threads;
};

// The blocks of keys that each strip of queries meets: of strip i those from ends[i] to ends[i + 1], each with the number of
// the table of what is hidden in it, or -1. Tokens are taken in another order where there is one.
struct Plan {
    const int64_t *number, *ends, *block, *table, *order;
    const float* limits;  // (tables, keys, queries): infinity where a pair is allowed, -infinity where not
};

inline Floats load(const float* x) {
    Floats v;
    std::memcpy(&v, x, sizeof v);
    return v;
}

inline void store(float* x, Floats v) { std::memcpy(x, &v, sizeof v); }

inline Floats filled(float x) { return x - Floats{}; }

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// 2^x for x up to 0, 0 where that is denormal, NaN of NaN: 2^n, n the nearest whole number, times a polynomial of the rest.
inline Floats power(Floats x) {
    const Floats least = filled(-126.0f), y = x < least ? least : x, moved = y + 12582912.0f, f = y - (moved - 12582912.0f);
    Floats p = filled(1.5403530e-4f);
    for (int i = 5; i >= 0; --i) p = p * f + SERIES[i];
    Ints bits, n;
    std::memcpy(&bits, &p, sizeof bits);
    std::memcpy(&n, &moved, sizeof n);
    bits += n << 23;
    std::memcpy(&p, &bits, sizeof p);
    return x < least ? Floats{} : p + (y - y);
}

// c[r][n] (+)= sum_i a(r, i) b[i][n] for R rows and N vectors, which stay in registers.
template <int R, int N>
inline void tile(const float* a, long a_row, long a_step, const float* b, long b_row, float* c, long c_row, long depth, bool add) {
    Floats sum[R][N];
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) sum[r][n] = add ? load(c + r * c_row + n * LANES) : Floats{};
    for (long i = 0; i < depth; ++i) {
        Floats row[N];
        for (int n = 0; n < N; ++n) row[n] = load(b + i * b_row + n * LANES);
        for (int r = 0; r < R; ++r) {
            const float x = a[r * a_row + i * a_step];
            for (int n = 0; n < N; ++n) sum[r][n] += x * row[n];
        }
    }
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) store(c + r * c_row + n * LANES, sum[r][n]);
}

template <int N>
void rows_of(const float* a, long a_row, long a_step, const float* b, long b_row, float* c, long c_row, long rows, long depth,
             bool add) {
    constexpr int R = 6;
    long r = 0;
    for (; r + R <= rows; r += R) tile<R, N>(a + r * a_row, a_row, a_step, b, b_row, c + r * c_row, c_row, depth, add);
    a += r * a_row;
    c += r * c_row;
    switch (rows - r) {
        case 5: return tile<5, N>(a, a_row, a_step, b, b_row, c, c_row, depth, add);
        case 4: return tile<4, N>(a, a_row, a_step, b, b_row, c, c_row, depth, add);
        case 3: return tile<3, N>(a, a_row, a_step, b, b_row, c, c_row, depth, add);
        case 2: return tile<2, N>(a, a_row, a_step, b, b_row, c, c_row, depth, add);
        case 1: return tile<1, N>(a, a_row, a_step, b, b_row, c, c_row, depth, add);
    }
}

// The same for `rows` rows and `width` numbers, a multiple of sixteen.
void product(const float* a, long a_row, long a_step, const float* b, long b_row, float* c, long c_row, long rows, long depth,
             long width, bool add) {
    for (; width >= MOST * LANES; width -= MOST * LANES, b += MOST * LANES, c += MOST * LANES)
        rows_of<MOST>(a, a_row, a_step, b, b_row, c, c_row, rows, depth, add);
    switch (width / LANES) {
        case 3: return rows_of<3>(a, a_row, a_step, b, b_row, c, c_row, rows, depth, add);
        case 2: return rows_of<2>(a, a_row, a_step, b, b_row, c, c_row, rows, depth, add);
        case 1: return rows_of<1>(a, a_row, a_step, b, b_row, c, c_row, rows, depth, add);
    }
}

// Rows of some tokens, and where they come from.
struct Rows {
    const int64_t* order;
    long start, count, step;  // of the first token, of how many, numbers from one token's row to the next one's
    long at(long i) const { return (order ? order[start + i] : start + i) * step; }
};

inline void copied(const float* x, Rows from, long width, float* to, float factor = 1.0f) {
    for (long i = 0; i < from.count; ++i) {
        const float* row = x + from.at(i);
        for (long d = 0; d < width; ++d) to[i * width + d] = factor * row[d];
    }
    std::memset(to + from.count * width, 0, (SIDE - from.count) * width * sizeof *to);
}

// Added to the rows of some tokens.
inline void added(const float* x, Rows to, long width, float* sums) {
    for (long i = 0; i < to.count; ++i) {
        float* row = sums + to.at(i);
        for (long d = 0; d < width; ++d) row[d] += x[i * width + d];
    }
}

// Sixteen rows of sixteen numbers, turned: numbers that stand `step` apart in a row go to rows that do, step by step.
#if __has_builtin(__builtin_shufflevector)
template <int step>
inline void exchanged(Floats* rows) {
    for (int i = 0; i < LANES; ++i) {
        if (i & step) continue;
        const Floats a = rows[i], b = rows[i + step];
        if constexpr (step == 8) {
            rows[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
            rows[i + step] = __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
        } else if constexpr (step == 4) {
            rows[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
            rows[i + step] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
        } else if constexpr (step == 2) {
            rows[i] = __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
            rows[i + step] = __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
        } else {
            rows[i] = __builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
            rows[i + step] = __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
        }
    }
}

inline void turned(const float* x, long x_row, float* y, long y_row) {
    Floats rows[LANES];
    for (int i = 0; i < LANES; ++i) rows[i] = load(x + i * x_row);
    exchanged<8>(rows);
    exchanged<4>(rows);
    exchanged<2>(rows);
    exchanged<1>(rows);
    for (int i = 0; i < LANES; ++i) store(y + i * y_row, rows[i]);
}
#else
inline void turned(const float* x, long x_row, float* y, long y_row) {
    for (int i = 0; i < LANES; ++i)
        for (int j = 0; j < LANES; ++j) y[j * y_row + i] = x[i * x_row + j];
}
#endif

// (rows, columns) to (columns, rows), both multiples of sixteen.
inline void turned(const float* x, long rows, long columns, float* y) {
    for (long i = 0; i < rows; i += LANES)
        for (long j = 0; j < columns; j += LANES) turned(x + i * columns + j, columns, y + j * rows + i, rows);
}

// S = QK' of one block, in units of ln 2, with -infinity where a pair is hidden.
inline void scored(const float* keys, const float* queries, const float* limit, long count, long width, float* s) {
    product(keys, width, 1, queries, SIDE, s, SIDE, count, width, SIDE, false);
    if (limit == nullptr) return;
    for (long i = 0; i < count * SIDE; i += LANES) {
        const Floats x = load(s + i), most = load(limit + i);
        store(s + i, x < most ? x : most);
    }
}

inline const float* limit_of(const Plan& plan, long i) {
    return plan.table[i] < 0 ? nullptr : plan.limits + plan.table[i] * SIDE * SIDE;
}

struct Lane {
    Floats v[VECTORS];
};

// One strip of one head's queries: output and log-sum-exp, added to what is there where `merges`.
void forward_strip(const float* q, const float* k, const float* v, float* out, float* lse, const Plan& plan, long strip,
                   const Sizes& s) {
    alignas(64) float rows[SIDE * WIDEST], queries[SIDE * WIDEST], keys[SIDE * WIDEST], values[SIDE * WIDEST];
    alignas(64) float scores[SIDE * SIDE], sums[SIDE * WIDEST];
    const long first = plan.number[strip] * SIDE, count = first + SIDE < s.queries ? SIDE : s.queries - first;
    copied(q, {plan.order, first, count, s.q.row}, s.width, rows, s.scale * LOG2_E);
    turned(rows, SIDE, s.width, queries);
    Lane most, total;
    for (long n = 0; n < VECTORS; ++n) {
        most.v[n] = filled(std::numeric_limits<float>::lowest());  // so that a row that sees nothing makes no NaN
        total.v[n] = Floats{};
    }
    for (long i = plan.ends[strip]; i < plan.ends[strip + 1]; ++i) {
        const long start = plan.block[i] * SIDE, there = start + SIDE < s.keys ? SIDE : s.keys - start;
        copied(k, {plan.order, start, there, s.k.row}, s.width, keys);
        copied(v, {plan.order, start, there, s.v.row}, s.values, values);
        scored(keys, queries, limit_of(plan, i), there, s.width, scores);
        Lane before = most;
        for (long j = 0; j < there; ++j)
            for (long n = 0; n < VECTORS; ++n) most.v[n] = larger(most.v[n], load(scores + j * SIDE + n * LANES));
        for (long n = 0; n < VECTORS; ++n) {
            const Floats fade = power(before.v[n] - most.v[n]);
            Floats sum = total.v[n] * fade;
            for (long j = 0; j < there; ++j) {
                const Floats weight = power(load(scores + j * SIDE + n * LANES) - most.v[n]);
                store(scores + j * SIDE + n * LANES, weight);
                sum += weight;
            }
            total.v[n] = sum;
            if (i > plan.ends[strip])
                for (long e = 0; e < s.values; ++e)
                    store(sums + e * SIDE + n * LANES, load(sums + e * SIDE + n * LANES) * fade);
        }
        product(values, 1, s.values, scores, SIDE, sums, SIDE, s.values, there, SIDE, i > plan.ends[strip]);
    }
    const Rows to = {plan.order, first, count, s.heads * s.values}, logs = {plan.order, first, count, s.heads};
    turned(sums, s.values, SIDE, rows);
    for (long i = 0; i < count; ++i) {
        const float weight = total.v[i / LANES][i % LANES];
        float own = weight == 0 ? -INFINITY : most.v[i / LANES][i % LANES] * LN_2 + std::log(weight);
        float share = weight == 0 ? 0 : 1 / weight, old = 0;
        float &log = lse[logs.at(i)], *row = out + to.at(i);
        if (s.merges && log != -INFINITY) {
            const float top = own > log ? own : log, a = std::exp(own - top), b = std::exp(log - top);
            share *= a / (a + b);
            old = b / (a + b);
            own = top + std::log(a + b);
        }
        log = own;
        if (old != 0)
            for (long e = 0; e < s.values; ++e) row[e] = share * rows[i * s.values + e] + old * row[e];
        else
            for (long e = 0; e < s.values; ++e) row[e] = share * rows[i * s.values + e];
    }
}

// The gradients that one strip of one head's queries gives.
void backward_strip(const float* q, const float* k, const float* v, const float* out, const float* lse, const float* d_out,
                    const float* d_lse, float* d_q, float* d_k, float* d_v, const Plan& plan, long strip, const Sizes& s) {
    alignas(64) float rows[SIDE * WIDEST], queries[SIDE * WIDEST], keys[SIDE * WIDEST], values[SIDE * WIDEST];
    alignas(64) float gradients[SIDE * WIDEST], turned_gradients[SIDE * WIDEST], d_queries[SIDE * WIDEST], part[SIDE * WIDEST];
    alignas(64) float weights[SIDE * SIDE], d_scores[SIDE * SIDE], norm[SIDE], delta[SIDE];
    const long first = plan.number[strip] * SIDE, count = first + SIDE < s.queries ? SIDE : s.queries - first;
    const Rows from = {plan.order, first, count, s.heads * s.values}, logs = {plan.order, first, count, s.heads};
    copied(q, {plan.order, first, count, s.q.row}, s.width, rows, s.scale * LOG2_E);
    turned(rows, SIDE, s.width, queries);
    for (long i = 0; i < count * s.width; ++i) rows[i] *= LN_2;
    copied(d_out, from, s.values, gradients);
    turned(gradients, SIDE, s.values, turned_gradients);
    for (long i = 0; i < SIDE; ++i) {
        norm[i] = INFINITY;  // 2^-infinity where nothing is seen
        delta[i] = 0.0f;
        if (i >= count) continue;
        const float* row = out + from.at(i);
        if (lse[logs.at(i)] != -INFINITY) norm[i] = lse[logs.at(i)] * LOG2_E;
        for (long e = 0; e < s.values; ++e) delta[i] += gradients[i * s.values + e] * row[e];
        if (d_lse) delta[i] -= d_lse[logs.at(i)];
    }
    for (long i = plan.ends[strip]; i < plan.ends[strip + 1]; ++i) {
        const long start = plan.block[i] * SIDE, there = start + SIDE < s.keys ? SIDE : s.keys - start;
        const Rows k_rows = {plan.order, start, there, s.kv_heads * s.width};
        const Rows v_rows = {plan.order, start, there, s.kv_heads * s.values};
        copied(k, {plan.order, start, there, s.k.row}, s.width, keys);
        copied(v, {plan.order, start, there, s.v.row}, s.values, values);
        scored(keys, queries, limit_of(plan, i), there, s.width, weights);
        product(values, s.values, 1, turned_gradients, SIDE, d_scores, SIDE, there, s.values, SIDE, false);
        for (long j = 0; j < there; ++j)
            for (long n = 0; n < SIDE; n += LANES) {
                const Floats weight = power(load(weights + j * SIDE + n) - load(norm + n));
                store(weights + j * SIDE + n, weight);
                store(d_scores + j * SIDE + n, weight * (load(d_scores + j * SIDE + n) - load(delta + n)));
            }
        if (plan.order) {
            product(weights, SIDE, 1, gradients, s.values, part, s.values, there, count, s.values, false);
            added(part, v_rows, s.values, d_v);
            product(d_scores, SIDE, 1, rows, s.width, part, s.width, there, count, s.width, false);
            added(part, k_rows, s.width, d_k);
        } else {
            product(weights, SIDE, 1, gradients, s.values, d_v + v_rows.at(0), v_rows.step, there, count, s.values, true);
            product(d_scores, SIDE, 1, rows, s.width, d_k + k_rows.at(0), k_rows.step, there, count, s.width, true);
        }
        product(keys, 1, s.width, d_scores, SIDE, d_queries, SIDE, s.width, there, SIDE, i > plan.ends[strip]);
    }
    turned(d_queries, s.width, SIDE, part);
    for (long i = 0; i < count * s.width; ++i) part[i] *= s.scale;
    added(part, {plan.order, first, count, s.heads * s.width}, s.width, d_q);
}

}  // namespace

extern "C" {

// q (B, T, H, D), k (B, S, K, D), v (B, S, K, E) as `Sizes` says; out (B, T, H, E) and lse (B, T, H) without gaps. Strips that
// the plan does not name are left as they are.
void qkv_forward(const float* q, const float* k, const float* v, float* out, float* lse, const Plan* plan, const Sizes* s) {
    const long group = s->heads / s->kv_heads;
#pragma omp parallel for collapse(3) num_threads(s->threads) schedule(dynamic, 16)
    for (long b = 0; b < s->batch; ++b)
        for (long i = 0; i < s->strips; ++i)
            for (long h = 0; h < s->heads; ++h)  // whose numbers are neighbors in memory
                forward_strip(q + b * s->q.batch + h * s->q.head, k + b * s->k.batch + h / group * s->k.head,
                              v + b * s->v.batch + h / group * s->v.head,
                              out + (b * s->queries * s->heads + h) * s->values, lse + b * s->queries * s->heads + h, *plan, i, *s);
}

// What is without gaps besides: d_out like out, d_lse (perhaps none) like lse; d_q, d_k, d_v, to which gradients are added.
void qkv_backward(const float* q, const float* k, const float* v, const float* out, const float* lse, const float* d_out,
                  const float* d_lse, float* d_q, float* d_k, float* d_v, const Plan* plan, const Sizes* s) {
    const long group = s->heads / s->kv_heads, pairs = s->batch * s->kv_heads;
#pragma omp parallel for num_threads(s->threads)
    for (long thread = 0; thread < s->threads; ++thread)  // each adds to gradients of heads that no other has
        for (long i = 0; i < s->strips; ++i)
            for (long pair = pairs * thread / s->threads; pair < pairs * (thread + 1) / s->threads; ++pair)
                for (long g = 0; g < group; ++g) {
                    const long b = pair / s->kv_heads, kv = pair % s->kv_heads, h = kv * group + g;
                    const long at = b * s->queries * s->heads + h, to = b * s->keys * s->kv_heads + kv;
                    backward_strip(q + b * s->q.batch + h * s->q.head, k + b * s->k.batch + kv * s->k.head,
                                   v + b * s->v.batch + kv * s->v.head, out + at * s->values, lse + at, d_out + at * s->values,
                                   d_lse ? d_lse + at : nullptr, d_q + at * s->width, d_k + to * s->width, d_v + to * s->values,
                                   *plan, i, *s);
                }
}
}

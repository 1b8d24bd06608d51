// Attention of few queries over many keys, each key and value read once: the online soft-max (Milakov & Gimelshein 2018) over
// blocks of 64 keys, and over parts of 512 keys in parallel (Flash-Decoding, Dao et al. 2023).
//
// The T queries of the G heads that share a key-value head are M = G T rows. Sums are in fp32 and in an order that depends on
// the number of keys alone: neither on the threads nor on the other rows of the batch.
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>

#include "eights.h"
#include "structures.h"

namespace {

constexpr long MOST_ROWS = 16, WIDEST = 256, BLOCK = 64, PART = 512;
constexpr long SMALL = 1 << 15;  // bytes of keys and values below which one thread is faster
constexpr float NONE = -__builtin_inff();

// Numbers from one row of the batch, token and head to the next.
struct Strides {
    long batch, row, head;
};

// q (B, T, H, D), k (B, S, K, D), v (B, S, K, E), out (B, T, H, E); lse (B, H, T) or null.
// mask (B, H, T, S) is 0 where a pair is hidden, bias (B, H, T, S) is added to scores; steps of 0 broadcast, null is none.
struct Attention {
    long batch, heads, kv_heads, queries, keys, width, values;
    Strides q, k, v, out;
    const uint8_t* mask;
    long mask_steps[4];
    const float* bias;
    long bias_steps[4];
    float* lse;
    float scale, softcap;  // no cap: 0
    int half, half_keys, threads;  // q and out, and k and v, are bf16
};

// The state of the online soft-max of one part: Σ e^(s − top) v, the largest score, Σ e^(s − top).
struct Running {
    float out[MOST_ROWS * WIDEST], top[MOST_ROWS], total[MOST_ROWS];
};

// scores[t] = q · k_t for `count` keys.
template <long W, typename Key>
inline void dots(const float* q, const Key* k, long step, long count, long width, float* scores) {
    const long w = W ? W : width;
    for (long t = 0; t < count; ++t, k += step) {
        Eight a = {}, b = {};
        long d = 0;
        for (; d + 2 * EIGHT <= w; d += 2 * EIGHT) {
            a += eight(q + d) * eight(k + d);
            b += eight(q + d + EIGHT) * eight(k + d + EIGHT);
        }
        if (d < w) a += eight(q + d) * eight(k + d);
        scores[t] = sum_of(a + b);
    }
}

// out[d] += Σ_t p[t] v_t[d]; values of weight 0 are not read where pairs may be hidden, since 0 · NaN is NaN.
template <long W, typename Value>
inline void add(const float* p, const Value* v, long step, long count, long width, bool masked, float* out) {
    const long w = W ? W : width;
    constexpr long HELD = W ? W / EIGHT : 8;
    for (long d = 0; d < w; d += HELD * EIGHT) {
        const long held = W ? HELD : std::min(HELD, (w - d) / EIGHT);
        Eight sums[HELD];
        for (long i = 0; i < held; ++i) sums[i] = eight(out + d + i * EIGHT);
        const Value* row = v + d;
        for (long t = 0; t < count; ++t, row += step) {
            if (masked && p[t] == 0.0f) continue;
            for (long i = 0; i < held; ++i) sums[i] += p[t] * eight(row + i * EIGHT);
        }
        for (long i = 0; i < held; ++i) put(out + d + i * EIGHT, sums[i]);
    }
}

// Scores to what they are compared by: capped, with the bias, −∞ where hidden.
inline void adjust(const Attention& a, long b, long h, long t, long first, long count, float* scores) {
    if (a.softcap != 0.0f)
        for (long i = 0; i < count; ++i) scores[i] = a.softcap * std::tanh(scores[i] / a.softcap);
    if (a.bias) {
        const float* bias = a.bias + b * a.bias_steps[0] + h * a.bias_steps[1] + t * a.bias_steps[2] + first * a.bias_steps[3];
        for (long i = 0; i < count; ++i) {
            const float own = bias[i * a.bias_steps[3]];
            scores[i] = own == NONE ? NONE : scores[i] + own;  // NaN + −∞ would be NaN
        }
    }
    if (a.mask) {
        const uint8_t* mask = a.mask + b * a.mask_steps[0] + h * a.mask_steps[1] + t * a.mask_steps[2] + first * a.mask_steps[3];
        for (long i = 0; i < count; ++i) scores[i] = mask[i * a.mask_steps[3]] ? scores[i] : NONE;
    }
}

// The scores of one row and block to weights; the row's sums so far are brought to its new largest score.
inline void weigh(Running& r, long m, long values, float* scores, long count) {
    float top = r.top[m];
    bool lost = false;
    for (long i = 0; i < count; ++i) {
        top = scores[i] > top ? scores[i] : top;
        lost |= scores[i] != scores[i];
    }
    if (lost) top = __builtin_nanf("");
    if (top == NONE) {
        for (long i = 0; i < count; ++i) scores[i] = 0.0f;
        return;
    }
    for (long i = count; i % EIGHT; ++i) scores[i] = NONE;
    if (r.top[m] != NONE && top != r.top[m]) {
        const float shrink = std::exp(r.top[m] - top);
        r.total[m] *= shrink;
        for (long d = 0; d < values; ++d) r.out[m * values + d] *= shrink;
    }
    r.top[m] = top;
    Eight sums = {};
    for (long i = 0; i < count; i += EIGHT) {
        const Eight p = exponential(eight(scores + i) - top);
        put(scores + i, p);
        sums += p;
    }
    r.total[m] += sum_of(sums);
}

// bf16 to fp32 once where several rows read it.
template <long W>
inline const float* widened(const uint16_t* x, long step, long count, long width, float* to) {
    for (long t = 0; t < count; ++t, x += step)
        for (long d = 0; d < (W ? W : width); d += EIGHT) put(to + t * (W ? W : width) + d, eight(x + d));
    return to;
}
template <long W>
inline const float* widened(const float* x, long, long, long, float*) {
    return x;
}

// The scaled queries of a key-value head, side by side, and sums of nothing yet.
template <typename Query>
inline void begin(const Attention& a, const Query* q, long b, long g, float* own, Running& r) {
    const long group = a.heads / a.kv_heads, rows = group * a.queries;
    for (long m = 0; m < rows; ++m) {
        const Query* row = q + b * a.q.batch + m % a.queries * a.q.row + (g * group + m / a.queries) * a.q.head;
        for (long d = 0; d < a.width; ++d) own[m * a.width + d] = number(row + d) * a.scale;
        r.top[m] = NONE;
        r.total[m] = 0.0f;
    }
    std::fill(r.out, r.out + rows * a.values, 0.0f);
}

template <long W, typename Query, typename Key>
void over_part(const Attention& a, const Query* q, const Key* k, const Key* v, long b, long g, long first, long stop, Running& r) {
    const long width = W ? W : a.width, values = W ? W : a.values, group = a.heads / a.kv_heads, rows = group * a.queries;
    const bool masked = a.mask || a.bias;
    alignas(64) float own[MOST_ROWS * WIDEST], scores[MOST_ROWS][BLOCK], wide[sizeof(Key) == 2 ? BLOCK * WIDEST : 1];
    begin(a, q, b, g, own, r);
    k += b * a.k.batch + g * a.k.head;
    v += b * a.v.batch + g * a.v.head;
    for (long t = first; t < stop; t += BLOCK) {
        const long count = std::min(BLOCK, stop - t);
        const Key *keys = k + t * a.k.row, *own_values = v + t * a.v.row;
        if (rows == 1) {
            dots<W>(own, keys, a.k.row, count, width, scores[0]);
        } else {
            const auto* some = widened<W>(keys, a.k.row, count, width, wide);
            for (long m = 0; m < rows; ++m) dots<W>(own + m * width, some, sizeof(Key) == 2 ? width : a.k.row, count, width, scores[m]);
        }
        for (long m = 0; m < rows; ++m) {
            adjust(a, b, g * group + m / a.queries, m % a.queries, t, count, scores[m]);
            weigh(r, m, values, scores[m], count);
        }
        if (rows == 1) {
            add<W>(scores[0], own_values, a.v.row, count, values, masked, r.out);
        } else {
            const auto* some = widened<W>(own_values, a.v.row, count, values, wide);
            for (long m = 0; m < rows; ++m)
                add<W>(scores[m], some, sizeof(Key) == 2 ? values : a.v.row, count, values, masked, r.out + m * values);
        }
    }
}

// Results of several parts to one, in their order.
inline void merge(Running& all, const Running& one, long rows, long values) {
    for (long m = 0; m < rows; ++m) {
        if (one.top[m] == NONE) continue;
        const float top = all.top[m] >= one.top[m] ? all.top[m] : one.top[m];
        const float mine = all.top[m] == NONE ? 0.0f : std::exp(all.top[m] - top), its = std::exp(one.top[m] - top);
        for (long d = 0; d < values; ++d)
            all.out[m * values + d] = mine * all.out[m * values + d] + its * one.out[m * values + d];
        all.total[m] = mine * all.total[m] + its * one.total[m];
        all.top[m] = top;
    }
}

template <typename Query>
void finish(const Attention& a, const Running& r, long b, long g, Query* out) {
    const long group = a.heads / a.kv_heads;
    for (long m = 0; m < group * a.queries; ++m) {
        const long h = g * group + m / a.queries, t = m % a.queries;
        const float total = r.total[m], inverse = r.top[m] == NONE ? 0.0f : 1.0f / total;
        Query* to = out + b * a.out.batch + t * a.out.row + h * a.out.head;
        for (long d = 0; d < a.values; d += EIGHT) put(to + d, eight(r.out + m * a.values + d) * inverse);
        if (a.lse) a.lse[(b * a.heads + h) * a.queries + t] = r.top[m] == NONE ? NONE : r.top[m] + std::log(total);
    }
}

// All rows of the batch and key-value heads, whose keys are cut into `parts`; `over` sums up one part. `bytes` of keys and values.
template <typename Query, typename Over>
void in_parts(const Attention& a, long parts, long bytes, Query* out, Over over) {
    const long pairs = a.batch * a.kv_heads;
    const int threads = static_cast<int>(std::max(1L, std::min<long>(a.threads, bytes / SMALL)));
    const std::unique_ptr<Running[]> found(new Running[parts > 1 ? pairs * parts : 0]);  // not cleared
#pragma omp parallel for collapse(2) num_threads(threads) if (threads > 1)
    for (long i = 0; i < pairs; ++i)
        for (long part = 0; part < parts; ++part) {
            const long b = i / a.kv_heads, g = i % a.kv_heads;
            if (parts > 1) {
                over(b, g, part, found[i * parts + part]);
            } else {
                Running own;
                over(b, g, part, own);
                finish(a, own, b, g, out);
            }
        }
    if (parts == 1) return;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long i = 0; i < pairs; ++i) {
        Running& all = found[i * parts];
        for (long part = 1; part < parts; ++part)
            merge(all, found[i * parts + part], a.heads / a.kv_heads * a.queries, a.values);
        finish(a, all, i / a.kv_heads, i % a.kv_heads, out);
    }
}

template <long W, typename Query, typename Key>
void attend(const Attention& a, const Query* q, const Key* k, const Key* v, Query* out) {
    const long parts = std::max(1L, (a.keys + PART - 1) / PART);
    const long bytes = a.batch * a.kv_heads * a.keys * (a.width + a.values) * sizeof(Key);
    in_parts(a, parts, bytes, out, [&](long b, long g, long part, Running& r) {
        over_part<W>(a, q, k, v, b, g, part * PART, std::min((part + 1) * PART, a.keys), r);
    });
}

template <typename Query, typename Key>
void attend_by_width(const Attention& a, const void* q, const void* k, const void* v, void* out) {
    const auto run = [&](auto kernel) {
        kernel(a, static_cast<const Query*>(q), static_cast<const Key*>(k), static_cast<const Key*>(v), static_cast<Query*>(out));
    };
    const long width = a.width == a.values ? a.width : 0;
    if (width == 64) return run(attend<64, Query, Key>);
    if (width == 128) return run(attend<128, Query, Key>);
    run(attend<0, Query, Key>);
}

void attend_any(const Attention& a, const void* q, const void* k, const void* v, void* out) {
    if (a.half && a.half_keys) return attend_by_width<uint16_t, uint16_t>(a, q, k, v, out);
    if (a.half_keys) return attend_by_width<float, uint16_t>(a, q, k, v, out);
    attend_by_width<float, float>(a, q, k, v, out);
}

}  // namespace

QKV_STRUCTURE(Strides, QKV_FIELD(batch), QKV_FIELD(row), QKV_FIELD(head))
QKV_STRUCTURE(Attention, QKV_FIELD(batch), QKV_FIELD(heads), QKV_FIELD(kv_heads), QKV_FIELD(queries), QKV_FIELD(keys),
              QKV_FIELD(width), QKV_FIELD(values), QKV_FIELD(q), QKV_FIELD(k), QKV_FIELD(v), QKV_FIELD(out), QKV_FIELD(mask),
              QKV_FIELD(mask_steps), QKV_FIELD(bias), QKV_FIELD(bias_steps), QKV_FIELD(lse), QKV_FIELD(scale),
              QKV_FIELD(softcap), QKV_FIELD(half), QKV_FIELD(half_keys), QKV_FIELD(threads))

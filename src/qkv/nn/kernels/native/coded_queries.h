// Attention of few queries over a quantized cache: the codes of complete groups, then the newest tokens in full precision.
//
// Scores of codes are q · (scale ∘ code + zero) with a scale and zero point for each channel of a group of keys; values have
// them for each token (cache_codes.h). The soft-max is that of few_queries.h, over parts of about 512 tokens.
#pragma once
#include "cache_codes.h"
#include "few_queries.h"

namespace {

constexpr long LARGEST = 256;  // tokens of a group

// Of (B, K) heads one after another: codes in bytes, and scales and zero points in bf16, of keys (groups, D) and values
// (groups, group). `k_head` … `v_scales`: numbers from one head to the next.
struct Codes {
    const uint8_t *k, *v;
    const uint16_t *k_scale, *k_zero, *v_scale, *v_zero;
    long k_head, v_head, k_scales, v_scales, groups, group, bits;
};

inline codes::Sizes sizes_of(const Codes& c, long rows, long width) {
    return {1, 1, rows, width, c.bits == 4 ? c.group / 2 : c.group, 0, 0, LARGEST, 1, static_cast<int>(c.bits), 1};
}

// The groups from `first` to `stop` of a row of the batch and key-value head.
template <long W, bool one>
void over_groups(const Attention& a, const Codes& c, const float* q, long b, long g, long first, long stop, Running& r) {
    const long width = W ? W : a.width, values = W ? W : a.values, group = a.heads / a.kv_heads, rows = group * a.queries;
    const long head = b * a.kv_heads + g;
    const codes::Sizes keys = sizes_of(c, rows, width), mixes = sizes_of(c, rows, values);
    alignas(64) float own[MOST_ROWS * WIDEST], scores[MOST_ROWS][LARGEST];
    begin(a, q, b, g, own, r);
    for (long n = first; n < stop; ++n) {
        const long channel = head * c.k_scales + n * width, token = head * c.v_scales + n * c.group;
        codes::score_group<W, one>(own, c.k + head * c.k_head + n * keys.held * width, c.k_scale + channel, c.k_zero + channel, keys,
                                   scores[0]);
        for (long m = 0; m < rows; ++m) {
            adjust(a, b, g * group + m / a.queries, m % a.queries, n * c.group, c.group, scores[m]);
            weigh(r, m, values, scores[m], c.group);
        }
        float shift[MOST_ROWS] = {};
        codes::add_group<W, one>(scores[0], c.v + head * c.v_head + n * mixes.held * values, c.v_scale + token, c.v_zero + token,
                                 mixes, r.out, shift);
        for (long m = 0; m < rows; ++m)
            for (long d = 0; d < values; ++d) r.out[m * values + d] += shift[m];
    }
}

// What `a` says of the keys after the first `coded`.
inline Attention newest(const Attention& a, long coded) {
    Attention rest = a;
    rest.keys = a.keys - coded;
    if (a.mask) rest.mask += coded * a.mask_steps[3];
    if (a.bias) rest.bias += coded * a.bias_steps[3];
    return rest;
}

template <long W, typename Key>
void attend_codes(const Attention& a, const Codes& c, const float* q, const Key* k, const Key* v, float* out) {
    const long coded = c.groups * c.group, each = std::max(1L, PART / c.group), before = (c.groups + each - 1) / each;
    const Attention rest = newest(a, coded);
    const long bytes = a.batch * a.kv_heads * (a.width + a.values) * (coded * c.bits / 8 + rest.keys * static_cast<long>(sizeof(Key)));
    const bool one = a.heads / a.kv_heads * a.queries == 1;
    in_parts(a, before + (rest.keys + PART - 1) / PART, bytes, out, [&](long b, long g, long part, Running& r) {
        const long first = (part - before) * PART, group = part * each, last = std::min(group + each, c.groups);
        if (part >= before) return over_part<W>(rest, q, k, v, b, g, first, std::min(first + PART, rest.keys), r);
        one ? over_groups<W, true>(a, c, q, b, g, group, last, r) : over_groups<W, false>(a, c, q, b, g, group, last, r);
    });
}

template <typename Key>
void attend_codes_by_width(const Attention& a, const Codes& c, const float* q, const void* k, const void* v, float* out) {
    const auto run = [&](auto kernel) { kernel(a, c, q, static_cast<const Key*>(k), static_cast<const Key*>(v), out); };
    const long width = a.width == a.values ? a.width : 0;
    if (width == 64) return run(attend_codes<64, Key>);
    if (width == 128) return run(attend_codes<128, Key>);
    run(attend_codes<0, Key>);
}

// k and v (B, K, S, D) are the newest of a.keys tokens, at least one.
void attend_coded(const Attention& a, const Codes& c, const float* q, const void* k, const void* v, float* out) {
    a.half_keys ? attend_codes_by_width<uint16_t>(a, c, q, k, v, out) : attend_codes_by_width<float>(a, c, q, k, v, out);
}

}  // namespace

QKV_STRUCTURE(Codes, QKV_FIELD(k), QKV_FIELD(v), QKV_FIELD(k_scale), QKV_FIELD(k_zero), QKV_FIELD(v_scale), QKV_FIELD(v_zero),
              QKV_FIELD(k_head), QKV_FIELD(v_head), QKV_FIELD(k_scales), QKV_FIELD(v_scales), QKV_FIELD(groups), QKV_FIELD(group),
              QKV_FIELD(bits))

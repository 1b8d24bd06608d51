// Products of integers: codes of 8 or 4 bits with activations in 8 bits, some rows of each at a time.
//
// A vector of codes has 8 or 16 lanes, each with the sum of products of 4 neighbors of 8 bits or 8 of 4 bits. Sums stay integers
// within a group; its scale and those of the rows of activations make them floats.
#pragma once
#include "product_inputs.h"

namespace {

constexpr int INTEGER_ROWS = WIDE_INTEGERS ? 4 : 2;  // rows of x at a time: with OUTS rows of W their sums fill the registers

// To the second cache: the first waits for so few lines at a time that one core could not read at the pace of memory.
inline void prefetch(const void* place, long ahead) { __builtin_prefetch(static_cast<const char*>(place) + ahead, 0, 2); }

// The same vector in a register: compilers would read it from memory for each product.
template <typename V>
inline V held(V x) {
#if defined(__AVX512F__)
    asm("" : "+v"(x));
#endif
    return x;
}

// A vector of codes of 8 bits: a lane has 4 columns.
struct Eights {
    static constexpr long WIDTH = 4;
    static constexpr bool OFFSETS = MOVED;
    template <int N>
    static Bytes<N> codes(const uint8_t* w) {
        const auto own = loaded<Bytes<N>>(w);
        return MOVED ? own ^ static_cast<int8_t>(-128) : own;
    }
    template <int N>
    static void add(Integers<N>* sums, const Bytes<N>* codes, int count, int step, const int8_t* x) {
        const auto own = held(loaded<Bytes<N>>(x));
        for (int r = 0; r < count; ++r) sums[r * step] = added<N>(sums[r * step], codes[r], own);
    }
};

// A vector of codes of 4 bits: a lane has 8 columns, the even ones in the lower halves of its bytes.
struct Fours {
    static constexpr long WIDTH = 8;
    static constexpr bool OFFSETS = true;
    template <int N>
    static Bytes<N> codes(const uint8_t* w) {
        return loaded<Bytes<N>>(w);
    }
    template <int N>
    static void add(Integers<N>* sums, const Bytes<N>* codes, int count, int step, const int8_t* x) {
        using Unsigned = Many<uint8_t, 4 * N>;
        const auto even = held(loaded<Bytes<N>>(x)), odd = held(loaded<Bytes<N>>(x + 4 * N));
        for (int r = 0; r < count; ++r) {
            const auto lower = codes[r] & static_cast<int8_t>(15);
            const auto upper = bits_as<Bytes<N>>(bits_as<Unsigned>(codes[r]) >> 4);
#if defined(__AVX2__) && !(defined(__AVX512VNNI__) && defined(__AVX512VL__))
            const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(bits_as<__m256i>(lower), bits_as<__m256i>(even)),
                                                   _mm256_maddubs_epi16(bits_as<__m256i>(upper), bits_as<__m256i>(odd)));
            sums[r * step] += bits_as<Integers<N>>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#else
            sums[r * step] = added<N>(added<N>(sums[r * step], lower, even), upper, odd);
#endif
        }
    }
};

// The values of the PER groups in a vector of N lanes.
template <int N, int PER>
inline Many<float, N> values_of(const float* values) {
    if constexpr (PER == 1) {
        return values[0] - Many<float, N>{};
    } else if constexpr (N == 8) {
        const float a = values[0], b = values[1];
        return Eight{a, a, a, a, b, b, b, b};
#ifdef __AVX512F__
    } else if constexpr (PER == 2) {
        return bits_as<Many<float, N>>(_mm512_mask_blend_ps(0xff00, _mm512_set1_ps(values[0]), _mm512_set1_ps(values[1])));
    } else {
        const __m512i which = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
        return bits_as<Many<float, N>>(_mm512_permutevar_ps(_mm512_broadcast_f32x4(_mm_loadu_ps(values)), which));
#endif
    }
}

// out[m][r] = sum over groups g of scale[r][g] * sum_i (w[r][i] - zero[r][g]) x[m][i], for R rows of W and X of x.
template <class K, int N, int PER, int R, int X>
inline void tile_of(const uint8_t* w, const float* scales, const float* zeros, const Inputs& in, long first, const Sizes& s,
                    float (*out)[R]) {
    constexpr long SPAN = N * K::WIDTH, STEP = 4 * N;  // columns and bytes of a vector
    const long count = s.depth / SPAN, row = count * STEP, per = PER > 1 ? 1 : s.group / SPAN;
    const int8_t* bytes = in.bytes + first * s.depth;
    const int32_t* offsets = in.offsets + first * in.moves;
    Many<float, N> total[R][X] = {};
    for (long i = 0, g = 0; i < count; g += PER) {
        Integers<N> part[R][X] = {}, moved[X] = {};
        for (const long stop = i + per; i < stop; ++i) {
            Bytes<N> codes[R];
            for (int r = 0; r < R; ++r) {
                prefetch(w + (i * R + r) * STEP, in.ahead);
                codes[r] = K::template codes<N>(w + r * row + i * STEP);
            }
            for (int m = 0; m < X; ++m) K::template add<N>(&part[0][m], codes, R, X, bytes + m * s.depth + i * SPAN);
        }
        if constexpr (K::OFFSETS)
            for (int m = 0; m < X; ++m) moved[m] = loaded<Integers<N>>(offsets + m * in.moves + g / PER * N);
        for (int r = 0; r < R; ++r) {
            const auto scale = values_of<N, PER>(scales + r * in.groups + g);
            for (int m = 0; m < X; ++m) {
                Many<float, N> own;
                if (K::WIDTH == 8 && zeros) {
                    const auto zero = 0.125f * values_of<N, PER>(zeros + r * in.groups + g);
                    own = __builtin_convertvector(part[r][m], Many<float, N>) +
                          zero * __builtin_convertvector(moved[m], Many<float, N>);
                } else {
                    own = __builtin_convertvector(part[r][m] + moved[m], Many<float, N>);
                }
                total[r][m] += own * scale;
            }
        }
    }
    sums<N, R, X>(total, out);
    for (int r = 0; r < R; ++r)
        for (int m = 0; m < X; ++m) out[m][r] *= in.factors[first + m];
}

// The same where all columns are one group without a zero point: sums of integers are added up as integers.
template <class K, int N, int R, int X>
inline void whole_tile(const uint8_t* w, const float* scales, const Inputs& in, long first, const Sizes& s, float (*out)[R]) {
    constexpr long SPAN = N * K::WIDTH, STEP = 4 * N;
    const long count = s.depth / SPAN, row = count * STEP;
    const int8_t* bytes = in.bytes + first * s.depth;
    Integers<N> part[R][X] = {};
    for (long i = 0; i < count; ++i) {
        Bytes<N> codes[R];
        for (int r = 0; r < R; ++r) {
            prefetch(w + (i * R + r) * STEP, in.ahead);
            codes[r] = K::template codes<N>(w + r * row + i * STEP);
        }
        for (int m = 0; m < X; ++m) K::template add<N>(&part[0][m], codes, R, X, bytes + m * s.depth + i * SPAN);
    }
    if constexpr (K::OFFSETS)
        for (int m = 0; m < X; ++m) {
            const auto moved = loaded<Integers<N>>(in.offsets + (first + m) * in.moves);
            for (int r = 0; r < R; ++r) part[r][m] += moved;
        }
    int32_t found[X][R];
    sums<N, R, X>(part, found);
    for (int m = 0; m < X; ++m)
        for (int r = 0; r < R; ++r) out[m][r] = static_cast<float>(found[m][r]) * scales[r] * in.factors[first + m];
}

// The same, by the vectors for which the activations were prepared.
template <int R, int X>
inline void integer_tile(const uint8_t* w, const float* scales, const float* zeros, const Inputs& in, long first, const Sizes& s,
                         float (*out)[R]) {
    const long parts = in.span > s.group ? in.span / s.group : 1;
    if (in.groups == 1 && !zeros) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
        if (in.span == LINE && s.kind == BYTE) return whole_tile<Eights, 16, R, X>(w, scales, in, first, s, out);
        if (in.span == 2 * LINE) return whole_tile<Fours, 16, R, X>(w, scales, in, first, s, out);
#endif
        return s.kind == BYTE ? whole_tile<Eights, 8, R, X>(w, scales, in, first, s, out)
                              : whole_tile<Fours, 8, R, X>(w, scales, in, first, s, out);
    }
    if (s.kind == BYTE) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
        if (in.span == LINE)
            return parts == 2 ? tile_of<Eights, 16, 2, R, X>(w, scales, zeros, in, first, s, out)
                              : tile_of<Eights, 16, 1, R, X>(w, scales, zeros, in, first, s, out);
#endif
        return tile_of<Eights, 8, 1, R, X>(w, scales, zeros, in, first, s, out);
    }
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    if (in.span == 2 * LINE)
        return parts == 4   ? tile_of<Fours, 16, 4, R, X>(w, scales, zeros, in, first, s, out)
               : parts == 2 ? tile_of<Fours, 16, 2, R, X>(w, scales, zeros, in, first, s, out)
                            : tile_of<Fours, 16, 1, R, X>(w, scales, zeros, in, first, s, out);
#endif
    return parts == 2 ? tile_of<Fours, 8, 2, R, X>(w, scales, zeros, in, first, s, out)
                      : tile_of<Fours, 8, 1, R, X>(w, scales, zeros, in, first, s, out);
}

}  // namespace

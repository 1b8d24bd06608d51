// Products of float rows with the 8-bit and 4-bit codes of a quantized cache, each read once: of one head and one group.
//
// Codes of a group are R rows of D bytes. With 8 bits a row has one token's codes, -128 … 127. With 4 bits a byte has the
// codes 0 … 15 of two tokens: token i in the lower half and token i + R in the upper half.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif

namespace {
namespace codes {

constexpr long LINE = 64, AHEAD = 4096;  // bytes
constexpr long WIDEST = 1024, MOST = 16;  // of a row's bytes, of query rows
constexpr long LANES = 16, BLOCK = 16;    // numbers of a vector; rows of bytes at a time

using Floats = float __attribute__((vector_size(4 * LANES)));
using Ints = int32_t __attribute__((vector_size(4 * LANES)));

struct Sizes {
    long heads, groups, rows, width, held;
    long jump, jump_scales;  // strides from one head's codes, and scales, to the next
    long stride;             // numbers from a row of scores to the next
    long parts;
    int bits, threads;
    long tokens() const { return bits == 4 ? 2 * held : held; }
    float least() const { return bits == 8 ? -128.0f : 0.0f; }
};

// bf16: the upper half of a float.
inline float widened(uint16_t half) {
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
}

// The codes in a byte: signed 8 bits, or the lower or upper 4 bits.
struct Whole {
    static float of(uint8_t byte) { return static_cast<int8_t>(byte); }
};
struct Lower {
    static float of(uint8_t byte) { return byte & 15; }
};
struct Upper {
    static float of(uint8_t byte) { return byte >> 4; }
};

inline Floats load(const float* x) {
    Floats v;
    std::memcpy(&v, x, sizeof v);
    return v;
}

// Prefetch the codes that come next.
inline void ahead(const uint8_t* row, long width) {
    for (long d = 0; d < width; d += LINE) __builtin_prefetch(row + AHEAD + d);
}

#if __has_builtin(__builtin_shufflevector)
// Sums of two numbers `step` apart: half of them from a, half from b.
template <int step>
inline Floats halved(Floats a, Floats b) {
    if constexpr (step == 8)
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    else if constexpr (step == 4)
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
               __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    else if constexpr (step == 2)
        return __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
               __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
    else
        return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
               __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

// The sums of sixteen vectors, as one vector.
inline Floats sums_of(const Floats* v) {
    Floats w[8], x[4], y[2];
    for (int i = 0; i < 8; ++i) w[i] = halved<8>(v[2 * i], v[2 * i + 1]);
    for (int i = 0; i < 4; ++i) x[i] = halved<4>(w[2 * i], w[2 * i + 1]);
    for (int i = 0; i < 2; ++i) y[i] = halved<2>(x[2 * i], x[2 * i + 1]);
    return halved<1>(y[0], y[1]);
}
#else
inline Floats sums_of(const Floats* v) {
    Floats sums = {};
    for (int i = 0; i < LANES; ++i)
        for (int j = 0; j < LANES; ++j) sums[i] += v[i][j];
    return sums;
}
#endif

// Sixteen bytes as 32-bit integers, signed for 8 bits.
template <typename Code, typename...>
inline Ints raw(const uint8_t* bytes) {
    int32_t wide[LANES];  // a loop, which compilers vectorize better than a conversion
    for (int i = 0; i < LANES; ++i) wide[i] = std::is_same_v<Code, Whole> ? static_cast<int8_t>(bytes[i]) : bytes[i];
    Ints v;
    std::memcpy(&v, wide, sizeof v);
    return v;
}

template <typename Code>
inline Floats numbers(Ints codes) {
    if constexpr (std::is_same_v<Code, Whole>) return __builtin_convertvector(codes, Floats);
    if constexpr (std::is_same_v<Code, Upper>) codes >>= 4;
#if defined(__AVX512F__) && !defined(__clang__)
    const Floats table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return __builtin_shuffle(table, codes);  // which reads only the lowest four bits
#else
    return __builtin_convertvector(codes & 15, Floats);
#endif
}

// `take(j, numbers)` for each kind of code in sixteen bytes.
template <typename... Code, typename Take>
inline void unpacked(const uint8_t* bytes, Take take) {
    const Ints codes = raw<Code...>(bytes);
    int j = 0;
    (take(j++, numbers<Code>(codes)), ...);
}

// The rest of a row's product after complete vectors.
template <typename Code>
inline float tail(const float* x, const uint8_t* bytes, long start, long stop) {
    float sum = 0.0f;
    for (long d = start; d < stop; ++d) sum += x[d] * Code::of(bytes[d]);
    return sum;
}

// With `one` query row codes are unpacked where they are used; with several they are unpacked once for all.
//
// out[m][j · held + t] = sum_d x[m][d] c[d] for the codes of tokens t, of which a row of bytes has one, or two of 4 bits.
template <long W, bool one, typename... Code>
inline void dots(const float* x, const Sizes& s, const uint8_t* bytes, float* out) {
    constexpr int kinds = sizeof...(Code);
    const long width = W ? W : s.width, even = width / LANES * LANES;
    for (long start = 0; start < s.held; start += LANES) {
        const long here = s.held - start < LANES ? s.held - start : LANES;
        Floats part[MOST][kinds][LANES];
        float rest[MOST][kinds][LANES];
        for (long t = 0; t < here; ++t, bytes += width) {
            ahead(bytes, width);
            Floats c[kinds][one ? 1 : (W ? W : WIDEST) / LANES];
            if constexpr (!one)
                for (long d = 0; d < even; d += LANES)
                    unpacked<Code...>(bytes + d, [&](int j, Floats v) { c[j][d / LANES] = v; });
            for (long m = 0; m < s.rows; ++m) {
                Floats sums[kinds] = {};
                for (long d = 0; d < even; d += LANES) {
                    const Floats own = load(x + m * width + d);
                    if constexpr (one)
                        unpacked<Code...>(bytes + d, [&](int j, Floats v) { sums[j] += own * v; });
                    else
                        for (int j = 0; j < kinds; ++j) sums[j] += own * c[j][d / LANES];
                }
                for (int j = 0; j < kinds; ++j) part[m][j][t] = sums[j];
                if constexpr (W == 0) {
                    int j = 0;
                    ((rest[m][j++][t] = tail<Code>(x + m * width, bytes, even, width)), ...);
                }
            }
        }
        for (long m = 0; m < s.rows; ++m)
            for (int j = 0; j < kinds; ++j) {
                for (long t = here; t < LANES; ++t) part[m][j][t] = Floats{};
                const Floats total = sums_of(part[m][j]);
                float* to = out + m * s.stride + j * s.held + start;
                for (long t = 0; t < here; ++t) to[t] = W ? total[t] : total[t] + rest[m][j][t];
            }
    }
}

// out[m][d] += sum over tokens of p[j][m][t] c[d], for the tokens of `count` rows of bytes.
template <long W, bool one, typename... Code>
inline void add(const float (*p)[MOST][BLOCK], const Sizes& s, const uint8_t* bytes, float* __restrict out, long count) {
    constexpr int kinds = sizeof...(Code);
    const long width = W ? W : s.width, even = width / LANES * LANES;
    for (long d = 0; d < even; d += LANES) {
        Floats c[kinds][one ? 1 : BLOCK];
        if constexpr (!one)
            for (long t = 0; t < count; ++t) unpacked<Code...>(bytes + t * width + d, [&](int j, Floats v) { c[j][t] = v; });
        for (long m = 0; m < s.rows; ++m) {
            Floats sum = load(out + m * width + d);
            for (long t = 0; t < count; ++t)
                if constexpr (one)
                    unpacked<Code...>(bytes + t * width + d, [&](int j, Floats v) { sum += p[j][m][t] * v; });
                else
                    for (int j = 0; j < kinds; ++j) sum += p[j][m][t] * c[j][t];
            std::memcpy(out + m * width + d, &sum, sizeof sum);
        }
    }
    if constexpr (W == 0)
        for (long t = 0; t < count; ++t)
            for (long d = even; d < width; ++d)
                for (long m = 0; m < s.rows; ++m) {
                    int j = 0;
                    ((out[m * width + d] += p[j++][m][t] * Code::of(bytes[t * width + d])), ...);
                }
}

// Queries times a group's scales, and the contribution of its zero points to each score.
inline void prepare(const float* q, const uint16_t* scale, const uint16_t* base, const Sizes& s, float* x, float* shift) {
    for (long m = 0; m < s.rows; ++m) {
        shift[m] = 0.0f;
        for (long d = 0; d < s.width; ++d) {
            const float factor = widened(scale[d]), number = q[m * s.width + d];
            x[m * s.width + d] = number * factor;
            shift[m] += number * (widened(base[d]) - s.least() * factor);
        }
    }
}

// own[m][i] = p[m][i] times a token's scale; what the zero points contribute is added to shift[m].
inline void weigh(const float* p, const uint16_t* scale, const uint16_t* base, const Sizes& s, long count, float (*own)[BLOCK],
                  float* shift) {
    for (long m = 0; m < s.rows; ++m, p += s.stride) {
        float added = 0.0f;
        for (long i = 0; i < count; ++i) {
            own[m][i] = p[i] * widened(scale[i]);
            added += p[i] * widened(base[i]) - s.least() * own[m][i];
        }
        shift[m] += added;
    }
}

// out[m][d] += sum over a group's tokens of p[m][t] times value d of token t, but for the zero points, which go to shift[m].
template <long W, bool one>
inline void add_group(const float* p, const uint8_t* bytes, const uint16_t* scale, const uint16_t* base, const Sizes& s, float* out,
                      float* shift) {
    const long width = W ? W : s.width;
    float weights[2][MOST][BLOCK];
    for (long r = 0; r < s.held; r += BLOCK) {
        const long count = s.held - r < BLOCK ? s.held - r : BLOCK;
        const uint8_t* row = bytes + r * width;
        for (long t = 0; t < count; ++t) ahead(row + t * width, width);
        weigh(p + r, scale + r, base + r, s, count, weights[0], shift);
        if (s.bits == 8) {
            add<W, one, Whole>(weights, s, row, out, count);
        } else {
            const long upper = s.held + r;
            weigh(p + upper, scale + upper, base + upper, s, count, weights[1], shift);
            add<W, one, Lower, Upper>(weights, s, row, out, count);
        }
    }
}

// The scores of a group's tokens: q times keys, of which `x` and `shift` are made.
template <long W, bool one>
inline void score_group(const float* q, const uint8_t* bytes, const uint16_t* scale, const uint16_t* base, const Sizes& s, float* out) {
    float x[MOST * (W ? W : WIDEST)], shift[MOST];
    prepare(q, scale, base, s, x, shift);
    s.bits == 8 ? dots<W, one, Whole>(x, s, bytes, out) : dots<W, one, Lower, Upper>(x, s, bytes, out);
    for (long m = 0; m < s.rows; ++m)
        for (long t = 0; t < s.tokens(); ++t) out[m * s.stride + t] += shift[m];
}

}  // namespace codes
}  // namespace

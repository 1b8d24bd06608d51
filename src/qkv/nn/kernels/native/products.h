// Rows of numbers for products: fp32, bf16, 8 and 4 bits turned into vectors of floats, and dot products of 8-bit integers.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

namespace {

#ifdef __AVX512F__
constexpr long LANES = 16;
#else
constexpr long LANES = 8;
#endif
constexpr long LINE = 64;  // bytes
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
constexpr bool MOVED = true;          // codes of 8 bits are moved by 128, because instructions multiply unsigned by signed bytes
constexpr bool WIDE_INTEGERS = true;  // vectors of 64 bytes
#else
constexpr bool MOVED = false, WIDE_INTEGERS = false;
#endif

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif

template <typename T, long n>
struct Vector {
    using Type __attribute__((vector_size(n * sizeof(T)))) = T;
};
template <typename T, long n = LANES>
using Many = typename Vector<T, n>::Type;
using Floats = Many<float>;
using Eight = Many<float, 8>;

template <typename V, typename T>
inline V loaded(const T* x) {
    V v;
    std::memcpy(&v, x, sizeof v);
    return v;
}

template <typename V, typename T>
inline void stored(T* x, V v) {
    std::memcpy(x, &v, sizeof v);
}

template <typename To, typename From>
inline To bits_as(From v) {
    static_assert(sizeof(To) == sizeof(From), "");
    To out;
    std::memcpy(&out, &v, sizeof out);
    return out;
}

// The sum of a vector's numbers, in one order wherever it is called.
template <long n, typename T = float>
inline T sum(Many<T, n> v) {
    T x[n];
    std::memcpy(x, &v, sizeof v);
    for (long half = n / 2; half; half /= 2)
        for (long i = 0; i < half; ++i) x[i] += x[i + half];
    return x[0];
}

#if __has_builtin(__builtin_shufflevector)
// Four numbers of each of four vectors, side by side.
template <typename V>
inline V quarters(V a, V b, V c, V d) {
    const auto halves = [](V x, V y) {
        return __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               __builtin_shufflevector(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    };
    const V x = halves(a, b), y = halves(c, d);
    return __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

// Of each four numbers of a and b: the first with the third, and the second with the fourth.
template <typename V>
inline V pairs(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
           __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
#endif

// out[m][r] = the sum of x[r][m]'s numbers, in the order of `sum`.
template <long n, int R, int M, typename T>
inline void sums(const Many<T, n> (*x)[M], T (*out)[R]) {
#if __has_builtin(__builtin_shufflevector)
    if constexpr (n == 16 && R == 4) {
        Many<T, 16> four[M];  // of each m: four numbers of each r
        for (int m = 0; m < M; ++m) four[m] = quarters(x[0][m], x[1][m], x[2][m], x[3][m]);
        if constexpr (M == 4) {
            const auto a = pairs(four[0], four[1]), b = pairs(four[2], four[3]);
            stored(&out[0][0], __builtin_shufflevector(a, b, 0, 4, 8, 12, 2, 6, 10, 14, 16, 20, 24, 28, 18, 22, 26, 30) +
                                   __builtin_shufflevector(a, b, 1, 5, 9, 13, 3, 7, 11, 15, 17, 21, 25, 29, 19, 23, 27, 31));
        } else {
            for (int m = 0; m < M; ++m) {
                const auto two = pairs(four[m], four[m]);
                stored(out[m], __builtin_shufflevector(two, two, 0, 4, 8, 12) + __builtin_shufflevector(two, two, 1, 5, 9, 13));
            }
        }
        return;
    }
#endif
    for (int r = 0; r < R; ++r)
        for (int m = 0; m < M; ++m) out[m][r] = sum<n, T>(x[r][m]);
}

// Room for numbers, from the start of a line of memory: vectors that lie in two lines take twice as long to read.
template <typename T>
T* room(std::vector<T>& held, long numbers) {
    const size_t least = numbers + LINE / sizeof(T);
    if (held.size() < least) held.resize(least);
    const auto place = reinterpret_cast<uintptr_t>(held.data());
    return reinterpret_cast<T*>((place + LINE - 1) / LINE * LINE);
}

inline float greatest(Eight v) {
    float x[8], most = 0.0f;
    std::memcpy(x, &v, sizeof v);
    for (int i = 0; i < 8; ++i) most = x[i] > most ? x[i] : most;
    return most;
}

// bf16 is the upper half of a float.
inline float widened(uint16_t half) { return bits_as<float>(static_cast<uint32_t>(half) << 16); }

// Rounded to the nearest bf16, to even where two are as near; NaN stays NaN.
inline uint16_t narrowed(float x) {
    const uint32_t bits = bits_as<uint32_t>(x);
    if (x != x) return static_cast<uint16_t>(bits >> 16 | 64);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Kinds of weights: LANES of them as floats, or one.
struct Full {
    using Code = float;
    static Floats many(const float* w) { return loaded<Floats>(w); }
    static float one(float w) { return w; }
};
struct Half {
    using Code = uint16_t;
    static Floats many(const uint16_t* w) {
#if defined(__AVX512F__)
        return bits_as<Floats>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(loaded<__m256i>(w)), 16));
#elif defined(__AVX2__)
        return bits_as<Floats>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(loaded<__m128i>(w)), 16));
#else
        return bits_as<Floats>(__builtin_convertvector(loaded<Many<uint16_t>>(w), Many<uint32_t>) << 16);
#endif
    }
    static float one(uint16_t w) { return widened(w); }
};
struct Byte {
    using Code = int8_t;
    static Floats many(const int8_t* w) {
#if defined(__AVX512F__)
        return bits_as<Floats>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(loaded<__m128i>(w))));
#elif defined(__AVX2__)
        return bits_as<Floats>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(w)))));
#else
        return __builtin_convertvector(__builtin_convertvector(loaded<Many<int8_t>>(w), Many<int32_t>), Floats);
#endif
    }
    static float one(int8_t w) { return w; }
};

// Eight codes of 4 bits, in the order of columns.
inline Eight eight_digits(const uint8_t* codes) {
    const Many<uint32_t, 8> places = {0, 4, 8, 12, 16, 20, 24, 28};
    const auto digits = (loaded<uint32_t>(codes) - Many<uint32_t, 8>{}) >> places & 15;
    return __builtin_convertvector(bits_as<Many<int32_t, 8>>(digits), Eight);
}

template <int N>
using Integers = Many<int32_t, N>;
template <int N>
using Bytes = Many<int8_t, 4 * N>;

// sums + products of four neighbors: x signed from -127 to 127; codes signed, or where MOVED unsigned.
template <int N>
inline Integers<N> added(Integers<N> sums, Bytes<N> codes, Bytes<N> x) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    if constexpr (N == 16)
        return bits_as<Integers<N>>(_mm512_dpbusd_epi32(bits_as<__m512i>(sums), bits_as<__m512i>(codes), bits_as<__m512i>(x)));
    else
        return bits_as<Integers<N>>(_mm256_dpbusd_epi32(bits_as<__m256i>(sums), bits_as<__m256i>(codes), bits_as<__m256i>(x)));
#elif defined(__AVX2__)
    const __m256i a = bits_as<__m256i>(codes);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(bits_as<__m256i>(x), a));
    return sums + bits_as<Integers<N>>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#elif defined(__ARM_FEATURE_DOTPROD)
    int8x16_t a[2], b[2];
    int32x4_t parts[2];
    std::memcpy(a, &codes, sizeof a);
    std::memcpy(b, &x, sizeof b);
    std::memcpy(parts, &sums, sizeof parts);
    for (int i = 0; i < 2; ++i) parts[i] = vdotq_s32(parts[i], a[i], b[i]);
    return loaded<Integers<N>>(reinterpret_cast<const int32_t*>(parts));
#else
    for (int i = 0; i < N; ++i)
        for (int j = 0; j < 4; ++j) sums[i] += codes[4 * i + j] * x[4 * i + j];
    return sums;
#endif
}

}  // namespace

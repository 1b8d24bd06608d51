// Rows of numbers for products: fp32, bf16, 8 and 4 bits turned into vectors of floats, and dot products of 8-bit integers.
#pragma once
#include <cstdint>
#include <cstring>
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
template <long n>
inline float sum(Many<float, n> v) {
    float x[n];
    std::memcpy(x, &v, sizeof v);
    for (long half = n / 2; half; half /= 2)
        for (long i = 0; i < half; ++i) x[i] += x[i + half];
    return x[0];
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

// Sums of four products of neighbors, of 32 bytes: a signed from -127 to 127, b signed.
inline Many<int32_t, 8> fours(Many<int8_t, 32> a, Many<int8_t, 32> b) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    const __m256i x = bits_as<__m256i>(a), y = bits_as<__m256i>(b);
    return bits_as<Many<int32_t, 8>>(_mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_abs_epi8(y), _mm256_sign_epi8(x, y)));
#elif defined(__AVX2__)
    const __m256i x = bits_as<__m256i>(a), y = bits_as<__m256i>(b);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(y), _mm256_sign_epi8(x, y));
    return bits_as<Many<int32_t, 8>>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#elif defined(__ARM_FEATURE_DOTPROD)
    int8x16_t x[2], y[2];
    int32x4_t sums[2];
    std::memcpy(x, &a, sizeof x);
    std::memcpy(y, &b, sizeof y);
    for (int i = 0; i < 2; ++i) sums[i] = vdotq_s32(vdupq_n_s32(0), x[i], y[i]);
    return loaded<Many<int32_t, 8>>(reinterpret_cast<const int32_t*>(sums));
#else
    Many<int32_t, 8> sums;
    for (int i = 0; i < 8; ++i) {
        int32_t total = 0;
        for (int j = 0; j < 4; ++j) total += a[4 * i + j] * b[4 * i + j];
        sums[i] = total;
    }
    return sums;
#endif
}

// The same for codes from 0 to 15: low and high halves of 32 bytes, times 32 numbers each.
inline Many<int32_t, 8> fours(Many<uint8_t, 32> codes, const int8_t* low, const int8_t* high) {
    const auto x = loaded<Many<int8_t, 32>>(low), y = loaded<Many<int8_t, 32>>(high);
    const auto lower = codes & 15, upper = codes >> 4;
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), bits_as<__m256i>(lower), bits_as<__m256i>(x));
    return bits_as<Many<int32_t, 8>>(_mm256_dpbusd_epi32(sums, bits_as<__m256i>(upper), bits_as<__m256i>(y)));
#elif defined(__AVX2__)
    const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(bits_as<__m256i>(lower), bits_as<__m256i>(x)),
                                           _mm256_maddubs_epi16(bits_as<__m256i>(upper), bits_as<__m256i>(y)));
    return bits_as<Many<int32_t, 8>>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#else
    return fours(x, bits_as<Many<int8_t, 32>>(lower)) + fours(y, bits_as<Many<int8_t, 32>>(upper));
#endif
}

}  // namespace

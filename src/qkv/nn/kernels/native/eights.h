// Vectors of eight floats: loads from fp32 and bf16, sums of their numbers, and transposes. Exponentials and the like of vectors
// of any width.
#pragma once
#include <cstdint>
#include <cstring>

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif

namespace {

constexpr long EIGHT = 8;
using Eight = float __attribute__((vector_size(32)));

inline Eight eight(const float* x) {
    Eight v;
    std::memcpy(&v, x, sizeof v);
    return v;
}

// bf16 is the upper half of a float.
inline Eight eight(const uint16_t* x) {
    uint32_t wide[EIGHT];  // a loop, which compilers vectorize
    for (int i = 0; i < EIGHT; ++i) wide[i] = static_cast<uint32_t>(x[i]) << 16;
    Eight v;
    std::memcpy(&v, wide, sizeof v);
    return v;
}

inline float number(const float* x) { return *x; }
inline float number(const uint16_t* x) {
    const uint32_t bits = static_cast<uint32_t>(*x) << 16;
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
}

inline void put(float* to, float x) { *to = x; }
// Rounded to the nearest bf16, to even where two are as near; NaN stays NaN.
inline void put(uint16_t* to, float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    *to = static_cast<uint16_t>(x != x ? (bits >> 16 | 64) : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline void put(float* to, Eight v) { std::memcpy(to, &v, sizeof v); }
inline void put(uint16_t* to, Eight v) {
    for (int i = 0; i < EIGHT; ++i) put(to + i, v[i]);
}

template <class V = Eight>
inline V all(float x) {
    return x - V{};
}

#if __has_builtin(__builtin_shufflevector)
// Rows and columns of eight vectors exchanged.
inline void transpose(Eight* x) {
    for (int i = 0; i < 4; ++i) {
        const Eight a = x[i], b = x[i + 4];
        x[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
        x[i + 4] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int j = 0; j < 4; ++j) {
        const int i = j / 2 * 4 + j % 2;
        const Eight a = x[i], b = x[i + 2];
        x[i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
        x[i + 2] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < 8; i += 2) {
        const Eight a = x[i], b = x[i + 1];
        x[i] = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
        x[i + 1] = __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    }
}
#else
inline void transpose(Eight* x) {
    for (int i = 0; i < EIGHT; ++i)
        for (int j = 0; j < i; ++j) {
            const float kept = x[i][j];
            x[i][j] = x[j][i];
            x[j][i] = kept;
        }
}
#endif

inline float sum_of(Eight v) {
    float x[EIGHT];
    std::memcpy(x, &v, sizeof v);
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

// e^x; 0 where that is denormal, infinite above 88.7, NaN for NaN: 2^n, n the integer nearest to x log2 e, times a polynomial
// of the rest.
template <class V>
inline V exponential(V x) {
    const V low = all<V>(-87.3f), high = all<V>(88.7f);
    V y = x < low ? low : x;
    y = y > high ? high : y;
    const V moved = y * 1.44269504088896340736f + 12582912.0f, whole = moved - 12582912.0f;
    const V f = (y - whole * 0.693145751953125f) - whole * 1.42860682030941723212e-6f;  // ln 2 in two parts
    V p = all<V>(1.3981999e-3f);
    p = p * f + 8.3334519e-3f;
    p = p * f + 4.1665795e-2f;
    p = p * f + 1.6666665e-1f;
    p = p * f + 0.5f;
    p = (p * f + 1.0f) * f + 1.0f;
    decltype(x < x) bits, n;  // integers
    std::memcpy(&bits, &p, sizeof bits);
    std::memcpy(&n, &moved, sizeof n);
    bits += n << 23;
    std::memcpy(&p, &bits, sizeof p);
    p = x > high ? all<V>(__builtin_inff()) : p;
    p = x < low ? V{} : p;
    return x == x ? p : x;
}

template <class V>
inline V sigmoid(V x) { return 1.0f / (1.0f + exponential(-x)); }

// Near 0 a polynomial, where the quotient would lose digits.
template <class V>
inline V hyperbolic_tangent(V x) {
    const V size = x < 0.0f ? -x : x, t = x * x;
    const V near = x + x * t * (-0.33333333f + t * (0.13333333f + t * (-0.053968254f + t * 0.021869488f)));
    const V far = 1.0f - 2.0f / (1.0f + exponential(2.0f * size));
    return size < 0.25f ? near : (x < 0.0f ? -far : far);
}

// Φ(x) = (1 + erf(x / √2)) / 2, to 3e-7: erf(z) = z P(z²) / Q(z²), fitted where |z| ≤ 3.9, and ±1 beyond.
template <class V>
inline V normal_distribution(V x) {
    const V z = x * 0.70710678118654752440f, t = z * z;
    V p = all<V>(2.0503850e-6f), q = all<V>(3.8230755e-5f);
    p = p * t + 2.8745796e-4f;
    q = q * t + 1.1817406e-3f;
    p = p * t + 3.8369002e-3f;
    q = q * t + 1.5109252e-2f;
    p = p * t + 5.2966992e-2f;
    q = q * t + 1.1475843e-1f;
    p = p * t + 1.9194155e-1f;
    q = q * t + 5.0343554e-1f;
    p = p * t + 1.1283790f;
    q = q * t + 1.0f;
    const V erf = t > 15.21f ? (z < 0.0f ? all<V>(-1.0f) : all<V>(1.0f)) : z * p / q;
    return 0.5f + 0.5f * erf;
}

}  // namespace

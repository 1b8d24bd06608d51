// Vectors of sixteen floats: products held in registers, powers of two, and transposition.
#pragma once
#include <cstdint>
#include <cstring>

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif

namespace {

constexpr long LANES = 16;
#ifdef __AVX512F__
constexpr int MOST = 4;  // vectors of a product's row at a time: with six rows, they fill the registers
#else
constexpr int MOST = 1;
#endif
constexpr float SERIES[] = {1.0f, 6.9314718e-1f, 2.4022651e-1f, 5.5504109e-2f, 9.6181291e-3f, 1.3333558e-3f};  // (ln 2)^i / i!
constexpr float LOG2_E = 1.44269504088896340736f, LN_2 = 0.69314718055994530942f;

using Floats = float __attribute__((vector_size(4 * LANES)));
using Ints = int32_t __attribute__((vector_size(4 * LANES)));

inline Floats load(const float* x) {
    Floats v;
    std::memcpy(&v, x, sizeof v);
    return v;
}

inline void store(float* x, Floats v) { std::memcpy(x, &v, sizeof v); }

inline Floats filled(float x) { return x - Floats{}; }

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// 2^x for x <= 0, 0 where that is denormal, NaN for NaN: 2^n with n the nearest integer, times a polynomial of the rest.
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

// c[r][n] (+)= sum_i a(r, i) b[i][n] for R rows and N vectors, held in registers.
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

// Transpose sixteen rows of sixteen numbers, by exchanging numbers `step` apart between rows `step` apart.
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

}  // namespace

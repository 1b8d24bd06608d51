// Products of bf16 by the processor's instructions for them: activations are rounded to bf16, sums are in fp32.
#pragma once
#include "integer_tiles.h"

namespace {

#ifdef __AVX512BF16__
constexpr bool HAS_HALF_PRODUCTS = true;
#else
constexpr bool HAS_HALF_PRODUCTS = false;
#endif
constexpr long HALF_SPAN = 32;  // columns of a vector
constexpr int HALF_ROWS = 4;    // rows of x at a time: with OUTS rows of W their sums fill half of the registers

// Whether there is a kernel for these products.
bool halves_fit(const Sizes& s) { return HAS_HALF_PRODUCTS && s.kind == HALF && s.depth % HALF_SPAN == 0; }

// out[m][r] = sum_i w[r][i] x[m][i], for R rows of W and X of x.
template <int R, int X>
inline void half_tile(const uint16_t* w, const Inputs& in, long first, const Sizes& s, float (*out)[R]) {
#ifdef __AVX512BF16__
    const uint16_t* x = in.halves + first * s.depth;
    Many<float, 16> total[R][X] = {};
    for (long i = 0; i < s.depth; i += HALF_SPAN) {
        Many<uint16_t, 32> rows[R];
        for (int r = 0; r < R; ++r) {
            prefetch(w + R * i + r * HALF_SPAN, in.ahead);
            rows[r] = loaded<Many<uint16_t, 32>>(w + r * s.depth + i);
        }
        for (int m = 0; m < X; ++m) {
            const auto own = held(loaded<Many<uint16_t, 32>>(x + m * s.depth + i));
            for (int r = 0; r < R; ++r)
                total[r][m] = bits_as<Many<float, 16>>(
                    _mm512_dpbf16_ps(bits_as<__m512>(total[r][m]), bits_as<__m512bh>(rows[r]), bits_as<__m512bh>(own)));
        }
    }
    sums<16, R, X>(total, out);
#endif
}

}  // namespace

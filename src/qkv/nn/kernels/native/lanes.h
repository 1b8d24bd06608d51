// Products of matrices lane by lane: one matrix is rearranged to panels, the other to rows that stand side by side.
//
// A lane of 32 bits has one number in fp32, two in bf16 or four in 8 bits. A panel has, for each lane of the columns, those of 16
// or 32 rows side by side, so that a vector of them is multiplied by one lane of the other matrix, and each lane of the sums is
// one output. The other matrix has up to ROWS rows side by side, lane by lane, so that both are read in order.
#pragma once
#include <algorithm>

#include "products.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define QKV_LANES 1
namespace {

constexpr long ACROSS = 16;  // outputs of a vector
constexpr int ROWS = 12;     // of the second matrix at a time: with two vectors of the panel their sums fill the registers

// The same vector in a register: compilers would read it from memory for each product.
inline __m512i in_register(__m512i x) {
    asm("" : "+v"(x));
    return x;
}

// Rows and columns of 16 vectors of 16 lanes exchanged.
inline void transposed(__m512i* x) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; ++j) {
            b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + 2 + j]);
            b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + 2 + j]);
        }
    for (int j = 0; j < 4; ++j) {
        const __m512i even[2] = {_mm512_shuffle_i32x4(b[j], b[4 + j], 0x88), _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88)};
        const __m512i odd[2] = {_mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd), _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd)};
        x[j] = _mm512_shuffle_i32x4(even[0], even[1], 0x88);
        x[8 + j] = _mm512_shuffle_i32x4(even[0], even[1], 0xdd);
        x[4 + j] = _mm512_shuffle_i32x4(odd[0], odd[1], 0x88);
        x[12 + j] = _mm512_shuffle_i32x4(odd[0], odd[1], 0xdd);
    }
}

// Vector `v` of each lane of a panel of V vectors, from `count` ≤ 16 rows of lanes, each `step` bytes after the one before. The
// last row stands for those that are missing.
template <int V>
inline void pack_panel(const char* rows, long step, long count, long lanes, int32_t moved, char* panel, int v) {
    const __m512i turned = _mm512_set1_epi32(moved);
    for (long i = 0; i < lanes; i += ACROSS) {
        const long left = std::min(ACROSS, lanes - i);
        const auto kept = static_cast<__mmask16>((1 << left) - 1);
        __m512i x[ACROSS];
        for (long r = 0; r < ACROSS; ++r)
            x[r] = _mm512_xor_si512(_mm512_maskz_loadu_epi32(kept, rows + std::min(r, count - 1) * step + 4 * i), turned);
        transposed(x);
        for (long j = 0; j < left; ++j) _mm512_store_si512(panel + ((i + j) * V + v) * LINE, x[j]);
    }
}

// The first `count` lanes of x. Whole vectors are stored without a mask, which is slow on some processors.
template <typename T>
inline void put_lanes(T* to, __m512i x, long count) {
    if (count == ACROSS) return _mm512_storeu_si512(to, x);
    _mm512_mask_storeu_epi32(to, static_cast<__mmask16>((1 << count) - 1), x);
}

// `count` ≤ ROWS rows of lanes, each `step` bytes after the one before, side by side.
inline void pack_rows(const char* rows, long step, long count, long lanes, int32_t* to) {
    const int32_t* stop = to + lanes * count;
    for (long i = 0; i < lanes; i += ACROSS) {
        const long left = std::min(ACROSS, lanes - i);
        const auto kept = static_cast<__mmask16>((1 << left) - 1);
        __m512i x[ACROSS] = {};
        for (long r = 0; r < count; ++r) x[r] = _mm512_maskz_loadu_epi32(kept, rows + r * step + 4 * i);
        transposed(x);
        for (long j = 0; j < left; ++j, to += count) put_lanes(to, x[j], to + ACROSS <= stop ? ACROSS : count);  // the next overwrites the rest
    }
}

inline void narrowed(const float* x, long count, uint16_t* to) {
    long i = 0;
#ifdef __AVX512BF16__
    for (; i + ACROSS <= count; i += ACROSS) stored(to + i, bits_as<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i))));
#endif
    for (; i < count; ++i) to[i] = narrowed(x[i]);
}

// How a vector of a panel and a lane of the other matrix are added to the sums.
struct FloatLanes {
    using Sum = Floats;
    using Number = float;
    static constexpr long WIDTH = 1;
    static constexpr bool THERE = true;
    static Sum added(Sum sum, __m512i w, int32_t x) {
        return bits_as<Sum>(_mm512_fmadd_ps(_mm512_castsi512_ps(w), _mm512_set1_ps(bits_as<float>(x)), bits_as<__m512>(sum)));
    }
};
struct HalfLanes {
    using Sum = Floats;
    using Number = uint16_t;
    static constexpr long WIDTH = 2;
#ifdef __AVX512BF16__
    static constexpr bool THERE = true;
    static Sum added(Sum sum, __m512i w, int32_t x) {
        return bits_as<Sum>(_mm512_dpbf16_ps(bits_as<__m512>(sum), bits_as<__m512bh>(w), bits_as<__m512bh>(_mm512_set1_epi32(x))));
    }
#else
    static constexpr bool THERE = false;
    static Sum added(Sum sum, __m512i, int32_t) { return sum; }
#endif
};
struct ByteLanes {
    using Sum = Integers<16>;
    static constexpr long WIDTH = 4;
#ifdef __AVX512VNNI__
    static constexpr bool THERE = true;
    static Sum added(Sum sum, __m512i w, int32_t x) {
        return bits_as<Sum>(_mm512_dpbusd_epi32(bits_as<__m512i>(sum), w, _mm512_set1_epi32(x)));
    }
#else
    static constexpr bool THERE = false;
    static Sum added(Sum sum, __m512i, int32_t) { return sum; }
#endif
};

// What is fetched to the cache meanwhile: memory from `from`, `step` bytes for each lane, at most two lines.
struct Ahead {
    const char* from = nullptr;
    long step = 0;
};

// total[r][v] = Σ_i panel[i][v] · x(r, i) for R rows of x, of which lane i of row r is x[r · row + i · step].
template <class K, int R, int V>
inline __attribute__((always_inline)) void panel_sums(const char* panel, const int32_t* x, long row, long step, long lanes,
                                                      typename K::Sum (*total)[V], Ahead ahead = {}) {
    if (lanes < 1) __builtin_unreachable();  // or compilers would write the zeros to memory too
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) total[r][v] = typename K::Sum{};
    for (long i = 0; i < lanes; ++i, panel += V * LINE, x += step) {
        if (ahead.from) {
            __builtin_prefetch(ahead.from, 0, 2);
            __builtin_prefetch(ahead.from + ahead.step / 2, 0, 2);
            ahead.from += ahead.step;
        }
        __m512i rows[V];
        for (int v = 0; v < V; ++v) rows[v] = in_register(_mm512_load_si512(panel + v * LINE));
        for (int r = 0; r < R; ++r) {
            const auto own = loaded<int32_t>(x + r * row);
            for (int v = 0; v < V; ++v) total[r][v] = K::added(total[r][v], rows[v], own);
        }
    }
}

}  // namespace
#endif

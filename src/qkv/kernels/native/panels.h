// Products of many rows: some rows of W are rearranged to a panel, which stays in the cache while all rows of x are read.
//
// A lane of 32 bits has two numbers in bf16 or four in 8 bits. A panel has, for each lane of the columns, those of 16 or 32 rows
// of W side by side, so that a vector is multiplied by one lane of x, and each lane of the sums is one output.
#pragma once
#include "half_tiles.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
namespace {

constexpr long ACROSS = 16;  // outputs of a vector
constexpr long PANEL_OUTS = 2 * ACROSS;
constexpr int PANEL_ROWS = 12;    // rows of x at a time: with two vectors of W their sums fill the registers
constexpr long PANEL_LEAST = 32;  // rows of x for which a panel is worth while

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
inline void fill(const char* rows, long step, long count, long lanes, int32_t moved, char* panel, int v) {
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

inline Floats widened(__mmask16 kept, const uint16_t* x) {
    return bits_as<Floats>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(kept, x)), 16));
}

inline Floats bias_of(const Weight& w, __mmask16 kept, long o) {
    if (!w.bias) return Floats{};
    return w.half_bias ? widened(kept, static_cast<const uint16_t*>(w.bias) + o)
                       : bits_as<Floats>(_mm512_maskz_loadu_ps(kept, static_cast<const float*>(w.bias) + o));
}

inline void put(Floats y, __mmask16 kept, const Place& to, const Sizes& s, long at) {
    if (!s.half) return _mm512_mask_storeu_ps(static_cast<float*>(to.y) + at, kept, bits_as<__m512>(y));
#ifdef __AVX512BF16__
    const auto own = bits_as<__m256i>(_mm512_cvtneps_pbh(bits_as<__m512>(y)));
#else
    Many<uint16_t, ACROSS> own;
    for (long i = 0; i < ACROSS; ++i) own[i] = narrowed(y[i]);
#endif
    _mm256_mask_storeu_epi16(static_cast<uint16_t*>(to.y) + at, kept, bits_as<__m256i>(own));
}

// Numbers in a lane: how a vector of W and a lane of x are added to the sums, and outputs of the sums.
struct HalfLanes {
    using Sum = Floats;
    static constexpr long WIDTH = 2;
    static constexpr int32_t TURNED = 0;
    static Sum added(Sum sum, __m512i w, int32_t x) {
#ifdef __AVX512BF16__
        return bits_as<Sum>(_mm512_dpbf16_ps(bits_as<__m512>(sum), bits_as<__m512bh>(w), bits_as<__m512bh>(_mm512_set1_epi32(x))));
#else
        return sum;
#endif
    }
    static int32_t moved(const Inputs&, long) { return 0; }
    static Floats output(Sum sum, int32_t, const Weight&, const Inputs&, __mmask16, long, long) { return sum; }
};
struct ByteLanes {
    using Sum = Integers<16>;
    static constexpr long WIDTH = 4;
    static constexpr int32_t TURNED = static_cast<int32_t>(0x80808080);  // codes are moved by 128, as `MOVED` says
    static Sum added(Sum sum, __m512i w, int32_t x) {
#ifdef __AVX512VNNI__
        return bits_as<Sum>(_mm512_dpbusd_epi32(bits_as<__m512i>(sum), w, _mm512_set1_epi32(x)));
#else
        return sum;
#endif
    }
    static int32_t moved(const Inputs& in, long m) {
        int32_t total = 0;
        for (long i = 0; i < in.moves; ++i) total += in.offsets[m * in.moves + i];
        return total;
    }
    static Floats output(Sum sum, int32_t moved, const Weight& w, const Inputs& in, __mmask16 kept, long o, long m) {
        const auto scales = bits_as<Floats>(_mm512_maskz_loadu_ps(kept, w.scales + o));
        return __builtin_convertvector(sum + moved, Floats) * scales * in.factors[m];
    }
};

// The outputs of R rows of x, from row `first`, and `count` ≤ 16 V rows of W, from row o, whose panel is given.
template <class K, int R, int V>
inline void panel_tile(const char* panel, const Weight& w, const Inputs& in, const Place& to, const Sizes& s, const char* x, long lanes,
                       long first, long o, long count) {
    typename K::Sum total[R][V] = {};
    x += first * lanes * 4;
    for (long i = 0; i < lanes; ++i, panel += V * LINE) {
        __m512i rows[V];
        for (int v = 0; v < V; ++v) rows[v] = held(_mm512_load_si512(panel + v * LINE));
        for (int r = 0; r < R; ++r) {
            const auto own = loaded<int32_t>(x + (r * lanes + i) * 4);
            for (int v = 0; v < V; ++v) total[r][v] = K::added(total[r][v], rows[v], own);
        }
    }
    int32_t moved[R];
    for (int r = 0; r < R; ++r) moved[r] = K::moved(in, first + r);
    for (int v = 0; v < V; ++v) {
        const long left = std::min(ACROSS, count - v * ACROSS), at = o + v * ACROSS;
        const auto kept = static_cast<__mmask16>((1 << left) - 1);
        const Floats bias = bias_of(w, kept, at);
        for (int r = 0; r < R; ++r) {
            const Floats y = K::output(total[r][v], moved[r], w, in, kept, at, first + r) + bias;
            put(y, kept, to, s, (first + r) * to.row + to.start + at);
        }
    }
}

// The same for all rows of x, in equal parts of at most PANEL_ROWS.
template <class K, int V, int R = PANEL_ROWS>
inline void panel_rows(long rows, const char* panel, const Weight& w, const Inputs& in, const Place& to, const Sizes& s, const char* x,
                       long lanes, long first, long o, long count) {
    if constexpr (R > 1)
        if (rows < R) return panel_rows<K, V, R - 1>(rows, panel, w, in, to, s, x, lanes, first, o, count);
    panel_tile<K, R, V>(panel, w, in, to, s, x, lanes, first, o, count);
}

template <class K, int V>
inline void panel_outputs(const Weight& w, const Inputs& in, const Place& to, const Sizes& s, const void* x, long o, long count) {
    thread_local std::vector<char> held;
    const long lanes = s.depth / K::WIDTH, bytes = bytes_of(s.kind, s.depth);
    char* panel = room(held, V * LINE * lanes);
    for (int v = 0; v < V; ++v) {
        const long own = o + v * ACROSS, some = std::min(ACROSS, o + count - own);
        fill<V>(static_cast<const char*>(w.codes) + own * bytes, bytes, some, lanes, K::TURNED, panel, v);
    }
    const long parts = (s.rows + PANEL_ROWS - 1) / PANEL_ROWS;
    for (long p = 0; p < parts; ++p) {
        const long first = s.rows * p / parts, next = s.rows * (p + 1) / parts;
        panel_rows<K, V>(next - first, panel, w, in, to, s, static_cast<const char*>(x), lanes, first, o, count);
    }
}

template <class K>
inline void panel_outputs(const Weight& w, const Inputs& in, const Place& to, const Sizes& s, const void* x, long o, long stop) {
    stop - o > ACROSS ? panel_outputs<K, 2>(w, in, to, s, x, o, stop - o) : panel_outputs<K, 1>(w, in, to, s, x, o, stop - o);
}

// Whether products are made from panels: of bf16, and of integers with one group of columns.
bool panels_fit(const Sizes& s, const Inputs& in) {
    if (s.rows < PANEL_LEAST) return false;
    return in.halves || (s.integer && WIDE_INTEGERS && s.kind == BYTE && in.groups == 1);
}

// The part of y from at most PANEL_OUTS rows of a weight, o to `stop`.
void panel_part(const Weight& w, const Inputs& in, const Place& to, const Sizes& s, long o, long stop) {
    s.integer ? panel_outputs<ByteLanes>(w, in, to, s, in.bytes, o, stop)
              : panel_outputs<HalfLanes>(w, in, to, s, in.halves, o, stop);
}

}  // namespace
#else
namespace {
constexpr long PANEL_OUTS = 32;
bool panels_fit(const Sizes&, const Inputs&) { return false; }
void panel_part(const Weight&, const Inputs&, const Place&, const Sizes&, long, long) {}
}  // namespace
#endif

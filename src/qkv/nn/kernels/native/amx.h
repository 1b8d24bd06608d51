// bf16 tiles on CPUs with AMX: products, and packing of their operands. The left side of a product is stored by rows; the
// right side by pairs of rows, (row 2i, row 2i + 1) for each column: `paired` below.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

using Half = uint16_t;

constexpr long SIDE = 64, LANES = 16, DEPTH = 32;

inline long up(long n, long unit) { return (n + unit - 1) / unit * unit; }

// Numbers at an address aligned for vectors and tiles.
template <class T>
class Space {
  public:
    explicit Space(long n) : at_(static_cast<T*>(std::aligned_alloc(64, up(n * sizeof(T), 64) + 64)), &std::free) {}
    T* get() const { return at_.get(); }
    operator T*() const { return at_.get(); }

  private:
    std::unique_ptr<T, void (*)(void*)> at_;
};

// -- tiles ---------------------------------------------------------------------------------------------------------------

struct alignas(64) Shapes {
    uint8_t palette = 1, start = 0, none[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

constexpr Shapes SHAPES;

// A memory barrier before tiles are loaded: GCC's functions do not declare that they read memory.
inline void settled() { asm volatile("" ::: "memory"); }

// While one of these exists, all tiles of its thread have 16 rows of 64 bytes.
struct Tiles {
    Tiles() {
        settled();
        _tile_loadconfig(&SHAPES);
    }
    ~Tiles() { _tile_release(); }
};

template <int M, int N>
inline void corner(const Half* a, long a_row, const uint32_t* b, long b_row, float* c, long c_row, long depth, bool add) {
    settled();
    if (add) {
        _tile_loadd(0, c, c_row * 4);
        if (N > 1) _tile_loadd(1, c + LANES, c_row * 4);
        if (M > 1) _tile_loadd(2, c + LANES * c_row, c_row * 4);
        if (M > 1 && N > 1) _tile_loadd(3, c + LANES * c_row + LANES, c_row * 4);
    } else {
        _tile_zero(0);
        if (N > 1) _tile_zero(1);
        if (M > 1) _tile_zero(2);
        if (M > 1 && N > 1) _tile_zero(3);
    }
    for (long i = 0; i < depth; ++i, a += DEPTH, b += LANES * b_row) {
        _tile_loadd(4, a, a_row * 2);
        _tile_loadd(6, b, b_row * 4);
        _tile_dpbf16ps(0, 4, 6);
        if (N > 1) {
            _tile_loadd(7, b + LANES, b_row * 4);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (M > 1) {
            _tile_loadd(5, a + LANES * a_row, a_row * 2);
            _tile_dpbf16ps(2, 5, 6);
            if (N > 1) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, c, c_row * 4);
    if (N > 1) _tile_stored(1, c + LANES, c_row * 4);
    if (M > 1) _tile_stored(2, c + LANES * c_row, c_row * 4);
    if (M > 1 && N > 1) _tile_stored(3, c + LANES * c_row + LANES, c_row * 4);
}

// c (16 m, 16 n) (+)= a (16 m, 32 depth) b (32 depth, 16 n), b paired.
void product(const Half* a, long a_row, const uint32_t* b, long b_row, float* c, long c_row, long m, long n, long depth,
             bool add) {
    for (long j = 0; j < n; j += 2) {
        const uint32_t* right = b + j * LANES;
        float* to = c + j * LANES;
        for (long i = 0; i < m; i += 2) {
            const Half* left = a + i * LANES * a_row;
            float* at = to + i * LANES * c_row;
            if (i + 1 < m && j + 1 < n)
                corner<2, 2>(left, a_row, right, b_row, at, c_row, depth, add);
            else if (i + 1 < m)
                corner<2, 1>(left, a_row, right, b_row, at, c_row, depth, add);
            else if (j + 1 < n)
                corner<1, 2>(left, a_row, right, b_row, at, c_row, depth, add);
            else
                corner<1, 1>(left, a_row, right, b_row, at, c_row, depth, add);
        }
    }
}

// -- packing ---------------------------------------------------------------------------------------------------------------

// Transpose sixteen rows of sixteen 32-bit numbers.
inline void turned(const __m512i* x, __m512i* y) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        a[i] = _mm512_shuffle_i32x4(b[i], b[i + 4], 0x88);
        a[i + 4] = _mm512_shuffle_i32x4(b[i], b[i + 4], 0xdd);
        a[i + 8] = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0x88);
        a[i + 12] = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; ++i) {
        y[i] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0x88);
        y[i + 8] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0xdd);
    }
}

// 32 numbers of a row of `width`, zero beyond it.
inline __m512i numbers(const Half* row, long from, long width) {
    const long left = width - from;
    return left >= DEPTH ? _mm512_loadu_si512(row + from)
                         : _mm512_maskz_loadu_epi16(left <= 0 ? 0 : (1u << left) - 1, row + from);
}

struct Rows {
    const Half* x;
    long step, count, width;  // from one row to the next; how many there are; numbers of a row
};

// Rows as they are, side by side, `wide` numbers each, and zeros up to `rows` rows.
void plain(Rows from, long rows, long wide, Half* to) {
    for (long i = 0; i < from.count; ++i)
        for (long d = 0; d < wide; d += DEPTH)
            _mm512_storeu_si512(to + i * wide + d, numbers(from.x + i * from.step, d, from.width));
    if (rows > from.count) std::memset(to + from.count * wide, 0, (rows - from.count) * wide * sizeof *to);
}

// Whether no number is infinite or NaN.
bool finite(Rows from) {
    const __m512i most = _mm512_set1_epi16(0x7f80);
    __mmask32 found = 0;
    for (long i = 0; i < from.count; ++i)
        for (long d = 0; d < from.width; d += DEPTH)
            found |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(numbers(from.x + i * from.step, d, from.width), most), most);
    return found == 0;
}

// Interleave two rows: the first sixteen columns, and the next.
inline void interlaced(__m512i a, __m512i b, __m512i* to) {
    const __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    to[0] = _mm512_permutex2var_epi64(low, first, high);
    to[1] = _mm512_permutex2var_epi64(low, second, high);
}

// Columns d to d + 32 of rows 2i and 2i + 1, paired; zero where there are none.
inline void pair_of_rows(Rows from, long i, long d, __m512i* to) {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i a = 2 * i < from.count ? numbers(from.x + 2 * i * from.step, d, from.width) : zero;
    const __m512i b = 2 * i + 1 < from.count ? numbers(from.x + (2 * i + 1) * from.step, d, from.width) : zero;
    interlaced(a, b, to);
}

// (rows / 2, wide) pairs, for products over the rows.
void paired(Rows from, long rows, long wide, uint32_t* to) {
    for (long i = 0; i < rows / 2; ++i)
        for (long d = 0; d < wide; d += DEPTH) {
            __m512i two[2];
            pair_of_rows(from, i, d, two);
            _mm512_storeu_si512(to + i * wide + d, two[0]);
            _mm512_storeu_si512(to + i * wide + d + LANES, two[1]);
        }
}

// (wide / 2, rows) pairs, for products over the columns.
void paired_across(Rows from, long rows, long wide, uint32_t* to) {
    for (long i = 0; i < rows; i += LANES)
        for (long d = 0; d < wide; d += DEPTH) {
            __m512i x[LANES];
            for (long r = 0; r < LANES; ++r)
                x[r] = i + r < from.count ? numbers(from.x + (i + r) * from.step, d, from.width) : _mm512_setzero_si512();
            turned(x, x);
            for (long r = 0; r < LANES; ++r) _mm512_storeu_si512(to + (d / 2 + r) * rows + i, x[r]);
        }
}

// For every SIDE rows (wide, SIDE): columns become rows.
void across(Rows from, long rows, long wide, Half* to) {
    for (long i = 0; i < rows; i += DEPTH)
        for (long d = 0; d < wide; d += DEPTH) {
            __m512i first[LANES], second[LANES];
            for (long r = 0; r < LANES; ++r) {
                __m512i two[2];
                pair_of_rows(from, i / 2 + r, d, two);
                first[r] = two[0];
                second[r] = two[1];
            }
            turned(first, first);
            turned(second, second);
            Half* at = to + i / SIDE * SIDE * wide + d * SIDE + i % SIDE;
            for (long r = 0; r < LANES; ++r) {
                _mm512_storeu_si512(at + r * SIDE, first[r]);
                _mm512_storeu_si512(at + (LANES + r) * SIDE, second[r]);
            }
        }
}

// x (wide, SIDE) in fp32, transposed and rounded, each of `count` rows times a factor, to rows of `width` numbers.
void written(const float* x, const float* factor, long count, long width, Half* to, long step) {
    for (long i = 0; i < count; i += LANES) {
        const __m512 times = _mm512_loadu_ps(factor + i);
        for (long e = 0; e < width; e += LANES) {
            __m512i tile[LANES];
            for (long r = 0; r < LANES; ++r)
                tile[r] = _mm512_castps_si512(_mm512_mul_ps(_mm512_loadu_ps(x + (e + r) * SIDE + i), times));
            turned(tile, tile);
            const __mmask16 there = width - e >= LANES ? 0xffff : (1u << (width - e)) - 1;
            for (long r = 0; r < LANES && i + r < count; ++r)
                _mm256_mask_storeu_epi16(to + (i + r) * step + e, there,
                                         (__m256i)_mm512_cvtneps_pbh(_mm512_castsi512_ps(tile[r])));
        }
    }
}

// Rows in fp32, rounded, times a factor.
void rounded(const float* x, long wide, float factor, long count, long width, Half* to, long step) {
    const __m512 times = _mm512_set1_ps(factor);
    for (long i = 0; i < count; ++i)
        for (long d = 0; d < width; d += LANES) {
            const __mmask16 there = width - d >= LANES ? 0xffff : (1u << (width - d)) - 1;
            const __m512 y = _mm512_mul_ps(_mm512_loadu_ps(x + i * wide + d), times);
            _mm256_mask_storeu_epi16(to + i * step + d, there, (__m256i)_mm512_cvtneps_pbh(y));
        }
}

}  // namespace

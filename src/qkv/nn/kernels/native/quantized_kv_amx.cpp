// Products of up to eight float rows with 8-bit and 4-bit codes on CPUs with AMX, Intel's matrix unit, for the queries that
// share a key-value head. The memory layout of the codes is that of quantized_kv.cpp.
//
// A row of floats is rounded to 16-bit integers times a factor, split into an upper and a lower byte. Their products with
// codes are exact in 32 bits, so the error is 2^-16 of a row's largest number.
#include <cstdint>
#include <cstring>

#if defined(__AMX_INT8__) && defined(__AVX512BW__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "structures.h"

namespace {

constexpr long LINE = 64, ROWS = 16, LANES = 16;   // bytes of a tile's row, rows of a tile, floats of a vector
constexpr long MOST = 8, HELD = 64, AHEAD = 4096;  // query rows, rows of codes at a time, bytes

struct Sizes {  // as in quantized_kv.cpp
    long heads, groups, rows, width, held;
    long jump, jump_scales;
    long stride;
    long parts;
    int bits, threads;
    long tokens() const { return bits == 4 ? 2 * held : held; }
    float least() const { return bits == 8 ? -128.0f : 0.0f; }
};

// The shapes of the eight tiles, in the format of AMX.
struct alignas(64) Shapes {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};

    explicit Shapes(const uint8_t (&counts)[8]) {
        for (int i = 0; i < 8; ++i) bytes[i] = LINE, rows[i] = counts[i];
    }
};

// A memory barrier before tiles are loaded: GCC's functions do not declare that they read memory.
inline void settled() { asm volatile("" ::: "memory"); }

inline __m512 widened(const uint16_t* halves) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

inline void ahead(const uint8_t* row, long width) {
    for (long d = 0; d < width; d += LINE) _mm_prefetch(reinterpret_cast<const char*>(row + AHEAD + d), _MM_HINT_T0);
}

inline __m512i lower(__m512i codes) { return _mm512_and_si512(codes, _mm512_set1_epi8(15)); }

inline __m512i upper(__m512i codes) { return lower(_mm512_srli_epi16(codes, 4)); }

// -- scores: tokens by dimensions, times dimensions by queries -----------------------------------------------------------

// Tiles 4 and 5: of 64 dimensions, four of a query side by side; upper bytes of queries first, then lower ones.
template <long W>
struct Queries {
    alignas(64) uint8_t bytes[W / LINE][ROWS][LINE] = {};
    alignas(64) float factor[2 * MOST] = {}, shift[2 * MOST] = {};

    Queries(const float* q, const uint16_t* scale, const uint16_t* base, long rows, float least) {
        for (long m = 0; m < rows; ++m) {
            __m512 x[W / LANES], sum = _mm512_setzero_ps(), top = sum;
            for (long d = 0; d < W; d += LANES) {
                const __m512 number = _mm512_loadu_ps(q + m * W + d);
                x[d / LANES] = _mm512_mul_ps(number, widened(scale + d));
                sum = _mm512_fmadd_ps(number, widened(base + d), _mm512_fnmadd_ps(x[d / LANES], _mm512_set1_ps(least), sum));
                top = _mm512_max_ps(top, _mm512_abs_ps(x[d / LANES]));
            }
            const float most = _mm512_reduce_max_ps(top);
            factor[m] = most * (256.0f / 32512.0f), factor[MOST + m] = most / 32512.0f;
            shift[m] = _mm512_reduce_add_ps(sum);
            const __m512 inverse = _mm512_set1_ps(most > 0 ? 32512.0f / most : 0.0f);
            for (long d = 0; d < W; d += LANES) put(m, d, _mm512_cvtps_epi32(_mm512_mul_ps(x[d / LANES], inverse)));
        }
    }

    // Sixteen dimensions of a query: 256 times a signed upper byte, and a signed lower byte.
    void put(long m, long d, __m512i x) {
        const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(128)), 8);
        alignas(16) int32_t fours[2][4];
        _mm_store_si128(reinterpret_cast<__m128i*>(fours[0]), _mm512_cvtepi32_epi8(high));
        _mm_store_si128(reinterpret_cast<__m128i*>(fours[1]), _mm512_cvtepi32_epi8(x));
        for (long i = 0; i < 4; ++i)
            for (long half = 0; half < 2; ++half)
                std::memcpy(bytes[d / LINE][d % LINE / 4 + i] + 4 * (half * MOST + m), fours[half] + i, 4);
    }
};

// Products (tokens, upper and lower bytes of queries) to scores of four queries each, token by token.
inline void put_scores(const int32_t* products, const float* factor, const float* shift, long rows, float* out, long stride) {
    alignas(64) float scores[ROWS][MOST];
    const __m512 factors = _mm512_load_ps(factor);
    for (long t = 0; t < ROWS; ++t) {
        const __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(products + t * LANES)), factors);
        const __m256 sum = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
        _mm256_store_ps(scores[t], _mm256_add_ps(sum, _mm256_load_ps(shift)));
    }
    for (long m = 0; m < rows; m += 4) {
        __m512 x[4];
        for (long i = 0; i < 4; ++i) {  // tokens i, 4 + i, 8 + i and 12 + i
            x[i] = _mm512_castps128_ps512(_mm_load_ps(scores[i] + m));
            x[i] = _mm512_insertf32x4(x[i], _mm_load_ps(scores[4 + i] + m), 1);
            x[i] = _mm512_insertf32x4(x[i], _mm_load_ps(scores[8 + i] + m), 2);
            x[i] = _mm512_insertf32x4(x[i], _mm_load_ps(scores[12 + i] + m), 3);
        }
        const __m512 a = _mm512_unpacklo_ps(x[0], x[1]), b = _mm512_unpackhi_ps(x[0], x[1]);
        const __m512 c = _mm512_unpacklo_ps(x[2], x[3]), d = _mm512_unpackhi_ps(x[2], x[3]);
        const __m512 turned[] = {
            _mm512_shuffle_ps(a, c, 0x44), _mm512_shuffle_ps(a, c, 0xee), _mm512_shuffle_ps(b, d, 0x44),
            _mm512_shuffle_ps(b, d, 0xee)};
        for (long i = 0; i < 4 && m + i < rows; ++i) _mm512_storeu_ps(out + (m + i) * stride, turned[i]);
    }
}

// Two tiles' codes, of sixteen tokens each, 0 ... 63 and perhaps 64 ... 127 of their dimensions.
template <long W>
inline void two(const void* a, const void* b, long stride, long next, int32_t (*products)[ROWS][LANES]) {
    settled();
    _tile_zero(0);
    _tile_zero(1);
    _tile_loadd(2, a, stride);
    _tile_loadd(3, b, stride);
    _tile_dpbssd(0, 2, 4);
    _tile_dpbssd(1, 3, 4);
    if constexpr (W > LINE) {
        _tile_loadd(2, static_cast<const uint8_t*>(a) + next, stride);
        _tile_loadd(3, static_cast<const uint8_t*>(b) + next, stride);
        _tile_dpbssd(0, 2, 5);
        _tile_dpbssd(1, 3, 5);
    }
    _tile_stored(0, products[0], LINE);
    _tile_stored(1, products[1], LINE);
}

// Sixteen rows of bytes, the codes of 4 bits of twice as many tokens; or 32 of 8 bits, which are read where they lie.
template <long W>
inline void multiplied(const uint8_t* row, int bits, int32_t (*products)[ROWS][LANES]) {
    if (bits == 8) {
        ahead(row, 2 * ROWS * W);
        return two<W>(row, row + ROWS * W, W, LINE, products);
    }
    alignas(64) uint8_t low[W / LINE][ROWS][LINE], high[W / LINE][ROWS][LINE];
    for (long t = 0; t < ROWS; ++t, row += W) {
        ahead(row, W);
        for (long d = 0; d < W; d += LINE) {
            const __m512i bytes = _mm512_loadu_si512(row + d);
            _mm512_store_si512(low[d / LINE][t], lower(bytes));
            _mm512_store_si512(high[d / LINE][t], upper(bytes));
        }
    }
    two<W>(low, high, LINE, ROWS * LINE, products);
}

template <long W>
void scores(const float* q, const uint8_t* codes, const uint16_t* scale, const uint16_t* base, float* out, const Sizes& s) {
    const Shapes shapes({ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS});
    const long step = s.bits == 4 ? ROWS : 2 * ROWS, apart = s.bits == 4 ? s.held : ROWS;
#pragma omp parallel num_threads(s.threads)
    {
        settled();
        _tile_loadconfig(&shapes);
#pragma omp for collapse(2)
        for (long h = 0; h < s.heads; ++h)
            for (long g = 0; g < s.groups; ++g) {
                const long at = h * s.jump_scales + g * W;
                const Queries<W> queries(q + h * s.rows * W, scale + at, base + at, s.rows, s.least());
                alignas(64) int32_t products[2][ROWS][LANES];
                settled();
                _tile_loadd(4, queries.bytes[0], LINE);
                if constexpr (W > LINE) _tile_loadd(5, queries.bytes[1], LINE);
                for (long r = 0; r < s.held; r += step) {
                    multiplied<W>(codes + h * s.jump + (g * s.held + r) * W, s.bits, products);
                    float* to = out + h * s.rows * s.stride + g * s.tokens() + r;
                    put_scores(products[0][0], queries.factor, queries.shift, s.rows, to, s.stride);
                    put_scores(products[1][0], queries.factor, queries.shift, s.rows, to + apart, s.stride);
                }
            }
        _tile_release();
    }
}

// -- mixed: weights by tokens, times tokens by dimensions ----------------------------------------------------------------

// Tiles 6 and 7: of twice 64 tokens, which are those of lower and of upper codes of 4 bits, bytes of weights; a row of upper
// bytes for each query, then a row of lower ones.
struct Weights {
    alignas(64) uint8_t bytes[2][2 * MOST][LINE];
    float factor[MOST];

    // Of tokens t ... t + 63 and as many `apart` from them. What their zeros add goes to `shift`.
    void take(const float* p, const uint16_t* scale, const uint16_t* base, long t, long apart, const Sizes& s, float* shift) {
        const __m512 least = _mm512_set1_ps(s.least());
        for (long m = 0; m < s.rows; ++m) {
            __m512 x[2][HELD / LANES], sum = _mm512_setzero_ps(), top = sum;
            for (long half = 0; half < 2; ++half)
                for (long i = 0; i < HELD; i += LANES) {
                    const long at = t + half * apart + i;
                    const __m512 weight = _mm512_loadu_ps(p + m * s.stride + at);
                    x[half][i / LANES] = _mm512_mul_ps(weight, widened(scale + at));
                    sum = _mm512_fmadd_ps(weight, widened(base + at), _mm512_fnmadd_ps(x[half][i / LANES], least, sum));
                    top = _mm512_max_ps(top, x[half][i / LANES]);
                }
            const float most = _mm512_reduce_max_ps(top);
            factor[m] = most / 65535.0f;
            shift[m] += _mm512_reduce_add_ps(sum);
            const __m512 inverse = _mm512_set1_ps(most > 0 ? 65535.0f / most : 0.0f);
            for (long half = 0; half < 2; ++half)
                for (long i = 0; i < HELD; i += LANES) {
                    const __m512i n = _mm512_cvtps_epi32(_mm512_mul_ps(x[half][i / LANES], inverse));
                    const __m128i high = _mm512_cvtepi32_epi8(_mm512_srli_epi32(n, 8)), low = _mm512_cvtepi32_epi8(n);
                    _mm_store_si128(reinterpret_cast<__m128i*>(bytes[half][m] + i), high);
                    _mm_store_si128(reinterpret_cast<__m128i*>(bytes[half][s.rows + m] + i), low);
                }
        }
    }
};

// Codes of twice 64 tokens, four tokens of a dimension side by side. Tile 4 c + k has in its column 4 l + j dimension
// 64 c + 16 l + 4 k + j, as bytes of four rows are joined within sixteen.
template <long W>
struct Values {
    alignas(64) uint8_t bytes[2][W / ROWS][ROWS][LINE];

    void take(const uint8_t* codes, int bits) {
        if (bits == 8) {
            take<8>(codes, 0);
            take<8>(codes + HELD * W, 1);
        } else {
            take<4>(codes, 0);
        }
    }

    // 64 rows: of 4 bits both halves, of 8 bits one.
    template <int bits>
    void take(const uint8_t* codes, long half) {
        for (long r = 0; r < ROWS; ++r, codes += 4 * W) {
            ahead(codes, 4 * W);
            for (long c = 0; c < W / LINE; ++c) {
                __m512i row[4];
                for (long i = 0; i < 4; ++i) row[i] = _mm512_loadu_si512(codes + i * W + c * LINE);
                const __m512i a = _mm512_unpacklo_epi8(row[0], row[1]), b = _mm512_unpackhi_epi8(row[0], row[1]);
                const __m512i d = _mm512_unpacklo_epi8(row[2], row[3]), e = _mm512_unpackhi_epi8(row[2], row[3]);
                const __m512i joined[] = {_mm512_unpacklo_epi16(a, d), _mm512_unpackhi_epi16(a, d), _mm512_unpacklo_epi16(b, e),
                                          _mm512_unpackhi_epi16(b, e)};
                for (long k = 0; k < 4; ++k) {
                    _mm512_store_si512(bytes[half][4 * c + k][r], bits == 8 ? joined[k] : lower(joined[k]));
                    if constexpr (bits == 4) _mm512_store_si512(bytes[1][4 * c + k][r], upper(joined[k]));
                }
            }
        }
    }
};

// Four tiles' products, (upper and lower bytes of weights, dimensions) each.
template <long W>
inline void four(const Values<W>& values, long tile, int32_t (*products)[2 * MOST][LANES]) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, values.bytes[0][tile], LINE);
    _tile_dpbusd(0, 6, 4);
    _tile_loadd(5, values.bytes[0][tile + 1], LINE);
    _tile_dpbusd(1, 6, 5);
    _tile_loadd(4, values.bytes[0][tile + 2], LINE);
    _tile_dpbusd(2, 6, 4);
    _tile_loadd(5, values.bytes[0][tile + 3], LINE);
    _tile_dpbusd(3, 6, 5);
    _tile_loadd(4, values.bytes[1][tile], LINE);
    _tile_dpbusd(0, 7, 4);
    _tile_loadd(5, values.bytes[1][tile + 1], LINE);
    _tile_dpbusd(1, 7, 5);
    _tile_loadd(4, values.bytes[1][tile + 2], LINE);
    _tile_dpbusd(2, 7, 4);
    _tile_loadd(5, values.bytes[1][tile + 3], LINE);
    _tile_dpbusd(3, 7, 5);
    _tile_stored(0, products[0], LINE);
    _tile_stored(1, products[1], LINE);
    _tile_stored(2, products[2], LINE);
    _tile_stored(3, products[3], LINE);
}

// Products of upper and of lower bytes, as what they stand for, added to sums.
inline void gathered(const int32_t* upper, const int32_t* lower, float factor, float* sums) {
    const __m512 high = _mm512_cvtepi32_ps(_mm512_load_si512(upper)), low = _mm512_cvtepi32_ps(_mm512_load_si512(lower));
    const __m512 sum = _mm512_fmadd_ps(high, _mm512_set1_ps(256.0f * factor), _mm512_load_ps(sums));
    _mm512_store_ps(sums, _mm512_fmadd_ps(low, _mm512_set1_ps(factor), sum));
}

template <long W>
void mixed(const float* p, const uint8_t* codes, const uint16_t* scale, const uint16_t* base, float* out, const Sizes& s) {
    const uint8_t both = 2 * s.rows;
    const long step = s.bits == 4 ? HELD : 2 * HELD, apart = s.bits == 4 ? s.held : HELD;
    const Shapes shapes({both, both, both, both, ROWS, ROWS, both, both});
#pragma omp parallel num_threads(s.threads)
    {
        settled();
        _tile_loadconfig(&shapes);
#pragma omp for collapse(2)
        for (long h = 0; h < s.heads; ++h)
            for (long part = 0; part < s.parts; ++part) {
                alignas(64) float sums[MOST][W / ROWS][LANES] = {};
                alignas(64) int32_t products[4][2 * MOST][LANES];
                float shift[MOST] = {};
                Weights weights;
                Values<W> values;
                for (long g = s.groups * part / s.parts; g < s.groups * (part + 1) / s.parts; ++g)
                    for (long r = 0; r < s.held; r += step) {
                        const long at = h * s.jump_scales;
                        weights.take(p + h * s.rows * s.stride, scale + at, base + at, g * s.tokens() + r, apart, s, shift);
                        values.take(codes + h * s.jump + (g * s.held + r) * W, s.bits);
                        settled();
                        _tile_loadd(6, weights.bytes[0], LINE);
                        _tile_loadd(7, weights.bytes[1], LINE);
                        for (long tile = 0; tile < W / ROWS; tile += 4) {
                            four(values, tile, products);
                            for (long m = 0; m < s.rows; ++m)
                                for (long i = 0; i < 4; ++i)
                                    gathered(products[i][m], products[i][s.rows + m], weights.factor[m], sums[m][tile + i]);
                        }
                    }
                float* to = out + (h * s.parts + part) * s.rows * W;
                for (long m = 0; m < s.rows; ++m)
                    for (long d = 0; d < W; ++d)
                        to[m * W + d] = sums[m][d / 64 * 4 + d / 4 % 4][d / 16 % 4 * 4 + d % 4] + shift[m];
            }
        _tile_release();
    }
}

}  // namespace

QKV_STRUCTURE(Sizes, QKV_FIELD(heads), QKV_FIELD(groups), QKV_FIELD(rows), QKV_FIELD(width), QKV_FIELD(held), QKV_FIELD(jump),
              QKV_FIELD(jump_scales), QKV_FIELD(stride), QKV_FIELD(parts), QKV_FIELD(bits), QKV_FIELD(threads))

extern "C" {

// Whether the CPU has AMX and the system lets this process use it.
int qkv_tiles() {
    constexpr long ask = 0x1023, tiles = 18;  // Linux's ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, ask, tiles) == 0;
}

// As in quantized_kv.cpp, for up to eight rows, 64 or 128 wide, and groups of a multiple of 128 tokens.
void qkv_scores(const float* x, const uint8_t* codes, const uint16_t* scale, const uint16_t* base, float* out,
                const Sizes* s) {
    s->width == 64 ? scores<64>(x, codes, scale, base, out, *s) : scores<128>(x, codes, scale, base, out, *s);
}

void qkv_mixed(const float* x, const uint8_t* codes, const uint16_t* scale, const uint16_t* base, float* out,
               const Sizes* s) {
    s->width == 64 ? mixed<64>(x, codes, scale, base, out, *s) : mixed<128>(x, codes, scale, base, out, *s);
}
}
#else
extern "C" int qkv_tiles() { return 0; }
#endif

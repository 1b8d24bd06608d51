// Products y = x W' + b of few rows x with one or several matrices W (out, in), at the pace at which memory gives W: fp32,
// bf16, and codes of 8 or 4 bits with a scale for each group of columns. Each W is read once, a few of its rows at a time.
//
// Every output of few rows is added up in the same order whatever their number, except that codes of several rows of floats are
// turned into floats first; `Order` asks for one order always. With `integer` each row of activations is rounded to 8 bits, and products are of integers.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
#include <vector>

#include "panels.h"
#include "unpacking.h"

namespace {

#ifdef __AVX512F__
constexpr int MOST = 6;  // rows of x at a time: with OUTS rows of W their sums fill the registers
#else
constexpr int MOST = 3;
#endif
constexpr long TASK = 1 << 16;      // bytes of W that a thread takes at a time
constexpr long SMALL = 1 << 16;     // bytes of W below which one thread is as fast
constexpr long NEAR = 24 << 10;      // bytes of rounded x that stay in the nearest cache while a task's rows of W are read
constexpr long AT_ONCE = 512;       // rows of x, which stay in the cache while W is read

// Prefetch the scales of the rows whose codes are prefetched while R rows are read.
template <int R>
inline void prefetch_scales(const float* scales, const Inputs& in) {
    const char* next = reinterpret_cast<const char*>(scales + in.rows_ahead * in.groups);
    for (long b = 0; b < R * in.groups * static_cast<long>(sizeof *scales); b += LINE) __builtin_prefetch(next + b);
}

// -- floats -----------------------------------------------------------------------------------------------------------------

// out[m][r] = sum over groups g of scale[r][g] * sum_i w[r][i] x[m][i], for R rows of W and X of x. `even`: groups are whole
// vectors.
template <class K, bool scaled, bool even, int R, int X>
inline void tile(const typename K::Code* w, const float* scales, long groups, long group, long depth, const float* x, long ahead,
                 float (*out)[R]) {
    constexpr long STEP = LINE / sizeof(typename K::Code);  // columns of a line of memory
    Floats total[R][X] = {};
    float rest[R][X] = {};
    for (long g = 0; g < groups; ++g) {
        Floats part[R][X] = {};
        const long stop = (g + 1) * group;
        long i = g * group;
        const auto add = [&](long at) {
            Floats row[R];
            for (int r = 0; r < R; ++r) row[r] = K::many(w + r * depth + at);
            for (int m = 0; m < X; ++m) {
                const Floats own = held(loaded<Floats>(x + m * depth + at));
                for (int r = 0; r < R; ++r) part[r][m] += row[r] * own;
            }
        };
        for (; i + STEP <= stop; i += STEP) {
            for (int r = 0; r < R; ++r) prefetch(w + R * i + r * STEP, ahead);
            for (long j = 0; j < STEP; j += LANES) add(i + j);
        }
        for (; i + LANES <= stop; i += LANES) add(i);
        for (int r = 0; r < R; ++r) {
            const float scale = scaled ? scales[r * groups + g] : 1.0f;
            for (int m = 0; m < X; ++m) {
                total[r][m] = scaled ? total[r][m] + scale * part[r][m] : part[r][m];
                if constexpr (!even) {
                    float left = 0.0f;
                    for (long j = i; j < stop; ++j) left += K::one(w[r * depth + j]) * x[m * depth + j];
                    rest[r][m] += scale * left;
                }
            }
        }
    }
    sums<LANES, R, X>(total, out);
    if constexpr (!even)
        for (int r = 0; r < R; ++r)
            for (int m = 0; m < X; ++m) out[m][r] += rest[r][m];
}

// The same for one row of each: columns are added up in P vectors, so that memory is read in its order.
template <class K, bool scaled, bool even>
inline float single(const typename K::Code* w, const float* scales, long groups, long group, const float* x, long ahead) {
    constexpr long STEP = LINE / sizeof(typename K::Code);
    constexpr int P = scaled ? 2 : STEP / LANES < 4 ? STEP / LANES : 4;
    Floats total[P] = {};
    float rest = 0.0f;
    for (long g = 0; g < groups; ++g) {
        Floats part[P] = {};
        const long stop = (g + 1) * group;
        long i = g * group;
        for (; i + STEP <= stop; i += STEP) {
            prefetch(w + i, ahead);
            for (long j = 0; j < STEP; j += P * LANES)
                for (int p = 0; p < P; ++p) part[p] += K::many(w + i + j + p * LANES) * loaded<Floats>(x + i + j + p * LANES);
        }
        for (; i + LANES <= stop; i += LANES) part[0] += K::many(w + i) * loaded<Floats>(x + i);
        const float scale = scaled ? scales[g] : 1.0f;
        for (int p = 0; p < P; ++p) total[p] = scaled ? total[p] + scale * part[p] : part[p];
        if constexpr (!even) {
            float left = 0.0f;
            for (long j = i; j < stop; ++j) left += K::one(w[j]) * x[j];
            rest += scale * left;
        }
    }
    for (int p = 1; p < P; ++p) total[0] += total[p];
    return sum<LANES>(total[0]) + rest;
}

// -- 4 bits: number j of a lane is column 8 lane + j of the columns in a vector of codes ---------------------------------------

// Digit j of each lane.
template <int N>
inline Many<float, N> digits(Many<uint32_t, N> codes, int j) {
#ifdef __AVX512F__
    if constexpr (N == 16) {  // the table is read by the lowest four bits of each lane
        const __m512 numbers = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        return bits_as<Many<float, N>>(_mm512_permutexvar_ps(bits_as<__m512i>(codes >> (4 * j)), numbers));
    }
#endif
    return __builtin_convertvector(bits_as<Many<int32_t, N>>(codes >> (4 * j) & 15), Many<float, N>);
}

template <int N, int PER, int R>
inline void nibble_tile(const uint8_t* w, const float* scales, const float* zeros, const Inputs& in, const Sizes& s,
                        float (*out)[R]) {
    constexpr long SPAN = 8 * N, STEP = 4 * N;  // columns and bytes of a vector of codes
    const long count = s.depth / SPAN, per = PER > 1 ? 1 : s.group / SPAN;
    Many<float, N> total[R][1] = {};
    for (long i = 0, g = 0; i < count; g += PER)
        for (const long stop = i + per; i < stop; ++i) {
            Many<float, N> parts[R][2] = {};
            for (int r = 0; r < R; ++r) {
                prefetch(w + (i * R + r) * STEP, in.ahead);
                parts[r][0] = loaded<Many<float, N>>(in.eights + N * i);
                if (zeros) parts[r][0] *= 0.125f * values_of<N, PER>(zeros + r * in.groups + g);
            }
            for (int j = 0; j < 8; ++j) {
                const auto x = loaded<Many<float, N>>(in.turned + i * SPAN + N * j);
                for (int r = 0; r < R; ++r)
                    parts[r][j % 2] += digits<N>(loaded<Many<uint32_t, N>>(w + (r * count + i) * STEP), j) * x;
            }
            for (int r = 0; r < R; ++r) total[r][0] += (parts[r][0] + parts[r][1]) * values_of<N, PER>(scales + r * in.groups + g);
        }
    sums<N, R, 1>(total, out);
}

template <int R>
inline void nibble_floats(const uint8_t* w, const float* scales, const float* zeros, const Inputs& in, const Sizes& s,
                          float (*out)[R]) {
    const long parts = in.span > s.group ? in.span / s.group : 1;
#ifdef __AVX512F__
    if (in.span == 2 * LINE)
        return parts == 4   ? nibble_tile<16, 4, R>(w, scales, zeros, in, s, out)
               : parts == 2 ? nibble_tile<16, 2, R>(w, scales, zeros, in, s, out)
                            : nibble_tile<16, 1, R>(w, scales, zeros, in, s, out);
#endif
    return parts == 2 ? nibble_tile<8, 2, R>(w, scales, zeros, in, s, out) : nibble_tile<8, 1, R>(w, scales, zeros, in, s, out);
}

// -- outputs ----------------------------------------------------------------------------------------------------------------

template <int R, int X>
inline void put(const float (*found)[R], const Weight& w, const Place& to, const Sizes& s, long first, long o) {
    float bias[R] = {};
    if (w.bias)
        for (int r = 0; r < R; ++r)
            bias[r] = w.half_bias ? widened(static_cast<const uint16_t*>(w.bias)[o + r]) : static_cast<const float*>(w.bias)[o + r];
    for (int m = 0; m < X; ++m) {
        const long at = (first + m) * to.row + to.start + o;
        for (int r = 0; r < R; ++r) {
            const float value = found[m][r] + bias[r];
            if (s.half)
                static_cast<uint16_t*>(to.y)[at + r] = narrowed(value);
            else
                static_cast<float*>(to.y)[at + r] = value;
        }
    }
}

// R rows of W, from row o, times X rows of x, from row `first`.
template <class K, bool scaled, int R, int X>
inline void floats(const Weight& w, const typename K::Code* codes, const Inputs& in, const Place& to, const Sizes& s, long first, long o) {
    float found[X][R];
    const float* scales = scaled ? w.scales + o * in.groups : nullptr;
    const long groups = scaled ? in.groups : 1, group = scaled ? s.group : s.depth;
    if constexpr (scaled) prefetch_scales<R>(scales, in);
    if (R == 1 && X == 1 && s.order != FEW)
        found[0][0] = group % LANES == 0 ? single<K, scaled, true>(codes, scales, groups, group, in.x + first * s.depth, in.ahead)
                                         : single<K, scaled, false>(codes, scales, groups, group, in.x + first * s.depth, in.ahead);
    else if (group % LANES == 0)
        tile<K, scaled, true, R, X>(codes, scales, groups, group, s.depth, in.x + first * s.depth, in.ahead, found);
    else
        tile<K, scaled, false, R, X>(codes, scales, groups, group, s.depth, in.x + first * s.depth, in.ahead, found);
    put<R, X>(found, w, to, s, first, o);
}

template <class K, bool scaled, int R, int X = MOST>
inline void some(int rows, const Weight& w, const typename K::Code* codes, const Inputs& in, const Place& to, const Sizes& s,
                 long first, long o) {
    if constexpr (X > 1)
        if (rows < X) return some<K, scaled, R, X - 1>(rows, w, codes, in, to, s, first, o);
    floats<K, scaled, R, X>(w, codes, in, to, s, first, o);
}

// The same for all rows of x, in equal parts of at most MOST.
template <class K, bool scaled, int R>
inline void all(const Weight& w, const typename K::Code* codes, const Inputs& in, const Place& to, const Sizes& s, long o) {
    const long parts = (s.rows + MOST - 1) / MOST;
    for (long p = 0; p < parts; ++p) {
        const long first = s.rows * p / parts, next = s.rows * (p + 1) / parts;
        some<K, scaled, R>(static_cast<int>(next - first), w, codes, in, to, s, first, o);
    }
}

template <class K, bool scaled, int R>
inline void direct(const Weight& w, const Inputs& in, const Place& to, const Sizes& s, long o) {
    all<K, scaled, R>(w, static_cast<const typename K::Code*>(w.codes) + o * s.depth, in, to, s, o);
}

template <int R>
inline void by_unpacking(const Weight& w, const Inputs& in, const Place& to, const Sizes& s, long o) {
    thread_local std::vector<float> held;
    float* rows = room(held, R * s.depth);
    for (int r = 0; r < R; ++r) row_as_floats(w, in, s, o + r, rows + r * s.depth);
    all<Full, false, R>(w, rows, in, to, s, o);
}

// The same by tiles of integers, or of bf16, for the rows of x from `first` to `stop`.
template <int R>
inline void by_halves(const Weight& w, const Inputs& in, const Place& to, const Sizes& s, long first, long stop, long o) {
    const auto some = [&](auto x) {
        constexpr int X = decltype(x)::value;
        for (; first + X <= stop; first += X) {
            float found[X][R];
            half_tile<R, X>(static_cast<const uint16_t*>(w.codes) + o * s.depth, in, first, s, found);
            put<R, X>(found, w, to, s, first, o);
        }
    };
    some(std::integral_constant<int, HALF_ROWS>());
    some(std::integral_constant<int, 2>());
    some(std::integral_constant<int, 1>());
}

template <int R>
inline void by_integers(const Weight& w, const Inputs& in, const Place& to, const Sizes& s, long first, long stop, long o) {
    const float* scales = w.scales + o * in.groups;
    prefetch_scales<R>(scales, in);
    const float* zeros = w.zeros ? w.zeros + o * in.groups : nullptr;
    const uint8_t* codes = static_cast<const uint8_t*>(w.codes) + o * bytes_of(s.kind, s.depth);
    const auto some = [&](auto x) {
        constexpr int X = decltype(x)::value;
        for (; first + X <= stop; first += X) {
            float found[X][R];
            integer_tile<R, X>(codes, scales, zeros, in, first, s, found);
            asm("" : "+m"(found));  // rounded before the bias is added, as in panels
            put<R, X>(found, w, to, s, first, o);
        }
    };
    some(std::integral_constant<int, INTEGER_ROWS>());
    some(std::integral_constant<int, 2>());
    some(std::integral_constant<int, 1>());
}

template <int R>
inline void outputs(const Weight& w, const Inputs& in, const Place& to, const Sizes& s, long o) {
    if (s.kind == FULL) return direct<Full, false, R>(w, in, to, s, o);
    if (s.kind == HALF && s.rows <= MOST) return direct<Half, false, R>(w, in, to, s, o);
    if (s.kind == BYTE && (s.rows <= MOST || s.order == FEW)) return direct<Byte, true, R>(w, in, to, s, o);
    if (s.kind == NIBBLE && in.turned) {
        float found[1][R];
        prefetch_scales<R>(w.scales + o * in.groups, in);
        const uint8_t* codes = static_cast<const uint8_t*>(w.codes) + o * s.depth / 2;
        const float* zeros = w.zeros ? w.zeros + o * in.groups : nullptr;
        nibble_floats<R>(codes, w.scales + o * in.groups, zeros, in, s, found);
        return put<R, 1>(found, w, to, s, 0, o);
    }
    by_unpacking<R>(w, in, to, s, o);
}

// The part of y from a task's rows of a weight, o to `stop`.
void part_of(const Weight& w, const Inputs& in, const Place& to, const Sizes& s, long o, long stop) {
    if (s.integer || in.halves) {
        const long bytes = s.depth * (s.integer ? 1 : 2), each = std::max(4L, NEAR / bytes / 4 * 4);
        for (long first = 0; first < s.rows; first += each) {
            const long next = std::min(s.rows, first + each);
            long own = o;
            for (; own + OUTS <= stop; own += OUTS)
                s.integer ? by_integers<OUTS>(w, in, to, s, first, next, own) : by_halves<OUTS>(w, in, to, s, first, next, own);
            for (; own < stop; ++own)
                s.integer ? by_integers<1>(w, in, to, s, first, next, own) : by_halves<1>(w, in, to, s, first, next, own);
        }
        return;
    }
    if (s.rows > 1 || s.kind == NIBBLE || s.order == FEW)
        for (; o + OUTS <= stop; o += OUTS) outputs<OUTS>(w, in, to, s, o);
    for (; o < stop; ++o) outputs<1>(w, in, to, s, o);
}

// y (rows, total): products with each weight, side by side.
void some_rows(const void* x, void* y, const Weight* weights, const Sizes& s, long total) {
    const bool by_panels = panels_fit(s);
    const PackedRows packed = by_panels ? packed_rows(x, s) : PackedRows{};
    const Inputs in = by_panels ? Inputs{} : prepared(x, s, halves_fit(s));
    const long row_bytes = std::max(1L, bytes_of(s.kind, s.depth));
    const long each = by_panels ? PANEL_OUTS : std::max(1L, TASK / row_bytes / OUTS) * OUTS;
    long tasks = 0;
    for (long i = 0; i < s.count; ++i) tasks += (weights[i].outs + each - 1) / each;
    const int threads = total * row_bytes * s.rows < SMALL ? 1 : std::min(s.threads, THREADS);
    shared_out(tasks, threads, [&](long task) {
        long i = 0, start = 0;
        for (long here; task >= (here = (weights[i].outs + each - 1) / each); ++i) {
            task -= here;
            start += weights[i].outs;
        }
        const long o = task * each, stop = std::min(weights[i].outs, o + each);
        by_panels ? panel_part(weights[i], packed, {y, total, start}, s, o, stop) : part_of(weights[i], in, {y, total, start}, s, o, stop);
    });
}

}  // namespace

extern "C" {

// As many of the threads as make sense while other programs compute (stalls.h).
int qkv_available(int threads) { return available_threads(threads, nanoseconds()); }

// The same at a time in nanoseconds, and a wait that ends then, after so much work: for tests.
int qkv_available_at(int threads, long now) { return available_threads(threads, now); }
void qkv_waited(long length, long work, long now) { waited(length, work, now); }

// Whether products are made from panels, which can apply an activation to them and add them to what is in y.
int qkv_by_panels(const Sizes* sizes) { return always_by_panels(*sizes); }

// y (rows, all outs): products with each weight, one after another.
void qkv_products(const void* x, void* y, const Weight* weights, const Sizes* sizes) {
    long total = 0;
    for (long i = 0; i < sizes->count; ++i) total += weights[i].outs;
    const long size = sizes->half ? 2 : 4;
    const long parts = (sizes->rows + AT_ONCE - 1) / AT_ONCE;
    for (long p = 0; p < parts; ++p) {
        const long first = sizes->rows * p / parts;
        Sizes part = *sizes;
        part.threads = qkv_available(sizes->threads);
        part.rows = sizes->rows * (p + 1) / parts - first;
        some_rows(static_cast<const char*>(x) + first * sizes->depth * size, static_cast<char*>(y) + first * total * size, weights,
                  part, total);
    }
}
}

// Products y = x W' + b of few rows x with one or several matrices W (out, in), at the pace at which memory gives W: fp32,
// bf16, and codes of 8 or 4 bits with a scale for each group of columns. Each W is read once, a few of its rows at a time.
//
// Every output is added up in the same order whatever the number of rows, except that codes of several rows of floats are
// turned into floats first. With `integer` activations are rounded to 8 bits in blocks of 32 columns, and products are of
// integers.
#include <algorithm>
#include <cmath>
#include <vector>

#include "products.h"

namespace {

#ifdef __AVX512F__
constexpr int MOST = 6;  // rows of x at a time: with OUTS rows of W their sums fill the registers
#else
constexpr int MOST = 3;
#endif
constexpr int OUTS = 4;             // rows of W at a time
constexpr long BLOCK = 32;          // columns with one scale of activations
constexpr long PAIR = 2 * BLOCK;    // columns of 32 bytes of 4-bit codes
constexpr long TASK = 1 << 16;      // bytes of W that a thread takes at a time
constexpr long SMALL = 1 << 18;     // bytes of W below which one thread is as fast

enum Kind { FULL, HALF, BYTE, NIBBLE };

struct Weight {
    const void* codes;    // (outs, depth), or (outs, depth / 2) for 4 bits: the even column in the lower half
    const float* scales;  // (outs, depth / group)
    const float* zeros;   // the same for 4 bits, or null for 8
    const void* bias;     // (outs), or null
    long outs;
    long half_bias;  // whether the bias is bf16
};

struct Sizes {
    long count, rows, depth, group;
    int kind, half, integer, threads;  // half: x and y are bf16
};

// What is prepared once for all threads.
struct Inputs {
    const float* x;        // (rows, depth)
    const float* turned;   // x for 4-bit codes: number j of lane i of 64 columns is column 8 i + j
    const float* sums;     // (rows, groups): sums of x over groups
    const int8_t* bytes;   // x in 8 bits; for 4-bit codes even columns come before odd ones in 64
    const float* factors;  // (rows, depth / 32), the scales of `bytes`
    long groups;
};

long bytes_of(int kind, long numbers) {
    return kind == FULL ? 4 * numbers : kind == HALF ? 2 * numbers : kind == BYTE ? numbers : numbers / 2;
}

// -- floats -----------------------------------------------------------------------------------------------------------------

// out[r][m] = sum over groups g of scale[r][g] * sum_i w[r][i] x[m][i], for R rows of W and X of x.
template <class K, bool scaled, int R, int X>
inline void tile(const typename K::Code* w, const float* scales, long groups, long group, long depth, const float* x,
                 float (*out)[X]) {
    Floats total[R][X] = {};
    float rest[R][X] = {};
    for (long g = 0; g < groups; ++g) {
        Floats part[R][X] = {};
        const long stop = (g + 1) * group;
        long i = g * group;
        for (; i + LANES <= stop; i += LANES) {
            Floats row[R];
            for (int r = 0; r < R; ++r) {
                row[r] = K::many(w + r * depth + i);
            }
            for (int m = 0; m < X; ++m) {
                const Floats own = loaded<Floats>(x + m * depth + i);
                for (int r = 0; r < R; ++r) part[r][m] += row[r] * own;
            }
        }
        for (int r = 0; r < R; ++r)
            for (int m = 0; m < X; ++m) {
                const float scale = scaled ? scales[r * groups + g] : 1.0f;
                float left = 0.0f;
                for (long j = i; j < stop; ++j) left += K::one(w[r * depth + j]) * x[m * depth + j];
                if constexpr (scaled) {
                    total[r][m] += scale * part[r][m];
                    rest[r][m] += scale * left;
                } else {
                    total[r][m] = part[r][m];
                    rest[r][m] = left;
                }
            }
    }
    for (int r = 0; r < R; ++r)
        for (int m = 0; m < X; ++m) out[r][m] = sum<LANES>(total[r][m]) + rest[r][m];
}

// Rows of W as floats.
template <class K>
inline void unpacked(const typename K::Code* w, const float* scales, long groups, long group, long depth, float* to) {
    for (long g = 0; g < groups; ++g) {
        const long stop = (g + 1) * group;
        const float scale = scales ? scales[g] : 1.0f;
        long i = g * group;
        for (; i + LANES <= stop; i += LANES) {
            const Floats numbers = scale * K::many(w + i);
            std::memcpy(to + i, &numbers, sizeof numbers);
        }
        for (; i < stop; ++i) to[i] = scale * K::one(w[i]);
    }
}

inline void unpacked_nibbles(const uint8_t* w, const float* scales, const float* zeros, long groups, long group, float* to) {
    for (long g = 0; g < groups; ++g) {
        const float scale = scales[g], zero = zeros ? zeros[g] : 8.0f;
        for (long i = g * group / 2; i < (g + 1) * group / 2; ++i) {
            to[2 * i] = scale * (static_cast<float>(w[i] & 15) - zero);
            to[2 * i + 1] = scale * (static_cast<float>(w[i] >> 4) - zero);
        }
    }
}

// -- 4 bits -----------------------------------------------------------------------------------------------------------------

// For lanes 0 to 3 the scale of 32 columns, for lanes 4 to 7 of the next 32, from scales of groups.
inline Eight halves(const float* scales, long column, long group) {
    const float a = scales[column / group], b = scales[(column + BLOCK) / group];
    return Eight{a, a, a, a, b, b, b, b};
}

// What zero points add: - sum over groups of scale * zero * (the sum of x).
inline float shift(const float* scales, const float* zeros, const float* sums, long groups) {
    float total = 0.0f;
    if (zeros)
        for (long g = 0; g < groups; ++g) total += scales[g] * zeros[g] * sums[g];
    else
        for (long g = 0; g < groups; ++g) total += 8.0f * scales[g] * sums[g];
    return -total;
}

template <int R>
inline void nibble_floats(const uint8_t* w, const float* scales, const float* zeros, const Inputs& in, const Sizes& s,
                          float (*out)[1]) {
    Eight total[R] = {};
    for (long i = 0; i < s.depth; i += PAIR)
        for (int r = 0; r < R; ++r) {
            const auto codes = loaded<Many<uint32_t, 8>>(w + (r * s.depth + i) / 2);
            Eight part = {};
            for (int j = 0; j < 8; ++j) {
                const auto digits = bits_as<Many<int32_t, 8>>(codes >> (4 * j) & 15);
                part += __builtin_convertvector(digits, Eight) * loaded<Eight>(in.turned + i + 8 * j);
            }
            total[r] += part * halves(scales + r * in.groups, i, s.group);
        }
    for (int r = 0; r < R; ++r)
        out[r][0] = sum<8>(total[r]) + shift(scales + r * in.groups, zeros ? zeros + r * in.groups : nullptr, in.sums, in.groups);
}

// -- integers ---------------------------------------------------------------------------------------------------------------

template <int R, int X>
inline void byte_integers(const int8_t* w, const float* scales, const Inputs& in, long first, const Sizes& s, float (*out)[X]) {
    const long blocks = s.depth / BLOCK, per = s.group / BLOCK;
    Eight total[R][X] = {};
    for (long b = 0; b < blocks; ++b)
        for (int r = 0; r < R; ++r) {
            const auto codes = loaded<Many<int8_t, 32>>(w + r * s.depth + b * BLOCK);
            const float scale = scales[r * in.groups + b / per];
            for (int m = 0; m < X; ++m) {
                const long row = first + m;
                const auto part = fours(loaded<Many<int8_t, 32>>(in.bytes + row * s.depth + b * BLOCK), codes);
                total[r][m] += __builtin_convertvector(part, Eight) * (scale * in.factors[row * blocks + b]);
            }
        }
    for (int r = 0; r < R; ++r)
        for (int m = 0; m < X; ++m) out[r][m] = sum<8>(total[r][m]);
}

template <int R, int X>
inline void nibble_integers(const uint8_t* w, const float* scales, const float* zeros, const Inputs& in, long first,
                            const Sizes& s, float (*out)[X]) {
    Eight total[R][X] = {};
    for (long i = 0; i < s.depth; i += PAIR)
        for (int r = 0; r < R; ++r) {
            const auto codes = loaded<Many<uint8_t, 32>>(w + (r * s.depth + i) / 2);
            const Eight scale = halves(scales + r * in.groups, i, s.group);
            for (int m = 0; m < X; ++m) {
                const long row = first + m;
                const int8_t* x = in.bytes + row * s.depth + i;
                const auto part = fours(codes, x, x + BLOCK);
                total[r][m] += __builtin_convertvector(part, Eight) * (scale * halves(in.factors + row * (s.depth / BLOCK), i, BLOCK));
            }
        }
    for (int r = 0; r < R; ++r)
        for (int m = 0; m < X; ++m)
            out[r][m] = sum<8>(total[r][m]) + shift(scales + r * in.groups, zeros ? zeros + r * in.groups : nullptr,
                                                    in.sums + (first + m) * in.groups, in.groups);
}

// -- inputs -----------------------------------------------------------------------------------------------------------------

template <typename T>
T* room(std::vector<T>& held, long numbers) {
    if (static_cast<long>(held.size()) < numbers) held.resize(numbers);
    return held.data();
}

// x rounded to 8 bits, block by block; `sums` are then those of the rounded numbers.
void rounded(const float* x, const Sizes& s, int8_t* bytes, float* factors, float* sums) {
    for (long b = 0; b < s.depth / BLOCK; ++b) {
        const float* own = x + b * BLOCK;
        float most = 0.0f;
        for (long i = 0; i < BLOCK; ++i) most = std::max(most, std::fabs(own[i]));
        const float factor = most / 127.0f, inverse = most > 0.0f ? 127.0f / most : 0.0f;
        long total = 0;
        for (long i = 0; i < BLOCK; ++i) {
            const int number = static_cast<int>(std::nearbyintf(own[i] * inverse));
            const long column = b * BLOCK + i, pair = column / PAIR * PAIR, place = column % PAIR;
            bytes[s.kind == NIBBLE ? pair + place / 2 + place % 2 * BLOCK : column] = static_cast<int8_t>(number);
            total += number;
        }
        factors[b] = factor;
        sums[b * BLOCK / s.group] += factor * total;
    }
}

Inputs prepared(const void* given, const Sizes& s) {
    thread_local std::vector<float> wide, arranged, added, factors;
    thread_local std::vector<int8_t> bytes;
    Inputs in = {static_cast<const float*>(given), nullptr, nullptr, nullptr, nullptr, s.depth / s.group};
    if (s.half) {
        float* to = room(wide, s.rows * s.depth);
        for (long i = 0; i < s.rows * s.depth; ++i) to[i] = widened(static_cast<const uint16_t*>(given)[i]);
        in.x = to;
    }
    if (s.kind == NIBBLE || s.integer) {
        float* sums = room(added, s.rows * in.groups);
        std::fill(sums, sums + s.rows * in.groups, 0.0f);
        in.sums = sums;
        if (!s.integer)
            for (long m = 0; m < s.rows; ++m)
                for (long i = 0; i < s.depth; ++i) sums[m * in.groups + i / s.group] += in.x[m * s.depth + i];
    }
    if (s.integer) {
        int8_t* to = room(bytes, s.rows * s.depth);
        float* scales = room(factors, s.rows * (s.depth / BLOCK));
        for (long m = 0; m < s.rows; ++m)
            rounded(in.x + m * s.depth, s, to + m * s.depth, scales + m * (s.depth / BLOCK), const_cast<float*>(in.sums) + m * in.groups);
        in.bytes = to;
        in.factors = scales;
    } else if (s.kind == NIBBLE && s.rows == 1) {
        float* to = room(arranged, s.depth);
        for (long i = 0; i + PAIR <= s.depth; i += PAIR)
            for (long j = 0; j < 8; ++j)
                for (long lane = 0; lane < 8; ++lane) to[i + 8 * j + lane] = in.x[i + 8 * lane + j];
        in.turned = to;
    }
    return in;
}

// -- outputs ----------------------------------------------------------------------------------------------------------------

struct Place {
    void* y;
    long row;    // numbers from one row of y to the next
    long start;  // the column of the weight's first output
};

template <int R, int X>
inline void put(const float (*found)[X], const Weight& w, const Place& to, const Sizes& s, long first, long o) {
    for (int r = 0; r < R; ++r) {
        float bias = 0.0f;
        if (w.bias)
            bias = w.half_bias ? widened(static_cast<const uint16_t*>(w.bias)[o + r]) : static_cast<const float*>(w.bias)[o + r];
        for (int m = 0; m < X; ++m) {
            const long at = (first + m) * to.row + to.start + o + r;
            const float value = found[r][m] + bias;
            if (s.half)
                static_cast<uint16_t*>(to.y)[at] = narrowed(value);
            else
                static_cast<float*>(to.y)[at] = value;
        }
    }
}

// R rows of W, from row o, times X rows of x, from row `first`.
template <class K, bool scaled, int R, int X>
inline void floats(const Weight& w, const typename K::Code* codes, const Inputs& in, const Place& to, const Sizes& s, long first, long o) {
    float found[R][X];
    const float* scales = scaled ? w.scales + o * in.groups : nullptr;
    tile<K, scaled, R, X>(codes, scales, scaled ? in.groups : 1, scaled ? s.group : s.depth, s.depth, in.x + first * s.depth, found);
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
    for (int r = 0; r < R; ++r) {
        const long row = o + r;
        float* own = rows + r * s.depth;
        if (s.kind == HALF)
            unpacked<Half>(static_cast<const uint16_t*>(w.codes) + row * s.depth, nullptr, 1, s.depth, s.depth, own);
        else if (s.kind == BYTE)
            unpacked<Byte>(static_cast<const int8_t*>(w.codes) + row * s.depth, w.scales + row * in.groups, in.groups, s.group,
                           s.depth, own);
        else
            unpacked_nibbles(static_cast<const uint8_t*>(w.codes) + row * s.depth / 2, w.scales + row * in.groups,
                             w.zeros ? w.zeros + row * in.groups : nullptr, in.groups, s.group, own);
    }
    all<Full, false, R>(w, rows, in, to, s, o);
}

template <int R, int X>
inline void integers(const Weight& w, const Inputs& in, const Place& to, const Sizes& s, long first, long o) {
    float found[R][X];
    const float* scales = w.scales + o * in.groups;
    if (s.kind == BYTE)
        byte_integers<R, X>(static_cast<const int8_t*>(w.codes) + o * s.depth, scales, in, first, s, found);
    else
        nibble_integers<R, X>(static_cast<const uint8_t*>(w.codes) + o * s.depth / 2, scales,
                              w.zeros ? w.zeros + o * in.groups : nullptr, in, first, s, found);
    put<R, X>(found, w, to, s, first, o);
}

template <int R>
inline void by_integers(const Weight& w, const Inputs& in, const Place& to, const Sizes& s, long o) {
    long first = 0;
    for (; first + 2 <= s.rows; first += 2) integers<R, 2>(w, in, to, s, first, o);
    if (first < s.rows) integers<R, 1>(w, in, to, s, first, o);
}

template <int R>
inline void outputs(const Weight& w, const Inputs& in, const Place& to, const Sizes& s, long o) {
    if (s.integer) return by_integers<R>(w, in, to, s, o);
    if (s.kind == FULL) return direct<Full, false, R>(w, in, to, s, o);
    if (s.kind == HALF && s.rows <= MOST) return direct<Half, false, R>(w, in, to, s, o);
    if (s.kind == BYTE && s.rows <= MOST) return direct<Byte, true, R>(w, in, to, s, o);
    if (s.kind == NIBBLE && s.rows == 1 && s.group % BLOCK == 0 && s.depth % PAIR == 0) {
        float found[R][1];
        nibble_floats<R>(static_cast<const uint8_t*>(w.codes) + o * s.depth / 2, w.scales + o * in.groups,
                         w.zeros ? w.zeros + o * in.groups : nullptr, in, s, found);
        return put<R, 1>(found, w, to, s, 0, o);
    }
    by_unpacking<R>(w, in, to, s, o);
}

}  // namespace

extern "C" {

// y (rows, all outs): products with each weight, one after another.
void qkv_products(const void* x, void* y, const Weight* weights, const Sizes* sizes) {
    const Sizes& s = *sizes;
    const Inputs in = prepared(x, s);
    const long row_bytes = std::max(1L, bytes_of(s.kind, s.depth));
    const long each = std::max(1L, TASK / row_bytes / OUTS) * OUTS;
    long tasks = 0, total = 0;
    for (long i = 0; i < s.count; ++i) {
        tasks += (weights[i].outs + each - 1) / each;
        total += weights[i].outs;
    }
    const int threads = total * row_bytes * s.rows < SMALL ? 1 : s.threads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (long task = 0; task < tasks; ++task) {
        long i = 0, start = 0, own = task;
        for (long here; own >= (here = (weights[i].outs + each - 1) / each); ++i) {
            own -= here;
            start += weights[i].outs;
        }
        const Weight& w = weights[i];
        const Place to = {y, total, start};
        const long stop = std::min(w.outs, (own + 1) * each);
        long o = own * each;
        for (; o + OUTS <= stop; o += OUTS) outputs<OUTS>(w, in, to, s, o);
        for (; o < stop; ++o) outputs<1>(w, in, to, s, o);
    }
}
}

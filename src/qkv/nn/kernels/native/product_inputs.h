// What products of few rows need to know of their activations, prepared once for all threads.
#pragma once
#include <algorithm>
#include <vector>

#include "products.h"
#include "structures.h"

namespace {

constexpr int OUTS = 4;           // rows of W at a time
constexpr long BLOCK = 32;        // columns in whose multiples groups are, for products of integers
constexpr long MANY = 1 << 15;    // numbers of activations that are worth all threads
constexpr long PAIR = 2 * BLOCK;  // columns of 32 bytes of 4-bit codes

enum Kind { FULL, HALF, BYTE, NIBBLE };

// In which order sums are added up: as is fastest for so many rows, or for any number of them in that of few rows or of panels.
enum Order { ANY, FEW, PANELS };

struct Sizes {
    long count, rows, depth, group;
    int kind, half, integer, threads;  // half: x and y are bf16
    int activation, adds;  // applied to y before it is added to what is there: of panels only, 0 elsewhere
    int order;  // `Order`
};

struct Weight {
    const void* codes;    // (outs, depth), or (outs, depth / 2) for 4 bits: the even column in the lower half
    const float* scales;  // (outs, depth / group)
    const float* zeros;   // the same for 4 bits, or null for 8
    const void* bias;     // (outs), or null
    long outs;
    long half_bias;  // whether the bias is bf16
};

struct Place {
    void* y;
    long row;    // numbers from one row of y to the next
    long start;  // the column of the weight's first output
};

// What is prepared once for all threads.
struct Inputs {
    const float* x;        // (rows, depth)
    const uint16_t* halves;  // x in bf16
    const float* turned;   // x for 4-bit codes: number j of lane i of `span` columns is column 8 i + j
    const float* eights;   // (rows, depth / 8): what a zero point of 8 takes from each lane
    const int8_t* bytes;   // x in 8 bits; for 4-bit codes even columns come before odd ones in each `span` of columns
    const float* factors;  // (rows), the scales of `bytes`
    const int32_t* offsets;  // (rows, moves): what makes up, in each lane, for codes that are moved to be unsigned
    long span, moves;        // columns in a vector of codes; offsets of a row: a vector for each group, or more
    long groups;
    long rows_ahead, ahead;  // from a row of W to the one that is prefetched meanwhile: rows, and bytes
};

long bytes_of(int kind, long numbers) {
    return kind == FULL ? 4 * numbers : kind == HALF ? 2 * numbers : kind == BYTE ? numbers : numbers / 2;
}

// As many rows ahead as were fastest on a Zen 4, and in whole tiles where several rows are read at a time.
long rows_ahead_of(const Sizes& s) {
    const long bytes = s.kind == NIBBLE ? 1 << 12 : s.kind == BYTE ? 1 << 13 : 1 << 14;
    const long row = bytes_of(s.kind, s.depth);
    const long rows = row < 1 ? 1 : (bytes + row - 1) / row;
    return s.rows == 1 && s.kind != NIBBLE ? rows : (rows + OUTS - 1) / OUTS * OUTS;
}

// A row of x rounded to 8 bits: to the nearest integer, to even where two are as near. Returns the scale, NaN where a number is
// NaN or infinite.
float rounded(const float* x, long depth, int8_t* bytes) {
    constexpr float MAGIC = 12582912.0f;  // to which small numbers are added as integers
    Eight most = {}, zero = {};
    for (long i = 0; i < depth; i += 8) {
        const Eight own = loaded<Eight>(x + i), size = own < 0.0f ? -own : own;
        most = size > most ? size : most;
        zero += own - own;
    }
    const float scale = std::max(greatest(most) / 127.0f, 1e-30f);
    for (long i = 0; i < depth; i += 8) {
        const auto moved = bits_as<Many<int32_t, 8>>(loaded<Eight>(x + i) / scale + MAGIC);
        stored(bytes + i, __builtin_convertvector(moved - bits_as<int32_t>(MAGIC), Many<int8_t, 8>));
    }
    return scale + sum<8>(zero);
}

// Sums over vectors of `bytes` of the numbers in each of their N lanes, times `times`.
template <int N>
void lanes_summed(const int8_t* x, long bytes, int32_t times, int32_t* to) {
    Integers<N> total = {};
    for (long i = 0; i < bytes; i += 4 * N) total = added<N>(total, Bytes<N>{} + 1, loaded<Bytes<N>>(x + i));
    stored(to, total * times);
}

// Even columns before odd ones in each `span` of columns.
void parted(int8_t* bytes, long depth, long span) {
    int8_t own[2 * LINE];
    for (long start = 0; start < depth; start += span, bytes += span) {
        std::memcpy(own, bytes, span);
        for (long i = 0; i < span / 2; ++i) {
            bytes[i] = own[2 * i];
            bytes[span / 2 + i] = own[2 * i + 1];
        }
    }
}

// For each block of 32 columns and each of its lanes: - 8 times a quarter of the sum of x.
void summed(const float* x, long depth, float* eights) {
    for (long b = 0; b < depth / BLOCK; ++b) {
        float total = 0.0f;
        for (long i = 0; i < BLOCK; ++i) total += x[b * BLOCK + i];
        for (long lane = 0; lane < 4; ++lane) eights[4 * b + lane] = -2.0f * total;
    }
}

// Whether there is a kernel for these 4-bit codes: other ones are turned into floats.
bool pairs_fit(const Sizes& s) { return s.depth % PAIR == 0 && (s.group == BLOCK || s.group % PAIR == 0); }

// Columns of a vector of codes: of the widest vectors that groups and width allow.
long span_of(const Sizes& s) {
    const long widest = s.kind == BYTE ? LINE : 2 * LINE;
    const bool halves = s.group == widest / 2 || (s.kind == NIBBLE && s.group == widest / 4);
    return (s.integer ? WIDE_INTEGERS : LANES == 16) && s.depth % widest == 0 && (s.group % widest == 0 || halves) ? widest : widest / 2;
}

// Activations for products of integers.
void round_rows(Inputs& in, const Sizes& s) {
    thread_local std::vector<float> scales;
    thread_local std::vector<int8_t> numbers;
    thread_local std::vector<int32_t> sums;
    const long columns = s.kind == BYTE ? 4 : 8, lanes = in.span / columns;
    const long each = std::max(s.group, in.span), groups = s.depth / each;  // columns that share a vector of offsets
    in.moves = groups * lanes;
    int8_t* bytes = room(numbers, s.rows * s.depth);
    float* factors = room(scales, s.rows);
    int32_t* offsets = room(sums, s.rows * in.moves);
#pragma omp parallel for num_threads(s.threads) if (s.threads > 1 && s.rows * s.depth > MANY)
    for (long m = 0; m < s.rows; ++m) {
        int8_t* own = bytes + m * s.depth;
        factors[m] = rounded(in.x + m * s.depth, s.depth, own);
        if (s.kind == NIBBLE) parted(own, s.depth, in.span);
        if (s.kind == NIBBLE || MOVED)
            for (long g = 0; g < groups; ++g) {
                int32_t* to = offsets + m * in.moves + g * lanes;
                const int32_t times = s.kind == BYTE ? -128 : -8;
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
                if (lanes == 16) {
                    lanes_summed<16>(own + g * each, each, times, to);
                    continue;
                }
#endif
                lanes_summed<8>(own + g * each, each, times, to);
            }
    }
    in.bytes = bytes;
    in.factors = factors;
    in.offsets = offsets;
}

Inputs prepared(const void* given, const Sizes& s, bool rounds) {
    thread_local std::vector<float> wide, arranged, added;
    thread_local std::vector<uint16_t> narrow;
    Inputs in = {};
    in.x = static_cast<const float*>(given);
    in.groups = s.depth / s.group;
    in.rows_ahead = rows_ahead_of(s);
    in.ahead = in.rows_ahead * bytes_of(s.kind, s.depth);
    if (rounds) {  // to bf16
        in.halves = static_cast<const uint16_t*>(given);
        if (s.half) return in;
        uint16_t* to = room(narrow, s.rows * s.depth);
        for (long i = 0; i < s.rows * s.depth; ++i) to[i] = narrowed(in.x[i]);
        in.halves = to;
        return in;
    }
    if (s.half) {
        float* to = room(wide, s.rows * s.depth);
        for (long i = 0; i < s.rows * s.depth; ++i) to[i] = widened(static_cast<const uint16_t*>(given)[i]);
        in.x = to;
    }
    in.span = span_of(s);
    if (s.integer) round_rows(in, s);
    if (s.integer || s.kind != NIBBLE || s.rows > 1 || s.order == FEW || !pairs_fit(s)) return in;
    float* eights = room(added, s.depth / 8);
    summed(in.x, s.depth, eights);
    float* to = room(arranged, s.depth);
    for (long i = 0; i < s.depth; i += in.span)
        for (long j = 0; j < 8; ++j)
            for (long lane = 0; lane < in.span / 8; ++lane) to[i + in.span / 8 * j + lane] = in.x[i + 8 * lane + j];
    in.turned = to;
    in.eights = eights;
    return in;
}

}  // namespace

QKV_STRUCTURE(Sizes, QKV_FIELD(count), QKV_FIELD(rows), QKV_FIELD(depth), QKV_FIELD(group), QKV_FIELD(kind), QKV_FIELD(half),
              QKV_FIELD(integer), QKV_FIELD(threads), QKV_FIELD(activation), QKV_FIELD(adds), QKV_FIELD(order))
QKV_STRUCTURE(Weight, QKV_FIELD(codes), QKV_FIELD(scales), QKV_FIELD(zeros), QKV_FIELD(bias), QKV_FIELD(outs),
              QKV_FIELD(half_bias))

// What products of few rows need to know of their activations, prepared once for all threads.
#pragma once
#include <vector>

#include "products.h"

namespace {

constexpr int OUTS = 4;           // rows of W at a time
constexpr long BLOCK = 32;        // columns with one scale of activations
constexpr long PAIR = 2 * BLOCK;  // columns of 32 bytes of 4-bit codes

enum Kind { FULL, HALF, BYTE, NIBBLE };

struct Sizes {
    long count, rows, depth, group;
    int kind, half, integer, threads;  // half: x and y are bf16
};

// What is prepared once for all threads.
struct Inputs {
    const float* x;        // (rows, depth)
    const float* turned;   // x for 4-bit codes: number j of lane i of 64 columns is column 8 i + j
    const int8_t* bytes;   // x in 8 bits; for 4-bit codes even columns come before odd ones in 64
    const float* factors;  // (rows, depth / 32), the scales of `bytes`
    const float* eights;   // (rows, depth / 8): what a zero point of 8 takes from each lane
    long groups;
    long rows_ahead, ahead;  // from a row of W to the one that is prefetched meanwhile: rows, and bytes
};

long bytes_of(int kind, long numbers) {
    return kind == FULL ? 4 * numbers : kind == HALF ? 2 * numbers : kind == BYTE ? numbers : numbers / 2;
}

// Of 16, 8 and 4 bits as many rows ahead as were fastest on a Zen 3, and in whole tiles where several rows are read at a time.
long rows_ahead_of(const Sizes& s) {
    const long bytes = s.kind == BYTE ? 1 << 13 : s.kind == HALF ? 1 << 10 : 1 << 11, row = bytes_of(s.kind, s.depth);
    const long rows = row < 1 ? 1 : (bytes + row - 1) / row;
    return s.rows == 1 && s.kind != NIBBLE ? rows : (rows + OUTS - 1) / OUTS * OUTS;
}

template <typename T>
T* room(std::vector<T>& held, long numbers) {
    if (static_cast<long>(held.size()) < numbers) held.resize(numbers);
    return held.data();
}

// x rounded to 8 bits, block by block: to the nearest integer, to even where two are as near. Where a number is NaN or infinite
// the factor is NaN.
void rounded(const float* x, const Sizes& s, int8_t* bytes, float* factors) {
    constexpr float MAGIC = 12582912.0f;  // to which small numbers are added as integers
    for (long b = 0; b < s.depth / BLOCK; ++b) {
        Eight own[BLOCK / 8], most = {}, zero = {};
        for (int i = 0; i < BLOCK / 8; ++i) {
            own[i] = loaded<Eight>(x + b * BLOCK + 8 * i);
            const Eight size = own[i] < 0.0f ? -own[i] : own[i];
            most = size > most ? size : most;
            zero += own[i] - own[i];
        }
        const float largest = greatest(most), inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
        int32_t numbers[BLOCK];
        for (int i = 0; i < BLOCK / 8; ++i) {
            const auto moved = bits_as<Many<int32_t, 8>>(own[i] * inverse + MAGIC);
            stored(numbers + 8 * i, moved - bits_as<int32_t>(MAGIC));
        }
        factors[b] = largest / 127.0f + sum<8>(zero);
        int8_t *even = bytes + b * BLOCK, *odd = even + 1;
        int step = 2;
        if (s.kind == NIBBLE) {
            even = bytes + b / 2 * PAIR + b % 2 * BLOCK / 2;
            odd = even + BLOCK;
            step = 1;
        }
        for (int i = 0; i < BLOCK / 2; ++i) {
            even[step * i] = static_cast<int8_t>(numbers[2 * i]);
            odd[step * i] = static_cast<int8_t>(numbers[2 * i + 1]);
        }
    }
}

// For each block of 32 columns and each of its lanes: - 8 times a quarter of the sum of x, or of its rounded numbers.
void summed(const float* x, const int8_t* bytes, const float* factors, long depth, float* eights) {
    for (long b = 0; b < depth / BLOCK; ++b) {
        float total = 0.0f;
        if (bytes) {
            const int8_t* even = bytes + b / 2 * PAIR + b % 2 * BLOCK / 2;
            int whole = 0;
            for (long i = 0; i < BLOCK / 2; ++i) whole += even[i] + even[i + BLOCK];
            total = factors[b] * static_cast<float>(whole);
        } else {
            for (long i = 0; i < BLOCK; ++i) total += x[b * BLOCK + i];
        }
        for (long lane = 0; lane < 4; ++lane) eights[4 * b + lane] = -2.0f * total;
    }
}

// Whether there is a kernel for these 4-bit codes: other ones are turned into floats.
bool pairs_fit(const Sizes& s) { return s.depth % PAIR == 0 && (s.group == BLOCK || s.group % PAIR == 0); }

Inputs prepared(const void* given, const Sizes& s) {
    thread_local std::vector<float> wide, arranged, added, scales;
    thread_local std::vector<int8_t> numbers;
    Inputs in = {static_cast<const float*>(given), nullptr, nullptr, nullptr, nullptr, s.depth / s.group, 0, 0};
    in.rows_ahead = rows_ahead_of(s);
    in.ahead = in.rows_ahead * bytes_of(s.kind, s.depth);
    if (s.half) {
        float* to = room(wide, s.rows * s.depth);
        for (long i = 0; i < s.rows * s.depth; ++i) to[i] = widened(static_cast<const uint16_t*>(given)[i]);
        in.x = to;
    }
    if (!s.integer && (s.kind != NIBBLE || s.rows > 1 || !pairs_fit(s))) return in;
    const long blocks = s.depth / BLOCK;
    int8_t* bytes = s.integer ? room(numbers, s.rows * s.depth) : nullptr;
    float* factors = s.integer ? room(scales, s.rows * blocks) : nullptr;
    float* eights = s.kind == NIBBLE ? room(added, 4 * s.rows * blocks) : nullptr;
    for (long m = 0; m < s.rows; ++m) {
        const float* x = in.x + m * s.depth;
        if (s.integer) rounded(x, s, bytes + m * s.depth, factors + m * blocks);
        if (eights)
            summed(x, s.integer ? bytes + m * s.depth : nullptr, s.integer ? factors + m * blocks : nullptr, s.depth,
                   eights + 4 * m * blocks);
    }
    if (!s.integer) {
        float* to = room(arranged, s.depth);
        for (long i = 0; i < s.depth; i += PAIR)
            for (long j = 0; j < 8; ++j)
                for (long lane = 0; lane < 8; ++lane) to[i + 8 * j + lane] = in.x[i + 8 * lane + j];
        in.turned = to;
    }
    in.bytes = bytes;
    in.factors = factors;
    in.eights = eights;
    return in;
}

}  // namespace

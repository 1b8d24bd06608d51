// Threefry2x32 with 20 rounds (Salmon et al. 2011): 64 random bits for each counter, in sixteen lanes or one.
#pragma once
#include <cstdint>
#include <cstring>

namespace {

using Words = uint32_t __attribute__((vector_size(64)));

template <typename Word>
struct KeyOf {
    Word low, high;
};
using Key = KeyOf<uint32_t>;
using Keys = KeyOf<Words>;  // one in each lane

template <typename OfKey, typename Word>
inline void scramble(KeyOf<OfKey> key, Word& a, Word& b) {
    constexpr int TURNS[] = {13, 15, 26, 6, 17, 29, 16, 24};
    const OfKey keys[] = {key.low, key.high, 0x1BD11BDAu ^ key.low ^ key.high};
    a += keys[0];
    b += keys[1];
#pragma GCC unroll 5
    for (uint32_t i = 0; i < 5; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            const int turn = TURNS[4 * (i % 2) + j];
            a += b;
            b = (b << turn | b >> (32 - turn)) ^ a;
        }
        a += keys[(i + 1) % 3];
        b += keys[(i + 2) % 3] + (i + 1);
    }
}

// The key of a part, such as one row and head, of what has this key.
inline Key derived(Key key, uint32_t a, uint32_t b) {
    scramble(key, a, b);
    return {a, b};
}

inline Keys derived(Key key, Words a, uint32_t b) {
    Words second = b - Words{};
    scramble(key, a, second);
    return {a, second};
}

inline Words counted(uint32_t first) {
    Words lanes;
    for (uint32_t i = 0; i < 16; ++i) lanes[i] = first + i;
    return lanes;
}

// Four numbers of 16 bits in each lane.
struct Draws {
    Words word[2];
    template <typename OfKey>
    Draws(KeyOf<OfKey> key, Words a, Words b) {
        scramble(key, a, b);
        word[0] = a;
        word[1] = b;
    }
    Words at(int i) const { return i % 2 ? word[i / 2] >> 16 : word[i / 2] & 0xFFFFu; }
};

}  // namespace

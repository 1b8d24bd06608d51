// Rows of W in bf16, 8 or 4 bits as floats.
#pragma once
#include "integer_tiles.h"

namespace {

template <class K>
inline void unpacked(const typename K::Code* w, const float* scales, long groups, long group, long ahead, float* to) {
    for (long g = 0; g < groups; ++g) {
        const long stop = (g + 1) * group;
        const float scale = scales ? scales[g] : 1.0f;
        long i = g * group;
        for (; i + LANES <= stop; i += LANES) {
            prefetch(w + i, ahead);
            stored(to + i, scale * K::many(w + i));
        }
        for (; i < stop; ++i) to[i] = scale * K::one(w[i]);
    }
}

inline void unpacked_nibbles(const uint8_t* w, const float* scales, const float* zeros, long groups, long group, long ahead,
                             float* to) {
    for (long g = 0; g < groups; ++g) {
        const float scale = scales[g], zero = zeros ? zeros[g] : 8.0f;
        const long stop = (g + 1) * group;
        long i = g * group;
        for (; i % 2 == 0 && i + 8 <= stop; i += 8) {
            if (i % PAIR == 0) prefetch(w + i / 2, ahead);
            stored(to + i, scale * (eight_digits(w + i / 2) - zero));
        }
        for (; i < stop; ++i) to[i] = scale * (static_cast<float>(i % 2 ? w[i / 2] >> 4 : w[i / 2] & 15) - zero);
    }
}

// A row of a weight of any kind as floats.
inline void row_as_floats(const Weight& w, const Inputs& in, const Sizes& s, long row, float* to) {
    const float *scales = w.scales + row * in.groups, *zeros = w.zeros ? w.zeros + row * in.groups : nullptr;
    if (s.kind == HALF)
        unpacked<Half>(static_cast<const uint16_t*>(w.codes) + row * s.depth, nullptr, 1, s.depth, in.ahead, to);
    else if (s.kind == BYTE)
        unpacked<Byte>(static_cast<const int8_t*>(w.codes) + row * s.depth, scales, in.groups, s.group, in.ahead, to);
    else
        unpacked_nibbles(static_cast<const uint8_t*>(w.codes) + row * s.depth / 2, scales, zeros, in.groups, s.group, in.ahead, to);
}

}  // namespace

// What a search needs of logits: log Σ e^x of each row, and the largest of each chunk of tokens, in one pass over memory.
#pragma once
#include <algorithm>
#include <cmath>

#include "eights.h"

namespace {

// Of one row: `best` of each chunk without the forbidden tokens, which are in order; returns log Σ e^x with them.
float ranked(const float* x, long vocab, long chunk, const long* forbidden, long count, float* best) {
    constexpr float NOTHING = -__builtin_inff();
    float top = NOTHING;
    bool lost = false;
    for (long start = 0, next = 0; start < vocab; start += chunk) {
        const long stop = std::min(vocab, start + chunk);
        Eight most = all(NOTHING), rest = {};
        long i = start;
        for (; i + EIGHT <= stop; i += EIGHT) {
            const Eight own = eight(x + i);
            most = own > most ? own : most;
            rest += own - own;  // NaN where a number is NaN or infinite
        }
        float largest = NOTHING;
        for (int j = 0; j < EIGHT; ++j) largest = most[j] > largest ? most[j] : largest;
        for (long j = i; j < stop; ++j) largest = x[j] > largest ? x[j] : largest;
        for (long j = i; j < stop; ++j) lost |= x[j] != x[j];
        const float sum = sum_of(rest);
        if (sum != sum)
            for (long j = start; j < i; ++j) lost |= x[j] != x[j];
        top = largest > top ? largest : top;
        const bool marked = next < count && forbidden[next] < stop;
        while (next < count && forbidden[next] < stop) ++next;
        if (marked) {
            largest = NOTHING;
            for (long j = start; j < stop; ++j)
                if (x[j] > largest && !std::binary_search(forbidden, forbidden + count, j)) largest = x[j];
        }
        best[start / chunk] = largest;
    }
    if (lost) return __builtin_nanf("");
    Eight sums = {};
    long i = 0;
    for (; i + EIGHT <= vocab; i += EIGHT) sums += exponential(eight(x + i) - top);
    float total = sum_of(sums);
    for (; i < vocab; ++i) total += std::exp(x[i] - top);
    return top + std::log(total);
}

}  // namespace

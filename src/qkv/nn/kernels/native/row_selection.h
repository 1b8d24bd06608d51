// Rows of a buffer (rows, heads, slots, width) replaced by other rows of it: caches that follow the beams of a search.
#pragma once
#include <cstring>
#include <vector>

#include "structures.h"

namespace {

constexpr long HELD = 1 << 18;  // bytes that are held at a time, in the nearest caches

// Distances from one row and from one head to the next, and the used part of a head of a row, in bytes.
struct Parts {
    long row, head, used;
};

// Row r of one head becomes the old row from[r]. Only rows that change are moved, some slots of all of them at a time.
void select_rows(char* head, const long* from, long rows, const Parts& parts) {
    thread_local std::vector<char> held;
    std::vector<long> moved;
    for (long r = 0; r < rows; ++r)
        if (from[r] != r) moved.push_back(r);
    const long count = static_cast<long>(moved.size());
    if (!count) return;
    const long each = HELD / count > 64 ? HELD / count : 64;
    if (static_cast<long>(held.size()) < count * each) held.resize(count * each);
    for (long start = 0; start < parts.used; start += each) {
        const long bytes = parts.used - start < each ? parts.used - start : each;
        for (long i = 0; i < count; ++i) std::memcpy(&held[i * each], head + from[moved[i]] * parts.row + start, bytes);
        for (long i = 0; i < count; ++i) std::memcpy(head + moved[i] * parts.row + start, &held[i * each], bytes);
    }
}

}  // namespace

QKV_STRUCTURE(Parts, QKV_FIELD(row), QKV_FIELD(head), QKV_FIELD(used))

// Products of many rows, or of any number if W has 4 bits: some rows of W are rearranged to a panel (lanes.h), which stays in the
// cache while all rows of x are read.
#pragma once
#include "activations.h"
#include "half_tiles.h"
#include "nibble_panels.h"
#include "tasks.h"

#ifdef QKV_LANES
namespace {

constexpr long PANEL_OUTS = 2 * ACROSS;
constexpr long PREFETCHED = 1 << 17;  // bytes of the next rows of W
constexpr long PANEL_LEAST = 32;  // rows of x for which a panel is worth while
constexpr long BYTE_LEAST = 12;   // the same for integers of 8 bits

// Rows of x in parts of at most ROWS, which stand side by side; in 8 bits also their scales, and what makes up for moved codes: a
// number for each group, of a part's rows side by side.
struct PackedRows {
    const int32_t* x;
    const float* factors;
    const int32_t* moved;
    long lanes;
};

constexpr int32_t TURNED = static_cast<int32_t>(0x80808080);  // codes of 8 bits are moved by 128, as `MOVED` says

// The first `count` lanes of a vector.
inline __mmask16 mask_of(long count) { return static_cast<__mmask16>((1 << std::min(ACROSS, count)) - 1); }

inline Floats widened(__mmask16 kept, const uint16_t* x) {
    return bits_as<Floats>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(kept, x)), 16));
}

inline Floats bias_of(const Weight& w, __mmask16 kept, long o) {
    if (!w.bias) return Floats{};
    return w.half_bias ? widened(kept, static_cast<const uint16_t*>(w.bias) + o)
                       : bits_as<Floats>(_mm512_maskz_loadu_ps(kept, static_cast<const float*>(w.bias) + o));
}

inline void prefetch_place(const Place& to, const Sizes& s, long at) {
    __builtin_prefetch(static_cast<const char*>(to.y) + at * (s.half ? 2 : 4), 1);
}

// y to its place, or added to what is there.
inline void put(Floats y, __mmask16 kept, const Place& to, const Sizes& s, long at) {
    if (!s.half) {
        float* place = static_cast<float*>(to.y) + at;
        if (s.adds) y += bits_as<Floats>(_mm512_maskz_loadu_ps(kept, place));
        return kept == 0xffff ? _mm512_storeu_ps(place, bits_as<__m512>(y)) : _mm512_mask_storeu_ps(place, kept, bits_as<__m512>(y));
    }
    uint16_t* place = static_cast<uint16_t*>(to.y) + at;
    if (s.adds) y += widened(kept, place);
    Many<uint16_t, ACROSS> own;
    float numbers[ACROSS];
    stored(numbers, y);
    narrowed(numbers, ACROSS, reinterpret_cast<uint16_t*>(&own));
    kept == 0xffff ? stored(place, own) : _mm256_mask_storeu_epi16(place, kept, bits_as<__m256i>(own));
}

inline Floats output(Floats sum, Floats, const PackedRows&, long) { return sum; }
inline Floats output(Integers<16> sum, Floats scales, const PackedRows& in, long m) {
    return held(__builtin_convertvector(sum + in.moved[m], Floats) * scales * in.factors[m]);  // rounded, as in `by_integers`
}

// y[v][r]: the outputs of R rows of x, from row `first`, and V vectors of rows of W, from row o, before the activation.
template <class K, int R, int V>
inline __attribute__((always_inline)) void panel_products(const Panel& panel, const Weight& w, const PackedRows& in, const Sizes& s,
                                                          long first, long o, long count, Floats (*y)[R], Ahead ahead) {
    const int32_t* x = in.x + first * in.lanes;
    if constexpr (K::WIDTH == 8) {
        const long groups = s.depth / s.group;
        Floats total[R][V];
        nibble_sums<R, V>(panel, x, in.moved + first * groups, s.group / K::WIDTH, groups, total, ahead);
        for (int v = 0; v < V; ++v) {
            const __m512 bias = bits_as<__m512>(bias_of(w, mask_of(count - v * ACROSS), o + v * ACROSS));
            for (int r = 0; r < R; ++r)
                y[v][r] = bits_as<Floats>(_mm512_fmadd_ps(bits_as<__m512>(total[r][v]), _mm512_set1_ps(in.factors[first + r]), bias));
        }
    } else {
        typename K::Sum total[R][V];
        panel_sums<K, R, V>(panel.codes, x, 1, R, in.lanes, total, ahead);
        for (int v = 0; v < V; ++v) {
            const __mmask16 kept = mask_of(count - v * ACROSS);
            const Floats scales = K::WIDTH == 4 ? bits_as<Floats>(_mm512_maskz_loadu_ps(kept, w.scales + o + v * ACROSS)) : Floats{};
            const Floats bias = bias_of(w, kept, o + v * ACROSS);
            for (int r = 0; r < R; ++r) y[v][r] = output(total[r][v], scales, in, first + r) + bias;
        }
    }
}

// The outputs of R rows of x, from row `first`, and `count` ≤ 16 V rows of W, from row o, whose panel is given.
template <class K, int R, int V>
inline void panel_tile(const Panel& panel, const Weight& w, const PackedRows& in, const Place& to, const Sizes& s, long first, long o,
                       long count, Ahead ahead) {
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) prefetch_place(to, s, (first + r) * to.row + to.start + o + v * ACROSS);
    Floats y[V][R];
    panel_products<K, R, V>(panel, w, in, s, first, o, count, y, ahead);
    activate(s.activation, y[0], V * R);
    for (int v = 0; v < V; ++v)
        for (int r = 0; r < R; ++r)
            put(y[v][r], mask_of(count - v * ACROSS), to, s, (first + r) * to.row + to.start + o + v * ACROSS);
}

template <class K, int V, int R = ROWS>
inline void panel_rows(long rows, const Panel& panel, const Weight& w, const PackedRows& in, const Place& to, const Sizes& s, long first,
                       long o, long count, Ahead ahead) {
    if constexpr (R > 1)
        if (rows < R) return panel_rows<K, V, R - 1>(rows, panel, w, in, to, s, first, o, count, ahead);
    panel_tile<K, R, V>(panel, w, in, to, s, first, o, count, ahead);
}

// The parts of `rows` rows, which are as long as each other and at most ROWS.
inline long parts_of(long rows) { return (rows + ROWS - 1) / ROWS; }
inline long part_start(long rows, long part) { return rows * part / parts_of(rows); }

template <class K, int V>
inline void panel_outputs(const Weight& w, const PackedRows& in, const Place& to, const Sizes& s, long o, long count) {
    thread_local std::vector<char> held;
    const long bytes = bytes_of(s.kind, s.depth), lanes = bytes / 4, groups = s.kind == NIBBLE ? s.depth / s.group : 0;
    char *codes = room(held, V * LINE * (lanes + 2 * groups)), *scales = codes + V * LINE * lanes, *zeros = scales + V * LINE * groups;
    for (int v = 0; v < V; ++v) {
        const long own = o + v * ACROSS, some = std::min(ACROSS, o + count - own);
        const auto packed = [&](const void* rows, long step, long wide, int32_t moved, char* into) {
            pack_panel<V>(static_cast<const char*>(rows) + own * step, step, some, wide, moved, into, v);
        };
        packed(w.codes, bytes, lanes, s.kind == BYTE ? TURNED : 0, codes);
        packed(w.scales, 4 * groups, groups, 0, scales);
        if (w.zeros) packed(w.zeros, 4 * groups, groups, 0, zeros);
    }
    const Panel panel{codes, scales, w.zeros ? zeros : nullptr};
    const char* following = static_cast<const char*>(w.codes) + (o + count) * bytes;  // which this thread probably packs next
    const long ahead = std::min(count * bytes, PREFETCHED), parts = parts_of(s.rows);
    for (long p = 0; p < parts; ++p) {
        const long first = part_start(s.rows, p), next = part_start(s.rows, p + 1);
        const Ahead own{following + ahead * p / parts, ahead / parts / lanes};
        panel_rows<K, V>(next - first, panel, w, in, to, s, first, o, count, own);
    }
}

// The part of y from at most PANEL_OUTS rows of a weight, o to `stop`.
template <class K>
inline void panel_outputs(const Weight& w, const PackedRows& in, const Place& to, const Sizes& s, long o, long stop) {
    stop - o > ACROSS ? panel_outputs<K, 2>(w, in, to, s, o, stop - o) : panel_outputs<K, 1>(w, in, to, s, o, stop - o);
}

void panel_part(const Weight& w, const PackedRows& in, const Place& to, const Sizes& s, long o, long stop) {
    s.kind == BYTE     ? panel_outputs<ByteLanes>(w, in, to, s, o, stop)
    : s.kind == NIBBLE ? panel_outputs<NibbleLanes>(w, in, to, s, o, stop)
    : s.kind == HALF   ? panel_outputs<HalfLanes>(w, in, to, s, o, stop)
                       : panel_outputs<FloatLanes>(w, in, to, s, o, stop);
}

// Whether products are made from panels: of fp32, bf16, and integers with one group of columns or of 4 bits. In 4 bits panels are
// faster for any number of rows, since tiles make floats of all their lanes in each group.
bool panels_fit(const Sizes& s) {
    if (s.kind == NIBBLE) return s.integer && ByteLanes::THERE && pairs_fit(s);
    if (s.kind == BYTE) {
        const bool fits = s.integer && ByteLanes::THERE && s.group == s.depth;
        return fits && (s.rows >= BYTE_LEAST || s.order == PANELS);
    }
    if (s.order == FEW || (s.order == ANY && s.rows < PANEL_LEAST)) return false;
    return s.kind == FULL || halves_fit(s);
}

// Whether panels may also apply activations and add to y. They may not if few rows, whose numbers have to be the same, are left to
// tiles, which give the same sums and do neither.
bool always_by_panels(const Sizes& s) { return panels_fit(s) && !(s.kind == BYTE && s.order == FEW); }

// One row of x in the format of the lanes, in `room` unless it is there already.
inline const char* lanes_of(const void* x, long m, const Sizes& s, float* wide, char* room, float* factors) {
    const float* floats = static_cast<const float*>(x) + m * s.depth;
    const uint16_t* halves = static_cast<const uint16_t*>(x) + m * s.depth;
    if (s.kind == HALF && s.half) return reinterpret_cast<const char*>(halves);
    if (s.half) {
        for (long i = 0; i < s.depth; ++i) wide[i] = widened(halves[i]);
        floats = wide;
    }
    if (s.kind == FULL) return reinterpret_cast<const char*>(floats);
    if (s.kind == HALF) {
        narrowed(floats, s.depth, reinterpret_cast<uint16_t*>(room));
        return room;
    }
    int8_t* bytes = reinterpret_cast<int8_t*>(room);
    factors[m] = rounded(floats, s.depth, bytes);
    if (s.kind == NIBBLE) part_eights(bytes, s.depth);
    return room;
}

// What makes up for moved codes of 8 bits, or for a zero point of 1 for those of 4 bits, in each group, `step` numbers apart.
inline void sum_groups(const char* bytes, const Sizes& s, int32_t* moved, long step) {
    for (long i = 0; i < s.depth; i += s.group, moved += step) {
        int32_t sums[8];
        lanes_summed<8>(reinterpret_cast<const int8_t*>(bytes) + i, s.group, s.kind == BYTE ? -128 : -1, sums);
        *moved = 0;
        for (int32_t part : sums) *moved += part;
    }
}

PackedRows packed_rows(const void* x, const Sizes& s) {
    thread_local std::vector<int32_t> numbers, added;
    thread_local std::vector<float> scales;
    const long lanes = (s.kind == NIBBLE ? s.depth : bytes_of(s.kind, s.depth)) / 4, groups = s.depth / s.group;
    int32_t *to = room(numbers, s.rows * lanes), *moved = room(added, s.rows * groups);
    float* factors = room(scales, s.rows);
#pragma omp parallel for num_threads(s.threads) if (s.threads > 1 && s.rows * s.depth > MANY)
    for (long p = 0; p < parts_of(s.rows); ++p) {
        thread_local std::vector<float> wide;
        thread_local std::vector<char> own;
        const long first = part_start(s.rows, p), count = part_start(s.rows, p + 1) - first;
        float* floats = room(wide, ROWS * s.depth);
        char* bytes = room(own, ROWS * lanes * 4);
        const char* rows[ROWS];
        for (long r = 0; r < count; ++r) {
            rows[r] = lanes_of(x, first + r, s, floats + r * s.depth, bytes + r * lanes * 4, factors);
            if (s.integer) sum_groups(rows[r], s, moved + first * groups + r, count);
        }
        pack_rows(rows[0], count > 1 ? rows[1] - rows[0] : 0, count, lanes, to + first * lanes);
    }
    return {to, factors, moved, lanes};
}

}  // namespace
#else
namespace {
constexpr long PANEL_OUTS = 32;
struct PackedRows {};
bool panels_fit(const Sizes&) { return false; }
bool always_by_panels(const Sizes&) { return false; }
PackedRows packed_rows(const void*, const Sizes&) { return {}; }
void panel_part(const Weight&, const PackedRows&, const Place&, const Sizes&, long, long) {}
}  // namespace
#endif

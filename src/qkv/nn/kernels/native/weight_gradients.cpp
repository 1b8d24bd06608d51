// Gradients of weights, dW = D' X with D (rows, outs) and X (rows, columns) in fp32, without a transposed copy of either.
//
// Both matrices are read along the rows that are summed over: a vector of X's columns is multiplied by one number of D at a time,
// as in lanes.h. For some rows at a time, X is packed to panels of two vectors of columns, and D to parts of ROWS columns, of which
// each thread holds some in its cache.
#include "lanes.h"
#include "structures.h"
#include "tasks.h"

#ifdef QKV_LANES
namespace {

constexpr long DEEP = 768;   // rows of D and X at a time: a panel of them is 96 KiB
constexpr long GROUP = 16;   // parts of D that a thread holds at a time, at most: 576 KiB
constexpr long SOON = 8;     // rows of D that are prefetched
constexpr int VECTORS = 2;
constexpr long COLUMNS = VECTORS * ACROSS;

struct Sizes {
    long rows, outs, columns, d_step, x_step;  // steps: from one row to the next
    int adds, threads;                         // adds: to what is there
};

inline long parts_of(long outs) { return (outs + ROWS - 1) / ROWS; }
inline long panels_of(const Sizes& s) { return (s.columns + COLUMNS - 1) / COLUMNS; }
inline long panel_bytes(long rows) { return (rows + 1) * VECTORS * LINE; }  // a row more, so that panels differ in their cache sets
inline long part_size(long outs, long part) { return std::min<long>(ROWS, outs - part * ROWS); }

// Parts of D from `part` to `stop`, each with its rows side by side. Where sums is not null, columns are added to it.
inline void pack_parts(const float* d, long rows, long part, long stop, const Sizes& s, float* to, float* __restrict sums) {
    const long first = part * ROWS, columns = std::min(stop * ROWS, s.outs) - first;
    d += first;
    for (long m = 0; m < rows; ++m, d += s.d_step) {
        for (long i = 0; i < columns; i += LINE / sizeof *d) __builtin_prefetch(d + SOON * s.d_step + i);
        for (long p = part; p < stop; ++p) {
            const long count = part_size(s.outs, p);
            std::memcpy(to + (p - part) * ROWS * rows + m * count, d + (p - part) * ROWS, count * sizeof *to);
        }
        for (long o = 0; sums && o < columns; ++o) sums[first + o] += d[o];
    }
}

inline __mmask16 kept(long count) { return static_cast<__mmask16>((1u << std::min(std::max(count, 0L), ACROSS)) - 1); }

// Row x of X to all panels, each `bytes` after the one before.
inline void pack_row(const float* x, long columns, char* panel, long bytes) {
    for (long i = 0; i < columns; i += COLUMNS, panel += bytes)
        for (int v = 0; v < VECTORS; ++v) {
            const long at = i + v * ACROSS;
            _mm512_store_ps(panel + v * LINE, _mm512_maskz_loadu_ps(kept(columns - at), x + at));
        }
}

// R rows of dW, of which `count` columns are there.
template <int R = ROWS>
inline void put_rows(long outs, const char* panel, const float* part, long rows, long count, bool adds, float* to, long step) {
    if constexpr (R > 1)
        if (outs < R) return put_rows<R - 1>(outs, panel, part, rows, count, adds, to, step);
    for (int r = 0; r < R && adds; ++r)
        for (int v = 0; v < VECTORS; ++v) __builtin_prefetch(to + r * step + v * ACROSS, 1);
    Floats total[R][VECTORS];
    panel_sums<FloatLanes, R, VECTORS>(panel, reinterpret_cast<const int32_t*>(part), 1, R, rows, total);
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < VECTORS; ++v) {
            float* place = to + r * step + v * ACROSS;
            const __mmask16 own = kept(count - v * ACROSS);
            if (adds) total[r][v] += bits_as<Floats>(_mm512_maskz_loadu_ps(own, place));
            own == 0xffff ? stored(place, total[r][v]) : _mm512_mask_storeu_ps(place, own, bits_as<__m512>(total[r][v]));
        }
}

}  // namespace

QKV_STRUCTURE(Sizes, QKV_FIELD(rows), QKV_FIELD(outs), QKV_FIELD(columns), QKV_FIELD(d_step), QKV_FIELD(x_step),
              QKV_FIELD(adds), QKV_FIELD(threads))

extern "C" {

// How many bytes of `room` are needed.
long qkv_weight_gradient_room(const Sizes* s) { return panel_bytes(std::min(s->rows, DEEP)) * panels_of(*s); }

// out (outs, columns) = D' X, or plus that; where sums is not null, D's column sums are added to it. `room` is aligned to lines.
// The order of a sum doesn't depend on the number of threads.
void qkv_weight_gradient(const float* d, const float* x, float* out, float* sums, char* room, const Sizes* sizes) {
    const Sizes s = *sizes;
    const long parts = parts_of(s.outs), panels = panels_of(s), group = std::min(GROUP, (parts + s.threads - 1) / s.threads);
#pragma omp parallel num_threads(s.threads)
    {
        std::vector<float> held;
        float* own = ::room(held, group * ROWS * DEEP);
        for (long start = 0; start < s.rows; start += DEEP) {
            const long rows = std::min(DEEP, s.rows - start), bytes = panel_bytes(rows);
#pragma omp for
            for (long m = 0; m < rows; ++m) pack_row(x + (start + m) * s.x_step, s.columns, room + m * VECTORS * LINE, bytes);
#pragma omp for schedule(dynamic)
            for (long part = 0; part < parts; part += group) {
                const long stop = std::min(parts, part + group);
                pack_parts(d + start * s.d_step, rows, part, stop, s, own, sums);
                for (long i = 0; i < panels; ++i)
                    for (long p = part; p < stop; ++p)
                        put_rows(part_size(s.outs, p), room + i * bytes, own + (p - part) * ROWS * rows, rows, s.columns - i * COLUMNS,
                                 s.adds || start, out + p * ROWS * s.columns + i * COLUMNS, s.columns);
            }
        }
    }
}
}
#endif

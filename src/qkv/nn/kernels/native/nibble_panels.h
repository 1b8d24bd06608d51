// Sums of products with panels of 4-bit codes (lanes.h), which stay as they are: a lane of 32 bits has the codes of 8 columns, the
// even ones in the lower halves of its bytes. Scales and zero points are panels of the same rows, with a lane for each group.
//
// Sums are of integers within a group. Groups are added up in their order in fp32, whatever the number of rows.
#pragma once
#include "lanes.h"

#ifdef QKV_LANES
namespace {

struct NibbleLanes {
    static constexpr long WIDTH = 8;
};

struct Panel {
    const char *codes, *scales, *zeros;  // zeros: null where they are 8
};

// `parted` with a span of 8, in vectors: even columns before odd ones in each 8 of x, whose number is a multiple of 64.
inline void part_eights(int8_t* x, long depth) {
    const __m512i places = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    for (long i = 0; i < depth; i += LINE) _mm512_storeu_si512(x + i, _mm512_shuffle_epi8(_mm512_loadu_si512(x + i), places));
}

// total[r][v] = Σ_g scale[g][v] Σ_{i in g} (code[i][v] - zero[g][v]) x(r, i) for R rows of x, of which two lanes, of even and of
// odd columns, belong to a lane of codes. moved: - Σ_{i in g} x(r, i), of R rows for each group. `lanes` are a group's.
template <int R, int V>
inline __attribute__((always_inline)) void nibble_sums(Panel panel, const int32_t* x, const int32_t* moved, long lanes, long groups,
                                                       Floats (*total)[V], Ahead ahead) {
    if (lanes < 1) __builtin_unreachable();
    const __m512i lowest = in_register(_mm512_set1_epi8(15));
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) total[r][v] = Floats{};
    for (long g = 0; g < groups; ++g, moved += R) {
        Integers<16> part[R][V];
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < V; ++v) part[r][v] = Integers<16>{} + (panel.zeros ? 0 : 8 * moved[r]);
        for (long i = 0; i < lanes; ++i, panel.codes += V * LINE, x += 2 * R) {
            if (ahead.from) {
                __builtin_prefetch(ahead.from, 0, 2);
                __builtin_prefetch(ahead.from + ahead.step / 2, 0, 2);
                ahead.from += ahead.step;
            }
            __m512i even[V], odd[V];
            for (int v = 0; v < V; ++v) {
                const __m512i codes = _mm512_load_si512(panel.codes + v * LINE);
                even[v] = in_register(_mm512_and_si512(codes, lowest));
                odd[v] = in_register(_mm512_and_si512(_mm512_srli_epi16(codes, 4), lowest));
            }
            for (int r = 0; r < R; ++r)
                for (int v = 0; v < V; ++v)
                    part[r][v] = ByteLanes::added(ByteLanes::added(part[r][v], even[v], x[r]), odd[v], x[R + r]);
        }
        for (int v = 0; v < V; ++v) {
            const __m512 scale = _mm512_load_ps(panel.scales + (g * V + v) * LINE);
            const __m512 zero = panel.zeros ? _mm512_load_ps(panel.zeros + (g * V + v) * LINE) : _mm512_setzero_ps();
            for (int r = 0; r < R; ++r) {
                __m512 own = _mm512_cvtepi32_ps(bits_as<__m512i>(part[r][v]));
                if (panel.zeros) own = _mm512_fmadd_ps(zero, _mm512_set1_ps(static_cast<float>(moved[r])), own);
                total[r][v] = bits_as<Floats>(_mm512_fmadd_ps(own, scale, bits_as<__m512>(total[r][v])));
            }
        }
    }
}

}  // namespace
#endif

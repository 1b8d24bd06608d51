// Products of float rows with 8-bit and 4-bit codes, each read once: one head and one group at a time, in parallel.
#include "cache_codes.h"
#include "structures.h"

namespace {

using namespace codes;

template <long W, bool one>
void scores(const float* q, const uint8_t* bytes, const uint16_t* scale, const uint16_t* base, float* out, const Sizes& s) {
    const long width = W ? W : s.width;
#pragma omp parallel for collapse(2) num_threads(s.threads)
    for (long h = 0; h < s.heads; ++h)
        for (long g = 0; g < s.groups; ++g) {
            const long at = h * s.jump_scales + g * width;
            score_group<W, one>(q + h * s.rows * width, bytes + h * s.jump + g * s.held * width, scale + at, base + at, s,
                                out + h * s.rows * s.stride + g * s.tokens());
        }
}

template <long W, bool one>
void mixed(const float* p, const uint8_t* bytes, const uint16_t* scale, const uint16_t* base, float* out, const Sizes& s) {
    const long width = W ? W : s.width, tokens = s.tokens();
#pragma omp parallel for collapse(2) num_threads(s.threads)
    for (long h = 0; h < s.heads; ++h)
        for (long part = 0; part < s.parts; ++part) {
            float sums[MOST * (W ? W : WIDEST)], shift[MOST] = {};
            for (long i = 0; i < s.rows * width; ++i) sums[i] = 0.0f;
            for (long g = s.groups * part / s.parts; g < s.groups * (part + 1) / s.parts; ++g) {
                const long at = h * s.jump_scales + g * tokens;
                add_group<W, one>(p + h * s.rows * s.stride + g * tokens, bytes + h * s.jump + g * s.held * width, scale + at,
                                  base + at, s, sums, shift);
            }
            float* to = out + (h * s.parts + part) * s.rows * width;
            for (long m = 0; m < s.rows; ++m)
                for (long d = 0; d < width; ++d) to[m * width + d] = sums[m * width + d] + shift[m];
        }
}

struct Scores {
    template <long W, bool one>
    static void run(const float* x, const uint8_t* bytes, const uint16_t* scale, const uint16_t* base, float* out,
                    const Sizes& s) {
        scores<W, one>(x, bytes, scale, base, out, s);
    }
};
struct Mixed {
    template <long W, bool one>
    static void run(const float* x, const uint8_t* bytes, const uint16_t* scale, const uint16_t* base, float* out,
                    const Sizes& s) {
        mixed<W, one>(x, bytes, scale, base, out, s);
    }
};

// The kernel for a width, if it is one of the specialized ones, and for one query row or several.
template <typename Kernel>
void chosen(const float* x, const uint8_t* bytes, const uint16_t* scale, const uint16_t* base, float* out, const Sizes& s) {
    const auto run = [&](auto width) {
        constexpr long W = decltype(width)::value;
        s.rows == 1 ? Kernel::template run<W, true>(x, bytes, scale, base, out, s)
                    : Kernel::template run<W, false>(x, bytes, scale, base, out, s);
    };
    switch (s.width) {
        case 64: return run(std::integral_constant<long, 64>{});
        case 128: return run(std::integral_constant<long, 128>{});
        default: return run(std::integral_constant<long, 0>{});
    }
}

}  // namespace

QKV_STRUCTURE(Sizes, QKV_FIELD(heads), QKV_FIELD(groups), QKV_FIELD(rows), QKV_FIELD(width), QKV_FIELD(held), QKV_FIELD(jump),
              QKV_FIELD(jump_scales), QKV_FIELD(stride), QKV_FIELD(parts), QKV_FIELD(bits), QKV_FIELD(threads))

extern "C" {

// x (heads, M, D), codes (heads, groups, R, D), scale and base (heads, groups, D) in bf16, which code 0 of 4 bits, or -128 of
// 8, is at; out (heads, M, tokens) and what else the rows hold.
void qkv_scores(const float* x, const uint8_t* bytes, const uint16_t* scale, const uint16_t* base, float* out,
                const Sizes* s) {
    chosen<Scores>(x, bytes, scale, base, out, *s);
}

// x (heads, M, tokens) and what else the rows hold, codes as above, scale and base (heads, tokens); out (heads, parts, M, D),
// one for each of the `parts` that a head's groups are cut into, to be added up.
void qkv_mixed(const float* x, const uint8_t* bytes, const uint16_t* scale, const uint16_t* base, float* out,
               const Sizes* s) {
    chosen<Mixed>(x, bytes, scale, base, out, *s);
}
}

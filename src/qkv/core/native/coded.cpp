// Products of float rows with 8-bit and 4-bit codes, which are read once: one head and one group at a time, in parallel.
//
// Codes of a group are R rows of D bytes. With 8 bits a row is a token's codes, -128 … 127. With 4 bits a byte holds the
// codes 0 … 15 of two tokens: of token i in the lower half, and of token i + R in the upper.
#include <cstdint>
#include <cstring>

namespace {

constexpr long LINE = 64, AHEAD = 4096;  // bytes
constexpr long WIDEST = 1024, MOST = 16, LANES = 16;  // of a row's bytes, of query rows, of a vector's numbers

using Floats = float __attribute__((vector_size(4 * LANES)));

struct Sizes {
    long heads, groups, rows, width, held;
    long jump, jump_scales;  // numbers from a head's codes, and scales, to the next one's
    long stride;             // numbers from a row of scores to the next
    long parts;
    int bits, threads;
    long tokens() const { return bits == 4 ? 2 * held : held; }
    float least() const { return bits == 8 ? -128.0f : 0.0f; }
};

// A number of 16 bits, the upper half of a float's.
inline float widened(uint16_t half) {
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
}

// Which codes of a byte: all eight bits, with their sign, or the lower or upper four.
struct Whole {
    static float of(uint8_t byte) { return static_cast<int8_t>(byte); }
};
struct Lower {
    static float of(uint8_t byte) { return byte & 15; }
};
struct Upper {
    static float of(uint8_t byte) { return byte >> 4; }
};

inline Floats load(const float* x) {
    Floats v;
    std::memcpy(&v, x, sizeof v);
    return v;
}

// Ask for the codes that come next, so that they are there when they are wanted.
inline void ahead(const uint8_t* row, long width) {
    for (long d = 0; d < width; d += LINE) __builtin_prefetch(row + AHEAD + d);
}

// The sum of sixteen numbers, by halves.
inline float sum(Floats v) {
    float a[LANES];
    std::memcpy(a, &v, sizeof a);
    for (int i = 0; i < 8; ++i) a[i] += a[i + 8];
    for (int i = 0; i < 4; ++i) a[i] += a[i + 4];
    return (a[0] + a[2]) + (a[1] + a[3]);
}

// out[m] = sum_d x[m][d] c[d] for the codes of one token. W is the width where it is known when this is compiled, else 0.
template <long W, typename Code>
inline void dots(const float* x, const Sizes& s, const uint8_t* bytes, float* out) {
    const long width = W ? W : s.width, even = width / (2 * LANES) * (2 * LANES);
    float c[W ? W : WIDEST];
    for (long d = 0; d < width; ++d) c[d] = Code::of(bytes[d]);
    for (long m = 0; m < s.rows; ++m, x += width) {
        Floats sums = {}, others = {};  // two, so that one addition need not wait for the last
        for (long d = 0; d < even; d += 2 * LANES) {
            sums += load(x + d) * load(c + d);
            others += load(x + d + LANES) * load(c + d + LANES);
        }
        float rest = 0.0f;
        for (long d = even; d < width; ++d) rest += x[d] * c[d];
        out[m * s.stride] = sum(sums + others) + rest;
    }
}

// out[m][d] += p[m] c[d] for the codes of one token.
template <long W>
inline void add(const float* p, const Sizes& s, const uint8_t* bytes, float* __restrict out) {
    const long width = W ? W : s.width;
    float c[W ? W : WIDEST];
    for (long d = 0; d < width; ++d) c[d] = Whole::of(bytes[d]);
    for (long m = 0; m < s.rows; ++m) {
#pragma omp simd
        for (long d = 0; d < width; ++d) out[m * width + d] += p[m] * c[d];
    }
}

// The same for the two tokens that bytes of 4-bit codes are of: p[m] and above[m] are their weights.
template <long W>
inline void add(const float* p, const float* above, const Sizes& s, const uint8_t* bytes, float* __restrict out) {
    const long width = W ? W : s.width;
    float c[W ? W : WIDEST], upper[W ? W : WIDEST];
    for (long d = 0; d < width; ++d) c[d] = Lower::of(bytes[d]);
    for (long d = 0; d < width; ++d) upper[d] = Upper::of(bytes[d]);
    for (long m = 0; m < s.rows; ++m) {
#pragma omp simd
        for (long d = 0; d < width; ++d) out[m * width + d] += p[m] * c[d] + above[m] * upper[d];
    }
}

// Queries with a group's scales in them, and what its zeros add to all of its scores.
inline void prepare(const float* q, const uint16_t* scale, const uint16_t* base, const Sizes& s, float* x, float* shift) {
    for (long m = 0; m < s.rows; ++m) {
        shift[m] = 0.0f;
        for (long d = 0; d < s.width; ++d) {
            const float factor = widened(scale[d]), number = q[m * s.width + d];
            x[m * s.width + d] = number * factor;
            shift[m] += number * (widened(base[d]) - s.least() * factor);
        }
    }
}

template <long W>
void scores(const float* q, const uint8_t* codes, const uint16_t* scale, const uint16_t* base, float* out, const Sizes& s) {
    const long width = W ? W : s.width;
#pragma omp parallel for collapse(2) num_threads(s.threads)
    for (long h = 0; h < s.heads; ++h)
        for (long g = 0; g < s.groups; ++g) {
            float x[MOST * (W ? W : WIDEST)], shift[MOST];
            const long at = h * s.jump_scales + g * width;
            prepare(q + h * s.rows * width, scale + at, base + at, s, x, shift);
            const uint8_t* row = codes + h * s.jump + g * s.held * width;
            float* to = out + h * s.rows * s.stride + g * s.tokens();
            for (long r = 0; r < s.held; ++r, row += width) {
                ahead(row, width);
                if (s.bits == 8) {
                    dots<W, Whole>(x, s, row, to + r);
                } else {
                    dots<W, Lower>(x, s, row, to + r);
                    dots<W, Upper>(x, s, row, to + s.held + r);
                }
            }
            for (long m = 0; m < s.rows; ++m)
                for (long t = 0; t < s.tokens(); ++t) to[m * s.stride + t] += shift[m];
        }
}

template <long W>
void mixed(const float* p, const uint8_t* codes, const uint16_t* scale, const uint16_t* base, float* out, const Sizes& s) {
    const long width = W ? W : s.width, tokens = s.tokens();
#pragma omp parallel for collapse(2) num_threads(s.threads)
    for (long h = 0; h < s.heads; ++h)
        for (long part = 0; part < s.parts; ++part) {
            float sums[MOST * (W ? W : WIDEST)], lower[MOST], upper[MOST], shift[MOST] = {};
            for (long i = 0; i < s.rows * width; ++i) sums[i] = 0.0f;
            const auto weigh = [&](long t, float* weights) {
                const float factor = widened(scale[h * s.jump_scales + t]);
                const float zero = widened(base[h * s.jump_scales + t]) - s.least() * factor;
                for (long m = 0; m < s.rows; ++m) {
                    const float weight = p[(h * s.rows + m) * s.stride + t];
                    weights[m] = weight * factor;
                    shift[m] += weight * zero;
                }
            };
            for (long g = s.groups * part / s.parts; g < s.groups * (part + 1) / s.parts; ++g) {
                const uint8_t* row = codes + h * s.jump + g * s.held * width;
                for (long r = 0; r < s.held; ++r, row += width) {
                    ahead(row, width);
                    weigh(g * tokens + r, lower);
                    if (s.bits == 8) {
                        add<W>(lower, s, row, sums);
                    } else {
                        weigh(g * tokens + s.held + r, upper);
                        add<W>(lower, upper, s, row, sums);
                    }
                }
            }
            float* to = out + (h * s.parts + part) * s.rows * width;
            for (long m = 0; m < s.rows; ++m)
                for (long d = 0; d < width; ++d) to[m * width + d] = sums[m * width + d] + shift[m];
        }
}

}  // namespace

extern "C" {

// q (heads, M, D), codes (heads, groups, R, D), scale and base (heads, groups, D) in bf16, which code 0 of 4 bits, or -128 of
// 8, is at; out (heads, M, tokens) and what else the rows hold.
void qkv_scores(const float* q, const uint8_t* codes, const uint16_t* scale, const uint16_t* base, float* out,
                const Sizes* s) {
    switch (s->width) {
        case 64: return scores<64>(q, codes, scale, base, out, *s);
        case 128: return scores<128>(q, codes, scale, base, out, *s);
        default: return scores<0>(q, codes, scale, base, out, *s);
    }
}

// p (heads, M, tokens) and what else the rows hold, codes as above, scale and base (heads, tokens); out (heads, parts, M, D), one for each of the `parts`
// that a head's groups are cut into, to be added up.
void qkv_mixed(const float* p, const uint8_t* codes, const uint16_t* scale, const uint16_t* base, float* out,
               const Sizes* s) {
    switch (s->width) {
        case 64: return mixed<64>(p, codes, scale, base, out, *s);
        case 128: return mixed<128>(p, codes, scale, base, out, *s);
        default: return mixed<0>(p, codes, scale, base, out, *s);
    }
}
}

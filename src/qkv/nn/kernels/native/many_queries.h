// Attention of whole sequences, which stand one after another without padding: Q Kᵀ, the soft-max of whole rows, and its product
// with V, lane by lane (lanes.h), for up to 12 queries of a head at a time.
//
// The scores of those queries and all keys are kept, so that the soft-max needs no second look at them. With `half` products are of
// bf16; sums and the soft-max are in fp32.
#pragma once
#include "eights.h"
#include "few_queries.h"
#include "lanes.h"

#ifdef QKV_LANES
namespace {

constexpr long CHUNK = 16 * ROWS;  // queries of a task, where there are few heads

// Rows (total tokens) of q, which has `row` numbers from one token to the next; of out, `out_row`. Keys and values are at those
// places in k and v that `Strides` say: beside the queries, or in the cache of one sequence, of which `past` tokens came before.
struct Sequences {
    const long* starts;  // (count + 1): the first token of each sequence
    long count, past, row, out_row;
    Strides k, v;  // of a token's row and of a head
    long heads, kv_heads, width, values;
    float scale, softcap;
    const float* bias;  // (heads, queries, keys) by their steps, added to scores; or null
    long bias_steps[3];
    int causal, half, threads;
};

inline long rounded_up(long n, long to) { return (n + to - 1) / to * to; }

// Keys as panels of 32 of them: for each lane of their coordinates.
template <class K>
void key_panels(const float* k, long row, long tokens, long width, char* to) {
    thread_local std::vector<uint16_t> held;
    const long lanes = width / K::WIDTH;
    for (long s = 0; s < tokens; s += 2 * ACROSS, to += 2 * LINE * lanes)
        for (int v = 0; v < 2; ++v) {
            const long first = std::min(s + v * ACROSS, tokens - 1), count = std::min(ACROSS, tokens - first);
            if constexpr (K::WIDTH == 1) {
                pack_panel<2>(reinterpret_cast<const char*>(k + first * row), row * 4, count, lanes, 0, to, v);
            } else {
                uint16_t* own = room(held, ACROSS * width);
                for (long t = 0; t < count; ++t) narrowed(k + (first + t) * row, width, own + t * width);
                pack_panel<2>(reinterpret_cast<const char*>(own), width * 2, count, lanes, 0, to, v);
            }
        }
}

// Values as panels of 32 coordinates: for each lane of tokens, whose missing ones are 0.
template <class K>
void value_panels(const float* v, long row, long tokens, long width, char* to) {
    const long lanes = rounded_up(tokens, K::WIDTH) / K::WIDTH;
    for (long e = 0; e < width; e += ACROSS) {
        char* panel = to + e / (2 * ACROSS) * 2 * LINE * lanes + e / ACROSS % 2 * LINE;
        const long left = std::min(ACROSS, width - e);
        const auto kept = static_cast<__mmask16>((1 << left) - 1);
        for (long i = 0; i < lanes; ++i, panel += 2 * LINE) {
            const __m512 first = _mm512_maskz_loadu_ps(kept, v + i * K::WIDTH * row + e);
            if constexpr (K::WIDTH == 1) {
                _mm512_store_ps(reinterpret_cast<float*>(panel), first);
            } else {
#ifdef __AVX512BF16__
                const bool two = i * 2 + 1 < tokens;
                const __m512 second = two ? _mm512_maskz_loadu_ps(kept, v + (i * 2 + 1) * row + e) : _mm512_setzero_ps();
                const __m512i low = _mm512_cvtepu16_epi32(bits_as<__m256i>(_mm512_cvtneps_pbh(first)));
                const __m512i high = _mm512_cvtepu16_epi32(bits_as<__m256i>(_mm512_cvtneps_pbh(second)));
                _mm512_store_si512(panel, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
#endif
            }
        }
    }
}

// The scores of one row to weights that are not yet divided by their sum, which is returned; from `seen` on they are 0.
inline float weigh(const Sequences& a, const float* bias, float* scores, long seen, long width) {
    if (a.softcap != 0.0f)
        for (long i = 0; i < seen; i += EIGHT)
            put(scores + i, a.softcap * hyperbolic_tangent(eight(scores + i) / a.softcap));
    if (bias)
        for (long i = 0; i < seen; ++i) scores[i] += bias[i * a.bias_steps[2]];
    for (long i = seen; i < width; ++i) scores[i] = -__builtin_inff();
    Eight most = all(-__builtin_inff());
    for (long i = 0; i < width; i += EIGHT) {
        const Eight own = eight(scores + i);
        most = own > most ? own : most;
    }
    float top = most[0];
    for (int i = 1; i < EIGHT; ++i) top = most[i] > top ? most[i] : top;
    Eight total[2] = {};
    for (long i = 0; i < width; i += 2 * EIGHT)
        for (int j = 0; j < 2; ++j) {
            const Eight p = exponential(eight(scores + i + j * EIGHT) - top);
            put(scores + i + j * EIGHT, p);
            total[j] += p;
        }
    return sum_of(total[0] + total[1]);
}

// What one head of one sequence needs for its queries.
struct Head {
    const char *keys, *values;  // panels
    const float *q, *bias;
    float* out;
    long tokens, past;
};

// The outputs of R queries from the t-th.
template <class K, int R>
void queries(const Sequences& a, const Head& h, long t, float* scores, long stride) {
    using Number = typename K::Number;
    const long lanes = a.width / K::WIDTH, seen = a.causal ? h.past + t + R : h.tokens;
    alignas(LINE) Number own[ROWS * 256];
    alignas(LINE) int32_t packed[ROWS * 256];
    for (int r = 0; r < R; ++r) {
        const float* q = h.q + (t + r) * a.row;
        float scaled[256];
        for (long d = 0; d < a.width; ++d) scaled[d] = q[d] * a.scale;
        if constexpr (K::WIDTH == 1)
            std::memcpy(own + r * a.width, scaled, a.width * sizeof(float));
        else
            narrowed(scaled, a.width, own + r * a.width);
    }
    pack_rows(reinterpret_cast<const char*>(own), a.width * sizeof(Number), R, lanes, packed);
    for (long s = 0; s < seen; s += 2 * ACROSS) {
        Floats sums[R][2];
        panel_sums<K, R, 2>(h.keys + s * LINE / ACROSS * lanes, packed, 1, R, lanes, sums);
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < 2; ++v) stored(scores + r * stride + s + v * ACROSS, sums[r][v]);
    }
    const long width = rounded_up(seen, 2 * ACROSS);
    float factors[R];
    for (int r = 0; r < R; ++r) {
        float* row = scores + r * stride;
        const float* bias = h.bias ? h.bias + (t + r) * a.bias_steps[1] : nullptr;
        factors[r] = 1.0f / weigh(a, bias, row, a.causal ? h.past + t + r + 1 : h.tokens, width);
        if constexpr (K::WIDTH == 2) narrowed(row, width, reinterpret_cast<uint16_t*>(row));  // in place: written behind what is read
    }
    const long some = rounded_up(seen, K::WIDTH) / K::WIDTH, all_lanes = rounded_up(h.tokens, K::WIDTH) / K::WIDTH;
    for (long e = 0; e < a.values; e += 2 * ACROSS) {
        Floats sums[R][2];
        const auto* weights = reinterpret_cast<const int32_t*>(scores);
        panel_sums<K, R, 2>(h.values + e / ACROSS * LINE * all_lanes, weights, stride, 1, some, sums);
        for (int v = 0; v < 2; ++v) {
            const long left = std::min(ACROSS, a.values - e - v * ACROSS);
            if (left <= 0) break;
            for (int r = 0; r < R; ++r)
                put_lanes(h.out + (t + r) * a.out_row + e + v * ACROSS, bits_as<__m512i>(sums[r][v] * factors[r]), left);
        }
    }
}

template <class K, int R = ROWS>
void some_queries(long count, const Sequences& a, const Head& h, long t, float* scores, long stride) {
    if constexpr (R > 1)
        if (count < R) return some_queries<K, R - 1>(count, a, h, t, scores, stride);
    queries<K, R>(a, h, t, scores, stride);
}

// out = softmax(scale · Q Kᵀ + bias) V of the queries first to `stop` of one key-value head's query heads.
template <class K>
void sequence_head(const Sequences& a, long sequence, long g, long first, long stop, const float* q, const float* k, const float* v,
                   float* out) {
    thread_local std::vector<char> key_held, value_held;
    thread_local std::vector<float> score_held;
    const long start = a.starts[sequence], tokens = a.past + a.starts[sequence + 1] - start, group = a.heads / a.kv_heads;
    const long seen = a.causal ? a.past + stop : tokens;
    char* keys = room(key_held, rounded_up(tokens, 2 * ACROSS) * a.width / K::WIDTH * 4);
    char* values = room(value_held, rounded_up(a.values, 2 * ACROSS) * rounded_up(tokens, 2) / K::WIDTH * 4);
    key_panels<K>(k + start * a.k.row + g * a.k.head, a.k.row, seen, a.width, keys);
    value_panels<K>(v + start * a.v.row + g * a.v.head, a.v.row, tokens, a.values, values);
    const long stride = rounded_up(tokens, 2 * ACROSS) + ACROSS;  // not a multiple of a page: rows would share places in the cache
    float* scores = room(score_held, ROWS * stride);
    for (long h = g * group; h < (g + 1) * group; ++h) {
        const float* bias = a.bias ? a.bias + h * a.bias_steps[0] : nullptr;
        const Head head{keys, values, q + start * a.row + h * a.width, bias, out + start * a.out_row + h * a.values, tokens, a.past};
        const long parts = (stop - first + ROWS - 1) / ROWS;
        for (long p = 0; p < parts; ++p) {
            const long t = first + (stop - first) * p / parts, next = first + (stop - first) * (p + 1) / parts;
            some_queries<K>(next - t, a, head, t, scores, stride);
        }
    }
}

// Attention of all sequences.
template <class K>
void attend_sequences(const Sequences& a, const float* q, const float* k, const float* v, float* out) {
    struct Task {
        long sequence, head, first, stop;
    };
    std::vector<Task> tasks;
    const bool few = a.count * a.kv_heads < 4 * a.threads;
    for (long i = 0; i < a.count; ++i) {
        const long tokens = a.starts[i + 1] - a.starts[i];
        const long each = few ? CHUNK : std::max(tokens, 1L);
        for (long g = 0; g < a.kv_heads; ++g)
            for (long t = 0; t < tokens; t += each) tasks.push_back({i, g, t, std::min(tokens, t + each)});
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(a.threads) if (a.threads > 1)
    for (size_t i = 0; i < tasks.size(); ++i) {
        const Task& task = tasks[tasks.size() - 1 - i];  // with causal attention, later queries see more
        sequence_head<K>(a, task.sequence, task.head, task.first, task.stop, q, k, v, out);
    }
}

}  // namespace
#endif

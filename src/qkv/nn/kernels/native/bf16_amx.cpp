// Block-sparse attention in bf16, forward and backward, in blocks of 64 queries and 64 keys, with AMX tiles: 16 rows of 32
// numbers times 32 rows of 16, summed in fp32. The equations are those of block_sparse.cpp (Dao et al. 2022).
//
// As there, scores of a block are stored as S[key][query], so that vectors hold sixteen queries. Keys and values are packed
// for the tiles once for all queries of a head.
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

#include "amx.h"
#include "structures.h"

namespace {

constexpr float LOG2_E = 1.44269504088896340736f;

// Strides of a tensor (B, rows, heads, width), whose last axis is contiguous.
struct Strides {
    long batch, row, head;
};

struct Sizes {
    long batch, heads, kv_heads, queries, keys, width, values;
    Strides q, k, v, d_out;
    long strips;
    float scale;
    int threads;
};

// The blocks of keys that each strip of queries visits: strip i those from ends[i] to ends[i + 1], each with the number of
// its mask in `limits`, or -1. With marks, a query sees only keys of its own mark.
struct Plan {
    const int64_t *number, *ends, *block, *table;
    const float* limits;  // (tables, keys, queries): infinity where a pair is allowed, -infinity where not
    const int32_t *q_marks, *k_marks;
    long q_marks_row, k_marks_row;  // from one row of the batch to the next; 0 where all rows share them
    int checks_finite;                       // whether to give up if keys or values are not finite, since 0 * NaN is NaN
};

// -- scores ----------------------------------------------------------------------------------------------------------------

// 2^x with a relative error of 9e-5, a twentieth of that of rounding to bf16; 0 for minus infinity, NaN for NaN.
inline __m512 power(__m512 x) {
    const __m512 f = _mm512_reduce_ps(x, 0x01);  // x less the whole number below it
    __m512 p = _mm512_set1_ps(0.0770672403f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.227644978f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.695116631f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, x);
}

// Two rows of sixteen weights, rounded and paired.
inline __m512i pairs(__m512 even, __m512 odd) {
    alignas(64) static constexpr uint16_t ORDER[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_load_si512(ORDER), (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

inline void store_rounded(Half* to, __m512 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(x));
}

// The smallest and the largest of some marks.
struct Range {
    int32_t least, most;
    Range(const int32_t* marks, long count) : least(marks[0]), most(marks[0]) {
        for (long i = 1; i < count; ++i) {
            least = marks[i] < least ? marks[i] : least;
            most = marks[i] > most ? marks[i] : most;
        }
    }
    bool apart(const Range& other) const { return most < other.least || other.most < least; }
    bool same(const Range& other) const { return least == most && other.least == least && other.most == most; }
};

// One strip of a head's queries, with its masks.
struct Strip {
    const Plan& plan;
    long index, first, count, lanes;  // number in the plan; first query; how many queries; how many vectors of them
    const int32_t *marks, *k_marks;
    alignas(64) int32_t own[SIDE];

    Strip(const Plan& plan, long index, long b, long queries) : plan(plan), index(index), first(plan.number[index] * SIDE) {
        count = queries - first < SIDE ? queries - first : SIDE;
        lanes = (count + LANES - 1) / LANES;
        marks = plan.q_marks ? plan.q_marks + b * plan.q_marks_row + first : nullptr;
        k_marks = plan.k_marks ? plan.k_marks + b * plan.k_marks_row : nullptr;
        for (long i = 0; i < SIDE; ++i) own[i] = marks ? marks[i < count ? i : count - 1] : 0;
    }

    // Whether no query sees any key of a block; otherwise masks its scores.
    bool misses(long start, long there) const {
        return marks && Range(own, SIDE).apart(Range(k_marks + start, there));
    }

    void hide(long i, long start, long there, float* scores) const {
        const __m512 never = _mm512_set1_ps(-INFINITY);
        if (plan.table[i] >= 0) {
            const float* limit = plan.limits + plan.table[i] * SIDE * SIDE;
            for (long j = 0; j < there; ++j)
                for (long n = 0; n < lanes * LANES; n += LANES) {
                    float* at = scores + j * SIDE + n;
                    const __mmask16 gone = _mm512_cmp_ps_mask(_mm512_loadu_ps(limit + j * SIDE + n), never, _CMP_EQ_OQ);
                    _mm512_storeu_ps(at, _mm512_mask_mov_ps(_mm512_loadu_ps(at), gone, never));
                }
        }
        if (!marks || Range(own, SIDE).same(Range(k_marks + start, there))) return;
        for (long j = 0; j < there; ++j) {
            const __m512i mark = _mm512_set1_epi32(k_marks[start + j]);
            for (long n = 0; n < lanes * LANES; n += LANES) {
                float* at = scores + j * SIDE + n;
                const __mmask16 gone = _mm512_cmpneq_epi32_mask(mark, _mm512_load_si512(own + n));
                _mm512_storeu_ps(at, _mm512_mask_mov_ps(_mm512_loadu_ps(at), gone, never));
            }
        }
    }
};

// Keys and values of one head, packed for the forward pass, and buffers for the scores of a strip.
struct Forward {
    const Sizes& s;
    long keys, wide, tall;  // numbers, rounded up to whole tiles: of keys, of a key and of a value
    Space<Half> k, v;
    Space<uint32_t> q, weights;
    Space<float> scores, sums;

    explicit Forward(const Sizes& s)
        : s(s), keys(up(s.keys, SIDE)), wide(up(s.width, DEPTH)), tall(up(s.values, DEPTH)), k(keys * wide), v(keys * tall),
          q(SIDE * wide / 2), weights(SIDE * SIDE / 2), scores(SIDE * SIDE), sums(SIDE * tall) {}

    void read(const Half* k_from, const Half* v_from) {
        plain({k_from, s.k.row, s.keys, s.width}, keys, wide, k);
        across({v_from, s.v.row, s.keys, s.values}, keys, tall, v);
    }

    void strip(const Half* q_from, const Strip& strip, Half* out, float* lse);
    void weigh(const Strip& strip, long there, bool begun, __m512* most, __m512* total);
};

// The largest score of each query.
template <int L>
inline void largest(const float* scores, long there, __m512* most) {
    __m512 top[L];
    for (int n = 0; n < L; ++n) top[n] = most[n];
    for (long j = 0; j < there; ++j)
        for (int n = 0; n < L; ++n) top[n] = _mm512_max_ps(_mm512_loadu_ps(scores + j * SIDE + n * LANES), top[n]);
    for (int n = 0; n < L; ++n) most[n] = top[n];
}

// Turn scores into weights, paired; earlier sums shrink where a larger score has come.
void Forward::weigh(const Strip& strip, long there, bool begun, __m512* most, __m512* total) {
    const __m512 factor = _mm512_set1_ps(s.scale * LOG2_E);
    __m512 before[SIDE / LANES];
    for (long n = 0; n < strip.lanes; ++n) before[n] = most[n];
    switch (strip.lanes) {
        case 1: largest<1>(scores, there, most); break;
        case 2: largest<2>(scores, there, most); break;
        case 3: largest<3>(scores, there, most); break;
        default: largest<4>(scores, there, most);
    }
    for (long n = 0; n < strip.lanes; ++n) {
        const float* at = scores + n * LANES;
        __m512 sum = total[n];
        if (begun && _mm512_cmp_ps_mask(most[n], before[n], _CMP_NEQ_UQ)) {
            const __m512 fade = power(_mm512_mul_ps(_mm512_sub_ps(before[n], most[n]), factor));
            sum = _mm512_mul_ps(sum, fade);
            for (long e = 0; e < s.values; ++e) {
                float* row = sums + e * SIDE + n * LANES;
                _mm512_storeu_ps(row, _mm512_mul_ps(_mm512_loadu_ps(row), fade));
            }
        }
        const __m512 less = _mm512_mul_ps(most[n], factor);
        __m512 other = _mm512_setzero_ps();
        long j = 0;
        for (; j + 1 < there; j += 2) {
            const __m512 a = power(_mm512_fmsub_ps(_mm512_loadu_ps(at + j * SIDE), factor, less));
            const __m512 b = power(_mm512_fmsub_ps(_mm512_loadu_ps(at + j * SIDE + SIDE), factor, less));
            sum = _mm512_add_ps(sum, a);
            other = _mm512_add_ps(other, b);
            _mm512_store_si512(weights + j / 2 * SIDE + n * LANES, pairs(a, b));
        }
        if (j < there) {
            const __m512 a = power(_mm512_fmsub_ps(_mm512_loadu_ps(at + j * SIDE), factor, less));
            sum = _mm512_add_ps(sum, a);
            _mm512_store_si512(weights + j / 2 * SIDE + n * LANES, pairs(a, _mm512_setzero_ps()));
            j += 2;
        }
        for (; j < up(there, DEPTH); j += 2) _mm512_store_si512(weights + j / 2 * SIDE + n * LANES, _mm512_setzero_si512());
        total[n] = _mm512_add_ps(sum, other);
    }
}

void Forward::strip(const Half* q_from, const Strip& strip, Half* out, float* lse) {
    paired_across({q_from + strip.first * s.q.row, s.q.row, strip.count, s.width}, SIDE, wide, q);
    __m512 most[SIDE / LANES], total[SIDE / LANES];
    for (auto& x : most) x = _mm512_set1_ps(-1e30f);  // finite, so that a row that sees nothing gives no NaN
    for (auto& x : total) x = _mm512_setzero_ps();
    bool begun = false;
    for (long i = strip.plan.ends[strip.index]; i < strip.plan.ends[strip.index + 1]; ++i) {
        const long start = strip.plan.block[i] * SIDE, there = s.keys - start < SIDE ? s.keys - start : SIDE;
        if (strip.misses(start, there)) continue;
        product(k + start * wide, wide, q, SIDE, scores, SIDE, (there + LANES - 1) / LANES, strip.lanes, wide / DEPTH, false);
        strip.hide(i, start, there, scores);
        weigh(strip, there, begun, most, total);
        product(v + start * tall, SIDE, weights, SIDE, sums, SIDE, (s.values + LANES - 1) / LANES, strip.lanes,
                (there + DEPTH - 1) / DEPTH, begun);
        begun = true;
    }
    alignas(64) float share[SIDE], logs[SIDE];
    for (long n = 0; n < strip.lanes; ++n) {
        _mm512_store_ps(logs + n * LANES, _mm512_mul_ps(most[n], _mm512_set1_ps(s.scale)));
        _mm512_store_ps(share + n * LANES, total[n]);
    }
    for (long i = 0; i < strip.count; ++i) {
        const bool blind = share[i] == 0;
        lse[(strip.first + i) * s.heads] = blind ? -INFINITY : logs[i] + std::log(share[i]);
        share[i] = blind ? 0 : 1 / share[i];
    }
    if (!begun) std::memset(sums, 0, SIDE * tall * sizeof(float));
    written(sums, share, strip.count, s.values, out + strip.first * s.heads * s.values, s.heads * s.values);
}

// The same for the backward pass, which sums gradients of keys and values in fp32.
struct Backward {
    const Sizes& s;
    long keys, wide, tall;
    Space<Half> k, k_across, v;
    Space<uint32_t> q, q_rows, g, g_rows, d_paired;
    Space<Half> weights, d_weights;
    Space<float> scores, d_scores, d_k, d_v, d_q;

    explicit Backward(const Sizes& s)
        : s(s), keys(up(s.keys, SIDE)), wide(up(s.width, DEPTH)), tall(up(s.values, DEPTH)), k(keys * wide),
          k_across(keys * wide), v(keys * tall), q(SIDE * wide / 2), q_rows(SIDE * wide / 2), g(SIDE * tall / 2),
          g_rows(SIDE * tall / 2), d_paired(SIDE * SIDE / 2), weights(SIDE * SIDE), d_weights(SIDE * SIDE),
          scores(SIDE * SIDE), d_scores(SIDE * SIDE), d_k(keys * wide), d_v(keys * tall), d_q(SIDE * wide) {}

    void read(const Half* k_from, const Half* v_from) {
        plain({k_from, s.k.row, s.keys, s.width}, keys, wide, k);
        across({k_from, s.k.row, s.keys, s.width}, keys, wide, k_across);
        plain({v_from, s.v.row, s.keys, s.values}, keys, tall, v);
        std::memset(d_k, 0, keys * wide * sizeof(float));
        std::memset(d_v, 0, keys * tall * sizeof(float));
    }

    void strip(const Half* q_from, const Strip& strip, const Half* out, const float* lse, const Half* d_out,
               const float* d_lse, Half* to);
    void weigh(const Strip& strip, long there, const float* norm, const float* delta);
};

// W = exp(S - L) and dS = W (dO V' - delta), rounded: key by key, and dS paired too.
void Backward::weigh(const Strip& strip, long there, const float* norm, const float* delta) {
    const __m512 factor = _mm512_set1_ps(s.scale * LOG2_E), none = _mm512_setzero_ps();
    for (long n = 0; n < up(strip.lanes, 2); ++n) {
        const __m512 less = _mm512_load_ps(norm + n * LANES), mean = _mm512_load_ps(delta + n * LANES);
        const bool idle = n >= strip.lanes;
        for (long j = 0; j < up(there, DEPTH); j += 2) {
            __m512 w[2] = {none, none}, d[2] = {none, none};
            for (long i = 0; i < 2 && j + i < there && !idle; ++i) {
                const long at = (j + i) * SIDE + n * LANES;
                w[i] = power(_mm512_fmsub_ps(_mm512_loadu_ps(scores + at), factor, less));
                d[i] = _mm512_mul_ps(w[i], _mm512_sub_ps(_mm512_loadu_ps(d_scores + at), mean));
            }
            for (long i = 0; i < 2; ++i) {
                store_rounded(weights + (j + i) * SIDE + n * LANES, w[i]);
                store_rounded(d_weights + (j + i) * SIDE + n * LANES, d[i]);
            }
            _mm512_store_si512(d_paired + j / 2 * SIDE + n * LANES, pairs(d[0], d[1]));
        }
    }
}

inline float dot(const Half* a, const Half* b, long width) {
    __m512 sum = _mm512_setzero_ps();
    for (long d = 0; d < width; d += DEPTH)
        sum = _mm512_dpbf16_ps(sum, (__m512bh)numbers(a, d, width), (__m512bh)numbers(b, d, width));
    return _mm512_reduce_add_ps(sum);
}

void Backward::strip(const Half* q_from, const Strip& strip, const Half* out, const float* lse, const Half* d_out,
                     const float* d_lse, Half* to) {
    alignas(64) float norm[SIDE], delta[SIDE], factor[SIDE];
    const Rows queries = {q_from + strip.first * s.q.row, s.q.row, strip.count, s.width};
    const Rows gradients = {d_out + strip.first * s.d_out.row, s.d_out.row, strip.count, s.values};
    paired_across(queries, SIDE, wide, q);
    paired(queries, SIDE, wide, q_rows);
    paired_across(gradients, SIDE, tall, g);
    paired(gradients, SIDE, tall, g_rows);
    for (long i = 0; i < SIDE; ++i) {
        norm[i] = INFINITY;  // 2^-infinity where nothing is seen
        delta[i] = 0.0f;
        factor[i] = s.scale;
        if (i >= strip.count) continue;
        const long at = (strip.first + i) * s.heads;
        if (lse[at] != -INFINITY) norm[i] = lse[at] * LOG2_E;
        delta[i] = dot(gradients.x + i * gradients.step, out + at * s.values, s.values) - (d_lse ? d_lse[at] : 0.0f);
    }
    const long width = wide / LANES, height = tall / LANES;
    bool begun = false;
    for (long i = strip.plan.ends[strip.index]; i < strip.plan.ends[strip.index + 1]; ++i) {
        const long start = strip.plan.block[i] * SIDE, there = s.keys - start < SIDE ? s.keys - start : SIDE;
        if (strip.misses(start, there)) continue;
        const long tiles = (there + LANES - 1) / LANES, pairs_of_lanes = (strip.lanes + 1) / 2;
        product(k + start * wide, wide, q, SIDE, scores, SIDE, tiles, strip.lanes, wide / DEPTH, false);
        product(v + start * tall, tall, g, SIDE, d_scores, SIDE, tiles, strip.lanes, tall / DEPTH, false);
        strip.hide(i, start, there, scores);
        weigh(strip, there, norm, delta);
        product(weights, SIDE, g_rows, tall, d_v + start * tall, tall, tiles, height, pairs_of_lanes, true);
        product(d_weights, SIDE, q_rows, wide, d_k + start * wide, wide, tiles, width, pairs_of_lanes, true);
        product(k_across + start * wide, SIDE, d_paired, SIDE, d_q, SIDE, width, strip.lanes, (there + DEPTH - 1) / DEPTH, begun);
        begun = true;
    }
    if (!begun) std::memset(d_q, 0, SIDE * wide * sizeof(float));
    written(d_q, factor, strip.count, s.width, to + strip.first * s.heads * s.width, s.heads * s.width);
}

// Pack keys and values; fails if some are not finite and that is to be checked.
template <class Work>
bool read(Work& work, const Half* k, const Half* v, bool checks_finite) {
    const Sizes& s = work.s;
    if (checks_finite && !(finite({k, s.k.row, s.keys, s.width}) && finite({v, s.v.row, s.keys, s.values}))) return false;
    work.read(k, v);
    return true;
}

}  // namespace

QKV_STRUCTURE(Strides, QKV_FIELD(batch), QKV_FIELD(row), QKV_FIELD(head))
QKV_STRUCTURE(Sizes, QKV_FIELD(batch), QKV_FIELD(heads), QKV_FIELD(kv_heads), QKV_FIELD(queries), QKV_FIELD(keys),
              QKV_FIELD(width), QKV_FIELD(values), QKV_FIELD(q), QKV_FIELD(k), QKV_FIELD(v), QKV_FIELD(d_out),
              QKV_FIELD(strips), QKV_FIELD(scale), QKV_FIELD(threads))
QKV_STRUCTURE(Plan, QKV_FIELD(number), QKV_FIELD(ends), QKV_FIELD(block), QKV_FIELD(table), QKV_FIELD(limits),
              QKV_FIELD(q_marks), QKV_FIELD(k_marks), QKV_FIELD(q_marks_row), QKV_FIELD(k_marks_row), QKV_FIELD(checks_finite))

extern "C" {

// Whether this machine has AMX tiles and lets this process use them.
int qkv_ready() {
    constexpr int REQUEST = 0x1023, TILES = 18;
    return syscall(SYS_arch_prctl, REQUEST, TILES) == 0;
}

// q (B, T, H, D), k (B, S, K, D), v (B, S, K, E) as `Sizes` says, in bf16; out (B, T, H, E) in bf16 and lse (B, T, H) in fp32
// contiguous. Strips that are not in the plan are left unchanged. Not 0 if keys or values are not finite.
int qkv_forward(const Half* q, const Half* k, const Half* v, Half* out, float* lse, const Plan* plan, const Sizes* s) {
    const long group = s->heads / s->kv_heads, pairs = s->batch * s->kv_heads;
    const long parts = pairs >= 2 * s->threads ? 1 : (2 * s->threads + pairs - 1) / pairs;
    int failed = 0;
#pragma omp parallel num_threads(s->threads) reduction(| : failed)
    {
        const Tiles tiles;
        Forward work(*s);
#pragma omp for schedule(dynamic)
        for (long item = 0; item < pairs * parts; ++item) {
            const long pair = item / parts, part = item % parts, b = pair / s->kv_heads, kv = pair % s->kv_heads;
            if (!read(work, k + b * s->k.batch + kv * s->k.head, v + b * s->v.batch + kv * s->v.head, plan->checks_finite)) {
                failed = 1;
                continue;
            }
            for (long h = kv * group; h < (kv + 1) * group; ++h)
                for (long i = part; i < s->strips; i += parts) {
                    const long at = b * s->queries * s->heads + h;
                    work.strip(q + b * s->q.batch + h * s->q.head, Strip(*plan, i, b, s->queries), out + at * s->values, lse + at);
                }
        }
    }
    return failed;
}

// Also: out and lse as returned, d_out as `Sizes` says, d_lse (may be null) like lse; d_q like q, d_k and d_v like k and v, all
// contiguous and in bf16.
int qkv_backward(const Half* q, const Half* k, const Half* v, const Half* out, const float* lse, const Half* d_out,
                  const float* d_lse, Half* d_q, Half* d_k, Half* d_v, const Plan* plan, const Sizes* s) {
    const long group = s->heads / s->kv_heads, pairs = s->batch * s->kv_heads;
    int failed = 0;
#pragma omp parallel num_threads(s->threads) reduction(| : failed)
    {
        const Tiles tiles;
        Backward work(*s);
#pragma omp for schedule(dynamic)
        for (long pair = 0; pair < pairs; ++pair) {
            const long b = pair / s->kv_heads, kv = pair % s->kv_heads, to = b * s->keys * s->kv_heads + kv;
            if (!read(work, k + b * s->k.batch + kv * s->k.head, v + b * s->v.batch + kv * s->v.head, plan->checks_finite)) {
                failed = 1;
                continue;
            }
            for (long h = kv * group; h < (kv + 1) * group; ++h)
                for (long i = 0; i < s->strips; ++i) {
                    const long at = b * s->queries * s->heads + h;
                    work.strip(q + b * s->q.batch + h * s->q.head, Strip(*plan, i, b, s->queries), out + at * s->values,
                               lse + at, d_out + b * s->d_out.batch + h * s->d_out.head, d_lse ? d_lse + at : nullptr,
                               d_q + at * s->width);
                }
            rounded(work.d_k, work.wide, s->scale, s->keys, s->width, d_k + to * s->width, s->kv_heads * s->width);
            rounded(work.d_v, work.tall, 1.0f, s->keys, s->values, d_v + to * s->values, s->kv_heads * s->values);
        }
    }
    return failed;
}
}

#else

extern "C" int qkv_ready() { return 0; }

#endif

// Block-sparse FlashAttention, forward and backward, in blocks of 64 queries and 64 keys (Dao et al. 2022):
// S = scale QK', L = log sum exp S, O = exp(S - L) V, with dV = W' dO, dS = W (dO V' - rowsum(dO O) + dL),
// dQ = scale dS K and dK = scale dS' Q. With dropout, O = (M W) V and dS = W (M dO V' - ...), where M is 0 or 1/(1 - p).
//
// Scores of a block are stored as S[key][query]: vectors hold sixteen queries, and products read keys and values one number
// at a time, in the order of memory.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>

#include "structures.h"
#include "thinning.h"
#include "vectors.h"

namespace {

constexpr long SIDE = 64, WIDEST = 128, VECTORS = SIDE / LANES;
constexpr long PANELS = 16, TURN = 8;  // blocks of keys that are cached; strips of a head in a row

// Strides of a tensor (B, rows, heads, width), whose last axis is contiguous.
struct Strides {
    long batch, row, head;
};

struct Sizes {
    long batch, heads, kv_heads, queries, keys, width, values;
    Strides q, k, v;
    long strips, row, head;  // `row` is the first row's number in the batch, `head` the first head's
    float scale;
    int merges, threads;
    uint32_t seed_low, seed_high, dropped;  // `dropped` of 65536 weights are
    long keys_of(const int64_t* lengths, long b) const { return lengths ? lengths[b] : keys; }
};

// The blocks of keys that each strip of queries visits: strip i those from ends[i] to ends[i + 1], each with the number of
// its mask in `limits`, or -1. With `order`, strips and blocks are of tokens in that order.
struct Plan {
    const int64_t *number, *ends, *block, *table, *order;
    const float* limits;   // (tables, keys, queries): infinity where a pair is allowed, -infinity where not
    const int64_t* spans;  // (tables, groups of 16 keys, 2): first and end of the queries that see any of them
    const float *places, *kv_places;  // positions of queries and keys, for ALiBi
    const float* slopes;              // ALiBi's slope of each head, or null
    const int64_t* lengths;           // the number of keys in each row of the batch, or null: all
    const int32_t *document, *token, *key_token;  // of dropout, see `Numbered`; or null
    Numbered numbered(const Sizes& s, long b) const {
        const auto row = [b](const int32_t* x, long count) { return x ? x + b * count : nullptr; };
        return {row(document, s.queries), row(token, s.queries), row(key_token, s.keys), s.queries, s.keys};
    }
    Thinning thinning(const Sizes& s, long b, long head) const {
        return {{s.seed_low, s.seed_high}, s.row + b, s.head + head, s.dropped, numbered(s, b)};
    }
};

// Rows of some tokens, and where they are in memory.
struct Rows {
    const int64_t* order;
    long start, count, step;  // the first token, how many, and the stride from one token to the next
    long at(long i) const { return (order ? order[start + i] : start + i) * step; }
};

// Whether all of them are finite.
inline bool copied(const float* x, Rows from, long width, float* to, float factor = 1.0f) {
    Floats zero = {};
    for (long i = 0; i < from.count; ++i)
        for (long d = 0; d < width; d += LANES) {
            const Floats numbers = load(x + from.at(i) + d);
            zero += numbers - numbers;
            store(to + i * width + d, factor * numbers);
        }
    std::memset(to + from.count * width, 0, (SIDE - from.count) * width * sizeof *to);
    float sum = 0.0f;
    for (int i = 0; i < LANES; ++i) sum += zero[i];
    return sum == 0.0f;
}

inline void placed(const float* places, Rows from, float* to) {
    for (long i = 0; i < SIDE; ++i) to[i] = i < from.count ? places[from.at(i)] : 0.0f;
}

// Rows that will be read or written soon.
struct Wanted {
    const float* x;
    Rows rows;
    long width;
    int write;
};

// Prefetch rows of each in turn, since they lie far apart. Always inlined: compilers may drop calls without effect.
template <int N>
__attribute__((always_inline)) inline void asked(const Wanted (&wanted)[N]) {
    for (long i = 0; i < SIDE; ++i)
        for (const Wanted& w : wanted)
            for (long d = 0; d < w.width && i < w.rows.count; d += LANES)
                w.write ? __builtin_prefetch(w.x + w.rows.at(i) + d, 1, 2) : __builtin_prefetch(w.x + w.rows.at(i) + d, 0, 2);
}

// Add to the rows of some tokens.
inline void added(const float* x, Rows to, long width, float* sums) {
    for (long i = 0; i < to.count; ++i) {
        float* row = sums + to.at(i);
        for (long d = 0; d < width; ++d) row[d] += x[i * width + d];
    }
}

// Keys start ... stop - 1 and queries from ... to - 1 of a block, in multiples of sixteen.
struct Part {
    long start, stop, from, to;
    long keys() const { return stop - start; }
    long queries() const { return to - from; }
    long at() const { return start * SIDE + from; }  // in a block's scores
};

// The parts of a block in which some pair is allowed.
struct Parts {
    Part part[VECTORS];
    long count = 0;
    const Part* begin() const { return part; }
    const Part* end() const { return part + count; }

    Parts(const Plan& plan, long i, long keys, long queries) {
        const int64_t whole[] = {0, SIDE};
        const int64_t most = (queries + LANES - 1) / LANES * LANES;
        for (long start = 0; start < keys; start += LANES) {
            const int64_t* span = plan.table[i] < 0 ? whole : plan.spans + 2 * (plan.table[i] * VECTORS + start / LANES);
            const long stop = start + LANES < keys ? start + LANES : keys, to = span[1] < most ? span[1] : most;
            if (span[0] >= to) continue;
            Part* last = part + count - 1;
            if (count && last->stop == start && last->from == span[0] && last->to == to)
                last->stop = stop;
            else
                part[count++] = {start, stop, span[0], to};
        }
    }
};

// A block of one head's keys and values, and of their gradients in the backward pass, with contiguous rows.
struct Panel {
    long count;
    float *keys, *values, *places, *d_keys, *d_values;
};

// A cache of the blocks used last, since neighboring strips share most of theirs. Each is copied once, and its gradients are
// added to the tensor's when another block takes its place.
class Panels {
  public:
    Panels(const Plan& plan, const Sizes& s, bool gradients)
        : plan(plan), s(s), gradients(gradients), room(SIDE * (s.width + s.values + 1)), memory(new float[reach() + LANES]) {
        for (long& block : blocks) block = -1;
    }

    bool finite = true;  // whether all copied numbers are

    void begin(const float* keys, const float* values, float* to_keys, float* to_values, long count) {
        k = keys, v = values, d_k = to_keys, d_v = to_values, length = count;
    }

    bool holds(long block) const { return block * SIDE < length; }

    // Prefetch a block that is not in the cache.
    Wanted keys(long block) const { return {k, rows(block, s.k.row), s.width, 0}; }
    Wanted values(long block) const { return {v, rows(block, s.v.row), s.values, 0}; }

    Panel at(long block) {
        const long slot = block % PANELS;
        const Panel panel = of(slot, block);
        if (blocks[slot] == block) return panel;
        leave(slot);
        blocks[slot] = block;
        finite &= copied(k, {plan.order, block * SIDE, panel.count, s.k.row}, s.width, panel.keys);
        finite &= copied(v, {plan.order, block * SIDE, panel.count, s.v.row}, s.values, panel.values);
        if (plan.slopes) placed(plan.kv_places, {plan.order, block * SIDE, panel.count, 1}, panel.places);
        if (gradients) std::memset(panel.d_keys, 0, room * sizeof(float));
        return panel;
    }

    void end() {
        for (long slot = 0; slot < PANELS; ++slot) leave(slot);
    }

  private:
    Rows rows(long block, long step) const {
        return {plan.order, block * SIDE, blocks[block % PANELS] == block ? 0 : of(0, block).count, step};
    }

    long reach() const { return PANELS * room * (gradients ? 2 : 1); }

    Panel of(long slot, long block) const {
        const long left = length - block * SIDE;
        float* own = memory.get() + slot * room * (gradients ? 2 : 1);
        own += (64 - reinterpret_cast<uintptr_t>(memory.get()) % 64) % 64 / sizeof(float);
        return {left < SIDE ? left : SIDE, own, own + SIDE * s.width, own + room - SIDE,
                own + room, own + room + SIDE * s.width};
    }

    void leave(long slot) {
        const long block = blocks[slot];
        blocks[slot] = -1;
        if (block < 0 || !gradients) return;
        const Panel panel = of(slot, block);
        added(panel.d_keys, {plan.order, block * SIDE, panel.count, s.kv_heads * s.width}, s.width, d_k);
        added(panel.d_values, {plan.order, block * SIDE, panel.count, s.kv_heads * s.values}, s.values, d_v);
    }

    const Plan& plan;
    const Sizes& s;
    const bool gradients;
    const long room;  // numbers of a block of keys, of values, and of positions
    const std::unique_ptr<float[]> memory;
    long blocks[PANELS], length = 0;
    const float *k = nullptr, *v = nullptr;
    float *d_k = nullptr, *d_v = nullptr;
};

// Transposed queries in units of ln 2, their positions and the slope.
struct Asking {
    const float *queries, *places;
    float slope;
};

// S = QK' - slope |q - k| for a part of a block, in units of ln 2, with -infinity for masked pairs.
inline void scored(const Panel& panel, Asking own, const Plan& plan, long i, Part p, long width, float* s) {
    product(panel.keys + p.start * width, width, 1, own.queries + p.from, SIDE, s + p.at(), SIDE, p.keys(), width, p.queries(),
            false);
    for (long j = p.start; own.slope != 0.0f && j < p.stop; ++j)
        for (long n = p.from; n < p.to; n += LANES) {
            const Floats away = load(own.places + n) - panel.places[j];
            store(s + j * SIDE + n, load(s + j * SIDE + n) - own.slope * larger(away, -away));
        }
    if (plan.table[i] < 0) return;
    const float* limit = plan.limits + plan.table[i] * SIDE * SIDE;
    for (long j = p.start * SIDE; j < p.stop * SIDE; j += SIDE)
        for (long n = p.from; n < p.to; n += LANES) {
            const Floats x = load(s + j + n), most = load(limit + j + n);
            store(s + j + n, x < most ? x : most);
        }
}

struct Lane {
    Floats v[VECTORS];
};

// The largest score of each query so far.
inline void topped(const float* scores, Part p, Lane& most) {
    for (long j = p.start * SIDE; j < p.stop * SIDE; j += SIDE)
        for (long n = p.from; n < p.to; n += LANES) most.v[n / LANES] = larger(most.v[n / LANES], load(scores + j + n));
}

// Scores to weights, exp(score - largest), and their sum for each query.
inline void weighed(float* scores, Part p, const Lane& most, Lane& total) {
    for (long n = p.from; n < p.to; n += LANES) {
        const Floats top = most.v[n / LANES];
        Floats sum = total.v[n / LANES];
        for (long j = p.start * SIDE; j < p.stop * SIDE; j += SIDE) {
            const Floats weight = power(load(scores + j + n) - top);
            store(scores + j + n, weight);
            sum += weight;
        }
        total.v[n / LANES] = sum;
    }
}

// Zero the weights that are dropped.
inline void thinned(float* weights, Part p, long query, long key, const Thinning& d) {
    d.over<SIDE>(p, query, key, [&](long at, auto kept) { store(weights + at, kept ? load(weights + at) : Floats{}); });
}

// Output and log-sum-exp of a strip from the sums (values, queries) of weighted values; merged with earlier ones if `merges`.
void finished(const float* sums, const Lane& most, const Lane& total, Rows to, Rows logs, const Sizes& s, float grown,
              float* out, float* lse) {
    alignas(64) float rows[SIDE * WIDEST];
    turned(sums, s.values, SIDE, rows);
    for (long i = 0; i < to.count; ++i) {
        const float weight = total.v[i / LANES][i % LANES];
        float own = weight == 0 ? -INFINITY : most.v[i / LANES][i % LANES] * LN_2 + std::log(weight);
        float share = weight == 0 ? 0 : grown / weight, old = 0;
        float &log = lse[logs.at(i)], *row = out + to.at(i);
        if (s.merges && log != -INFINITY) {
            const float top = own > log ? own : log, a = std::exp(own - top), b = std::exp(log - top);
            share *= a / (a + b);
            old = b / (a + b);
            own = top + std::log(a + b);
        }
        log = own;
        if (old != 0)
            for (long e = 0; e < s.values; ++e) row[e] = share * rows[i * s.values + e] + old * row[e];
        else
            for (long e = 0; e < s.values; ++e) row[e] = share * rows[i * s.values + e];
    }
}

// One strip of one head's queries.
void forward_strip(const float* q, Panels& panels, float* out, float* lse, float slope, const Thinning& dropout,
                   const Plan& plan, long strip, const Sizes& s) {
    alignas(64) float rows[SIDE * WIDEST], places[SIDE], queries[SIDE * WIDEST], scores[SIDE * SIDE], sums[SIDE * WIDEST];
    const long first = plan.number[strip] * SIDE, count = first + SIDE < s.queries ? SIDE : s.queries - first;
    const long last = plan.block[plan.ends[strip + 1] - 1];  // which, with windows, earlier strips have not visited
    const Rows from = {plan.order, first, count, s.q.row}, to = {plan.order, first, count, s.heads * s.values};
    asked({{q, from, s.width, 0}, panels.keys(last), panels.values(last), {out, to, s.values, 1}});
    copied(q, from, s.width, rows, s.scale * LOG2_E);
    turned(rows, SIDE, s.width, queries);
    if (plan.slopes) placed(plan.places, {plan.order, first, count, 1}, places);
    const Asking own = {queries, places, slope * LOG2_E};
    std::memset(sums, 0, s.values * SIDE * sizeof *sums);
    Lane most, total;
    for (long n = 0; n < VECTORS; ++n) {
        most.v[n] = filled(std::numeric_limits<float>::lowest());  // finite, so that a row that sees nothing gives no NaN
        total.v[n] = Floats{};
    }
    for (long i = plan.ends[strip]; i < plan.ends[strip + 1] && panels.holds(plan.block[i]); ++i) {
        const Panel panel = panels.at(plan.block[i]);
        const Parts parts(plan, i, panel.count, count);
        const Lane before = most;
        for (const Part& p : parts) {
            scored(panel, own, plan, i, p, s.width, scores);
            topped(scores, p, most);
        }
        for (long n = 0; n < VECTORS && i > plan.ends[strip]; ++n) {
            const Floats fade = power(before.v[n] - most.v[n]);
            total.v[n] *= fade;
            for (long e = n * LANES; e < s.values * SIDE; e += SIDE) store(sums + e, load(sums + e) * fade);
        }
        for (const Part& p : parts) {
            weighed(scores, p, most, total);
            if (dropout.dropped) thinned(scores, p, first, plan.block[i] * SIDE, dropout);
            product(panel.values + p.start * s.values, 1, s.values, scores + p.at(), SIDE, sums + p.from, SIDE, s.values,
                    p.keys(), p.queries(), true);
        }
    }
    finished(sums, most, total, to, {plan.order, first, count, s.heads}, s, dropout.grown, out, lse);
}

// A strip of one head's queries for the backward pass: queries and output gradients, by rows and by columns.
struct Strip {
    alignas(64) float rows[SIDE * WIDEST], queries[SIDE * WIDEST], d_rows[SIDE * WIDEST], d_columns[SIDE * WIDEST];
    alignas(64) float norm[SIDE], delta[SIDE], places[SIDE];

    Strip(const float* q, const float* out, const float* lse, const float* d_out, const float* d_lse, Rows from, Rows at,
          Rows logs, const Sizes& s) {
        copied(q, from, s.width, rows, s.scale * LOG2_E);
        turned(rows, SIDE, s.width, queries);
        for (long i = 0; i < from.count * s.width; ++i) rows[i] *= LN_2;
        copied(d_out, at, s.values, d_rows);
        turned(d_rows, SIDE, s.values, d_columns);
        for (long i = 0; i < SIDE; ++i) {
            norm[i] = INFINITY;  // 2^-infinity where nothing is seen
            delta[i] = 0.0f;
            if (i >= from.count) continue;
            const float* row = out + at.at(i);
            if (lse[logs.at(i)] != -INFINITY) norm[i] = lse[logs.at(i)] * LOG2_E;
            for (long e = 0; e < s.values; ++e) delta[i] += d_rows[i * s.values + e] * row[e];
            if (d_lse) delta[i] -= d_lse[logs.at(i)];
        }
    }
};

// Scores to weights W', and gradients of weights to gradients of scores.
inline void differentiated(float* weights, float* d_scores, Part p, const Strip& strip) {
    for (long j = p.start * SIDE; j < p.stop * SIDE; j += SIDE)
        for (long n = p.from; n < p.to; n += LANES) {
            const Floats weight = power(load(weights + j + n) - load(strip.norm + n));
            store(weights + j + n, weight);
            store(d_scores + j + n, weight * (load(d_scores + j + n) - load(strip.delta + n)));
        }
}

// The same with dropout. Kept weights are multiplied by 1/(1 - p) where they multiply gradients of the output.
inline void differentiated(float* weights, float* d_scores, Part p, const Strip& strip, long query, long key,
                           const Thinning& d) {
    d.over<SIDE>(p, query, key, [&](long at, auto kept) {
        const long n = at % SIDE;
        const Floats weight = power(load(weights + at) - load(strip.norm + n));
        const Floats outer = kept ? load(d_scores + at) * d.grown : Floats{};
        store(weights + at, kept ? weight * d.grown : Floats{});
        store(d_scores + at, weight * (outer - load(strip.delta + n)));
    });
}

// The gradients from one strip of one head's queries.
void backward_strip(const float* q, const float* out, const float* lse, const float* d_out, const float* d_lse, float* d_q,
                    float slope, const Thinning& dropout, Panels& panels, const Plan& plan, long strip, const Sizes& s) {
    alignas(64) float weights[SIDE * SIDE], d_scores[SIDE * SIDE], d_queries[SIDE * WIDEST], d_rows[SIDE * WIDEST];
    const long first = plan.number[strip] * SIDE, count = first + SIDE < s.queries ? SIDE : s.queries - first;
    const long last = plan.block[plan.ends[strip + 1] - 1];
    const auto rows = [&](long step) { return Rows{plan.order, first, count, step}; };
    const Rows to = rows(s.heads * s.values);
    asked({{q, rows(s.q.row), s.width, 0}, panels.keys(last), panels.values(last), {d_out, to, s.values, 0},
           {out, to, s.values, 0},
           {d_q, rows(s.heads * s.width), s.width, 1}});
    Strip own(q, out, lse, d_out, d_lse, rows(s.q.row), to, rows(s.heads), s);
    if (plan.slopes) placed(plan.places, rows(1), own.places);
    std::memset(d_queries, 0, s.width * SIDE * sizeof *d_queries);
    for (long i = plan.ends[strip]; i < plan.ends[strip + 1] && panels.holds(plan.block[i]); ++i) {
        const Panel panel = panels.at(plan.block[i]);
        for (const Part& p : Parts(plan, i, panel.count, count)) {
            const long depth = (p.to < count ? p.to : count) - p.from, values = p.start * s.values, keys = p.start * s.width;
            scored(panel, {own.queries, own.places, slope * LOG2_E}, plan, i, p, s.width, weights);
            product(panel.values + values, s.values, 1, own.d_columns + p.from, SIDE, d_scores + p.at(), SIDE, p.keys(),
                    s.values, p.queries(), false);
            dropout.dropped ? differentiated(weights, d_scores, p, own, first, plan.block[i] * SIDE, dropout)
                            : differentiated(weights, d_scores, p, own);
            product(weights + p.at(), SIDE, 1, own.d_rows + p.from * s.values, s.values, panel.d_values + values, s.values,
                    p.keys(), depth, s.values, true);
            product(d_scores + p.at(), SIDE, 1, own.rows + p.from * s.width, s.width, panel.d_keys + keys, s.width, p.keys(),
                    depth, s.width, true);
            product(panel.keys + keys, 1, s.width, d_scores + p.at(), SIDE, d_queries + p.from, SIDE, s.width, p.keys(),
                    p.queries(), true);
        }
    }
    turned(d_queries, s.width, SIDE, d_rows);
    for (long i = 0; i < count; ++i) {
        float* row = d_q + rows(s.heads * s.width).at(i);
        for (long d = 0; d < s.width; ++d) row[d] = s.scale * d_rows[i * s.width + d] + (s.merges ? row[d] : 0.0f);
    }
}

}  // namespace

QKV_STRUCTURE(Strides, QKV_FIELD(batch), QKV_FIELD(row), QKV_FIELD(head))
QKV_STRUCTURE(Sizes, QKV_FIELD(batch), QKV_FIELD(heads), QKV_FIELD(kv_heads), QKV_FIELD(queries), QKV_FIELD(keys),
              QKV_FIELD(width), QKV_FIELD(values), QKV_FIELD(q), QKV_FIELD(k), QKV_FIELD(v), QKV_FIELD(strips),
              QKV_FIELD(row), QKV_FIELD(head), QKV_FIELD(scale), QKV_FIELD(merges), QKV_FIELD(threads), QKV_FIELD(seed_low), QKV_FIELD(seed_high),
              QKV_FIELD(dropped))
QKV_STRUCTURE(Plan, QKV_FIELD(number), QKV_FIELD(ends), QKV_FIELD(block), QKV_FIELD(table), QKV_FIELD(order), QKV_FIELD(limits),
              QKV_FIELD(spans), QKV_FIELD(places), QKV_FIELD(kv_places), QKV_FIELD(slopes), QKV_FIELD(lengths),
              QKV_FIELD(document), QKV_FIELD(token), QKV_FIELD(key_token))

extern "C" {

// q (B, T, H, D), k (B, S, K, D), v (B, S, K, E) as `Sizes` says; out (B, T, H, E) and lse (B, T, H) contiguous. Strips that
// are not in the plan are left unchanged. Returns whether the visited keys and values are finite: otherwise the results are
// invalid, because masked ones reach queries that don't see them.
int qkv_forward(const float* q, const float* k, const float* v, float* out, float* lse, const Plan* plan, const Sizes* s) {
    const long group = s->heads / s->kv_heads;
    int finite = 1;
#pragma omp parallel num_threads(s->threads) reduction(& : finite)
    {
        Panels panels(*plan, *s, false);
#pragma omp for collapse(3) schedule(dynamic)
        for (long b = 0; b < s->batch; ++b)
            for (long turn = 0; turn < s->strips; turn += TURN)
                for (long kv = 0; kv < s->kv_heads; ++kv) {
                    panels.begin(k + b * s->k.batch + kv * s->k.head, v + b * s->v.batch + kv * s->v.head, nullptr, nullptr,
                                 s->keys_of(plan->lengths, b));
                    for (long i = turn; i < turn + TURN && i < s->strips; ++i)
                        for (long h = kv * group; h < (kv + 1) * group; ++h) {
                            const long at = b * s->queries * s->heads + h;
                            forward_strip(q + b * s->q.batch + h * s->q.head, panels, out + at * s->values, lse + at,
                                          plan->slopes ? plan->slopes[h] : 0.0f, plan->thinning(*s, b, h), *plan, i, *s);
                        }
                    panels.end();
                }
        finite &= panels.finite;
    }
    return finite;
}

// Also contiguous: d_out like out, d_lse (may be null) like lse; d_k and d_v, to which gradients are added, and d_q, to which
// they are added if `merges`. Returns what `qkv_forward` returns.
int qkv_backward(const float* q, const float* k, const float* v, const float* out, const float* lse, const float* d_out,
                  const float* d_lse, float* d_q, float* d_k, float* d_v, const Plan* plan, const Sizes* s) {
    const long group = s->heads / s->kv_heads, pairs = s->batch * s->kv_heads;
    int finite = 1;
#pragma omp parallel for num_threads(s->threads) reduction(& : finite)
    for (long thread = 0; thread < s->threads; ++thread) {  // each has key-value heads of its own
        Panels panels(*plan, *s, true);
        for (long turn = 0; turn < s->strips; turn += TURN)
            for (long pair = pairs * thread / s->threads; pair < pairs * (thread + 1) / s->threads; ++pair) {
                const long b = pair / s->kv_heads, kv = pair % s->kv_heads, to = b * s->keys * s->kv_heads + kv;
                panels.begin(k + b * s->k.batch + kv * s->k.head, v + b * s->v.batch + kv * s->v.head, d_k + to * s->width,
                             d_v + to * s->values, s->keys_of(plan->lengths, b));
                for (long i = turn; i < turn + TURN && i < s->strips; ++i)
                    for (long h = kv * group; h < (kv + 1) * group; ++h) {
                        const long at = b * s->queries * s->heads + h;
                        backward_strip(q + b * s->q.batch + h * s->q.head, out + at * s->values, lse + at, d_out + at * s->values,
                                       d_lse ? d_lse + at : nullptr, d_q + at * s->width, plan->slopes ? plan->slopes[h] : 0.0f,
                                       plan->thinning(*s, b, h), panels, *plan, i, *s);
                    }
                panels.end();
            }
        finite &= panels.finite;
    }
    return finite;
}
}

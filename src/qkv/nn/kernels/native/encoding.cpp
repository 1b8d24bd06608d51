// Encoding on CPUs: all layers of a stack over whole sequences, which stand one after another without padding, in one call.
//
// Products, norms and sums are of some hundred rows at a time, which stay in the cache between them; products apply the activation
// and add the residual before they write (panels.h). Attention is of whole sequences (many_queries.h). All numbers but those of
// products and attention are fp32.
#include "many_queries.h"
#include "sublayers.h"

#ifdef QKV_LANES
namespace {

constexpr long AT_ONCE = 512;  // rows, as products.cpp takes them

class Run : Sublayers {
public:
    explicit Run(const Step& step)
        : Sublayers(step, most(step.rows), 0), projected(step.room), mixed(step.room + step.rows * step.row) {}

    void layer(const Layer& l, float* x) {
        const Attention& a = l.own;
        const long queries = a.heads * a.width, row = l.qkv.outs, out_row = a.heads * a.values;
        if (l.has[OWN]) {
            blocks([&](long first) { product(l.qkv, input(l, OWN, x + first * s.width, x + first * s.width), projected + first * row); });
            if (l.q_norm.kind != NO_NORM || l.k_norm.kind != NO_NORM || l.cos || l.k) arrange_all(l, row);
            const bool continues = l.k && l.slot;  // one sequence, whose earlier tokens are in the cache
            const float *k = continues ? static_cast<const float*>(l.k) : projected + queries;
            const float *v = continues ? static_cast<const float*>(l.v) : projected + queries + a.kv_heads * a.width;
            const Strides of_k = continues ? a.k : Strides{0, row, a.width}, of_v = continues ? a.v : Strides{0, row, a.values};
            const Sequences all{s.starts, s.sequences, continues ? l.slot : 0, row, out_row, of_k, of_v, a.heads, a.kv_heads, a.width, a.values, a.scale,
                                a.softcap, a.bias, {a.bias_steps[1], a.bias_steps[2], a.bias_steps[3]}, l.causal, s.half, threads()};
            if (s.half && HalfLanes::THERE)
                attend_sequences<HalfLanes>(all, projected, k, v, mixed);
            else
                attend_sequences<FloatLanes>(all, projected, k, v, mixed);
        }
        blocks([&](long first) {
            float* own = x + first * s.width;
            if (l.parallel) return at_once(l, own, mixed + first * out_row);
            if (l.has[OWN]) end(l, OWN, l.out, mixed + first * out_row, own);
            if (!l.has[FEED_FORWARD]) return;
            expand(l, input(l, FEED_FORWARD, own, own));
            end(l, FEED_FORWARD, l.down, wide, own);
        });
    }

    void norm(float* x) { normalized(s.norm, x, x, s.rows, s.width, s.width, threads()); }

private:
    float *projected, *mixed;  // of all rows

    static long parts(long rows) { return (rows + AT_ONCE - 1) / AT_ONCE; }
    static long most(long rows) { return (rows + parts(rows) - 1) / parts(rows); }

    // Call `work` with the first row of each block, which has `rows`.
    template <typename Work>
    void blocks(Work work) {
        for (long p = 0; p < parts(s.rows); ++p) {
            const long first = s.rows * p / parts(s.rows);
            rows = s.rows * (p + 1) / parts(s.rows) - first;
            work(first);
        }
    }

    // Norms and rotary positions of all queries and keys, and keys and values to the cache, if there is one.
    void arrange_all(const Layer& l, long row) {
        const Attention& a = l.own;
#pragma omp parallel for num_threads(threads())
        for (long r = 0; r < s.rows; ++r) {
            const long b = std::upper_bound(s.starts, s.starts + s.sequences, r) - s.starts - 1;
            const long t = r - s.starts[b] + s.offsets[b];
            float *q = projected + r * row, *k = q + a.heads * a.width;
            arrange(l, q, k, b, t);
            if (!l.k) continue;
            const float* v = k + a.kv_heads * a.width;
            a.half_keys ? keep<uint16_t>(a, l, k, v, b, t) : keep<float>(a, l, k, v, b, t);
        }
    }

    // x + attention(norm(x)) + feedforward(norm(x)): without a norm of its own, the second takes the input of the first.
    void at_once(const Layer& l, float* x, const float* heads) {
        std::memcpy(total, x, rows * s.width * sizeof(float));
        if (l.has[OWN]) {
            const float* found = branch(l, OWN, l.out, heads);
            for (long i = 0; i < rows * s.width; ++i) total[i] = (l.adds ? total[i] : 0.0f) + found[i];
        }
        if (l.has[FEED_FORWARD]) {
            const float* y = l.has[OWN] ? input(l, OWN, x, x) : x;
            expand(l, input(l, FEED_FORWARD, x, y));
            const float* found = branch(l, FEED_FORWARD, l.down, wide);
            for (long i = 0; i < rows * s.width; ++i) total[i] = (l.adds || l.has[OWN] ? total[i] : 0.0f) + found[i];
        }
        std::memcpy(x, total, rows * s.width * sizeof(float));
    }
};

}  // namespace

extern "C" {

// Whether attention can be of bf16.
int qkv_encodes_in_half() { return HalfLanes::THERE; }

// x (rows, width), in place: the embedded tokens of all sequences become what the stack gives.
void qkv_encode(float* x, const Step* step) {
    Run run(*step);
    for (long i = 0; i < step->count; ++i) run.layer(step->layers[i], x);
    run.norm(x);
}
}
#endif

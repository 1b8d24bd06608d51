// Mixtures of experts for few rows of tokens, as `Mixture` in nn/layers/moe.py: the experts that at least one row has chosen are
// read once, for all rows that have. A row's sum is over its experts by their number, whatever other rows there are.
#pragma once
#include "sublayers.h"

namespace {

class Mixtures : protected Sublayers {
protected:
    using Sublayers::Sublayers;

    // out (rows, width) = sum of gate times expert over those that a row of y chooses, and the shared layer.
    void mix(const Mixture& m, const float* y, float* out) {
        const long all = rows, width = s.width;
        float* scores = room(numbers, all * (m.experts + m.chosen + 2 * width));
        float *gates = scores + all * m.experts, *some = gates + all * m.chosen, *found = some + all * width;
        choices.resize(all * m.chosen);
        product(m.router, y, scores);
        for (long r = 0; r < all; ++r) choose(m, scores + r * m.experts, choices.data() + r * m.chosen, gates + r * m.chosen);
        std::fill(out, out + all * width, 0.0f);
        for (long e = 0; e < m.experts; ++e) {
            takers.clear();
            for (long i = 0; i < all * m.chosen; ++i)
                if (choices[i] == e) takers.push_back(i);
            if (takers.empty()) continue;
            rows = takers.size();
            for (long i = 0; i < rows; ++i) std::memcpy(some + i * width, y + takers[i] / m.chosen * width, width * sizeof(float));
            feed(m.up[e], m.down[e], m.activation, m.gated, some, found);
            for (long i = 0; i < rows; ++i) add(gates[takers[i]], found + i * width, out + takers[i] / m.chosen * width);
        }
        rows = all;
        if (m.shared) share(m, y, found, scores, out);
    }

private:
    static thread_local std::vector<float> numbers, ranked;
    static thread_local std::vector<long> choices, takers;

    // down f(up y), or down (f(gate y) ⊙ up y).
    void feed(const Product& up, const Product& down, int activation, int gated, const float* y, float* out) {
        product(up, y, wide);
        activate(activation, gated, wide, rows, down.depth, threads());
        product(down, wide, out);
    }

    void share(const Mixture& m, const float* y, float* found, float* weights, float* out) {
        feed(m.shared[0], m.shared[1], m.shared_activation, m.shared_gated, y, found);
        if (m.shared_gate) product(*m.shared_gate, y, weights);
        for (long r = 0; r < rows; ++r)
            add(m.shared_gate ? 1.0f / (1.0f + std::exp(-weights[r])) : 1.0f, found + r * s.width, out + r * s.width);
    }

    void add(float weight, const float* x, float* out) {
        for (long i = 0; i < s.width; ++i) out[i] += weight * x[i];
    }

    // The experts of a row, the largest first and of equals the first, and their gates. The scores become shares.
    static void choose(const Mixture& m, float* shares, long* chosen, float* gates) {
        ranked.assign(shares, shares + m.experts);  // the scores, for gates of them alone
        if (m.gates == SIGMOID_OF_ALL)
            for (long e = 0; e < m.experts; ++e) shares[e] = 1.0f / (1.0f + std::exp(-shares[e]));
        else
            soft(shares, m.experts);
        for (long c = 0; c < m.chosen; ++c) {
            long best = -1;  // NaN is chosen if it comes first, so that there always is one
            float most = 0.0f;
            for (long e = 0; e < m.experts; ++e) {
                const float value = shares[e] + (m.bias ? m.bias[e] : 0.0f);
                if (std::find(chosen, chosen + c, e) == chosen + c && (best < 0 || value > most)) best = e, most = value;
            }
            chosen[c] = best;
            gates[c] = m.gates == SOFTMAX_OF_CHOSEN ? ranked[best] : shares[best];
        }
        if (m.gates == SOFTMAX_OF_CHOSEN) soft(gates, m.chosen);
        float sum = 0.0f;
        for (long c = 0; c < m.chosen; ++c) sum += gates[c];
        const float divided = m.normalizes && m.gates != SOFTMAX_OF_CHOSEN ? (sum < 1e-20f ? 1e-20f : sum) : 1.0f;
        for (long c = 0; c < m.chosen; ++c) gates[c] = gates[c] / divided * m.scale;
    }

    static void soft(float* x, long count) {
        float top = x[0], total = 0.0f;
        for (long i = 1; i < count; ++i) top = x[i] > top ? x[i] : top;
        for (long i = 0; i < count; ++i) total += x[i] = std::exp(x[i] - top);
        for (long i = 0; i < count; ++i) x[i] /= total;
    }
};

thread_local std::vector<float> Mixtures::numbers, Mixtures::ranked;
thread_local std::vector<long> Mixtures::choices, Mixtures::takers;

}  // namespace

// Decoding on CPUs: attention of few queries, and a step of all layers of a decoder in one call.
//
// A step computes, for a few rows of tokens, what the modules of the layers compute, in fp32 whatever the weights: norms,
// products by `qkv_products` (products.cpp), rotary positions, new keys and values in their caches, attention and activations.
#include "few_queries.h"

#include <vector>

namespace {

enum NormKind { NO_NORM, LAYER_NORM, RMS_NORM };
enum Activation { RELU, GELU, GELU_TANH, GELU_QUICK, SILU, SIGMOID, RELU_SQUARED, IDENTITY };
enum Sublayer { OWN, CROSS, FEED_FORWARD, SUBLAYERS };
constexpr long MANY = 1 << 14;  // numbers above which an activation is worth all threads

// As in products.cpp.
struct Weight {
    const void *codes, *scales, *zeros, *bias;
    long outs, half_bias;
};
struct ProductSizes {
    long count, rows, depth, group;
    int kind, half, integer, threads;
};
using Products = void (*)(const void*, void*, const Weight*, const ProductSizes*);
using Available = int (*)(int);

// Products with matrices of one kind, side by side: `outs` numbers of each row.
struct Product {
    const Weight* weights;
    long count, depth, group, outs;
    int kind, integer;
};

// Weights and biases are fp32, or bf16 where `half`; bias may be null.
struct Norm {
    const void *weight, *bias;
    float eps, offset;
    int kind, half;
};

struct Layer {
    Norm before[SUBLAYERS], after[SUBLAYERS], sum[SUBLAYERS], q_norm, k_norm;
    Product qkv, out, cross_q, cross_out, up, down;
    Attention own, cross;
    void *k, *v;  // the cache's, whose strides are those of `own`
    const void *cross_k, *cross_v;
    long slot;                // where the first new token goes
    const float *cos, *sin;   // (B or 1, T, turned / 2), or null
    long table_step, turned;  // numbers from one row of the batch to the next; coordinates that are rotated
    int interleaved, norms_all, activation, gated, has[SUBLAYERS], parallel, adds;
    float skip, multiplier;
};

struct Step {
    const Layer* layers;
    long count, rows, width, scratch;  // scratch: numbers of a row, at most, of any product
    Products products;
    Available available;  // threads, of those asked for
    Norm norm;
    int threads, unused;
};

template <typename T>
void normalize(const Norm& n, const float* x, float* y, long width) {
    const T *weight = static_cast<const T*>(n.weight), *bias = static_cast<const T*>(n.bias);
    const long even = width / EIGHT * EIGHT;
    float mean = 0.0f;
    if (n.kind == LAYER_NORM) {
        Eight sums = {};
        for (long i = 0; i < even; i += EIGHT) sums += eight(x + i);
        mean = sum_of(sums);
        for (long i = even; i < width; ++i) mean += x[i];
        mean /= width;
    }
    Eight squares = {};
    for (long i = 0; i < even; i += EIGHT) {
        const Eight d = eight(x + i) - mean;
        squares += d * d;
    }
    float square = sum_of(squares);
    for (long i = even; i < width; ++i) square += (x[i] - mean) * (x[i] - mean);
    const float factor = 1.0f / std::sqrt(square / width + n.eps);
    for (long i = 0; i < even; i += EIGHT) {
        Eight out = (eight(x + i) - mean) * factor * (weight ? eight(weight + i) + n.offset : all(1.0f));
        put(y + i, bias ? out + eight(bias + i) : out);
    }
    for (long i = even; i < width; ++i)
        y[i] = (x[i] - mean) * factor * (weight ? number(weight + i) + n.offset : 1.0f) + (bias ? number(bias + i) : 0.0f);
}

// y = norm(x) for `count` vectors, each `step` numbers after the one before; x and y may be the same.
void normalized(const Norm& n, const float* x, float* y, long count, long width, long step) {
    if (n.kind == NO_NORM) return;
    for (long r = 0; r < count; ++r)
        n.half ? normalize<uint16_t>(n, x + r * step, y + r * step, width) : normalize<float>(n, x + r * step, y + r * step, width);
}

Eight activated(int kind, Eight x) {
    switch (kind) {
        case RELU: return x < 0.0f ? Eight{} : x;
        case GELU: return x * normal_distribution(x);
        case GELU_TANH: return 0.5f * x * (1.0f + hyperbolic_tangent(0.7978845608028654f * (x + 0.044715f * x * x * x)));
        case GELU_QUICK: return x * sigmoid(1.702f * x);
        case SILU: return x * sigmoid(x);
        case SIGMOID: return sigmoid(x);
        case RELU_SQUARED: return x < 0.0f ? Eight{} : x * x;
        default: return x;
    }
}

// f(up), or f(gate) ⊙ up where the rows have the gate's numbers first; in place, packed to rows of `width`.
void activate(int kind, bool gated, float* x, long rows, long width, int threads) {
    const long blocks = (width + EIGHT - 1) / EIGHT;
#pragma omp parallel for num_threads(threads) if (rows * width > MANY && threads > 1 && !gated)
    for (long r = 0; r < rows; ++r)
        for (long i = 0; i < blocks; ++i) {
            const long start = i * EIGHT, left = std::min(EIGHT, width - start);
            const float* from = x + r * (gated ? 2 : 1) * width + start;
            float own[EIGHT] = {}, other[EIGHT] = {};
            std::memcpy(own, from, left * sizeof(float));
            if (gated) std::memcpy(other, from + width, left * sizeof(float));
            const Eight y = activated(kind, eight(own)) * (gated ? eight(other) : all(1.0f));
            std::memcpy(x + r * width + start, &y, left * sizeof(float));  // never past what is still to be read
        }
}

// Pairs of coordinates turned by their angles.
void rotate(const Layer& l, float* x, long heads, const float* cos, const float* sin, long width) {
    const long half = l.turned / 2;
    for (long h = 0; h < heads; ++h, x += width)
        for (long i = 0; i < half; ++i) {
            float *first = l.interleaved ? x + 2 * i : x + i, *second = l.interleaved ? x + 2 * i + 1 : x + half + i;
            const float a = *first, b = *second;
            *first = a * cos[i] - b * sin[i];
            *second = b * cos[i] + a * sin[i];
        }
}

template <typename T>
void keep(const Attention& a, const Layer& l, const float* k, const float* v, long b, long t) {
    T* keys = static_cast<T*>(l.k) + b * a.k.batch + (l.slot + t) * a.k.row;
    T* values = static_cast<T*>(l.v) + b * a.v.batch + (l.slot + t) * a.v.row;
    for (long g = 0; g < a.kv_heads; ++g) {
        for (long d = 0; d < a.width; ++d) put(keys + g * a.k.head + d, k[g * a.width + d]);
        for (long d = 0; d < a.values; ++d) put(values + g * a.v.head + d, v[g * a.values + d]);
    }
}

class Run {
public:
    explicit Run(const Step& step) : s(step) {
        const size_t numbers = s.rows * (3 * s.width + 2 * s.scratch);
        if (room.size() < numbers) room.resize(numbers);
        normed = room.data();
        added = normed + s.rows * s.width;
        total = added + s.rows * s.width;
        wide = total + s.rows * s.width;
        mixed = wide + s.rows * s.scratch;
    }

    void layer(const Layer& l, float* x) {
        if (l.parallel) return side_by_side(l, x);
        for (int which = 0; which < SUBLAYERS; ++which)
            if (l.has[which]) join(l, which, x, branch(l, which, input(l, which, x, x)));
    }

private:
    const Step& s;
    float *normed, *added, *total, *wide, *mixed;
    static thread_local std::vector<float> room;

    void product(const Product& p, const float* x, float* y) {
        const ProductSizes sizes{p.count, s.rows, p.depth, p.group, p.kind, 0, p.integer, s.threads};
        s.products(x, y, p.weights, &sizes);
    }

    // The input of a sublayer: normalized, or without a norm `otherwise`.
    const float* input(const Layer& l, int which, const float* x, const float* otherwise) {
        if (l.before[which].kind == NO_NORM) return otherwise;
        normalized(l.before[which], x, normed, s.rows, s.width, s.width);
        return normed;
    }

    // The output of a sublayer, up to what is added.
    const float* branch(const Layer& l, int which, const float* y) {
        which == OWN ? attention(l, y) : which == CROSS ? cross(l, y) : feed_forward(l, y);
        normalized(l.after[which], added, added, s.rows, s.width, s.width);
        if (l.multiplier != 1.0f)
            for (long i = 0; i < s.rows * s.width; ++i) added[i] *= l.multiplier;
        return added;
    }

    void join(const Layer& l, int which, float* x, const float* y) {
        for (long i = 0; i < s.rows * s.width; ++i) x[i] = l.adds ? l.skip * x[i] + y[i] : y[i];
        normalized(l.sum[which], x, x, s.rows, s.width, s.width);
    }

    // x + attention(norm(x)) + feedforward(norm(x)): without a norm of its own, a sublayer takes the input of the one before.
    void side_by_side(const Layer& l, float* x) {
        const float* y = x;
        for (long i = 0; i < s.rows * s.width; ++i) total[i] = l.adds ? x[i] : 0.0f;
        for (int which = 0; which < SUBLAYERS; ++which) {
            if (!l.has[which]) continue;
            y = input(l, which, x, y);
            const float* found = branch(l, which, y);
            for (long i = 0; i < s.rows * s.width; ++i) total[i] += found[i];
        }
        std::memcpy(x, total, s.rows * s.width * sizeof(float));
    }

    void attention(const Layer& l, const float* y) {
        Attention a = l.own;
        const long queries = a.heads * a.width, keys = a.kv_heads * a.width, row = l.qkv.outs;
        product(l.qkv, y, wide);
        for (long r = 0; r < s.rows; ++r) {
            const long b = r / a.queries, t = r % a.queries;
            float *q = wide + r * row, *k = q + queries, *v = k + keys;
            if (l.norms_all) {
                normalized(l.q_norm, q, q, 1, queries, 0);
                normalized(l.k_norm, k, k, 1, keys, 0);
            } else {
                normalized(l.q_norm, q, q, a.heads, a.width, a.width);
                normalized(l.k_norm, k, k, a.kv_heads, a.width, a.width);
            }
            if (l.cos) {
                const long at = b * l.table_step + t * (l.turned / 2);
                rotate(l, q, a.heads, l.cos + at, l.sin + at, a.width);
                rotate(l, k, a.kv_heads, l.cos + at, l.sin + at, a.width);
            }
            a.half_keys ? keep<uint16_t>(a, l, k, v, b, t) : keep<float>(a, l, k, v, b, t);
        }
        a.q = {a.queries * row, row, a.width};
        attend_rows(a, l.k, l.v);
        product(l.out, mixed, added);
    }

    void cross(const Layer& l, const float* y) {
        Attention a = l.cross;
        product(l.cross_q, y, wide);
        a.q = {a.queries * l.cross_q.outs, l.cross_q.outs, a.width};
        attend_rows(a, l.cross_k, l.cross_v);
        product(l.cross_out, mixed, added);
    }

    void attend_rows(Attention& a, const void* k, const void* v) {
        const long row = a.heads * a.values;
        a.out = {a.queries * row, row, a.values};
        a.threads = s.available(s.threads);
        attend_any(a, wide, k, v, mixed);
    }

    void feed_forward(const Layer& l, const float* y) {
        product(l.up, y, wide);
        activate(l.activation, l.gated, wide, s.rows, l.down.depth, s.available(s.threads));
        product(l.down, wide, added);
    }
};

thread_local std::vector<float> Run::room;

}  // namespace

extern "C" {

void qkv_attend(const void* q, const void* k, const void* v, void* out, const Attention* a) { attend_any(*a, q, k, v, out); }

// x (rows, width), in place: the embedded tokens become what the stack gives.
void qkv_step(float* x, const Step* step) {
    Run run(*step);
    for (long i = 0; i < step->count; ++i) run.layer(step->layers[i], x);
    normalized(step->norm, x, x, step->rows, step->width, step->width);
}
}

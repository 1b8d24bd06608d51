// Layers as the kernels see them, and what they do to rows of tokens besides products and attention: norms, activations, rotary
// positions, new keys and values in their caches. All of it is in fp32.
#pragma once
#include <cmath>

#include "activations.h"
#include "few_queries.h"
#include "structures.h"

namespace {

enum NormKind { NO_NORM, LAYER_NORM, RMS_NORM };
enum Sublayer { OWN, CROSS, FEED_FORWARD, SUBLAYERS };
constexpr long MANY = 1 << 14;  // numbers above which an activation is worth all threads

// As in products.cpp.
struct Weight {
    const void *codes, *scales, *zeros, *bias;
    long outs, half_bias;
};
struct ProductSizes {
    long count, rows, depth, group;
    int kind, half, integer, threads, activation, adds, order;
};
using Products = void (*)(const void*, void*, const Weight*, const ProductSizes*);
using ByPanels = int (*)(const ProductSizes*);  // whether products can be activated, and added to what is there
using Available = int (*)(int);

struct Adapters;
struct Codes;

// Products with matrices of one kind, side by side: `outs` numbers of each row. `adapters` may be null.
struct Product {
    const Weight* weights;
    long count, depth, group, outs;
    int kind, integer;
    const Adapters* adapters;
};

// What is added to one of the matrices, whose outputs begin at `first`: scale · B A. B is (outs, rank), fp32 or bf16, and A x
// the numbers from `from` of what `down` gives.
struct Adapter {
    const void* b;
    long first, outs, from, rank;
    float scale;
    int half;
};
struct Adapters {
    Product down;
    const Adapter* each;
    long count;
};

// Whose soft-max or sigmoid the gates are.
enum Gates { SOFTMAX_OF_ALL, SOFTMAX_OF_CHOSEN, SIGMOID_OF_ALL };

// Feed-forward layers of which each token chooses some; `up` has the gate's matrix first where it is gated. `bias`, of the choice,
// `shared`, the two products of a layer for all tokens, and its gate may be null.
struct Mixture {
    long experts, chosen;
    Product router;
    const float* bias;
    const Product *up, *down, *shared, *shared_gate;
    float scale;
    int gates, normalizes, activation, gated, shared_activation, shared_gated;
};

// Weights and biases are fp32, or bf16 where `half`; bias may be null.
struct Norm {
    const void *weight, *bias;
    float eps, offset;
    int kind, half;
};

// Where a row of the batch has its keys and values in a layer: numbers from one head to the next, the slot of its new token, and
// the number of slots to attend to.
struct CacheRow {
    void *k, *v;
    long k_head, v_head, slot, keys;
};

struct Layer {
    Norm before[SUBLAYERS], after[SUBLAYERS], sum[SUBLAYERS], q_norm, k_norm;
    Product qkv, out, cross_q, cross_out, up, down;
    Attention own, cross;
    void *k, *v;  // the cache's, whose strides are those of `own`
    const CacheRow *apart, *cross_apart;  // or for each row of the batch, `apart_step` after the one before: one new token a row
    long apart_step;
    const void *cross_k, *cross_v;
    const Mixture* mixture;  // in the place of `up` and `down`, or null
    const Codes* codes;      // of the tokens before the ones in `k` and `v`, or null
    long slot;                // where the first new token goes
    const float *cos, *sin;   // (B or 1, T, turned / 2), or null
    long table_step, turned;  // numbers from one row of the batch to the next; coordinates that are rotated
    int interleaved, norms_all, activation, gated, has[SUBLAYERS], parallel, adds, causal;
    float skip, multiplier;
};

struct Step {
    const Layer* layers;
    long count, rows, width, scratch;  // scratch: numbers of a row, at most, of any product
    Products products;
    ByPanels by_panels;
    Available available;  // threads, of those asked for
    Norm norm;
    int threads, half;     // half: attention of whole sequences is of bf16
    int order;             // of the sums of products (products.cpp)
    // Of whole sequences only: the first token of each, and the end; tokens of padding before it in its row of the batch.
    const long *starts, *offsets;
    long sequences, row, out_row;  // the most numbers of a token's queries, keys and values, and of its heads' outputs
    float* room;                   // for those of all tokens
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
void normalized(const Norm& n, const float* x, float* y, long count, long width, long step, int threads = 1) {
    if (n.kind == NO_NORM) return;
#pragma omp parallel for num_threads(threads) if (threads > 1 && count * width > MANY)
    for (long r = 0; r < count; ++r)
        n.half ? normalize<uint16_t>(n, x + r * step, y + r * step, width) : normalize<float>(n, x + r * step, y + r * step, width);
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

// The new keys and values of a token to where its heads, `k_head` and `v_head` numbers apart, keep them.
template <typename T>
void keep(const Attention& a, const float* k, const float* v, T* keys, T* values, long k_head, long v_head) {
    for (long g = 0; g < a.kv_heads; ++g) {
        for (long d = 0; d < a.width; ++d) put(keys + g * k_head + d, k[g * a.width + d]);
        for (long d = 0; d < a.values; ++d) put(values + g * v_head + d, v[g * a.values + d]);
    }
}

template <typename T>
void keep(const Attention& a, const Layer& l, const float* k, const float* v, long b, long t) {
    if (l.apart) {
        const CacheRow& row = l.apart[b * l.apart_step];
        T *keys = static_cast<T*>(row.k) + row.slot * a.k.row, *values = static_cast<T*>(row.v) + row.slot * a.v.row;
        return keep<T>(a, k, v, keys, values, row.k_head, row.v_head);
    }
    T* keys = static_cast<T*>(l.k) + b * a.k.batch + (l.slot + t) * a.k.row;
    T* values = static_cast<T*>(l.v) + b * a.v.batch + (l.slot + t) * a.v.row;
    keep<T>(a, k, v, keys, values, a.k.head, a.v.head);
}

}  // namespace

QKV_STRUCTURE(Weight, QKV_FIELD(codes), QKV_FIELD(scales), QKV_FIELD(zeros), QKV_FIELD(bias), QKV_FIELD(outs),
              QKV_FIELD(half_bias))
QKV_STRUCTURE(ProductSizes, QKV_FIELD(count), QKV_FIELD(rows), QKV_FIELD(depth), QKV_FIELD(group), QKV_FIELD(kind),
              QKV_FIELD(half), QKV_FIELD(integer), QKV_FIELD(threads), QKV_FIELD(activation), QKV_FIELD(adds), QKV_FIELD(order))
QKV_STRUCTURE(Product, QKV_FIELD(weights), QKV_FIELD(count), QKV_FIELD(depth), QKV_FIELD(group), QKV_FIELD(outs),
              QKV_FIELD(kind), QKV_FIELD(integer), QKV_FIELD(adapters))
QKV_STRUCTURE(Adapter, QKV_FIELD(b), QKV_FIELD(first), QKV_FIELD(outs), QKV_FIELD(from), QKV_FIELD(rank), QKV_FIELD(scale),
              QKV_FIELD(half))
QKV_STRUCTURE(Adapters, QKV_FIELD(down), QKV_FIELD(each), QKV_FIELD(count))
QKV_STRUCTURE(Mixture, QKV_FIELD(experts), QKV_FIELD(chosen), QKV_FIELD(router), QKV_FIELD(bias), QKV_FIELD(up),
              QKV_FIELD(down), QKV_FIELD(shared), QKV_FIELD(shared_gate), QKV_FIELD(scale), QKV_FIELD(gates),
              QKV_FIELD(normalizes), QKV_FIELD(activation), QKV_FIELD(gated), QKV_FIELD(shared_activation),
              QKV_FIELD(shared_gated))
QKV_STRUCTURE(Norm, QKV_FIELD(weight), QKV_FIELD(bias), QKV_FIELD(eps), QKV_FIELD(offset), QKV_FIELD(kind), QKV_FIELD(half))
QKV_STRUCTURE(CacheRow, QKV_FIELD(k), QKV_FIELD(v), QKV_FIELD(k_head), QKV_FIELD(v_head), QKV_FIELD(slot), QKV_FIELD(keys))
QKV_STRUCTURE(Layer, QKV_FIELD(before), QKV_FIELD(after), QKV_FIELD(sum), QKV_FIELD(q_norm), QKV_FIELD(k_norm), QKV_FIELD(qkv),
              QKV_FIELD(out), QKV_FIELD(cross_q), QKV_FIELD(cross_out), QKV_FIELD(up), QKV_FIELD(down), QKV_FIELD(own),
              QKV_FIELD(cross), QKV_FIELD(k), QKV_FIELD(v), QKV_FIELD(apart), QKV_FIELD(cross_apart), QKV_FIELD(apart_step), QKV_FIELD(cross_k), QKV_FIELD(cross_v),
              QKV_FIELD(mixture), QKV_FIELD(codes), QKV_FIELD(slot),
              QKV_FIELD(cos), QKV_FIELD(sin), QKV_FIELD(table_step), QKV_FIELD(turned), QKV_FIELD(interleaved),
              QKV_FIELD(norms_all), QKV_FIELD(activation), QKV_FIELD(gated), QKV_FIELD(has), QKV_FIELD(parallel),
              QKV_FIELD(adds), QKV_FIELD(causal), QKV_FIELD(skip), QKV_FIELD(multiplier))
QKV_STRUCTURE(Step, QKV_FIELD(layers), QKV_FIELD(count), QKV_FIELD(rows), QKV_FIELD(width), QKV_FIELD(scratch),
              QKV_FIELD(products), QKV_FIELD(by_panels), QKV_FIELD(available), QKV_FIELD(norm), QKV_FIELD(threads),
              QKV_FIELD(half), QKV_FIELD(order), QKV_FIELD(starts), QKV_FIELD(offsets), QKV_FIELD(sequences), QKV_FIELD(row), QKV_FIELD(out_row),
              QKV_FIELD(room))

// Activations of feed-forward layers.
#pragma once
#include <type_traits>

#include "eights.h"

namespace {

enum Activation { IDENTITY, RELU, GELU, GELU_TANH, GELU_QUICK, SILU, SIGMOID, RELU_SQUARED };

template <class V>
inline V activated(int kind, V x) {
    switch (kind) {
        case RELU: return x < 0.0f ? V{} : x;
        case GELU: return x * normal_distribution(x);
        case GELU_TANH: return 0.5f * x * (1.0f + hyperbolic_tangent(0.7978845608028654f * (x + 0.044715f * x * x * x)));
        case GELU_QUICK: return x * sigmoid(1.702f * x);
        case SILU: return x * sigmoid(x);
        case SIGMOID: return sigmoid(x);
        case RELU_SQUARED: return x < 0.0f ? V{} : x * x;
        default: return x;
    }
}

// The same in place for `count` vectors.
template <class V>
inline void activate(int kind, V* x, int count) {
    const auto each = [&](auto known) {
        for (int i = 0; i < count; ++i) x[i] = activated(decltype(known)::value, x[i]);
    };
    switch (kind) {
        case RELU: return each(std::integral_constant<int, RELU>());
        case GELU: return each(std::integral_constant<int, GELU>());
        case GELU_TANH: return each(std::integral_constant<int, GELU_TANH>());
        case GELU_QUICK: return each(std::integral_constant<int, GELU_QUICK>());
        case SILU: return each(std::integral_constant<int, SILU>());
        case SIGMOID: return each(std::integral_constant<int, SIGMOID>());
        case RELU_SQUARED: return each(std::integral_constant<int, RELU_SQUARED>());
    }
}

// The derivative of GELU, or of its approximation by tanh: 0 and 1 beyond ±16.
inline Eight gelu_slope(int kind, Eight x) {
    x = x > 16.0f ? all(16.0f) : x;
    x = x < -16.0f ? all(-16.0f) : x;
    if (kind == GELU) return normal_distribution(x) + x * 0.3989422804014327f * exponential(-0.5f * x * x);
    const Eight t = hyperbolic_tangent(0.7978845608028654f * (x + 0.044715f * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.7978845608028654f * (1.0f + 0.134145f * x * x);
}

}  // namespace

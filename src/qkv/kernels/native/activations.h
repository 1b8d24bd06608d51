// Activations of feed-forward layers.
#pragma once
#include "eights.h"

namespace {

enum Activation { IDENTITY, RELU, GELU, GELU_TANH, GELU_QUICK, SILU, SIGMOID, RELU_SQUARED };

inline Eight activated(int kind, Eight x) {
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

// The derivative of GELU, or of its approximation by tanh: 0 and 1 beyond ±16.
inline Eight gelu_slope(int kind, Eight x) {
    x = x > 16.0f ? all(16.0f) : x;
    x = x < -16.0f ? all(-16.0f) : x;
    if (kind == GELU) return normal_distribution(x) + x * 0.3989422804014327f * exponential(-0.5f * x * x);
    const Eight t = hyperbolic_tangent(0.7978845608028654f * (x + 0.044715f * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.7978845608028654f * (1.0f + 0.134145f * x * x);
}

}  // namespace

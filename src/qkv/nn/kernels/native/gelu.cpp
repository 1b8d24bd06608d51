// GELU and its derivative in one pass over fp32.
#include "activations.h"

namespace {

constexpr long AT_ONCE = 4096;  // numbers of a task

template <int kind, bool derives>
void activate(const float* x, const float* d, long count, float* y) {
    const auto value = [](Eight own, Eight outer) { return derives ? outer * gelu_slope(kind, own) : activated(kind, own); };
    long i = 0;
    for (; i + EIGHT <= count; i += EIGHT) put(y + i, value(eight(x + i), derives ? eight(d + i) : Eight{}));
    for (; i < count; ++i) y[i] = value(all(x[i]), derives ? all(d[i]) : Eight{})[0];
}

template <int kind>
void activate_all(const float* x, const float* d, long count, float* y, int threads) {
#pragma omp parallel for num_threads(threads)
    for (long i = 0; i < count; i += AT_ONCE) {
        const long some = count - i < AT_ONCE ? count - i : AT_ONCE;
        d ? activate<kind, true>(x + i, d + i, some, y + i) : activate<kind, false>(x + i, nullptr, some, y + i);
    }
}

}  // namespace

extern "C" {

// y = f(x), or where d is not null y = d f'(x), of `count` numbers; f is GELU, or its approximation by tanh.
void qkv_gelu(const float* x, const float* d, long count, float* y, int by_tanh, int threads) {
    by_tanh ? activate_all<GELU_TANH>(x, d, count, y, threads) : activate_all<GELU>(x, d, count, y, threads);
}
}

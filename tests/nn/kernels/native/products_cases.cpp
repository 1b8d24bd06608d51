// Products of the kernels against sums in double, on the processor that this is compiled for. Prints each case that is
// wrong.
#include "products.cpp"

#include <cstdio>
#include <random>

namespace {

const char* const NAMES[] = {"fp32", "bf16", "int8", "int4"};
std::mt19937 generator(0);

float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(generator); }

struct Case {
    int kind, half, integer, zeros;
    long rows, depth, outs, group;
};

// The codes, scales, zero points and bias of a weight, and its numbers.
struct Made {
    std::vector<float> full, scales, zeros, bias;
    std::vector<uint16_t> narrow;
    std::vector<uint8_t> bytes;
    std::vector<double> numbers;

    explicit Made(const Case& c) : numbers(c.outs * c.depth) {
        const long groups = c.depth / c.group;
        for (long i = 0; i < c.outs * groups; ++i) scales.push_back(uniform(0.01f, 0.03f));
        for (long i = 0; i < c.outs * groups; ++i) zeros.push_back(uniform(0.0f, 15.0f));
        for (long i = 0; i < c.outs; ++i) bias.push_back(uniform(-1.0f, 1.0f));
        for (long i = 0; i < c.outs * c.depth; ++i) {
            const long g = i / c.depth * groups + i % c.depth / c.group;
            const bool byte = c.kind == BYTE;
            const int code = std::uniform_int_distribution<int>(byte ? -128 : 0, byte ? 127 : 15)(generator);
            const float number = uniform(-1.0f, 1.0f);
            if (c.kind == FULL) full.push_back(number), numbers[i] = number;
            if (c.kind == HALF) narrow.push_back(narrowed(number)), numbers[i] = widened(narrow.back());
            if (byte) bytes.push_back(static_cast<uint8_t>(code)), numbers[i] = double(code) * scales[g];
            if (c.kind == NIBBLE) {
                if (i % 2) bytes.back() |= code << 4;
                else bytes.push_back(static_cast<uint8_t>(code));
                numbers[i] = (code - (c.zeros ? double(zeros[g]) : 8.0)) * scales[g];
            }
        }
    }

    const void* codes(int kind) const {
        if (kind == FULL) return full.data();
        return kind == HALF ? static_cast<const void*>(narrow.data()) : bytes.data();
    }
};

// A row of activations as the kernel multiplies it.
std::vector<double> multiplied(const Case& c, const Sizes& sizes, const float* x) {
    std::vector<double> own(x, x + c.depth);
    if (c.kind == HALF && (halves_fit(sizes) || panels_fit(sizes)))
        for (double& number : own) number = widened(narrowed(static_cast<float>(number)));
    if (!c.integer) return own;
    float most = 0.0f;
    for (long i = 0; i < c.depth; ++i) most = std::max(most, std::fabs(x[i]));
    const float scale = most / 127.0f;
    for (long i = 0; i < c.depth; ++i) own[i] = double(std::nearbyint(x[i] / scale)) * scale;
    return own;
}

bool right(const Case& c) {
    const Made made(c);
    std::vector<float> x(c.rows * c.depth), y(c.rows * c.outs);
    std::vector<uint16_t> narrow_x(x.size()), narrow_y(y.size());
    for (size_t i = 0; i < x.size(); ++i) {
        x[i] = uniform(-1.0f, 1.0f);
        narrow_x[i] = narrowed(x[i]);
        if (c.half) x[i] = widened(narrow_x[i]);
    }
    const bool scaled = c.kind >= BYTE;
    const float *scales = scaled ? made.scales.data() : nullptr, *zeros = c.zeros ? made.zeros.data() : nullptr;
    const Weight weight = {made.codes(c.kind), scales, zeros, made.bias.data(), c.outs, 0};
    const Sizes sizes = {1, c.rows, c.depth, c.group, c.kind, c.half, c.integer, 1, 0, 0};
    if (c.half)
        qkv_products(narrow_x.data(), narrow_y.data(), &weight, &sizes);
    else
        qkv_products(x.data(), y.data(), &weight, &sizes);
    double worst = 0.0;
    for (long m = 0; m < c.rows; ++m) {
        const auto own = multiplied(c, sizes, &x[m * c.depth]);
        for (long o = 0; o < c.outs; ++o) {
            double sum = made.bias[o], size = std::fabs(sum);
            for (long i = 0; i < c.depth; ++i) {
                sum += made.numbers[o * c.depth + i] * own[i];
                size += std::fabs(made.numbers[o * c.depth + i] * own[i]);
            }
            const double found = c.half ? widened(narrow_y[m * c.outs + o]) : y[m * c.outs + o];
            const double allowed = 2e-6 * size + (c.half ? std::fabs(sum) / 256 : 0.0);
            const double error = std::fabs(found - sum) / allowed;
            worst = std::isnan(error) ? INFINITY : std::max(worst, error);
        }
    }
    if (worst <= 1.0) return true;
    std::printf("%.1f times the error that is allowed: %s%s%s%s, %ld rows, depth %ld, %ld outs, groups of %ld\n", worst,
                NAMES[c.kind], c.half ? ", x in bf16" : "", c.integer ? ", integers" : "", c.zeros ? ", zeros" : "", c.rows,
                c.depth, c.outs, c.group);
    return false;
}

}  // namespace

int main() {
    long cases = 0, wrong = 0;
    const auto check = [&](const Case& c) { ++cases, wrong += !right(c); };
    for (const long rows : {1L, 2L, 3L, 5L, 13L})
        for (const long outs : {1L, 4L, 23L})
            for (const int half : {0, 1}) {
                for (const long depth : {32L, 64L, 75L, 160L, 384L})
                    for (const int kind : {FULL, HALF}) check({kind, half, 0, 0, rows, depth, outs, depth});
                for (const long group : {32L, 64L, 128L, 384L})
                    for (const int integer : {0, 1}) {
                        check({BYTE, half, integer, 0, rows, 384, outs, group});
                        for (const int zeros : {0, 1}) check({NIBBLE, half, integer, zeros, rows, 384, outs, group});
                    }
                check({BYTE, half, 0, 0, rows, 75, outs, 25});
                check({NIBBLE, half, 0, 1, rows, 80, outs, 20});
            }
#if defined(__ARM_FEATURE_DOTPROD)
    const char* by = "Arm's dot products";
#elif defined(__AVX2__)
    const char* by = "AVX2 or AVX-512";
#else
    const char* by = "plain loops";
#endif
    std::printf("%ld cases by %s, %ld wrong\n", cases, by, wrong);
    return wrong != 0;
}

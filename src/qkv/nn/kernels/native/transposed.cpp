// Copies a transposed matrix into row-major order, in tiles of 8 × 8 that are transposed in registers, and looks for NaN
// and infinities on the way: numbers whose exponent has all of its bits.
#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

constexpr long N = 8;        // rows and columns of a tile
constexpr long BLOCK = 256;  // bytes of a row per block, so that the lines being written stay in the cache

template <typename T>
struct Row {
    typedef T Vector __attribute__((vector_size(N * sizeof(T))));
};

#define SHUFFLE __builtin_shufflevector
// The elements of two rows that form the new first row (LOW) and the new second row (HIGH).
#define LOW4 0, 1, 2, 3, 8, 9, 10, 11
#define HIGH4 4, 5, 6, 7, 12, 13, 14, 15
#define LOW2 0, 1, 8, 9, 4, 5, 12, 13
#define HIGH2 2, 3, 10, 11, 6, 7, 14, 15
#define LOW1 0, 8, 2, 10, 4, 12, 6, 14
#define HIGH1 1, 9, 3, 11, 5, 13, 7, 15

// to[c][r] = from[r][c]. Lanes of `found` become −1 where a number has all bits of `exponent`.
template <typename T, typename Found>
inline void tile(const T* from, long stride, T* to, long apart, const typename Row<T>::Vector& exponent, Found& found) {
    typename Row<T>::Vector x[N];
    for (long r = 0; r < N; ++r) std::memcpy(&x[r], from + r * stride, sizeof x[r]);
    for (long r = 0; r < N; ++r) found |= (x[r] & exponent) == exponent;
    for (long r = 0; r < 4; ++r) {
        const auto a = x[r], b = x[r + 4];
        x[r] = SHUFFLE(a, b, LOW4), x[r + 4] = SHUFFLE(a, b, HIGH4);
    }
    for (long r : {0, 1, 4, 5}) {
        const auto a = x[r], b = x[r + 2];
        x[r] = SHUFFLE(a, b, LOW2), x[r + 2] = SHUFFLE(a, b, HIGH2);
    }
    for (long r = 0; r < N; r += 2) {
        const auto a = x[r], b = x[r + 1];
        x[r] = SHUFFLE(a, b, LOW1), x[r + 1] = SHUFFLE(a, b, HIGH1);
    }
    for (long c = 0; c < N; ++c) std::memcpy(to + c * apart, &x[c], sizeof x[c]);
}

template <typename T>
bool transpose(const T* from, long stride, T* to, long rows, long columns, T exponent) {
    decltype(typename Row<T>::Vector{} == typename Row<T>::Vector{}) found{};
    typename Row<T>::Vector exponents;
    for (long i = 0; i < N; ++i) exponents[i] = exponent;
    bool beside = false;
    constexpr long block = BLOCK / long(sizeof(T));
    const long whole_rows = rows / N * N, whole_columns = columns / N * N;
    for (long first = 0; first < whole_columns; first += block)
        for (long r = 0; r < whole_rows; r += N)
            for (long c = first; c < std::min(first + block, whole_columns); c += N)
                tile(from + r * stride + c, stride, to + c * rows + r, rows, exponents, found);
    for (long r = 0; r < rows; ++r)
        for (long c = r < whole_rows ? whole_columns : 0; c < columns; ++c) {
            const T x = to[c * rows + r] = from[r * stride + c];
            beside |= (x & exponent) == exponent;
        }
    for (long i = 0; i < N; ++i) beside |= found[i] != 0;
    return beside;
}

}  // namespace

extern "C" {

// Writes the transpose of `from` (rows × columns, `stride` elements from row to row) to `to`. Elements have 2 or 4 bytes.
// Returns whether one of them has all bits of `exponent`.
int qkv_transpose(const void* from, long stride, void* to, long rows, long columns, int bytes, unsigned exponent) {
    if (bytes == 4)
        return transpose(static_cast<const uint32_t*>(from), stride, static_cast<uint32_t*>(to), rows, columns,
                         uint32_t(exponent));
    return transpose(static_cast<const uint16_t*>(from), stride, static_cast<uint16_t*>(to), rows, columns,
                     uint16_t(exponent));
}
}

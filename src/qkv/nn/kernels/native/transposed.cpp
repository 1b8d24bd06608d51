// Copies a transposed matrix into row-major order, in tiles of 8 × 8 that are transposed in registers.
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

// to[c][r] = from[r][c]
template <typename T>
inline void tile(const T* from, long stride, T* to, long apart) {
    typename Row<T>::Vector x[N];
    for (long r = 0; r < N; ++r) std::memcpy(&x[r], from + r * stride, sizeof x[r]);
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
void transpose(const T* from, long stride, T* to, long rows, long columns) {
    constexpr long block = BLOCK / long(sizeof(T));
    const long whole_rows = rows / N * N, whole_columns = columns / N * N;
    for (long first = 0; first < whole_columns; first += block)
        for (long r = 0; r < whole_rows; r += N)
            for (long c = first; c < std::min(first + block, whole_columns); c += N)
                tile(from + r * stride + c, stride, to + c * rows + r, rows);
    for (long r = 0; r < rows; ++r)
        for (long c = r < whole_rows ? whole_columns : 0; c < columns; ++c) to[c * rows + r] = from[r * stride + c];
}

}  // namespace

extern "C" {

// Writes the transpose of `from` (rows × columns, `stride` elements from row to row) to `to`. Elements have 2 or 4 bytes.
void qkv_transpose(const void* from, long stride, void* to, long rows, long columns, int bytes) {
    if (bytes == 4)
        transpose(static_cast<const uint32_t*>(from), stride, static_cast<uint32_t*>(to), rows, columns);
    else
        transpose(static_cast<const uint16_t*>(from), stride, static_cast<uint16_t*>(to), rows, columns);
}
}

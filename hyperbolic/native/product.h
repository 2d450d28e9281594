// Matrix products with a matrix of LANES columns, by one thread in the caches it works in.
#pragma once
#include <cstdint>

namespace product {

#if defined(__AVX512F__)
constexpr int BYTES = 64, TALL = 12;  // of a vector register; rows of a tile, which is two vectors wide
#elif defined(__AVX__)
constexpr int BYTES = 32, TALL = 6;
#else
constexpr int BYTES = 16, TALL = 6;
#endif

// Numbers of 128 bytes, the width of b and c.
template <class T> constexpr int LANES = 128 / sizeof(T);

template <class T> struct Packed {
    typedef T type __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
};

// c = a b, or c += a b, for ROWS rows of c and two vectors of their width; a[r, p] lies at a[r * row + p * column].
template <class T, bool ADD, int ROWS>
void tile(int64_t depth, const T *a, int64_t row, int64_t column, const T *b, T *c) {
    using Vector = typename Packed<T>::type;
    constexpr int SIZE = BYTES / sizeof(T);
    Vector sum[ROWS][2] = {};
    for (int64_t p = 0; p < depth; p++, b += LANES<T>) {
        const Vector left = *(const Vector *)b, right = *(const Vector *)(b + SIZE);
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++) {
            const T factor = a[r * row + p * column];
            sum[r][0] += factor * left;
            sum[r][1] += factor * right;
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++) {
        Vector *out = (Vector *)(c + r * LANES<T>);
        out[0] = ADD ? out[0] + sum[r][0] : sum[r][0];
        out[1] = ADD ? out[1] + sum[r][1] : sum[r][1];
    }
}

template <class T, bool ADD, int ROWS = TALL>
void tiles(int64_t rows, int64_t depth, const T *a, int64_t row, int64_t column, const T *b, T *c) {
    for (; rows >= ROWS; rows -= ROWS, a += ROWS * row, c += ROWS * LANES<T>)
        for (int at = 0; at < LANES<T>; at += 2 * BYTES / int(sizeof(T)))
            tile<T, ADD, ROWS>(depth, a, row, column, b + at, c + at);
    if constexpr (ROWS > 1) tiles<T, ADD, ROWS / 2>(rows, depth, a, row, column, b, c);
}

// c (rows, LANES) = a b, or c += a b, of a (rows, depth) with these strides and b (depth, LANES).
template <class T, bool ADD = false>
void multiply(int64_t rows, int64_t depth, const T *a, int64_t row, int64_t column, const T *b, T *c) {
    tiles<T, ADD>(rows, depth, a, row, column, b, c);
}

}  // namespace product

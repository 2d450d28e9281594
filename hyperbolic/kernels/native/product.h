// Small matrix products of one thread, kept in the caches it works in.
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

// Numbers of 128 bytes: what the rows of b and c are made of.
template <class T> constexpr int LANES = 128 / sizeof(T);

template <class T> struct Packed {
    typedef T type __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
};

// c = a b, or c += a b, for ROWS rows of c, two vectors wide; a[r, p] lies at a[r * row + p * column].
template <class T, bool ADD, int ROWS>
void tile(int64_t depth, const T *a, int64_t row, int64_t column, const T *b, T *c, int64_t width) {
    using Vector = typename Packed<T>::type;
    constexpr int SIZE = BYTES / sizeof(T);
    Vector sum[ROWS][2] = {};
    for (int64_t p = 0; p < depth; p++) {
        const Vector left = *(const Vector *)(b + p * width), right = *(const Vector *)(b + p * width + SIZE);
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++) {
            const T factor = a[r * row + p * column];
            sum[r][0] += factor * left;
            sum[r][1] += factor * right;
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++) {
        Vector *out = (Vector *)(c + r * width);
        out[0] = ADD ? out[0] + sum[r][0] : sum[r][0];
        out[1] = ADD ? out[1] + sum[r][1] : sum[r][1];
    }
}

template <class T, bool ADD, int ROWS = TALL>
void tiles(int64_t rows, int64_t depth, const T *a, int64_t row, int64_t column, const T *b, T *c, int64_t width) {
    for (; rows >= ROWS; rows -= ROWS, a += ROWS * row, c += ROWS * width)
        tile<T, ADD, ROWS>(depth, a, row, column, b, c, width);
    if constexpr (ROWS > 1) tiles<T, ADD, ROWS / 2>(rows, depth, a, row, column, b, c, width);
}

// c (rows, width) = a b, or c += a b, of a (rows, depth) with these strides and b (depth, width); whole LANES wide.
template <class T, bool ADD = false>
void multiply(int64_t rows, int64_t depth, const T *a, int64_t row, int64_t column, const T *b, T *c, int64_t width) {
    for (int64_t at = 0; at < width; at += 2 * BYTES / int64_t(sizeof(T)))
        tiles<T, ADD>(rows, depth, a, row, column, b + at, c + at, width);
}

}  // namespace product

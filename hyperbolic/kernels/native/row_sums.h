// Sums over the entries of rows, in float64.
#pragma once
#include <algorithm>
#include <cstdint>

namespace rows {

constexpr int of_block = 32;  // rows whose numbers are worked on together, vectorised across them

// The first row of the block b of n rows, and how many there are in it.
struct Block {
    int64_t first;
    int count;
    Block(int64_t b, int64_t n) : first(b * of_block), count(int(std::min<int64_t>(of_block, n - first))) {}
};
inline int64_t blocks(int64_t n) { return (n + of_block - 1) / of_block; }

// Threads that so many entries are worth.
inline int worth(int64_t entries, int threads) { return entries < (1 << 15) ? 1 : threads; }

// <x, y>.
template <class T, class U> inline double dot(const T *x, const U *y, int64_t size) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < size; j++) sum += double(x[j]) * double(y[j]);
    return sum;
}

inline double total(const double *x, int64_t n) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

}  // namespace rows

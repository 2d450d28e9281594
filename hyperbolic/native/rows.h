// Passes over rows: sums in float64, combinations, and what shares the rows among threads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#ifdef __AVX512F__
#include <immintrin.h>
#endif
#include <vector>

#define ALWAYS_INLINE inline __attribute__((always_inline))  // in loops that are vectorised across rows

namespace rows {

constexpr int of_block = 32;  // rows whose numbers are worked on together, vectorised across them
using Numbers = double[of_block];

inline int in_block(int64_t start, int64_t end) { return int(std::min<int64_t>(of_block, end - start)); }

// Threads that so many entries are worth.
inline int worth(int64_t entries, int threads) { return entries < (1 << 15) ? 1 : threads; }

// work(first row, number of rows) for blocks of n rows.
template <class Work> inline void each_block(int64_t n, int threads, Work work) {
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1) firstprivate(work)
    for (int64_t start = 0; start < n; start += of_block) work(start, in_block(start, n));
}

// work(row) for n rows.
template <class Work> inline void each(int64_t n, int threads, Work work) {
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1) firstprivate(work)
    for (int64_t r = 0; r < n; r++) work(r);
}

// work(part, first row, row after the last) for as many parts as there are threads, made of whole blocks.
template <class Work> inline void each_part(int64_t n, int threads, Work work) {
    const int64_t blocks = (n + of_block - 1) / of_block;
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1)
    for (int part = 0; part < threads; part++) {
        work(part, blocks * part / threads * of_block, std::min(blocks * (part + 1) / threads * of_block, n));
    }
}

inline double total(const double *x, int64_t n) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

// The sum of work(row) over n rows, always in the same order.
template <class Work> inline double sum_of_each(int64_t n, int threads, Work work) {
    std::vector<double> values(n);
    double *value = values.data();
    each(n, threads, [=](int64_t r) { value[r] = work(r); });
    return total(value, n);
}

// Where the rows of a block begin.
template <class T> struct Block {
    const T *row[of_block];
    // They stand one after the other.
    Block(const T *first, int count, int64_t size) {
        for (int i = 0; i < count; i++) row[i] = first + i * size;
    }
    // `side` of them stand side by side in a longer row, one of which begins every by_row numbers; the first is number
    // `start` of all.
    Block(const T *all, int64_t start, int count, int64_t size, int64_t side, int64_t by_row) {
        for (int i = 0; i < count; i++) row[i] = all + (start + i) / side * by_row + (start + i) % side * size;
    }
};

// A row that is needed soon. Inlined: compilers drop calls that do nothing else.
template <class T> ALWAYS_INLINE void ask(const T *row, int64_t size) {
    for (int64_t k = 0; k < size; k += int64_t(64 / sizeof(T))) __builtin_prefetch(row + k);
}

// to += a x.
template <class A, class X> inline void add(A a, const X *x, A *to, int64_t size) {
#pragma omp simd
    for (int64_t j = 0; j < size; j++) to[j] += a * A(x[j]);
}

// Of a vector. Sums in vectors twice as wide as the processor's GCC keeps in memory; but where those have 16 bytes, 32
// are faster than 16. Matrix products choose their own, see product.h.
#ifdef __AVX512F__
constexpr int vector_bytes = 64;
#else
constexpr int vector_bytes = 32;
#endif
constexpr int lanes = vector_bytes / sizeof(double);
using Two = double __attribute__((vector_size(16)));
using Four = double __attribute__((vector_size(32)));
using Wide = double __attribute__((vector_size(vector_bytes)));
template <class Vector, class T> inline Vector load(const T *x) {
    T __attribute__((vector_size(sizeof(Vector) / sizeof(double) * sizeof(T)))) loaded;
    std::memcpy(&loaded, x, sizeof loaded);
    return __builtin_convertvector(loaded, Vector);
}

#ifdef __AVX512F__
template <> inline Wide load<Wide, float>(const float *x) { return (Wide)_mm512_cvtps_pd(_mm256_loadu_ps(x)); }
#endif

// The halves are added up, not number by number.
inline double total(Two numbers) { return numbers[0] + numbers[1]; }
template <class Vector> inline double total(Vector numbers) {
    double __attribute__((vector_size(sizeof numbers / 2))) halves[2];
    std::memcpy(halves, &numbers, sizeof halves);
    return total(halves[0] + halves[1]);
}

// A vector of numbers of either dtype.
template <class T> struct Packed;
template <> struct Packed<float> {
    using Numbers = float __attribute__((vector_size(vector_bytes)));
    using Lanes = int32_t __attribute__((vector_size(vector_bytes)));
};
template <> struct Packed<double> {
    using Numbers = Wide;
    using Lanes = int64_t __attribute__((vector_size(vector_bytes)));
};
template <class T> using Pack = typename Packed<T>::Numbers;
template <class T> inline Pack<T> get(const T *x) {
    Pack<T> loaded;
    std::memcpy(&loaded, x, sizeof loaded);
    return loaded;
}
template <class T> inline void put(const Pack<T> &numbers, T *x) { std::memcpy(x, &numbers, sizeof numbers); }
// Zeros before that lane.
template <class T> inline Pack<T> from_lane(int first, const Pack<T> &x) {
    constexpr int count = vector_bytes / sizeof(T);
    typename Packed<T>::Lanes lane;
    for (int k = 0; k < count; k++) lane[k] = k;
    return lane >= first ? x : Pack<T>{};
}
inline Wide squares(const Pack<double> &x) { return x * x; }
inline Wide squares(const Pack<float> &x) {
    float numbers[2 * lanes];
    std::memcpy(numbers, &x, sizeof numbers);
    const Wide low = load<Wide>(numbers), high = load<Wide>(numbers + lanes);
    return low * low + high * high;
}

// Sums in float64 over j = start .. size - 1 of the terms that term(terms, x_j, y_j, ...) sets; it is called with numbers
// and with vectors of them, and its terms of zeros are 0.
template <int count, class Term, class... T>
ALWAYS_INLINE void sums(int64_t start, int64_t size, double *out, Term term, const T *...x) {
    Wide sum[count] = {}, terms[count];
    for (; start + lanes <= size; start += lanes) {
        term(terms, load<Wide>(x + start)...);
        for (int k = 0; k < count; k++) sum[k] += terms[k];
    }
    if (start < size && size >= lanes) {  // the last numbers, without those that are in already
        term(terms, from_lane<double>(int(lanes - (size - start)), load<Wide>(x + size - lanes))...);
        for (int k = 0; k < count; k++) sum[k] += terms[k];
        start = size;
    }
    for (int k = 0; k < count; k++) out[k] = total(sum[k]);
    for (double one[count]; start < size; start++) {
        term(one, double(x[start])...);
        for (int k = 0; k < count; k++) out[k] += one[k];
    }
}

// <x, y>; of points of the hyperboloid without the times.
template <bool space = false, class T, class U> inline double dot(const T *x, const U *y, int64_t size) {
    double sum = 0;
    int64_t start = space ? 1 : 0;
    if (size >= 2 * lanes) {
        Wide low = load<Wide>(x) * load<Wide>(y), high = load<Wide>(x + lanes) * load<Wide>(y + lanes);
        if (space) low = from_lane<double>(1, low);
        for (start = 2 * lanes; start + 2 * lanes <= size; start += 2 * lanes) {
            low += load<Wide>(x + start) * load<Wide>(y + start);
            high += load<Wide>(x + start + lanes) * load<Wide>(y + start + lanes);
        }
        sum = total(low + high);
    }
    Four tail = {};
    for (; start + 4 <= size; start += 4) tail += load<Four>(x + start) * load<Four>(y + start);
    for (; start < size; start++) sum += double(x[start]) * double(y[start]);
    return sum + total(tail);
}

// <x, y> in the numbers' own dtype.
template <class T> inline T product(const T *x, const T *y, int64_t size) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < size; k++) sum += x[k] * y[k];
    return sum;
}

// The sum in the numbers' own dtype.
template <class T> inline T sum(const T *x, int64_t size) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < size; k++) sum += x[k];
    return sum;
}

// to = a x; to = a x + b y. In the dtype of a, rounded once.
template <class A, class X, class To> inline void scale(A a, const X *x, To *to, int64_t size) {
#pragma omp simd
    for (int64_t j = 0; j < size; j++) to[j] = To(a * A(x[j]));
}
template <class A, class X, class Y, class To>
inline void combine(A a, const X *x, A b, const Y *y, To *to, int64_t size) {
#pragma omp simd
    for (int64_t j = 0; j < size; j++) to[j] = To(a * A(x[j]) + b * A(y[j]));
}

// to = sum_k a_k x_k of one vector or more.
template <class T> inline void combine(const T *a, const T *const *x, int count, T *to, int64_t size) {
    if (count == 1) return scale(a[0], x[0], to, size);
    if (count == 2) return combine(a[0], x[0], a[1], x[1], to, size);
    const T a0 = a[0], a1 = a[1], a2 = a[2], *x0 = x[0], *x1 = x[1], *x2 = x[2];
#pragma omp simd
    for (int64_t j = 0; j < size; j++) to[j] = a0 * x0[j] + a1 * x1[j] + a2 * x2[j];
    for (int k = 3; k < count; k++) add(a[k], x[k], to, size);
}

// sums += sum_i weights_i x_i over rows of a block, sum_i x_i where the weights are null; they are taken in T.
template <class T> inline void add_columns(const T *weights, const T *x, int count, int64_t size, double *sums) {
    constexpr int together = 64;
    int64_t start = 0;
    for (; start + together <= size; start += together) {
        T sum[together] = {};
        for (int i = 0; i < count; i++) {
            const T weight = weights ? weights[i] : T(1);
            for (int l = 0; l < together; l++) sum[l] += weight * x[i * size + start + l];
        }
        for (int l = 0; l < together; l++) sums[start + l] += double(sum[l]);
    }
    const int left = int(size - start);
    T sum[together] = {};
    for (int i = 0; i < count && left > 0; i++) {
        const T weight = weights ? weights[i] : T(1);
#pragma omp simd
        for (int l = 0; l < left; l++) sum[l] += weight * x[i * size + start + l];
    }
    for (int l = 0; l < left; l++) sums[start + l] += double(sum[l]);
}

}  // namespace rows

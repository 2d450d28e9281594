// s arsinh(z) with its gradient: see passes.py.
#include <cmath>

#include "arsinh.h"
#include "denormals.h"
#include "rows.h"

namespace {

constexpr int width = 1024;  // most columns that are worked on together; their sums stay in the first cache
constexpr int depth = 16;  // rows whose sums are kept in T before they go to double

template <class T> void arsinh(T *z, int64_t rows, int64_t columns, const T *scale, int threads) {
    rows::each(rows, rows::worth(rows * columns, threads), [=](int64_t r) {
        T *value = z + r * columns;
#pragma omp simd
        for (int64_t j = 0; j < columns; j++) {
            T root;
            value[j] = scale[j] * elementary::arsinh(value[j], root);
        }
    });
}

// Of columns of the logits l = s v: slope = g s / cosh(v), by 1/cosh(v) = 2 e / (1 + e^2) with e = exp(-|v|), and the
// sums of g v.
template <class T> struct Slopes {
    const T *logits, *grad;
    int64_t stride;  // of the rows of both
    T *slope;
    int64_t rows, columns;
    const T *scale, *inverse;
    T *grad_scale;

    void run(int64_t start, int n) const {
        const NoDenormals zeros;
        const T *s = scale + start, *per_s = inverse + start;
        double total[width] = {};
        for (int64_t low = 0; low < rows; low += depth) {
            T sum[width] = {};
            for (int64_t r = low; r < std::min(low + depth, rows); r++) {
                const T *l = logits + r * stride + start, *g = grad + r * stride + start;
                T *out = slope + r * columns + start;
#pragma omp simd
                for (int j = 0; j < n; j++) {
                    const T v = l[j] * per_s[j], e = elementary::exp(-std::fabs(v));
                    out[j] = g[j] * s[j] * (T(2) * e / (T(1) + e * e));
                    sum[j] += g[j] * v;
                }
            }
#pragma omp simd
            for (int j = 0; j < n; j++) total[j] += sum[j];
        }
        for (int j = 0; j < n; j++) grad_scale[start + j] += T(total[j]);
    }
};

template <class T> void slopes(const Slopes<T> &tile, int threads) {
    threads = rows::worth(tile.rows * tile.columns, threads);
    const int64_t most = (tile.columns + width - 1) / width, parts = (most + threads - 1) / threads * threads;
    const int64_t each = (tile.columns + parts - 1) / parts;
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1)
    for (int64_t part = 0; part < parts; part++) {
        const int64_t n = std::min(each, tile.columns - part * each);
        if (n > 0) tile.run(part * each, int(n));
    }
}

}  // namespace

#define EXPORT(T)                                                                                                      \
    extern "C" void arsinh_##T(T *z, int64_t rows, int64_t columns, const T *scale, int threads) {                     \
        arsinh(z, rows, columns, scale, threads);                                                                      \
    }                                                                                                                  \
    extern "C" void slopes_##T(const T *logits, const T *grad, int64_t stride, T *slope, int64_t rows,                 \
                               int64_t columns, const T *scale, const T *inverse, T *grad_scale, int threads) {        \
        slopes<T>({logits, grad, stride, slope, rows, columns, scale, inverse, grad_scale}, threads);                  \
    }

EXPORT(float)
EXPORT(double)

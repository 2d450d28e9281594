// Lifts of points and hyperplanes, and s arsinh(z) with its gradient: see __init__.py and passes.py.
#include <cmath>

#include "denormals.h"
#include "elementary.h"
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

constexpr double tiny = 1e-40;  // keeps |a| positive

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

// W (n, d + 1), the scales (n), and of each row the gap, shift = <p, a>/gap and norm = |a|.
extern "C" void lift_hyperplanes(const float *p, const float *a, float *w, float *scale, double *gaps, double *shifts,
                                 double *norms, int64_t n, int64_t d, double c, double floor, int threads) {
    rows::each(n, rows::worth(n * d, threads), [=](int64_t r) {
        const float *point = p + r * d, *normal = a + r * d;
        float *to = w + r * (d + 1);
        const double gap = gaps[r] = std::max(1 - c * rows::dot(point, point, d), floor);
        const double shift = shifts[r] = rows::dot(point, normal, d) / gap;
        const double norm = norms[r] = std::sqrt(rows::dot(normal, normal, d) + tiny), alpha = std::sqrt(c) / norm;
        rows::combine(float(alpha), normal, float(2 * c * alpha * shift), point, to, d);
        to[d] = float(-alpha * shift);
        scale[r] = float(2 / std::sqrt(c) * norm);
    });
}

// grad_c: one number for each row, or null.
extern "C" void lift_hyperplanes_grad(const float *grad_w, const float *grad_scale, const float *p, const float *a,
                                      const double *gaps, const double *shifts, const double *norms, float *grad_p,
                                      float *grad_a, double *grad_c, int64_t n, int64_t d, double c, double floor,
                                      int threads) {
    rows::each(n, rows::worth(n * d, threads), [=](int64_t r) {
        const float *space = grad_w + r * (d + 1), *point = p + r * d, *normal = a + r * d;
        const double gap = gaps[r], shift = shifts[r], norm = norms[r];
        const double alpha = std::sqrt(c) / norm, size = 2 / std::sqrt(c) * double(grad_scale[r]);
        const double along_p = rows::dot(space, point, d), slope = 2 * c * along_p - double(space[d]);
        const double g_alpha = rows::dot(space, normal, d) + shift * slope;
        const double g_product = alpha * slope / gap;  // of <p, a>
        const double g_gap = gap > floor ? -g_product * shift : 0;
        const double g_norm = (size - alpha / norm * g_alpha) / norm;  // over |a|
        const double bend = 2 * c * alpha * shift;
        const float *const vectors[] = {space, normal, point};
        const float on_a[] = {float(alpha), float(g_norm), float(g_product)};
        const float on_p[] = {float(bend), float(g_product), float(-2 * c * g_gap)};
        rows::combine(on_a, vectors, 3, grad_a + r * d, d);
        rows::combine(on_p, vectors, 3, grad_p + r * d, d);
        if (grad_c) grad_c[r] = (alpha * g_alpha - size * norm) / (2 * c) + bend / c * along_p - g_gap * (1 - gap) / c;
    });
}

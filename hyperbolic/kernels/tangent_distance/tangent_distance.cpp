// Inner products of float32 rows in float64, and squared distances: see __init__.py and plain.py.
#include <cmath>
#include <vector>

#include "elementary.h"
#include "rows.h"

namespace {

// products <q_k, v_n> (K, N) and squares |v_n|^2 (N) of rows v.
void products(const double *queries, const float *v, double *products, double *squares, int64_t k, int64_t n, int64_t d,
              int64_t stride) {
    for (int64_t i = 0; i < n; i++, v += stride) {
        squares[i] = rows::dot(v, v, d);
        for (int64_t j = 0; j < k; j++) products[j * n + i] = rows::dot(v, queries + j * d, d);
    }
}

void products_grad(const double *queries, const float *v, const double *by_products, const double *by_squares,
                   double *grad_queries, float *grad_rows, int64_t k, int64_t n, int64_t d, int64_t stride) {
    std::fill_n(grad_queries, k * d, 0.0);
    std::vector<double> sums(d);
    double *sum = sums.data();
    for (int64_t i = 0; i < n; i++, v += stride) {
        const double twice = 2 * by_squares[i];
        for (int64_t a = 0; a < d; a++) sum[a] = twice * double(v[a]);
        for (int64_t j = 0; j < k; j++) {
            const double *query = queries + j * d, slope = by_products[j * n + i];
            double *grad_query = grad_queries + j * d;
#pragma omp simd
            for (int64_t a = 0; a < d; a++) {
                grad_query[a] += slope * double(v[a]);
                sum[a] += slope * query[a];
            }
        }
        float *out = grad_rows + i * d;
        for (int64_t a = 0; a < d; a++) out[a] = float(sum[a]);
    }
}

inline double at_least_zero(double h) { return h < 0 ? 0 : h; }

// (2/sqrt(c) arsinh(sqrt(h)))^2
template <class T> void squared(const double *h, double c, T *out, int64_t n) {
    constexpr double most = double(std::numeric_limits<T>::max()) / 4;
    const T factor = T(4 / c);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        T root;
        const double at = at_least_zero(h[j]);
        const T length = elementary::arsinh(std::sqrt(T(at > most ? most + 0 * at : at)), root);
        out[j] = length * length * factor;
    }
}

// Returns the derivative by c.
template <class T> double squared_grad(const T *grad, const double *h, double c, double *out, int64_t n) {
    const double factor = 4 / c;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        const double at = at_least_zero(h[j]), root = std::sqrt(at);
        double cosh;
        const double length = elementary::arsinh(root, cosh);
        out[j] = factor * double(grad[j]) * (at == 0 ? 1.0 : length / root) / cosh;
        sum += double(grad[j]) * factor * length * length;
    }
    return -sum / c;
}

}  // namespace

#define EXPORT(T)                                                                                                      \
    extern "C" void squared_##T(T *out, const double *h, const double *c, int64_t rows, int64_t columns,               \
                                int of_rows, int threads) {                                                            \
        rows::each(rows, rows::worth(rows * columns, threads), [=](int64_t r) {                                        \
            squared(h + r * columns, c[of_rows ? r : 0], out + r * columns, columns);                                  \
        });                                                                                                            \
    }                                                                                                                  \
    extern "C" void squared_grad_##T(const T *grad, const double *h, const double *c, double *out, double *grad_c,     \
                                     int64_t rows, int64_t columns, int of_rows, int threads) {                        \
        rows::each(rows, rows::worth(rows * columns, threads), [=](int64_t r) {                                        \
            const int64_t at = r * columns;                                                                            \
            const double sum = squared_grad(grad + at, h + at, c[of_rows ? r : 0], out + at, columns);                 \
            if (grad_c) grad_c[r] = sum;                                                                               \
        });                                                                                                            \
    }

EXPORT(float)
EXPORT(double)

// queries (B, K, d); rows (B, N, d), the strides of whose first axes are given.
extern "C" void row_products(const double *queries, const float *v, double *out, double *squares, int64_t b, int64_t k,
                             int64_t n, int64_t d, int64_t stride, int64_t row_stride, int threads) {
    rows::each(b, rows::worth(b * n * d, threads), [=](int64_t i) {
        products(queries + i * k * d, v + i * stride, out + i * k * n, squares + i * n, k, n, d, row_stride);
    });
}

extern "C" void row_products_grad(const double *queries, const float *v, const double *by_products,
                                  const double *by_squares, double *grad_queries, float *grad_rows, int64_t b,
                                  int64_t k, int64_t n, int64_t d, int64_t stride, int64_t row_stride, int threads) {
    rows::each(b, rows::worth(b * n * d, threads), [=](int64_t i) {
        products_grad(queries + i * k * d, v + i * stride, by_products + i * k * n, by_squares + i * n,
                      grad_queries + i * k * d, grad_rows + i * n * d, k, n, d, row_stride);
    });
}

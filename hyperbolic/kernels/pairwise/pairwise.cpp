// Distances of all pairs of points: see __init__.py and plain.py.
//
// Factors are rows of d + 2 numbers whose inner products are h = sinh^2(sqrt(c) d/2); the last two are the terms that
// may cancel. Those of the left points have the constants of the formula.
#include <cmath>

#include "elementary.h"
#include "rows.h"

namespace {

// h of a row of pairs becomes -1 where it is below the limit times its terms, and out the length of h, 0 there;
// returns how many these are.
template <class T>
int64_t lengths(double *h, T *out, const double *left, const double *right, int64_t n, double limit, double factor) {
    int64_t close = 0;
#pragma omp simd reduction(+ : close)
    for (int64_t j = 0; j < n; j++) {
        const bool near = h[j] <= limit * (left[0] * right[j] + left[1] * right[n + j]);
        T root;
        out[j] = near ? T(0) : T(factor) * elementary::arsinh(T(std::sqrt(near ? 1.0 : h[j])), root);
        h[j] = near ? -1 : h[j];
        close += near;
    }
    return close;
}

template <class T>
void all_lengths(double *h, T *out, const double *left, const double *right, int64_t batches, int64_t rows,
                 int64_t columns, int64_t d, int terms, double limit, double factor, int64_t *close, int threads) {
    std::vector<double> ends(batches * 2 * columns);  // the terms of the right points, each kind in a row
    std::vector<int64_t> counts(batches * rows);
    for (int64_t b = 0; b < batches; b++)
        for (int k = 0; k < terms; k++)
            for (int64_t j = 0; j < columns; j++)
                ends[(2 * b + k) * columns + j] = right[(b * columns + j) * (d + 2) + d + k];
    const double *end = ends.data();
    int64_t *count = counts.data();
    rows::each(batches * rows, rows::worth(batches * rows * columns, threads), [=](int64_t r) {
        const double *left_terms = left + r * (d + 2) + d, *right_terms = end + r / rows * 2 * columns;
        count[r] = lengths(h + r * columns, out + r * columns, left_terms, right_terms, columns, limit, factor);
    });
    for (int64_t one : counts) *close += one;
}

// out = grad / sqrt(c h (1 + h)), 0 where h <= 0; adds the derivative by c of 2/sqrt(c) arsinh(sqrt(h)).
template <class T>
void slopes(const double *h, const T *grad, double *out, int64_t rows, int64_t columns, double c, double *grad_c,
            int threads) {
    const auto row = [=](int64_t r) {
        const double *from = h + r * columns;
        const T *g = grad + r * columns;
        double *to = out + r * columns, sum = 0;
#pragma omp simd
        for (int64_t j = 0; j < columns; j++) {
            const double safe = from[j] <= 0 ? 1 : from[j];
            to[j] = (from[j] <= 0 ? 0.0 : double(g[j])) / std::sqrt(c * (safe + safe * safe));
        }
        if (grad_c) {
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < columns; j++) {
                double root;
                sum += double(g[j]) * elementary::arsinh(std::sqrt(from[j] <= 0 ? 0.0 : from[j]), root);
            }
        }
        return sum;
    };
    threads = rows::worth(rows * columns, threads);
    if (grad_c)
        *grad_c -= rows::sum_of_each(rows, threads, row) / (c * std::sqrt(c));
    else
        rows::each(rows, threads, row);
}

}  // namespace

#define EXPORT(T)                                                                                                      \
    extern "C" void lengths_##T(T *out, double *h, const double *left, const double *right, int64_t batches,           \
                                int64_t rows, int64_t columns, int64_t d, int terms, double limit, double factor,      \
                                int64_t *close, int threads) {                                                         \
        all_lengths(h, out, left, right, batches, rows, columns, d, terms, limit, factor, close, threads);             \
    }                                                                                                                  \
    extern "C" void slopes_##T(const T *grad, const double *h, double *out, int64_t rows, int64_t columns, double c,   \
                               double *grad_c, int threads) {                                                          \
        slopes(h, grad, out, rows, columns, c, grad_c, threads);                                                       \
    }

EXPORT(float)
EXPORT(double)

// Left: [-2c x/g, c|x|^2/g, 1/g]. Right: [y/g, 1/g, c|y|^2/g].
extern "C" void poincare_factors(const float *x, double *out, int64_t n, int64_t d, double c, double floor, int left,
                                 int threads) {
    rows::each(n, rows::worth(n * d, threads), [=](int64_t r) {
        const float *from = x + r * d;
        double *to = out + r * (d + 2);
        const double square = c * rows::dot(from, from, d), inverse = 1 / std::max(1 - square, floor);
        rows::scale((left ? -2 * c : 1) * inverse, from, to, d);
        to[left ? d : d + 1] = square * inverse;
        to[left ? d + 1 : d] = inverse;
    });
}

// grad_c: one number for each row.
extern "C" void poincare_factors_grad(const double *grad, const float *x, float *grad_x, double *grad_c, int64_t n,
                                      int64_t d, double c, double floor, int left, int threads) {
    rows::each(n, rows::worth(n * d, threads), [=](int64_t r) {
        const double *g = grad + r * (d + 2), factor = left ? -2 * c : 1;
        const float *from = x + r * d;
        const double square = rows::dot(from, from, d), gap = 1 - c * square, inverse = 1 / std::max(gap, floor);
        const double along = rows::dot(g, from, d), by_square = g[left ? d : d + 1] * inverse;
        const double by_inverse = factor * along + g[left ? d : d + 1] * c * square + g[left ? d + 1 : d];
        const double by_product = by_square + (gap > floor ? by_inverse * inverse * inverse : 0);  // of c|x|^2
        rows::combine(factor * inverse, g, 2 * c * by_product, from, grad_x + r * d, d);
        grad_c[r] = by_product * square - (left ? 2 * along * inverse : 0);
    });
}

// Of the space parts s of x (n, d + 1), with t = sqrt(1/c + |s|^2). Left: [-c/2 s, c/2 t, -1/2]. Right: [s, t, 1].
extern "C" void lorentz_factors(const float *x, double *out, int64_t n, int64_t d, double c, double, int left,
                                int threads) {
    rows::each(n, rows::worth(n * d, threads), [=](int64_t r) {
        const float *space = x + r * (d + 1) + 1;
        double *to = out + r * (d + 2);
        rows::scale(left ? -c / 2 : 1, space, to, d);
        to[d] = (left ? c / 2 : 1) * std::sqrt(1 / c + rows::dot(space, space, d));
        to[d + 1] = left ? -0.5 : 1;
    });
}

// grad_c: one number for each row.
extern "C" void lorentz_factors_grad(const double *grad, const float *x, float *grad_x, double *grad_c, int64_t n,
                                     int64_t d, double c, double, int left, int threads) {
    rows::each(n, rows::worth(n * d, threads), [=](int64_t r) {
        const double *g = grad + r * (d + 2);
        const float *space = x + r * (d + 1) + 1;
        float *to = grad_x + r * (d + 1);
        const double time = std::sqrt(1 / c + rows::dot(space, space, d)), by_time = (left ? c / 2 : 1) * g[d] / time;
        rows::combine(left ? -c / 2 : 1, g, by_time, space, to + 1, d);
        to[0] = 0;
        grad_c[r] = (left ? (g[d] * time - rows::dot(g, space, d)) / 2 : 0) - by_time / (2 * c * c);
    });
}

// The operations of __init__.py on float32 rows with float64 row numbers, each in one pass.
#include "rows.h"

namespace {

constexpr double most = 1e300;  // of a factor, so that 0 times it is 0

inline double finite(double factor) { return std::min(std::max(factor, -most), most); }

}  // namespace

extern "C" void row_dot(const float *x, const float *y, double *out, int64_t n, int64_t size, int threads) {
    rows::each(n, rows::worth(n * size, threads), [=](int64_t r) { out[r] = rows::dot(x + r * size, y + r * size, size); });
}

extern "C" void row_scale(const double *scale, const float *x, float *out, int64_t n, int64_t size, int threads) {
    rows::each(n, rows::worth(n * size, threads),
               [=](int64_t r) { rows::scale(finite(scale[r]), x + r * size, out + r * size, size); });
}

// Gradients of row_scale: <grad, x> and scale grad, which may be left out.
extern "C" void row_scale_grad(const double *scale, const float *x, const float *grad, double *grad_scale,
                               float *grad_x, int64_t n, int64_t size, int threads) {
    rows::each(n, rows::worth(n * size, threads), [=](int64_t r) {
        const float *g = grad + r * size;
        grad_scale[r] = rows::dot(g, x + r * size, size);
        if (grad_x) rows::scale(finite(scale[r]), g, grad_x + r * size, size);
    });
}

// out_b = sum_i w_bi x_bi of `count` rows for each b.
extern "C" void weighted_sum(const double *weights, const float *x, double *out, int64_t n, int64_t count, int64_t size,
                             int threads) {
    rows::each(n, rows::worth(n * count * size, threads), [=](int64_t b) {
        double *sum = out + b * size;
        std::fill(sum, sum + size, 0.0);
        for (int64_t i = b * count; i < (b + 1) * count; i++) rows::add(weights[i], x + i * size, sum, size);
    });
}

// Its gradients: <x_bi, grad_b> and w_bi grad_b; either may be left out.
extern "C" void weighted_sum_grad(const double *weights, const float *x, const double *grad, double *grad_weights,
                                  float *grad_x, int64_t n, int64_t count, int64_t size, int threads) {
    rows::each(n, rows::worth(n * count * size, threads), [=](int64_t b) {
        const double *g = grad + b * size;
        for (int64_t i = b * count; i < (b + 1) * count; i++) {
            if (grad_weights) grad_weights[i] = rows::dot(x + i * size, g, size);
            if (!grad_x) continue;
            const double weight = weights[i];
            float *to = grad_x + i * size;
#pragma omp simd
            for (int64_t j = 0; j < size; j++) to[j] = float(weight * g[j]);
        }
    });
}

// Products of rows with matrices of their own, and their gradients: see hyperbolic/kernels/relation_linear.py.
#include <algorithm>

#include "rows.h"

namespace {

// y_i = W_{r_i} x_i.
template <class T>
void products(const T *x, const T *weight, const int64_t *r, T *y, int64_t n, int64_t out, int64_t in, int threads) {
    rows::each(n, rows::worth(n * out * in, threads), [=](int64_t i) {
        const T *w = weight + r[i] * out * in;
        for (int64_t o = 0; o < out; o++) y[i * out + o] = rows::product(w + o * in, x + i * in, in);
    });
}

// grad_x_i = W_{r_i}^T grad_i.
template <class T>
void vector_grads(const T *grad, const T *weight, const int64_t *r, T *grad_x, int64_t n, int64_t out, int64_t in,
                  int threads) {
    rows::each(n, rows::worth(n * out * in, threads), [=](int64_t i) {
        const T *w = weight + r[i] * out * in;
        std::fill(grad_x + i * in, grad_x + (i + 1) * in, T(0));
        for (int64_t o = 0; o < out; o++) rows::add(grad[i * out + o], w + o * in, grad_x + i * in, in);
    });
}

// grad_W_r = sum of grad_i x_i^T over the rows i with that r, added in their order. Every thread has some rows of all
// matrices.
template <class T>
void matrix_grads(const T *grad, const T *x, const int64_t *r, T *grad_weight, int64_t n, int64_t out, int64_t in,
                  int64_t matrices, int threads) {
    threads = rows::worth(n * out * in, threads);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        const int64_t first = out * part / threads, end = out * (part + 1) / threads;
        for (int64_t k = 0; k < matrices; k++)
            std::fill(grad_weight + (k * out + first) * in, grad_weight + (k * out + end) * in, T(0));
        for (int64_t i = 0; i < n; i++) {
            for (int64_t o = first; o < end; o++)
                rows::add(grad[i * out + o], x + i * in, grad_weight + (r[i] * out + o) * in, in);
        }
    }
}

}  // namespace

#define EXPORT(T)                                                                                                      \
    extern "C" void products_##T(const T *x, const T *weight, const int64_t *r, T *y, int64_t n, int64_t out,          \
                                 int64_t in, int threads) {                                                            \
        products(x, weight, r, y, n, out, in, threads);                                                                \
    }                                                                                                                  \
    extern "C" void grads_##T(const T *grad, const T *x, const T *weight, const int64_t *r, T *grad_x,                 \
                              T *grad_weight, int64_t n, int64_t out, int64_t in, int64_t matrices, int threads) {     \
        if (grad_x) vector_grads(grad, weight, r, grad_x, n, out, in, threads);                                        \
        if (grad_weight) matrix_grads(grad, x, r, grad_weight, n, out, in, matrices, threads);                         \
    }

EXPORT(float)
EXPORT(double)

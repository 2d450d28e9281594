// Products of rows with matrices of their own, and their gradients: see hyperbolic/kernels/relation_linear.py.
#pragma once
#include "rows.h"

namespace relation_linear {

// y = W x.
template <class T> inline void product(const T *x, const T *w, T *y, int64_t out, int64_t in) {
    for (int64_t o = 0; o < out; o++) y[o] = rows::product(w + o * in, x, in);
}

// grad_x = W^T grad.
template <class T> inline void vector_grad(const T *grad, const T *w, T *grad_x, int64_t out, int64_t in) {
    std::fill(grad_x, grad_x + in, T(0));
    for (int64_t o = 0; o < out; o++) rows::add(grad[o], w + o * in, grad_x, in);
}

// grad_W_r = sum of grad_i x_i^T over the rows i with that r, added in their order; x_i is vector(i). Every thread has
// some rows of all matrices.
template <class T, class Vector>
void matrix_grads(const T *grad, Vector vector, const int64_t *r, T *grad_weight, int64_t n, int64_t out, int64_t in,
                  int64_t matrices, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        const int64_t first = out * part / threads, end = out * (part + 1) / threads;
        for (int64_t k = 0; k < matrices; k++)
            std::fill(grad_weight + (k * out + first) * in, grad_weight + (k * out + end) * in, T(0));
        for (int64_t i = 0; i < n; i++) {
            for (int64_t o = first; o < end; o++)
                rows::add(grad[i * out + o], vector(i), grad_weight + (r[i] * out + o) * in, in);
        }
    }
}

}  // namespace relation_linear

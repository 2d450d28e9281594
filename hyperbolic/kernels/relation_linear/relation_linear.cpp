// See hyperbolic/kernels/relation_linear.py.
#include "relation_linear.h"

#define EXPORT(T)                                                                                                      \
    extern "C" void products_##T(const T *x, const T *weight, const int64_t *r, T *y, int64_t n, int64_t out,          \
                                 int64_t in, int threads) {                                                            \
        rows::each(n, rows::worth(n * out * in, threads), [=](int64_t i) {                                             \
            relation_linear::product(x + i * in, weight + r[i] * out * in, y + i * out, out, in);                      \
        });                                                                                                            \
    }                                                                                                                  \
    extern "C" void grads_##T(const T *grad, const T *x, const T *weight, const int64_t *r, T *grad_x,                 \
                              T *grad_weight, int64_t n, int64_t out, int64_t in, int64_t matrices, int threads) {     \
        threads = rows::worth(n * out * in, threads);                                                                  \
        if (grad_x) {                                                                                                  \
            rows::each(n, threads, [=](int64_t i) {                                                                    \
                relation_linear::vector_grad(grad + i * out, weight + r[i] * out * in, grad_x + i * in, out, in);      \
            });                                                                                                        \
        }                                                                                                              \
        if (grad_weight) {                                                                                             \
            const auto vector = [=](int64_t i) { return x + i * in; };                                                 \
            relation_linear::matrix_grads(grad, vector, r, grad_weight, n, out, in, matrices, threads);                \
        }                                                                                                              \
    }

EXPORT(float)
EXPORT(double)

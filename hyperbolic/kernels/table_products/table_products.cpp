// See __init__.py.
#include "table_products.h"

#define EXPORT(T)                                                                                                      \
    extern "C" void scores_##T(const T *x, const T *table, const T *bias, const int64_t *index, T *out, int64_t n,     \
                               int64_t m, int64_t size, int threads) {                                                 \
        rows::each(n, rows::worth(n * m * size, threads), [=](int64_t i) {                                             \
            table_products::scores(x + i * size, table, bias, T(0), index + i * m, out + i * m, m, (n - i) * m, size); \
        });                                                                                                            \
    }                                                                                                                  \
    extern "C" void grads_##T(const T *grad, const T *x, const T *table, const int64_t *index, T *grad_x,              \
                              T *grad_table, T *grad_bias, int64_t n, int64_t m, int64_t size, int64_t entries,        \
                              int threads) {                                                                           \
        threads = rows::worth(n * m * size, threads);                                                                  \
        if (grad_x) {                                                                                                  \
            rows::each(n, threads, [=](int64_t i) {                                                                    \
                const int64_t *row = index + i * m;                                                                    \
                table_products::vector_grad(grad + i * m, table, row, grad_x + i * size, m, (n - i) * m, size);        \
            });                                                                                                        \
        }                                                                                                              \
        if (grad_table || grad_bias)                                                                                   \
            table_products::table_grads(grad, x, index, grad_table, grad_bias, n, m, size, entries, threads);          \
    }

EXPORT(float)
EXPORT(double)

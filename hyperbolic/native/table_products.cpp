// Products of vectors with chosen rows of a table, and their gradients: see hyperbolic/kernels/table_products.py.
#include <algorithm>
#include <cstdint>

#include "rows.h"

namespace {

constexpr int64_t ahead = 12;  // rows that are asked for before they are needed: they lie anywhere in the table

template <class T> inline void ask(const T *row, int64_t size) {
    for (int64_t k = 0; k < size; k += int64_t(64 / sizeof(T))) __builtin_prefetch(row + k);
}

// out_ij = <x_i, table_t> + bias_t with t = index_ij.
template <class T>
void scores(const T *x, const T *table, const T *bias, const int64_t *index, T *out, int64_t n, int64_t m, int64_t size,
            int threads) {
    rows::each(n, rows::worth(n * m * size, threads), [=](int64_t i) {
        const int64_t *chosen = index + i * m;
        for (int64_t j = 0; j < m; j++) {
            if (j + ahead < m) ask(table + chosen[j + ahead] * size, size);
            const int64_t t = chosen[j];
            out[i * m + j] = rows::product(x + i * size, table + t * size, size) + (bias ? bias[t] : T(0));
        }
    });
}

// grad_x_i = sum_j g_ij table_t.
template <class T>
void vector_grads(const T *grad, const T *table, const int64_t *index, T *grad_x, int64_t n, int64_t m, int64_t size,
                  int threads) {
    rows::each(n, rows::worth(n * m * size, threads), [=](int64_t i) {
        T *to = grad_x + i * size;
        std::fill(to, to + size, T(0));
        for (int64_t j = 0; j < m; j++) {
            if (j + ahead < m) ask(table + index[i * m + j + ahead] * size, size);
            rows::add(grad[i * m + j], table + index[i * m + j] * size, to, size);
        }
    });
}

// grad_table_t = sum of g_ij x_i over the places of t, and grad_bias_t = sum of g_ij. Every thread has rows of its own,
// looks at all places, and adds them up in their order, whatever the number of threads.
template <class T>
void table_grads(const T *grad, const T *x, const int64_t *index, T *grad_table, T *grad_bias, int64_t n, int64_t m,
                 int64_t size, int64_t entries, int threads) {
    threads = rows::worth(n * m * size, threads);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        const int64_t first = entries * part / threads, end = entries * (part + 1) / threads;
        if (grad_table) std::fill(grad_table + first * size, grad_table + end * size, T(0));
        if (grad_bias) std::fill(grad_bias + first, grad_bias + end, T(0));
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < m; j++) {
                const int64_t t = index[i * m + j];
                if (t < first || t >= end) continue;
                if (grad_table) rows::add(grad[i * m + j], x + i * size, grad_table + t * size, size);
                if (grad_bias) grad_bias[t] += grad[i * m + j];
            }
        }
    }
}

}  // namespace

#define EXPORT(T)                                                                                                      \
    extern "C" void scores_##T(const T *x, const T *table, const T *bias, const int64_t *index, T *out, int64_t n,     \
                               int64_t m, int64_t size, int threads) {                                                 \
        scores(x, table, bias, index, out, n, m, size, threads);                                                       \
    }                                                                                                                  \
    extern "C" void grads_##T(const T *grad, const T *x, const T *table, const int64_t *index, T *grad_x,              \
                              T *grad_table, T *grad_bias, int64_t n, int64_t m, int64_t size, int64_t entries,        \
                              int threads) {                                                                           \
        if (grad_x) vector_grads(grad, table, index, grad_x, n, m, size, threads);                                     \
        if (grad_table || grad_bias)                                                                                   \
            table_grads(grad, x, index, grad_table, grad_bias, n, m, size, entries, threads);                          \
    }

EXPORT(float)
EXPORT(double)

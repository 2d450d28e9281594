// Products of vectors with some rows of a table, and their gradients: see kernels/table_products/__init__.py.
#pragma once
#include "rows.h"

namespace table_products {

constexpr int at_a_time = 512;  // places whose rows are looked for together

// How many rows are fetched before they are needed: they lie anywhere in the table.
inline int64_t rows_ahead(int64_t size) {
    return std::max<int64_t>(4, std::min<int64_t>(32, 4096 / std::max<int64_t>(size, 1)));
}

// out_j = <x, table_t> + bias_t + shift with t = index_j, j < m. left: numbers from the index on, m or more of them.
template <class T>
inline void scores(const T *x, const T *table, const T *bias, T shift, const int64_t *index, T *out, int64_t m,
                   int64_t left, int64_t size) {
    const int64_t ahead = rows_ahead(size);
    for (int64_t j = 0; j < m; j++) {
        if (j + ahead < left) {
            rows::ask(table + index[j + ahead] * size, size);
            if (bias) __builtin_prefetch(bias + index[j + ahead]);
        }
        const int64_t t = index[j];
        out[j] = rows::product(x, table + t * size, size) + (bias ? bias[t] : T(0)) + shift;
    }
}

// grad_x = sum_j g_j table_t. left: as above.
template <class T>
inline void vector_grad(const T *grad, const T *table, const int64_t *index, T *grad_x, int64_t m, int64_t left,
                        int64_t size) {
    const int64_t ahead = rows_ahead(size);
    std::fill(grad_x, grad_x + size, T(0));
    for (int64_t j = 0; j < m; j++) {
        if (j + ahead < left) rows::ask(table + index[j + ahead] * size, size);
        rows::add(grad[j], table + index[j] * size, grad_x, size);
    }
}

// grad_table_t = sum of g_ij x_i over the places of t, and grad_bias_t = sum of g_ij. Every thread has rows of its own,
// looks at all places, and adds them up in their order, whatever the number of threads.
template <class T>
void table_grads(const T *grad, const T *x, const int64_t *index, T *grad_table, T *grad_bias, int64_t n, int64_t m,
                 int64_t size, int64_t entries, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        const int64_t first = entries * part / threads, end = entries * (part + 1) / threads;
        if (grad_table) std::fill(grad_table + first * size, grad_table + end * size, T(0));
        if (grad_bias) std::fill(grad_bias + first, grad_bias + end, T(0));
        const int64_t ahead = rows_ahead(size);
        int64_t places[at_a_time], i = 0;
        for (int64_t start = 0; start < n * m; start += at_a_time) {
            const int64_t stop = std::min(start + at_a_time, n * m);
            int count = 0;
            for (int64_t p = start; p < stop; p++) {  // without branches: whose a place is cannot be foreseen
                places[count] = p;
                count += (index[p] >= first) & (index[p] < end);
            }
            for (int k = 0; k < count; k++) {
                const int64_t p = places[k], t = index[p];
                if (grad_table && k + ahead < count) rows::ask(grad_table + index[places[k + ahead]] * size, size);
                while (p >= (i + 1) * m) i++;
                if (grad_table) rows::add(grad[p], x + i * size, grad_table + t * size, size);
                if (grad_bias) grad_bias[t] += grad[p];
            }
        }
    }
}

}  // namespace table_products

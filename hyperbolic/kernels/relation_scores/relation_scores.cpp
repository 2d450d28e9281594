// HyboNet's scores of triples and their gradients: see __init__.py.
#include "lorentz_rows.h"
#include "table_products.h"

namespace {

// Of n questions (h_i, r_i) with m tails t_ij each. z_i = W_r x_h + (0, b_r) becomes the point y_i; the score is
// 2 <y_i, x_t>_L + b_h + b'_t + margin.
template <class T> struct Questions {
    const T *table, *matrix, *bias, *head_bias, *tail_bias;
    const int64_t *h, *r, *t;
    int64_t n, m, size;

    const T *head(int64_t i) const { return table + h[i] * size; }
    const T *matrix_of(int64_t i) const { return matrix + r[i] * size * size; }
};

// y: the points; q: 2 (-y_0, y_s); numbers: see lorentz::normalise_grad.
template <class T>
void score(const Questions<T> &of, T *y, T *q, double *numbers, T *out, double margin, const lorentz::Times &times,
           int threads) {
    const int64_t n = of.n, m = of.m, size = of.size;
    rows::each_block(n, threads, [=](int64_t start, int count) {
        for (int64_t i = start; i < start + count; i++) {
            T *to = y + i * size;
            for (int64_t o = 0; o < size; o++) to[o] = rows::product(of.matrix_of(i) + o * size, of.head(i), size);
            rows::add(T(1), of.bias + of.r[i] * (size - 1), to + 1, size - 1);
        }
        T *own = y + start * size;
        const rows::Block<T> z(own, count, size);
        lorentz::normalise_block(z.row, own, numbers + start, numbers + n + start, count, size, times);
        for (int64_t i = start; i < start + count; i++) {
            lorentz::flip(y + i * size, q + i * size, size, 2);
            const T shift = T(margin) + of.head_bias[of.h[i]], *x = q + i * size;
            const int64_t *tails = of.t + i * m, left = (n - i) * m;
            table_products::scores(x, of.table, of.tail_bias, shift, tails, out + i * m, m, left, size);
        }
    });
}

// Gradients of all parameters, which are written whole. grad_y, grad_z, grad_x (n, size), grad_b (n): memory.
template <class T> struct Gradients {
    T *table, *matrix, *bias, *head_bias, *tail_bias, *grad_y, *grad_z, *grad_x, *grad_b;
};

// grad_W_r = sum of grad_i x_i^T over the questions i with that r, added in their order. Every thread has some rows of
// all matrices.
template <class T>
void matrix_grads(const Questions<T> &of, const T *grad, T *grad_matrix, int64_t relations, int threads) {
    const int64_t size = of.size;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        const int64_t first = size * part / threads, end = size * (part + 1) / threads;
        for (int64_t k = 0; k < relations; k++)
            std::fill(grad_matrix + (k * size + first) * size, grad_matrix + (k * size + end) * size, T(0));
        for (int64_t i = 0; i < of.n; i++) {
            for (int64_t o = first; o < end; o++)
                rows::add(grad[i * size + o], of.head(i), grad_matrix + (of.r[i] * size + o) * size, size);
        }
    }
}

template <class T>
void score_grads(const Questions<T> &of, const T *grad, const T *y, const T *q, const double *numbers,
                 const Gradients<T> &to, int64_t entities, int64_t relations, const lorentz::Times &times,
                 int threads) {
    const int64_t n = of.n, m = of.m, size = of.size;
    rows::each_block(n, threads, [=](int64_t start, int count) {
        double unused[2] = {};
        for (int64_t i = start; i < start + count; i++) {
            T *row = to.grad_y + i * size;
            table_products::vector_grad(grad + i * m, of.table, of.t + i * m, row, m, (n - i) * m, size);
            lorentz::flip(row, row, size, 2);
            to.grad_b[i] = rows::sum(grad + i * m, m);
        }
        const lorentz::Normalised<T> points{to.grad_y, y, numbers, n, size, times};
        lorentz::normalise_grad(points, to.grad_z + start * size, unused, start, count);
        for (int64_t i = start; i < start + count; i++) {
            T *grad_x = to.grad_x + i * size;
            std::fill(grad_x, grad_x + size, T(0));
            for (int64_t o = 0; o < size; o++) {
                rows::add(to.grad_z[i * size + o], of.matrix_of(i) + o * size, grad_x, size);
            }
        }
    });
    table_products::table_grads(grad, q, of.t, to.table, to.tail_bias, n, m, size, entities, threads);
    std::fill(to.head_bias, to.head_bias + entities, T(0));
    std::fill(to.bias, to.bias + relations * (size - 1), T(0));
    for (int64_t i = 0; i < n; i++) {
        rows::add(T(1), to.grad_x + i * size, to.table + of.h[i] * size, size);
        rows::add(T(1), to.grad_z + i * size + 1, to.bias + of.r[i] * (size - 1), size - 1);
        to.head_bias[of.h[i]] += to.grad_b[i];
    }
    matrix_grads(of, to.grad_z, to.matrix, relations, threads);
}

}  // namespace

#define EXPORT(T)                                                                                                      \
    extern "C" void scores_##T(const T *table, const T *matrix, const T *bias, const T *head_bias, const T *tail_bias, \
                               const int64_t *h, const int64_t *r, const int64_t *t, T *y, T *q, double *numbers,      \
                               T *out, int64_t n, int64_t m, int64_t size, double margin, double scale, double lowest, \
                               double radius, int threads) {                                                           \
        const Questions<T> of{table, matrix, bias, head_bias, tail_bias, h, r, t, n, m, size};                         \
        score(of, y, q, numbers, out, margin, {scale, lowest, radius}, rows::worth(n * (m + size) * size, threads));   \
    }                                                                                                                  \
    extern "C" void grads_##T(const T *table, const T *matrix, const int64_t *h, const int64_t *r, const int64_t *t,   \
                              const T *grad, const T *y, const T *q, const double *numbers, T *grad_table,             \
                              T *grad_matrix, T *grad_bias, T *grad_head_bias, T *grad_tail_bias, T *memory,           \
                              int64_t n, int64_t m, int64_t size, int64_t entities, int64_t relations, double scale,   \
                              double lowest, double radius, int threads) {                                             \
        const Questions<T> of{table, matrix, nullptr, nullptr, nullptr, h, r, t, n, m, size};                          \
        const Gradients<T> to{grad_table, grad_matrix, grad_bias, grad_head_bias, grad_tail_bias, memory,              \
                              memory + n * size, memory + 2 * n * size, memory + 3 * n * size};                        \
        score_grads(of, grad, y, q, numbers, to, entities, relations, {scale, lowest, radius},                         \
                    rows::worth(n * (m + size) * size, threads));                                                      \
    }

EXPORT(float)
EXPORT(double)

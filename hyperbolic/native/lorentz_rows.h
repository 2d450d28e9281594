// Points of the hyperboloid in blocks of rows: normalised ones with their gradients, and duals.
#pragma once
#include <cmath>

#include "elementary.h"
#include "rows.h"

namespace lorentz {

constexpr double short_square = 0x1p-40;  // e^2, which |u|^2 of a space part counts as more

// t = scale gate + lowest + radius and r^2 = t^2 - radius^2, radius = 1/sqrt(c).
struct Times {
    double scale, lowest, radius;
    inline double time(double gate) const { return gate * scale + lowest + radius; }
    inline double square(double gate) const {
        const double above = gate * scale + lowest;
        return above * (above + 2 * radius);
    }
};

// The first coordinates of the rows of a block, and |s|^2 of the others.
template <class T>
inline void read_block(const T *const *row, int count, int64_t size, double *first, double *square) {
    for (int i = 0; i < count; i++) {
        first[i] = row[i][0];
        square[i] = rows::dot<true>(row[i], row[i], size);
    }
}

// z = (z_0, u) becomes y = (sqrt(radius^2 + r^2 - k^2 e^2), k u) with k = r / sqrt(|u|^2 + e^2), in the rows of a
// block; those of z may be those of y. gate: the gates sigmoid(z_0); factor: k.
template <class T>
void normalise_block(const T *const *z, T *y, double *gate, double *factor, int count, int64_t size, const Times &times) {
    rows::Numbers square, time;
    read_block(z, count, size, gate, square);
#pragma omp simd
    for (int i = 0; i < count; i++) {
        gate[i] = elementary::sigmoid(gate[i]);
        const double inverse = 1 / (square[i] + short_square), length2 = times.square(gate[i]);
        factor[i] = std::sqrt(length2 * inverse);
        time[i] = std::sqrt(length2 - length2 * (short_square * inverse) + times.radius * times.radius);
    }
    for (int i = 0; i < count; i++) {
        T *row = y + i * size;
        rows::scale(T(factor[i]), z[i], row, size);
        row[0] = T(time[i]);
    }
}

// What the gradients of a normalisation of n rows need.
template <class T> struct Normalised {
    const T *grad, *y;
    const double *row_numbers;
    int64_t n, size;
    Times times;
};

// The gradient of z, from its row `start` on. sums: added to, those over the rows of the gradient of t times the gate,
// and of <grad, y>.
//
// With a = (<grad_s, y_s> - grad_0 k^2 e^2 / y_0) / r^2: the gradient of t is (a + grad_0 / y_0) t, and that of u is
// k (grad_s - a y_s).
template <class T> void normalise_grad(const Normalised<T> &of, T *out, double *sums, int64_t start, int count) {
    const T *grad = of.grad + start * of.size, *y = of.y + start * of.size;
    const double *gate = of.row_numbers + start, *factor = of.row_numbers + of.n + start;
    const Times times = of.times;
    const int64_t size = of.size;
    rows::Numbers all, space, slope, along, by_gate;
    for (int i = 0; i < count; i++) {
        const T *g = grad + i * size, *row = y + i * size;
        space[i] = rows::dot<true>(g, row, size);
        all[i] = space[i] + double(g[0]) * row[0];
        slope[i] = double(g[0]) / row[0];
    }
#pragma omp simd
    for (int i = 0; i < count; i++) {
        const double lost = factor[i] * factor[i] * short_square;
        along[i] = (space[i] - slope[i] * lost) / times.square(gate[i]);
        by_gate[i] = (along[i] + slope[i]) * times.time(gate[i]) * gate[i];
    }
    for (int i = 0; i < count; i++) {
        T *to = out + i * size;
        rows::combine(T(factor[i]), grad + i * size, T(-factor[i] * along[i]), y + i * size, to, size);
        to[0] = T(by_gate[i] * (1 - gate[i]) * times.scale);
    }
    sums[0] += rows::total(by_gate, count);
    sums[1] += rows::total(all, count);
}

// factor (-q_0, q_s).
template <class T> inline void flip(const T *q, T *to, int64_t size, double factor) {
    rows::scale(T(factor), q, to, size);
    to[0] = -to[0];
}

}  // namespace lorentz

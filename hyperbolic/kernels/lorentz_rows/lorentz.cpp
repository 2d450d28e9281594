// Points of the hyperboloid, time coordinate first, in single passes over rows: see plain.py.
//
// Rows are scaled and combined as a whole, and their time coordinates put in after.
#include <cmath>
#include <vector>

#include "lorentz_rows.h"

using namespace lorentz;
using rows::Numbers;

namespace {

// See lorentz::normalise_block. Of the points first..last; z: theirs, `heads` side by side in a row, a row every by_row
// numbers. numbers: the gates of all n points, then the factors.
template <class T>
void normalise(const T *z, int64_t by_row, int64_t heads, T *y, double *numbers, int64_t first, int64_t last, int64_t n,
               int64_t size, Times times, int threads) {
    rows::each_block(last - first, rows::worth((last - first) * size, threads), [=](int64_t start, int count) {
        const rows::Block<T> block(z, start, count, size, heads, by_row);
        double *own = numbers + first + start;
        normalise_block(block.row, y + (first + start) * size, own, own + n, count, size, times);
    });
}

// Of the rows first..last. columns: added to, the sums over the rows of the gradient of z; or null.
template <class T>
void normalise_grads(const Normalised<T> &of, int64_t first, int64_t last, T *out, double *sums, T *columns,
                     int threads) {
    const int64_t width = 2 + (columns ? of.size : 0);
    std::vector<double> totals(width * threads);
    rows::each_part(last - first, threads, [&](int part, int64_t start, int64_t end) {
        double *own = totals.data() + part * width;
        for (; start < end; start += rows::of_block) {
            const int count = rows::in_block(start, end);
            T *to = out + start * of.size;
            normalise_grad(of, to, own, first + start, count);
            rows::add_columns<T>(nullptr, to, count, width - 2, own + 2);
        }
    });
    for (int part = 0; part < threads; part++) {
        const double *own = totals.data() + part * width;
        for (int k = 0; k < 2; k++) sums[k] += own[k];
        for (int64_t k = 2; k < width; k++) columns[k - 2] += T(own[k]);
    }
}

// Where the coordinates of space parts lie: of row a * b_size + b, the coordinates k of head h at
// a * by_a + b * by_b + h * by_head + k.
struct Layout {
    int64_t b_size, heads, coordinates, by_a, by_b, by_head;
};

template <class T> void lift(const T *s, T *y, int64_t n, Layout at, double inverse_c, int threads) {
    const int64_t size = at.heads * at.coordinates + 1;
    rows::each(n, threads, [=](int64_t r) {
        T *row = y + r * size;
        const T *from = s + r / at.b_size * at.by_a + r % at.b_size * at.by_b;
        for (int64_t h = 0; h < at.heads; h++) {
            std::copy_n(from + h * at.by_head, at.coordinates, row + 1 + h * at.coordinates);
        }
        row[0] = T(std::sqrt(rows::dot<true>(row, row, size) + inverse_c));  // the time, of the space (., s)
    });
}

// grad + grad_0 / y_0 y, without the time. Returns the sum of grad_0 / y_0.
template <class T>
double lift_grad(const T *grad, const T *y, T *out, int64_t n, int64_t size, int threads) {
    return rows::sum_of_each(n, threads, [=](int64_t r) {
        const T *g = grad + r * size, *row = y + r * size;
        const double slope = double(g[0]) / row[0];
        rows::combine(T(1), g + 1, T(slope), row + 1, out + r * (size - 1), size - 1);
        return slope;
    });
}

inline double positive(double x) { return x < 0 ? 0 : x; }

// y = f m, f = 1 / sqrt(1 + c (t - below) (t + below)) of m = (t, s) with below = sqrt(1/c + |s|^2) <= t.
template <class T>
void mean(const T *means, T *y, double *factors, int64_t n, int64_t size, double c, int threads) {
    const double inverse_c = 1 / c;
    rows::each_block(n, threads, [=](int64_t start, int count) {
        double *factor = factors + start;
        Numbers square, time;
        read_block(rows::Block<T>(means + start * size, count, size).row, count, size, time, square);
#pragma omp simd
        for (int i = 0; i < count; i++) {
            const double below = std::sqrt(square[i] + inverse_c);
            const double squared = 1 + c * positive(time[i] - below) * (time[i] + below) + 0 * time[i];  // inf: NaN
            factor[i] = 1 / std::sqrt(squared);
            time[i] = std::sqrt(square[i] / squared + inverse_c);
        }
        for (int i = 0; i < count; i++) {
            T *to = y + (start + i) * size;
            rows::scale(T(factor[i]), means + (start + i) * size, to, size);
            to[0] = T(time[i]);
        }
    });
}

// f grad + f c <grad, y> (-y_0, y_s). Returns the sum of <grad, y>.
template <class T>
double mean_grad(const T *grad, const T *y, const double *factors, T *out, int64_t n, int64_t size, double c,
                 int threads) {
    return rows::sum_of_each(n, threads, [=](int64_t r) {
        const T *g = grad + r * size, *row = y + r * size, factor = T(factors[r]);
        T *to = out + r * size;
        const double along = rows::dot(g, row, size);
        const T on_y = T(along * factors[r] * c);
        rows::combine(factor, g, on_y, row, to, size);
        to[0] = factor * g[0] - on_y * row[0];
        return along;
    });
}

}  // namespace

#define EXPORT(T)                                                                                                      \
    extern "C" void normalise_##T(const T *z, int64_t by_row, int64_t heads, T *y, double *numbers, int64_t first,     \
                                  int64_t last, int64_t n, int64_t size, double scale, double lowest, double radius,   \
                                  int threads) {                                                                       \
        normalise(z, by_row, heads, y, numbers, first, last, n, size, {scale, lowest, radius}, threads);               \
    }                                                                                                                  \
    extern "C" void normalise_grad_##T(const T *grad, const T *y, const double *numbers, int64_t first, int64_t last,  \
                                       T *out, double *sums, T *columns, int64_t n, int64_t size, double scale,        \
                                       double lowest, double radius, int threads) {                                    \
        normalise_grads<T>({grad, y, numbers, n, size, {scale, lowest, radius}}, first, last, out, sums, columns,      \
                           rows::worth(n * size, threads));                                                            \
    }                                                                                                                  \
    extern "C" void lift_##T(const T *s, T *y, int64_t n, int64_t b_size, int64_t heads, int64_t coordinates,          \
                             int64_t by_a, int64_t by_b, int64_t by_head, double c, int threads) {                     \
        lift(s, y, n, {b_size, heads, coordinates, by_a, by_b, by_head}, 1 / c,                                        \
             rows::worth(n * heads * coordinates, threads));                                                           \
    }                                                                                                                  \
    extern "C" void lift_grad_##T(const T *grad, const T *y, T *out, double *sum, int64_t n, int64_t size,             \
                                  int threads) {                                                                       \
        *sum = lift_grad(grad, y, out, n, size, rows::worth(n * size, threads));                                       \
    }                                                                                                                  \
    extern "C" void mean_##T(const T *means, T *y, double *factors, int64_t n, int64_t size, double c, int threads) {  \
        mean(means, y, factors, n, size, c, rows::worth(n * size, threads));                                           \
    }                                                                                                                  \
    extern "C" void mean_grad_##T(const T *grad, const T *y, const double *factors, T *out, double *sum, int64_t n,    \
                                  int64_t size, double c, int threads) {                                               \
        *sum = mean_grad(grad, y, factors, out, n, size, c, rows::worth(n * size, threads));                           \
    }

EXPORT(float)
EXPORT(double)

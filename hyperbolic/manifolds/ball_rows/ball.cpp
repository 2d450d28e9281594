// Möbius sums and squared distances of float32 rows of the ball, with their gradients: see __init__.py.
//
// gap = 1 - c|x|^2 in float64, floored; one pass over the coordinates forwards and one, after the sums, backwards.
#include <cmath>

#include "rows.h"

namespace {

struct Gap {
    double value;
    bool floored;
};
inline Gap gap_of(double square, double c, double floor) {
    const double gap = 1 - c * square;
    return {std::max(gap, floor), gap < floor};
}

// x (+) y = a s + b x with s = x + y, q = c|s|^2, D = q + g_x g_y, a = k g_x, b = k q, k = inside(g_x g_y / D) / D.
struct Sum {
    Gap x, y;
    double q, denominator, gap, inside, k;
    bool outside;
};
inline Sum sum_of(double xx, double yy, double ss, double c, double floor, double bound) {
    Sum s;
    s.x = gap_of(xx, c, floor);
    s.y = gap_of(yy, c, floor);
    s.q = c * ss;
    s.denominator = s.q + s.x.value * s.y.value;
    s.gap = s.x.value * s.y.value / s.denominator;
    s.outside = s.gap < 1 - bound * bound;
    s.inside = s.outside ? bound / std::sqrt(1 - s.gap) : 1;
    s.k = s.inside / s.denominator;
    return s;
}

// |x|^2, |y|^2 and |x + y|^2, or, with a sign of -1, |x - y|^2.
struct Squares {
    double xx = 0, yy = 0, ss = 0;
};
template <int sign> inline Squares squares_of(const float *x, const float *y, int64_t size) {
    double xx = 0, yy = 0, ss = 0;
#pragma omp simd reduction(+ : xx, yy, ss)
    for (int64_t j = 0; j < size; j++) {
        const double a = x[j], b = y[j], s = a + sign * b;
        xx += a * a;
        yy += b * b;
        ss += s * s;
    }
    return {xx, yy, ss};
}

}  // namespace

extern "C" void mobius_add(const float *x, const float *y, float *out, int64_t n, int64_t size, double c, double floor,
                           double bound, int threads) {
    rows::each(n, rows::worth(n * size, threads), [=](int64_t r) {
        const float *a = x + r * size, *b = y + r * size;
        const Squares square = squares_of<1>(a, b, size);
        const Sum s = sum_of(square.xx, square.yy, square.ss, c, floor, bound);
        const float sum_share = float(s.k * s.x.value), x_share = float(s.k * s.q);
        float *to = out + r * size;
#pragma omp simd
        for (int64_t j = 0; j < size; j++) to[j] = sum_share * (a[j] + b[j]) + x_share * a[j];
    });
}

// grad_c: one number for each row.
extern "C" void mobius_add_grad(const float *x, const float *y, const float *grad, float *grad_x, float *grad_y,
                                double *grad_c, int64_t n, int64_t size, double c, double floor, double bound,
                                int threads) {
    rows::each(n, rows::worth(n * size, threads), [=](int64_t r) {
        const float *a = x + r * size, *b = y + r * size, *g = grad + r * size;
        const Squares square = squares_of<1>(a, b, size);
        const Sum s = sum_of(square.xx, square.yy, square.ss, c, floor, bound);
        const double along_x = rows::dot(g, a, size), g_a = along_x + rows::dot(g, b, size);
        const double g_k = g_a * s.x.value + along_x * s.q, g_inside = g_k / s.denominator;
        const double g_gap = s.outside ? g_inside * 0.5 * s.inside / (1 - s.gap) : 0;
        const double g_d = -(g_k * s.k + g_gap * s.gap) / s.denominator;
        const double g_product = g_gap / s.denominator + g_d;  // of g_x g_y
        const double g_gap_x = s.x.floored ? 0 : g_a * s.k + g_product * s.y.value;
        const double g_gap_y = s.y.floored ? 0 : g_product * s.x.value;
        const double g_q = along_x * s.k + g_d;
        const double direct = s.k * s.x.value, g_sum = 2 * c * g_q, b_share = -2 * c * g_gap_y;
        const double a_share = -2 * c * g_gap_x, more = s.k * s.q;
        float *to_x = grad_x + r * size, *to_y = grad_y + r * size;
#pragma omp simd
        for (int64_t j = 0; j < size; j++) {
            const double shared = direct * g[j] + g_sum * (double(a[j]) + b[j]);
            to_x[j] = float(shared + more * g[j] + a_share * a[j]);
            to_y[j] = float(shared + b_share * b[j]);
        }
        if (grad_c) grad_c[r] = g_q * square.ss - g_gap_x * square.xx - g_gap_y * square.yy;
    });
}

// t = |x - y|^2 / (g_x g_y).
extern "C" void distance_square(const float *x, const float *y, double *out, int64_t n, int64_t size, double c,
                                double floor, int threads) {
    rows::each(n, rows::worth(n * size, threads), [=](int64_t r) {
        const Squares square = squares_of<-1>(x + r * size, y + r * size, size);
        out[r] = square.ss / (gap_of(square.xx, c, floor).value * gap_of(square.yy, c, floor).value);
    });
}

extern "C" void distance_square_grad(const float *x, const float *y, const double *grad, float *grad_x, float *grad_y,
                                     double *grad_c, int64_t n, int64_t size, double c, double floor, int threads) {
    rows::each(n, rows::worth(n * size, threads), [=](int64_t r) {
        const float *a = x + r * size, *b = y + r * size;
        const Squares square = squares_of<-1>(a, b, size);
        const Gap gx = gap_of(square.xx, c, floor), gy = gap_of(square.yy, c, floor);
        const double across = grad[r] / (gx.value * gy.value), g_e = 2 * across, per_gap = across * square.ss;
        const double by_x = gx.floored ? 0 : per_gap / gx.value, by_y = gy.floored ? 0 : per_gap / gy.value;
        const double on_x = 2 * c * by_x, on_y = 2 * c * by_y;
        float *to_x = grad_x + r * size, *to_y = grad_y + r * size;
#pragma omp simd
        for (int64_t j = 0; j < size; j++) {
            const double e = g_e * (double(a[j]) - b[j]);
            to_x[j] = float(e + on_x * a[j]);
            to_y[j] = float(on_y * b[j] - e);
        }
        if (grad_c) grad_c[r] = by_x * square.xx + by_y * square.yy;
    });
}

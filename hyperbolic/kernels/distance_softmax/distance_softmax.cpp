// Weights of a softmax over distances and their slopes: see __init__.py and passes.py.
#include <cmath>

#include "elementary.h"
#include "rows.h"

namespace {

constexpr double excluded = 1e150;  // h of pairs that do not count: their weights are far below rounding

// w = (1 + 2h + 2 root)^(-power/2) with root = sqrt(h (1 + h)); h becomes w power / (2 root). Returns the sum of w.
template <bool square> double weights(double *h, int64_t n, double least, double power) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        const double at = h[j] < least ? least : h[j], root = std::sqrt(at + at * at), e = 1 + 2 * at + 2 * root;
        const double w = square ? 1 / (e * root) : elementary::exp(-0.5 * power * elementary::log(e)) / root;
        h[j] = w * (0.5 * power);
        sum += w * root;
    }
    return sum;
}

// The sum of w arsinh(sqrt(h)) = w log(1 + 2h + 2 root) / 2.
double lengths(const double *h, int64_t n, double least, double power) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        const double at = h[j] < least ? least : h[j], root = std::sqrt(at + at * at);
        const double length = 0.5 * elementary::log(1 + 2 * at + 2 * root);
        sum += elementary::exp(-power * length) * length;
    }
    return sum;
}

}  // namespace

// h (n, columns), pairs of a block of rows, becomes the derivative of their loss log((near + sum w) / near); `all` is
// near + sum w; far, where it is not null, the sums of w arsinh(sqrt(h)). Of row r the columns out[starts[r]] .. out[starts[r + 1] - 1] do not count.
extern "C" void distance_softmax(double *h, const double *near, double *all, double *far,
                                 const int64_t *starts, const int64_t *out, int64_t n, int64_t columns, double least,
                                 double power, int threads) {
    rows::each(n, rows::worth(n * columns, threads), [=](int64_t r) {
        double *row = h + r * columns;
        for (int64_t k = starts[r]; k < starts[r + 1]; k++) row[out[k]] = excluded;
        if (far) far[r] = lengths(row, columns, least, power);
        const double sum = power == 2 ? weights<true>(row, columns, least, power)
                                      : weights<false>(row, columns, least, power);
        all[r] = near[r] + sum;
        const double share = -1 / all[r];
#pragma omp simd
        for (int64_t j = 0; j < columns; j++) row[j] *= share;
    });
}

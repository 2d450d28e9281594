// Points of the hyperboloid, time coordinate first, in single passes over rows: see hyperbolic/kernels/lorentz.py.
//
// A row goes through its pass as a whole, with its time coordinate set apart before and put in after.
#include <cmath>
#include <vector>

#include "elementary.h"
#include "row_sums.h"

using rows::Block;

namespace {

// t = scale gate + lowest + radius and r^2 = t^2 - radius^2, radius = 1/sqrt(c).
struct Times {
    double scale, lowest, radius;
    inline double square(double gate) const {
        const double above = gate * scale + lowest;
        return above * (above + 2 * radius);
    }
    inline double time(double gate) const { return gate * scale + lowest + radius; }
};

constexpr double short_square = 0x1p-40;  // |u|^2 of the space part counts as that much more

// z = (z_0, u) becomes y = (sqrt(radius^2 + r^2 - k^2 e^2), k u) with k = r / sqrt(|u|^2 + e^2), e^2 = short_square;
// kept: sigmoid(z_0) of all rows, then k of all rows.
template <class T> void normalise(T *z, double *kept, int64_t n, int64_t size, const Times &times, int threads) {
    double *gates = kept, *factors = kept + n;
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1)
    for (int64_t b = 0; b < rows::blocks(n); b++) {
        const Block block(b, n);
        double gate[rows::of_block], square[rows::of_block], factor[rows::of_block], time[rows::of_block];
        for (int i = 0; i < block.count; i++) {
            T *row = z + (block.first + i) * size;
            gate[i] = row[0];
            row[0] = 0;
            square[i] = rows::dot(row, row, size);
        }
#pragma omp simd
        for (int i = 0; i < block.count; i++) {
            gate[i] = elementary::sigmoid(gate[i]);
            const double inverse = 1 / (square[i] + short_square), wanted = times.square(gate[i]);
            factor[i] = std::sqrt(wanted * inverse);
            time[i] = std::sqrt(wanted - wanted * (short_square * inverse) + times.radius * times.radius);
        }
        for (int i = 0; i < block.count; i++) {
            T *row = z + (block.first + i) * size;
            const T k = T(factor[i]);
#pragma omp simd
            for (int64_t j = 0; j < size; j++) row[j] *= k;
            row[0] = T(time[i]);
            gates[block.first + i] = gate[i];
            factors[block.first + i] = factor[i];
        }
    }
}

// out: the gradient of z. sums: those over the rows of the gradient of t times the gate, and of <grad, y>.
//
// With a = (<grad_s, y_s> - grad_0 k^2 e^2 / y_0) / r^2: the gradient of t is (a + grad_0 / y_0) t, and that of u is
// k (grad_s - a y_s).
template <class T>
void normalise_grad(const T *grad, const T *y, const double *kept, T *out, double *sums, int64_t n, int64_t size,
                    const Times &times, int threads) {
    const double *gates = kept, *factors = kept + n;
    std::vector<double> of_scale(n), of_all(n);
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1)
    for (int64_t b = 0; b < rows::blocks(n); b++) {
        const Block block(b, n);
        double all[rows::of_block], first[rows::of_block], slope[rows::of_block], along[rows::of_block];
        for (int i = 0; i < block.count; i++) {
            const int64_t r = block.first + i;
            const T *g = grad + r * size, *row = y + r * size;
            all[i] = rows::dot(g, row, size);
            first[i] = double(g[0]) * row[0];
            slope[i] = double(g[0]) / row[0];
        }
#pragma omp simd
        for (int i = 0; i < block.count; i++) {
            const double gate = gates[block.first + i], k = factors[block.first + i], wanted = times.square(gate);
            along[i] = (all[i] - first[i] - slope[i] * (k * k * short_square)) / wanted;
            const double of_gate = (along[i] + slope[i]) * times.time(gate) * gate;
            of_scale[block.first + i] = of_gate;
            of_all[block.first + i] = all[i];
            first[i] = of_gate * (1 - gate) * times.scale;
        }
        for (int i = 0; i < block.count; i++) {
            const int64_t r = block.first + i;
            const T *g = grad + r * size, *row = y + r * size;
            T *to = out + r * size;
            const T k = T(factors[r]), ka = T(-factors[r] * along[i]);
#pragma omp simd
            for (int64_t j = 0; j < size; j++) to[j] = k * g[j] + ka * row[j];
            to[0] = T(first[i]);
        }
    }
    sums[0] = rows::total(of_scale.data(), n);
    sums[1] = rows::total(of_all.data(), n);
}

}  // namespace

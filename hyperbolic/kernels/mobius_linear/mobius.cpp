// Möbius linear layers and sums of them, in float32 with row numbers in float64: see passes.py.
#include <memory>
#include <vector>

#include "mobius_rows.h"

using mobius::Chain;
using mobius::ChainGrad;
using rows::Numbers;

namespace {

// What is summed: n products W_i x_i of the rows (N, size), then points, the last of them times factors (N, n_factors).
struct Sum {
    const float *const *xs;  // (N, dims[i])
    const int64_t *dims;
    const float *const *products;
    int n;
    const float *points;
    int n_points;
    const float *factors;
    int n_factors;
    int64_t size;
    double c, bound;

    int vectors() const { return n + n_points; }
    bool scaled(int j) const { return j >= n_points - n_factors; }
    const float *product(int i, int64_t row) const { return products[i] + row * size; }
    const float *point(int j) const { return points + j * size; }
    const float *vector(int j, int64_t row) const { return j < n ? product(j, row) : point(j - n); }
};

// Numbers of every row that come from whole vectors: |x_i|, |W_i x_i| and the inner products of the products with each
// other and with the points, times c or its root; (numbers, N).
struct RowNumbers {
    double *first;
    int64_t n;
    double *next() {
        first += n;
        return first - n;
    }
};

// Those of points, the same in all rows.
struct Points {
    std::vector<double> wide, gram;  // c b_j, c<b_i, b_j>

    Points(const Sum &sum) : wide(sum.n_points * sum.size), gram(sum.n_points * sum.n_points) {
        for (size_t k = 0; k < wide.size(); k++) wide[k] = sum.c * sum.points[k];
        for (int i = 0; i < sum.n_points; i++) {
            for (int j = 0; j < sum.n_points; j++) {
                gram[i * sum.n_points + j] = rows::dot(sum.point(i), wide.data() + j * sum.size, sum.size);
            }
        }
    }
};

double length(double square) { return mobius::at_least(std::sqrt(square), mobius::tiny); }

void measure(const Sum &sum, const Points &points, RowNumbers numbers, int64_t start, int count) {
    for (int i = 0; i < sum.n; i++) {
        double *x_norm = numbers.next() + start, *product_norm = numbers.next() + start;
        for (int k = 0; k < count; k++) {
            const float *x = sum.xs[i] + (start + k) * sum.dims[i], *p = sum.product(i, start + k);
            x_norm[k] = rows::dot(x, x, sum.dims[i]);
            product_norm[k] = rows::dot(p, p, sum.size);
        }
        for (int k = 0; k < count; k++) {
            x_norm[k] = length(sum.c * x_norm[k]);
            product_norm[k] = length(sum.c * product_norm[k]);
        }
        for (int j = i + 1; j < sum.n; j++) {
            double *to = numbers.next() + start;
            for (int k = 0; k < count; k++) {
                to[k] = sum.c * rows::dot(sum.product(i, start + k), sum.product(j, start + k), sum.size);
            }
        }
        for (int j = 0; j < sum.n_points; j++) {
            double *to = numbers.next() + start;
            const double *b = points.wide.data() + j * sum.size;
            for (int k = 0; k < count; k++) to[k] = rows::dot(sum.product(i, start + k), b, sum.size);
        }
    }
}

// The chain of rows whose numbers were measured.
void gather(const Sum &sum, const Points &points, RowNumbers numbers, int64_t start, int count, Chain &chain) {
    chain.size = sum.vectors();
    chain.count = count;
    for (int i = 0; i < sum.n; i++) {
        mobius::Term &term = chain.terms[i];
        term.fixed = false;
        std::copy_n(numbers.next() + start, count, term.r);
        std::copy_n(numbers.next() + start, count, term.w);
        std::fill_n(term.factor, count, 1.0);
        for (int j = i + 1; j < chain.size; j++) std::copy_n(numbers.next() + start, count, chain.gram[i][j]);
    }
    for (int j = 0; j < sum.n_points; j++) {
        mobius::Term &term = chain.terms[sum.n + j];
        term.fixed = !sum.scaled(j);
        std::fill_n(term.r, count, length(points.gram[j * (sum.n_points + 1)]));
        std::copy_n(term.r, count, term.w);
        for (int k = 0; k < count && !term.fixed; k++) {
            term.factor[k] = sum.factors[(start + k) * sum.n_factors + j - (sum.n_points - sum.n_factors)];
        }
        for (int i = 0; i < j; i++) {
            std::fill_n(chain.gram[sum.n + i][sum.n + j], count, points.gram[i * sum.n_points + j]);
        }
    }
    chain.find(sum.bound);
}

// reach: of each row, how long its terms are together, in units of 1/sqrt(c), which says what rounding is worth in it.
void forward(const Sum &sum, double *numbers, double *reach, float *out, int64_t n, int threads) {
    const Points points(sum);
    rows::each_part(n, threads, [&](int, int64_t first, int64_t last) {
        std::vector<Chain> own(1);
        Chain &chain = own[0];
        for (int64_t start = first; start < last; start += rows::of_block) {
            const int count = rows::in_block(start, last);
            measure(sum, points, {numbers, n}, start, count);
            gather(sum, points, {numbers, n}, start, count, chain);
            for (int k = 0; k < count; k++) {
                float weights[mobius::most];
                const float *vectors[mobius::most];
                reach[start + k] = 0;
                for (int j = 0; j < chain.size; j++) {
                    weights[j] = float(chain.shrink[k] * chain.coefficients[j][k]);
                    vectors[j] = sum.vector(j, start + k);
                    reach[start + k] += std::fabs(chain.coefficients[j][k]) * chain.terms[j].w[k];
                }
                rows::combine(weights, vectors, chain.size, out + (start + k) * sum.size, sum.size);
            }
        }
    });
}

// Where the gradients go; null where one is not needed.
struct Results {
    float *grad_products;    // of the rows first..last, (n, last - first, size)
    float *const *grad_xs;   // what comes from their norms, (N, dims[i])
    float *grad_factors;     // (N, n_factors)
    float *grad_points;      // (n_points, size), added to
    double *grad_curvature;  // of log(c), added to
    int64_t first, last;
};

// The sums over rows of one thread: gradients of the points, of their inner products with each other, and of log(c).
struct Totals {
    std::vector<double> points, gram;
    double curvature = 0;
    Totals(const Sum &sum) : points(sum.n_points * sum.size), gram(sum.n_points * sum.n_points) {}
};

struct Backward {
    const Sum &sum;
    const float *grad;
    const Results &results;
    Chain chain;
    ChainGrad g;
    Numbers grads[mobius::most];
    float weights[rows::of_block];

    void block(const Points &points, RowNumbers numbers, int64_t start, int count, Totals &totals) {
        gather(sum, points, numbers, start, count, chain);
        for (int j = 0; j < chain.size; j++) {
            for (int k = 0; k < count; k++) {
                grads[j][k] = rows::dot(grad + (start + k) * sum.size, sum.vector(j, start + k), sum.size);
            }
        }
        g.find(chain, grads);
        for (int i = 0; i < sum.n; i++) product_grad(i, start);
        if (results.grad_points) points_grad(start, totals);
        if (results.grad_curvature) totals.curvature += rows::total(g.grad_curvature, count);
        const int before = sum.n_points - sum.n_factors;
        for (int j = 0; j < sum.n_factors && results.grad_factors; j++) {
            const double *grad_factor = g.g_factor[sum.n + before + j];
            float *to = results.grad_factors + start * sum.n_factors + j;
            for (int k = 0; k < count; k++) to[k * sum.n_factors] = float(grad_factor[k]);
        }
    }

    // k grad + k' p_i + sum K_j v_j, and the part of x_i's gradient that comes from its norm.
    void product_grad(int i, int64_t start) {
        float *block = results.grad_products + (i * (results.last - results.first) + start - results.first) * sum.size;
        for (int k = 0; k < chain.count; k++) {
            float factors[mobius::most + 1];
            const float *vectors[mobius::most + 1];
            for (int j = 0; j < chain.size; j++) {
                const double grad_pair = j == i ? 2 * g.g_w[i][k] : g.g_gram[std::min(i, j)][std::max(i, j)][k];
                factors[j] = float(sum.c * grad_pair);
                vectors[j] = sum.vector(j, start + k);
            }
            factors[chain.size] = float(chain.shrink[k] * chain.coefficients[i][k]);
            vectors[chain.size] = grad + (start + k) * sum.size;
            rows::combine(factors, vectors, chain.size + 1, block + k * sum.size, sum.size);
            if (!results.grad_xs[i]) continue;
            const int64_t size = sum.dims[i], at = (start + k) * size;
            rows::scale(float(2 * sum.c * g.g_r[i][k]), sum.xs[i] + at, results.grad_xs[i] + at, size);
        }
    }

    void points_grad(int64_t start, Totals &totals) {
        const int n = sum.n, count = chain.count;
        for (int j = 0; j < sum.n_points; j++) {
            double *to = totals.points.data() + j * sum.size;
            for (int k = 0; k < count; k++) weights[k] = float(chain.shrink[k] * chain.coefficients[n + j][k]);
            rows::add_columns(weights, grad + start * sum.size, count, sum.size, to);
            for (int i = 0; i < n; i++) {
                for (int k = 0; k < count; k++) weights[k] = float(sum.c * g.g_gram[i][n + j][k]);
                rows::add_columns(weights, sum.product(i, start), count, sum.size, to);
            }
            double *gram = totals.gram.data() + j * sum.n_points;
            gram[j] += 2 * (rows::total(g.g_w[n + j], count) + rows::total(g.g_r[n + j], count));
            for (int i = 0; i < j; i++) gram[i] += rows::total(g.g_gram[n + i][n + j], count);
        }
    }
};

void add(const Sum &sum, const Points &points, Totals &totals, const Results &results) {
    if (results.grad_curvature) *results.grad_curvature += totals.curvature;
    for (int j = 0; j < sum.n_points && results.grad_points; j++) {
        double *own = totals.points.data() + j * sum.size;
        for (int i = 0; i < sum.n_points; i++) {
            const double weight = totals.gram[std::max(i, j) * sum.n_points + std::min(i, j)];
            rows::add(weight, points.wide.data() + i * sum.size, own, sum.size);
        }
        for (int64_t k = 0; k < sum.size; k++) results.grad_points[j * sum.size + k] += float(own[k]);
    }
}

void backward(const Sum &sum, double *numbers, const float *grad, const Results &results, int64_t n, int threads) {
    const Points points(sum);
    std::vector<Totals> totals(threads, Totals(sum));
    rows::each_part(results.last - results.first, threads, [&](int part, int64_t first, int64_t last) {
        std::unique_ptr<Backward> own(new Backward{sum, grad, results, {}, {}, {}, {}});
        for (int64_t start = first; start < last; start += rows::of_block) {
            own->block(points, {numbers, n}, results.first + start, rows::in_block(start, last), totals[part]);
        }
    });
    for (Totals &part : totals) add(sum, points, part, results);
}

}  // namespace

extern "C" void mobius_forward(const float *const *xs, const int64_t *dims, const float *const *products, int n,
                               const float *points, int n_points, const float *factors, int n_factors, int64_t n_rows,
                               int64_t size, double c, double bound, double *numbers, double *reach, float *out,
                               int threads) {
    const Sum sum{xs, dims, products, n, points, n_points, factors, n_factors, size, c, bound};
    forward(sum, numbers, reach, out, n_rows, rows::worth(n_rows * size, threads));
}

extern "C" void mobius_backward(const float *const *xs, const int64_t *dims, const float *const *products, int n,
                                const float *points, int n_points, const float *factors, int n_factors, int64_t n_rows,
                                int64_t size, double c, double bound, double *numbers, const float *grad,
                                int64_t first, int64_t last, float *grad_products, float *const *grad_xs,
                                float *grad_factors, float *grad_points, double *grad_curvature, int threads) {
    const Sum sum{xs, dims, products, n, points, n_points, factors, n_factors, size, c, bound};
    const Results results{grad_products, grad_xs, grad_factors, grad_points, grad_curvature, first, last};
    backward(sum, numbers, grad, results, n_rows, rows::worth((last - first) * size, threads));
}

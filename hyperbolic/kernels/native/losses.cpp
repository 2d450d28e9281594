// Losses of class logits on a tile of products z (rows x columns): see hyperbolic/kernels/losses.py.
//
// The logit is l = s v with v = arsinh(z), or z itself without scales s. A tile becomes the derivative of the loss
// with respect to z; those of s and of a bias, sums over rows, are added to arrays of the columns.
#include <algorithm>
#include <vector>

#include "arsinh.h"

namespace {

constexpr int width = 64;  // columns that are worked on together; their sums stay in the first cache
constexpr int depth = 16;  // rows whose sums are kept in T before they go to double

template <class T> struct Tile {
    T *z;
    int64_t rows, columns;
    const T *scale;  // (columns), or null
    T *grad_scale, *grad_bias;  // (columns), or null
};

// What binary cross entropy asks of an entry.
template <class T> struct Targets {
    const T *dense;  // rows of y, `stride` apart; or null:
    int64_t stride;
    const int64_t *lists;  // (rows, length), classes of each row, of which the tile has those from `first` on
    int64_t length, first;
    const T *weights;  // (rows, n_groups), or null; of column j that of groups[j], or of group 0
    int64_t n_groups;
    const int64_t *groups;
    T factor;  // of all gradients
};

// Sums over rows for columns side by side.
template <class T> struct Sums {
    T loss[width], product[width], of_scale[width], of_bias[width];
    void clear() {
        for (T *sum : {loss, product, of_scale, of_bias}) std::fill_n(sum, width, T(0));
    }
};

// z^T of one row becomes its derivative; sums of (1 - y) max(l, 0) + y max(-l, 0), and, in product, of log(1 + e) with
// e = exp(-|l|) as the logarithm of 1 + product: (1 + p)(1 + e) = 1 + (p + e + p e). The derivative by l is
// ((1 - y) - y e) / (1 + e) for l >= 0 and ((1 - y) e - y) / (1 + e) below.
template <class T, bool scaled, bool weighted>
void bce_row(T *z, const T *scale, const T *y, const T *weights, T factor, int n, Sums<T> &sums) {
#pragma omp simd
    for (int j = 0; j < n; j++) {
        T root = T(1), value = z[j], logit = value;
        if constexpr (scaled) {
            value = elementary::arsinh(value, root);
            logit = scale[j] * value;
        }
        const T e = elementary::exp(-std::fabs(logit)), sum = T(1) + e;
        const bool up = logit >= T(0);
        T slope = up ? (T(1) - y[j]) - y[j] * e : (T(1) - y[j]) * e - y[j];
        const T hinge = (up ? T(1) - y[j] : -y[j]) * logit;
        if constexpr (weighted) {
            slope *= weights[j];
            sums.loss[j] += weights[j] * (hinge + elementary::log1p(e));
        } else {
            sums.loss[j] += hinge;
            sums.product[j] += e + sums.product[j] * e;
        }
        slope *= factor;
        if constexpr (scaled) {
            slope /= sum * root;
            z[j] = slope * scale[j];
            slope *= root;
            sums.of_scale[j] += slope * value;
        } else {
            slope /= sum;
            z[j] = slope;
        }
        sums.of_bias[j] += slope;
    }
}

// Columns of a tile from `start` on; returns their loss.
template <class T, bool scaled, bool weighted>
double bce_columns(const Tile<T> &tile, const Targets<T> &targets, int64_t start) {
    const int n = int(std::min<int64_t>(width, tile.columns - start));
    const int64_t first = targets.first + start;
    const T *scale = scaled ? tile.scale + start : nullptr;
    T listed[width] = {}, weights[width];
    double loss = 0, of_scale[width] = {}, of_bias[width] = {};
    Sums<T> sums;
    for (int64_t low = 0; low < tile.rows; low += depth) {
        sums.clear();
        for (int64_t r = low; r < std::min(low + depth, tile.rows); r++) {
            const int64_t *list = targets.lists + r * targets.length;
            const T *y = targets.dense ? targets.dense + r * targets.stride + start : listed;
            const auto mark = [&](T value) {
                for (int64_t i = 0; i < (targets.dense ? 0 : targets.length); i++)
                    if (list[i] >= first && list[i] < first + n) listed[list[i] - first] = value;
            };
            mark(T(1));
            if constexpr (weighted) {
                const T *row = targets.weights + r * targets.n_groups;
                for (int j = 0; j < n; j++) weights[j] = row[targets.groups ? targets.groups[start + j] : 0];
            }
            bce_row<T, scaled, weighted>(tile.z + r * tile.columns + start, scale, y, weights, targets.factor, n, sums);
            mark(T(0));
        }
        for (int j = 0; j < n; j++) {
            loss += double(sums.loss[j]) + (weighted ? 0.0 : double(elementary::log1p(sums.product[j])));
            of_scale[j] += sums.of_scale[j];
            of_bias[j] += sums.of_bias[j];
        }
    }
    for (int j = 0; j < n && tile.grad_scale; j++) tile.grad_scale[start + j] += T(of_scale[j]);
    for (int j = 0; j < n && tile.grad_bias; j++) tile.grad_bias[start + j] += T(of_bias[j]);
    return loss;
}

template <class T> double bce(const Tile<T> &tile, const Targets<T> &targets, int threads) {
    const auto columns = tile.scale ? (targets.weights ? &bce_columns<T, true, true> : &bce_columns<T, true, false>)
                                    : (targets.weights ? &bce_columns<T, false, true> : &bce_columns<T, false, false>);
    const int64_t parts = (tile.columns + width - 1) / width;
    std::vector<double> loss(parts);
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1)
    for (int64_t part = 0; part < parts; part++) loss[part] = columns(tile, targets, part * width);
    double total = 0;
    for (double part : loss) total += part;
    return total;
}

}  // namespace

#define EXPORT(T)                                                                                                      \
    extern "C" void bce_##T(T *z, int64_t rows, int64_t columns, const T *scale, T *grad_scale, T *grad_bias,          \
                            const T *dense, int64_t stride, const int64_t *lists, int64_t length, int64_t first,       \
                            const T *weights, int64_t n_groups, const int64_t *groups, double factor, double *loss,    \
                            int threads) {                                                                             \
        *loss += bce<T>({z, rows, columns, scale, grad_scale, grad_bias},                                              \
                        {dense, stride, lists, length, first, weights, n_groups, groups, T(factor)}, threads);         \
    }

EXPORT(float)
EXPORT(double)

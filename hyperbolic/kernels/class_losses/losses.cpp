// Losses of class logits on a tile of products z (rows x columns): see passes.py.
//
// The logit is l = s v with v = arsinh(z), or z itself without scales s; biases are added to z first. A tile becomes the
// derivative of the loss with respect to z; those of s and of the biases, sums over rows, are added to arrays.
#include <algorithm>
#include <vector>

#include "denormals.h"
#include "elementary.h"
#include "rows.h"

namespace {

constexpr int width = 64;  // most columns that are worked on together; their sums stay in the first cache
constexpr int block = 16;  // columns of a vector or two
constexpr int ahead = 8;   // rows of dense targets, which lie far apart, that are fetched before they are needed
constexpr int depth = 16;  // rows whose sums are kept in T before they go to double

template <class T> struct Tile {
    T *z;
    int64_t rows, columns, by_row;  // a row begins every by_row numbers
    const T *scale, *bias;  // (columns), or null, as the next two
    T *grad_scale, *grad_bias;
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

    // Writes y of n columns from `start` on of a row; returns whether zeros have to be put back after.
    bool mark(T *y, int64_t row, int64_t start, int n) const {
        if (dense) {
            std::copy_n(dense + row * stride + start, n, y);
            return false;
        }
        const int64_t *list = lists + row * length;
        bool any = false;
        for (int64_t i = 0; i < length; i++) any |= uint64_t(list[i] - first - start) < uint64_t(n);
        for (int64_t i = 0; i < length && any; i++) {
            const int64_t place = list[i] - first - start;
            if (place >= 0 && place < n) y[place] = T(1);
        }
        return any;
    }
    // Writes their weights; returns whether there is one that is not 0.
    bool weigh(T *out, int64_t row, int64_t start, int n) const {
        const T *group_weights = weights + row * n_groups;
        bool any = false;
        for (int j = 0; j < n; j++) {
            out[j] = group_weights[groups ? groups[start + j] : 0];
            any |= out[j] != T(0);
        }
        return any;
    }
};

// Infinite numbers as the largest ones, which 0 can be multiplied with.
template <class T> inline T finite(T x) {
    constexpr T most = std::numeric_limits<T>::max();
    return x > most ? most : x < -most ? -most : x;
}

// A row of `width` columns, filled up with zeros, and sums over rows.
template <class T> struct Columns {
    T z[width] = {}, scale[width] = {}, bias[width] = {}, y[width] = {}, weights[width] = {};
    T value[width], root[width], logit[width], e[width];
    T loss[width], product[width], scale_sum[width], bias_sum[width];
    void clear() {
        for (T *sum : {loss, product, scale_sum, bias_sum}) std::fill_n(sum, width, T(0));
    }
};

// z of a row becomes its derivative; adds (1 - y) max(l, 0) + y max(-l, 0) to the loss, and log(1 + e), e = exp(-|l|),
// as a factor to 1 + product: (1 + p)(1 + e) = 1 + (p + e + p e). The derivative by l is ((1 - y) - y e) / (1 + e) for
// l >= 0 and ((1 - y) e - y) / (1 + e) below. Short loops, of which processors work on many turns at once.
template <class T, bool scaled, bool weighted> void bce_row(Columns<T> &c, T *z, const T *targets, int n, T factor) {
#pragma omp simd
    for (int j = 0; j < n; j++) {
        c.value[j] = z[j] + c.bias[j];
        if constexpr (scaled) c.value[j] = elementary::arsinh(c.value[j], c.root[j]);
        c.logit[j] = finite(scaled ? c.scale[j] * c.value[j] : c.value[j]);
    }
#pragma omp simd
    for (int j = 0; j < n; j++) c.e[j] = elementary::exp(-std::fabs(c.logit[j]));
    if constexpr (weighted) {
#pragma omp simd
        for (int j = 0; j < n; j++) c.loss[j] += c.weights[j] * elementary::log1p(c.e[j]);
    }
#pragma omp simd
    for (int j = 0; j < n; j++) {
        const T e = c.e[j], y = targets[j], rest = T(1) - y, root = scaled ? c.root[j] : T(1);
        const bool up = c.logit[j] >= T(0);
        T hinge = (up ? rest : -y) * c.logit[j], slope = (up ? rest - y * e : rest * e - y) * factor;
        if constexpr (weighted) {
            hinge *= c.weights[j];
            slope *= c.weights[j];
        } else {
            c.product[j] += e + c.product[j] * e;
        }
        c.loss[j] += hinge;
        slope /= (T(1) + e) * root;
        z[j] = scaled ? slope * c.scale[j] : slope;
        slope *= root;
        c.bias_sum[j] += slope;
        if constexpr (scaled) c.scale_sum[j] += slope * c.value[j];
    }
}

// n columns of a tile from `start` on; returns their loss.
template <class T, bool scaled, bool weighted>
double bce_columns(const Tile<T> &tile, const Targets<T> &targets, int64_t start, int n) {
    const int full = (n + block - 1) / block * block;
    Columns<T> c;
    if (scaled) std::copy_n(tile.scale + start, n, c.scale);
    if (tile.bias) std::copy_n(tile.bias + start, n, c.bias);
    double loss = 0, scale_sum[width] = {}, bias_sum[width] = {};
    for (int64_t low = 0; low < tile.rows; low += depth) {
        c.clear();
        for (int64_t r = low; r < std::min(low + depth, tile.rows); r++) {
            T *here = tile.z + r * tile.by_row + start, *z = n == full ? here : c.z;
            if (weighted && !targets.weigh(c.weights, r, start, n)) {
                std::fill_n(here, n, T(0));
                continue;
            }
            const T *dense = targets.dense ? targets.dense + r * targets.stride + start : nullptr;
            const T *y = dense && n == full ? dense : c.y;
            const bool marked = y == c.y && targets.mark(c.y, r, start, n);
            for (int j = 0; dense && r + ahead < tile.rows && j < n; j += block)
                __builtin_prefetch(dense + ahead * targets.stride + j);
            if (z != here) std::copy_n(here, n, z);
            bce_row<T, scaled, weighted>(c, z, y, full, targets.factor);
            if (z != here) std::copy_n(z, n, here);
            if (marked) std::fill_n(c.y, n, T(0));
        }
#pragma omp simd reduction(+ : loss)
        for (int j = 0; j < n; j++) {
            loss += double(c.loss[j]) + (weighted ? 0.0 : double(elementary::log1p(c.product[j])));
            scale_sum[j] += c.scale_sum[j];
            bias_sum[j] += c.bias_sum[j];
        }
    }
    for (int j = 0; j < n && tile.grad_scale; j++) tile.grad_scale[start + j] += T(scale_sum[j]);
    for (int j = 0; j < n && tile.grad_bias; j++) tile.grad_bias[start + j] += T(bias_sum[j]);
    return loss;
}

template <class T> double bce(const Tile<T> &tile, const Targets<T> &targets, int threads) {
    threads = rows::worth(tile.rows * tile.columns, threads);
    const auto columns = tile.scale ? (targets.weights ? &bce_columns<T, true, true> : &bce_columns<T, true, false>)
                                    : (targets.weights ? &bce_columns<T, false, true> : &bce_columns<T, false, false>);
    const int64_t most = (tile.columns + width - 1) / width, parts = (most + threads - 1) / threads * threads;
    const int64_t each = ((tile.columns + parts - 1) / parts + block - 1) / block * block;
    std::vector<double> loss(parts);
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1)
    for (int64_t part = 0; part < parts; part++) {
        const NoDenormals zeros;
        const int64_t start = part * each, n = std::min(each, tile.columns - start);
        if (n > 0) loss[part] = columns(tile, targets, start, int(n));
    }
    double total = 0;
    for (double part : loss) total += part;
    return total;
}

// What a row of a softmax is worked on in: values and exponentials, and sums over rows for the columns.
template <class T> struct Row {
    std::vector<T> value, root, e;
    std::vector<double> scale_sum, bias_sum;
    explicit Row(const Tile<T> &tile)
        : value(tile.scale ? tile.columns : 0), root(tile.scale ? tile.columns : 0), e(tile.columns),
          scale_sum(tile.grad_scale ? tile.columns : 0), bias_sum(tile.grad_bias ? tile.columns : 0) {}
};

template <class T> T largest(const T *values, int64_t n) {
    T top = values[0];
#pragma omp simd reduction(max : top)
    for (int64_t j = 0; j < n; j++) top = values[j] > top ? values[j] : top;
    return top;
}

// Sum of e^(l - top), which are kept in e, in parts that are long enough for vectors and short enough for T.
template <class T> double partition(const T *logit, T top, T *e, int64_t n) {
    double total = 0;
    for (int64_t low = 0; low < n; low += 512) {
        T part = T(0);
#pragma omp simd reduction(+ : part)
        for (int64_t j = low; j < std::min<int64_t>(low + 512, n); j++) part += e[j] = elementary::exp(logit[j] - top);
        total += part;
    }
    return total;
}

// Of softmax cross entropy with the share `smoothing` of the target spread over all classes: the loss of a row, and
// the derivative w (p - smoothing / K - (1 - smoothing) [target]) by its logits.
template <class T> double softmax_row(const Tile<T> &tile, T *z, int64_t target, T weight, T smoothing, Row<T> &row) {
    const int64_t n = tile.columns;
    const T *value = tile.scale ? row.value.data() : z, *root = row.root.data(), *scale = tile.scale;
    T *e = row.e.data();
    if (tile.bias) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) z[j] += tile.bias[j];
    }
    if (scale) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) row.value[j] = elementary::arsinh(z[j], row.root[j]);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) e[j] = scale[j] * value[j];
    }
    const T *logit = scale ? e : z;
    const T top = largest(logit, n), hit = logit[target] - top;
    double mean = 0;
    if (smoothing > T(0)) {
#pragma omp simd reduction(+ : mean)
        for (int64_t j = 0; j < n; j++) mean += double(logit[j] - top) / double(n);
    }
    const double sum = partition(logit, top, e, n);
    const T share = T(weight / sum), spread = weight * smoothing / T(n), once = weight * (T(1) - smoothing);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) e[j] = e[j] * share - spread;
    e[target] -= once;
    if (tile.grad_scale) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) row.scale_sum[j] += double(e[j] * value[j]);
    }
    if (tile.grad_bias) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) row.bias_sum[j] += e[j];
    }
#pragma omp simd
    for (int64_t j = 0; j < n; j++) z[j] = scale ? e[j] * scale[j] / root[j] : e[j];
    return double(weight) * (std::log(sum) - ((1 - double(smoothing)) * double(hit) + double(smoothing) * mean));
}

template <class T>
double cross_entropy(const Tile<T> &tile, const int64_t *target, const T *weights, T smoothing, int threads) {
    threads = rows::worth(tile.rows * tile.columns, threads);
    const int64_t share = (tile.rows + threads - 1) / threads;
    std::vector<Row<T>> parts(threads, Row<T>(tile));
    std::vector<double> loss(threads);
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1)
    for (int part = 0; part < threads; part++) {
        const NoDenormals zeros;
        for (int64_t r = part * share; r < std::min((part + 1) * share, tile.rows); r++) {
            T *z = tile.z + r * tile.by_row;
            if (weights[r] == T(0))
                std::fill_n(z, tile.columns, T(0));
            else
                loss[part] += softmax_row(tile, z, target[r], weights[r], smoothing, parts[part]);
        }
    }
    double total = 0;
    for (int part = 0; part < threads; part++) {
        total += loss[part];
        const Row<T> &sums = parts[part];
        for (int64_t j = 0; tile.grad_scale && j < tile.columns; j++) tile.grad_scale[j] += T(sums.scale_sum[j]);
        for (int64_t j = 0; tile.grad_bias && j < tile.columns; j++) tile.grad_bias[j] += T(sums.bias_sum[j]);
    }
    return total;
}

}  // namespace

#define EXPORT(T)                                                                                                      \
    extern "C" void bce_##T(T *z, int64_t rows, int64_t columns, int64_t by_row, const T *scale, const T *bias,        \
                            T *grad_scale, T *grad_bias, double *loss, const T *dense, int64_t stride,                 \
                            const int64_t *lists, int64_t length, int64_t first, const T *weights, int64_t n_groups,   \
                            const int64_t *groups, double factor, int threads) {                                       \
        *loss += bce<T>({z, rows, columns, by_row, scale, bias, grad_scale, grad_bias},                                \
                        {dense, stride, lists, length, first, weights, n_groups, groups, T(factor)}, threads);         \
    }                                                                                                                  \
    extern "C" void cross_entropy_##T(T *z, int64_t rows, int64_t columns, int64_t by_row, const T *scale,             \
                                      const T *bias, T *grad_scale, T *grad_bias, double *loss, const int64_t *target, \
                                      const T *weights, double smoothing, int threads) {                               \
        *loss += cross_entropy<T>({z, rows, columns, by_row, scale, bias, grad_scale, grad_bias}, target, weights,     \
                                  T(smoothing), threads);                                                              \
    }

EXPORT(float)
EXPORT(double)

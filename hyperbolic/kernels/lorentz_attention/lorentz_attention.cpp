// Attention of many short heads with its gradients: see plain.py.
//
// One head of one sequence is worked on at a time, and of it a panel of queries, one in each lane: scores and weights are
// (keys, lanes), points (size, lanes), so that sums over keys and coordinates run down the lanes.
#include <cmath>
#include <limits>
#include <memory>

#include "elementary.h"
#include "product.h"
#include "rows.h"

namespace {

// Where rows of a head lie: the one of sequence b, head h and position t at b * by_sequence + h * by_head + t * by_row.
struct Rows {
    int64_t by_sequence, by_head, by_row;
};

struct Shape {
    int64_t sequences, heads, queries, keys, size;
    Rows q, k, v, grad;
    Rows mask;
    int64_t by_key;  // of the mask
    int64_t causal;

    int64_t pairs() const { return sequences * heads * queries * keys; }
    int64_t panels(int lanes) const { return (queries + lanes - 1) / lanes; }

    // Rows of results, which lie as (sequences, n, heads, size).
    Rows compact(int64_t n) const { return {n * heads * size, size, heads * size}; }
};

template <class T> struct View {
    T *data;
    int64_t by_row;
    T *row(int64_t i) const { return data + i * by_row; }
    View from(int64_t i) const { return {row(i), by_row}; }
};
template <class T> View<T> head(T *data, const Rows &at, int64_t sequence, int64_t number) {
    return {data + sequence * at.by_sequence + number * at.by_head, at.by_row};
}

template <class T> constexpr int lanes = product::LANES<T>;
constexpr double least_share = 1e-4;  // of the weights of a query, after dropout

// Room for n rows of a panel.
template <class T> struct Panel {
    std::unique_ptr<T[]> numbers;
    explicit Panel(int64_t n) : numbers(new T[n * lanes<T>]) {}
    T *operator[](int64_t row) { return numbers.get() + row * lanes<T>; }
    operator T *() { return numbers.get(); }
};

// Rows x become the first lanes, the others 0.
template <class T> void gather(View<const T> x, int count, int64_t size, Panel<T> &to) {
    for (int l = 0; l < count; l++) {
        const T *row = x.row(l);
        for (int64_t d = 0; d < size; d++) to[d][l] = row[d];
    }
    for (int64_t d = 0; d < size; d++) std::fill(to[d] + count, to[d] + lanes<T>, T(0));
}

template <class T> void scatter(Panel<T> &from, int count, int64_t size, View<T> to) {
    for (int l = 0; l < count; l++) {
        for (int64_t d = 0; d < size; d++) to.row(l)[d] = from[d][l];
    }
}

// factor (-x_0, x_s).
template <class T> void dual(Panel<T> &x, int64_t size, T factor) {
    for (int64_t d = 0; d < size; d++) rows::scale(d ? factor : -factor, x[d], x[d], lanes<T>);
}

// Weights (keys, lanes) with these sums become 0 where they are not kept, in lanes that keep enough; so do the sums.
template <class T> void drop(T *weight, const bool *kept, int count, int64_t keys, T *sum) {
    T rest[lanes<T>] = {};
    bool enough[lanes<T>];
    for (int64_t j = 0; j < keys; j++) {
        for (int l = 0; l < count; l++) rest[l] += kept[l * keys + j] ? weight[j * lanes<T> + l] : T(0);
    }
    for (int l = 0; l < count; l++) {
        enough[l] = rest[l] > T(least_share) * sum[l];
        if (enough[l]) sum[l] = rest[l];
    }
    for (int64_t j = 0; j < keys; j++) {
        for (int l = 0; l < count; l++) {
            if (enough[l] && !kept[l * keys + j]) weight[j * lanes<T> + l] = 0;
        }
    }
}

// Scores (keys, lanes) become weights, 0 where a key does not count for the queries first, first + 1, ... or is not
// kept (queries, keys): those of a query that keeps next to nothing stay as they are.
template <class T>
void softmax(T *score, const bool *mask, const bool *kept, int64_t first, int count, const Shape &of) {
    constexpr T none = -std::numeric_limits<T>::infinity();
    T most[lanes<T>], sum[lanes<T>] = {};
    std::fill(most, most + lanes<T>, none);
    for (int64_t j = 0; j < of.keys; j++) {
        T *s = score + j * lanes<T>;
        if (mask) {
            const bool *counts = mask + first * of.mask.by_row + j * of.by_key;
            for (int l = 0; l < count; l++) s[l] = counts[l * of.mask.by_row] ? s[l] : none;
        }
        if (of.causal && j > first) std::fill(s, s + std::min<int64_t>(j - first, lanes<T>), none);
        for (int l = 0; l < lanes<T>; l++) most[l] = s[l] > most[l] ? s[l] : most[l];
    }
    for (int64_t j = 0; j < of.keys; j++) {
        T *s = score + j * lanes<T>;
        for (int l = 0; l < lanes<T>; l++) {
            const T weight = elementary::exp(s[l] - most[l]);
            s[l] = s[l] == none ? T(0) : weight;
            sum[l] += s[l];
        }
    }
    if (kept) drop(score, kept + first * of.keys, count, of.keys, sum);
    for (int l = 0; l < lanes<T>; l++) sum[l] = 1 / sum[l];
    for (int64_t j = 0; j < of.keys; j++) {
        T *s = score + j * lanes<T>;
        for (int l = 0; l < lanes<T>; l++) s[l] *= sum[l];
    }
}

// Means m become points f m, f = 1 / sqrt(1 + c (m_0 - below) (m_0 + below)), below = sqrt(1/c + |m_s|^2) <= m_0.
template <class T> void normalise(Panel<T> &m, int64_t size, double c, double *factor) {
    double square[lanes<T>] = {};
    for (int64_t d = 1; d < size; d++) {
        for (int l = 0; l < lanes<T>; l++) square[l] += double(m[d][l]) * double(m[d][l]);
    }
    T scale[lanes<T>], time[lanes<T>];
    for (int l = 0; l < lanes<T>; l++) {
        const double below = std::sqrt(square[l] + 1 / c), gap = m[0][l] - below;
        const double squared = 1 + c * (gap > 0 ? gap : 0) * (m[0][l] + below);
        factor[l] = 1 / std::sqrt(squared);
        scale[l] = T(factor[l]);
        time[l] = T(std::sqrt(square[l] / squared + 1 / c));
    }
    for (int64_t d = 1; d < size; d++) {
        for (int l = 0; l < lanes<T>; l++) m[d][l] *= scale[l];
    }
    std::copy_n(time, lanes<T>, m[0]);
}

// What is kept for the gradients lies by head and panel: weights (keys, lanes) and the factors of the points, (lanes).
template <class T>
void forward(const T *q, const T *k, const T *v, const bool *mask, const bool *kept, T *y, T *weights, double *factors, const Shape &of,
             T factor, double c, int threads) {
    const int64_t panels = of.panels(lanes<T>);
    rows::each(of.sequences * of.heads, threads, [=, &of](int64_t number) {
        const int64_t b = number / of.heads, h = number % of.heads;
        const auto keys = head(k, of.k, b, h), values = head(v, of.v, b, h);
        const bool *own = mask ? mask + b * of.mask.by_sequence + h * of.mask.by_head : nullptr;
        Panel<T> query(of.size), mean(of.size);
        for (int64_t p = 0, first = 0; p < panels; p++, first += lanes<T>) {
            const int count = int(std::min<int64_t>(lanes<T>, of.queries - first));
            T *weight = weights + (number * panels + p) * of.keys * lanes<T>;
            gather(head(q, of.q, b, h).from(first), count, of.size, query);
            dual(query, of.size, factor);
            product::multiply<T>(of.keys, of.size, keys.data, keys.by_row, 1, query, weight);
            softmax(weight, own, kept ? kept + number * of.queries * of.keys : nullptr, first, count, of);
            product::multiply<T>(of.size, of.keys, values.data, 1, values.by_row, weight, mean);
            normalise(mean, of.size, c, factors + (number * panels + p) * lanes<T>);
            scatter(mean, count, of.size, head(y, of.compact(of.queries), b, h).from(first));
        }
    });
}

// grad becomes that of the means, f grad + c f <grad, y> (-y_0, y_s). Returns the sum of the <grad, y>.
template <class T> double mean_gradients(Panel<T> &grad, Panel<T> &y, const double *factor, int64_t size, double c) {
    double along[lanes<T>] = {};
    for (int64_t d = 0; d < size; d++) {
        for (int l = 0; l < lanes<T>; l++) along[l] += double(grad[d][l]) * double(y[d][l]);
    }
    T slope[lanes<T>], scale[lanes<T>];
    for (int l = 0; l < lanes<T>; l++) {
        slope[l] = T(along[l] * factor[l] * c);
        scale[l] = T(factor[l]);
    }
    for (int64_t d = 0; d < size; d++) {
        for (int l = 0; l < lanes<T>; l++) {
            grad[d][l] = scale[l] * grad[d][l] + (d ? slope[l] : -slope[l]) * y[d][l];
        }
    }
    return rows::total(along, lanes<T>);
}

// The gradients of the weights become those of the scores, w (g - sum w g).
template <class T> void softmax_gradients(const T *weight, Panel<T> &grad, int64_t keys) {
    T mean[lanes<T>] = {};
    for (int64_t j = 0; j < keys; j++) {
        for (int l = 0; l < lanes<T>; l++) mean[l] += weight[j * lanes<T> + l] * grad[j][l];
    }
    for (int64_t j = 0; j < keys; j++) {
        for (int l = 0; l < lanes<T>; l++) grad[j][l] = weight[j * lanes<T> + l] * (grad[j][l] - mean[l]);
    }
}

// to += a x^T of a (keys, lanes), its first `count` lanes, and x (size, lanes), both panels.
template <class T>
void add_keys(const T *a, Panel<T> &x, int count, int64_t size, int64_t keys, Panel<T> &turned, Panel<T> &to) {
    for (int64_t first = 0; first < size; first += lanes<T>) {
        const int64_t width = std::min<int64_t>(lanes<T>, size - first);
        for (int l = 0; l < count; l++) {
            for (int64_t d = 0; d < width; d++) turned[l][d] = x[first + d][l];
        }
        product::multiply<T, true>(keys, count, a, lanes<T>, 1, turned, to[first / lanes<T> * keys]);
    }
}

template <class T> void scatter_keys(Panel<T> &from, int64_t keys, int64_t size, View<T> to) {
    for (int64_t first = 0; first < size; first += lanes<T>) {
        for (int64_t j = 0; j < keys; j++) {
            const T *row = from[first / lanes<T> * keys + j];
            std::copy_n(row, std::min<int64_t>(lanes<T>, size - first), to.row(j) + first);
        }
    }
}

// sums: of <q, grad of q>, which is the factor times its gradient, and of <grad, y>.
template <class T>
void backward(const T *q, const T *k, const T *v, const T *grad, const T *y, const T *weights, const double *factors,
              T *grad_q, T *grad_k, T *grad_v, double *sums, const Shape &of, T factor, double c, int threads) {
    const int64_t all = of.sequences * of.heads, size = of.size, keys = of.keys, panels = of.panels(lanes<T>);
    const int64_t wide = (size + lanes<T> - 1) / lanes<T>;
    std::vector<double> by_factor(all), along(all);
    rows::each(all, threads, [&](int64_t number) {
        const int64_t b = number / of.heads, h = number % of.heads;
        const auto own_keys = head(k, of.k, b, h), values = head(v, of.v, b, h);
        const Rows at_queries = of.compact(of.queries), at_keys = of.compact(keys);
        Panel<T> query(size), point(size), by_mean(size), by_query(size), by_score(keys), turned(lanes<T>);
        Panel<T> by_keys(wide * keys), by_values(wide * keys);
        std::fill_n((T *)by_keys, wide * keys * lanes<T>, T(0));
        std::fill_n((T *)by_values, wide * keys * lanes<T>, T(0));
        std::fill_n((T *)turned, lanes<T> * lanes<T>, T(0));
        for (int64_t p = 0, first = 0; p < panels; p++, first += lanes<T>) {
            const int count = int(std::min<int64_t>(lanes<T>, of.queries - first));
            const T *weight = weights + (number * panels + p) * keys * lanes<T>;
            gather(head(grad, of.grad, b, h).from(first), count, size, by_mean);
            gather(head(y, at_queries, b, h).from(first), count, size, point);
            along[number] += mean_gradients(by_mean, point, factors + (number * panels + p) * lanes<T>, size, c);
            product::multiply<T>(keys, size, values.data, values.by_row, 1, by_mean, by_score);
            softmax_gradients(weight, by_score, keys);
            product::multiply<T>(size, keys, own_keys.data, 1, own_keys.by_row, by_score, by_query);
            dual(by_query, size, factor);
            scatter(by_query, count, size, head(grad_q, at_queries, b, h).from(first));
            gather(head(q, of.q, b, h).from(first), count, size, query);
            for (int64_t d = 0; d < size; d++) by_factor[number] += rows::product(query[d], by_query[d], lanes<T>);
            dual(query, size, factor);
            add_keys<T>(by_score, query, count, size, keys, turned, by_keys);
            add_keys<T>(weight, by_mean, count, size, keys, turned, by_values);
        }
        scatter_keys(by_keys, keys, size, head(grad_k, at_keys, b, h));
        scatter_keys(by_values, keys, size, head(grad_v, at_keys, b, h));
    });
    sums[0] = rows::total(by_factor.data(), all);
    sums[1] = rows::total(along.data(), all);
}

}  // namespace

#define EXPORT(T)                                                                                                      \
    extern "C" void forward_##T(const T *q, const T *k, const T *v, const bool *mask, const bool *kept, T *y,          \
                                T *weights, double *factors, const int64_t *shape, double factor, double c,            \
                                int threads) {                                                                         \
        const Shape &of = *reinterpret_cast<const Shape *>(shape);                                                     \
        forward(q, k, v, mask, kept, y, weights, factors, of, T(factor), c, rows::worth(of.pairs(), threads));         \
    }                                                                                                                  \
    extern "C" void backward_##T(const T *q, const T *k, const T *v, const T *grad, const T *y, const T *weights,      \
                                 const double *factors, T *grad_q, T *grad_k, T *grad_v, double *sums,                 \
                                 const int64_t *shape, double factor, double c, int threads) {                         \
        const Shape &of = *reinterpret_cast<const Shape *>(shape);                                                     \
        backward(q, k, v, grad, y, weights, factors, grad_q, grad_k, grad_v, sums, of, T(factor), c,                   \
                 rows::worth(of.pairs(), threads));                                                                    \
    }

EXPORT(float)
EXPORT(double)

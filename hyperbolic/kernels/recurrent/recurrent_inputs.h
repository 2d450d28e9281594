// The input side of the Möbius RNN and GRU: u = exp_0(U log_0(x)) of one step, as in plain.py.
#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "gyro.h"

namespace recurrent {

using gyro::Row;

struct Sizes {
    int64_t streams, cells, batch, steps, d_in, hidden, gates;

    int64_t outputs() const { return gates * hidden; }
};

// A matrix of this many columns is stored as so many panels, each of LANES columns.
template <class T> inline int64_t panels(int64_t columns) { return (columns + Row<T>::size - 1) / Row<T>::size; }

// Coordinates as columns of LANES points, and as the panels of a matrix of LANES rows.
template <class T> void stand(const Row<T> *rows, int64_t size, Row<T> *columns) {
    constexpr int64_t lanes = Row<T>::size;
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = 0; j < lanes; j++) columns[i][j] = rows[i / lanes * lanes + j][i % lanes];
}
template <class T> void lie(const Row<T> *columns, int64_t size, Row<T> *rows) {
    constexpr int64_t lanes = Row<T>::size;
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = 0; j < lanes; j++) rows[i / lanes * lanes + j][i % lanes] = columns[i][j];
}

// work(row, first column, number of columns, numbers) for each panel of the first n of `height` rows.
template <class Numbers, class Work> void each(Numbers *panel, int64_t height, int64_t n, int64_t size, Work work) {
    constexpr int64_t lanes = std::remove_const_t<Numbers>::size;
    for (int64_t at = 0; at < size; at += lanes, panel += height)
        for (int64_t j = 0; j < n; j++) work(j, at, std::min(lanes, size - at), panel[j].lane);
}

// n rows of `size` numbers, `stride` apart, to panels of `height` rows.
template <class T> void pack(const T *from, int64_t stride, int64_t n, int64_t size, int64_t height, Row<T> *panel) {
    each(panel, height, n, size,
         [=](int64_t j, int64_t at, int64_t count, T *to) { std::copy_n(from + j * stride + at, count, to); });
}

// n points, which lie `stride` apart, as panels and as columns; zeros in the lanes beyond.
template <class T> void read(const T *from, int64_t stride, int64_t n, int64_t size, Row<T> *rows, Row<T> *columns) {
    if (n < Row<T>::size) std::fill(rows, rows + panels<T>(size) * Row<T>::size, Row<T>{});
    pack(from, stride, n, size, Row<T>::size, rows);
    stand(rows, size, columns);
}

// c = a b, or c += a b, of whole panels: a as in product::multiply, b of `depth` and c of `height` rows.
template <bool ADD, class T>
void multiply(int64_t height, int64_t depth, const T *a, int64_t row, int64_t column, const Row<T> *b, Row<T> *c,
              int64_t number = 1) {
    for (int64_t p = 0; p < number; p++)
        product::multiply<T, ADD>(height, depth, a, row, column, b[p * depth].lane, c[p * height].lane);
}

// Parameters of a cell: weights (G, H, D) and (G, H, H), biases (G, H) with gaps (G).
template <class T> struct Weights {
    const T *in, *state, *bias, *bias_gap;
};

// Sums over steps and columns of the gradients of these: panels of the weights; of the biases one for each lane.
template <class T> struct Totals {
    std::vector<Row<T>> in, state, bias, bias_gap;

    explicit Totals(const Sizes &size)
        : in(size.outputs() * panels<T>(size.d_in)), state(size.outputs() * panels<T>(size.hidden)),
          bias(size.outputs()), bias_gap(size.gates) {}
};

template <class T> struct Inputs {
    const Sizes size;
    const gyro::Limits<T> limits;
    const double c;
    const T root;
    const int64_t outputs, wide;           // G H; panels of D
    std::vector<Row<T>> rows, columns, u;  // points as panels and as columns; results
    std::vector<Row<T>> u_gap, square, factor, packed;  // one for each gate; weights as panels
    Row<T> gap, log, scale;
    double norm2[Row<T>::size];

    Inputs(const Sizes &s, const gyro::Limits<T> &k, double curvature)
        : size(s), limits(k), c(curvature), root(std::sqrt(curvature)), outputs(s.outputs()),
          wide(panels<T>(s.d_in)), rows(wide * Row<T>::size), columns(s.d_in), u(outputs), u_gap(s.gates),
          square(u_gap), factor(u_gap) {}

    // n points x, which lie T D apart, through the weights of one cell.
    void forward(const T *x, int64_t n, const T *weight) {
        std::fill(norm2, norm2 + Row<T>::size, 0.0);
        read(x, size.steps * size.d_in, n, size.d_in, rows.data(), columns.data());
        for (const Row<T> &x_i : columns) LANE norm2[j] += double(x_i[j]) * double(x_i[j]);
        LANE {
            const double exact = 1.0 - c * norm2[j];
            gap[j] = exact < limits.least_gap ? limits.least_gap : T(exact);
            log[j] = gyro::artanhc(gap[j], limits);
            scale[j] = log[j] * root;
        }
        multiply<false>(outputs, size.d_in, weight, size.d_in, 1, columns.data(), u.data());
        for (int64_t g = 0; g < size.gates; g++) {
            Row<T> *y = &u[g * size.hidden], whole;
            square[g] = gyro::dot(size.hidden, y, y);
            LANE {
                square[g][j] *= scale[j] * scale[j];
                factor[g][j] = gyro::tanhc(square[g][j], limits, u_gap[g][j]);
                whole[j] = factor[g][j] * scale[j];
            }
            gyro::scaled(size.hidden, whole, y, y);
        }
    }

    // Before the backward steps of a cell.
    void prepare(const T *weight) {
        packed.resize(outputs * wide);
        pack(weight, size.d_in, outputs, size.d_in, outputs, packed.data());
    }

    // From the gradients of u, which are overwritten, and of u_gap: adds those of the weights, of x where it has one,
    // and of c where it is learned.
    void backward(const T *x, int64_t n, std::vector<Row<T>> &grad, const std::vector<Row<T>> &g_gap, Totals<T> &totals,
                  T *g_x, double *g_c) {
        Row<T> g_scale = {}, g_norm2;
        for (int64_t g = 0; g < size.gates; g++) {
            Row<T> *g_u = &grad[g * size.hidden], *y = &u[g * size.hidden], along = gyro::dot(size.hidden, g_u, y);
            Row<T> twice, whole;
            LANE {  // of y = scale U x with u = f y: f g_u + twice y
                const T f = factor[g][j], slope = gyro::tanhc_slope(square[g][j], f, u_gap[g][j], limits);
                const T g_y = slope * along[j] / f - 2 * g_gap[g][j] * limits.learned(u_gap[g][j]) * f;
                g_scale[j] += (along[j] + g_y * square[g][j]) / scale[j];
                twice[j] = g_y / f * scale[j];
                whole[j] = f * scale[j];
            }
            for (int64_t i = 0; i < size.hidden; i++) LANE g_u[i][j] = g_u[i][j] * whole[j] + y[i][j] * twice[j];
        }
        constexpr int64_t lanes = Row<T>::size;
        multiply<true>(outputs, lanes, grad[0].lane, lanes, 1, rows.data(), totals.in.data(), wide);
        LANE g_norm2[j] = gyro::artanhc_slope(gap[j], log[j]) * g_scale[j] * root;
        if (g_c != nullptr)
            for (int j = 0; j < n; j++)
                *g_c += double(g_scale[j]) * log[j] / (2 * std::sqrt(c)) - double(g_norm2[j]) * norm2[j];
        if (g_x == nullptr) return;
        multiply<false>(lanes, outputs, grad[0].lane, 1, lanes, packed.data(), rows.data(), wide);
        const int64_t stride = size.steps * size.d_in;
        each(rows.data(), lanes, n, size.d_in, [&](int64_t j, int64_t at, int64_t count, const T *direct) {
            const T along = -2 * T(c) * g_norm2[j], *x_j = x + j * stride + at;
            T *to = g_x + j * stride + at;
#pragma omp simd
            for (int64_t i = 0; i < count; i++) to[i] += direct[i] + along * x_j[i];
        });
    }
};

}  // namespace recurrent

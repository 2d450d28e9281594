// The steps of kernels/gyro.py, which has the formulas, on columns: LANES points of the unit ball side by side.
#pragma once
#include <cmath>
#include <cstdint>

#include "elementary.h"
#include "product.h"

namespace gyro {

// One coordinate, or one number, of each point.
template <class T> struct alignas(128) Row {
    static constexpr int size = product::LANES<T>;
    T lane[size];
    T &operator[](int j) { return lane[j]; }
    const T &operator[](int j) const { return lane[j]; }
};

#define LANE _Pragma("omp simd") for (int j = 0; j < gyro::Row<T>::size; j++)

template <class T> struct Limits {
    T bound, least_gap, tiny;  // largest norm of a point, its gap; keeps 0/0 from happening
    bool clips;                // whether nothing is learned beyond the limit, as of points that are clipped
    Limits(double largest, bool clips)
        : bound(T(largest)), least_gap(T(1 - largest * largest)), tiny(sizeof(T) == 4 ? T(0x1p-126) : T(0x1p-1022)),
          clips(clips) {}
    // The gap that a gradient sees.
    T learned(T gap) const { return clips && gap <= least_gap ? T(0) : gap; }
};

// tanh(r)/r and sech(r)^2 from r^2, kept inside the boundary margin.
template <class T> inline T tanhc(T square, const Limits<T> &k, T &gap) {
    const T r = std::sqrt(square < k.tiny ? k.tiny : square);
    T sech2;
    const T value = elementary::tanh(r, sech2);
    gap = sech2 < k.least_gap ? k.least_gap : sech2;
    return (value > k.bound ? k.bound : value) / r;
}

// (sech^2 - tanh(r)/r) / r^2
template <class T> inline T tanhc_slope(T square, T scale, T gap, const Limits<T> &k) {
    return (k.learned(gap) - scale) / (square < k.tiny ? k.tiny : square);
}

// artanh(r)/r = log(1 + 2r(1 + r)/g) / (2r) from g = 1 - r^2.
template <class T> inline T artanhc(T gap, const Limits<T> &k) {
    const T rest = T(1) - gap, r = std::sqrt(rest < k.tiny ? k.tiny : rest);
    return T(0.5) * elementary::log1p(T(2) * (r + r * r) / gap) / r;
}

// Its derivative with respect to the gap: -(1/g - artanh(r)/r) / (2 r^2), near 0 by -sum_n (n + 1)/(2n + 3) r^2n.
template <class T> inline T artanhc_slope(T gap, T scale) {
    constexpr int terms = sizeof(T) == 4 ? 5 : 9;
    const T square = T(1) - gap, safe = square < T(0.02) ? T(0.02) : square;
    T series = -T(terms) / T(2 * terms + 1);
#pragma GCC unroll 16
    for (int n = terms - 2; n >= 0; n--) series = series * square - T(n + 1) / T(2 * n + 3);
    const T closed = T(0.5) * (scale - T(1) / gap) / safe;
    return square < T(0.02) ? series : closed;
}

template <class T> inline Row<T> dot(int64_t size, const Row<T> *x, const Row<T> *y) {
    Row<T> sum = {};
    for (int64_t i = 0; i < size; i++) LANE sum[j] += x[i][j] * y[i][j];
    return sum;
}

template <class T> inline void scaled(int64_t size, const Row<T> &scale, const Row<T> *x, Row<T> *out) {
    for (int64_t i = 0; i < size; i++) LANE out[i][j] = scale[j] * x[i][j];
}

// log_0(x) of points with their gaps. The gradient of x is scale * grad, and that of the gap `slope`.
template <class T> struct Log {
    Row<T> scale;

    void forward(int64_t size, const Row<T> *x, const Row<T> &gap, const Limits<T> &k, Row<T> *out) {
        LANE scale[j] = artanhc(gap[j], k);
        scaled(size, scale, x, out);
    }
    Row<T> slope(int64_t size, const Row<T> *x, const Row<T> &gap, const Row<T> *grad) const {
        Row<T> along = dot(size, grad, x);
        LANE along[j] *= artanhc_slope(gap[j], scale[j]);
        return along;
    }
};

// exp_0(u) with its gap.
template <class T> struct Exp {
    Row<T> square, scale, gap;

    void forward(int64_t size, const Row<T> *u, const Limits<T> &k, Row<T> *out) {
        square = dot(size, u, u);
        LANE scale[j] = tanhc(square[j], k, gap[j]);
        scaled(size, scale, u, out);
    }
    // grad, of the point, becomes that of u.
    void backward(int64_t size, const Row<T> *u, const Limits<T> &k, Row<T> *grad, const Row<T> &g_gap) const {
        Row<T> twice = dot(size, grad, u);
        LANE twice[j] =
            tanhc_slope(square[j], scale[j], gap[j], k) * twice[j] - 2 * g_gap[j] * k.learned(gap[j]) * scale[j];
        for (int64_t i = 0; i < size; i++) LANE grad[i][j] = scale[j] * grad[i][j] + twice[j] * u[i][j];
    }
};

// x (+) y = a x + b s with s = x + y, 1/i = |s|^2 + g_x g_y, a = |s|^2 i, b = g_x i, and the gap b g_y.
template <class T> struct Sum {
    Row<T> i, a, b;

    void forward(const Row<T> &square, const Row<T> &x_gap, const Row<T> &y_gap) {
        LANE {
            i[j] = T(1) / (square[j] + x_gap[j] * y_gap[j]);
            a[j] = square[j] * i[j];
            b[j] = x_gap[j] * i[j];
        }
    }
    // From g_a = <grad, x> and g_b = <grad, s> + g_gap y_gap, which become the gradient of |s|^2 and of g_x.
    // Returns that of g_y.
    Row<T> backward(const Row<T> &x_gap, const Row<T> &y_gap, const Row<T> &g_gap, Row<T> &g_a, Row<T> &g_b) const {
        Row<T> g_y_gap;
        LANE {
            const T g_d = -(g_a[j] * a[j] + g_b[j] * b[j]) * i[j];
            g_y_gap[j] = g_gap[j] * b[j] + g_d * x_gap[j];
            g_b[j] = g_b[j] * i[j] + g_d * y_gap[j];
            g_a[j] = g_d + g_a[j] * i[j];
        }
        return g_y_gap;
    }
};

// A bias point, the same for all lanes, with its gap; and its gradients, one for each lane.
template <class T> struct Bias {
    const T *point;
    T gap;
    Row<T> *g_point, *g_gap;
};

// o = (exp_0(q) (+) u) (+) b with its gap; m is the first sum.
template <class T> struct Affine {
    Row<T> square, f, x_gap, m_gap, gap;
    Sum<T> first, second;

    void forward(int64_t size, const Row<T> *q, const Row<T> *u, const Row<T> &u_gap, const Bias<T> &bias,
                 const Limits<T> &k, Row<T> *m, Row<T> *out) {
        Row<T> n = {}, b_gap;
        square = dot(size, q, q);
        LANE f[j] = tanhc(square[j], k, x_gap[j]);
        for (int64_t i = 0; i < size; i++) LANE {
            const T s = u[i][j] + f[j] * q[i][j];
            n[j] += s * s;
        }
        first.forward(n, x_gap, u_gap);
        LANE m_gap[j] = first.b[j] * u_gap[j], b_gap[j] = bias.gap, n[j] = 0;
        for (int64_t i = 0; i < size; i++) LANE {
            const T x = f[j] * q[i][j];
            m[i][j] = first.a[j] * x + first.b[j] * (u[i][j] + x);
            const T s = m[i][j] + bias.point[i];
            n[j] += s * s;
        }
        second.forward(n, m_gap, b_gap);
        LANE {
            const T product = second.b[j] * bias.gap;
            gap[j] = k.clips && product < k.least_gap ? k.least_gap : product;
        }
        for (int64_t i = 0; i < size; i++)
            LANE out[i][j] = second.a[j] * m[i][j] + second.b[j] * (m[i][j] + bias.point[i]);
    }

    // From grad and g_gap: the gradients of q, u and the gap of u, and those of the bias, which are added to.
    void backward(int64_t size, const Row<T> *q, const Row<T> *u, const Row<T> &u_gap, const Bias<T> &bias,
                  const Limits<T> &k, const Row<T> *m, const Row<T> *grad, Row<T> g_gap, Row<T> *g_q, Row<T> *g_u,
                  Row<T> &g_u_gap) const {
        LANE g_gap[j] = k.clips && second.b[j] * bias.gap < k.least_gap ? T(0) : g_gap[j];
        Row<T> g_a = {}, g_b = {}, b_gap, along = {};
        for (int64_t i = 0; i < size; i++) LANE {
            g_a[j] += grad[i][j] * m[i][j];
            g_b[j] += grad[i][j] * (m[i][j] + bias.point[i]);
        }
        LANE b_gap[j] = bias.gap, g_b[j] += g_gap[j] * bias.gap;
        const Row<T> g_b_gap = second.backward(m_gap, b_gap, g_gap, g_a, g_b), g_m_gap = g_b, g_n = g_a;
        LANE (*bias.g_gap)[j] += g_b_gap[j], g_a[j] = g_b[j] = 0;
        for (int64_t i = 0; i < size; i++) LANE {
            const T g_s = second.b[j] * grad[i][j] + 2 * g_n[j] * (m[i][j] + bias.point[i]);
            const T g_m = g_s + second.a[j] * grad[i][j];
            bias.g_point[i][j] += g_s;
            g_q[i][j] = g_m;
            g_a[j] += g_m * q[i][j];
            g_b[j] += g_m * (u[i][j] + f[j] * q[i][j]);
        }
        LANE g_a[j] *= f[j], g_b[j] += g_m_gap[j] * u_gap[j];
        g_u_gap = first.backward(x_gap, u_gap, g_m_gap, g_a, g_b);
        for (int64_t i = 0; i < size; i++) LANE {
            g_u[i][j] = first.b[j] * g_q[i][j] + 2 * g_a[j] * (u[i][j] + f[j] * q[i][j]);
            g_q[i][j] = g_u[i][j] + first.a[j] * g_q[i][j];
            along[j] += g_q[i][j] * q[i][j];
        }
        LANE along[j] = tanhc_slope(square[j], f[j], x_gap[j], k) * along[j] -
                      2 * g_b[j] * k.learned(x_gap[j]) * f[j];
        for (int64_t i = 0; i < size; i++) LANE g_q[i][j] = f[j] * g_q[i][j] + along[j] * q[i][j];
    }
};

// h' = h (+) exp_0(z * log_0((-h) (+) o)) and its gap, kept inside the boundary margin.
template <class T> struct Gated {
    Row<T> e2, i, m_gap, scale, shrink, outside, cut, gap;  // i = 1/(|e|^2 + g_h g_o) with e = o - h
    Exp<T> exp;
    Sum<T> sum;

    // m = (-h) (+) o; w = z log_0(m); added = exp_0(w).
    void forward(int64_t size, const Row<T> *h, const Row<T> &h_gap, const Row<T> *o, const Row<T> &o_gap,
                 const Row<T> *z, const Limits<T> &k, Row<T> *m, Row<T> *w, Row<T> *added, Row<T> *out) {
        Row<T> n = {}, norm2 = {};
        LANE e2[j] = 0;
        for (int64_t c = 0; c < size; c++) LANE e2[j] += (o[c][j] - h[c][j]) * (o[c][j] - h[c][j]);
        LANE i[j] = T(1) / (e2[j] + h_gap[j] * o_gap[j]), m_gap[j] = h_gap[j] * o_gap[j] * i[j];
        LANE scale[j] = artanhc(m_gap[j], k);
        for (int64_t c = 0; c < size; c++) LANE {
            m[c][j] = (h_gap[j] * (o[c][j] - h[c][j]) - e2[j] * h[c][j]) * i[j];
            w[c][j] = z[c][j] * (scale[j] * m[c][j]);
        }
        exp.forward(size, w, k, added);
        for (int64_t c = 0; c < size; c++) LANE n[j] += (h[c][j] + added[c][j]) * (h[c][j] + added[c][j]);
        sum.forward(n, h_gap, exp.gap);
        for (int64_t c = 0; c < size; c++) LANE {
            out[c][j] = sum.a[j] * h[c][j] + sum.b[j] * (h[c][j] + added[c][j]);
            norm2[j] += out[c][j] * out[c][j];
        }
        LANE {  // away from the boundary the coordinates give the gap just as well, and carried errors end there
            const T carried = norm2[j] < T(0.9) ? T(1) - norm2[j] : sum.b[j] * exp.gap[j];
            cut[j] = carried < k.least_gap;
            gap[j] = carried < k.least_gap ? k.least_gap : carried;
            outside[j] = norm2[j] > k.bound * k.bound;
            shrink[j] = norm2[j] > k.bound * k.bound ? k.bound / std::sqrt(norm2[j]) : T(1);
        }
        scaled(size, shrink, out, out);
    }

    // From grad, which becomes that of h, and g_gap, which becomes that of its gap: the gradients of o, its gap and z.
    void backward(int64_t size, const Row<T> *h, const Row<T> &h_gap, const Row<T> *o, const Row<T> &o_gap,
                  const Row<T> *z, const Limits<T> &k, const Row<T> *m, const Row<T> *w, const Row<T> *added,
                  const Row<T> *out, Row<T> *grad, Row<T> &g_gap, Row<T> *g_o, Row<T> &g_o_gap, Row<T> *g_z) const {
        // of a point that was pulled back to the margin, only the gradient orthogonal to it survives
        Row<T> radial = dot(size, grad, out), g_a = {}, g_b = {};
        LANE radial[j] *= outside[j] / (k.bound * k.bound), g_gap[j] *= T(1) - cut[j];
        for (int64_t c = 0; c < size; c++) LANE {
            grad[c][j] = (grad[c][j] - radial[j] * out[c][j]) * shrink[j];
            g_a[j] += grad[c][j] * h[c][j];
            g_b[j] += grad[c][j] * (h[c][j] + added[c][j]);
        }
        LANE g_b[j] += g_gap[j] * exp.gap[j];
        const Row<T> g_added_gap = sum.backward(h_gap, exp.gap, g_gap, g_a, g_b);
        Row<T> *g_w = g_o;
        for (int64_t c = 0; c < size; c++) LANE {
            g_w[c][j] = sum.b[j] * grad[c][j] + 2 * g_a[j] * (h[c][j] + added[c][j]);
            grad[c][j] = g_w[c][j] + sum.a[j] * grad[c][j];
        }
        exp.backward(size, w, k, g_w, g_added_gap);
        // log_0(m) with m = (g_h e - |e|^2 h) i and gap g_h g_o i
        Row<T> *g_m = g_o, along_m = {}, along_h = {}, along_e = {}, g_e2;
        for (int64_t c = 0; c < size; c++) LANE {
            g_z[c][j] = g_w[c][j] * (scale[j] * m[c][j]);
            g_m[c][j] = g_w[c][j] * z[c][j];
            along_m[j] += g_m[c][j] * m[c][j];
            along_h[j] += g_m[c][j] * h[c][j];
            along_e[j] += g_m[c][j] * (o[c][j] - h[c][j]);
        }
        LANE {
            const T g_m_gap = artanhc_slope(m_gap[j], scale[j]) * along_m[j], each = scale[j] * i[j];
            const T g_d = -(scale[j] * along_m[j] + g_m_gap * m_gap[j]) * i[j], g_product = g_m_gap * i[j] + g_d;
            g_e2[j] = g_d - each * along_h[j];
            g_gap[j] = g_b[j] + g_product * o_gap[j] + each * along_e[j];
            g_o_gap[j] = g_product * h_gap[j];
        }
        for (int64_t c = 0; c < size; c++) LANE {
            const T each = scale[j] * i[j] * g_m[c][j];
            g_o[c][j] = h_gap[j] * each + 2 * g_e2[j] * (o[c][j] - h[c][j]);
            grad[c][j] -= g_o[c][j] + e2[j] * each;
        }
    }
};

}  // namespace gyro

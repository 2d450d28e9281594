// One step of the Möbius RNN and GRU and its gradient on columns, as in plain.py.
#pragma once
#include "recurrent_inputs.h"

namespace recurrent {

template <class T> struct Settings {
    gyro::Limits<T> limits;
    T unit;        // 1/sqrt(c)
    int phi;       // 0 identity, 1 tanh, 2 relu, 3 sigmoid
    bool learned;  // whether the unit has a gradient
};

// phi(unit v) / unit; value = phi(unit v).
template <class T> struct Nonlinearity {
    const Settings<T> &set;
    std::vector<Row<T>> value;

    void forward(int64_t size, const Row<T> *v, Row<T> *out) {
        const T unit = set.unit;
        if (set.phi == 1)
            for (int64_t i = 0; i < size; i++) LANE {
                T sech2;
                value[i][j] = std::copysign(elementary::tanh(std::fabs(unit * v[i][j]), sech2), v[i][j]);
            }
        else if (set.phi == 2)
            for (int64_t i = 0; i < size; i++) LANE value[i][j] = v[i][j] < T(0) ? T(0) : unit * v[i][j];
        else
            for (int64_t i = 0; i < size; i++) LANE value[i][j] = elementary::sigmoid(unit * v[i][j]);
        for (int64_t i = 0; i < size; i++) LANE out[i][j] = value[i][j] / unit;
    }

    // grad becomes that of v; that of the unit is added.
    void backward(int64_t size, const Row<T> *v, Row<T> *grad, double &g_unit) const {
        Row<T> along = {}, outer = {};
        for (int64_t i = 0; i < size; i++) LANE {
            const T y = value[i][j], slope = set.phi == 1 ? 1 - y * y : set.phi == 2 ? T(y > T(0)) : y * (1 - y);
            outer[j] += grad[i][j] * y;
            grad[i][j] *= slope;
            along[j] += grad[i][j] * v[i][j];
        }
        if (set.learned)
            for (int j = 0; j < Row<T>::size; j++)
                g_unit += double(along[j]) / set.unit - double(outer[j]) / (double(set.unit) * set.unit);
    }
};

template <class T> void keep(int64_t size, const Row<T> &active, const Row<T> *old, Row<T> *state) {
    for (int64_t i = 0; i < size; i++) LANE state[i][j] = active[j] != T(0) ? state[i][j] : old[i][j];
}

// What both cells have: the affine points of their gates and the products with the state's weights.
template <class T> struct Gates {
    const int64_t size, outputs;  // H, G H
    const Settings<T> set;
    std::vector<Row<T>> q, m, point, g_u, g_u_gap, flat;  // flat: a state as panels
    std::vector<gyro::Affine<T>> affine;
    std::vector<T> turned;  // (H, G H) weights of the state

    Gates(const Sizes &s, const Settings<T> &settings)
        : size(s.hidden), outputs(s.outputs()), set(settings), q(outputs), m(q), point(q), g_u(q), g_u_gap(s.gates),
          flat(panels<T>(size) * Row<T>::size), affine(s.gates) {}

    // Before the backward steps of a cell.
    void prepare(const T *weight) {
        turned.resize(outputs * size);
        for (int64_t r = 0; r < outputs; r++)
            for (int64_t i = 0; i < size; i++) turned[i * outputs + r] = weight[r * size + i];
    }

    // Gates [first, first + n) from v: their products and points.
    void affine_points(int first, int n, const Row<T> *v, const Inputs<T> &in, const Weights<T> &w) {
        multiply<false>(n * size, size, w.state + first * size * size, size, 1, v, &q[first * size]);
        for (int g = first; g < first + n; g++)
            affine[g].forward(size, &q[g * size], &in.u[g * size], in.u_gap[g], bias(g, w), set.limits, &m[g * size],
                              &point[g * size]);
    }

    // From the gradients of their points, in g_q, and of the gaps: in g_q those of the products, and that of v.
    void affine_gradients(int first, int n, const Row<T> *v, const Inputs<T> &in, const Weights<T> &w,
                          const Row<T> *g_gap, Row<T> *g_q, Row<T> *g_v, Totals<T> &totals) {
        for (int g = first; g < first + n; g++) {
            gyro::Bias<T> of = bias(g, w);
            of.g_point = &totals.bias[g * size], of.g_gap = &totals.bias_gap[g];
            Row<T> *grad = g_q + (g - first) * size;
            affine[g].backward(size, &q[g * size], &in.u[g * size], in.u_gap[g], of, set.limits, &m[g * size], grad,
                               g_gap[g - first], grad, &g_u[g * size], g_u_gap[g]);
        }
        constexpr int64_t lanes = Row<T>::size;
        lie(v, size, flat.data());
        for (int64_t p = 0; p < panels<T>(size); p++)  // of all gates, among which these are
            multiply<true>(n * size, lanes, g_q->lane, lanes, 1, &flat[p * lanes],
                           &totals.state[p * outputs + first * size]);
        multiply<false>(size, n * size, &turned[first * size], outputs, 1, g_q, g_v);
    }

  private:
    gyro::Bias<T> bias(int g, const Weights<T> &w) const {
        return {w.bias + g * size, w.bias_gap[g], nullptr, nullptr};
    }
};

// State: v = log_0(h).
template <class T> struct Rnn : Gates<T> {
    static constexpr int beside = 0;
    using Base = Gates<T>;
    using Base::affine, Base::point, Base::set, Base::size;
    std::vector<Row<T>> tangent, next, out, grad, g_v;
    gyro::Log<T> log;
    gyro::Exp<T> exp;
    Nonlinearity<T> phi;

    Rnn(const Sizes &s, const Settings<T> &settings)
        : Base(s, settings), tangent(size), next(size), out(size), grad(size), g_v(size), phi{set, tangent} {}

    void start(Row<T> *state) const { std::fill(state, state + size, Row<T>{}); }

    // Returns the points of the new states, which are left in `next`.
    const Row<T> *forward(const Row<T> *v, const Row<T> &active, const Inputs<T> &in, const Weights<T> &w) {
        Base::affine_points(0, 1, v, in, w);
        log.forward(size, point.data(), affine[0].gap, set.limits, tangent.data());
        if (set.phi == 0)
            next = tangent;
        else
            phi.forward(size, tangent.data(), next.data());
        keep(size, active, v, next.data());
        exp.forward(size, next.data(), set.limits, out.data());
        return out.data();
    }

    // After forward; g_point: gradient of what it returned, overwritten; g_state: of the new state, then of the old.
    void backward(const Row<T> *v, const Row<T> &active, const Inputs<T> &in, const Weights<T> &w, Row<T> *g_point,
                  Row<T> *g_state, Totals<T> &totals, double &g_unit) {
        exp.backward(size, next.data(), set.limits, g_point, Row<T>{});
        for (int64_t i = 0; i < size; i++) LANE {
            const T whole = g_state[i][j] + g_point[i][j];
            grad[i][j] = whole * active[j];
            g_state[i][j] = whole * (1 - active[j]);
        }
        if (set.phi != 0) phi.backward(size, tangent.data(), grad.data(), g_unit);
        const Row<T> g_gap = log.slope(size, point.data(), affine[0].gap, grad.data());
        gyro::scaled(size, log.scale, grad.data(), grad.data());
        Base::affine_gradients(0, 1, v, in, w, &g_gap, grad.data(), g_v.data(), totals);
        for (int64_t i = 0; i < size; i++) LANE g_state[i][j] += g_v[i][j];
    }
};

// State: points h, and after them their gap. Gates: r, z, candidate.
template <class T> struct Gru : Gates<T> {
    static constexpr int beside = 1;
    using Base = Gates<T>;
    using Base::affine, Base::point, Base::set, Base::size;
    std::vector<Row<T>> v, rv, gate, tangent, bent, bent_point, m, step, added, next;
    std::vector<Row<T>> grad, g_o, g_z, g_v, g_rv, g_gates;
    gyro::Log<T> log, new_log;
    Row<T> gate_log[2];
    gyro::Exp<T> exp;
    gyro::Gated<T> gated;
    Nonlinearity<T> phi;

    Gru(const Sizes &s, const Settings<T> &settings)
        : Base(s, settings), v(size), rv(v), gate(2 * size), tangent(v), bent(v), bent_point(v), m(v), step(v),
          added(v), next(size + 1), grad(size + 1), g_o(v), g_z(v), g_v(v), g_rv(v), g_gates(gate), phi{set, tangent} {}

    void start(Row<T> *state) const {
        std::fill(state, state + size, Row<T>{});
        LANE state[size][j] = 1;
    }

    const Row<T> *forward(const Row<T> *h, const Row<T> &active, const Inputs<T> &in, const Weights<T> &w) {
        log.forward(size, h, h[size], set.limits, v.data());
        Base::affine_points(0, 2, v.data(), in, w);
        for (int g = 0; g < 2; g++) {
            LANE gate_log[g][j] = gyro::artanhc(affine[g].gap[j], set.limits);
            for (int64_t i = g * size; i < (g + 1) * size; i++)
                LANE gate[i][j] = elementary::sigmoid(set.unit * gate_log[g][j] * point[i][j]);
        }
        for (int64_t i = 0; i < size; i++) LANE rv[i][j] = gate[i][j] * v[i][j];
        Base::affine_points(2, 1, rv.data(), in, w);
        if (set.phi != 0) {
            new_log.forward(size, &point[2 * size], affine[2].gap, set.limits, tangent.data());
            phi.forward(size, tangent.data(), bent.data());
            exp.forward(size, bent.data(), set.limits, bent_point.data());
        }
        gated.forward(size, h, h[size], candidate(), candidate_gap(), &gate[size], set.limits, m.data(), step.data(),
                      added.data(), next.data());
        next[size] = gated.gap;
        keep(size + 1, active, h, next.data());
        return next.data();
    }

    void backward(const Row<T> *h, const Row<T> &active, const Inputs<T> &in, const Weights<T> &w, Row<T> *g_point,
                  Row<T> *g_state, Totals<T> &totals, double &g_unit) {
        for (int64_t i = 0; i <= size; i++) LANE {
            const T whole = i < size ? g_state[i][j] + g_point[i][j] : g_state[i][j];
            grad[i][j] = whole * active[j];
            g_state[i][j] = whole * (1 - active[j]);
        }
        Row<T> g_gap[2];
        gated.backward(size, h, h[size], candidate(), candidate_gap(), &gate[size], set.limits, m.data(), step.data(),
                       added.data(), next.data(), grad.data(), grad[size], g_o.data(), g_gap[0], g_z.data());
        if (set.phi != 0) {
            exp.backward(size, bent.data(), set.limits, g_o.data(), g_gap[0]);
            phi.backward(size, tangent.data(), g_o.data(), g_unit);
            g_gap[0] = new_log.slope(size, &point[2 * size], affine[2].gap, g_o.data());
            gyro::scaled(size, new_log.scale, g_o.data(), g_o.data());
        }
        Base::affine_gradients(2, 1, rv.data(), in, w, g_gap, g_o.data(), g_rv.data(), totals);
        for (int64_t i = 0; i < size; i++) LANE {
            const T r = gate[i][j], z = gate[size + i][j];
            g_gates[i][j] = g_rv[i][j] * v[i][j] * r * (1 - r);
            g_gates[size + i][j] = g_z[i][j] * z * (1 - z);
        }
        for (int g = 0; g < 2; g++) gate_gradient(g, g_gap[g], g_unit);
        Base::affine_gradients(0, 2, v.data(), in, w, g_gap, g_gates.data(), g_v.data(), totals);
        for (int64_t i = 0; i < size; i++) LANE g_v[i][j] += g_rv[i][j] * gate[i][j];
        const Row<T> slope = log.slope(size, h, h[size], g_v.data());
        for (int64_t i = 0; i < size; i++) LANE g_state[i][j] += grad[i][j] + log.scale[j] * g_v[i][j];
        LANE g_state[size][j] += grad[size][j] + slope[j];
    }

  private:
    const Row<T> *candidate() const { return set.phi == 0 ? &point[2 * size] : bent_point.data(); }
    const Row<T> &candidate_gap() const { return set.phi == 0 ? affine[2].gap : exp.gap; }

    // Of sigmoid's argument, unit log_0(point), in g_gates: to those of the point and its gap.
    void gate_gradient(int g, Row<T> &g_gap, double &g_unit) {
        Row<T> *of = &g_gates[g * size], along = gyro::dot(size, of, &point[g * size]);
        if (set.learned)
            for (int j = 0; j < Row<T>::size; j++) g_unit += double(along[j]) * gate_log[g][j];
        LANE g_gap[j] = set.unit * along[j] * gyro::artanhc_slope(affine[g].gap[j], gate_log[g][j]);
        for (int64_t i = 0; i < size; i++) LANE of[i][j] *= set.unit * gate_log[g][j];
    }
};

}  // namespace recurrent

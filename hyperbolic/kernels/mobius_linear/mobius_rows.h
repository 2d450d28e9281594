// The row numbers behind a chain of Möbius sums, of a block of rows at once: see passes.py, whose names these are.
#pragma once
#include <cmath>

#include "elementary.h"
#include "rows.h"

namespace mobius {

constexpr int most = 8;  // vectors of a chain
constexpr double tiny = 1e-30, small = 1e-5, least = 1e-14;

using rows::Numbers;

inline double at_least(double x, double low) { return x < low ? low : x; }

// A vector v that stands for the point t = k v of gap 1 - c|t|^2; a fixed point is the vector itself.
struct Term {
    bool fixed;
    Numbers r, w, factor;  // sqrt(c)|x|, sqrt(c)|v|, f
    Numbers log, room, length, k, gap;

    void find(int count, double floor) {
        if (fixed) {
#pragma omp simd
            for (int i = 0; i < count; i++) {
                k[i] = 1;
                gap[i] = at_least(1 - r[i] * r[i], floor);
            }
            return;
        }
#pragma omp simd
        for (int i = 0; i < count; i++) {
            room[i] = at_least(1 - r[i] * r[i], floor);
            log[i] = 0.5 * elementary::log1p(2 * (r[i] + r[i] * r[i]) / room[i]) / r[i];
            length[i] = factor[i] * log[i];
            const double u = length[i] * w[i];
            double sech2;
            k[i] = std::copysign(elementary::tanh(std::fabs(u), sech2), u) / w[i];
            gap[i] = sech2;
        }
    }

    // Of the gradients of k and of the gap, those of r^2, f and w^2; of a fixed point that of its square, in g_w.
    void grad(int count, const double *g_k, const double *g_gap, double *g_r, double *g_factor, double *g_w) const {
        if (fixed) {
            for (int i = 0; i < count; i++) {
                g_r[i] = g_factor[i] = 0;
                g_w[i] = -g_gap[i];
            }
            return;
        }
#pragma omp simd
        for (int i = 0; i < count; i++) {
            const double square = r[i] * r[i], norm = w[i] * w[i], short_square = length[i] * length[i];
            const double g_length = (g_k[i] - 2 * k[i] * norm * g_gap[i]) * gap[i];
            double k_slope = 0.5 * (length[i] * gap[i] - k[i]) / norm, log_slope = 0.5 * (1 / room[i] - log[i]) / square;
            if (square < small) log_slope = 1.0 / 3 + 0.4 * square;
            if (short_square * norm < small) {
                k_slope = (4.0 / 15 * short_square * norm - 1.0 / 3) * short_square * length[i];
            }
            g_w[i] = k_slope * g_k[i] - g_gap[i] * gap[i] * k[i] * length[i];
            g_r[i] = g_length * factor[i] * log_slope;
            g_factor[i] = g_length * log[i];
        }
    }
};

// What the gradient of a sum m (+) t needs.
struct Step {
    Numbers before[most];  // coefficients of m
    Numbers gap, top, inverse;
};

// (t_1 (+) t_2) (+) ..., pulled back to the norm bound where it lies outside of it.
struct Chain {
    int size, count;
    Term terms[most];
    Numbers gram[most][most];  // c<v_i, v_j> for i < j
    Step steps[most];
    Numbers coefficients[most], gap, shrink;  // coefficients of the sum, not yet shrunk

    void find(double bound) {
        for (int j = 0; j < size; j++) terms[j].find(count, (1 - bound) / 4);
        std::copy_n(terms[0].k, count, coefficients[0]);
        std::copy_n(terms[0].gap, count, gap);
        for (int j = 1; j < size; j++) add(j);
#pragma omp simd
        for (int i = 0; i < count; i++) {
            const double scale = std::sqrt(bound * bound / at_least(1 - gap[i], 0.5));
            shrink[i] = scale < 1 ? scale : 1;
        }
    }

    // With n = 1 + 2c<m, t> + c|t|^2 and D = n - g_m c|t|^2: m (+) t = (n m + g_m t)/D with the gap g_m g_t/D.
    void add(int j) {
        Step &step = steps[j];
        const Term &term = terms[j];
        Numbers cross;
        products(j, coefficients, cross);
        for (int i = 0; i < j; i++) std::copy_n(coefficients[i], count, step.before[i]);
        std::copy_n(gap, count, step.gap);
#pragma omp simd
        for (int i = 0; i < count; i++) {
            const double t = 1 - term.gap[i];
            step.top[i] = 2 * cross[i] * term.k[i] + (1 + t);
            step.inverse[i] = 1 / at_least(step.top[i] - gap[i] * t, least);
            const double tail = gap[i] * step.inverse[i];
            coefficients[j][i] = tail * term.k[i];
            gap[i] = tail * term.gap[i];
        }
        for (int k = 0; k < j; k++) {
#pragma omp simd
            for (int i = 0; i < count; i++) coefficients[k][i] *= step.top[i] * step.inverse[i];
        }
    }

    // c<m, v_j> of m with these coefficients of the vectors before j.
    void products(int j, const Numbers *m, double *to) const {
        std::fill_n(to, count, 0.0);
        for (int k = 0; k < j; k++) {
#pragma omp simd
            for (int i = 0; i < count; i++) to[i] += m[k][i] * gram[k][j][i];
        }
    }
};

// Gradients of the numbers of a chain, from those of its coefficients.
struct ChainGrad {
    Numbers g_r[most], g_factor[most], g_w[most];  // of r^2, f, w^2
    Numbers g_gram[most][most];
    Numbers grad_curvature;  // of log(c), every number above being proportional to c

    // grads: of the coefficients, which it overwrites.
    void find(const Chain &chain, Numbers *grads) {
        Numbers g_gap, g_term_gap[most];
        const int count = chain.count;
        std::fill_n(g_gap, count, 0.0);
        for (int j = 0; j < chain.size; j++) {
#pragma omp simd
            for (int i = 0; i < count; i++) {
                g_gap[i] += grads[j][i] * chain.coefficients[j][i];
                grads[j][i] *= chain.shrink[i];
            }
        }
#pragma omp simd
        for (int i = 0; i < count; i++) {
            const double scale = chain.shrink[i] < 1 ? chain.shrink[i] : 0;
            g_gap[i] *= scale / (2 * at_least(1 - chain.gap[i], 0.5));
        }
        for (int j = chain.size - 1; j > 0; j--) take_off(chain, j, grads, g_gap, g_term_gap[j]);
        std::copy_n(g_gap, count, g_term_gap[0]);
        for (int j = 0; j < chain.size; j++) {
            chain.terms[j].grad(count, grads[j], g_term_gap[j], g_r[j], g_factor[j], g_w[j]);
        }
        add_up(chain);
    }

    // Of the gradients of the coefficients 0..j and of the gap after step j, those before it; that of the coefficient
    // j becomes the gradient of k of the term.
    void take_off(const Chain &chain, int j, Numbers *grads, double *g_gap, double *g_term_gap) {
        const Step &step = chain.steps[j];
        const Term &term = chain.terms[j];
        const int count = chain.count;
        Numbers g_head, g_cross, cross;
        chain.products(j, step.before, cross);
        std::fill_n(g_head, count, 0.0);
        for (int k = 0; k < j; k++) {
#pragma omp simd
            for (int i = 0; i < count; i++) g_head[i] += grads[k][i] * step.before[k][i];
        }
#pragma omp simd
        for (int i = 0; i < count; i++) {
            const double inverse = step.inverse[i], top = step.top[i], gap = step.gap[i], tail = gap * inverse;
            const double g_tail = grads[j][i] * term.k[i];
            // head, tail and the new gap depend on c|m + t|^2 and g_m through one factor
            const double sum = g_tail + g_head[i] * (1 - term.gap[i]) + g_gap[i] * term.gap[i];
            const double common = sum * inverse * inverse, g_square = gap * common;
            const double g_head_tail = g_head[i] * (top * inverse) + g_tail * tail;
            g_term_gap[i] = g_gap[i] * ((top - gap) * tail * inverse) - g_head_tail * tail + g_square;
            g_cross[i] = -2 * g_square * term.k[i];
            grads[j][i] = grads[j][i] * tail - 2 * g_square * cross[i];
            g_gap[i] = top * common;
        }
        for (int k = 0; k < j; k++) {
#pragma omp simd
            for (int i = 0; i < count; i++) {
                g_gram[k][j][i] = g_cross[i] * step.before[k][i];
                grads[k][i] = grads[k][i] * (step.top[i] * step.inverse[i]) + g_cross[i] * chain.gram[k][j][i];
            }
        }
    }

    void add_up(const Chain &chain) {
        std::fill_n(grad_curvature, chain.count, 0.0);
        for (int j = 0; j < chain.size; j++) {
            const Term &term = chain.terms[j];
#pragma omp simd
            for (int i = 0; i < chain.count; i++) {
                grad_curvature[i] += term.w[i] * term.w[i] * g_w[j][i] + term.r[i] * term.r[i] * g_r[j][i];
            }
            for (int k = 0; k < j; k++) {
#pragma omp simd
                for (int i = 0; i < chain.count; i++) grad_curvature[i] += chain.gram[k][j][i] * g_gram[k][j][i];
            }
        }
    }
};

}  // namespace mobius

// One geodesic step of a point x and the transport of a tangent vector m along it, for one row, in closed form: the
// Riemannian gradient is g = p x + q h in the Euclidean gradient h, the end of a step x' = a x + b m, and the momentum
// there m' = a_m x + b_m m; on the hyperboloid all of this is about space coordinates. plain.py has the same step with
// the methods of the manifolds. Sources: Nickel & Kiela 2018 (hyperboloid); Ganea, Becigneul & Hofmann 2018 (ball). All
// row numbers are double; T is the dtype of the table.
#pragma once
#include <algorithm>
#include <limits>

#include "elementary.h"
#include "rows.h"

namespace steps {

constexpr double tiny = 1e-300, longest_step = 32.0, far_out = 2e9, longest_far = 11.5, far_start = 1e8;

template <class T> struct Limits;
template <> struct Limits<float> {
    static constexpr double ball_eps = 4e-6, sheet_radius = 20.0, longest_momentum = 1e36;
    static constexpr double longest_gradient = 1.844674297419792384e19 / 8;  // sqrt(max) / 8
    static constexpr double slack = 1.05;
};
template <> struct Limits<double> {
    static constexpr double ball_eps = 1e-12, sheet_radius = 28.0, longest_momentum = 1e120;
    static constexpr double longest_gradient = 1e100;
    static constexpr double slack = 1.0;
};

// Scalars of one step, in the order of the Python tuple of this name.
struct Numbers {
    double c, rate, beta, share, retain, follow, correction, eps, keep;
    double bound;  // of |s|^2 on the hyperboloid: points beyond it are moved back along their geodesic from the origin
};

// Sums over a row: of the point, with another vector v, and of v; of models with `orthogonal`, vv is that of the part
// of v orthogonal to the point. inverse: 1/xx. gap: 1 - c xx, of the ball and the disk.
struct Sums {
    double xx, xv, vv, inverse, gap;
};

// x' = a x + b m, m' = a_m x + b_m m. On the hyperboloid, product: <x', m'> of space coordinates; is_rare: 1 of a step
// that is long or ends with a huge momentum, else 0. move<decay, exact, false> does without what such steps need, and
// is wrong for them.
struct Move {
    double a, b, a_m, b_m, product = 0, is_rare = 0;
};

inline double squared(double x) { return x * x; }
inline double inverse_square(double xx) { return xx < 1e-30 ? 0.0 : 1.0 / std::max(xx, 1e-30); }

// Length r of a step scale * m with |m|^2 = square; both are cut at the longest step.
ALWAYS_INLINE double length(double &scale, double square, double longest) {
    const double r = std::max(std::sqrt(square) * std::fabs(scale), tiny);
    scale *= std::min(longest / r, 1.0);
    return std::min(r, longest);
}

// Factor that keeps momenta of this squared length inside the dtype.
template <class T> ALWAYS_INLINE double fitting(double square) {
    constexpr double longest = Limits<T>::longest_momentum;
    return std::min(longest / std::sqrt(std::max(square, longest * longest)), 1.0);
}

template <class T> inline double least_gap() {
    const double bound = 1 - Limits<T>::ball_eps;
    return (1 - bound * bound) * Limits<T>::slack;
}
inline double pull(double gap, double least) { return std::sqrt((1 - least) / std::max(1 - gap, 1 - least)); }

// Factor of x and the new gap of a point that keeps a share of its distance from the origin.
ALWAYS_INLINE double ball_decay(const Sums &s, double c, double keep, double &kept_gap) {
    const double r = std::sqrt(std::max(c * s.xx, tiny));
    double sech2;
    const double tanh = elementary::tanh(elementary::log1p((r + r * r) * 2 / s.gap) * (keep / 2), sech2);
    kept_gap = sech2;
    return tanh / r;
}
inline double norm2(double a, double b, const Sums &s) {
    return std::max(a * a * s.xx + b * b * s.vv + 2 * (a * b) * s.xv, 0.0);
}

template <class T> struct Lorentz {
    static constexpr bool orthogonal = true, sheet = true;

    // g = h + c (<s, h> + t h_0) s, and <g, g>_x = |g_o|^2 + <s, g>^2 / (|s|^2 (1 + c|s|^2)) with g_o orthogonal to s;
    // time: the time coordinate of h.
    static ALWAYS_INLINE double gradient(const Sums &s, double time, double c, double &p, double &q) {
        const double e = 1 + c * s.xx;
        p = c * (s.xv + std::sqrt(e / c) * time);
        q = 1;
        return s.vv + squared(s.xv + s.xx * p) * (s.inverse / e);
    }

    // x' = cosh(r) x + sinh(r)/r u, and u moves to cosh(r) u + r sinh(r) x.
    template <bool decay, bool exact, bool rare>
    static ALWAYS_INLINE Move move(const Sums &s, double scale, const Numbers &k) {
        const double c = k.c, xx = s.xx, mm = s.vv;
        double radial = s.xv, e = 1 + c * xx, keep = 1, added = 0;
        if (decay) {
            double root, grown;  // root = sqrt(e)
            const double reach = std::sqrt(std::max(c * xx, tiny)), shorter = elementary::arsinh(reach, root) * k.keep;
            keep = elementary::sinh(shorter, grown) / reach;
            const double stretch = grown / root;
            added = radial * s.inverse * (stretch - 1);
            radial *= stretch;
            e = grown * grown;
        }
        const double beta = radial * s.inverse, n2 = mm + radial * (beta / e);
        const double way = c * n2 * (scale * scale);
        double b, grown;
        if (rare) {
            const double r = length(scale, c * n2, e > far_out ? longest_far : 2 * longest_step);
            b = elementary::sinh(r, grown) / r * scale;
        } else {
            b = elementary::sinhc(way, grown) * scale;
        }
        const double start = grown * keep;
        const double on_x = start + b * beta, end = on_x * on_x * xx + b * b * mm, a = start + b * added;
        double v_x = c * b * n2 * keep + grown * beta, v_n = grown;
        // Beyond the bound, back along the geodesic from the origin, on which <m', e> changes as the time does. It is
        // made of products; of long steps far out, where these are differences of large numbers, of lengths, with the
        // direction of the step, which is outward where the point was inside of the bound.
        const bool outside = end > k.bound, is_long = !(way <= elementary::short_square);
        const double root = 1 / std::sqrt(std::max(end, tiny)), over = root * root;
        const double inside = outside ? std::sqrt(k.bound) * root : 1.0;
        double along = (on_x * v_x * xx + b * v_n * mm) * root / std::sqrt(1 + c * end);
        if (rare) {
            const double by_lengths = std::copysign(std::sqrt(std::max(n2 - mm * xx * (keep * keep * over), 0.0)),
                                                    xx > 1.01 * k.bound ? along : scale);
            along = is_long && c * xx >= far_start ? by_lengths : along;
        }
        along *= std::sqrt(1 + c * k.bound) * root;
        v_x = outside ? along * on_x - keep * mm * b * over : v_x;
        v_n = outside ? along * b + keep * xx * on_x * over : v_n;
        const double square = v_x * v_x * xx + v_n * v_n * mm;
        if (rare) {
            const double fits = fitting<T>(square);
            v_x *= fits;
            v_n *= fits;
        }
        const double is_rare = square > squared(Limits<T>::longest_momentum) ? 1.0 : is_long ? 1.0 : 0.0;
        const double product = (on_x * v_x * xx + b * v_n * mm) * inside;
        return {a * inside, b * inside, v_x + v_n * (added - beta), v_n, product, is_rare};
    }
};

template <class T> struct Poincare {
    static constexpr bool orthogonal = false, sheet = false;

    // g = (gap/2)^2 h.
    static ALWAYS_INLINE double gradient(const Sums &s, double, double, double &p, double &q) {
        p = 0;
        q = squared(s.gap / 2);
        return q * s.vv;
    }

    template <bool decay, bool exact, bool>
    static ALWAYS_INLINE Move move(const Sums &s, double scale, const Numbers &k) {
        const double least = least_gap<T>();
        if (!decay) return along<exact>(least, k.c, k.keep, s.gap, scale, s);
        double kept_gap;
        const double keep = ball_decay(s, k.c, k.keep, kept_gap), ratio = kept_gap / s.gap;
        const Sums moved{s.xx, s.xv * ratio, s.vv * ratio * ratio, s.inverse, kept_gap};
        Move m = along<exact>(least, k.c, keep, kept_gap, scale, moved);
        m.b *= ratio;
        m.b_m *= ratio;
        return m;
    }

    // The geodesic, or the retraction proj(x + u).
    template <bool exact>
    static ALWAYS_INLINE Move along(double least, double c, double keep, double gap, double scale, const Sums &s) {
        return exact ? geodesic(least, c, keep, gap, scale, s) : retraction(least, c, keep, gap, scale, s);
    }
    // x (+) y with y = eta m, and gap'/gap gyr[x, y] m, from the point keep x. With q = c|x + y|^2 and D = q + g g_y:
    // x (+) y = ((g + q) x + g y) / D, its gap is g g_y / D, and
    // gyr[x, y] m = ((g + g_y - g g_y) m + c eta |m|^2 (q + g + g_y) x) / D.
    static ALWAYS_INLINE Move geodesic(double least, double c, double keep, double gap, double scale, const Sums &s) {
        scale /= gap;
        const double r = length(scale, c * s.vv, longest_step);
        double gap_y;
        const double eta = elementary::tanh(r, gap_y) / r * scale, q = c * norm2(keep, eta, s);
        const double product = gap * gap_y, gaps = gap + gap_y, denominator = q + product;
        const double new_gap = product / denominator, inside = pull(new_gap, least) / denominator;
        const double a = (gap + q) * keep * inside, b = gap * eta * inside;
        const double pulled = pull(1 - c * norm2(a, b, s), least);
        const double share = std::max(new_gap, least) / (gap * denominator);
        return {a * pulled, b * pulled, c * eta * s.vv * (q + gaps) * share * keep, (gaps - product) * share};
    }
    // x' = proj(x + u) and gap'/gap gyr[x', -x] m, with x' - x = e x + b m: see manifolds/sheet.py, gyrate.
    static ALWAYS_INLINE Move retraction(double least, double c, double keep, double gap, double scale, const Sums &s) {
        const double xx = keep * keep * s.xx, xm = keep * s.xv, mm = s.vv, square = c * norm2(keep, scale, s);
        const double inside = pull(1 - square, least);
        const double new_gap = std::max(1 - square * inside * inside, least / 2);
        const double e = inside - 1, b = scale * inside;
        const double ee = norm2(e * keep, b, s), xe = e * xx + b * xm, em = e * xm + b * mm;
        const double along_e = -c * gap * xm - c * c * (xx * em - 2 * xe * xm);
        const double along_x = c * gap * em - c * c * ee * xm;
        const double turn = 2 / (c * ee + gap * new_gap), ratio = new_gap / gap;
        return {keep * inside, b, keep * ratio * turn * (along_e * e + along_x), ratio * (1 + turn * along_e * b)};
    }
};

template <class T> struct Klein {
    static constexpr bool orthogonal = true, sheet = false;

    // g = gap (h - c <x, h> x), and <g, g>_x = gap |h_o|^2 + gap^2 <x, h>^2 / |x|^2 with h_o orthogonal to x.
    static ALWAYS_INLINE double gradient(const Sums &s, double, double c, double &p, double &q) {
        p = -c * s.gap * s.xv;
        q = s.gap;
        return s.gap * (s.vv + s.xv * s.xv * (s.gap * s.inverse));
    }

    // x' = x + f u on a straight line, so that the momentum keeps its direction and is multiplied by gap'/gap.
    template <bool decay, bool exact, bool>
    static ALWAYS_INLINE Move move(const Sums &s, double scale, const Numbers &k) {
        const double c = k.c, xx = s.xx, least = least_gap<T>();
        double gap = s.gap, keep = k.keep, radial = s.xv, mm = s.vv, beta = radial * s.inverse, root = 1, added = 0;
        if (decay) {
            double kept_gap;
            keep = ball_decay(s, c, k.keep, kept_gap);
            const double ratio = kept_gap / gap;
            gap = kept_gap;
            root = std::sqrt(ratio);
            added = (ratio - root) * beta;
            beta *= ratio;
            radial *= ratio;
            mm *= ratio;
        }
        const double n2 = mm / gap + radial * beta / (gap * gap);
        const double r = length(scale, c * n2, longest_step);
        double sech2;
        double f = elementary::tanh(r, sech2) / r * scale;
        const double denominator = 1 + f * (c * keep * radial / gap);
        f /= denominator;
        const double ratio = sech2 / (denominator * denominator), end_gap = gap * ratio, inside = pull(end_gap, least);
        const double on_x = keep + f * beta, over = std::max(f * f * mm + on_x * on_x * xx, tiny);
        double turned = keep * std::sqrt(end_gap) / (gap * over);
        double along = std::copysign(std::sqrt(std::max(n2 - turned * turned * over * mm * xx, 0.0)), scale);
        along *= least / std::sqrt(over);
        turned *= std::sqrt(least);
        const bool outside = end_gap < least;
        const double v_n = outside ? along * f + turned * xx * on_x : ratio;
        const double v_x = outside ? along * on_x - turned * mm * f : ratio * beta;
        return {(keep + f * added) * inside, f * inside * root, v_x + v_n * (added - beta), v_n * root};
    }
};

}  // namespace steps

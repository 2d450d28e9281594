// Riemannian Adam and SGD on the rows of a table, in one pass over it: see hyperbolic/kernels/adam.py.
//
// Blocks of rows stay in the first cache while their sums, the coefficients of their rows (vectorised across rows) and
// the combinations are made.
#include "geodesic_steps.h"
#include "rows.h"

using namespace steps;

namespace {

constexpr int rows_of_block = rows::of_block;
constexpr double huge_gradient = 1e100;

// Kept apart from fused multiplications: its sums need every rounding where it stands.
#if defined(__clang__)
#pragma clang fp contract(off)
#else
__attribute__((optimize("fp-contract=off")))
#endif
double compensated_gap(const double *x, int64_t size, double c) {  // 1 - c|x|^2, Ogita, Rump and Oishi 2005
    double sum = 0, lost = 0;
    for (int64_t i = 0; i < size; i++) {
        const double square = x[i] * x[i], next = sum + square, kept = next - sum;
        lost += (sum - (next - kept)) + (square - kept) + __builtin_fma(x[i], x[i], -square);
        sum = next;
    }
    return __builtin_fma(-c, sum, 1.0) - c * lost;
}

template <class T> struct Table {
    T *x;
    const T *grad;
    T *momentum, *square, *largest;
    const int64_t *index;  // rows of the table that the rows of grad belong to; null: all in order
    int64_t n, size;
};

template <class T> inline T narrow(double value) {
    constexpr double most = std::numeric_limits<T>::max();
    return T(std::min(std::max(value, -most), most));
}
// Gradients of float64 tables, or vectors of them, whose squares are finite.
template <class T, class Value> inline Value bounded(Value gradient) {
    if (sizeof(T) == 4) return gradient;
    gradient = gradient > huge_gradient ? Value{} + huge_gradient : gradient;
    return gradient < -huge_gradient ? Value{} - huge_gradient : gradient;
}

// Numbers of a block's rows, side by side.
struct Columns {
    double xx[rows_of_block], xv[rows_of_block], vv[rows_of_block], inverse[rows_of_block], gap[rows_of_block];
};

template <class T, template <class> class Model> struct Pass {
    static constexpr int start = Model<T>::sheet ? 1 : 0;
    static constexpr bool ball = !Model<T>::sheet, across = Model<T>::orthogonal && sizeof(T) == 8;
    const Table<T> &table;
    const Numbers k;
    const bool adam;
    const double max_time, max_space;  // of points of the hyperboloid that may not go further out
    Columns sums;
    double scale[rows_of_block], on_h[rows_of_block], on_x[rows_of_block];

    int64_t row(int64_t i) const { return table.index ? table.index[i] : i; }

    // Of a row i: |x|^2 and the gap.
    void set_square(int i, const T *x, double xx) {
        sums.xx[i] = xx;
        sums.inverse[i] = inverse_square(xx);
        if (!ball) return;
        double gap = 1 - k.c * xx;
        if constexpr (sizeof(T) == 8) gap = compensated_gap(x, table.size, k.c);
        sums.gap[i] = std::max(gap, Limits<T>::ball_eps / 4);
    }

    // Of a row i: <x, v> and the |v|^2 that belongs to it.
    void set_products(int i, const T *x, const T *v, double xv, double vv) {
        sums.xv[i] = xv;
        if (across) {
            const double part = xv * sums.inverse[i];
            rows::sums<1>(start, table.size, x, v, &vv, [=](auto one, auto other, auto *term) {
                const auto rest = bounded<T>(other) - part * one;
                term[0] = rest * rest;
            });
        } else if (Model<T>::orthogonal) {
            vv = std::max(vv - xv * (xv * sums.inverse[i]), 0.0);
        }
        sums.vv[i] = vv;
    }

    // What a row's step needs of its gradient h: the sums, the second moment, and the weights of h and x in m.
    void take_gradients(int64_t first, int count) {
        double times[rows_of_block], squares[rows_of_block];
        for (int i = 0; i < count; i++) {
            const T *x = table.x + row(first + i) * table.size, *h = table.grad + (first + i) * table.size;
            double sum[3];
            rows::sums<3>(start, table.size, x, h, sum, [](auto one, auto other, auto *term) {
                other = bounded<T>(other);
                term[0] = one * one, term[1] = one * other, term[2] = other * other;
            });
            set_square(i, x, sum[0]);
            set_products(i, x, h, sum[1], sum[2]);
            times[i] = start ? bounded<T>(double(h[0])) : 0;
        }
        constexpr double longest = Limits<T>::longest_gradient;
        const Numbers k = this->k;
#pragma omp simd
        for (int i = 0; i < count; i++) {
            double p, q;
            const double square = Model<T>::gradient(of_row(i), times[i], k.c, p, q);
            const double shrink = std::min(longest / std::sqrt(std::max(square, longest * longest)), 1.0);
            squares[i] = shrink * shrink * square;
            on_h[i] = q * shrink * k.share;
            on_x[i] = p * shrink * k.share;
        }
        if (adam) {
            for (int i = 0; i < count; i++) squares[i] = follow(row(first + i), squares[i]);
        }
#pragma omp simd
        for (int i = 0; i < count; i++) {
            scale[i] = adam ? -k.rate / (std::sqrt(squares[i] * k.correction) + k.eps) : -k.rate;
        }
    }

    ALWAYS_INLINE Sums of_row(int i) const {
        return {sums.xx[i], sums.xv[i], sums.vv[i], sums.inverse[i], ball ? sums.gap[i] : 0};
    }

    // The second moment of a row.
    double follow(int64_t r, double square) {
        double v = table.square[r];
        v += (square - v) * k.follow;
        table.square[r] = T(v);
        if (table.largest) {
            v = std::max(double(table.largest[r]), v);
            table.largest[r] = T(v);
        }
        return v;
    }

    // m <- beta m + on_h h + on_x x of a row i, and its sums.
    void add_gradient(int i, const T *x, const T *h, T *m) {
        const T beta = T(k.beta), of_h = narrow<T>(on_h[i]), of_x = narrow<T>(on_x[i]);
        const bool kept = table.momentum;
#pragma omp simd
        for (int64_t j = 0; j < table.size; j++) {
            const T value = (kept ? m[j] * beta : T(0)) + bounded<T>(h[j]) * of_h;
            m[j] = Model<T>::orthogonal ? value + x[j] * of_x : value;
        }
        double sum[2];
        rows::sums<2>(start, table.size, x, m, sum, [](auto one, auto other, auto *term) {
            other = bounded<T>(other);
            term[0] = one * other, term[1] = other * other;
        });
        set_products(i, x, m, sum[0], sum[1]);
    }

    template <bool decay, bool exact> void step(int64_t first, int count, T *none) {
        take_gradients(first, count);
        T *x[rows_of_block], *m[rows_of_block];
        for (int i = 0; i < count; i++) {
            x[i] = table.x + row(first + i) * table.size;
            m[i] = table.momentum ? table.momentum + row(first + i) * table.size : none + i * table.size;
            add_gradient(i, x[i], table.grad + (first + i) * table.size, m[i]);
        }
        double a[rows_of_block], b[rows_of_block], a_m[rows_of_block], b_m[rows_of_block], product[rows_of_block];
        const Numbers k = this->k;
#pragma omp simd
        for (int i = 0; i < count; i++) {
            const Move move = Model<T>::template move<decay, exact>(of_row(i), scale[i], k);
            a[i] = move.a, b[i] = move.b, a_m[i] = move.a_m, b_m[i] = move.b_m, product[i] = move.product;
        }
        for (int i = 0; i < count; i++) {
            apply(x[i], m[i], narrow<T>(a[i]), narrow<T>(b[i]), narrow<T>(a_m[i]), narrow<T>(b_m[i]));
        }
        if (Model<T>::sheet) set_times(x, m, product, count);
    }

    // x <- a x + b m and m <- a_m x + b_m m.
    void apply(T *x, T *m, T a, T b, T a_m, T b_m) const {
#pragma omp simd
        for (int64_t j = 0; j < table.size; j++) {
            const T point = x[j], vector = m[j];
            x[j] = point * a + vector * b;
            m[j] = vector * b_m + point * a_m;
        }
    }

    // Points of the hyperboloid end inside the largest radius, with the time coordinates that follow from the others.
    // Beyond max_time they are moved back along their geodesic from the origin: along the direction e of the space part,
    // <m, e> changes as the time coordinate does (Lorentz.shortened). product: <x, m> of space coordinates.
    void set_times(T *const *x, T *const *m, const double *product, int count) const {
        double inside[rows_of_block], added[rows_of_block], time[rows_of_block], time_m[rows_of_block];
        for (int i = 0; i < count; i++) {
            rows::sums<1>(1, table.size, x[i], x[i], &inside[i],
                          [](auto one, auto other, auto *term) { term[0] = one * other; });
        }
        const double root = std::sqrt(k.c), bound = k.bound, c = k.c, farthest = max_time, longest = max_space;
#pragma omp simd
        for (int i = 0; i < count; i++) {
            const double pull = std::sqrt(bound / std::max(inside[i], bound)), norm2 = inside[i] * pull * pull;
            const double t = std::sqrt(1 / c + norm2), over = 1 / std::max(norm2, tiny);
            const bool far = norm2 > longest * longest;
            const double rate = product[i] / (root * t);  // of <m, e> |x|, by arc length
            inside[i] = far ? longest * std::sqrt(over) * pull : pull;
            added[i] = far ? (rate * root * farthest - product[i]) * over * pull : 0.0;
            time[i] = far ? farthest : t;
            time_m[i] = far ? rate * root * longest * std::sqrt(over) : product[i] / t;
        }
        for (int i = 0; i < count; i++) {
            if (added[i] != 0 || inside[i] != 1) shorten(x[i], m[i], T(inside[i]), T(added[i]));
            x[i][0] = T(time[i]);
            m[i][0] = narrow<T>(time_m[i]);
        }
    }

    void shorten(T *x, T *m, T inside, T added) const {  // the time coordinates, too: they are set afterwards
#pragma omp simd
        for (int64_t j = 0; j < table.size; j++) {
            m[j] += x[j] * added;
            x[j] *= inside;
        }
    }
};

template <class T, template <class> class Model>
void run(const Table<T> &table, const Numbers &k, bool adam, bool decay, bool exact, double max_time, double max_space,
         int threads) {
    using Kind = Pass<T, Model>;
    const auto step = decay ? (exact ? &Kind::template step<true, true> : &Kind::template step<true, false>)
                            : (exact ? &Kind::template step<false, true> : &Kind::template step<false, false>);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        Kind pass{table, k, adam, max_time, max_space, {}, {}, {}, {}};
        T *none = table.momentum ? nullptr : new T[rows_of_block * table.size];
#pragma omp for schedule(static)
        for (int64_t first = 0; first < table.n; first += rows_of_block) {
            (pass.*step)(first, rows::in_block(first, table.n), none);
        }
        delete[] none;
    }
}

}  // namespace

#define EXPORT(T, Model)                                                                                               \
    extern "C" void step_##Model##_##T(T *x, const T *grad, T *momentum, T *square, T *largest, const int64_t *index,  \
                                       int64_t n, int64_t size, const double *numbers, int adam, int decay, int exact, \
                                       double max_time, double max_space, int threads) {                               \
        const Numbers k{numbers[0], numbers[1], numbers[2], numbers[3],                                                \
                        numbers[4], numbers[5], numbers[6], numbers[7],                                                \
                        squared(std::sinh(Limits<T>::sheet_radius)) / numbers[0]};                                     \
        run<T, Model>({x, grad, momentum, square, largest, index, n, size}, k, adam, decay, exact, max_time, max_space, \
                      threads);                                                                                        \
    }

EXPORT(float, Lorentz)
EXPORT(double, Lorentz)
EXPORT(float, Poincare)
EXPORT(double, Poincare)
EXPORT(float, Klein)
EXPORT(double, Klein)

// Riemannian Adam and SGD on the rows of a table, in one pass over it: see hyperbolic/kernels/adam.py.
//
// Blocks of rows stay in the first cache while their sums, the coefficients of their rows (vectorised across rows) and
// the combinations are made.
#include "geodesic_steps.h"

using namespace steps;

namespace {

constexpr int rows_of_block = 32;
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
template <class T> inline T bounded(T gradient) {
    if (sizeof(T) == 4) return gradient;
    return std::min(std::max(gradient, T(-huge_gradient)), T(huge_gradient));
}

template <class T, template <class> class Model> struct Pass {
    static constexpr int start = Model<T>::sheet ? 1 : 0;
    static constexpr bool ball = !Model<T>::sheet, across = Model<T>::orthogonal && sizeof(T) == 8;
    const Table<T> &table;
    const Numbers &k;
    const bool adam;
    const double max_time, max_space;  // of points of the hyperboloid that may not go further out
    Sums sums[rows_of_block];
    double scale[rows_of_block];
    T on_h[rows_of_block], on_x[rows_of_block];

    int64_t row(int64_t i) const { return table.index ? table.index[i] : i; }

    void sum_products(Sums &s, const T *x, const T *v) const {
        double xv = 0, vv = 0;
#pragma omp simd reduction(+ : xv, vv)
        for (int64_t j = start; j < table.size; j++) {
            const double one = x[j], other = bounded(v[j]);
            xv += one * other;
            vv += other * other;
        }
        s.xv = xv;
        s.vv = Model<T>::orthogonal && !across ? std::max(vv - xv * (xv * s.inverse), 0.0) : vv;
        if (!across) return;
        const double part = xv * s.inverse;
        vv = 0;
#pragma omp simd reduction(+ : vv)
        for (int64_t j = start; j < table.size; j++) vv += squared(bounded(v[j]) - part * x[j]);
        s.vv = vv;
    }

    double square_of(const T *x) const {
        double xx = 0;
#pragma omp simd reduction(+ : xx)
        for (int64_t j = start; j < table.size; j++) xx += double(x[j]) * double(x[j]);
        return xx;
    }

    double gap_of(const T *x, double xx) const {
        double gap = 1 - k.c * xx;
        if constexpr (sizeof(T) == 8) gap = compensated_gap(x, table.size, k.c);
        return std::max(gap, Limits<T>::ball_eps / 4);
    }

    void take_gradients(int64_t first, int count) {
        double times[rows_of_block];
        for (int i = 0; i < count; i++) {
            const T *x = table.x + row(first + i) * table.size, *h = table.grad + (first + i) * table.size;
            sums[i].xx = square_of(x);
            sums[i].inverse = inverse_square(sums[i].xx);
            if (ball) sums[i].gap = gap_of(x, sums[i].xx);
            sum_products(sums[i], x, h);
            times[i] = Model<T>::sheet ? double(bounded(h[0])) : 0;
        }
        for (int i = 0; i < count; i++) {
            double p, q;
            const double length2 = Model<T>::gradient(sums[i], times[i], k.c, p, q);
            constexpr double longest = Limits<T>::longest_gradient;
            const double shrink = std::min(longest / std::sqrt(std::max(length2, longest * longest)), 1.0);
            scale[i] = adam ? follow(row(first + i), shrink * shrink * length2) : -k.rate;
            on_h[i] = narrow<T>(q * shrink * k.share);
            on_x[i] = narrow<T>(p * shrink * k.share);
        }
    }

    // The second moment of a row, and the weight of its momentum in the step.
    double follow(int64_t r, double length2) {
        double v = table.square[r];
        v += (length2 - v) * k.follow;
        table.square[r] = T(v);
        if (table.largest) {
            v = std::max(double(table.largest[r]), v);
            table.largest[r] = T(v);
        }
        return -k.rate / (std::sqrt(v * k.correction) + k.eps);
    }

    template <bool decay, bool exact> void step(int64_t first, int count, T *none) {
        take_gradients(first, count);
        const T beta = T(k.beta);
        for (int i = 0; i < count; i++) {
            const int64_t r = row(first + i);
            const T *x = table.x + r * table.size, *h = table.grad + (first + i) * table.size;
            T *m = table.momentum ? table.momentum + r * table.size : none + i * table.size;
            const T of_h = on_h[i], of_x = on_x[i];
#pragma omp simd
            for (int64_t j = 0; j < table.size; j++) {
                T value = (table.momentum ? m[j] * beta : T(0)) + bounded(h[j]) * of_h;
                m[j] = Model<T>::orthogonal ? value + x[j] * of_x : value;
            }
            sum_products(sums[i], x, m);
        }
        Move moves[rows_of_block];
#pragma omp simd
        for (int i = 0; i < count; i++) moves[i] = Model<T>::template move<decay, exact>(sums[i], scale[i], k);
        for (int i = 0; i < count; i++) {
            const int64_t r = row(first + i);
            T *m = table.momentum ? table.momentum + r * table.size : none + i * table.size;
            apply(table.x + r * table.size, m, moves[i]);
        }
    }

    void apply(T *x, T *m, const Move &move) const {
        const T a = narrow<T>(move.a), b = narrow<T>(move.b), a_m = narrow<T>(move.a_m), b_m = narrow<T>(move.b_m);
#pragma omp simd
        for (int64_t j = 0; j < table.size; j++) {
            const T point = x[j], vector = m[j];
            x[j] = point * a + vector * b;
            m[j] = vector * b_m + point * a_m;
        }
        if (Model<T>::sheet) set_times(x, m, double(narrow<T>(move.product)));
    }

    // Points of the hyperboloid end inside the largest radius, with the time coordinates that follow from the others.
    void set_times(T *x, T *m, double product) const {
        const double square = square_of(x), inside = std::sqrt(k.bound / std::max(square, k.bound));
        const double time = std::sqrt(1 / k.c + square * inside * inside);
        if (inside < 1)
            for (int64_t j = 1; j < table.size; j++) x[j] *= T(inside);
        x[0] = T(time);
        m[0] = T(product / time);
        if (x[0] > max_time) shorten(x, m);
    }

    // Along the direction e of the space part, <m, e> changes as the time coordinate does (Lorentz.shortened).
    void shorten(T *x, T *m) const {
        const double norm = std::sqrt(square_of(x)), root = std::sqrt(k.c);
        double along = 0;
        for (int64_t j = 1; j < table.size; j++) along += double(m[j]) * x[j] / norm;
        const double rate = along / std::sqrt(k.c * norm * norm + 1);
        for (int64_t j = 1; j < table.size; j++) {
            const double e = x[j] / norm;
            m[j] = narrow<T>(m[j] + (rate * root * max_time - along) * e);
            x[j] = T(max_space * e);
        }
        m[0] = narrow<T>(rate * root * max_space);
        x[0] = T(max_time);
    }
};

template <class T, template <class> class Model>
void run(const Table<T> &table, const Numbers &k, bool adam, bool decay, bool exact, double max_time, double max_space,
         int threads) {
    const int64_t blocks = (table.n + rows_of_block - 1) / rows_of_block;
    using Kind = Pass<T, Model>;
    const auto step = decay ? (exact ? &Kind::template step<true, true> : &Kind::template step<true, false>)
                            : (exact ? &Kind::template step<false, true> : &Kind::template step<false, false>);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        Kind pass{table, k, adam, max_time, max_space, {}, {}, {}, {}};
        T *none = table.momentum ? nullptr : new T[rows_of_block * table.size];
#pragma omp for schedule(static)
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t first = block * rows_of_block;
            (pass.*step)(first, int(std::min<int64_t>(rows_of_block, table.n - first)), none);
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

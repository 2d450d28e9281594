// Riemannian Adam, Adagrad and SGD on the rows of a table, in one pass over it: see plain.py.
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
        const double square = x[i] * x[i], next = sum + square, rounded = next - sum;
        lost += (sum - (next - rounded)) + (square - rounded) + __builtin_fma(x[i], x[i], -square);
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

// Weights of the new rows: m <- beta m + h h + x x, then x <- a x + b m and m <- a_m x + b_m m.
template <class T> struct Weights {
    T beta, h, x, a, b, a_m, b_m;
};

template <class T, template <class> class Model> struct Pass {
    static constexpr int start = Model<T>::sheet ? 1 : 0, lanes = rows::vector_bytes / sizeof(T);
    static constexpr bool ball = !Model<T>::sheet, orthogonal = Model<T>::orthogonal;
    static constexpr bool across = orthogonal && sizeof(T) == 8;  // see take_rests
    // The sums of m are taken of its new rows, not made of those of h and the old rows: near the boundary of a ball, and
    // in float64, it matters how the new rows were rounded.
    static constexpr bool afterwards = sizeof(T) == 8 || ball;
    const Table<T> &table;
    const Numbers k;
    const double max_time;  // of points at the largest radius of the group; infinite where it has none
    T *const none;          // momenta of a block, where the table has none
    const double beta = table.momentum ? k.beta : 0;
    T *x[rows_of_block], *m[rows_of_block];
    const T *h[rows_of_block];
    rows::Numbers xx, inverse, gap, xh, hh, xm, hm, mm;  // sums of rows; hh and mm as Sums has vv
    rows::Numbers scale, on_h, on_x;                     // of the step, and weights of h and x in m
    rows::Numbers a, b, a_m, b_m, product;               // of the new rows, see Move

    ALWAYS_INLINE Sums of_row(int i, double xv, double vv) const {
        return {xx[i], xv, vv, inverse[i], ball ? gap[i] : 0};
    }

    int64_t row(int64_t i) const { return table.index ? table.index[i] : i; }

    void find(int64_t first, int count) {
        for (int i = 0; i < count; i++) {
            const int64_t at = row(first + i) * table.size;
            x[i] = table.x + at, h[i] = table.grad + (first + i) * table.size;
            m[i] = table.momentum ? table.momentum + at : none + i * table.size;
        }
    }

    // Has a row of the next block fetched while this one is written.
    ALWAYS_INLINE void ask(int64_t i) const {
        if (i >= table.n) return;
        const int64_t at = row(i) * table.size;
        rows::ask(table.x + at, table.size);
        rows::ask(table.grad + i * table.size, table.size);
        if (table.momentum) rows::ask(table.momentum + at, table.size);
    }

    // The sums over rows that need no new momenta.
    void add_up(int count) {
        for (int i = 0; i < count; i++) {
            double sum[6];
            if constexpr (afterwards) {
                rows::sums<3>(start, table.size, sum, [](auto *to, auto x, auto h) {
                    h = bounded<T>(h);
                    to[0] = x * x, to[1] = x * h, to[2] = h * h;
                }, x[i], h[i]);
                if constexpr (ball && sizeof(T) == 8) gap[i] = compensated_gap(x[i], table.size, k.c);
            } else {
                rows::sums<6>(start, table.size, sum, [](auto *to, auto x, auto h, auto m) {
                    to[0] = x * x, to[1] = x * h, to[2] = h * h, to[3] = x * m, to[4] = h * m, to[5] = m * m;
                }, x[i], h[i], table.momentum ? m[i] : h[i]);
                xm[i] = sum[3], hm[i] = sum[4], mm[i] = sum[5];
            }
            xx[i] = sum[0], xh[i] = sum[1], hh[i] = sum[2];
        }
        const double c = k.c;
#pragma omp simd
        for (int i = 0; i < count; i++) {
            inverse[i] = inverse_square(xx[i]);
            gap[i] = std::max(sizeof(T) == 8 ? gap[i] : 1 - c * xx[i], Limits<T>::ball_eps / 4);
        }
        if (!orthogonal) return;
        if (across) return take_rests(h, xh, hh, count);
        if constexpr (!afterwards) {
#pragma omp simd
            for (int i = 0; i < count; i++) hm[i] -= xm[i] * (xh[i] * inverse[i]);
            subtract_parallel(xm, mm, count);
        }
        subtract_parallel(xh, hh, count);
    }

    void subtract_parallel(const double *xv, double *vv, int count) const {
#pragma omp simd
        for (int i = 0; i < count; i++) vv[i] = std::max(vv[i] - xv[i] * (xv[i] * inverse[i]), 0.0);
    }

    // |v|^2 of the parts orthogonal to x, formed before they are squared.
    void take_rests(const T *const *v, const double *xv, double *vv, int count) const {
        for (int i = 0; i < count; i++) {
            const double part = xv[i] * inverse[i];
            rows::sums<1>(start, table.size, vv + i, [=](auto *to, auto x, auto v) {
                const auto rest = bounded<T>(v) - part * x;
                to[0] = rest * rest;
            }, x[i], v[i]);
        }
    }

    // The second moments, and what follows from them and the gradients.
    void take_gradients(int64_t first, int count) {
        rows::Numbers times, squares;
        for (int i = 0; i < count; i++) times[i] = start ? bounded<T>(double(h[i][0])) : 0;
        constexpr double longest = Limits<T>::longest_gradient;
        const Numbers k = this->k;
        double largest = 0;
#pragma omp simd reduction(max : largest)
        for (int i = 0; i < count; i++) {
            squares[i] = Model<T>::gradient(of_row(i, xh[i], hh[i]), times[i], k.c, on_x[i], on_h[i]);
            largest = std::max(largest, squares[i]);
        }
        for (int i = 0; i < count && largest > longest * longest; i++) {
            const double shrink = std::min(longest / std::sqrt(squares[i]), 1.0);
            squares[i] *= shrink * shrink;
            on_h[i] *= shrink;
            on_x[i] *= shrink;
        }
#pragma omp simd
        for (int i = 0; i < count; i++) {
            on_h[i] = narrow<T>(on_h[i] * k.share);
            on_x[i] = narrow<T>(on_x[i] * k.share);
        }
        if (table.square) {
            for (int i = 0; i < count; i++) squares[i] = follow(row(first + i), squares[i]);
        }
#pragma omp simd
        for (int i = 0; i < count; i++) {
            scale[i] = table.square ? -k.rate / (std::sqrt(squares[i] * k.correction) + k.eps) : -k.rate;
        }
    }

    // The second moment of a row.
    double follow(int64_t r, double square) {
        double v = table.square[r];
        v = k.retain * v + k.follow * square;
        table.square[r] = T(v);
        if (table.largest) {
            v = std::max(v, double(table.largest[r]));  // in this order a v that is no number stays
            table.largest[r] = T(v);
        }
        return v;
    }

    // Sums of the momenta with the gradients in them.
    void renew_momenta(int count) {
        if constexpr (afterwards) {
            for (int i = 0; i < count; i++) {
                add_gradient(i);
                double sum[2];
                rows::sums<2>(start, table.size, sum, [](auto *to, auto x, auto m) {
                    m = bounded<T>(m);
                    to[0] = x * m, to[1] = m * m;
                }, x[i], m[i]);
                xm[i] = sum[0], mm[i] = sum[1];
            }
            if (across) take_rests(m, xm, mm, count);
            else if (orthogonal) subtract_parallel(xm, mm, count);
        } else {
            const double beta = T(this->beta);
#pragma omp simd
            for (int i = 0; i < count; i++) {
                xm[i] = beta * xm[i] + on_h[i] * xh[i] + on_x[i] * xx[i];
                mm[i] = std::max(beta * (beta * mm[i] + 2 * on_h[i] * hm[i]) + on_h[i] * on_h[i] * hh[i], 0.0);
            }
        }
    }

    // m <- beta m + on_h h + on_x x of a row i.
    void add_gradient(int i) {
        const T beta = T(this->beta), h_share = T(on_h[i]), x_share = T(on_x[i]), *x = this->x[i], *h = this->h[i];
        const bool has_momentum = table.momentum;
        T *m = this->m[i];
#pragma omp simd
        for (int64_t j = 0; j < table.size; j++) {
            const T value = (has_momentum ? m[j] * beta : T(0)) + bounded<T>(h[j]) * h_share;
            m[j] = orthogonal ? value + x[j] * x_share : value;
        }
    }

    // The weights of the new rows; whether some of them need what is rare.
    template <bool decay, bool exact, bool rare> bool find_moves(int count) {
        const Numbers k = this->k;
        double needed = 0;
#pragma omp simd reduction(max : needed)
        for (int i = 0; i < count; i++) {
            const Move move = Model<T>::template move<decay, exact, rare>(of_row(i, xm[i], mm[i]), scale[i], k);
            a[i] = narrow<T>(move.a), b[i] = narrow<T>(move.b), product[i] = move.product;
            a_m[i] = narrow<T>(move.a_m), b_m[i] = narrow<T>(move.b_m);
            needed = std::max(needed, move.is_rare);
        }
        return needed > 0;
    }

    template <bool decay, bool exact> void step(int64_t first, int count) {
        find(first, count);
        add_up(count);
        take_gradients(first, count);
        renew_momenta(count);
        if (find_moves<decay, exact, false>(count)) find_moves<decay, exact, true>(count);
        for (int i = 0; i < count; i++) {
            ask(first + rows_of_block + i);
            xx[i] = write(i, {T(beta), T(on_h[i]), T(on_x[i]), T(a[i]), T(b[i]), T(a_m[i]), T(b_m[i])});
        }
        if (Model<T>::sheet)
            set_times(count);
        else
            pull_inside(count);
    }

    // Writes a row and its momentum; |x|^2 of what was written. The last numbers are read before they are, with those
    // that fill the lanes, which are written twice.
    double write(int i, const Weights<T> &w) const {
        T *x = this->x[i], *m = this->m[i];
        const T *h = this->h[i], *from = afterwards || table.momentum ? m : h;
        const int64_t size = table.size, last = size - lanes;
        const auto renew = [=](auto &x, auto &m, auto h) {
            const auto point = x;
            if constexpr (!afterwards) m = m * w.beta + h * w.h + point * w.x;
            x = point * w.a + m * w.b;
            m = m * w.b_m + point * w.a_m;
        };
        int64_t j = start;
        if (last < start) {
            double sum = 0;
            for (; j < size; j++) {
                T one = x[j], other = from[j];
                renew(one, other, h[j]);
                x[j] = one, m[j] = other;
                sum += double(one) * double(one);
            }
            return sum;
        }
        using Pack = rows::Pack<T>;
        Pack last_x = rows::get(x + last), last_m = rows::get(from + last);
        renew(last_x, last_m, rows::get(h + last));
        rows::Wide sum = {};
        for (; j < last; j += lanes) {
            Pack one = rows::get(x + j), other = rows::get(from + j);
            renew(one, other, rows::get(h + j));
            rows::put<T>(one, x + j);
            rows::put<T>(other, m + j);
            sum += rows::squares(one);
        }
        rows::put<T>(last_x, x + last);
        rows::put<T>(last_m, m + last);
        return rows::total(sum + rows::squares(rows::from_lane<T>(int(j - last), last_x)));
    }

    // What rounding left beyond the margin of the boundary: long steps back through the origin are differences of long
    // vectors. xx is that of the rows written.
    void pull_inside(int count) {
        const double most = (1 - least_gap<T>()) / k.c;
        for (int i = 0; i < count; i++) {
            if (!(xx[i] > most * (1 + 8 * std::numeric_limits<T>::epsilon()))) continue;
            rows::scale(T(std::sqrt(most / xx[i])), x[i], x[i], table.size);
        }
    }

    // Time coordinates that follow from the others. What rounding left beyond the largest radius is pulled inside.
    // xx is that of the rows written.
    void set_times(int count) {
        rows::Numbers time, time_m;
        const double c = k.c, farthest = max_time;
        for (int i = 0; i < count; i++) {
            if (!(xx[i] > k.bound * (1 + 8 * std::numeric_limits<T>::epsilon()))) continue;
            const double pull = std::sqrt(k.bound / xx[i]);
            rows::scale(T(pull), x[i], x[i], table.size);
            xx[i] = k.bound;
        }
#pragma omp simd
        for (int i = 0; i < count; i++) {
            time[i] = std::min(std::sqrt(1 / c + xx[i]), farthest);
            time_m[i] = product[i] / time[i];
        }
        for (int i = 0; i < count; i++) {
            x[i][0] = T(time[i]);
            m[i][0] = narrow<T>(time_m[i]);
        }
    }
};

template <class T, template <class> class Model>
void run(const Table<T> &table, const Numbers &k, bool decay, bool exact, double max_time, int threads) {
    using Kind = Pass<T, Model>;
    const auto step = decay ? (exact ? &Kind::template step<true, true> : &Kind::template step<true, false>)
                            : (exact ? &Kind::template step<false, true> : &Kind::template step<false, false>);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        T *none = table.momentum ? nullptr : new T[rows_of_block * table.size];
        Kind pass{table, k, max_time, none};
#pragma omp for schedule(static)
        for (int64_t first = 0; first < table.n; first += rows_of_block) {
            (pass.*step)(first, rows::in_block(first, table.n));
        }
        delete[] none;
    }
}

}  // namespace

#define EXPORT(T, Model)                                                                                               \
    extern "C" void step_##Model##_##T(T *x, const T *grad, T *momentum, T *square, T *largest, const int64_t *index,  \
                                       int64_t n, int64_t size, const double *numbers, int decay, int exact,           \
                                       double max_time, double max_space, int threads) {                               \
        const double c = numbers[0], space = std::min(max_space, std::sinh(Limits<T>::sheet_radius) / std::sqrt(c));   \
        const Numbers k{c,          numbers[1], numbers[2], numbers[3], numbers[4],                                    \
                        numbers[5], numbers[6], numbers[7], numbers[8], space * space};                                \
        run<T, Model>({x, grad, momentum, square, largest, index, n, size}, k, decay, exact, max_time,                 \
                      rows::worth(n * size / 2, threads)); /* less to do than elsewhere */                             \
    }

EXPORT(float, Lorentz)
EXPORT(double, Lorentz)
EXPORT(float, Poincare)
EXPORT(double, Poincare)
EXPORT(float, Klein)
EXPORT(double, Klein)

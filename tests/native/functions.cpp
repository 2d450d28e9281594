// The functions of elementary.h on arrays, for the tests of their errors.
#include "elementary.h"

namespace {
// Of functions with a second result: the first and the second.
template <class T, T (*f)(T, T &)> T first(T x) {
    T other;
    return f(x, other);
}
template <class T, T (*f)(T, T &)> T second(T x) {
    T other;
    f(x, other);
    return other;
}
template <class T> T only_tanh(T x) { return first<T, elementary::tanh<T>>(x); }
template <class T> T only_sech2(T x) { return second<T, elementary::tanh<T>>(x); }
template <class T> T only_sinhc(T z) { return first<T, elementary::sinhc<T>>(z); }
template <class T> T only_short_cosh(T z) { return second<T, elementary::sinhc<T>>(z); }
template <class T> T only_sinh(T x) { return first<T, elementary::sinh<T>>(x); }
template <class T> T only_cosh(T x) { return second<T, elementary::sinh<T>>(x); }
template <class T> T only_arsinh(T z) { return first<T, elementary::arsinh<T>>(z); }
template <class T> T only_root(T z) { return second<T, elementary::arsinh<T>>(z); }
template <class T, T (*f)(T)> void apply(const T *x, T *y, int64_t n, int threads) {
#pragma omp parallel for simd num_threads(threads) if (parallel : threads > 1)
    for (int64_t i = 0; i < n; i++) y[i] = f(x[i]);
}
}  // namespace

#define EXPORT(name, f)                                                                                                \
    extern "C" void name##_float(const float *x, float *y, int64_t n, int threads) {                                   \
        apply<float, f<float>>(x, y, n, threads);                                                                      \
    }                                                                                                                  \
    extern "C" void name##_double(const double *x, double *y, int64_t n, int threads) {                                \
        apply<double, f<double>>(x, y, n, threads);                                                                    \
    }

EXPORT(exp, elementary::exp)
EXPORT(log, elementary::log)
EXPORT(log1p, elementary::log1p)
EXPORT(arsinh, only_arsinh)
EXPORT(root, only_root)
EXPORT(sinh, only_sinh)
EXPORT(cosh, only_cosh)
EXPORT(sigmoid, elementary::sigmoid)
EXPORT(tanh, only_tanh)
EXPORT(sech2, only_sech2)
EXPORT(short_sinhc, only_sinhc)
EXPORT(short_cosh, only_short_cosh)

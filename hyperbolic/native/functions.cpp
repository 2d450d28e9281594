// The functions of elementary.h on arrays, for the tests of their errors.
#include "elementary.h"

namespace {
template <class T> T with_sech(T x) {
    T sech2;
    return elementary::tanh(x, sech2);
}
template <class T> T only_sech(T x) {
    T sech2;
    elementary::tanh(x, sech2);
    return sech2;
}
template <class T> T short_sinhc(T z) {
    T cosh;
    return elementary::sinhc(z, cosh);
}
template <class T> T short_cosh(T z) {
    T cosh;
    elementary::sinhc(z, cosh);
    return cosh;
}
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
EXPORT(expm1, elementary::expm1)
EXPORT(log, elementary::log)
EXPORT(log1p, elementary::log1p)
EXPORT(asinh, elementary::asinh)
EXPORT(cosh, elementary::cosh)
EXPORT(sinh, elementary::sinh)
EXPORT(sigmoid, elementary::sigmoid)
EXPORT(tanh, with_sech)
EXPORT(sech2, only_sech)
EXPORT(short_sinhc, short_sinhc)
EXPORT(short_cosh, short_cosh)

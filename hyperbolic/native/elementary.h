// Elementary functions without branches and calls, which compilers turn into vector instructions.
//
// T is float or double. tests/native/test_functions.py measures the errors: at most 3 units in the last place.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace elementary {

template <class T> struct Format;
template <> struct Format<float> {
    using Int = int32_t;
    static constexpr int fraction = 23, bias = 127;
    static constexpr float round = 12582912.f;  // 1.5 * 2^23: what is added to it is rounded to whole numbers
    static constexpr float ln2_high = 0x1.62ep-1f, ln2_low = 0x1.0bfbe8p-15f;
    static constexpr float lowest = -87.3f, highest = 88.3f;  // arguments of exp with normal, finite results
    static constexpr Int root_half = 0x3f3504f3;              // bits of sqrt(1/2)
    static constexpr int exp_terms = 8, log_terms = 5;
};
template <> struct Format<double> {
    using Int = int64_t;
    static constexpr int fraction = 52, bias = 1023;
    static constexpr double round = 6755399441055744.0;
    static constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    static constexpr double lowest = -708.0, highest = 709.0;
    static constexpr Int root_half = 0x3fe6a09e667f3bcd;
    static constexpr int exp_terms = 14, log_terms = 11;
};

// 1/k!
constexpr double inverse_factorial[] = {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040,
    1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200};

// With x = n ln 2 + r and |r| <= ln(2)/2: e^r - 1 by its series, and 2^n.
template <class T> inline T reduced(T x, T &power) {
    using F = Format<T>;
    using Int = typename F::Int;
    x = x < F::lowest ? F::lowest : x;
    x = x > F::highest ? F::highest : x;
    const T shifted = x * T(1.44269504088896340736) + F::round;
    const T n = shifted - F::round;
    const T r = (x - n * F::ln2_high) - n * F::ln2_low;
    T p = T(inverse_factorial[F::exp_terms]);
#pragma GCC unroll 16
    for (int k = F::exp_terms - 1; k >= 2; k--) p = p * r + T(inverse_factorial[k]);
    const Int exponent = __builtin_bit_cast(Int, shifted) - __builtin_bit_cast(Int, F::round);
    power = __builtin_bit_cast(T, std::make_unsigned_t<Int>(exponent + F::bias) << F::fraction);
    return r * r * p + r;
}

// e^x, for x outside of the range of normal numbers at its end.
template <class T> inline T exp(T x) {
    T power;
    const T r = reduced(x, power);
    return power * r + power;
}

// log(x) of normal positive x.
template <class T> inline T log(T x) {
    using F = Format<T>;
    using Int = typename F::Int;
    const Int shifted = __builtin_bit_cast(Int, x) - F::root_half;
    const T e = T(shifted >> F::fraction);
    const T f = __builtin_bit_cast(T, Int((shifted & ((Int(1) << F::fraction) - 1)) + F::root_half)) - T(1);
    const T s = f / (T(2) + f), z = s * s;  // log(1 + f) = 2 artanh(s) = f - f^2/2 + s (f^2/2 + 2 (z/3 + z^2/5 + ...))
    T p = T(2) / T(2 * F::log_terms + 1);
#pragma GCC unroll 16
    for (int k = F::log_terms - 1; k >= 1; k--) p = p * z + T(2) / T(2 * k + 1);
    const T half = T(0.5) * f * f;
    return e * F::ln2_high - ((half - (s * (half + z * p) + e * F::ln2_low)) - f);
}

// log(1 + x) for x >= 0, with full relative accuracy near 0.
template <class T> inline T log1p(T x) {
    const T u = T(1) + x;
    const T lost = x - (u - T(1));  // exact for x <= 1; beyond, what is lost does not matter
    return log(u) + lost / u;
}

// tanh(x) and 1/cosh(x)^2 with full relative accuracy, for x >= 0.
template <class T> inline T tanh(T x, T &sech2) {
    T power;
    const T r = reduced(T(-2) * x, power);
    const T e = power * r + power, below = power * r + (power - T(1)), sum = T(1) + e;  // e^-2x, e^-2x - 1
    sech2 = T(4) * e / (sum * sum);
    return -below / sum;
}

// sinh(x) with full relative accuracy near 0 and cosh(x), for x >= 0.
template <class T> inline T sinh(T x, T &cosh) {
    T power;
    const T r = reduced(x, power);
    const T e = power * r + power, above = power * r + (power - T(1)), inverse = T(1) / e;  // e^x, e^x - 1
    cosh = T(0.5) * (e + inverse);
    return T(0.5) * (above + above * inverse);
}

// sinh(x) / x and cosh(x) of z = x^2 up to short_square, by their series.
constexpr double short_square = 0.25;
template <class T> inline T sinhc(T z, T &cosh) {
    T odd = T(inverse_factorial[13]), even = T(inverse_factorial[14]);
#pragma GCC unroll 8
    for (int k = 12; k >= 2; k -= 2) {
        odd = odd * z + T(inverse_factorial[k - 1]);
        even = even * z + T(inverse_factorial[k]);
    }
    cosh = even * z + T(1);
    return odd;
}

// arsinh(z) = sign(z) log(|z| + root) and root = sqrt(1 + z^2), the inverse of its slope; beyond half the largest number
// arsinh of that, and where z^2 overflows, the root is that of the largest number. For |z| < 1 what rounding took from
// the sum and from the root, (1 + z^2 - root^2) / (2 root), is put back, times the slope of the logarithm,
// 1 / (|z| + root) = root - |z|. Infinities and NaN stay what they are.
template <class T> inline T arsinh(T z, T &root) {
    constexpr T largest = std::numeric_limits<T>::max();
    const T a = std::fabs(z), square = T(1) + a * a;
    root = std::sqrt(square < largest ? square : largest);
    const T rest = a > root ? a : root, sum = rest + a;
    const T lost = (a - (sum - rest)) + T(0.5) * std::fma(a, a, std::fma(-root, root, T(1)));
    const T value = std::copysign(log(sum) + (a >= T(1) ? T(0) : lost * (root - a)), z);
    root = a <= largest ? root : a;
    return a <= largest ? value : z;
}

// 1 / (1 + e^-x).
template <class T> inline T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }

}  // namespace elementary

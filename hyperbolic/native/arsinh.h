// arsinh(z) together with sqrt(1 + z^2), the inverse of its slope.
#pragma once
#include <limits>

#include "elementary.h"

namespace elementary {

// arsinh(z) = sign(z) log(|z| + root), beyond half the largest number that of it; where z^2 overflows, the root is that
// of the largest number. For |z| < 1 what rounding took from the sum and from the root, (1 + z^2 - root^2) / (2 root),
// is put back, times the slope of the logarithm, 1 / (|z| + root) = root - |z|.
template <class T> inline T arsinh(T z, T &root) {
    constexpr T largest = std::numeric_limits<T>::max();
    const T a = std::fabs(z), square = T(1) + a * a;
    root = std::sqrt(square < largest ? square : largest);
    const T rest = a > root ? a : root, sum = rest + a;
    const T lost = (a - (sum - rest)) + T(0.5) * std::fma(a, a, std::fma(-root, root, T(1)));
    return std::copysign(log(sum) + (a >= T(1) ? T(0) : lost * (root - a)), z);
}

}  // namespace elementary

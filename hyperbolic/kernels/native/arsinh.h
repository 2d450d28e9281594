// arsinh(z) together with sqrt(1 + z^2), the slope of which it is the inverse.
#pragma once
#include <limits>

#include "elementary.h"

namespace elementary {

// arsinh(z) = sign(z) log(1 + u), u = |z| + z^2 / (1 + root); where z^2 overflows, the root is that of the largest
// number. For |z| < 1 what is lost in 1 + u is put back: 1 / (1 + u) = root - |z|.
template <class T> inline T arsinh(T z, T &root) {
    constexpr T largest = std::numeric_limits<T>::max();
    const T a = std::fabs(z), square = T(1) + a * a;
    root = std::sqrt(square < largest ? square : largest);
    const T part = a / (T(1) + root);
    const T u = a + a * (part < T(1) ? part : T(1)), sum = T(1) + u;
    const T lost = (u - (sum - T(1))) * (root - a);
    return std::copysign(log(sum) + (a >= T(1) ? T(0) : lost), z);
}

}  // namespace elementary

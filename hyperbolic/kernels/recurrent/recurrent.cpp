// Möbius RNN and GRU: see recurrent.h.
#include "recurrent.h"

#define EXPORT(T)                                                                                                      \
    extern "C" void forward_##T(const T *x, const int64_t *sizes, const double *numbers, const int64_t *lengths,       \
                            const T *w_in, const T *w_state, const T *bias, const T *bias_gap, T *out, T *states,      \
                            int threads) {                                                                             \
        const auto all = recurrent::problem(sizes, numbers, false, x, lengths, w_in, w_state, bias, bias_gap);         \
        (sizes[6] == 3 ? recurrent::forward<T, recurrent::Gru> : recurrent::forward<T, recurrent::Rnn>)(               \
            all, out, states, threads);                                                                                \
    }                                                                                                                  \
    extern "C" void backward_##T(const T *x, const int64_t *sizes, const double *numbers, const int64_t *lengths,      \
                             const T *w_in, const T *w_state, const T *bias, const T *bias_gap, const T *states,       \
                             const T *grad, T *g_x, T *g_in, T *g_state, T *g_bias, T *g_bias_gap, double *g_scalars,  \
                             int threads) {                                                                            \
        const auto all =                                                                                               \
            recurrent::problem(sizes, numbers, g_scalars != nullptr, x, lengths, w_in, w_state, bias, bias_gap);       \
        (sizes[6] == 3 ? recurrent::backward<T, recurrent::Gru> : recurrent::backward<T, recurrent::Rnn>)(             \
            all, states, grad, {g_x, g_in, g_state, g_bias, g_bias_gap, g_scalars}, threads);                          \
    }

EXPORT(float)
EXPORT(double)

// Möbius RNN and GRU in float64.
#include "recurrent.h"

RECURRENT(double)

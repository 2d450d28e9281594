// Möbius RNN and GRU in float32; float64 is a file of its own, as a program seldom needs both.
#include "recurrent.h"

RECURRENT(float)

// Numbers below the normal ones cost a processor a hundred times as much, also in the matrix products they go to.
#pragma once
#include <cstdint>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

// While one lives, its thread takes such numbers, and gives them, as zeros.
class NoDenormals {
#if defined(__SSE2__)
    static constexpr unsigned zeros = 0x8040;  // FTZ and DAZ
    static unsigned get() { return _mm_getcsr(); }
    static void set(unsigned mode) { _mm_setcsr(mode); }
    const unsigned before = get();
#elif defined(__aarch64__)
    static constexpr uint64_t zeros = 1 << 24;  // FZ
    static uint64_t get() {
        uint64_t mode;
        asm volatile("mrs %0, fpcr" : "=r"(mode));
        return mode;
    }
    static void set(uint64_t mode) { asm volatile("msr fpcr, %0" ::"r"(mode)); }
    const uint64_t before = get();
#else
    static constexpr unsigned zeros = 0, before = 0;
    static void set(unsigned) {}
#endif

  public:
    NoDenormals() { set(before | zeros); }
    ~NoDenormals() { set(before); }
    NoDenormals(const NoDenormals &) = delete;
};

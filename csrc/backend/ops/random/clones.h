// Functions compiled for several instruction sets, the best one chosen when the library is loaded.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MUSA_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define MUSA_VECTOR_CLONES
#endif

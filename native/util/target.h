// Hot loops are compiled once per instruction set and chosen at load time, so that one build is fast on every machine.
// ELASTICCTR_CLONES goes before a free function's definition; whatever that function calls in its loop must be inlined
// (ELASTICCTR_INLINE) to be cloned with it.
#pragma once

#define ELASTICCTR_INLINE inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ELASTICCTR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ELASTICCTR_CLONES
#endif

// The loop over a block's rows that every optimizer shares. Common widths become constants, so that the formula inside
// is unrolled and vectorised. To be inlined into functions marked ELASTICCTR_CLONES.
#pragma once

#include "table/optimizer/optimizer.h"
#include "util/target.h"

namespace elasticctr {

template <size_t kDim, typename Formula>
ELASTICCTR_INLINE void ForRowsOf(const StepBlock& block, Formula&& formula) {
  const size_t dim = kDim == 0 ? block.dim : kDim;
  for (size_t i = 0; i < block.count; ++i) {
    formula(reinterpret_cast<float*>(block.rows[i] + block.weights),
            reinterpret_cast<float*>(block.rows[i] + block.state), block.gradients[i] + block.column, dim);
  }
}

// formula(weights, state, gradient, dim), once per row.
template <typename Formula>
ELASTICCTR_INLINE void ForRows(const StepBlock& block, Formula&& formula) {
  switch (block.dim) {
    case 1: return ForRowsOf<1>(block, formula);
    case 8: return ForRowsOf<8>(block, formula);
    case 9: return ForRowsOf<9>(block, formula);
    case 16: return ForRowsOf<16>(block, formula);
    default: return ForRowsOf<0>(block, formula);
  }
}

// body(i) for every weight, in runs of 8 that become one vector instruction each, then the rest one by one: widths
// such as 9 would otherwise not be vectorised at all. The arrays body touches must not overlap.
template <typename Body>
ELASTICCTR_INLINE void ForWeights(size_t dim, Body&& body) {
  size_t i = 0;
  for (; i + 8 <= dim; i += 8) {
#pragma GCC ivdep
    for (size_t k = 0; k < 8; ++k) body(i + k);
  }
  for (; i < dim; ++i) body(i);
}

}  // namespace elasticctr

// For the lambdas given to ForRows and ForWeights.
#define ELASTICCTR_FORMULA __attribute__((always_inline))

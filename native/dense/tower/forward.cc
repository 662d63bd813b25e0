#include <algorithm>

#include "dense/tower/tower.h"
#include "util/thread_pool.h"

namespace elasticctr::dense {

// One Forward, block by block.
struct Tower::ForwardPass {
  const Tower& tower;
  const Rows x;
  const size_t rows;
  const Hidden& hidden;
  const MutableRows y;
  Workspace& workspace;
  const bool keep;

  // Layer l's input or, with l = layers(), the output: in the memory Backward reads, with separate `rows` memory if the
  // forms differ.
  Block Activation(size_t l, size_t first, size_t count) const {
    Block block;
    if (keep && l < workspace.activations.size()) {
      block = Slice(tower.kernels_, workspace.activations[l], rows, first, count);
    }
    AddRows(tower.kernels_, l, tower.widths_[l], count, block);
    return block;
  }

  // The epilogue of layer l's product, including its ReLU.
  Epilogue Ending(size_t l, size_t first, size_t count) const {
    Epilogue epilogue;
    epilogue.count = count;
    epilogue.batch_row = first;
    if (l < tower.relus()) {
      epilogue.relu = true;
      epilogue.dropout = MakeDropout(hidden.dropout, hidden.seed, l);
    }
    if (l + 1 == tower.layers()) {
      epilogue.dense = y.data + first * y.stride;
      epilogue.dense_stride = y.stride;
    }
    return epilogue;
  }

  // The destination of layer l's output besides y; without rows: none.
  Block Output(size_t l, size_t first, size_t count) const {
    const bool is_wanted = l + 1 < tower.layers() || (keep && tower.relu_last_);
    return is_wanted ? Activation(l + 1, first, count) : Block{};
  }

  void Run(Stage stage, size_t first, size_t count) const {
    const Kernels& kernels = tower.kernels_;
    Block in;
    if (stage.begin == 0) {
      in = Activation(0, first, count);
      kernels.load(x.data + first * x.stride, x.stride, tower.widths_[0], nullptr, 1.0f, in);
    } else {
      in = Normalize(stage.begin - 1, first, count);
    }
    for (size_t l = stage.begin; l < stage.end; ++l) {
      const bool is_normed = workspace.has_norms && l < tower.relus();
      in = is_normed ? MultiplyAndSum(l, in, first, count) : Multiply(l, in, first, count);
    }
  }

  Block Multiply(size_t l, const Block& in, size_t first, size_t count) const {
    const Block out = Output(l, first, count);
    Epilogue epilogue = Ending(l, first, count);
    epilogue.bias = tower.PackedBias(workspace, l);
    if (l < workspace.norms.size()) epilogue.scale = workspace.norms[l].scale.data();
    epilogue.panels = out.rows != nullptr ? &out : nullptr;
    tower.kernels_.multiply(in, tower.widths_[l], workspace.packed[l].data(), tower.widths_[l + 1], epilogue);
    return out;
  }

  Block MultiplyAndSum(size_t l, const Block& in, size_t first, size_t count) const {
    const size_t columns = tower.widths_[l + 1];
    const Block out = SliceRows(tower.kernels_, workspace.products[l], rows, first, count);
    Epilogue epilogue;
    epilogue.count = count;
    epilogue.bias = tower.PackedBias(workspace, l);
    epilogue.panels = &out;
    tower.kernels_.multiply(in, tower.widths_[l], workspace.packed[l].data(), columns, epilogue);
    if (workspace.is_batch) {
      const size_t place = first / kSumRows * 2 * Panels(columns) * kPanel;
      tower.kernels_.moments(out, columns, workspace.sums.data() + place);
    }
    return out;
  }

  // Applies the norm after layer l to its product, which is in memory.
  Block Normalize(size_t l, size_t first, size_t count) const {
    const Block out = Output(l, first, count);
    Epilogue epilogue = Ending(l, first, count);
    epilogue.scale = workspace.norms[l].scale.data();
    epilogue.bias = workspace.norms[l].shift.data();
    epilogue.panels = out.rows != nullptr ? &out : nullptr;
    const Block product = SliceRows(tower.kernels_, workspace.products[l], rows, first, count);
    tower.kernels_.finish(product, tower.widths_[l + 1], epilogue);
    return out;
  }
};

void Tower::Forward(Rows x, size_t rows, const float* const* weights, const float* const* biases, const Hidden& hidden,
                    MutableRows y, Workspace& workspace, bool keep, const Finish& finish) const {
  workspace.rows = 0;
  if (rows == 0) return;
  Pack(weights, biases, workspace);
  Prepare(rows, hidden, keep, workspace);
  const ForwardPass pass{*this, x, rows, hidden, y, workspace, keep};
  ThreadPool& pool = ThreadPool::Default();
  const size_t block_rows = BlockRows(rows, pool.size());
  const std::vector<Stage> stages = Stages(layers(), relu_last_, workspace.has_norms);
  for (size_t s = 0; s < stages.size(); ++s) {
    const bool is_last = s + 1 == stages.size();
    pool.Run((rows + block_rows - 1) / block_rows, [&](size_t i) {
      const KernelScope scope(kernels_);
      const size_t first = i * block_rows, count = std::min(block_rows, rows - first);
      pass.Run(stages[s], first, count);
      if (is_last && finish) finish(first, count);
    });
    if (!is_last && workspace.is_batch) {
      UseBatch(hidden.norm, s, widths_[s + 1], rows, workspace.sums.data(), workspace.norms[s]);
    }
  }
  workspace.rows = keep ? rows : 0;
}

}  // namespace elasticctr::dense

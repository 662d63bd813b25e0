#include <algorithm>

#include "dense/tower/backward_order.h"
#include "dense/tower/tower.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr::dense {
namespace {

// Rows whose gradients are held at once: few enough that they and their activations are in cache for the weight
// gradients.
constexpr size_t kStepRows = 512;
static_assert(kStepRows % kGradientRows == 0);

}  // namespace

// One Backward, block by block.
struct Tower::BackwardPass {
  const Tower& tower;
  const Rows dy;
  const TowerGradients& gradients;
  Workspace& workspace;
  const size_t rows;

  // Rows [first, first + count) among the rows [begin, end) whose gradients are held together.
  struct Range {
    size_t begin, end, first, count;
  };

  // The gradient of layer l's output.
  Block Gradient(size_t l, const Range& range) const {
    const Buffer& held = workspace.gradients[range.begin / kStepRows % 2][l];
    Block block = Slice(tower.kernels_, held, range.end - range.begin, range.first - range.begin, range.count);
    AddRows(tower.kernels_, l, tower.widths_[l + 1], range.count, block);
    return block;
  }

  // The gradient of the output of the norm after layer l, for all rows.
  Block NormGradient(size_t l, const Range& range) const {
    return SliceRows(tower.kernels_, workspace.norm_gradients[l % 2], rows, range.first, range.count);
  }

  Block Product(size_t l, const Range& range) const {
    return SliceRows(tower.kernels_, workspace.products[l], rows, range.first, range.count);
  }

  Block Activation(size_t l, const Range& range) const {
    return Slice(tower.kernels_, workspace.activations[l], rows, range.first, range.count);
  }

  void Run(Stage stage, const Range& range) const {
    const Kernels& kernels = tower.kernels_;
    const size_t last = stage.end - 1;
    if (stage.begin == stage.end) {  // only the ReLU and the norm before it
      const Block to = NormGradient(last, range);
      Load(last, range, to);
      Sum(last, range);
      return;
    }
    Block out = Gradient(last, range);
    if (workspace.has_norms && last < tower.relus()) {
      kernels.norm_gradient(NormGradient(last, range), Product(last, range), tower.widths_[stage.end],
                            workspace.norms[last].slopes(), out);
    } else {
      Load(last, range, out);
    }
    for (size_t l = stage.end; l-- > stage.begin;) {
      if (l == 0 && gradients.dx.data == nullptr) break;
      out = Multiply(l, out, l > stage.begin, range);
    }
  }

  // dy after the backward pass of a last ReLU.
  void Load(size_t l, const Range& range, const Block& to) const {
    Block mask;
    if (tower.relu_last_) mask = Activation(l + 1, range);
    tower.kernels_.load(dy.data + range.first * dy.stride, dy.stride, tower.widths_.back(),
                        tower.relu_last_ ? &mask : nullptr, workspace.kept_scale, to);
  }

  // Turns the gradient of layer l's output into that of its input, up to the ReLU or the norm before it.
  Block Multiply(size_t l, const Block& out, bool is_inside, const Range& range) const {
    Epilogue epilogue;
    epilogue.count = range.count;
    epilogue.mask_scale = workspace.kept_scale;
    Block in, mask;
    if (l > 0) {
      in = is_inside ? Gradient(l - 1, range) : NormGradient(l - 1, range);
      mask = Activation(l, range);
      epilogue.mask = &mask;
      epilogue.panels = &in;
    } else {
      epilogue.dense = gradients.dx.data + range.first * gradients.dx.stride;
      epilogue.dense_stride = gradients.dx.stride;
    }
    tower.kernels_.multiply(out, tower.widths_[l + 1], workspace.packed[l].data(), tower.widths_[l], epilogue);
    if (l > 0 && !is_inside) Sum(l - 1, range);
    return in;
  }

  // The sums the norm after layer l needs.
  void Sum(size_t l, const Range& range) const {
    const size_t columns = tower.widths_[l + 1];
    tower.kernels_.norm_sums(NormGradient(l, range), Product(l, range), columns, workspace.norms[l].mean.data(),
                             workspace.sums.data() + range.first / kSumRows * 2 * Panels(columns) * kPanel);
  }

  void AddWeights(const Piece& piece, size_t begin, size_t end) const {
    const Range range{begin, end, begin, end - begin};
    const Buffer& held = workspace.gradients[begin / kStepRows % 2][piece.layer];
    const Block gradient = Slice(tower.kernels_, held, end - begin, 0, end - begin);
    tower.kernels_.weight_gradient(gradient, Activation(piece.layer, range), tower.widths_[piece.layer], piece.first,
                                   piece.last, begin > 0, gradients.weights[piece.layer],
                                   gradients.biases[piece.layer]);
  }
};

void Tower::Backward(Rows dy, const float* const* weights, const TowerGradients& gradients,
                     Workspace& workspace) const {
  const size_t rows = workspace.rows;
  if (rows == 0) throw Error(Code::kFailedPrecondition, "this tower has no forward pass to go back through");
  workspace.rows = 0;
  Pack(weights, nullptr, workspace);
  const size_t step = std::min(kStepRows, rows), steps = (rows + step - 1) / step;
  for (size_t half = 0; half < std::min<size_t>(steps, 2); ++half) {
    workspace.gradients[half].resize(layers());
    for (size_t l = 0; l < layers(); ++l) {
      workspace.gradients[half][l].Reserve(Panels(widths_[l + 1]) * kernels_.panel_bytes(step));
    }
  }
  for (size_t l = 0; workspace.has_norms && l < relus(); ++l) {
    workspace.norm_gradients[l % 2].Reserve(Panels(widths_[l + 1]) * kernels_.panel_bytes(rows));
  }
  const BackwardPass pass{*this, dy, gradients, workspace, rows};
  ThreadPool& pool = ThreadPool::Default();
  const size_t block_rows = BlockRows(step, pool.size()), blocks = (step + block_rows - 1) / block_rows;
  const std::vector<Stage> stages = Stages(layers(), relu_last_, workspace.has_norms);
  for (size_t s = stages.size(); s-- > 0;) {
    const std::vector<Piece> pieces = GradientPieces(stages[s], pool.size());
    BackwardOrder order(steps, blocks, pieces.size());
    // One step ahead of the weight gradients, so that a delayed thread rarely makes others wait.
    pool.Run(order.tasks(), [&](size_t i) {
      const KernelScope scope(kernels_);
      const BackwardOrder::Turn turn(order, i);
      if (!turn.Wait()) return;
      const size_t begin = turn.step * step, end = std::min(begin + step, rows);
      if (turn.is_block) {
        const size_t first = begin + turn.index * block_rows;
        if (first < end) pass.Run(stages[s], {begin, end, first, std::min(block_rows, end - first)});
      } else {
        pass.AddWeights(pieces[turn.index], begin, end);
      }
      turn.Finish();
    });
    if (s > 0) {
      FinishSlopes(widths_[s], rows, workspace.sums.data(), workspace.is_batch, workspace.norms[s - 1],
                   gradients.norm_scales[s - 1], gradients.norm_shifts[s - 1]);
    }
    if (workspace.has_norms && workspace.is_batch && s < relus()) {
      std::fill_n(gradients.biases[s], widths_[s + 1], 0.0f);
    }
  }
}

}  // namespace elasticctr::dense

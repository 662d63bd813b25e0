#include "dense/tower.h"

#include <algorithm>
#include <cstring>

#include "dense/backward_order.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr::dense {
namespace {

// Rows taken through all layers at once: enough to pay for reading the weights, few enough to stay in cache and to let
// one thread take over what another, held up by the rest of the machine, has not begun.
constexpr size_t kMostBlockRows = 128;
// Rows whose gradients are held at once: few enough that the weight gradients find them and their activations in cache.
constexpr size_t kStepRows = 512;
static_assert(kStepRows % kGradientRows == 0);

// Between products of one task, in the thread that runs it.
class KernelScope {
 public:
  explicit KernelScope(const Kernels& kernels) : kernels_(kernels) {
    if (kernels_.begin != nullptr) kernels_.begin();
  }
  ~KernelScope() {
    if (kernels_.end != nullptr) kernels_.end();
  }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  const Kernels& kernels_;
};

// The same number of blocks for every thread, as large as allowed. Results do not depend on it.
size_t BlockRows(size_t rows, size_t threads) {
  const size_t rounds = (rows + threads * kMostBlockRows - 1) / (threads * kMostBlockRows);
  return RoundUp((rows + rounds * threads - 1) / (rounds * threads), Tower::kBlockUnit);
}

// Two blocks of a thread's own, which a row block passes through on its way from layer to layer.
Buffer& Scratch(size_t index, size_t bytes) {
  thread_local Buffer buffers[2];
  buffers[index % 2].Reserve(bytes);
  return buffers[index % 2];
}

}  // namespace

Tower::Tower(std::vector<size_t> widths, bool relu_last, const Kernels& kernels)
    : widths_(std::move(widths)), relu_last_(relu_last), kernels_(kernels) {
  if (widths_.size() < 2 || *std::min_element(widths_.begin(), widths_.end()) == 0) {
    throw Error(Code::kConfig, "a tower needs an input and at least one layer, each at least 1 wide");
  }
}

Block Tower::Slice(const Buffer& buffer, size_t rows, size_t first, size_t count) const {
  const size_t row_bytes = kPanel * kernels_.element_bytes;
  Block block;
  block.pairs = buffer.data() + first * row_bytes;
  block.pairs_stride = kernels_.panel_bytes(rows);
  block.count = count;
  if (kernels_.precision == Precision::kFloat32) {
    block.rows = block.pairs;
    block.rows_stride = block.pairs_stride;
  }
  return block;
}

void Tower::Pack(const float* const* weights, const float* const* biases, Workspace& workspace) const {
  const bool forward = biases != nullptr;
  struct Piece {
    size_t layer, first, last;
  };
  constexpr size_t kPiecePanels = 2;
  std::vector<Piece> pieces;
  workspace.packed.resize(layers());
  for (size_t l = 0; l < layers(); ++l) {
    const size_t in = widths_[l], out = widths_[l + 1];
    const size_t weight_bytes = std::max(kernels_.packed_bytes(in, out), kernels_.packed_bytes(out, in));
    workspace.packed[l].Reserve(weight_bytes + Panels(out) * kPanel * sizeof(float));
    const size_t panels = Panels(forward ? out : in);
    for (size_t p = 0; p < panels; p += kPiecePanels) pieces.push_back({l, p, std::min(p + kPiecePanels, panels)});
    if (!forward) continue;
    auto* bias = reinterpret_cast<float*>(workspace.packed[l].data() + weight_bytes);
    std::memset(bias, 0, Panels(out) * kPanel * sizeof(float));
    std::memcpy(bias, biases[l], out * sizeof(float));
  }
  ThreadPool::Default().Run(pieces.size(), [&](size_t i) {
    const auto [l, first, last] = pieces[i];
    const auto pack = forward ? kernels_.pack_forward : kernels_.pack_backward;
    pack(weights[l], widths_[l + 1], widths_[l], first, last, workspace.packed[l].data());
  });
}

void Tower::Forward(Rows x, size_t rows, const float* const* weights, const float* const* biases, MutableRows y,
                    Workspace& workspace, bool keep, const Finish& finish) const {
  workspace.rows = 0;
  if (rows == 0) return;
  Pack(weights, biases, workspace);
  const size_t saved = layers() + (relu_last_ ? 1 : 0);
  if (keep) {
    workspace.activations.resize(saved);
    for (size_t l = 0; l < saved; ++l) {
      workspace.activations[l].Reserve(Panels(widths_[l]) * kernels_.panel_bytes(rows));
    }
  }
  ThreadPool& pool = ThreadPool::Default();
  const size_t block_rows = BlockRows(rows, pool.size());
  pool.Run((rows + block_rows - 1) / block_rows, [&](size_t i) {
    const KernelScope scope(kernels_);
    const size_t first = i * block_rows, count = std::min(block_rows, rows - first);
    // Layer l's input: kept where Backward wants it, with rows of its own where those are another thing.
    const auto activation = [&](size_t l) {
      Block block;
      if (keep && l < saved) block = Slice(workspace.activations[l], rows, first, count);
      if (block.rows == nullptr) {
        const size_t panel_bytes = kernels_.panel_bytes(count);
        block.rows = Scratch(l, Panels(widths_[l]) * panel_bytes).data();
        block.rows_stride = panel_bytes;
      }
      block.count = count;
      return block;
    };
    Block in = activation(0);
    kernels_.load(x.data + first * x.stride, x.stride, widths_[0], nullptr, in);
    for (size_t l = 0; l < layers(); ++l) {
      const bool is_last = l + 1 == layers();
      const size_t depth = widths_[l], columns = widths_[l + 1];
      const Block out = is_last && !(keep && relu_last_) ? Block{} : activation(l + 1);
      const size_t weight_bytes =
          std::max(kernels_.packed_bytes(depth, columns), kernels_.packed_bytes(columns, depth));
      Epilogue epilogue;
      epilogue.count = count;
      epilogue.bias = reinterpret_cast<const float*>(workspace.packed[l].data() + weight_bytes);
      epilogue.relu = !is_last || relu_last_;
      epilogue.panels = out.rows != nullptr ? &out : nullptr;
      if (is_last) {
        epilogue.dense = y.data + first * y.stride;
        epilogue.dense_stride = y.stride;
      }
      kernels_.multiply(in, depth, workspace.packed[l].data(), columns, epilogue);
      in = out;
    }
    if (finish) finish(first, count);
  });
  workspace.rows = keep ? rows : 0;
}

void Tower::Backward(Rows dy, const float* const* weights, MutableRows dx, float* const* weight_gradients,
                     float* const* bias_gradients, Workspace& workspace) const {
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
  ThreadPool& pool = ThreadPool::Default();
  const std::vector<Piece> pieces = GradientPieces(pool.size());
  const size_t block_rows = BlockRows(step, pool.size()), blocks = (step + block_rows - 1) / block_rows;
  BackwardOrder order(steps, blocks, pieces.size());
  // One step ahead of the weight gradients, so that a thread held up by the rest of the machine seldom has others wait.
  pool.Run(order.tasks(), [&](size_t i) {
    const KernelScope scope(kernels_);
    const BackwardOrder::Turn turn(order, i);
    if (!turn.Wait()) return;
    const size_t begin = turn.step * step, end = std::min(begin + step, rows);
    if (turn.is_block) {
      const size_t first = begin + turn.index * block_rows;
      if (first < end) BackwardBlock(rows, begin, end, first, std::min(first + block_rows, end), dy, dx, workspace);
    } else {
      const auto& [l, first, last, work] = pieces[turn.index];
      const Block gradient = Slice(workspace.gradients[turn.step % 2][l], end - begin, 0, end - begin);
      const Block x = Slice(workspace.activations[l], rows, begin, end - begin);
      kernels_.weight_gradient(gradient, x, widths_[l], first, last, begin > 0, weight_gradients[l], bias_gradients[l]);
    }
    turn.Finish();
  });
}

void Tower::BackwardBlock(size_t rows, size_t begin, size_t end, size_t first, size_t last, Rows dy, MutableRows dx,
                          Workspace& workspace) const {
  const size_t count = last - first;
  const auto gradient = [&](size_t l) {  // of what layer l writes
    Block block = Slice(workspace.gradients[begin / kStepRows % 2][l], end - begin, first - begin, count);
    if (block.rows == nullptr) {
      const size_t panel_bytes = kernels_.panel_bytes(count);
      block.rows = Scratch(l, Panels(widths_[l + 1]) * panel_bytes).data();
      block.rows_stride = panel_bytes;
    }
    return block;
  };
  Block out = gradient(layers() - 1), output;
  if (relu_last_) output = Slice(workspace.activations[layers()], rows, first, count);
  kernels_.load(dy.data + first * dy.stride, dy.stride, widths_.back(), relu_last_ ? &output : nullptr, out);
  for (size_t l = layers(); l-- > 0;) {
    Epilogue epilogue;
    epilogue.count = count;
    Block in, mask;
    if (l > 0) {
      in = gradient(l - 1);
      mask = Slice(workspace.activations[l], rows, first, count);
      epilogue.mask = &mask;
      epilogue.panels = &in;
    } else if (dx.data != nullptr) {
      epilogue.dense = dx.data + first * dx.stride;
      epilogue.dense_stride = dx.stride;
    } else {
      break;
    }
    kernels_.multiply(out, widths_[l + 1], workspace.packed[l].data(), widths_[l], epilogue);
    out = in;
  }
}

// Ranges of output rows, the most work first so that no thread is left with a long task at the end.
std::vector<Tower::Piece> Tower::GradientPieces(size_t threads) const {
  std::vector<Piece> pieces;
  for (size_t l = 0; l < layers(); ++l) {
    const size_t out = widths_[l + 1];
    const size_t step = std::max<size_t>(kPanel, RoundUp((out + 2 * threads - 1) / (2 * threads), kPanel));
    for (size_t n = 0; n < out; n += step) {
      const size_t last = std::min(n + step, out);
      pieces.push_back({l, n, last, (last - n) * widths_[l]});
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.work > b.work; });
  return pieces;
}

}  // namespace elasticctr::dense

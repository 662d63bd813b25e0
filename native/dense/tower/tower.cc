#include "dense/tower/tower.h"

#include <algorithm>
#include <cstring>

#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr::dense {

Tower::Tower(std::vector<size_t> widths, bool relu_last, const Kernels& kernels)
    : widths_(std::move(widths)), relu_last_(relu_last), kernels_(kernels) {
  if (widths_.size() < 2 || *std::min_element(widths_.begin(), widths_.end()) == 0) {
    throw Error(Code::kConfig, "a tower needs an input and at least one layer, each at least 1 wide");
  }
}

size_t Tower::PackedWeightBytes(size_t layer) const {
  const size_t in = widths_[layer], out = widths_[layer + 1];
  return std::max(kernels_.packed_bytes(in, out), kernels_.packed_bytes(out, in));
}

float* Tower::PackedBias(const Workspace& workspace, size_t layer) const {
  return reinterpret_cast<float*>(workspace.packed[layer].data() + PackedWeightBytes(layer));
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
    const size_t out = widths_[l + 1];
    workspace.packed[l].Reserve(PackedWeightBytes(l) + Panels(out) * kPanel * sizeof(float));
    const size_t panels = Panels(forward ? out : widths_[l]);
    for (size_t p = 0; p < panels; p += kPiecePanels) pieces.push_back({l, p, std::min(p + kPiecePanels, panels)});
    if (!forward) continue;
    float* const bias = PackedBias(workspace, l);
    std::memset(bias, 0, Panels(out) * kPanel * sizeof(float));
    std::memcpy(bias, biases[l], out * sizeof(float));
  }
  ThreadPool::Default().Run(pieces.size(), [&](size_t i) {
    const auto [l, first, last] = pieces[i];
    const auto pack = forward ? kernels_.pack_forward : kernels_.pack_backward;
    pack(weights[l], widths_[l + 1], widths_[l], first, last, workspace.packed[l].data());
  });
}

void Tower::Prepare(size_t rows, const Hidden& hidden, bool keep, Workspace& workspace) const {
  const size_t norms = hidden.norm.layers.size();
  if (norms != 0 && norms != relus()) {
    throw Error(Code::kInternal, "a tower was called with the wrong number of batch norms");
  }
  workspace.kept_scale = MakeDropout(hidden.dropout, 0, 0).scale;
  workspace.is_batch = norms > 0 && hidden.norm.is_training && rows > 1;
  workspace.has_norms = norms > 0 && (workspace.is_batch || keep);
  workspace.norms.resize(norms);
  if (!workspace.is_batch) {
    for (size_t l = 0; l < norms; ++l) UseRunning(hidden.norm, l, widths_[l + 1], workspace.norms[l]);
  }
  if (keep) {
    const size_t saved = layers() + (relu_last_ ? 1 : 0);
    workspace.activations.resize(saved);
    for (size_t l = 0; l < saved; ++l) {
      workspace.activations[l].Reserve(Panels(widths_[l]) * kernels_.panel_bytes(rows));
    }
  }
  if (!workspace.has_norms) {
    // Norms with fixed statistics are folded into the linear layer before them.
    for (size_t l = 0; l < norms; ++l) {
      const NormStep& norm = workspace.norms[l];
      float* const bias = PackedBias(workspace, l);
      for (size_t j = 0; j < widths_[l + 1]; ++j) bias[j] = bias[j] * norm.scale[j] + norm.shift[j];
    }
    return;
  }
  size_t most_panels = 0;
  workspace.products.resize(norms);
  for (size_t l = 0; l < norms; ++l) {
    workspace.products[l].Reserve(Panels(widths_[l + 1]) * kernels_.panel_bytes(rows));
    most_panels = std::max(most_panels, Panels(widths_[l + 1]));
  }
  const size_t sums = (rows + kSumRows - 1) / kSumRows * 2 * most_panels * kPanel;
  if (workspace.sums.size() < sums) workspace.sums.resize(sums);
}

// Ranges of output rows, the largest first, so that no thread is left with a long task at the end.
std::vector<Tower::Piece> Tower::GradientPieces(Stage stage, size_t threads) const {
  std::vector<Piece> pieces;
  for (size_t l = stage.begin; l < stage.end; ++l) {
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

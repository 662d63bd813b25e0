#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "bindings/addresses.h"
#include "bindings/bindings.h"
#include "dense/adam.h"
#include "dense/bce.h"
#include "dense/kernels/kernels.h"
#include "dense/tower/step.h"
#include "dense/tower/tower.h"
#include "dense/tower/workspace_pool.h"
#include "util/cpu.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

dense::Precision PrecisionOf(const std::string& name) {
  if (name == "fp32") return dense::Precision::kFloat32;
  if (name == "bf16") return dense::Precision::kBfloat16;
  throw Error(Code::kConfig, "precision is fp32 or bf16, not '" + name + "'");
}

// A forward pass with at most one backward pass.
class TowerPass {
 public:
  TowerPass(std::shared_ptr<dense::WorkspacePool> pool, std::unique_ptr<dense::Workspace> workspace)
      : pool_(std::move(pool)), workspace_(std::move(workspace)) {}
  ~TowerPass() {
    if (workspace_) pool_->GiveBack(std::move(workspace_));
  }
  std::unique_ptr<dense::Workspace> Release() { return std::move(workspace_); }

 private:
  std::shared_ptr<dense::WorkspacePool> pool_;
  std::unique_ptr<dense::Workspace> workspace_;
};

// Batch norm and dropout of one call. Each list has one tensor's address per hidden layer, or is empty.
dense::Hidden MakeHidden(const std::vector<Address>& norm_scales, const std::vector<Address>& norm_shifts,
                         const std::vector<Address>& running_means, const std::vector<Address>& running_variances,
                         bool is_training, float epsilon, float momentum, double dropout, uint64_t seed) {
  const size_t norms = norm_scales.size();
  if (norm_shifts.size() != norms || running_means.size() != norms || running_variances.size() != norms) {
    throw Error(Code::kInternal, "batch norms of a tower were given lists of different lengths");
  }
  dense::Hidden hidden;
  for (size_t l = 0; l < norms; ++l) {
    hidden.norm.layers.push_back(
        {At(norm_scales[l]), At(norm_shifts[l]), At(running_means[l]), At(running_variances[l])});
  }
  hidden.norm.is_training = is_training;
  hidden.norm.epsilon = epsilon;
  hidden.norm.momentum = momentum;
  hidden.dropout = dropout;
  hidden.seed = seed;
  return hidden;
}

class PyTower {
 public:
  PyTower(std::vector<size_t> widths, bool relu_last, const std::string& precision, const std::string& kernels)
      : tower_(std::move(widths), relu_last, dense::FindKernels(PrecisionOf(precision), kernels)),
        pool_(std::make_shared<dense::WorkspacePool>()) {}

  std::unique_ptr<TowerPass> Forward(Address x, size_t x_stride, size_t rows, const std::vector<Address>& weights,
                                     const std::vector<Address>& biases, const dense::Hidden& hidden, Address y,
                                     size_t y_stride, bool keep) {
    CheckCount(weights, biases);
    const auto w = AllAt(weights), b = AllAt(biases);
    auto workspace = pool_->Take();
    {
      nb::gil_scoped_release release;
      tower_.Forward({At(x), x_stride}, rows, w.data(), b.data(), hidden, {At(y), y_stride}, *workspace, keep);
    }
    if (keep) return std::make_unique<TowerPass>(pool_, std::move(workspace));
    pool_->GiveBack(std::move(workspace));
    return nullptr;
  }

  void Backward(TowerPass& pass, Address dy, size_t dy_stride, const std::vector<Address>& weights,
                std::optional<Address> dx, size_t dx_stride, const std::vector<Address>& weight_gradients,
                const std::vector<Address>& bias_gradients, const std::vector<Address>& scale_gradients,
                const std::vector<Address>& shift_gradients) {
    CheckCount(weights, weight_gradients);
    CheckCount(weights, bias_gradients);
    auto workspace = pass.Release();
    if (!workspace) throw Error(Code::kFailedPrecondition, "this forward pass was gone back through already");
    CheckNorms(workspace->norms.size(), scale_gradients, shift_gradients);
    const auto w = AllAt(weights), dw = AllAt(weight_gradients), db = AllAt(bias_gradients);
    const auto ds = AllAt(scale_gradients), dt = AllAt(shift_gradients);
    {
      nb::gil_scoped_release release;
      const dense::MutableRows to{dx ? At(*dx) : nullptr, dx_stride};
      tower_.Backward({At(dy), dy_stride}, w.data(), {to, dw.data(), db.data(), ds.data(), dt.data()}, *workspace);
    }
    pool_->GiveBack(std::move(workspace));
  }

  double Step(Address x, size_t x_stride, size_t rows, const std::vector<Address>& weights,
              const std::vector<Address>& biases, const dense::Hidden& hidden, size_t wide_first, size_t wide_count,
              const std::vector<Address>& wide, Address labels, size_t label_stride, Address sample_weights,
              Address logits, Address dx, const std::vector<Address>& weight_gradients,
              const std::vector<Address>& bias_gradients, const std::vector<Address>& scale_gradients,
              const std::vector<Address>& shift_gradients) {
    CheckCount(weights, biases);
    CheckCount(weight_gradients, bias_gradients);
    CheckNorms(hidden.norm.layers.size(), scale_gradients, shift_gradients);
    if (tower_.widths().back() != 1 || tower_.relu_last() || (wide_count > 0 && wide.size() != 4)) {
      throw Error(Code::kInternal, "a tower without a single linear output was asked for a step");
    }
    dense::Wide layer;
    if (wide_count > 0) layer = {wide_first, wide_count, At(wide[0]), At(wide[1]), At(wide[2]), At(wide[3])};
    const auto w = AllAt(weights), b = AllAt(biases), dw = AllAt(weight_gradients), db = AllAt(bias_gradients);
    const auto ds = AllAt(scale_gradients), dt = AllAt(shift_gradients);
    auto workspace = pool_->Take();
    double loss;
    {
      nb::gil_scoped_release release;
      loss = dense::TowerStep(tower_, {At(x), x_stride}, rows, w.data(), b.data(), hidden, layer,
                              {At(labels), label_stride, At(sample_weights)}, At(logits),
                              {{At(dx), x_stride}, dw.data(), db.data(), ds.data(), dt.data()}, *workspace);
    }
    pool_->GiveBack(std::move(workspace));
    return loss;
  }

  const char* kernels() const { return tower_.kernels().name; }

 private:
  void CheckCount(const std::vector<Address>& a, const std::vector<Address>& b) const {
    if (a.size() != tower_.layers() || b.size() != tower_.layers()) {
      throw Error(Code::kInternal, "a tower was called with the wrong number of weights");
    }
  }

  static void CheckNorms(size_t norms, const std::vector<Address>& scales, const std::vector<Address>& shifts) {
    if (scales.size() != norms || shifts.size() != norms) {
      throw Error(Code::kInternal, "a tower was called with the wrong number of gradients of batch norms");
    }
  }

  dense::Tower tower_;
  std::shared_ptr<dense::WorkspacePool> pool_;
};

void RunAdam(const std::vector<Address>& weights, const std::vector<Address>& gradients,
             const std::vector<Address>& means, const std::vector<Address>& squares, const std::vector<Address>& steps,
             const std::vector<size_t>& sizes, double learning_rate, double beta1, double beta2, double epsilon,
             double weight_decay) {
  const size_t count = sizes.size();
  if (weights.size() != count || gradients.size() != count || means.size() != count || squares.size() != count ||
      steps.size() != count) {
    throw Error(Code::kInternal, "adam_step was given lists of different lengths");
  }
  std::vector<dense::AdamTensor> tensors;
  for (size_t i = 0; i < count; ++i) {
    tensors.push_back({At(weights[i]), At(gradients[i]), At(means[i]), At(squares[i]), At(steps[i]), sizes[i]});
  }
  nb::gil_scoped_release release;
  dense::AdamStep({learning_rate, beta1, beta2, epsilon, weight_decay}, tensors);
}

}  // namespace

void BindDense(nb::module_& m) {
  m.def(
      "bce_gradient",
      [](Address logits, Address labels, size_t label_stride, Address weights, size_t n, Address gradient) {
        return dense::BceGradient(At(logits), At(labels), label_stride, At(weights), n, n, At(gradient));
      },
      "logits"_a, "labels"_a, "label_stride"_a, "weights"_a, "n"_a, "gradient"_a);
  m.def(
      "cpu_features",
      [] {
        const dense::CpuFeatures& cpu = dense::Cpu();
        nb::typed<nb::dict, nb::str, bool> features;
        features["avx2"] = cpu.avx2;
        features["avx512"] = cpu.avx512;
        features["avx512_bf16"] = cpu.avx512_bf16;
        features["bf16_is_fast"] = cpu.bf16_is_fast;
        features["amx_bf16"] = cpu.amx_bf16;
        features["amx_usable"] = cpu.amx_usable;
        features["onednn_amx_broken"] = cpu.onednn_amx_broken;
        return features;
      },
      "What this CPU can do, probed once.");
  m.def(
      "tower_kernels",
      [] {
        std::vector<std::string> names;
        for (const dense::Kernels* kernels : dense::UsableKernels()) names.emplace_back(kernels->name);
        return names;
      },
      "Names of the kernel sets this CPU can run, best first within a precision.");

  m.def("adam_step", &RunAdam, "weights"_a, "gradients"_a, "means"_a, "squares"_a, "steps"_a, "sizes"_a,
        "learning_rate"_a, "beta1"_a, "beta2"_a, "epsilon"_a, "weight_decay"_a,
        "One step of Adam over tensors given as addresses of float32s; advances their step counts.");

  nb::class_<TowerPass>(m, "TowerPass", "A forward pass that can be gone back through once.");
  nb::class_<dense::Hidden>(m, "TowerHidden",
                            "Batch norm and dropout of one call of a tower; lists hold one address per hidden layer, "
                            "or nothing. Training moves the running statistics.")
      .def(nb::new_(&MakeHidden), "norm_scales"_a, "norm_shifts"_a, "running_means"_a, "running_variances"_a,
           "is_training"_a, "epsilon"_a, "momentum"_a, "dropout"_a, "seed"_a);
  nb::class_<PyTower>(m, "Tower",
                      "Linear layers with ReLU between them, batch norm before and dropout after it. Tensors are given "
                      "as addresses of float32s.")
      .def(nb::init<std::vector<size_t>, bool, const std::string&, const std::string&>(), "widths"_a, "relu_last"_a,
           "precision"_a = "fp32", "kernels"_a = "")
      .def("forward", &PyTower::Forward, "x"_a, "x_stride"_a, "rows"_a, "weights"_a, "biases"_a, "hidden"_a, "y"_a,
           "y_stride"_a, "keep"_a)
      .def("backward", &PyTower::Backward, "forward"_a, "dy"_a, "dy_stride"_a, "weights"_a, "dx"_a, "dx_stride"_a,
           "weight_gradients"_a, "bias_gradients"_a, "scale_gradients"_a, "shift_gradients"_a)
      .def("step", &PyTower::Step, "x"_a, "x_stride"_a, "rows"_a, "weights"_a, "biases"_a, "hidden"_a, "wide_first"_a,
           "wide_count"_a, "wide"_a, "labels"_a, "label_stride"_a, "sample_weights"_a, "logits"_a, "dx"_a,
           "weight_gradients"_a, "bias_gradients"_a, "scale_gradients"_a, "shift_gradients"_a,
           "Gradients of the mean binary cross-entropy, which is returned. `wide`: weights, bias and their gradients "
           "of a "
           "linear layer over `wide_count` columns from `wide_first` on. dx has the stride of x.")
      .def_prop_ro("kernels", &PyTower::kernels);
}

}  // namespace elasticctr

#include <nanobind/stl/string.h>

#include "bindings/bindings.h"
#include "table/settings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {

void BindTableSettings(nb::module_& m) {
  nb::enum_<OptimizerKind>(m, "OptimizerKind")
      .value("sgd", OptimizerKind::kSgd)
      .value("adagrad", OptimizerKind::kAdagrad)
      .value("rowwise_adagrad", OptimizerKind::kRowwiseAdagrad)
      .value("adam", OptimizerKind::kAdam)
      .value("ftrl", OptimizerKind::kFtrl);
  nb::class_<OptimizerSettings>(m, "OptimizerSettings")
      .def(nb::init<>())
      .def_rw("kind", &OptimizerSettings::kind)
      .def_rw("learning_rate", &OptimizerSettings::learning_rate)
      .def_rw("epsilon", &OptimizerSettings::epsilon)
      .def_rw("beta1", &OptimizerSettings::beta1)
      .def_rw("beta2", &OptimizerSettings::beta2)
      .def_rw("beta", &OptimizerSettings::beta)
      .def_rw("initial_accumulator", &OptimizerSettings::initial_accumulator)
      .def_rw("l1", &OptimizerSettings::l1)
      .def_rw("l2", &OptimizerSettings::l2)
      .def_rw("gradient_clip", &OptimizerSettings::gradient_clip)
      .def_rw("weight_bound", &OptimizerSettings::weight_bound)
      .def_rw("catch_up", &OptimizerSettings::catch_up);
  nb::enum_<InitializerKind>(m, "InitializerKind")
      .value("zeros", InitializerKind::kZeros)
      .value("constant", InitializerKind::kConstant)
      .value("uniform", InitializerKind::kUniform)
      .value("normal", InitializerKind::kNormal);
  nb::class_<InitializerSettings>(m, "InitializerSettings")
      .def(
          "__init__",
          [](InitializerSettings* self, InitializerKind kind, float a, float b) {
            new (self) InitializerSettings{kind, a, b};
          },
          "kind"_a, "a"_a = 0.0f, "b"_a = 0.0f);
  nb::class_<SegmentSettings>(m, "SegmentSettings")
      .def(
          "__init__",
          [](SegmentSettings* self, std::string name, uint32_t dim, const OptimizerSettings& optimizer,
             const InitializerSettings& initializer) {
            new (self) SegmentSettings{std::move(name), dim, optimizer, initializer};
          },
          "name"_a, "dim"_a, "optimizer"_a, "initializer"_a);
}

}  // namespace elasticctr

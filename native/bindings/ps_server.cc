#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/options.h"
#include "ps/server/service.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {

namespace {

void BindSettings(nb::module_& m) {
  nb::class_<TableSettings>(m, "TableSettings", "What a table of a pserver is made with.")
      .def(
          "__init__",
          [](TableSettings* self, std::string name, uint64_t seed, bool counters, std::vector<SegmentSettings> segments,
             uint32_t admission_count, double admission_probability) {
            new (self) TableSettings{
                std::move(name), seed, counters, std::move(segments), {admission_count, admission_probability}};
          },
          "name"_a, "seed"_a, "counters"_a, "segments"_a, "admission_count"_a = 1, "admission_probability"_a = 1.0);
  nb::enum_<ps::DenseOptimizerKind>(m, "DenseOptimizerKind")
      .value("sgd", ps::DenseOptimizerKind::kSgd)
      .value("adam", ps::DenseOptimizerKind::kAdam)
      .value("adamw", ps::DenseOptimizerKind::kAdamW)
      .value("adagrad", ps::DenseOptimizerKind::kAdagrad);
  nb::class_<ps::DenseOptimizerSettings>(m, "DenseOptimizerSettings")
      .def(
          "__init__",
          [](ps::DenseOptimizerSettings* self, ps::DenseOptimizerKind kind, float learning_rate, float weight_decay,
             float clip_norm, float beta1, float beta2, float epsilon) {
            new (self) ps::DenseOptimizerSettings{kind, learning_rate, weight_decay, clip_norm, beta1, beta2, epsilon};
          },
          "kind"_a, "learning_rate"_a, "weight_decay"_a = 0.0f, "clip_norm"_a = 0.0f, "beta1"_a = 0.9f,
          "beta2"_a = 0.999f, "epsilon"_a = 1e-8f);
}

}  // namespace

void BindPsServer(nb::module_& m) {
  using ps::ReplicaOptions;
  using ps::Service;
  using ps::ServiceOptions;
  using ps::ShardSettings;
  BindSettings(m);
  auto options = BindOptions<ServiceOptions>(m, "PServiceOptions");
  BindNetOptions<&ServiceOptions::net>(options);
  options.def_prop_rw(
      "port", [](const ServiceOptions& self) { return self.net.ports.empty() ? uint16_t{0} : self.net.ports[0]; },
      [](ServiceOptions& self, uint16_t port) { self.net.ports = {port}; });
  BindMember<&ServiceOptions::net, &net::ServerOptions::threads>(options, "threads");
  BindMember<&ServiceOptions::shard, &ShardSettings::shard>(options, "shard");
  BindMember<&ServiceOptions::shard, &ShardSettings::shards>(options, "shards");
  BindMember<&ServiceOptions::shard, &ShardSettings::tables>(options, "tables");
  BindMember<&ServiceOptions::shard, &ShardSettings::dense_floats>(options, "dense_floats");
  BindMember<&ServiceOptions::shard, &ShardSettings::dense_on_first>(options, "dense_on_first");
  BindMember<&ServiceOptions::shard, &ShardSettings::dense_optimizer>(options, "dense_optimizer");
  BindMember<&ServiceOptions::shard, &ShardSettings::group_timeout_ms>(options, "group_timeout_ms");
  BindMember<&ServiceOptions::token>(options, "token");
  BindMember<&ServiceOptions::job>(options, "job");
  BindMember<&ServiceOptions::identity>(options, "identity");
  BindMember<&ServiceOptions::digest>(options, "digest");
  BindMember<&ServiceOptions::build>(options, "build");
  BindMember<&ServiceOptions::strategy>(options, "strategy");
  BindMember<&ServiceOptions::is_standby>(options, "is_standby");
  BindMember<&ServiceOptions::scratch>(options, "scratch");
  BindMember<&ServiceOptions::files>(options, "files");
  BindMember<&ServiceOptions::replica, &ReplicaOptions::timeout_ms>(options, "standby_timeout_ms");
  BindMember<&ServiceOptions::replica, &ReplicaOptions::max_bytes>(options, "standby_max_bytes");
  BindMember<&ServiceOptions::replica, &ReplicaOptions::confirms_itself>(options, "confirms_drops");
  BindMember<&ServiceOptions::tls_ca>(options, "tls_ca");
  BindMember<&ServiceOptions::tls_checks_host>(options, "tls_check_host");

  nb::class_<Service> server(m, "PServer",
                             "A parameter server in this process: tables and a part of the dense vector.");
  BindServer<ServiceOptions>(server)
      .def("load", &Service::Load, "directory"_a, "era"_a = 0, nb::call_guard<nb::gil_scoped_release>(),
           "Replaces everything by a checkpoint's part, or, given an empty text, by nothing; then it is ready.")
      .def("set_ready", &Service::SetReady)
      .def_prop_ro("port", [](const Service& self) { return self.ports()[0]; })
      .def_prop_ro("is_ready", &Service::is_ready)
      .def_prop_ro("is_primary", &Service::is_primary)
      .def_prop_ro("is_stop_asked", &Service::is_stop_asked)
      .def_prop_ro("is_dropping", &Service::is_dropping, "The standby is given up; pushes are held until confirm_drop.")
      .def("confirm_drop", &Service::ConfirmDrop, nb::call_guard<nb::gil_scoped_release>())
      .def("stats", &Service::stats, "JSON.", nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace elasticctr

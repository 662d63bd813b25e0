#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "ps/server/service.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {

void BindPsServer(nb::module_& m) {
  using ps::Service;
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
  nb::class_<Service>(m, "PServer", "A parameter server in this process: tables and a part of the dense vector.")
      .def(
          "__init__",
          [](Service* self, uint32_t shard, uint32_t shards, std::vector<TableSettings> tables, uint64_t dense_floats,
             bool dense_on_first, const ps::DenseOptimizerSettings& dense_optimizer, const std::string& host,
             uint16_t port, const std::string& unix_path, const std::string& token, uint64_t job,
             const std::string& identity, const std::string& digest, const std::string& build,
             const std::string& strategy, bool is_standby, size_t threads, uint32_t group_timeout_ms,
             uint64_t max_buffered_bytes, uint32_t request_timeout_s, const std::string& scratch,
             uint32_t standby_timeout_ms, uint64_t standby_max_bytes, bool confirms_drops, const std::string& tls_cert,
             const std::string& tls_key, const std::string& tls_client_ca, const std::string& tls_ca,
             bool tls_check_host, const std::string& files) {
            ps::ServiceOptions options;
            options.net.host = host;
            options.net.ports = {port};
            options.net.unix_path = unix_path;
            options.net.unix_send_room = ps::kUnixSendRoom;
            options.net.threads = threads;
            options.net.max_buffered_bytes = max_buffered_bytes;
            options.net.limits.request_timeout_s = request_timeout_s;
            if (!tls_cert.empty()) {
              options.net.tls = std::make_shared<net::TlsContext>(net::TlsOptions{tls_cert, tls_key, tls_client_ca});
            }
            if (!tls_ca.empty()) options.tls = {tls_ca, tls_cert, tls_key, tls_check_host};
            options.shard = {shard,          shards,          std::move(tables), dense_floats,
                             dense_on_first, dense_optimizer, group_timeout_ms};
            options.token = token;
            options.job = job;
            options.identity = identity;
            options.digest = digest;
            options.build = build;
            options.strategy = strategy;
            options.is_standby = is_standby;
            options.scratch = scratch;
            options.files = files;
            options.replica.timeout_ms = standby_timeout_ms;
            options.replica.max_bytes = standby_max_bytes;
            options.replica.confirms_itself = confirms_drops;
            new (self) Service(options);
          },
          "shard"_a, "shards"_a, "tables"_a, "dense_floats"_a, "dense_on_first"_a, "dense_optimizer"_a, "host"_a,
          "port"_a, "unix_path"_a, "token"_a, "job"_a, "identity"_a, "digest"_a, "build"_a, "strategy"_a,
          "is_standby"_a, "threads"_a, "group_timeout_ms"_a, "max_buffered_bytes"_a, "request_timeout_s"_a,
          "scratch"_a = "", "standby_timeout_ms"_a = 5'000, "standby_max_bytes"_a = uint64_t{512} << 20,
          "confirms_drops"_a = true, "tls_cert"_a = "", "tls_key"_a = "", "tls_client_ca"_a = "", "tls_ca"_a = "",
          "tls_check_host"_a = true, "files"_a = "")
      .def(
          "set_tls",
          [](Service& self, const std::string& cert, const std::string& key, const std::string& client_ca) {
            self.SetTls(std::make_shared<net::TlsContext>(net::TlsOptions{cert, key, client_ca}));
          },
          "cert"_a, "key"_a, "client_ca"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("start", &Service::Start, nb::call_guard<nb::gil_scoped_release>())
      .def("stop", &Service::Stop, "drain_s"_a, nb::call_guard<nb::gil_scoped_release>())
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

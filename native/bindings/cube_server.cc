#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "cube/server/service.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {

void BindCubeServer(nb::module_& m) {
  using cube::Service;
  nb::class_<Service>(m, "CubeServer")
      .def(
          "__init__",
          [](Service* self, const std::string& data, const std::string& host, std::vector<uint16_t> ports,
             const std::string& unix_path, bool in_memory, bool check_all, size_t threads, const std::string& token,
             const std::string& read_token, uint32_t shard, uint32_t shards, bool activate_newest,
             size_t max_connections, size_t max_connections_per_address, uint64_t max_buffered_bytes,
             uint32_t request_timeout_s, uint32_t busy_poll_us, const std::string& tls_cert, const std::string& tls_key,
             const std::string& tls_client_ca) {
            cube::ServiceOptions options;
            options.net.host = host;
            options.net.ports = std::move(ports);
            options.net.unix_path = unix_path;
            options.net.threads = threads;
            options.net.max_connections = max_connections;
            options.net.max_connections_per_address = max_connections_per_address;
            options.net.max_buffered_bytes = max_buffered_bytes;
            options.net.limits.request_timeout_s = request_timeout_s;
            options.net.limits.busy_poll_us = busy_poll_us;
            if (!tls_cert.empty()) {
              options.net.tls = std::make_shared<net::TlsContext>(net::TlsOptions{tls_cert, tls_key, tls_client_ca});
            }
            options.data = data;
            options.residence = in_memory ? cube::Residence::kMemory : cube::Residence::kMapped;
            options.check = check_all ? cube::Check::kAll : cube::Check::kHeader;
            options.token = token;
            options.read_token = read_token;
            options.shard = shard;
            options.shards = shards;
            options.activates_newest = activate_newest;
            new (self) Service(options);
          },
          "data"_a, "host"_a, "ports"_a, "unix_path"_a, "in_memory"_a, "check_all"_a, "threads"_a, "token"_a,
          "read_token"_a, "shard"_a, "shards"_a, "activate_newest"_a, "max_connections"_a,
          "max_connections_per_address"_a, "max_buffered_bytes"_a, "request_timeout_s"_a, "busy_poll_us"_a,
          "tls_cert"_a = "", "tls_key"_a = "", "tls_client_ca"_a = "")
      .def(
          "set_tls",
          [](Service& self, const std::string& cert, const std::string& key, const std::string& client_ca) {
            self.SetTls(std::make_shared<net::TlsContext>(net::TlsOptions{cert, key, client_ca}));
          },
          "cert"_a, "key"_a, "client_ca"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("start", &Service::Start, nb::call_guard<nb::gil_scoped_release>())
      .def("wait_started", &Service::WaitStarted, "timeout_s"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("stop", &Service::Stop, "drain_s"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("ports", [](const Service& self) { return self.ports(); })
      .def_prop_ro("is_ready", &Service::is_ready)
      .def("status", &Service::status, "What GET /v1/status answers.");
}

}  // namespace elasticctr

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/options.h"
#include "cube/server/service.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {

using cube::Service;
using cube::ServiceOptions;

void BindCubeServer(nb::module_& m) {
  auto options = BindOptions<ServiceOptions>(m, "CubeServiceOptions");
  BindNetOptions<&ServiceOptions::net>(options);
  BindMember<&ServiceOptions::net, &net::ServerOptions::threads>(options, "threads");
  BindMember<&ServiceOptions::data>(options, "data");
  options.def_prop_rw(
      "in_memory", [](const ServiceOptions& self) { return self.residence == cube::Residence::kMemory; },
      [](ServiceOptions& self, bool is_copied) {
        self.residence = is_copied ? cube::Residence::kMemory : cube::Residence::kMapped;
      });
  options.def_prop_rw(
      "check_all", [](const ServiceOptions& self) { return self.check == cube::Check::kAll; },
      [](ServiceOptions& self, bool is_full) { self.check = is_full ? cube::Check::kAll : cube::Check::kHeader; });
  BindMember<&ServiceOptions::token>(options, "token");
  BindMember<&ServiceOptions::read_token>(options, "read_token");
  BindMember<&ServiceOptions::shard>(options, "shard");
  BindMember<&ServiceOptions::shards>(options, "shards");
  BindMember<&ServiceOptions::activates_newest>(options, "activate_newest");

  nb::class_<Service> server(m, "CubeServer");
  BindServer<ServiceOptions>(server)
      .def("wait_started", &Service::WaitStarted, "timeout_s"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("ports", [](const Service& self) { return self.ports(); })
      .def_prop_ro("is_ready", &Service::is_ready)
      .def("status", &Service::status, "What GET /v1/status answers.");
}

}  // namespace elasticctr

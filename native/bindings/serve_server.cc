#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "net/http/site.h"
#include "serve/http/status.h"
#include "serve/kserve/grpc_codec.h"
#include "serve/service.h"
#include "serve/version/version.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

using serve::Service;

// name, weight, is it a shadow, version
using VariantTuple = std::tuple<std::string, double, bool, std::shared_ptr<serve::ServedVersion>>;
// name, sticky field, its seed, answers Paddle calls that name no model, variants
using ModelTuple = std::tuple<std::string, std::string, uint64_t, bool, std::vector<VariantTuple>>;

void SetModels(Service& self, const std::vector<ModelTuple>& given) {
  std::vector<serve::Model> models;
  for (const auto& [name, sticky, seed, paddle_default, variants] : given) {
    serve::Model model;
    model.name = name;
    model.sticky_field = sticky;
    model.sticky_seed = seed;
    model.paddle_default = paddle_default;
    for (const auto& [variant, weight, is_shadow, version] : variants) {
      model.variants.push_back({variant, weight, is_shadow, version, nullptr});
    }
    models.push_back(std::move(model));
  }
  nb::gil_scoped_release release;
  self.SetModels(std::move(models));
}

nb::object NextControl(Service& self, double timeout_s) {
  serve::ControlRequest request;
  bool came = false;
  {
    nb::gil_scoped_release release;
    came = self.control().Next(timeout_s, &request);
  }
  if (!came) return nb::none();
  return nb::make_tuple(request.id, nb::bytes(request.method.data(), request.method.size()),
                        nb::bytes(request.path.data(), request.path.size()),
                        nb::bytes(request.query.data(), request.query.size()),
                        nb::bytes(request.authorization.data(), request.authorization.size()),
                        nb::bytes(request.body.data(), request.body.size()));
}

nb::bytes Call(Service& self, const std::string& codec, nb::bytes body, const std::string& model,
               const std::string& version, uint32_t timeout_ms, const std::string& id, const std::string& peer) {
  auto request = std::make_unique<serve::Request>();
  request->codec = serve::FindCodec(codec);
  if (request->codec == nullptr) throw Error(Code::kNotFound, "no codec is called " + codec);
  request->body.assign(body.c_str(), body.size());
  request->model = model;
  request->version = version;
  request->id = id;
  request->peer = peer;
  std::string answer;
  {
    nb::gil_scoped_release release;
    answer = self.Call(std::move(request), timeout_ms);
  }
  return nb::bytes(answer.data(), answer.size());
}

serve::RequestLogOptions RequestLogOptionsOf(const nb::dict& given) {
  serve::RequestLogOptions options;
  options.directory = nb::cast<std::string>(given["directory"]);
  options.sample = nb::cast<double>(given["sample"]);
  options.max_bytes = nb::cast<uint64_t>(given["max_bytes"]);
  options.file_bytes = nb::cast<uint64_t>(given["file_bytes"]);
  options.file_s = nb::cast<uint32_t>(given["file_s"]);
  options.queue_bytes = nb::cast<size_t>(given["queue_bytes"]);
  options.body_bytes = nb::cast<size_t>(given["body_bytes"]);
  return options;
}

void Make(Service* self, const std::string& host, std::vector<uint16_t> ports, const std::string& unix_path,
          size_t loops, size_t workers, const std::string& token, const std::string& read_token, size_t batch_samples,
          uint32_t batch_wait_us, size_t queue_requests, uint32_t queue_ms, uint32_t timeout_ms, size_t body_bytes,
          size_t samples, size_t values, uint32_t json_depth, size_t max_connections,
          size_t max_connections_per_address, uint64_t max_buffered_bytes, uint32_t request_timeout_s,
          uint32_t busy_poll_us, size_t control_requests, double control_timeout_s, const std::string& access_log,
          uint64_t access_log_max_bytes, uint32_t access_log_keep, const std::string& tls_cert,
          const std::string& tls_key, const std::string& tls_client_ca,
          std::optional<nb::typed<nb::dict, nb::str, nb::any>> request_log) {
  serve::ServiceOptions options;
  options.net.host = host;
  options.net.ports = std::move(ports);
  options.net.unix_path = unix_path;
  options.net.threads = loops;
  options.net.max_connections = max_connections;
  options.net.max_connections_per_address = max_connections_per_address;
  options.net.max_buffered_bytes = max_buffered_bytes;
  options.net.limits.request_timeout_s = request_timeout_s;
  options.net.limits.busy_poll_us = busy_poll_us;
  options.engine.workers = workers;
  options.engine.batch_samples = batch_samples;
  options.engine.batch_wait_us = batch_wait_us;
  options.engine.queue_requests = queue_requests;
  options.engine.queue_ms = queue_ms;
  options.engine.timeout_ms = timeout_ms;
  options.engine.limits.body_bytes = body_bytes;
  options.engine.limits.samples = samples;
  options.engine.limits.values = values;
  options.engine.limits.json_depth = json_depth;
  options.token = token;
  options.read_token = read_token;
  options.control.requests = control_requests;
  options.control.timeout_s = control_timeout_s;
  options.access_log = {access_log, access_log_max_bytes, access_log_keep};
  if (request_log.has_value()) options.request_log = RequestLogOptionsOf(*request_log);
  if (!tls_cert.empty())
    options.net.tls = std::make_shared<net::TlsContext>(net::TlsOptions{tls_cert, tls_key, tls_client_ca});
  new (self) Service(options);
}

}  // namespace

void BindServeServer(nb::module_& m) {
  m.def(
      "grpc_status", [](int code) { return serve::GrpcStatusOf(Error(static_cast<Code>(code), "")); }, "code"_a,
      "The number gRPC has for an error.");
  m.def(
      "http_status", [](int code) { return serve::HttpStatusOf(static_cast<Code>(code)); }, "code"_a,
      "The HTTP status of an error code (ElasticCTRError.exit_status).");
  m.def(
      "check_site",
      [](std::string method, std::string host, std::string origin, std::string content_type,
         const std::string& own_host) -> std::optional<std::pair<int, std::string>> {
        net::HttpRequest request;
        request.method = std::move(method);
        request.host = std::move(host);
        request.origin = std::move(origin);
        request.content_type = std::move(content_type);
        auto refusal = net::CheckSite(request, own_host);
        if (!refusal) return std::nullopt;
        return std::pair(refusal->status, refusal->why);
      },
      nb::kw_only(), "method"_a, "host"_a, "origin"_a, "content_type"_a, "own_host"_a,
      "Why a server without a token must not answer this: HTTP status and sentence. None: it may.");
  nb::class_<Service>(m, "PredictServer")
      .def("__init__", &Make, nb::kw_only(), "host"_a, "ports"_a, "unix_path"_a, "loops"_a, "workers"_a, "token"_a,
           "read_token"_a, "batch_samples"_a, "batch_wait_us"_a, "queue_requests"_a, "queue_ms"_a, "timeout_ms"_a,
           "body_bytes"_a, "samples"_a, "values"_a, "json_depth"_a, "max_connections"_a,
           "max_connections_per_address"_a, "max_buffered_bytes"_a, "request_timeout_s"_a, "busy_poll_us"_a,
           "control_requests"_a, "control_timeout_s"_a, "access_log"_a, "access_log_max_bytes"_a, "access_log_keep"_a,
           "tls_cert"_a, "tls_key"_a, "tls_client_ca"_a, "request_log"_a.none())
      .def("start", &Service::Start, nb::call_guard<nb::gil_scoped_release>())
      .def("stop", &Service::Stop, "drain_s"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("set_models", &SetModels, "models"_a)
      .def(
          "set_tls",
          [](Service& self, const std::string& cert, const std::string& key, const std::string& client_ca) {
            self.SetTls(std::make_shared<net::TlsContext>(net::TlsOptions{cert, key, client_ca}));
          },
          "cert"_a, "key"_a, "client_ca"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("set_ready", &Service::SetReady, "is_ready"_a, "why"_a)
      .def("next_control", &NextControl, "timeout_s"_a,
           nb::sig("def next_control(self, timeout_s: float) -> tuple[int, bytes, bytes, bytes, bytes, bytes] | None"),
           "id, method, path, query, authorization, body")
      .def(
          "answer_control",
          [](Service& self, uint64_t id, int status, const std::string& content_type, nb::bytes body,
             const std::string& headers) {
            std::string copy(body.c_str(), body.size());
            nb::gil_scoped_release release;
            self.control().Answer(id, status, content_type, copy, headers);
          },
          "id"_a, "status"_a, "content_type"_a, "body"_a, "headers"_a = "")
      .def("call", &Call, "codec"_a, "body"_a, "model"_a = "", "version"_a = "", "timeout_ms"_a = 0, "id"_a = "",
           "peer"_a = "")
      .def("matches", &Service::Matches, "token"_a, "Whether this is the server's token; true if it has none.")
      .def("metrics", &Service::MetricsText, nb::call_guard<nb::gil_scoped_release>())
      .def("set_extra_metrics", &Service::SetExtraMetrics, "text"_a)
      .def_prop_ro("ports", [](const Service& self) { return self.ports(); })
      .def_prop_ro("queued", &Service::queued)
      .def_prop_ro("connections", &Service::connections);
}

}  // namespace elasticctr

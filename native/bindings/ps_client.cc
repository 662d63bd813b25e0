#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/options.h"
#include "ps/client/client.h"
#include "ps/client/merger.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

using ps::Client;
using Vector = nb::ndarray<const float, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<float, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Gradients = std::vector<std::vector<Floats>>;
// Feasigns, shows, clicks, gradients and, optionally, masks of one table.
using ExplicitTable = std::tuple<Feasigns, Vector, Vector, Matrix, std::optional<Feasigns>>;

constexpr uint32_t kSliceMs = 200;

// Waits without the GIL, in slices, so that a signal ends it.
template <typename Wait>
void WaitInSlices(Wait&& wait) {
  for (;;) {
    {
      nb::gil_scoped_release release;
      if (wait(kSliceMs)) return;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

std::span<const float> ToSpan(const std::optional<Vector>& array) {
  return array ? std::span<const float>(array->data(), array->size()) : std::span<const float>();
}

std::vector<std::vector<Target>> ToTargetLists(const Gradients& gradients) {
  std::vector<std::vector<Target>> lists;
  for (const auto& arrays : gradients) lists.push_back(ToTargets(arrays));
  return lists;
}

PushSamples ToSamplesOf(const std::vector<const Lookup*>& lookups, const std::optional<Column>& clicks,
                        const std::optional<Column>& shows, float gradient_scale) {
  PushSamples samples = ToSamples(clicks, shows, lookups.empty() ? 0 : lookups.front()->samples());
  samples.gradient_scale = gradient_scale;
  return samples;
}

// Holds the lookups that the rows are pooled by: they must outlive the fetch.
struct BoundFetch {
  std::unique_ptr<ps::Fetch> fetch;
  std::vector<nb::object> lookups;

  void Wait() {
    WaitInSlices([this](uint32_t ms) { return fetch->Wait(ms); });
  }
};

BoundFetch* StartPull(Client& self, const std::vector<nb::object>& lookups, bool insert, bool wants_dense) {
  auto bound = std::make_unique<BoundFetch>();
  bound->lookups = lookups;
  std::vector<const Lookup*> converted;
  for (const nb::object& lookup : lookups) converted.push_back(nb::cast<const Lookup*>(lookup));
  nb::gil_scoped_release release;
  bound->fetch = self.StartPull(converted, insert, wants_dense);
  return bound.release();
}

nb::dict Stats(const Client& self) {
  const ps::ClientStats stats = self.stats();
  nb::dict out;
  out["sent_bytes"] = stats.sent_bytes;
  out["received_bytes"] = stats.received_bytes;
  out["pulls"] = stats.pulls;
  out["pushes"] = stats.pushes;
  out["resent"] = stats.resent;
  out["reconnects"] = stats.reconnects;
  out["applied_before"] = stats.applied_before;
  out["not_finite"] = stats.not_finite;
  out["outstanding"] = self.outstanding();
  nb::list links;
  for (const ps::LinkState& link : self.links()) {
    nb::dict one;
    one["address"] = link.address;
    one["is_ready"] = link.is_ready;
    one["trouble"] = link.trouble;
    links.append(one);
  }
  out["pservers"] = links;
  return out;
}

uint64_t PushRows(Client& self, const ps::PushHead& head, const std::vector<ExplicitTable>& tables,
                  const std::optional<Vector>& dense) {
  std::vector<ps::GradientTable> converted;
  for (const auto& [feasigns, shows, clicks, gradients, masks] : tables) {
    std::span<const uint64_t> given_masks;
    if (masks) given_masks = {masks->data(), masks->size()};
    converted.push_back({{feasigns.data(), feasigns.size()},
                         {shows.data(), shows.size()},
                         {clicks.data(), clicks.size()},
                         given_masks,
                         {gradients.data(), gradients.size()}});
  }
  nb::gil_scoped_release release;
  return self.Push(head, converted, ToSpan(dense));
}

void BindHead(nb::module_& m) {
  nb::enum_<ps::PushKind>(m, "PushKind")
      .value("gradients", ps::PushKind::kGradients)
      .value("deltas", ps::PushKind::kDeltas)
      .value("nothing", ps::PushKind::kNothing)
      .value("empty", ps::PushKind::kEmpty);
  nb::enum_<ps::GroupMode>(m, "GroupMode")
      .value("none", ps::GroupMode::kNone)
      .value("all", ps::GroupMode::kAll)
      .value("dense", ps::GroupMode::kDense);
  nb::class_<ps::PushHead>(m, "PushHead")
      .def(
          "__init__",
          [](ps::PushHead* self, uint64_t chunk, uint32_t from_batch, uint32_t to_batch, uint32_t weight, uint32_t now,
             float rate_scale, ps::PushKind kind, ps::GroupMode group, bool wants_dense) {
            new (self) ps::PushHead{chunk, from_batch, to_batch, weight, now, rate_scale, kind, group, wants_dense};
          },
          nb::kw_only(), "chunk"_a, "from_batch"_a, "to_batch"_a, "weight"_a, "now"_a = 0, "rate_scale"_a = 1.0f,
          "kind"_a = ps::PushKind::kGradients, "group"_a = ps::GroupMode::kNone, "wants_dense"_a = false)
      .def_rw("chunk", &ps::PushHead::chunk)
      .def_rw("from_batch", &ps::PushHead::from)
      .def_rw("to_batch", &ps::PushHead::to)
      .def_rw("weight", &ps::PushHead::weight)
      .def_rw("now", &ps::PushHead::now)
      .def_rw("rate_scale", &ps::PushHead::rate_scale)
      .def_rw("kind", &ps::PushHead::kind)
      .def_rw("group", &ps::PushHead::group)
      .def_rw("wants_dense", &ps::PushHead::wants_dense);
}

void BindMerger(nb::module_& m) {
  nb::class_<ps::Merger>(m, "PsMerger")
      .def(nb::init<std::vector<uint32_t>, size_t, bool>(), nb::kw_only(), "dims"_a, "dense_floats"_a, "is_mean"_a)
      .def(
          "add",
          [](ps::Merger& self, const std::vector<const Lookup*>& lookups, const std::vector<const Layout*>& layouts,
             const Gradients& gradients, const std::optional<Vector>& dense, const std::optional<Column>& clicks,
             const std::optional<Column>& shows, uint32_t weight) {
            const auto targets = ToTargetLists(gradients);
            const PushSamples samples = ToSamplesOf(lookups, clicks, shows, 1.0f);
            nb::gil_scoped_release release;
            return self.AddBatch(lookups, layouts, targets, samples, ToSpan(dense), weight);
          },
          "lookups"_a, "layouts"_a, "gradients"_a, "dense"_a.none() = nb::none(), "clicks"_a.none() = nb::none(),
          "shows"_a.none() = nb::none(), nb::kw_only(), "weight"_a)
      .def_prop_ro("batches", &ps::Merger::batches)
      .def_prop_ro("weight", &ps::Merger::weight)
      .def("clear", &ps::Merger::Clear);
}

void BindFetch(nb::module_& m) {
  nb::class_<BoundFetch>(m, "PsFetch")
      .def(
          "wait",
          [](BoundFetch& self, uint32_t timeout_ms) {
            nb::gil_scoped_release release;
            return self.fetch->Wait(timeout_ms);
          },
          "timeout_ms"_a)
      .def(
          "pool",
          [](BoundFetch& self, size_t table, const Layout& layout, const std::vector<Floats>& targets) {
            const auto converted = ToTargets(targets);
            self.Wait();
            nb::gil_scoped_release release;
            self.fetch->Pool(table, layout, converted);
          },
          "table"_a, "layout"_a, "targets"_a)
      .def(
          "rows",
          [](nb::handle_t<BoundFetch> self, size_t table) {
            auto& bound = nb::cast<BoundFetch&>(self);
            bound.Wait();
            const std::span<const float> rows = bound.fetch->Rows(table);
            const size_t count = nb::cast<const Lookup&>(bound.lookups.at(table)).distinct();
            return nb::ndarray<nb::numpy, const float>(rows.data(), {count, count == 0 ? 0 : rows.size() / count},
                                                       self);
          },
          "table"_a)
      .def_prop_ro("dense_version",
                   [](BoundFetch& self) {
                     self.Wait();
                     return self.fetch->dense_version();
                   })
      .def_prop_ro("step", [](BoundFetch& self) {
        self.Wait();
        return self.fetch->step();
      });
}

void BindClientOptions(nb::module_& m) {
  using net::TlsClientOptions;
  using ps::ClientOptions;
  using TableTuple = std::tuple<std::string, uint32_t, bool>;  // name, dim, whether it counts occurrences
  auto options = BindOptions<ClientOptions>(m, "PsClientOptions");
  BindMember<&ClientOptions::addresses>(options, "addresses");
  BindMember<&ClientOptions::token>(options, "token");
  BindMember<&ClientOptions::job>(options, "job");
  BindMember<&ClientOptions::trainer>(options, "trainer");
  BindMember<&ClientOptions::incarnation>(options, "incarnation");
  BindMember<&ClientOptions::era>(options, "era");
  BindMember<&ClientOptions::attach>(options, "attach");
  BindMember<&ClientOptions::dense_floats>(options, "dense_floats");
  BindMember<&ClientOptions::dense_on_first>(options, "dense_on_first");
  BindMember<&ClientOptions::timeout_ms>(options, "timeout_ms");
  BindMember<&ClientOptions::tls, &TlsClientOptions::ca>(options, "tls_ca");
  BindMember<&ClientOptions::tls, &TlsClientOptions::certificate>(options, "tls_cert");
  BindMember<&ClientOptions::tls, &TlsClientOptions::key>(options, "tls_key");
  BindMember<&ClientOptions::tls, &TlsClientOptions::checks_host>(options, "tls_check_host");
  const Choices<ps::Encoding> encodings = {{"fp32", ps::Encoding::kFp32},
                                           {"fp16", ps::Encoding::kFp16},
                                           {"int8", ps::Encoding::kInt8},
                                           {"bf16", ps::Encoding::kBf16}};
  BindChoice<&ClientOptions::row_encoding>(options, "rows_as", encodings);
  BindChoice<&ClientOptions::gradient_encoding>(options, "gradients_as", encodings);
  BindChoice<&ClientOptions::dense_gradient_encoding>(options, "dense_gradients_as", encodings);
  options.def_prop_rw(
      "tables",
      [](const ClientOptions& self) {
        std::vector<TableTuple> tables;
        for (size_t i = 0; i < self.tables.size(); ++i) {
          tables.emplace_back(self.table_names[i], self.tables[i].dim, self.tables[i].counts_occurrences);
        }
        return tables;
      },
      [](ClientOptions& self, const std::vector<TableTuple>& tables) {
        for (const auto& [name, dim, counts_occurrences] : tables) {
          self.table_names.push_back(name);
          self.tables.push_back({dim, counts_occurrences});
        }
      });
}

void BindBatches(nb::class_<Client>& type) {
  type.def(
          "__init__",
          [](Client* self, const nb::kwargs& named) {
            const auto options = OptionsFrom<ps::ClientOptions>(named);
            nb::gil_scoped_release release;
            new (self) Client(options);
          },
          kByName)
      .def_prop_ro("shards", &Client::shards)
      .def("start_pull", &StartPull, "lookups"_a, "insert"_a, "wants_dense"_a, nb::rv_policy::take_ownership)
      .def(
          "copy_dense", [](const Client& self, Output out) { return self.CopyDense({out.data(), out.size()}); },
          "out"_a)
      .def(
          "pull_dense",
          [](Client& self, Output out) {
            nb::gil_scoped_release release;
            return self.PullDense({out.data(), out.size()});
          },
          "out"_a)
      .def(
          "set_dense",
          [](Client& self, Vector values) {
            nb::gil_scoped_release release;
            return self.SetDense({values.data(), values.size()});
          },
          "values"_a)
      .def(
          "push",
          [](Client& self, const ps::PushHead& head, const std::vector<const Lookup*>& lookups,
             const std::vector<const Layout*>& layouts, const Gradients& gradients, const std::optional<Vector>& dense,
             const std::optional<Column>& clicks, const std::optional<Column>& shows, float gradient_scale) {
            const auto targets = ToTargetLists(gradients);
            const PushSamples samples = ToSamplesOf(lookups, clicks, shows, gradient_scale);
            nb::gil_scoped_release release;
            return self.PushBatch(head, lookups, layouts, targets, samples, ToSpan(dense));
          },
          "head"_a, "lookups"_a, "layouts"_a, "gradients"_a, "dense"_a.none() = nb::none(),
          "clicks"_a.none() = nb::none(), "shows"_a.none() = nb::none(), "gradient_scale"_a = 1.0f)
      .def("push_rows", &PushRows, "head"_a, "tables"_a, "dense"_a.none() = nb::none())
      .def(
          "push_merged",
          [](Client& self, const ps::PushHead& head, ps::Merger& merger) {
            nb::gil_scoped_release release;
            return self.Push(head, merger.Tables(), merger.Dense());
          },
          "head"_a, "merger"_a);
}

void BindProgress(nb::class_<Client>& type) {
  type.def(
          "wait_pushes",
          [](Client& self, size_t outstanding, uint32_t timeout_ms) {
            uint32_t left = timeout_ms;
            WaitInSlices([&](uint32_t ms) {
              if (left <= ms) {
                self.WaitPushes(outstanding, left);
                return true;
              }
              left -= ms;
              return self.TryWaitPushes(outstanding, ms);
            });
          },
          "outstanding"_a, "timeout_ms"_a)
      .def_prop_ro("outstanding", &Client::outstanding)
      .def(
          "cursors",
          [](Client& self, const std::vector<uint64_t>& chunks) {
            nb::gil_scoped_release release;
            return self.Cursors(chunks);
          },
          "chunks"_a)
      .def(
          "set_cursors",
          [](Client& self, uint64_t chunk, const std::vector<uint32_t>& by_shard) { self.SetCursors(chunk, by_shard); },
          "chunk"_a, "by_shard"_a)
      .def("drop", &Client::Drop, nb::call_guard<nb::gil_scoped_release>())
      .def("set_era", &Client::SetEra, "era"_a)
      .def("set_address", &Client::SetAddress, "shard"_a, "address"_a, "incarnation"_a)
      .def("control", &Client::Control, "shard"_a, "json"_a, "timeout_ms"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("stats", &Stats, nb::sig("def stats(self) -> dict[str, Any]"));
}

}  // namespace

void BindPsClient(nb::module_& m) {
  BindClientOptions(m);
  BindHead(m);
  BindMerger(m);
  BindFetch(m);
  nb::class_<Client> client(m, "PsClient");
  BindBatches(client);
  BindProgress(client);
}

}  // namespace elasticctr

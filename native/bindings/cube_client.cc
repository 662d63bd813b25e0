#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/options.h"
#include "cube/client/client.h"
#include "cube/client/load.h"
#include "util/status_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

using cube::Client;
using Feasigns = nb::ndarray<const uint64_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;

template <typename T>
nb::object MoveToNumpy(std::unique_ptr<T[]> data, std::initializer_list<size_t> shape) {
  T* values = data.release();
  nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(values, shape, owner));
}

nb::object RowsToNumpy(cube::TableRows& table, size_t count) {
  if (table.shape.encoding == cube::Encoding::kRaw) {
    return MoveToNumpy(std::move(table.rows), {count, table.shape.row_bytes});
  }
  uint8_t* bytes = table.rows.release();
  nb::capsule owner(bytes, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, float>(reinterpret_cast<float*>(bytes), {count, table.shape.dim}, owner));
}

nb::tuple Get(Client& self, const std::vector<std::string>& tables, const std::vector<Feasigns>& feasigns,
              uint64_t version, uint32_t timeout_ms, bool degrade) {
  if (tables.empty() || tables.size() != feasigns.size()) {
    throw Error(Code::kFailedPrecondition, "a lookup needs at least one table, and feasigns for each");
  }
  std::vector<cube::TableQuery> queries;
  for (size_t i = 0; i < tables.size(); ++i) queries.push_back({tables[i], feasigns[i].data(), feasigns[i].size()});
  cube::Answer answer;
  {
    nb::gil_scoped_release release;
    answer = self.Get(queries, {version, timeout_ms, degrade});
  }
  nb::list rows;
  for (size_t i = 0; i < tables.size(); ++i) {
    const size_t count = queries[i].count;
    rows.append(
        nb::make_tuple(RowsToNumpy(answer.tables[i], count), MoveToNumpy(std::move(answer.tables[i].found), {count})));
  }
  return nb::make_tuple(rows, answer.version, nb::tuple(nb::cast(answer.degraded)));
}

template <typename Counts>
nb::dict ErrorsByName(const Counts& counts) {
  nb::dict errors;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (const uint64_t n = counts[i]; n > 0) errors[kStatusTable[i].name] = n;
  }
  return errors;
}

nb::dict Stats(Client& self) {
  nb::dict stats;
  cube::ClientCounters& counters = self.cluster().counters();
  const auto set = [&stats](const char* name, const std::atomic<uint64_t>& counter) { stats[name] = counter.load(); };
  set("calls", counters.calls);
  set("keys", counters.keys);
  set("missing", counters.missing);
  set("repeated", counters.repeated);
  set("sent_keys", counters.sent_keys);
  set("cache_hits", counters.cache_hits);
  set("cache_misses", counters.cache_misses);
  set("retries", counters.retries);
  set("backups", counters.backups);
  set("backups_won", counters.backups_won);
  set("ejections", counters.ejections);
  set("returns", counters.returns);
  set("version_changes", counters.version_changes);
  set("versions_gone", counters.versions_gone);
  set("describes", counters.describes);
  set("degraded_calls", counters.degraded_calls);
  set("degraded_keys", counters.degraded_keys);
  stats["errors"] = ErrorsByName(counters.errors);
  stats["cache_bytes"] = self.cache() != nullptr ? self.cache()->bytes() : 0;
  stats["cache_entries"] = self.cache() != nullptr ? self.cache()->entries() : 0;
  nb::list replicas;
  for (uint32_t s = 0; s < self.cluster().shards(); ++s) {
    for (size_t k = 0; k < self.cluster().shard(s).size(); ++k) {
      const cube::ReplicaStats one = self.cluster().shard(s)[k].stats();
      nb::dict replica;
      replica["address"] = one.address;
      replica["shard"] = one.shard;
      replica["ejected"] = one.is_ejected;
      replica["in_flight"] = one.in_flight;
      replica["requests"] = one.requests;
      replica["failures"] = one.failures;
      replica["ejections"] = one.ejections;
      replica["connections"] = one.connections;
      replicas.append(replica);
    }
  }
  stats["replicas"] = replicas;
  return stats;
}

nb::dict FinishLoad(cube::Load& self) {
  cube::LoadResult result;
  {
    nb::gil_scoped_release release;
    result = self.Finish();
  }
  nb::dict out, versions;
  for (const auto& [version, calls] : result.versions) versions[nb::int_(version)] = calls;
  out["seconds"] = result.seconds;
  out["calls"] = result.calls;
  out["keys"] = result.keys;
  out["missing"] = result.missing;
  out["degraded"] = result.degraded;
  for (const auto& [name, share] :
       {std::pair("p50_us", 0.5), {"p80_us", 0.8}, {"p90_us", 0.9}, {"p99_us", 0.99}, {"p99_9_us", 0.999}}) {
    out[name] = static_cast<double>(std::min(result.times.Percentile(share), result.max_ns)) / 1000.0;
  }
  out["max_us"] = static_cast<double>(result.max_ns) / 1000.0;
  out["errors"] = ErrorsByName(result.errors);
  out["first_error"] = result.first_error;
  out["versions"] = versions;
  return out;
}

void BindLoad(nb::module_& m) {
  nb::class_<cube::Load>(m, "CubeLoad")
      .def(
          "__init__",
          [](cube::Load* self, Client& client, std::string table, Feasigns feasigns, size_t batch, uint32_t threads,
             double seconds, double rate, uint64_t version, uint32_t timeout_ms, bool degrade) {
            std::vector<uint64_t> keys(feasigns.data(), feasigns.data() + feasigns.size());
            new (self) cube::Load(client, std::move(table), std::move(keys),
                                  {batch, threads, seconds, rate, {version, timeout_ms, degrade}});
          },
          "client"_a, "table"_a, "feasigns"_a, nb::kw_only(), "batch"_a = 100, "threads"_a = 1, "seconds"_a = 5.0,
          "rate"_a = 0.0, "version"_a = 0, "timeout_ms"_a = 0, "degrade"_a = false, nb::keep_alive<1, 2>())
      .def_prop_ro("calls", &cube::Load::calls)
      .def_prop_ro("is_done", &cube::Load::is_done)
      .def("stop", &cube::Load::Stop)
      .def("finish", &FinishLoad, nb::sig("def finish(self) -> dict[str, Any]"));
}

void BindClientSettings(nb::module_& m) {
  using cube::ClientSettings;
  using net::TlsClientOptions;
  auto settings = BindOptions<ClientSettings>(m, "CubeClientSettings");
  BindMember<&ClientSettings::shards>(settings, "shards");
  BindMember<&ClientSettings::token>(settings, "token");
  BindMember<&ClientSettings::timeout_ms>(settings, "timeout_ms");
  BindMember<&ClientSettings::connect_ms>(settings, "connect_ms");
  BindMember<&ClientSettings::retries>(settings, "retries");
  BindMember<&ClientSettings::backup_ms>(settings, "backup_ms");
  BindMember<&ClientSettings::eject_after>(settings, "eject_after");
  BindMember<&ClientSettings::eject_ms>(settings, "eject_ms");
  BindMember<&ClientSettings::eject_max_ms>(settings, "eject_max_ms");
  BindMember<&ClientSettings::idle_connections>(settings, "idle_connections");
  BindMember<&ClientSettings::cache_bytes>(settings, "cache_bytes");
  BindMember<&ClientSettings::refresh_ms>(settings, "refresh_ms");
  BindMember<&ClientSettings::tls, &TlsClientOptions::ca>(settings, "tls_ca");
  BindMember<&ClientSettings::tls, &TlsClientOptions::certificate>(settings, "tls_cert");
  BindMember<&ClientSettings::tls, &TlsClientOptions::key>(settings, "tls_key");
  BindMember<&ClientSettings::tls, &TlsClientOptions::checks_host>(settings, "tls_check_host");
  BindChoice<&ClientSettings::sharding>(
      settings, "sharding",
      Choices<std::optional<cube::Sharding>>{
          {"auto", std::nullopt}, {"buckets", cube::Sharding::kBuckets}, {"modulo", cube::Sharding::kModulo}});
  BindChoice<&ClientSettings::balance>(settings, "load_balancer",
                                       Choices<cube::Balance>{{"round_robin", cube::Balance::kRoundRobin},
                                                              {"least_loaded", cube::Balance::kLeastLoaded},
                                                              {"random", cube::Balance::kRandom}});
}

}  // namespace

void BindCubeClient(nb::module_& m) {
  BindClientSettings(m);
  nb::class_<Client>(m, "CubeClient")
      .def(
          "__init__",
          [](Client* self, const nb::kwargs& named) {
            auto settings = OptionsFrom<cube::ClientSettings>(named);
            nb::gil_scoped_release release;
            new (self) Client(std::move(settings));
          },
          kByName)
      .def("get", &Get, "tables"_a, "feasigns"_a, "version"_a = 0, "timeout_ms"_a = 0, "degrade"_a = false)
      .def("connect", &Client::Connect, "timeout_ms"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("tables", [](Client& self) { return self.directory().tables(); })
      .def(
          "identities",
          [](Client& self, const std::string& model, uint64_t version) {
            return self.directory().IdentitiesOf(model, version);
          },
          "model"_a, "version"_a)
      .def("close_idle",
           [](Client& self) {
             for (uint32_t s = 0; s < self.cluster().shards(); ++s) {
               for (size_t k = 0; k < self.cluster().shard(s).size(); ++k) self.cluster().shard(s)[k].CloseIdle();
             }
           })
      .def("stats", &Stats, nb::sig("def stats(self) -> dict[str, Any]"));
  BindLoad(m);
}

}  // namespace elasticctr

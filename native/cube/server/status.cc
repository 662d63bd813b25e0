#include "cube/server/status.h"

#include <sys/resource.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdio>
#include <set>

#include "net/socket.h"
#include "util/code_name.h"

namespace elasticctr::cube {

namespace json = boost::json;

namespace {

using elasticctr::NameOf;

const char* NameOf(Encoding encoding) {
  switch (encoding) {
    case Encoding::kRaw: return "raw";
    case Encoding::kFloat32: return "fp32";
    case Encoding::kFloat16: return "fp16";
    case Encoding::kInt8: return "int8";
  }
  return "raw";
}

json::object DescribeVersion(const ModelVersion& version) {
  json::array tables;
  uint64_t rows = 0;
  for (size_t i = 0; i < version.tables.size(); ++i) {
    const TableView& view = *version.views[i];
    const IndexInfo& info = view.info();
    rows += view.rows();
    tables.push_back({{"name", version.tables[i]},
                      {"rows", view.rows()},
                      {"row_bytes", info.row_bytes},
                      {"encoding", NameOf(info.encoding)},
                      {"dim", info.dim},
                      {"shard", info.shard},
                      {"shards", info.shards},
                      {"sharding", info.sharding == Sharding::kBuckets ? "buckets" : "modulo"}});
  }
  return {{"version", version.version},
          {"parent", version.parent},
          {"identity", version.identity},
          {"state", "ready"},
          {"error", nullptr},
          {"rows", rows},
          {"bytes", version.resident_bytes},
          {"tables", std::move(tables)}};
}

json::object DescribeRecord(uint64_t version, const LoadRecord& record) {
  json::value error;
  if (record.state == LoadState::kFailed) error = {{"code", NameOf(record.code)}, {"message", record.error}};
  return {{"version", version}, {"parent", nullptr},
          {"identity", ""},     {"state", record.state == LoadState::kFailed ? "failed" : "loading"},
          {"error", error},     {"rows", 0},
          {"bytes", 0},         {"tables", json::array()}};
}

json::object DescribeModel(const std::string& name, const ModelEntry* entry, const ControlState& state) {
  std::map<uint64_t, json::object> versions;
  if (entry != nullptr) {
    for (const auto& version : entry->versions) {
      json::object& described = versions[version->version] = DescribeVersion(*version);
      if (const std::string damage = version->Damage(); !damage.empty()) {
        described["state"] = "failed";
        described["error"] = damage;
      }
    }
  }
  if (auto records = state.records.find(name); records != state.records.end()) {
    for (const auto& [version, record] : records->second) {
      // What is to take the active one's place does not hide it.
      if (entry == nullptr || version != entry->active) versions[version] = DescribeRecord(version, record);
    }
  }
  json::value next;
  if (entry != nullptr && entry->next != nullptr) {
    next = DescribeVersion(*entry->next);
  } else if (auto records = state.records.find(name); entry != nullptr && records != state.records.end()) {
    if (auto record = records->second.find(entry->active); record != records->second.end()) {
      next = DescribeRecord(entry->active, record->second);
    }
  }
  json::array list;
  for (auto& [number, version] : versions) list.push_back(std::move(version));
  json::object model{{"name", name},
                     {"active", entry != nullptr ? entry->active : 0},
                     {"previous", entry != nullptr ? entry->previous : 0},
                     {"versions", std::move(list)},
                     {"next", std::move(next)}};
  auto broken = state.broken.find(name);
  if (broken != state.broken.end()) model["error"] = broken->second;
  return model;
}

uint64_t ResidentBytes() {
  unsigned long pages = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%lu %lu", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return static_cast<uint64_t>(resident) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Since(uint64_t then_ns) { return then_ns == 0 ? 0 : static_cast<double>(net::NowNs() - then_ns) * 1e-9; }

// Deltas between the active version and its base.
uint64_t ChainLength(const ModelTimes& times, uint64_t version) {
  uint64_t length = 0;
  for (auto it = times.parents.find(version); it != times.parents.end() && it->second != 0;
       it = times.parents.find(it->second))
    ++length;
  return length;
}

void WriteModels(std::string* out, const Catalog& catalog, const ControlState& state) {
  using Value = std::function<double(const ModelEntry&, const ModelTimes&)>;
  auto family = [&](const char* name, const char* type, const char* help, const Value& value) {
    WriteFamily(out, name, type, help);
    for (const ModelEntry& model : catalog.models()) {
      auto times = state.times.find(model.name);
      WriteSample(out, std::string(name) + "{model=\"" + model.name + "\"}",
                  value(model, times == state.times.end() ? ModelTimes() : times->second));
    }
  };
  family("cube_active_version", "gauge", "Version that answers lookups which name none; 0: none.",
         [](const ModelEntry& m, const ModelTimes&) { return static_cast<double>(m.active); });
  family("cube_versions_resident", "gauge", "Versions in memory.",
         [](const ModelEntry& m, const ModelTimes&) { return static_cast<double>(m.versions.size()); });
  family("cube_active_age_seconds", "gauge", "Since the active version was activated here.",
         [](const ModelEntry&, const ModelTimes& t) { return Since(t.activated_ns); });
  family("cube_delta_lag_seconds", "gauge",
         "How long the newest loaded version has waited to be activated; 0: it is active.",
         [](const ModelEntry& m, const ModelTimes& t) {
           uint64_t newest = m.versions.empty() ? 0 : m.versions.back()->version;
           auto loaded = t.loaded_ns.find(newest);
           return newest > m.active && loaded != t.loaded_ns.end() ? Since(loaded->second) : 0.0;
         });
  family("cube_chain_length", "gauge", "Deltas between the active version and its base.",
         [](const ModelEntry& m, const ModelTimes& t) { return static_cast<double>(ChainLength(t, m.active)); });
  family("cube_load_seconds", "gauge", "What the last load took, with the parents it needed.",
         [](const ModelEntry&, const ModelTimes& t) { return t.load_seconds; });
  WriteFamily(out, "cube_rows", "gauge",
              "Rows of a table in its active version (an upper bound while deltas stand on its base).");
  for (const ModelEntry& model : catalog.models()) {
    for (const auto& version : model.versions) {
      if (version->version != model.active) continue;
      for (size_t i = 0; i < version->tables.size(); ++i) {
        WriteSample(out, "cube_rows{table=\"" + model.name + "/" + version->tables[i] + "\"}",
                    static_cast<double>(version->views[i]->rows()));
      }
    }
  }
  WriteFamily(out, "cube_loads_total", "counter", "Versions loaded, or not, since the server started.");
  for (const auto& [name, times] : state.times) {
    WriteSample(out, "cube_loads_total{model=\"" + name + "\",result=\"ready\"}", static_cast<double>(times.loads));
    WriteSample(out, "cube_loads_total{model=\"" + name + "\",result=\"failed\"}", static_cast<double>(times.failures));
  }
}

}  // namespace

std::string StatusJson(const ServiceFacts& facts) {
  std::shared_ptr<const Catalog> catalog = facts.control->store().current();
  ControlState state = facts.control->state();
  std::map<std::string, const ModelEntry*> models;
  for (const auto& [name, records] : state.records) {
    if (!records.empty()) models[name] = nullptr;
  }
  for (const auto& [name, reason] : state.broken) models[name] = nullptr;
  for (const ModelEntry& model : catalog->models()) models[model.name] = &model;
  json::array list;
  for (const auto& [name, entry] : models) list.push_back(DescribeModel(name, entry, state));
  return json::serialize(json::object{{"ready", facts.control->is_ready()},
                                      {"models", std::move(list)},
                                      {"memory_bytes", catalog->resident_bytes()},
                                      {"connections", facts.server->connections()},
                                      {"uptime_s", Since(facts.started_ns)},
                                      {"pid", ::getpid()}});
}

std::string MetricsText(const ServiceFacts& facts) {
  std::string out;
  std::shared_ptr<const Catalog> catalog = facts.control->store().current();
  facts.metrics->Write(&out);
  WriteModels(&out, *catalog, facts.control->state());
  const net::LoopStats& stats = facts.server->stats();
  auto single = [&](const char* name, const char* type, const char* help, double value) {
    WriteFamily(&out, name, type, help);
    WriteSample(&out, name, value);
  };
  auto count = [](const std::atomic<uint64_t>& value) {
    return static_cast<double>(value.load(std::memory_order_relaxed));
  };
  single("cube_ready", "gauge", "1 if every model has an active version.", facts.control->is_ready() ? 1 : 0);
  single("cube_memory_bytes", "gauge", "Bytes of all resident versions, what they share counted once.",
         static_cast<double>(catalog->resident_bytes()));
  single("cube_connections", "gauge", "Open connections.", static_cast<double>(facts.server->connections()));
  single("cube_connections_accepted_total", "counter", "Connections accepted.", count(stats.accepted));
  single("cube_connections_refused_total", "counter", "Connections closed at once: over the limit, or no file left.",
         count(stats.refused));
  single("cube_connections_timed_out_total", "counter",
         "Connections closed because half a request, or an unread answer, waited too long.", count(stats.timed_out));
  single("cube_connections_foreign_total", "counter", "Connections that spoke no protocol of ours.",
         count(stats.foreign));
  single("cube_buffered_bytes", "gauge", "Half requests and unread answers, over all connections.",
         static_cast<double>(facts.server->budget().used()));
  single("cube_uptime_seconds", "gauge", "Since the server started.", Since(facts.started_ns));
  single("process_resident_memory_bytes", "gauge", "Resident memory of the process.",
         static_cast<double>(ResidentBytes()));
  single("process_cpu_seconds_total", "counter", "User and system time of the process.", CpuSeconds());
  return out;
}

std::string ErrorJson(Code code, std::string_view message) {
  return json::serialize(json::object{{"error", {{"code", NameOf(code)}, {"message", message}}}});
}

int HttpStatusOf(Code code) {
  switch (code) {
    case Code::kConfig:
    case Code::kData: return 400;
    case Code::kNotFound: return 404;
    case Code::kAlreadyExists: return 409;
    case Code::kFailedPrecondition: return 412;
    case Code::kUnauthorized: return 401;
    case Code::kUnavailable: return 503;
    case Code::kDeadlineExceeded: return 504;
    case Code::kCorruption:
    case Code::kInternal: return 500;
  }
  return 500;
}

}  // namespace elasticctr::cube

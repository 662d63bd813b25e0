#include "cube/server/status.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <set>

#include "net/socket.h"
#include "util/json_text.h"
#include "util/status_table.h"

namespace elasticctr::cube {

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

void AppendCount(std::string* out, std::string_view label, uint64_t value) { AppendNumber(&out->append(label), value); }

void AppendError(std::string* out, Code code, std::string_view message) {
  out->append("{\"code\":");
  AppendJsonString(out, NameOf(code));
  out->append(",\"message\":");
  AppendJsonString(out, message);
  out->append("}");
}

void AppendTable(std::string* out, const std::string& name, const TableView& view) {
  const IndexInfo& info = view.info();
  out->append(out->back() == '[' ? "{\"name\":" : ",{\"name\":");
  AppendJsonString(out, name);
  AppendCount(out, ",\"rows\":", view.rows());
  AppendCount(out, ",\"row_bytes\":", info.row_bytes);
  out->append(",\"encoding\":\"").append(NameOf(info.encoding));
  AppendCount(out, "\",\"dim\":", info.dim);
  AppendCount(out, ",\"shard\":", info.shard);
  AppendCount(out, ",\"shards\":", info.shards);
  out->append(info.sharding == Sharding::kBuckets ? ",\"sharding\":\"buckets\"}" : ",\"sharding\":\"modulo\"}");
}

// `damage`: why it must not be used; empty: intact.
std::string DescribeVersion(const ModelVersion& version, const std::string& damage = {}) {
  uint64_t rows = 0;
  for (const auto& view : version.views) rows += view->rows();
  std::string out;
  AppendCount(&out, "{\"version\":", version.version);
  AppendCount(&out, ",\"parent\":", version.parent);
  AppendJsonString(&out.append(",\"identity\":"), version.identity);
  out.append(damage.empty() ? ",\"state\":\"ready\",\"error\":null" : ",\"state\":\"failed\",\"error\":");
  if (!damage.empty()) AppendJsonString(&out, damage);
  AppendCount(&out, ",\"rows\":", rows);
  AppendCount(&out, ",\"bytes\":", version.resident_bytes);
  out.append(",\"tables\":[");
  for (size_t i = 0; i < version.tables.size(); ++i) AppendTable(&out, version.tables[i], *version.views[i]);
  return out.append("]}");
}

// For a version that is not resident.
std::string DescribeRecord(uint64_t version, const LoadRecord& record) {
  std::string out;
  AppendCount(&out, "{\"version\":", version);
  out.append(",\"parent\":null,\"identity\":\"\",\"state\":\"");
  out.append(record.state == LoadState::kFailed ? "failed" : "loading").append("\",\"error\":");
  if (record.state == LoadState::kFailed) {
    AppendError(&out, record.code, record.error);
  } else {
    out.append("null");
  }
  return out.append(",\"rows\":0,\"bytes\":0,\"tables\":[]}");
}

std::string DescribeNext(const ModelEntry& entry, const std::map<uint64_t, LoadRecord>* records) {
  if (entry.next != nullptr) return DescribeVersion(*entry.next);
  if (records == nullptr) return "null";
  const auto record = records->find(entry.active);
  return record == records->end() ? "null" : DescribeRecord(record->first, record->second);
}

std::string DescribeModel(const std::string& name, const ModelEntry* entry, const ControlState& state) {
  const auto found = state.records.find(name);
  const auto* records = found == state.records.end() ? nullptr : &found->second;
  std::map<uint64_t, std::string> versions;
  if (entry != nullptr) {
    for (const auto& version : entry->versions)
      versions[version->version] = DescribeVersion(*version, version->Damage());
  }
  if (records != nullptr) {
    for (const auto& [version, record] : *records) {
      // A waiting replacement does not hide the active version.
      if (entry == nullptr || version != entry->active) versions[version] = DescribeRecord(version, record);
    }
  }
  std::string out = "{\"name\":";
  AppendJsonString(&out, name);
  AppendCount(&out, ",\"active\":", entry != nullptr ? entry->active : 0);
  AppendCount(&out, ",\"previous\":", entry != nullptr ? entry->previous : 0);
  out.append(",\"versions\":[");
  const char* comma = "";
  for (const auto& [number, version] : versions) {
    out.append(comma).append(version);
    comma = ",";
  }
  out.append("],\"next\":").append(entry != nullptr ? DescribeNext(*entry, records) : "null");
  if (const auto broken = state.broken.find(name); broken != state.broken.end()) {
    AppendJsonString(&out.append(",\"error\":"), broken->second);
  }
  return out.append("}");
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

// The number of deltas between the active version and its base.
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
  std::string out = facts.control->is_ready() ? "{\"ready\":true,\"models\":[" : "{\"ready\":false,\"models\":[";
  const char* comma = "";
  for (const auto& [name, entry] : models) {
    out.append(comma).append(DescribeModel(name, entry, state));
    comma = ",";
  }
  AppendCount(&out, "],\"memory_bytes\":", catalog->resident_bytes());
  AppendCount(&out, ",\"connections\":", facts.server->connections());
  AppendDouble(&out.append(",\"uptime_s\":"), Since(facts.started_ns));
  AppendCount(&out, ",\"pid\":", static_cast<uint64_t>(::getpid()));
  return out.append("}");
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
  std::string out = "{\"error\":";
  AppendError(&out, code, message);
  return out.append("}");
}

}  // namespace elasticctr::cube

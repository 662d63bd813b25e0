#include "cube/server/metrics.h"

#include <cmath>
#include <cstdio>

namespace elasticctr::cube {
namespace {

template <size_t N>
void WriteHistogram(std::string* out, const std::string& name, const std::array<double, N>& bounds,
                    const std::array<uint64_t, N + 1>& counts, double sum) {
  uint64_t running = 0;
  for (size_t i = 0; i < N; ++i) {
    running += counts[i];
    char bound[32];
    std::snprintf(bound, sizeof bound, "%g", bounds[i]);
    WriteSample(out, name + "_bucket{le=\"" + bound + "\"}", static_cast<double>(running));
  }
  running += counts[N];
  WriteSample(out, name + "_bucket{le=\"+Inf\"}", static_cast<double>(running));
  WriteSample(out, name + "_sum", sum);
  WriteSample(out, name + "_count", static_cast<double>(running));
}

}  // namespace

TableCells* Metrics::Table(const std::string& name, size_t loop) {
  std::lock_guard lock(mutex_);
  auto& cells = tables_[name];
  cells.resize(loops_.size());
  if (cells[loop] == nullptr) cells[loop] = std::make_unique<TableCells>();
  return cells[loop].get();
}

namespace {

struct Sums {
  uint64_t requests[kSpeaks] = {}, keys[kSpeaks] = {}, hits = 0, misses[kMisses] = {};
  void Add(const TableCells& cells) {
    for (size_t p = 0; p < kSpeaks; ++p) requests[p] += cells.requests[p].get(), keys[p] += cells.keys[p].get();
    for (size_t m = 0; m < kMisses; ++m) misses[m] += cells.misses[m].get();
    hits += cells.hits.get();
  }
};

void WriteTables(std::string* out, const std::map<std::string, Sums>& tables) {
  auto labels = [](const std::string& table) { return "{table=\"" + table + "\""; };

  WriteFamily(out, "cube_requests_total", "counter", "Lookups answered or refused.");
  for (const auto& [name, sums] : tables) {
    for (size_t p = 0; p < kSpeaks; ++p)
      WriteSample(out, "cube_requests_total" + labels(name) + ",protocol=\"" + kSpeaksNames[p] + "\"}",
                  static_cast<double>(sums.requests[p]));
  }
  WriteFamily(out, "cube_keys_total", "counter", "Feasigns asked for.");
  for (const auto& [name, sums] : tables) {
    for (size_t p = 0; p < kSpeaks; ++p)
      WriteSample(out, "cube_keys_total" + labels(name) + ",protocol=\"" + kSpeaksNames[p] + "\"}",
                  static_cast<double>(sums.keys[p]));
  }
  WriteFamily(out, "cube_hits_total", "counter", "Feasigns answered with a row.");
  for (const auto& [name, sums] : tables)
    WriteSample(out, "cube_hits_total" + labels(name) + "}", static_cast<double>(sums.hits));
  WriteFamily(out, "cube_misses_total", "counter", "Feasigns answered without a row, by reason.");
  for (const auto& [name, sums] : tables) {
    for (size_t m = 0; m < kMisses; ++m)
      WriteSample(out, "cube_misses_total" + labels(name) + ",kind=\"" + kMissNames[m] + "\"}",
                  static_cast<double>(sums.misses[m]));
  }
}

}  // namespace

void Metrics::Write(std::string* out) {
  std::map<std::string, Sums> tables;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, loops] : tables_) {
      for (const auto& cells : loops) {
        if (cells != nullptr) tables[name].Add(*cells);
      }
    }
  }
  for (const LoopCells& loop : loops_) tables[""].Add(loop.no_table);
  WriteTables(out, tables);

  std::array<uint64_t, kLatencyBounds.size() + 1> latency{};
  std::array<uint64_t, kBatchBounds.size() + 1> batch{};
  uint64_t latency_ns = 0, batch_keys = 0, unauthorized = 0, malformed = 0;
  for (const LoopCells& loop : loops_) {
    for (size_t i = 0; i < latency.size(); ++i) latency[i] += loop.latency[i].get();
    for (size_t i = 0; i < batch.size(); ++i) batch[i] += loop.batch[i].get();
    latency_ns += loop.latency_ns.get();
    batch_keys += loop.batch_keys.get();
    unauthorized += loop.unauthorized.get();
    malformed += loop.malformed.get();
  }
  WriteFamily(out, "cube_request_seconds", "histogram",
              "From a lookup's bytes read to its answer handed to the system.");
  WriteHistogram(out, "cube_request_seconds", kLatencyBounds, latency, static_cast<double>(latency_ns) * 1e-9);
  WriteFamily(out, "cube_request_keys", "histogram", "Feasigns per lookup.");
  WriteHistogram(out, "cube_request_keys", kBatchBounds, batch, static_cast<double>(batch_keys));
  WriteFamily(out, "cube_unauthorized_total", "counter", "Requests with no or a wrong token.");
  WriteSample(out, "cube_unauthorized_total", static_cast<double>(unauthorized));
  WriteFamily(out, "cube_malformed_total", "counter",
              "Frames, commands and HTTP requests that cost their sender the connection.");
  WriteSample(out, "cube_malformed_total", static_cast<double>(malformed));
}

void WriteFamily(std::string* out, const char* name, const char* type, const char* help) {
  out->append("# HELP ")
      .append(name)
      .append(" ")
      .append(help)
      .append("\n# TYPE ")
      .append(name)
      .append(" ")
      .append(type)
      .append("\n");
}

void WriteSample(std::string* out, const std::string& name_and_labels, double value) {
  char number[40];
  if (value == std::floor(value) && std::fabs(value) < 1e15) {
    std::snprintf(number, sizeof number, " %.0f\n", value);
  } else {
    std::snprintf(number, sizeof number, " %.9g\n", value);
  }
  out->append(name_and_labels).append(number);
}

}  // namespace elasticctr::cube

#include "serve/version/rows_cube.h"

#include <algorithm>
#include <cstring>

#include "net/socket.h"
#include "util/status.h"

namespace elasticctr::serve {
namespace {

class CubeRows final : public RowSource {
 public:
  CubeRows(std::vector<std::shared_ptr<cube::Client>> clients, const std::string& model, uint64_t version,
           const std::vector<TablePlan>& tables, const Policy& policy)
      : clients_(std::move(clients)), version_(version), tables_(tables), policy_(policy) {
    for (const TablePlan& table : tables) names_.push_back(model + "/" + table.name);
  }

  bool is_remote() const override { return true; }

  void LookUp(Table* tables, size_t count, uint64_t deadline_ns, Trouble* trouble) const override {
    for (size_t i = 0; i < count; ++i) {
      const bool is_first = std::find(clients_.begin(), clients_.begin() + i, clients_[i]) == clients_.begin() + i;
      if (is_first) AskOne(*clients_[i], tables, count, deadline_ns, trouble);
    }
  }

 private:
  // All tables of one client.
  void AskOne(cube::Client& client, Table* tables, size_t count, uint64_t deadline_ns, Trouble* trouble) const {
    std::vector<cube::TableQuery> queries;
    std::vector<size_t> asked;
    for (size_t i = 0; i < count; ++i) {
      if (clients_[i].get() != &client || tables[i].count == 0) continue;
      queries.push_back({names_[i], tables[i].feasigns, tables[i].count});
      asked.push_back(i);
    }
    if (queries.empty()) return;
    const uint64_t now = net::NowNs();
    uint64_t limit_ms = policy_.cube_timeout_ms;
    if (deadline_ns != 0) limit_ms = std::min(limit_ms, deadline_ns > now ? (deadline_ns - now) / 1'000'000 : 0);
    const auto add_dead = [trouble](uint32_t shard) {
      if (std::find(trouble->dead_shards.begin(), trouble->dead_shards.end(), shard) == trouble->dead_shards.end()) {
        trouble->dead_shards.push_back(shard);
      }
    };
    try {
      if (limit_ms == 0) throw Error(Code::kDeadlineExceeded, queries[0].table + ": no time was left to ask for rows");
      const cube::Client::Options options{version_, static_cast<uint32_t>(limit_ms), !policy_.fails_on_dead_shard};
      const cube::Answer answer = client.Get(queries, options);
      const bool is_late = !answer.degraded.empty() && net::NowNs() - now >= limit_ms * 1'000'000;
      if (is_late && policy_.fails_on_late_cube) {
        throw Error(Code::kDeadlineExceeded, queries[0].table + ": shard " + std::to_string(answer.degraded[0]) +
                                                 " did not answer in " + std::to_string(limit_ms) + " ms");
      }
      for (size_t k = 0; k < asked.size(); ++k) Take(answer.tables[k], tables_[asked[k]], &tables[asked[k]]);
      for (const uint32_t shard : answer.degraded) add_dead(shard);
      trouble->late |= is_late;
    } catch (const Error& e) {
      // The caller may find the version on another server of ours; this Cube no longer has it, or not yet.
      if (e.code() == Code::kNotFound) throw Error(Code::kUnavailable, e.what());
      // If nobody can say which shards there are, the whole lookup fails; the policy is the same.
      if (e.code() != Code::kDeadlineExceeded && e.code() != Code::kUnavailable) throw;
      const bool is_late = e.code() == Code::kDeadlineExceeded || net::NowNs() - now >= limit_ms * 1'000'000;
      const bool is_dead = !is_late;
      if (is_late ? policy_.fails_on_late_cube : policy_.fails_on_dead_shard) throw;
      for (const size_t i : asked) TakeNothing(tables_[i], &tables[i]);
      trouble->late |= is_late;
      for (uint32_t shard = 0; is_dead && shard < client.cluster().shards(); ++shard) add_dead(shard);
    }
  }

  static void Take(const cube::TableRows& from, const TablePlan& plan, Table* to) {
    if (from.shape.encoding == cube::Encoding::kRaw || from.shape.dim != plan.dim) {
      throw Error(Code::kFailedPrecondition, "table " + plan.name + ": the Cube's rows have " +
                                                 std::to_string(from.shape.dim) + " floats, schema.json asks for " +
                                                 std::to_string(plan.dim));
    }
    std::memcpy(to->rows, from.rows.get(), to->count * plan.dim * sizeof(float));
    to->hits = 0;
    for (size_t i = 0; i < to->count; ++i) {
      to->found[i] = from.found[i];
      to->hits += from.found[i];
    }
  }

  static void TakeNothing(const TablePlan& plan, Table* to) {
    std::fill_n(to->rows, to->count * plan.dim, 0.0f);
    std::fill_n(to->found, to->count, uint8_t{0});
    to->hits = 0;
  }

  const std::vector<std::shared_ptr<cube::Client>> clients_;
  const uint64_t version_;
  const std::vector<TablePlan> tables_;
  const Policy policy_;
  std::vector<std::string> names_;
};

}  // namespace

std::shared_ptr<const RowSource> MakeCubeRows(std::vector<std::shared_ptr<cube::Client>> clients,
                                              const std::string& model, uint64_t version,
                                              const std::vector<TablePlan>& tables, const Policy& policy) {
  if (clients.size() != tables.size()) throw Error(Code::kInternal, "not one client per table");
  return std::make_shared<CubeRows>(std::move(clients), model, version, tables, policy);
}

}  // namespace elasticctr::serve

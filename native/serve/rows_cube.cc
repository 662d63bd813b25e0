#include "serve/rows_cube.h"

#include <algorithm>
#include <cstring>

#include "net/socket.h"
#include "util/status.h"

namespace elasticctr::serve {
namespace {

class CubeRows final : public RowSource {
 public:
  CubeRows(std::shared_ptr<cube::Client> client, const std::string& model, uint64_t version,
           const std::vector<TablePlan>& tables, const Policy& policy)
      : client_(std::move(client)), version_(version), tables_(tables), policy_(policy) {
    for (const TablePlan& table : tables) names_.push_back(model + "/" + table.name);
  }

  bool is_remote() const override { return true; }

  void LookUp(Table* tables, size_t count, uint64_t deadline_ns, Trouble* trouble) const override {
    std::vector<cube::TableQuery> queries;
    std::vector<size_t> asked;
    for (size_t i = 0; i < count; ++i) {
      if (tables[i].count == 0) continue;
      queries.push_back({names_[i], tables[i].feasigns, tables[i].count});
      asked.push_back(i);
    }
    if (queries.empty()) return;
    uint64_t limit_ms = client_->cluster().settings().timeout_ms;
    const uint64_t now = net::NowNs();
    if (deadline_ns != 0) limit_ms = std::min(limit_ms, deadline_ns > now ? (deadline_ns - now) / 1'000'000 : 0);
    try {
      if (limit_ms == 0) throw Error(Code::kDeadlineExceeded, names_[0] + ": no time was left to ask for rows");
      const cube::Client::Options options{version_, static_cast<uint32_t>(limit_ms), !policy_.fails_on_dead_shard};
      const cube::Answer answer = client_->Get(queries, options);
      const bool is_late = !answer.degraded.empty() && net::NowNs() - now >= limit_ms * 1'000'000;
      if (is_late && policy_.fails_on_late_cube) {
        throw Error(Code::kDeadlineExceeded, names_[0] + ": shard " + std::to_string(answer.degraded[0]) +
                                                 " did not answer in " + std::to_string(limit_ms) + " ms");
      }
      for (size_t k = 0; k < asked.size(); ++k) Take(answer.tables[k], tables_[asked[k]], &tables[asked[k]]);
      trouble->dead_shards = answer.degraded;
      trouble->late = is_late;
    } catch (const Error& e) {
      // With nobody to say which shards there are, the whole lookup fails; the policy is the same.
      const bool is_late = e.code() == Code::kDeadlineExceeded && !policy_.fails_on_late_cube;
      const bool is_dead = e.code() == Code::kUnavailable && !policy_.fails_on_dead_shard;
      if (!is_late && !is_dead) throw;
      for (const size_t i : asked) TakeNothing(tables_[i], &tables[i]);
      trouble->late = is_late;
      if (is_dead) {
        for (uint32_t shard = 0; shard < client_->cluster().shards(); ++shard) trouble->dead_shards.push_back(shard);
      }
    }
  }

 private:
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

  const std::shared_ptr<cube::Client> client_;
  const uint64_t version_;
  const std::vector<TablePlan> tables_;
  const Policy policy_;
  std::vector<std::string> names_;
};

}  // namespace

std::shared_ptr<const RowSource> MakeCubeRows(std::shared_ptr<cube::Client> client, const std::string& model,
                                              uint64_t version, const std::vector<TablePlan>& tables,
                                              const Policy& policy) {
  return std::make_shared<CubeRows>(std::move(client), model, version, tables, policy);
}

}  // namespace elasticctr::serve

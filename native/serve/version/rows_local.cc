#include "serve/version/rows_local.h"

#include <algorithm>

#include "cube/index/encoding.h"
#include "cube/index/sharded.h"
#include "util/status.h"
#include "util/target.h"

namespace elasticctr::serve {
namespace {

ELASTICCTR_CLONES void ExpandBits(const uint8_t* bits, size_t count, uint8_t* bytes) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    // Spreads bit k of the byte to byte k, without a loop over bits.
    const uint64_t spread = (bits[i / 8] * 0x0101010101010101ULL) & 0x8040201008040201ULL;
    const uint64_t ones = (spread + 0x7F7F7F7F7F7F7F7FULL) >> 7 & 0x0101010101010101ULL;
    __builtin_memcpy(bytes + i, &ones, 8);
  }
  for (; i < count; ++i) bytes[i] = bits[i / 8] >> (i % 8) & 1;
}

class LocalRows final : public RowSource {
 public:
  struct TableOf {
    std::vector<std::shared_ptr<const cube::TableView>> owned;  // one per shard
    std::vector<const cube::TableView*> views;
  };

  explicit LocalRows(std::vector<TableOf> tables) : tables_(std::move(tables)) {}

  void LookUp(Table* tables, size_t count, uint64_t, Trouble*) const override {
    for (size_t i = 0; i < count; ++i) LookUpOne(tables_[i], &tables[i]);
  }

 private:
  static void LookUpOne(const TableOf& table, Table* asked) {
    if (asked->count == 0) return;
    thread_local std::vector<uint8_t> bits, encoded;
    const cube::IndexInfo& info = table.views[0]->info();
    if (bits.size() < (asked->count + 7) / 8) bits.resize((asked->count + 7) / 8);
    auto* rows = reinterpret_cast<uint8_t*>(asked->rows);
    if (info.encoding != cube::Encoding::kFloat32) {
      if (encoded.size() < asked->count * info.row_bytes) encoded.resize(asked->count * info.row_bytes);
      rows = encoded.data();
    }
    if (table.views.size() == 1) {
      size_t hits;
      table.views[0]->Lookup(asked->feasigns, asked->count, rows, bits.data(), &hits);
    } else {
      cube::LookupShards(table.views, asked->feasigns, asked->count, rows, bits.data());
    }
    if (info.encoding != cube::Encoding::kFloat32) {
      cube::DecodeRows(rows, asked->count, info.dim, info.encoding, asked->rows);
    }
    ExpandBits(bits.data(), asked->count, asked->found);
    size_t hits = 0;
    for (size_t i = 0; i < asked->count; ++i) hits += asked->found[i];
    asked->hits = hits;
  }

  const std::vector<TableOf> tables_;
};

// One shard's view of a table, kept alive by its owner.
std::shared_ptr<const cube::TableView> FindView(const cube::Store& store, const std::string& model, uint64_t version,
                                                const std::string& table) {
  const auto catalog = store.current();
  for (const cube::ModelEntry& entry : catalog->models()) {
    if (entry.name != model) continue;
    for (const auto& held : entry.versions) {
      if (held->version != version) continue;
      const auto found = std::find(held->tables.begin(), held->tables.end(), table);
      if (found != held->tables.end()) return held->views[static_cast<size_t>(found - held->tables.begin())];
    }
  }
  throw Error(Code::kNotFound, "table " + model + "/" + table + " is not loaded in version " + std::to_string(version));
}

}  // namespace

std::shared_ptr<const RowSource> MakeLocalRows(const std::vector<const cube::Store*>& stores, const std::string& model,
                                               uint64_t version, const std::vector<TablePlan>& tables) {
  if (stores.empty()) throw Error(Code::kConfig, "rows of " + model + " from no shards");
  std::vector<LocalRows::TableOf> found;
  for (const TablePlan& plan : tables) {
    LocalRows::TableOf table;
    for (size_t shard = 0; shard < stores.size(); ++shard) {
      table.owned.push_back(FindView(*stores[shard], model, version, plan.name));
      table.views.push_back(table.owned.back().get());
      const cube::IndexInfo& info = table.views.back()->info();
      if (info.shard != shard || info.shards != stores.size()) {
        throw Error(Code::kFailedPrecondition, info.name + ": not all shards of one build, in order");
      }
      if (info.encoding == cube::Encoding::kRaw || info.dim != plan.dim) {
        throw Error(Code::kFailedPrecondition, info.name + ": rows have " + std::to_string(info.dim) +
                                                   " floats, schema.json asks for " + std::to_string(plan.dim) +
                                                   "; build the cube files from this version");
      }
    }
    found.push_back(std::move(table));
  }
  return std::make_shared<LocalRows>(std::move(found));
}

}  // namespace elasticctr::serve

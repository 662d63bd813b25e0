#include "cube/server/resp.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "cube/server/refusal.h"
#include "util/status.h"

namespace elasticctr::cube {
namespace {

constexpr size_t kArgumentBytes = 64 * 1024;

// Case folded, at most 15 bytes.
struct CommandName {
  explicit CommandName(std::string_view given) {
    size = std::min(given.size(), sizeof text);
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(std::toupper(static_cast<unsigned char>(given[i])));
  }
  operator std::string_view() const { return {text, size}; }
  char text[24];
  size_t size;
};

// Copies n bytes in steps of 16. REQUIRES: 16 more may be read and written.
inline void CopyLoosely(uint8_t* to, const uint8_t* from, size_t n) {
  for (size_t i = 0; i < n; i += 16) std::memcpy(to + i, from + i, 16);
}

}  // namespace

net::Step RespSession::Consume(const uint8_t* data, size_t size, uint64_t, net::Buffer* out) {
  net::Step step;
  while (true) {
    net::RespLimits limits{worker_->limits().max_text_keys + 1, kArgumentBytes, worker_->limits().max_body_bytes};
    // As in Redis: the limits before authentication leave room for a password only.
    if (!is_trusted_) limits = {16, 8 * 1024, 64 * 1024};
    auto result = reader_.Read(data + step.consumed, size - step.consumed, limits);
    if (result == net::RespReader::Result::kMore) break;
    if (result == net::RespReader::Result::kBad) {
      FlushGets(out);
      worker_->cells().malformed.Add(1);
      net::RespWriter(out, version_).Error(std::string("ERR Protocol error: ") + reader_.bad_reason());
      step.next = net::Next::kClose;
      return step;
    }
    bool goes_on = reader_.count() == 0 || Serve(out);
    step.consumed += reader_.command_bytes();
    reader_.Reset();
    if (!goes_on) {
      step.next = net::Next::kClose;
      return step;
    }
    if (out->size() >= net::kFlushBytes) {
      FlushGets(out);
      step.next = net::Next::kFlush;
      return step;
    }
  }
  FlushGets(out);
  if (step.consumed == size) reader_.Shrink();
  return step;
}

bool RespSession::Serve(net::Buffer* out) {
  CommandName name(reader_.argument(0));
  if (is_trusted_) {
    if (is_queuing_ && Queue(name, out)) return true;
    if (name == std::string_view("GET") && reader_.count() == 2) {
      size_t table = 0;
      uint64_t feasign = 0;
      if (gets_.empty()) Rebind();
      if (const Key key = ParseKey(reader_.argument(1), &table, &feasign); key != Key::kFeasign) {
        FlushGets(out);
        if (key == Key::kBad) {
          FailKey(reader_.argument(1), out);
        } else {
          net::RespWriter(out, version_).Null();
        }
        return true;
      }
      if (!gets_.empty() && table != gets_table_) FlushGets(out);
      gets_table_ = table;
      gets_.push_back(feasign);
      if (gets_.size() == kTogether) FlushGets(out);
      return true;
    }
    FlushGets(out);
    if (name == std::string_view("MGET") && reader_.count() >= 2) {
      ServeMget(out);
      return true;
    }
  }
  return ServeOther(name, out);
}

void RespSession::Rebind() {
  if (!is_replaying_) worker_->catalog();
  const size_t tables = worker_->tables().size();
  if (selected_ < tables && (selected_hash_ == 0 || worker_->table_hash(selected_) == selected_hash_)) {
    selected_hash_ = worker_->table_hash(selected_);
    return;
  }
  if (selected_hash_ == 0) return;
  selected_ = kNoTable;
  for (size_t i = 0; i < tables; ++i) {
    if (worker_->table_hash(i) == selected_hash_) selected_ = i;
  }
}

void RespSession::FlushGets(net::Buffer* out) {
  if (gets_.empty()) return;
  size_t n = gets_.size();
  if (!LookUp(gets_table_, gets_.data(), n, out).has_value()) {
    worker_->CountRequests(CellsOf(gets_table_), Speaks::kResp, n, 1);
  } else {
    // Each GET is a command of its own: an error, or a value if it can have one.
    for (size_t i = 0; i < n; ++i) {
      std::optional<Miss> miss = LookUp(gets_table_, &gets_[i], 1, out);
      if (miss.has_value()) {
        Fail(gets_table_, 1, *miss, out);
      } else {
        worker_->CountRequests(CellsOf(gets_table_), Speaks::kResp, 1, 1);
      }
    }
  }
  gets_.clear();
}

void RespSession::ServeMget(net::Buffer* out) {
  Rebind();
  const size_t n = reader_.count() - 1, before = out->size();
  net::RespWriter(out, version_).Array(n);
  size_t table = kNoTable;
  std::optional<Miss> miss;
  const auto look_up = [&] {
    if (!gets_.empty()) miss = LookUp(table, gets_.data(), gets_.size(), out);
    gets_.clear();
    return !miss.has_value();
  };
  for (size_t i = 1; i <= n; ++i) {
    size_t its_table = 0;
    uint64_t feasign = 0;
    const Key key = ParseKey(reader_.argument(i), &its_table, &feasign);
    if (key == Key::kBad) {
      out->Truncate(before);
      gets_.clear();
      return FailKey(reader_.argument(i), out);
    }
    const bool is_other = key == Key::kNever || its_table != table || gets_.size() == kTogether;
    if (is_other && !look_up()) break;
    if (key == Key::kNever) {
      net::RespWriter(out, version_).Null();
      continue;
    }
    table = its_table;
    gets_.push_back(feasign);
  }
  if (!miss.has_value() && look_up()) return worker_->CountRequests(CellsOf(table), Speaks::kResp, 1, n);
  // One error answers the whole command.
  out->Truncate(before);
  Fail(table, n, *miss, out);
}

std::optional<size_t> RespSession::CountRows(std::string_view key, net::Buffer* out) {
  size_t table = 0, row_bytes, hits = 0;
  uint64_t feasign = 0;
  uint8_t found[kTogether / 8];
  const uint8_t* rows;
  const Key kind = ParseKey(key, &table, &feasign);
  if (kind == Key::kNever) return 0;
  if (kind == Key::kBad) {
    FailKey(key, out);
    return std::nullopt;
  }
  if (std::optional<Miss> miss = Search(table, &feasign, 1, out->size(), found, &rows, &row_bytes, &hits)) {
    Fail(table, 1, *miss, out);
    return std::nullopt;
  }
  worker_->CountRequests(CellsOf(table), Speaks::kResp, 1, 1);
  return hits;
}

void RespSession::ServeExists(net::Buffer* out) {
  Rebind();
  size_t count = 0;
  for (size_t i = 1; i < reader_.count(); ++i) {
    const std::optional<size_t> rows = CountRows(reader_.argument(i), out);
    if (!rows.has_value()) return;
    count += *rows;
  }
  net::RespWriter(out, version_).Number(static_cast<int64_t>(count));
}

std::optional<Miss> RespSession::Search(size_t table, const uint64_t* keys, size_t n, size_t pending, uint8_t* found,
                                        const uint8_t** rows, size_t* row_bytes, size_t* hits) {
  if (table >= worker_->tables().size()) return worker_->tables().empty() ? Miss::kNothingActive : Miss::kNoTable;
  const Worker::Target& target = worker_->FindHere(worker_->table_hash(table), 0);
  if (target.found.view == nullptr) return worker_->Explain(target.found, 0);
  *row_bytes = target.found.view->info().row_bytes;
  const size_t bytes = pending + n * *row_bytes;
  if (bytes > worker_->limits().max_answer_bytes || !account().HasRoomFor(bytes)) return Miss::kOverloaded;
  uint8_t* scratch = worker_->Scratch(n * *row_bytes + 16);
  *rows = scratch;
  try {
    if (target.found.view->Lookup(keys, n, scratch, found, hits) == LookupResult::kWrongShard) return Miss::kWrongShard;
  } catch (const Error&) {
    return Miss::kDamaged;
  }
  worker_->CountKeys(target.cells, Speaks::kResp, n, *hits);
  return std::nullopt;
}

std::optional<Miss> RespSession::LookUp(size_t table, const uint64_t* keys, size_t n, net::Buffer* out) {
  uint8_t found[kTogether / 8];
  const uint8_t* rows = nullptr;
  size_t row_bytes = 0, hits = 0;
  std::optional<Miss> miss = Search(table, keys, n, out->size(), found, &rows, &row_bytes, &hits);
  if (miss.has_value()) return miss;
  char head[24] = {'$'};
  char* end = std::to_chars(head + 1, head + 16, row_bytes).ptr;
  *end++ = '\r';
  *end++ = '\n';
  auto head_bytes = static_cast<size_t>(end - head);
  uint8_t* start = out->Reserve(n * (head_bytes + row_bytes + 2) + 32);
  uint8_t* to = start;
  for (size_t i = 0; i < n; ++i) {
    if ((found[i / 8] >> (i % 8) & 1) != 0) {
      std::memcpy(to, head, 16);
      to += head_bytes;
      CopyLoosely(to, rows + i * row_bytes, row_bytes);
      to += row_bytes;
      std::memcpy(to, "\r\n", 2);
      to += 2;
    } else {
      std::memcpy(to, version_ == 3 ? "_\r\n  " : "$-1\r\n", 5);
      to += version_ == 3 ? 3 : 5;
    }
  }
  out->Commit(static_cast<size_t>(to - start));
  return std::nullopt;
}

RespSession::Key RespSession::ParseKey(std::string_view key, size_t* table, uint64_t* feasign) const {
  *table = selected_;
  if (net::ParseFeasign(key, feasign)) return Key::kFeasign;
  const size_t colon = key.rfind(':');
  if (colon == std::string_view::npos) return Key::kBad;
  const std::string_view name = key.substr(0, colon);
  const bool is_feasign = net::ParseFeasign(key.substr(colon + 1), feasign);
  // redis-benchmark's own keys are "key:000000000012", or "key:__rand_int__" when it requests one key only.
  if (name == "key") return is_feasign ? Key::kFeasign : Key::kNever;
  if (!is_feasign) return Key::kBad;
  *table = FindTable(name);
  return *table != kNoTable ? Key::kFeasign : Key::kBad;
}

// By its full name, or by the part after the slash if only one model has such a table.
size_t RespSession::FindTable(std::string_view name) const {
  const std::vector<std::string>& tables = worker_->tables();
  size_t found = kNoTable;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (tables[i] == name) return i;
    std::string_view short_name = std::string_view(tables[i]).substr(tables[i].find('/') + 1);
    if (short_name == name) found = found == kNoTable ? i : kNoTable - 1;
  }
  return found == kNoTable - 1 ? kNoTable : found;
}

TableCells* RespSession::CellsOf(size_t table) {
  if (table >= worker_->tables().size()) return &worker_->cells().no_table;
  return worker_->FindHere(worker_->table_hash(table), 0).cells;
}

void RespSession::FailKey(std::string_view key, net::Buffer* out) {
  const Catalog* catalog = worker_->catalog();
  const std::string_view model = key.substr(0, key.find('/'));
  // A table is unknown until its model has an active version.
  bool is_loading = worker_->tables().empty();
  for (const ModelEntry& each : catalog != nullptr ? catalog->models() : std::vector<ModelEntry>()) {
    is_loading = is_loading || (each.active == 0 && each.name == model);
  }
  if (is_loading) return Fail(kNoTable, 1, Miss::kNothingActive, out);
  net::RespWriter(out, version_)
      .Error("ERR '" + net::Printable(key) + "' is not a key: use a feasign in decimal, or table:feasign");
}

void RespSession::Fail(size_t table, size_t keys, Miss miss, net::Buffer* out) {
  worker_->CountMiss(CellsOf(table), Speaks::kResp, keys, miss);
  net::RespWriter(out, version_).Error(RefusalOf(miss).resp);
}

}  // namespace elasticctr::cube

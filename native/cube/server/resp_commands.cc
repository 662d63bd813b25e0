// The commands besides GET and MGET: those that clients and tools send when they connect, inspect the server and
// disconnect.
#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "cube/server/resp.h"
#include "util/number.h"

namespace elasticctr::cube {
namespace {

constexpr size_t kMaxPatternBytes = 256;
constexpr uint64_t kMaxScanned = 2048;  // approximate number of feasigns per SCAN

constexpr std::string_view kWriteCommands[] = {
    "APPEND",   "BITFIELD", "BITOP",    "BLMOVE",    "BLMPOP",    "BLPOP",   "BRPOP",       "BRPOPLPUSH", "BZMPOP",
    "BZPOPMAX", "BZPOPMIN", "COPY",     "DECR",      "DECRBY",    "DEL",     "EVAL",        "EVALSHA",    "EXPIRE",
    "EXPIREAT", "FCALL",    "FLUSHALL", "FLUSHDB",   "GEOADD",    "GETDEL",  "GETEX",       "GETSET",     "HDEL",
    "HINCRBY",  "HMSET",    "HSET",     "HSETNX",    "INCR",      "INCRBY",  "INCRBYFLOAT", "LINSERT",    "LMOVE",
    "LMPOP",    "LPOP",     "LPUSH",    "LPUSHX",    "LREM",      "LSET",    "LTRIM",       "MIGRATE",    "MOVE",
    "MSET",     "MSETNX",   "PERSIST",  "PEXPIRE",   "PEXPIREAT", "PFADD",   "PFMERGE",     "PSETEX",     "RENAME",
    "RENAMENX", "RESTORE",  "RPOP",     "RPOPLPUSH", "RPUSH",     "RPUSHX",  "SADD",        "SET",        "SETBIT",
    "SETEX",    "SETNX",    "SETRANGE", "SMOVE",     "SORT",      "SPOP",    "SREM",        "SWAPDB",     "TOUCH",
    "UNLINK",   "XADD",     "XDEL",     "XTRIM",     "ZADD",      "ZINCRBY", "ZPOPMAX",     "ZPOPMIN",    "ZREM"};

// Commands that may be queued between MULTI and EXEC.
constexpr std::string_view kReadCommands[] = {"CLIENT", "COMMAND", "CONFIG", "DBSIZE", "ECHO", "EXISTS",
                                              "GET",    "INFO",    "MGET",   "PING",   "PTTL", "SCAN",
                                              "SELECT", "TTL",     "TYPE",   "UNWATCH"};

bool IsArityWrong(std::string_view name, size_t count) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return (is_one_of({"GET", "SELECT", "ECHO", "TTL", "PTTL", "TYPE"}) && count != 2) ||
         (is_one_of({"MGET", "EXISTS", "SCAN", "WATCH"}) && count < 2) || (name == "PING" && count > 2) ||
         (is_one_of({"MULTI", "EXEC", "DISCARD", "UNWATCH"}) && count != 1);
}

}  // namespace

bool MatchesPattern(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, after = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++after;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool IsWriteCommand(std::string_view name) {
  return std::find(std::begin(kWriteCommands), std::end(kWriteCommands), name) != std::end(kWriteCommands);
}

bool RespSession::ServeOther(std::string_view name, net::Buffer* out) {
  net::RespWriter writer(out, version_);
  if (name == "QUIT") {
    writer.Simple("OK");
    return false;
  }
  if (name == "AUTH") return ServeAuth(&writer);
  if (name == "HELLO") {
    ServeHello(&writer);
    return true;
  }
  if (!is_trusted_) {
    worker_->cells().unauthorized.Add(1);
    writer.Error("NOAUTH Authentication required.");
    return true;
  }
  ServeTrusted(name, out);
  return true;
}

void RespSession::ServeTrusted(std::string_view name, net::Buffer* out) {
  net::RespWriter writer(out, version_);
  const size_t count = reader_.count();
  if (IsArityWrong(name, count)) {
    writer.Error("ERR wrong number of arguments for '" + std::string(name) + "' command");
  } else if (name == "PING") {
    if (count == 2)
      writer.Bulk(reader_.argument(1));
    else
      writer.Simple("PONG");
  } else if (name == "ECHO") {
    writer.Bulk(reader_.argument(1));
  } else if (name == "EXISTS") {
    ServeExists(out);
  } else if (name == "TTL" || name == "PTTL" || name == "TYPE") {
    ServeAbout(name, out);
  } else if (name == "SCAN") {
    ServeScan(out);
  } else if (name == "KEYS") {
    writer.Error("ERR KEYS would hold up every other client; use SCAN");
  } else if (name == "MULTI") {
    is_queuing_ = true;
    writer.Simple("OK");
  } else if (name == "EXEC" || name == "DISCARD") {
    writer.Error("ERR " + std::string(name) + " without MULTI");
  } else if (name == "WATCH" || name == "UNWATCH") {
    writer.Simple("OK");  // rows of a version never change
  } else if (name == "SELECT") {
    ServeSelect(&writer);
  } else if (name == "DBSIZE") {
    writer.Number(CountSelected());
  } else if (name == "INFO") {
    writer.Bulk(Info());
  } else if (name == "COMMAND") {
    ServeCommandList(&writer);
  } else if (name == "CLIENT") {
    ServeClient(&writer);
  } else if (name == "CONFIG") {
    ServeConfig(&writer);
  } else if (name == "READONLY" || name == "READWRITE") {
    writer.Simple("OK");
  } else if (IsWriteCommand(name)) {
    writer.Error("READONLY You can't write against a read only replica.");
  } else {
    writer.Error("ERR unknown command '" + net::Printable(name) + "'");
  }
}

int64_t RespSession::CountSelected() {
  Rebind();
  if (selected_ >= worker_->tables().size()) return 0;
  const Worker::Target& target = worker_->FindHere(worker_->table_hash(selected_), 0);
  return target.found.view == nullptr ? 0 : static_cast<int64_t>(target.found.view->rows());
}

bool RespSession::Queue(std::string_view name, net::Buffer* out) {
  net::RespWriter writer(out, version_);
  const auto spoil = [&](const std::string& why) {
    is_spoilt_ = true;
    writer.Error(why);
    return true;
  };
  if (name == "QUIT") return false;
  if (name == "EXEC" && reader_.count() == 1) {
    ServeExec(out);
    return true;
  }
  if (name == "DISCARD" && reader_.count() == 1) {
    EndMulti();
    writer.Simple("OK");
    return true;
  }
  if (name == "MULTI") return spoil("ERR MULTI calls can not be nested");
  if (name == "WATCH") return spoil("ERR WATCH inside MULTI is not allowed");
  if (IsWriteCommand(name)) return spoil("READONLY You can't write against a read only replica.");
  if (std::find(std::begin(kReadCommands), std::end(kReadCommands), name) == std::end(kReadCommands)) {
    return spoil("ERR '" + net::Printable(name) + "' is not known between MULTI and EXEC");
  }
  if (IsArityWrong(name, reader_.count())) {
    return spoil("ERR wrong number of arguments for '" + std::string(name) + "' command");
  }
  const std::string_view raw = reader_.raw();
  if (queued_.size() + raw.size() > worker_->limits().max_body_bytes || !account().HasRoomFor(raw.size())) {
    return spoil("OVERLOADED too many bytes wait for EXEC; send fewer commands at once");
  }
  queued_.append(raw);
  ++queued_count_;
  if (queued_charge_.bytes() == 0) queued_charge_ = net::Charge(account());
  queued_charge_.Set(queued_.size());
  writer.Simple("QUEUED");
  return true;
}

void RespSession::EndMulti() {
  std::string().swap(queued_);
  queued_charge_.Set(0);
  queued_count_ = 0;
  is_queuing_ = is_spoilt_ = false;
}

void RespSession::ServeExec(net::Buffer* out) {
  const std::string queued = std::move(queued_);
  const size_t count = queued_count_;
  const bool is_spoilt = is_spoilt_;
  EndMulti();
  if (is_spoilt) {
    return net::RespWriter(out, version_).Error("EXECABORT Transaction discarded because of previous errors.");
  }
  net::RespWriter(out, version_).Array(count);
  worker_->catalog();
  is_replaying_ = true;
  const net::RespLimits limits{worker_->limits().max_text_keys + 1, queued.size(), queued.size() + 64};
  net::RespReader replay;
  std::swap(reader_, replay);
  for (size_t at = 0; at < queued.size(); at += reader_.command_bytes(), reader_.Reset()) {
    reader_.Read(reinterpret_cast<const uint8_t*>(queued.data()) + at, queued.size() - at, limits);
    if (reader_.count() != 0) Serve(out);
  }
  FlushGets(out);
  std::swap(reader_, replay);
  is_replaying_ = false;
}

void RespSession::ServeAbout(std::string_view name, net::Buffer* out) {
  Rebind();
  const std::optional<size_t> rows = CountRows(reader_.argument(1), out);
  if (!rows.has_value()) return;
  net::RespWriter writer(out, version_);
  if (name == "TYPE") return writer.Simple(*rows != 0 ? "string" : "none");
  writer.Number(*rows != 0 ? -1 : -2);
}

namespace {

struct ScanOptions {
  uint64_t position = 0;
  uint64_t count = 10;
  std::string_view pattern = "*";
  bool is_of_type = true;
};

// The error in the command; nullopt: it was read.
std::optional<const char*> ReadScan(const net::RespReader& command, ScanOptions* scan) {
  const auto position = ParseNumber<uint64_t>(command.argument(1));
  if (!position) return "ERR invalid cursor";
  scan->position = *position;
  for (size_t i = 2; i < command.count(); i += 2) {
    const std::string option = Upper(command.argument(i));
    if (i + 1 == command.count()) return "ERR syntax error";
    const std::string_view value = command.argument(i + 1);
    const uint64_t number = ParseNumber<uint64_t>(value).value_or(0);
    if (option == "MATCH" && value.size() <= kMaxPatternBytes) {
      scan->pattern = value;
    } else if (option == "COUNT" && number != 0) {
      scan->count = std::min(number, kMaxScanned);
    } else if (option == "TYPE") {
      scan->is_of_type = Upper(value) == "STRING";
    } else {
      return "ERR syntax error";
    }
  }
  return std::nullopt;
}

}  // namespace

// The cursor is a position among the buckets of the selected table's active version: a scan that continues after
// another version was activated may miss feasigns of both.
void RespSession::ServeScan(net::Buffer* out) {
  net::RespWriter writer(out, version_);
  ScanOptions scan;
  if (const auto wrong = ReadScan(reader_, &scan)) return writer.Error(*wrong);
  Rebind();
  if (selected_ >= worker_->tables().size()) {
    return Fail(selected_, 0, worker_->tables().empty() ? Miss::kNothingActive : Miss::kNoTable, out);
  }
  const Worker::Target& target = worker_->FindHere(worker_->table_hash(selected_), 0);
  if (target.found.view == nullptr) return Fail(selected_, 0, worker_->Explain(target.found, 0), out);
  std::vector<uint64_t> feasigns;
  std::vector<std::string> keys;
  bool has_more;
  try {
    has_more = target.found.view->Scan(&scan.position, scan.count / Bucket::kFeasigns + 1, &feasigns);
  } catch (const Error&) {
    return Fail(selected_, 0, Miss::kDamaged, out);
  }
  // Feasigns with a tombstone in a newer layer are left out.
  for (size_t first = 0; first < feasigns.size(); first += kTogether) {
    const size_t n = std::min(kTogether, feasigns.size() - first);
    uint8_t found[kTogether / 8];
    const uint8_t* rows;
    size_t row_bytes, hits = 0;
    const uint64_t* asked = feasigns.data() + first;
    if (std::optional<Miss> miss = Search(selected_, asked, n, out->size(), found, &rows, &row_bytes, &hits)) {
      return Fail(selected_, n, *miss, out);
    }
    for (size_t i = 0; i < n; ++i) {
      std::string key = std::to_string(asked[i]);
      const bool is_there = (found[i / 8] >> (i % 8) & 1) != 0;
      if (is_there && scan.is_of_type && MatchesPattern(scan.pattern, key)) keys.push_back(std::move(key));
    }
  }
  writer.Array(2);
  writer.Bulk(std::to_string(has_more ? scan.position : 0));
  writer.Array(keys.size());
  for (const std::string& key : keys) writer.Bulk(key);
}

void RespSession::ServeSelect(net::RespWriter* writer) {
  Rebind();
  const auto index = ParseNumber<size_t>(reader_.argument(1));
  // Database 0 may be selected before anything is active: clients do so when they connect.
  if (!index || (*index != 0 && *index >= worker_->tables().size()))
    return writer->Error("ERR DB index is out of range");
  selected_ = *index;
  selected_hash_ = *index < worker_->tables().size() ? worker_->table_hash(*index) : 0;
  writer->Simple("OK");
}

}  // namespace elasticctr::cube

// The commands around GET and MGET: those that clients and tools send when they connect, look around and leave.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <initializer_list>
#include <iterator>

#include "cube/server/resp.h"
#include "net/socket.h"

namespace elasticctr::cube {
namespace {

// The Redis whose dialect this is: what tools ask before they use a feature.
constexpr std::string_view kRedisVersion = "7.0.0";

constexpr size_t kMaxPatternBytes = 256;
constexpr uint64_t kMaxScanned = 2048;  // feasigns of one SCAN, about

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

std::string Upper(std::string_view text) {
  std::string upper(text.substr(0, 32));
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

// Commands that may wait between MULTI and EXEC.
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
  size_t count = reader_.count();
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
    Rebind();
    int64_t rows = 0;
    if (selected_ < worker_->tables().size()) {
      const Worker::Target& target = worker_->FindHere(worker_->table_hash(selected_), 0);
      if (target.found.view != nullptr) rows = static_cast<int64_t>(target.found.view->rows());
    }
    writer.Number(rows);
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
  return true;
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

// The cursor is a place among the buckets of the selected table's active version: a scan that goes on after another
// version was activated may miss feasigns of both.
void RespSession::ServeScan(net::Buffer* out) {
  net::RespWriter writer(out, version_);
  const auto read = [&](std::string_view text, uint64_t* value) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    return error == std::errc() && end == text.data() + text.size();
  };
  uint64_t position = 0, wanted = 10;
  if (!read(reader_.argument(1), &position)) return writer.Error("ERR invalid cursor");
  std::string_view pattern = "*";
  bool is_of_type = true;
  for (size_t i = 2; i < reader_.count(); i += 2) {
    const std::string option = Upper(reader_.argument(i));
    if (i + 1 == reader_.count()) return writer.Error("ERR syntax error");
    const std::string_view value = reader_.argument(i + 1);
    if (option == "MATCH" && value.size() <= kMaxPatternBytes) {
      pattern = value;
    } else if (option == "COUNT" && read(value, &wanted) && wanted != 0) {
      wanted = std::min(wanted, kMaxScanned);
    } else if (option == "TYPE") {
      is_of_type = Upper(value) == "STRING";
    } else {
      return writer.Error("ERR syntax error");
    }
  }
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
    has_more = target.found.view->Scan(&position, wanted / Bucket::kFeasigns + 1, &feasigns);
  } catch (const Error&) {
    return Fail(selected_, 0, Miss::kDamaged, out);
  }
  // What has a tombstone above it is not there.
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
      if (is_there && is_of_type && MatchesPattern(pattern, key)) keys.push_back(std::move(key));
    }
  }
  writer.Array(2);
  writer.Bulk(std::to_string(has_more ? position : 0));
  writer.Array(keys.size());
  for (const std::string& key : keys) writer.Bulk(key);
}

void RespSession::ServeSelect(net::RespWriter* writer) {
  Rebind();
  std::string_view text = reader_.argument(1);
  size_t index = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  bool is_number = error == std::errc() && end == text.data() + text.size();
  // Database 0 may be chosen before anything is active: clients do so as they connect.
  if (!is_number || (index != 0 && index >= worker_->tables().size()))
    return writer->Error("ERR DB index is out of range");
  selected_ = index;
  selected_hash_ = index < worker_->tables().size() ? worker_->table_hash(index) : 0;
  writer->Simple("OK");
}

bool RespSession::ServeAuth(net::RespWriter* writer) {
  size_t count = reader_.count();
  if (count != 2 && count != 3) {
    writer->Error("ERR wrong number of arguments for 'auth' command");
    return true;
  }
  if (!context_->secret->is_set()) {
    writer->Error("ERR AUTH called without any password configured. Are you sure your configuration is correct?");
    return true;
  }
  if (!context_->secret->Matches(reader_.argument(count - 1))) {
    worker_->cells().unauthorized.Add(1);
    writer->Error("WRONGPASS invalid username-password pair or user is disabled.");
    return false;
  }
  is_trusted_ = true;
  writer->Simple("OK");
  return true;
}

void RespSession::ServeHello(net::RespWriter* writer) {
  int version = version_;
  std::string name = name_;
  bool is_trusted = is_trusted_;
  size_t i = 1;
  if (i < reader_.count()) {
    std::string_view text = reader_.argument(i++);
    if (text != "2" && text != "3") return writer->Error("NOPROTO unsupported protocol version");
    version = text == "3" ? 3 : 2;
  }
  while (i < reader_.count()) {
    std::string option = Upper(reader_.argument(i));
    if (option == "AUTH" && i + 2 < reader_.count()) {
      if (!context_->secret->Matches(reader_.argument(i + 2))) {
        worker_->cells().unauthorized.Add(1);
        return writer->Error("WRONGPASS invalid username-password pair or user is disabled.");
      }
      is_trusted = true;
      i += 3;
    } else if (option == "SETNAME" && i + 1 < reader_.count()) {
      name = reader_.argument(i + 1).substr(0, 128);
      i += 2;
    } else {
      return writer->Error("ERR Syntax error in HELLO option '" + net::Printable(option) + "'");
    }
  }
  if (!is_trusted) {
    worker_->cells().unauthorized.Add(1);
    return writer->Error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> "
        "<pass> option can be used to authenticate the client and select the RESP protocol version at the same time");
  }
  is_trusted_ = is_trusted;
  name_ = name;
  version_ = version;
  // Nothing was appended yet: the answer is in the version just chosen.
  *writer = net::RespWriter(writer->out(), version_);
  writer->Map(7);
  writer->Bulk("server");
  writer->Bulk("redis");
  writer->Bulk("version");
  writer->Bulk(kRedisVersion);
  writer->Bulk("proto");
  writer->Number(version_);
  writer->Bulk("id");
  writer->Number(static_cast<int64_t>(id_));
  writer->Bulk("mode");
  writer->Bulk("standalone");
  writer->Bulk("role");
  writer->Bulk("replica");
  writer->Bulk("modules");
  writer->Array(0);
}

void RespSession::ServeClient(net::RespWriter* writer) {
  std::string command = reader_.count() > 1 ? Upper(reader_.argument(1)) : "";
  if (command == "SETNAME" && reader_.count() == 3) {
    name_ = reader_.argument(2).substr(0, 128);
    writer->Simple("OK");
  } else if (command == "SETINFO" || command == "NO-EVICT" || command == "NO-TOUCH") {
    writer->Simple("OK");
  } else if (command == "GETNAME") {
    writer->Bulk(name_);
  } else if (command == "ID") {
    writer->Number(static_cast<int64_t>(id_));
  } else if (command == "INFO") {
    writer->Bulk("id=" + std::to_string(id_) + " name=" + name_ + " db=" + std::to_string(selected_) +
                 " resp=" + std::to_string(version_) + "\n");
  } else {
    writer->Error("ERR unknown subcommand '" + net::Printable(command) + "'");
  }
}

void RespSession::ServeConfig(net::RespWriter* writer) {
  if (reader_.count() < 3 || Upper(reader_.argument(1)) != "GET")
    return writer->Error("ERR only CONFIG GET is known here");
  std::vector<std::pair<std::string, std::string>> found;
  for (size_t i = 2; i < reader_.count(); ++i) {
    std::string_view name = reader_.argument(i);
    if (name == "save") found.emplace_back("save", "");
    if (name == "appendonly") found.emplace_back("appendonly", "no");
    if (name == "databases")
      found.emplace_back("databases", std::to_string(std::max<size_t>(1, worker_->tables().size())));
  }
  writer->Map(found.size());
  for (const auto& [name, value] : found) {
    writer->Bulk(name);
    writer->Bulk(value);
  }
}

void RespSession::ServeCommandList(net::RespWriter* writer) {
  std::string command = reader_.count() > 1 ? Upper(reader_.argument(1)) : "";
  if (command == "COUNT")
    writer->Number(24);
  else if (command == "DOCS")
    writer->Map(0);
  else
    writer->Array(0);
}

std::string RespSession::Info() {
  const Catalog* catalog = worker_->catalog();
  std::string text =
      "# Server\r\nredis_version:" + std::string(kRedisVersion) +
      "\r\nredis_mode:standalone\r\nserver_name:elasticctr-cube\r\ntcp_port:" + std::to_string(context_->port);
  text += "\r\nuptime_in_seconds:" + std::to_string((net::NowNs() - context_->started_ns) / 1'000'000'000);
  text += "\r\n\r\n# Replication\r\nrole:slave\r\nmaster_link_status:up\r\nslave_read_only:1";
  text += "\r\n\r\n# Memory\r\nused_memory:" + std::to_string(catalog != nullptr ? catalog->resident_bytes() : 0);
  text += "\r\n\r\n# Persistence\r\nloading:" + std::to_string(worker_->tables().empty() ? 1 : 0) +
          "\r\n\r\n# Keyspace\r\n";
  for (size_t i = 0; i < worker_->tables().size(); ++i) {
    const Worker::Target& target = worker_->FindHere(worker_->table_hash(i), 0);
    if (target.found.view == nullptr) continue;
    text += "db" + std::to_string(i) + ":keys=" + std::to_string(target.found.view->rows()) +
            ",expires=0,avg_ttl=0,table=" + worker_->tables()[i] + ",version=" + std::to_string(target.found.version) +
            "\r\n";
  }
  return text;
}

}  // namespace elasticctr::cube

// The commands that clients and tools send when they connect: about themselves and about this server.
#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "cube/server/resp.h"
#include "net/socket.h"

namespace elasticctr::cube {
namespace {

// The Redis version whose features we have: tools check it before they use one.
constexpr std::string_view kRedisVersion = "7.0.0";

}  // namespace

std::string Upper(std::string_view text) {
  std::string upper(text.substr(0, 32));
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
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
  // Nothing was appended yet: the answer uses the version just chosen.
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

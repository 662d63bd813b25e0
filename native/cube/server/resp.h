// Read-only Redis on one connection. A key is a feasign in decimal, in the table that SELECT chose (tables are numbered
// in the order of "model/table"), or `model/table:feasign`; a value is the row's bytes. GETs that arrive together are
// looked up together. MULTI and EXEC answer all they hold from the same versions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cube/server/worker.h"
#include "net/loop/session.h"
#include "net/resp.h"
#include "util/secret.h"

namespace elasticctr::cube {

struct RespContext {
  const Secret* secret;
  uint64_t started_ns;
  uint16_t port;
};

class RespSession : public net::Session {
 public:
  RespSession(Worker* worker, const RespContext* context, uint64_t id)
      : worker_(worker), context_(context), id_(id), is_trusted_(!context->secret->is_set()) {}

  net::Step Consume(const uint8_t* data, size_t size, uint64_t received_ns, net::Buffer* out) override;
  uint32_t idle_limit_s() const override { return is_trusted_ ? 0 : 60; }

 private:
  static constexpr size_t kNoTable = ~size_t{0};
  static constexpr size_t kTogether = 256;  // feasigns looked up at once: their rows stay in a near cache

  // False: the connection closes after what was answered.
  bool Serve(net::Buffer* out);
  bool ServeOther(std::string_view name, net::Buffer* out);
  void ServeTrusted(std::string_view name, net::Buffer* out);
  int64_t CountSelected();
  // Between MULTI and EXEC. False: the command is not one of those that wait; serve it now.
  bool Queue(std::string_view name, net::Buffer* out);
  void ServeExec(net::Buffer* out);
  void EndMulti();
  void ServeMget(net::Buffer* out);
  void ServeExists(net::Buffer* out);
  // TTL, PTTL and TYPE: what is said of a key that is there, and of one that is not.
  void ServeAbout(std::string_view name, net::Buffer* out);
  void ServeScan(net::Buffer* out);
  void ServeSelect(net::RespWriter* writer);
  bool ServeAuth(net::RespWriter* writer);
  void ServeHello(net::RespWriter* writer);
  void ServeClient(net::RespWriter* writer);
  void ServeConfig(net::RespWriter* writer);
  void ServeCommandList(net::RespWriter* writer);
  std::string Info();

  // Takes the newest catalog for the next command and finds the selected table in it: numbers may have moved.
  void Rebind();
  // Looks up the GETs that wait.
  void FlushGets(net::Buffer* out);
  // Looks up at most kTogether keys of one table and appends their values; counts them, not the request.
  std::optional<Miss> LookUp(size_t table, const uint64_t* keys, size_t n, net::Buffer* out);
  // `pending`: bytes of answers that are made already and not charged yet.
  std::optional<Miss> Search(size_t table, const uint64_t* keys, size_t n, size_t pending, uint8_t* found,
                             const uint8_t** rows, size_t* row_bytes, size_t* hits);
  // Which table a key is of, and its feasign. kNever: it is a key, but of no row.
  enum class Key : uint8_t { kFeasign, kNever, kBad };
  Key ParseKey(std::string_view key, size_t* table, uint64_t* feasign) const;
  // How many rows there are of one key, 0 or 1; nothing: a failure, which is answered.
  std::optional<size_t> CountRows(std::string_view key, net::Buffer* out);
  size_t FindTable(std::string_view name) const;
  TableCells* CellsOf(size_t table);
  void Fail(size_t table, size_t keys, Miss miss, net::Buffer* out);
  void FailKey(std::string_view key, net::Buffer* out);

  Worker* const worker_;
  const RespContext* const context_;
  const uint64_t id_;
  net::RespReader reader_;
  std::vector<uint64_t> gets_;  // GETs that wait to be looked up together
  size_t gets_table_ = 0;
  size_t selected_ = 0;         // number of the selected table in the catalog now
  uint64_t selected_hash_ = 0;  // which table that is; 0: none was there yet
  std::string name_;
  int version_ = 2;
  std::string queued_;  // commands since MULTI, as they came
  size_t queued_count_ = 0;
  net::Charge queued_charge_;
  bool is_queuing_ = false;  // after MULTI
  bool is_spoilt_ = false;   // a command since then cannot be served: EXEC will not be
  bool is_replaying_ = false;
  bool is_trusted_;
};

// The start of a word, in upper case, to compare with names.
std::string Upper(std::string_view text);
// Whether Redis would change something on this command. REQUIRES: upper case.
bool IsWriteCommand(std::string_view name);
// `*` and `?` of Redis' patterns, nothing else. Takes no more than pattern times text.
bool MatchesPattern(std::string_view pattern, std::string_view text);

}  // namespace elasticctr::cube

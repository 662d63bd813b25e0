// Read-only Redis on one connection. A key is a feasign in decimal, in the table that SELECT chose (tables are numbered
// in the order of "model/table"), or `model/table:feasign`; a value is the row's bytes. GETs that arrive together are
// looked up together. All commands between MULTI and EXEC are answered from the same versions.
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

  // False: the connection closes after the answers so far.
  bool Serve(net::Buffer* out);
  bool ServeOther(std::string_view name, net::Buffer* out);
  void ServeTrusted(std::string_view name, net::Buffer* out);
  int64_t CountSelected();
  // Queues a command between MULTI and EXEC. False: this command is not queued; serve it now.
  bool Queue(std::string_view name, net::Buffer* out);
  void ServeExec(net::Buffer* out);
  void EndMulti();
  void ServeMget(net::Buffer* out);
  void ServeExists(net::Buffer* out);
  // TTL, PTTL and TYPE: the answers for existing and missing keys.
  void ServeAbout(std::string_view name, net::Buffer* out);
  void ServeScan(net::Buffer* out);
  void ServeSelect(net::RespWriter* writer);
  bool ServeAuth(net::RespWriter* writer);
  void ServeHello(net::RespWriter* writer);
  void ServeClient(net::RespWriter* writer);
  void ServeConfig(net::RespWriter* writer);
  void ServeCommandList(net::RespWriter* writer);
  std::string Info();

  // Takes the newest catalog for the next command and finds the selected table in it: numbers may have changed.
  void Rebind();
  // Looks up the queued GETs.
  void FlushGets(net::Buffer* out);
  // Looks up at most kTogether keys of one table and appends their values. Counts the keys, not the request.
  std::optional<Miss> LookUp(size_t table, const uint64_t* keys, size_t n, net::Buffer* out);
  // `pending`: bytes of answers that are made and not charged yet.
  std::optional<Miss> Search(size_t table, const uint64_t* keys, size_t n, size_t pending, uint8_t* found,
                             const uint8_t** rows, size_t* row_bytes, size_t* hits);
  // A key's table and feasign. kNever: a valid key that can have no row.
  enum class Key : uint8_t { kFeasign, kNever, kBad };
  Key ParseKey(std::string_view key, size_t* table, uint64_t* feasign) const;
  // The number of rows of one key, 0 or 1; nullopt: a failure, which has been answered.
  std::optional<size_t> CountRows(std::string_view key, net::Buffer* out);
  size_t FindTable(std::string_view name) const;
  TableCells* CellsOf(size_t table);
  void Fail(size_t table, size_t keys, Miss miss, net::Buffer* out);
  void FailKey(std::string_view key, net::Buffer* out);

  Worker* const worker_;
  const RespContext* const context_;
  const uint64_t id_;
  net::RespReader reader_;
  std::vector<uint64_t> gets_;  // GETs to be looked up together
  size_t gets_table_ = 0;
  size_t selected_ = 0;         // number of the selected table in the current catalog
  uint64_t selected_hash_ = 0;  // hash of the selected table; 0: there was none yet
  std::string name_;
  int version_ = 2;
  std::string queued_;  // commands since MULTI, as received
  size_t queued_count_ = 0;
  net::Charge queued_charge_;
  bool is_queuing_ = false;  // after MULTI
  bool is_spoilt_ = false;   // a command since MULTI was invalid: EXEC will fail
  bool is_replaying_ = false;
  bool is_trusted_;
};

// The beginning of a word, in upper case, for comparison with names.
std::string Upper(std::string_view text);
// Whether Redis writes on this command. REQUIRES: upper case.
bool IsWriteCommand(std::string_view name);
// Supports only `*` and `?` of Redis' patterns. Takes at most pattern times text steps.
bool MatchesPattern(std::string_view pattern, std::string_view text);

}  // namespace elasticctr::cube

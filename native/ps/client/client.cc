#include "ps/client/client.h"

#include <chrono>
#include <cstring>

#include "net/address.h"
#include "ps/client/state.h"
#include "util/coding.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

constexpr uint64_t kMs = 1'000'000;

ClientOptions Checked(ClientOptions options) {
  if (options.addresses.empty() || options.addresses.size() > kBuckets) {
    throw Error(Code::kConfig, "a job has 1 to " + std::to_string(kBuckets) + " pservers, not " +
                                   std::to_string(options.addresses.size()));
  }
  if (options.tables.size() > kMaxTables) throw Error(Code::kConfig, "a job has at most 1024 tables");
  for (const TableShape& table : options.tables) {
    if (table.dim == 0) throw Error(Code::kConfig, "a table whose rows have no weights");
  }
  return options;
}

}  // namespace

std::shared_ptr<PushBook::Ticket> PushBook::Open(size_t parts) {
  std::lock_guard lock(mutex_);
  ++last_;
  if (parts > 0) ++outstanding_;
  return std::make_shared<Ticket>(Ticket{last_, generation_, parts});
}

void PushBook::End(Ticket& ticket) {
  if (--ticket.parts > 0 || ticket.generation != generation_) return;
  --outstanding_;
  changed_.notify_all();
}

void PushBook::Acknowledge(Ticket& ticket) {
  std::lock_guard lock(mutex_);
  End(ticket);
}

void PushBook::Fail(Ticket& ticket, Failure failure) {
  std::lock_guard lock(mutex_);
  if (ticket.generation == generation_ && !failure_) {
    failure_ = std::move(failure);
    changed_.notify_all();
  }
  End(ticket);
}

bool PushBook::Wait(size_t outstanding, uint32_t timeout_ms) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                    [&] { return failure_ || outstanding_ <= outstanding; });
  if (failure_) failure_->Throw();
  return outstanding_ <= outstanding;
}

size_t PushBook::outstanding() const {
  std::lock_guard lock(mutex_);
  return outstanding_;
}

uint64_t PushBook::Drop() {
  std::lock_guard lock(mutex_);
  outstanding_ = 0;
  failure_.reset();
  changed_.notify_all();
  return generation_++;
}

Client::State::State(const ClientOptions& given)
    : options(Checked(given)),
      dense(std::make_shared<DenseStore>(options)),
      book(std::make_shared<PushBook>()),
      io(options, [this](uint32_t shard) { dense->Forget(shard); }) {}

uint64_t Client::State::Deadline(uint32_t timeout_ms) const { return net::NowNs() + timeout_ms * kMs; }

std::string Client::State::Trouble() const {
  std::string text;
  for (uint32_t s = 0; s < shards(); ++s) {
    const LinkState link = io.state(s);
    if (link.is_ready) continue;
    text += (text.empty() ? "" : ", ") + ("pserver " + std::to_string(s)) + " (" + link.address + "): " + link.trouble;
  }
  return text.empty() ? "every pserver is connected, some are slow" : text;
}

void Client::State::CheckTables(size_t given) const {
  if (given == options.tables.size()) return;
  throw Error(Code::kFailedPrecondition, "the job has " + std::to_string(options.tables.size()) + " tables, " +
                                             std::to_string(given) + " were given");
}

std::vector<std::string> Client::State::AskAll(Opcode opcode, const std::vector<std::string>& bodies,
                                               uint32_t timeout_ms) {
  const auto gate = std::make_shared<Gate>(bodies.size());
  std::vector<std::shared_ptr<TextRequest>> requests;
  for (uint32_t s = 0; s < bodies.size(); ++s) {
    requests.push_back(std::make_shared<TextRequest>(opcode, bodies[s], gate));
    requests.back()->deadline_ns = Deadline(timeout_ms);
    requests.back()->era = era;
    io.Submit(s, requests.back());
  }
  gate->WaitAll();
  std::vector<std::string> answers;
  for (const auto& request : requests) answers.push_back(request->answer());
  return answers;
}

Client::Client(const ClientOptions& options) {
  if (options.dense_gradient_encoding == Encoding::kInt8) {
    throw Error(Code::kConfig, "dense gradients go as fp32, fp16 or bf16, not int8");
  }
  state_ = std::make_unique<State>(options);
  state_->AskAll(Opcode::kPing, std::vector<std::string>(state_->shards()), options.timeout_ms);
}

Client::~Client() = default;

uint64_t Client::CopyDense(std::span<float> out) const {
  if (out.size() != state_->options.dense_floats) {
    throw Error(Code::kFailedPrecondition, "the dense vector has " + std::to_string(state_->options.dense_floats) +
                                               " floats, the array " + std::to_string(out.size()));
  }
  return state_->dense->Copy(out);
}

uint64_t Client::PullDense(std::span<float> out) {
  StartPull({}, false, true)->step();
  return CopyDense(out);
}

bool Client::SetDense(std::span<const float> values) {
  State& s = *state_;
  if (values.size() != s.options.dense_floats) {
    throw Error(Code::kFailedPrecondition, "the dense vector has " + std::to_string(s.options.dense_floats) +
                                               " floats, " + std::to_string(values.size()) + " were given");
  }
  std::vector<std::string> bodies;
  for (uint32_t shard = 0; shard < s.shards(); ++shard) {
    const Share& share = s.dense->share(shard);
    std::string body(sizeof(uint64_t) + s.dense->floats(shard) * sizeof(float), '\0');
    EncodeFixed64(body.data(), share.first_float);
    if (s.dense->floats(shard) > 0) {
      std::memcpy(body.data() + sizeof(uint64_t), values.data() + share.first_float, body.size() - sizeof(uint64_t));
    }
    bodies.push_back(std::move(body));
  }
  bool were_taken = true;
  const auto answers = s.AskAll(Opcode::kSetDense, bodies, s.options.timeout_ms);
  for (uint32_t shard = 0; shard < s.shards(); ++shard) {
    if (answers[shard].size() != 1) throw Error(Code::kCorruption, "an invalid answer to set dense");
    were_taken &= answers[shard][0] == 1 || s.dense->floats(shard) == 0;
  }
  return were_taken;
}

std::vector<std::vector<uint32_t>> Client::Cursors(std::span<const uint64_t> chunks) {
  const std::string body(reinterpret_cast<const char*>(chunks.data()), chunks.size_bytes());
  std::vector<std::vector<uint32_t>> cursors;
  const std::vector<std::string> bodies(state_->shards(), body);
  for (const std::string& answer : state_->AskAll(Opcode::kCursors, bodies, state_->options.timeout_ms)) {
    if (answer.size() != chunks.size() * sizeof(uint32_t)) {
      throw Error(Code::kCorruption, "an invalid answer to cursors: pserver " + std::to_string(cursors.size()));
    }
    cursors.emplace_back(chunks.size());
    if (!chunks.empty()) std::memcpy(cursors.back().data(), answer.data(), answer.size());
  }
  return cursors;
}

void Client::SetCursors(uint64_t chunk, std::span<const uint32_t> by_shard) {
  if (by_shard.size() != state_->shards()) {
    throw Error(Code::kFailedPrecondition, "one cursor per pserver is needed: " + std::to_string(state_->shards()));
  }
  std::lock_guard lock(state_->cursors_mutex);
  // A trainer has at most two chunks at a time; older ones are finished.
  constexpr size_t kKept = 64;
  if (state_->cursors.size() >= kKept && !state_->cursors.contains(chunk)) state_->cursors.clear();
  state_->cursors[chunk].assign(by_shard.begin(), by_shard.end());
}

void Client::Drop() {
  const uint64_t dropped = state_->book->Drop();
  {
    std::lock_guard lock(state_->cursors_mutex);
    state_->cursors.clear();
  }
  for (uint32_t s = 0; s < state_->shards(); ++s) state_->dense->Forget(s);
  state_->io.Post([dropped](auto& links, uint64_t) {
    for (const auto& link : links) {
      link->Remove([dropped](const Request& request) { return request.generation() <= dropped; });
    }
  });
}

void Client::SetEra(uint64_t era) { state_->era = era; }

void Client::SetAddress(uint32_t shard, const std::string& address, uint64_t incarnation) {
  if (shard >= state_->shards()) {
    throw Error(Code::kFailedPrecondition,
                "there is no pserver " + std::to_string(shard) + " of " + std::to_string(state_->shards()));
  }
  net::CheckAddress(address);
  state_->io.Post([=](auto& links, uint64_t now) { links[shard]->SetAddress(address, incarnation, now); });
}

std::string Client::Control(uint32_t shard, const std::string& json, uint32_t timeout_ms) {
  if (shard >= state_->shards()) {
    throw Error(Code::kFailedPrecondition,
                "there is no pserver " + std::to_string(shard) + " of " + std::to_string(state_->shards()));
  }
  const auto gate = std::make_shared<Gate>(1);
  const auto request = std::make_shared<TextRequest>(Opcode::kControl, json, gate);
  request->deadline_ns = state_->Deadline(timeout_ms);
  state_->io.Submit(shard, request);
  gate->WaitAll();
  return request->answer();
}

ClientStats Client::stats() const {
  const LinkCounters& links = state_->io.counters();
  const auto& counters = *state_->counters;
  return {links.sent_bytes, links.received_bytes, counters.pulls,          counters.pushes,
          links.resent,     links.reconnects,     counters.applied_before, counters.not_finite};
}

std::vector<LinkState> Client::links() const {
  std::vector<LinkState> states;
  for (uint32_t s = 0; s < state_->shards(); ++s) states.push_back(state_->io.state(s));
  return states;
}

uint32_t Client::shards() const { return state_->shards(); }

}  // namespace elasticctr::ps

// Pushes that wait until every member of the group has sent one.
#include <algorithm>
#include <chrono>
#include <set>

#include "net/socket.h"
#include "ps/server/refusal.h"
#include "ps/shard/state.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

constexpr uint64_t kMillisecondNs = 1'000'000;
constexpr size_t kMostKept = 4096;  // trainers that left may come back

std::exception_ptr ErrorOf(Code code, const char* message) { return std::make_exception_ptr(Error(code, message)); }

PushIdentity IdentityOf(const PushRequest& push) { return {push.chunk, push.from, push.to, push.kind}; }

bool IsSame(const PushRequest& a, const PushRequest& b) {
  return a.trainer == b.trainer && IdentityOf(a) == IdentityOf(b);
}

}  // namespace

bool Shard::State::IsMember(uint64_t trainer) const { return std::binary_search(group.begin(), group.end(), trainer); }

// A push repeated over a new connection replaces the waiting one.
bool Shard::State::TakeOver(const PushRequest& request, PushDone* done) {
  const auto found =
      std::find_if(waiting.begin(), waiting.end(), [&](const Waiting& one) { return IsSame(one.request, request); });
  if (found == waiting.end()) return false;
  // The waiting body is kept by its `done`, or is owned: both stay.
  auto replaced = std::make_shared<PushDone>(std::move(found->done));
  found->done = [replaced, done = std::move(*done)](const PushResult* result, const std::exception* error) {
    if (*replaced) (*replaced)(result, error);
    done(result, error);
  };
  return true;
}

// Whether this push of the trainer was already in a step of the group and its answer got lost. A trainer has at most
// one such push in flight, so remembering the newest is enough.
bool Shard::State::TookPart(const PushRequest& request) const {
  if (request.kind == PushKind::kEmpty && request.chunk == 0) return false;  // has no number
  const auto found = taken_part.find(request.trainer);
  return found != taken_part.end() && found->second == IdentityOf(request);
}

std::set<uint64_t> Shard::State::Missing() const {
  std::set<uint64_t> missing(group.begin(), group.end());
  for (const Waiting& one : waiting) missing.erase(one.request.trainer);
  return missing;
}

void Shard::State::Enqueue(Waiting one) {
  const PushRequest& request = one.request;
  const bool is_before = request.kind != PushKind::kEmpty && request.from != cursors.Get(request.chunk);
  if (request.group == GroupMode::kDense && !is_before) {
    if (one.is_finite && request.kind == PushKind::kGradients) {
      const Contribution only{&request, 1.0f, cursors.Ahead(request.chunk, request.from)};
      StepRows({&only, 1});
    }
    one.ahead = cursors.Ahead(request.chunk, request.from);
    MoveCursor(request);
    one.rows_done = true;
  }
  if (!is_following) {
    one.deadline_ns = net::NowNs() + settings.group_timeout_ms * kMillisecondNs;
    deadlines.notify_all();
  }
  waiting.push_back(std::move(one));
}

// Steps as long as every member has a push waiting. Pushes of trainers that left since count too; those of trainers
// that never were members keep waiting.
void Shard::State::StepGroups(uint64_t place, std::vector<Finished>* finished) {
  while (!waiting.empty()) {
    if (!Missing().empty()) return;
    std::set<uint64_t> seen;
    std::list<Waiting> taken;
    for (auto at = waiting.begin(); at != waiting.end();) {
      const auto next = std::next(at);
      const bool counts_in = group.empty() || at->was_member || IsMember(at->request.trainer);
      if (counts_in && seen.insert(at->request.trainer).second) taken.splice(taken.end(), waiting, at);
      at = next;
    }
    if (taken.empty()) return;
    StepOnce(std::move(taken), place, finished);
  }
}

void Shard::State::StepOnce(std::list<Waiting> taken, uint64_t place, std::vector<Finished>* finished) {
  taken.sort([](const Waiting& a, const Waiting& b) { return a.request.trainer < b.request.trainer; });
  ++rounds;
  for (const Waiting& one : taken) taken_part[one.request.trainer] = IdentityOf(one.request);
  std::vector<Contribution> rows, with_dense;
  std::vector<PushOutcome> outcomes;
  double row_weight = 0.0, dense_weight = 0.0;
  for (const Waiting& one : taken) {
    const PushRequest& request = one.request;
    // Of two holders of a chunk, the other one was faster.
    if (!one.rows_done && request.kind != PushKind::kEmpty && request.from != cursors.Get(request.chunk)) {
      outcomes.push_back(PushOutcome::kBefore);
      continue;
    }
    outcomes.push_back(one.is_finite ? PushOutcome::kApplied : PushOutcome::kNotFinite);
    if (one.is_finite && request.kind == PushKind::kGradients && request.weight != 0) {
      const auto weight = static_cast<float>(request.weight);
      with_dense.push_back({&request, weight, one.rows_done ? one.ahead : cursors.Ahead(request.chunk, request.from)});
      dense_weight += request.weight;
      if (!one.rows_done) {
        rows.push_back(with_dense.back());
        row_weight += request.weight;
      }
    }
    if (!one.rows_done) MoveCursor(request);
  }
  for (Contribution& one : rows) one.share = static_cast<float>(one.push->weight / row_weight);
  for (Contribution& one : with_dense) one.share = static_cast<float>(one.push->weight / dense_weight);
  if (!rows.empty()) StepRows(rows);
  if (!with_dense.empty()) {
    std::unique_lock writing(dense_mutex);
    StepDense(&dense, with_dense);
  }
  size_t i = 0;
  for (Waiting& one : taken) {
    if (outcomes[i] == PushOutcome::kBefore) counts.applied_before.fetch_add(1, std::memory_order_relaxed);
    finished->push_back({std::move(one.done), Result(outcomes[i++], place), nullptr});
  }
}

void Shard::SetGroup(std::vector<uint64_t> members) {
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  std::vector<Finished> finished;
  {
    std::lock_guard lock(state_->order);
    const std::span<const uint8_t> body(reinterpret_cast<const uint8_t*>(members.data()),
                                        members.size() * sizeof(uint64_t));
    const uint64_t place = state_->Log(Opcode::kGroup, body);
    state_->ChangeGroup(std::move(members), place, &finished);
  }
  Answer(&finished);
}

void Shard::State::ChangeGroup(std::vector<uint64_t> members, uint64_t place, std::vector<Finished>* finished) {
  group = std::move(members);
  if (taken_part.size() > kMostKept) std::erase_if(taken_part, [this](const auto& e) { return !IsMember(e.first); });
  for (Waiting& one : waiting) one.was_member |= IsMember(one.request.trainer);
  StepGroups(place, finished);
}

void Shard::State::Expire(uint64_t trainer, uint64_t chunk, uint32_t from, uint64_t place,
                          std::vector<Finished>* finished) {
  const auto found = std::find_if(waiting.begin(), waiting.end(), [=](const Waiting& one) {
    return one.request.trainer == trainer && one.request.chunk == chunk && one.request.from == from;
  });
  if (found == waiting.end()) return;
  counts.late.fetch_add(1, std::memory_order_relaxed);
  std::list<Waiting> taken;
  if (!found->rows_done) {
    finished->push_back({std::move(found->done),
                         {},
                         std::make_exception_ptr(Refusal(Code::kDeadlineExceeded, Detail::kGroupLate,
                                                         "the group did not come together in time"))});
    taken.splice(taken.end(), waiting, found);
    return;
  }
  // Its rows were updated, so its dense part is too, together with the members that are present.
  std::set<uint64_t> seen;
  for (auto at = waiting.begin(); at != waiting.end();) {
    const auto next = std::next(at);
    if (at->rows_done && seen.insert(at->request.trainer).second) taken.splice(taken.end(), waiting, at);
    at = next;
  }
  StepOnce(std::move(taken), place, finished);
}

void Shard::State::DropWaiting(std::vector<Finished>* finished) {
  for (Waiting& one : waiting) {
    finished->push_back(
        {std::move(one.done), {}, ErrorOf(Code::kUnavailable, "the pserver went back to a checkpoint")});
  }
  waiting.clear();
}

void Shard::State::WatchDeadlines() {
  std::unique_lock lock(order);
  while (!stopping) {
    const Waiting* next = nullptr;
    for (const Waiting& one : waiting) {
      if (one.deadline_ns != 0 && (next == nullptr || one.deadline_ns < next->deadline_ns)) next = &one;
    }
    const uint64_t now = net::NowNs();
    if (next == nullptr) {
      deadlines.wait(lock);
    } else if (next->deadline_ns > now) {
      deadlines.wait_for(lock, std::chrono::nanoseconds(next->deadline_ns - now));
    } else {
      std::vector<Finished> finished;
      const PushRequest& late = next->request;
      const std::string text = "{\"op\": \"expire\", \"trainer\": " + std::to_string(late.trainer) +
                               ", \"chunk\": " + std::to_string(late.chunk) +
                               ", \"from\": " + std::to_string(late.from) + "}";
      const uint64_t place = Log(Opcode::kControl, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
      Expire(late.trainer, late.chunk, late.from, place, &finished);
      lock.unlock();
      Answer(&finished);
      lock.lock();
    }
  }
}

void Shard::BecomePrimary() {
  std::lock_guard lock(state_->order);
  state_->is_following = false;
  for (Waiting& one : state_->waiting) {
    one.deadline_ns = net::NowNs() + state_->settings.group_timeout_ms * kMillisecondNs;
  }
  state_->deadlines.notify_all();
}

}  // namespace elasticctr::ps

// The changes a push makes.
#include <algorithm>
#include <cstring>

#include "ps/shard/state.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

// Floats [first, last) of the job's vector that none of these parts covers.
std::vector<std::pair<uint64_t, uint64_t>> Behind(const Share& share, std::vector<Share> ahead) {
  std::sort(ahead.begin(), ahead.end(), [](const Share& a, const Share& b) { return a.first_float < b.first_float; });
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  uint64_t next = share.first_float;
  for (const Share& part : ahead) {
    if (next >= share.last_float) break;
    if (part.first_float > next) ranges.emplace_back(next, std::min(part.first_float, share.last_float));
    next = std::max(next, part.last_float);
  }
  if (next < share.last_float) ranges.emplace_back(next, share.last_float);
  return ranges;
}

// The only push, if its dense gradient can be applied directly from the frame; else null.
const PushRequest* WholeDense(std::span<const Contribution> contributions) {
  if (contributions.size() != 1) return nullptr;
  const Contribution& only = contributions.front();
  return only.push->dense_floats == 0 || only.share != 1.0f || !only.ahead.empty() ? nullptr : only.push;
}

void StepWhole(DensePart* part, const PushRequest& push) {
  const uint8_t* const bytes = push.dense;
  if (push.dense_encoding == Encoding::kFp32 && reinterpret_cast<uintptr_t>(bytes) % alignof(float) == 0) {
    return part->Step({reinterpret_cast<const float*>(bytes), part->size()}, push.rate_scale);
  }
  part->StepPieces(
      [&](size_t first, std::span<float> piece) {
        DecodeRows(push.dense_encoding, bytes + EncodedBytes(push.dense_encoding, first), 1, piece.size(),
                   piece.data());
      },
      push.rate_scale);
}

}  // namespace

void CheckRequest(const PushRequest& request, const Share& share) {
  thread_local std::vector<uint64_t> scratch;
  for (const PushTable& table : request.tables) {
    CheckBuckets(Feasigns(table.feasigns, table.count, &scratch), share);
  }
  const uint64_t floats = share.last_float - share.first_float;
  if (request.dense_floats != 0 && request.dense_floats != floats) {
    throw Error(Code::kFailedPrecondition, std::to_string(request.dense_floats) +
                                               " dense floats for a pserver that holds " + std::to_string(floats));
  }
}

bool IsFinite(const PushRequest& request, std::span<const TableShape> shapes) {
  if (request.kind == PushKind::kNothing) return false;
  for (const PushTable& table : request.tables) {
    const auto floats = [&](const float* array) {
      return AreFinite(Encoding::kFp32, reinterpret_cast<const uint8_t*>(array), 1, table.count);
    };
    if (!AreFinite(request.encoding, table.gradients, table.count, shapes[table.number].dim)) return false;
    if (!floats(table.shows) || !floats(table.clicks)) return false;
  }
  return AreFinite(request.dense_encoding, request.dense, 1, request.dense_floats);
}

PushResult Shard::State::Result(PushOutcome outcome, uint64_t place) const {
  return {outcome, step.load(std::memory_order_relaxed), dense.version(), place};
}

void Shard::State::CheckCursor(const PushRequest& request) const {
  const uint32_t cursor = cursors.Get(request.chunk);
  if (request.from == cursor) return;
  throw CursorError("chunk " + std::to_string(request.chunk) + ": a push of batches " + std::to_string(request.from) +
                        " to " + std::to_string(request.to) + ", but " + std::to_string(cursor) +
                        " were applied; ask for the cursors and go on from there",
                    request.chunk, settings.shard, cursor);
}

void Shard::State::MoveCursor(const PushRequest& request) {
  if (request.kind != PushKind::kEmpty) cursors.Move(request.chunk, request.to);
}

void Shard::State::StepRows(std::span<const Contribution> contributions) {
  uint32_t now = 0;
  for (const Contribution& contribution : contributions) now = std::max(now, contribution.push->now);
  for (uint32_t number = 0; number < tables.size(); ++number) {
    const TableSum sum(contributions, number, shapes[number].dim);
    RowGradients rows = sum.Gradients();
    rows.now = now;
    rows.rate_scale = contributions.front().push->rate_scale;
    tables[number]->PushRows(rows);
    counts.pushed_rows.fetch_add(sum.size(), std::memory_order_relaxed);
  }
  step.fetch_add(1, std::memory_order_relaxed);
}

void Shard::State::StepDense(DensePart* part, std::span<const Contribution> contributions) const {
  const size_t floats = part->size();
  if (const PushRequest* const push = WholeDense(contributions); push != nullptr) {
    if (part->has_values()) StepWhole(part, *push);
    return;
  }
  std::vector<float> sum, decoded;
  const Contribution* only = nullptr;
  size_t count = 0;
  for (const Contribution& contribution : contributions) {
    const PushRequest& push = *contribution.push;
    if (push.dense_floats == 0) continue;
    decoded.resize(floats);
    DecodeRows(push.dense_encoding, push.dense, 1, floats, decoded.data());
    only = &contribution;
    if (++count == 1 && contribution.share == 1.0f) {
      sum.swap(decoded);
      continue;
    }
    sum.resize(floats);
    for (const Share& has : contribution.ahead) {
      const uint64_t first = std::max(has.first_float, share.first_float);
      const uint64_t last = std::min(has.last_float, share.last_float);
      for (uint64_t i = first; i < last; ++i) decoded[i - share.first_float] = 0.0f;
    }
    for (size_t i = 0; i < floats; ++i) sum[i] += contribution.share * decoded[i];
  }
  if (count == 0 || floats == 0 || !part->has_values()) return;
  const float rate_scale = contributions.front().push->rate_scale;
  if (count > 1 || only->ahead.empty()) return part->Step(sum, rate_scale);
  part->CountStep();
  for (const auto& [first, last] : Behind(share, only->ahead)) {
    const size_t at = first - share.first_float;
    part->StepRange(at, {sum.data() + at, last - first}, rate_scale);
  }
}

void Shard::State::AddDeltas(const PushRequest& request) {
  const Contribution only{&request, 1.0f, cursors.Ahead(request.chunk, request.from)};
  for (uint32_t number = 0; number < tables.size(); ++number) {
    const TableSum sum({&only, 1}, number, shapes[number].dim);
    RowGradients rows = sum.Gradients();
    rows.now = request.now;
    tables[number]->AddRows(rows);
    counts.pushed_rows.fetch_add(sum.size(), std::memory_order_relaxed);
  }
  step.fetch_add(1, std::memory_order_relaxed);
  if (request.dense_floats == 0) return;
  std::vector<float> delta(request.dense_floats);
  DecodeRows(request.dense_encoding, request.dense, 1, delta.size(), delta.data());
  std::unique_lock writing(dense_mutex);
  if (!dense.has_values()) return;
  for (const auto& [first, last] : Behind(share, only.ahead)) {
    const size_t at = first - share.first_float;
    dense.AddRange(at, {delta.data() + at, last - first});
  }
}

void Shard::Push(const PushRequest& request, PushDone done) {
  State& state = *state_;
  CheckRequest(request, state.share);
  const bool has_nothing = request.kind == PushKind::kNothing || request.kind == PushKind::kEmpty;
  const bool is_finite = has_nothing || IsFinite(request, state.shapes);
  std::vector<Finished> finished;
  {
    std::lock_guard lock(state.order);
    state.Arrive(request, std::move(done), is_finite, &finished);
  }
  Answer(&finished);
}

void Shard::State::Arrive(const PushRequest& request, PushDone done, bool is_finite, std::vector<Finished>* finished) {
  CheckEra(request.era);
  counts.pushes.fetch_add(1, std::memory_order_relaxed);
  const bool waits = request.group != GroupMode::kNone && !group.empty();
  if (waits && TakeOver(request, &done)) return;
  const bool is_before = request.kind != PushKind::kEmpty && request.to <= cursors.Get(request.chunk);
  const bool is_again = waits && TookPart(request);
  if (is_before || is_again) {
    // If another trainer's push already applied the batches, a member still takes part in a step of the group, as with
    // an empty push: on every pserver each of its pushes is in one step, or members would wait for each other on
    // different ones. No step waits for a non-member, and it need not wait for any: it continues until it learns that
    // it lost the chunk.
    if (!waits || is_again || !IsMember(request.trainer)) {
      counts.applied_before.fetch_add(1, std::memory_order_relaxed);
      // The push is applied but the standby may not have it: this answer must acknowledge no less than the lost one.
      finished->push_back({std::move(done), Result(PushOutcome::kBefore, last_place), nullptr});
      return;
    }
  } else if (request.kind != PushKind::kEmpty) {
    CheckCursor(request);
  }
  const uint64_t place = Log(Opcode::kPush, request.body);
  if (!is_finite) counts.not_finite.fetch_add(1, std::memory_order_relaxed);
  if (waits) {
    Enqueue({request, std::move(done), {}, {}, 0, is_finite, IsMember(request.trainer), false});
    return StepGroups(place, finished);
  }
  const bool changes = is_finite && (request.kind == PushKind::kGradients || request.kind == PushKind::kDeltas);
  if (changes && request.kind == PushKind::kDeltas) {
    AddDeltas(request);
  } else if (changes) {
    const Contribution only{&request, 1.0f, cursors.Ahead(request.chunk, request.from)};
    StepRows({&only, 1});
    std::unique_lock writing(dense_mutex);
    StepDense(&dense, {&only, 1});
  }
  MoveCursor(request);
  const PushOutcome outcome = is_finite ? PushOutcome::kApplied : PushOutcome::kNotFinite;
  finished->push_back({std::move(done), Result(outcome, place), nullptr});
}

void Answer(std::vector<Finished>* finished) {
  for (Finished& one : *finished) {
    if (!one.done) continue;
    if (one.error == nullptr) {
      one.done(&one.result, nullptr);
      continue;
    }
    try {
      std::rethrow_exception(one.error);
    } catch (const std::exception& error) {
      one.done(nullptr, &error);
    }
  }
}

}  // namespace elasticctr::ps

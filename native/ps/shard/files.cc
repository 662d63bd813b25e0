// Saves a shard, and loads one from the parts of any number of shards.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "ps/shard/dense_file.h"
#include "ps/shard/json.h"
#include "ps/shard/state.h"
#include "util/coding.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

constexpr uint64_t kMaxJsonBytes = uint64_t{1} << 30;

std::string TableName(const std::string& table, uint32_t shard) {
  return table + "." + std::to_string(shard) + ".table";
}
std::string DenseName(uint32_t shard) { return "dense." + std::to_string(shard) + ".bin"; }
std::string JsonName(uint32_t shard) { return "pserver." + std::to_string(shard) + ".json"; }
constexpr char kWaitingName[] = "waiting.bin";

std::string ReadText(const std::string& path) {
  const File file = File::OpenForReading(path);
  const uint64_t size = file.Size();
  if (size > kMaxJsonBytes) throw Error(Code::kCorruption, path + ": too long; take another checkpoint");
  std::string text(size, '\0');
  file.Read(text.data(), size, 0);
  return text;
}

// All saved pservers of a directory; none if a single process saved it.
std::vector<SavedShard> ReadSaved(const std::string& directory) {
  std::vector<SavedShard> all;
  for (uint32_t shard = 0; shard == 0 || shard < all[0].shards; ++shard) {
    const std::string path = directory + "/" + JsonName(shard);
    if (shard == 0 && !std::filesystem::exists(path)) return all;
    SavedShard saved = FromJson(ReadText(path), path);
    if (saved.shard != shard || (shard > 0 && saved.shards != all[0].shards)) {
      throw Error(Code::kCorruption, path + ": of another checkpoint than its neighbours; take another one");
    }
    all.push_back(std::move(saved));
  }
  return all;
}

Share Overlap(const Share& a, const Share& b) {
  Share both{std::max(a.first_bucket, b.first_bucket), std::min(a.last_bucket, b.last_bucket),
             std::max(a.first_float, b.first_float), std::min(a.last_float, b.last_float)};
  both.last_bucket = std::max(both.first_bucket, both.last_bucket);
  both.last_float = std::max(both.first_float, both.last_float);
  return both;
}

bool IsEmpty(const Share& share) {
  return share.first_bucket == share.last_bucket && share.first_float == share.last_float;
}

// Entries ahead may concern buckets and floats that another shard owns now.
Cursors::Part CutTo(const Share& share, Cursors::Part part) {
  for (auto& [chunk, ahead] : part.ahead) {
    for (auto& [range, cursor] : ahead) range = Overlap(share, range);
    std::erase_if(ahead, [](const auto& entry) { return IsEmpty(entry.first); });
  }
  return part;
}

struct Loading {
  explicit Loading(std::atomic<bool>* flag) : flag(flag) { flag->store(true); }
  ~Loading() { flag->store(false); }
  std::atomic<bool>* const flag;
};

void AppendWaiting(const Waiting& one, std::string* out) {
  out->push_back(static_cast<char>((one.is_finite ? 1 : 0) | (one.was_member ? 2 : 0) | (one.rows_done ? 4 : 0)));
  char size[8];
  EncodeFixed64(size, one.request.body.size());
  out->append(size, sizeof size);
  out->append(reinterpret_cast<const char*>(one.request.body.data()), one.request.body.size());
}

constexpr size_t kTakenPartBytes = 32;  // trainer, chunk, from, to, kind

void AppendTakenPart(const std::map<uint64_t, PushIdentity>& taken_part, std::string* out) {
  char bytes[kTakenPartBytes] = {};
  EncodeFixed64(bytes, taken_part.size());
  out->append(bytes, 8);
  for (const auto& [trainer, push] : taken_part) {
    EncodeFixed64(bytes, trainer);
    EncodeFixed64(bytes + 8, push.chunk);
    EncodeFixed32(bytes + 16, push.from);
    EncodeFixed32(bytes + 20, push.to);
    EncodeFixed64(bytes + 24, static_cast<uint64_t>(push.kind));
    out->append(bytes, sizeof bytes);
  }
}

// Waiting pushes whose rows were updated and whose cursors have moved: the file also contains their dense updates.
template <typename Pushes>
std::vector<Contribution> HalvesOf(const Pushes& waiting) {
  const auto is_half = [](const Waiting& one) {
    return one.rows_done && one.is_finite && one.request.kind == PushKind::kGradients;
  };
  double weight = 0.0;
  for (const Waiting& one : waiting) weight += is_half(one) ? one.request.weight : 0.0;
  std::vector<Contribution> halves;
  for (const Waiting& one : waiting) {
    if (!is_half(one) || one.request.weight == 0) continue;
    halves.push_back({&one.request, static_cast<float>(one.request.weight / weight), one.ahead});
  }
  return halves;
}

}  // namespace

std::string Shard::State::WriteFiles(const std::string& directory, bool is_transfer,
                                     const std::function<void()>& at_moment) const {
  if (!std::filesystem::is_directory(directory)) throw Error(Code::kNotFound, directory + ": no such directory");
  std::vector<std::unique_ptr<AtomicFile>> files;
  SavedShard saved{settings.shard, settings.shards, 0, {}, {}};
  const auto add = [&](const std::string& name) {
    saved.files.push_back({name, 0});
    files.push_back(std::make_unique<AtomicFile>(directory + "/" + name));
    return files.size() - 1;
  };
  for (const auto& table : tables) add(TableName(table->settings().name, settings.shard));
  const size_t dense_at = add(DenseName(settings.shard));
  std::string held;  // group and waiting pushes
  std::unique_lock lock(order);
  if (at_moment) at_moment();
  for (size_t i = 0; i < tables.size(); ++i) tables[i]->Write(files[i]->file(), "");
  DensePart part = dense;
  if (is_transfer) {
    for (const Waiting& one : waiting) AppendWaiting(one, &held);
  } else if (const auto halves = HalvesOf(waiting); !halves.empty()) {
    StepDense(&part, halves);
  }
  saved.step = step.load();
  saved.cursors = {share, cursors.forgotten(), cursors.Sorted(), cursors.ahead()};
  std::string head(8, '\0');
  EncodeFixed64(head.data(), group.size());
  head.append(reinterpret_cast<const char*>(group.data()), group.size() * sizeof(uint64_t));
  AppendTakenPart(taken_part, &head);
  lock.unlock();

  WriteDense(files[dense_at]->file(), part, settings.dense_optimizer.kind, settings.dense_floats, share.first_float);
  if (is_transfer) {
    const size_t at = add(kWaitingName);
    files[at]->file().Write((head + held).data(), head.size() + held.size(), 0);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    saved.files[i].bytes = files[i]->file().Size();
    if (is_transfer) {
      files[i]->CommitUnsynced();
    } else {
      files[i]->Commit();
    }
  }
  const std::string json = ToJson(saved);
  AtomicFile last(directory + "/" + JsonName(settings.shard));
  last.file().Write(json.data(), json.size(), 0);
  if (is_transfer) {
    last.CommitUnsynced();
  } else {
    last.Commit();
  }
  return json;
}

void Shard::State::Clear() {
  for (auto& table : tables) table->Reset();
  {
    std::unique_lock writing(dense_mutex);
    dense.Reset();
  }
  cursors.Restore({});
  taken_part.clear();
  step.store(0);
}

void Shard::State::ReadFiles(const std::string& directory, const std::vector<SavedShard>& parts) {
  if (parts.empty()) {
    // Saved by one process: whole tables; a trainer provides the dense parameters.
    for (auto& table : tables) {
      table->LoadPart(directory + "/" + table->settings().name + ".table", share.first_bucket, share.last_bucket);
      step.store(std::max(step.load(), table->GetStats().steps));
    }
    return;
  }
  std::vector<ps::Cursors::Part> taken;
  std::vector<float> values(dense.size());
  std::vector<std::vector<float>> arrays(dense.state_arrays(), std::vector<float>(dense.size()));
  uint64_t dense_steps = 0, covered = 0;
  bool has_values = true;
  for (const SavedShard& part : parts) {
    const DenseFile file(directory + "/" + DenseName(part.shard), settings.dense_optimizer.kind, settings.dense_floats);
    Share theirs = ShareOf(part.shard, part.shards, 0, false);
    theirs.first_float = file.header().first;
    theirs.last_float = file.header().first + file.header().count;
    const Share both = Overlap(share, theirs);
    step.store(std::max(step.load(), part.step));
    if (IsEmpty(both)) continue;
    if (both.first_bucket < both.last_bucket) {
      for (auto& table : tables) {
        table->LoadPart(directory + "/" + TableName(table->settings().name, part.shard), both.first_bucket,
                        both.last_bucket);
      }
    }
    if (both.first_float < both.last_float) {
      file.Read(both.first_float, both.last_float, share.first_float, values.data(), &arrays);
      has_values &= file.header().has_values != 0;
      dense_steps = std::max(dense_steps, file.header().steps);
      covered += both.last_float - both.first_float;
    }
    taken.push_back(CutTo(share, part.cursors));
    taken.back().share = both;
  }
  if (covered != dense.size()) {
    throw Error(Code::kCorruption, directory + ": parts of the dense vector are missing; take another checkpoint");
  }
  cursors.Restore(taken);
  if (dense.size() == 0 || !has_values) return;
  std::unique_lock writing(dense_mutex);
  dense.Restore(values, arrays, dense_steps);
}

std::string Shard::Save(const std::string& directory) const { return state_->WriteFiles(directory, false, nullptr); }

void Shard::SaveForStandby(const std::string& directory, const std::function<void()>& at_moment) const {
  state_->WriteFiles(directory, true, at_moment);
}

void Shard::Load(const std::string& directory, uint64_t era) {
  std::vector<Finished> finished;
  std::exception_ptr failure;
  {
    std::lock_guard lock(state_->order);
    const Loading loading(&state_->is_loading);
    state_->DropWaiting(&finished);
    state_->Clear();
    state_->era.store(era);
    state_->is_following = false;
    try {
      state_->ReadFiles(directory, ReadSaved(directory));
    } catch (...) {
      failure = std::current_exception();
      state_->Clear();
    }
  }
  Answer(&finished);
  if (failure) std::rethrow_exception(failure);
}

void Shard::Reset(uint64_t era) {
  std::vector<Finished> finished;
  {
    std::lock_guard lock(state_->order);
    const Loading loading(&state_->is_loading);
    state_->DropWaiting(&finished);
    state_->Clear();
    state_->era.store(era);
    state_->is_following = false;
  }
  Answer(&finished);
}

void Shard::LoadFromPrimary(const std::string& directory, uint64_t era) {
  std::vector<Finished> finished;
  std::exception_ptr failure;
  {
    std::lock_guard lock(state_->order);
    const Loading loading(&state_->is_loading);
    state_->DropWaiting(&finished);
    state_->Clear();
    state_->era.store(era);
    state_->is_following = true;
    try {
      const std::string path = directory + "/" + JsonName(state_->settings.shard);
      state_->ReadFiles(directory, {FromJson(ReadText(path), path)});
      state_->ReadWaiting(directory + "/" + kWaitingName);
    } catch (...) {
      failure = std::current_exception();
      state_->Clear();
    }
  }
  Answer(&finished);
  if (failure) std::rethrow_exception(failure);
}

void Shard::State::ReadWaiting(const std::string& path) {
  const std::string text = ReadText(path);
  const auto* at = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* const end = at + text.size();
  const auto take = [&](uint64_t bytes) {
    if (bytes > static_cast<uint64_t>(end - at)) throw Error(Code::kCorruption, path + ": cut short");
    const uint8_t* taken = at;
    at += bytes;
    return taken;
  };
  const uint64_t members = DecodeFixed64(take(8));
  group.clear();
  for (uint64_t i = 0; i < members; ++i) group.push_back(DecodeFixed64(take(8)));
  if (!std::is_sorted(group.begin(), group.end())) throw Error(Code::kCorruption, path + ": a group out of order");
  const uint64_t parts = DecodeFixed64(take(8));
  for (uint64_t i = 0; i < parts; ++i) {
    const uint8_t* const entry = take(kTakenPartBytes);
    const uint64_t kind = DecodeFixed64(entry + 24);
    if (kind > static_cast<uint64_t>(PushKind::kEmpty)) throw Error(Code::kCorruption, path + ": an unknown push");
    taken_part[DecodeFixed64(entry)] = {DecodeFixed64(entry + 8), DecodeFixed32(entry + 16), DecodeFixed32(entry + 20),
                                        static_cast<PushKind>(kind)};
  }
  while (at != end) {
    const uint8_t flags = *take(1);
    const uint64_t bytes = DecodeFixed64(take(8));
    const uint8_t* body = take(bytes);
    Waiting one;
    one.owned.assign(body, body + bytes);
    try {
      one.request = ReadPush(one.owned, shapes);
      CheckRequest(one.request, share);
    } catch (const Error& error) {
      throw Error(Code::kCorruption, path + ": a push that cannot wait here: " + error.what());
    }
    one.is_finite = (flags & 1) != 0 && (one.request.kind >= PushKind::kNothing || IsFinite(one.request, shapes));
    one.was_member = (flags & 2) != 0;
    one.rows_done = (flags & 4) != 0;
    waiting.push_back(std::move(one));
  }
}

}  // namespace elasticctr::ps

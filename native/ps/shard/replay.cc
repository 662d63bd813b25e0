// A standby's half: applies the changes of its primary.
#include <cstring>

#include "ps/shard/state.h"
#include "util/coding.h"
#include "util/json_reader.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

[[noreturn]] void Malformed() { throw Error(Code::kData, "a malformed change of a primary"); }

template <typename T>
std::vector<T> Take(const uint8_t* at, size_t count) {
  std::vector<T> values(count);
  if (count != 0) std::memcpy(values.data(), at, count * sizeof(T));
  return values;
}

struct ControlChange {
  std::string op;
  uint64_t below = 0, trainer = 0, chunk = 0, from = 0, oldest = 0;
  float rate = 1.0f, show_weight = 1.0f, click_weight = 1.0f, min_score = 0.0f;
};

ControlChange ReadControl(std::span<const uint8_t> body) {
  ControlChange change;
  JsonReader reader({reinterpret_cast<const char*>(body.data()), body.size()}, 4);
  std::string_view key;
  for (reader.BeginObject(); reader.NextKey(&key);) {
    if (key == "op") {
      change.op = reader.String();
    } else if (key == "below") {
      change.below = reader.Uint64();
    } else if (key == "trainer") {
      change.trainer = reader.Uint64();
    } else if (key == "chunk") {
      change.chunk = reader.Uint64();
    } else if (key == "from") {
      change.from = reader.Uint64();
    } else if (key == "oldest") {
      change.oldest = reader.Uint64();
    } else if (key == "rate") {
      change.rate = static_cast<float>(reader.Double());
    } else if (key == "show_weight") {
      change.show_weight = static_cast<float>(reader.Double());
    } else if (key == "click_weight") {
      change.click_weight = static_cast<float>(reader.Double());
    } else if (key == "min_score") {
      change.min_score = static_cast<float>(reader.Double());
    } else {
      reader.Skip();
    }
  }
  return change;
}

}  // namespace

void Shard::Replay(Opcode opcode, std::span<const uint8_t> body) {
  switch (opcode) {
    case Opcode::kPush: {
      auto owned = std::make_shared<std::vector<uint8_t>>(body.begin(), body.end());
      PushRequest request = ReadPush(*owned, state_->shapes);
      request.era = era();  // pushes of other eras never get here: after a load, a primary starts over with its standby
      Push(request, [owned](const PushResult*, const std::exception*) {});
      return;
    }
    case Opcode::kGroup: return SetGroup(Take<uint64_t>(body.data(), body.size() / sizeof(uint64_t)));
    case Opcode::kSetDense: {
      if (body.size() < 8) Malformed();
      SetDense(DecodeFixed64(body.data()), Take<float>(body.data() + 8, (body.size() - 8) / sizeof(float)));
      return;
    }
    case Opcode::kInsert: {
      if (body.size() < 8) Malformed();
      const uint32_t table = DecodeFixed32(body.data()), count = DecodeFixed32(body.data() + 4);
      if (table >= state_->tables.size() || body.size() != 8 + size_t{count} * 12) Malformed();
      const auto feasigns = Take<uint64_t>(body.data() + 8, count);
      const auto occurrences = Take<uint32_t>(body.data() + 8 + count * sizeof(uint64_t), count);
      CheckBuckets(feasigns, state_->share);
      std::lock_guard lock(state_->order);
      state_->tables[table]->InsertRows(feasigns, occurrences.data(), nullptr);
      return;
    }
    case Opcode::kControl: {
      const ControlChange change = ReadControl(body);
      if (change.op == "forget") return ForgetChunks(change.below);
      if (change.op == "decay") return Decay(change.rate);
      if (change.op == "evict") {
        Evict({change.show_weight, change.click_weight, change.min_score, static_cast<uint32_t>(change.oldest)});
        return;
      }
      if (change.op != "expire") Malformed();
      std::vector<Finished> finished;
      {
        std::lock_guard lock(state_->order);
        state_->Expire(change.trainer, change.chunk, static_cast<uint32_t>(change.from), 0, &finished);
      }
      return Answer(&finished);
    }
    default: Malformed();
  }
}

}  // namespace elasticctr::ps

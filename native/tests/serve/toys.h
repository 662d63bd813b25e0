// Versions and a codec small enough that every answer is known. A request's body is "model;field;ms;1,2,3": its samples
// have one feasign each. The score of feasign f in version v is f + v / 1024.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/socket.h"
#include "serve/engine/engine.h"
#include "serve/engine/models.h"
#include "serve/version/version.h"
#include "util/status.h"

namespace elasticctr::serve {

inline Plan ToyPlan() {
  Plan plan;
  plan.spec.labels = plan.labels = {"label"};
  plan.spec.sparse = {{"id", false, false, 8}};
  plan.tables = {{"main", 1}};
  plan.sparse.resize(1);
  plan.sparse[0].pieces = {{0, 1, 0}};
  plan.pooled_width = 1;
  plan.Seal();
  return plan;
}

// What toys do besides scoring.
struct Behaviour {
  std::function<void(const RowSource::Table&, uint64_t deadline_ns)> on_lookup;
  std::function<void(size_t samples)> on_run;
  bool is_remote = false;
  Policy policy;
};

// Feasigns over 10^6 have no row.
class ToyRows final : public RowSource {
 public:
  ToyRows(uint64_t version, const Behaviour* behaviour) : version_(version), behaviour_(behaviour) {}
  bool is_remote() const override { return behaviour_->is_remote; }
  void LookUp(Table* tables, size_t, uint64_t deadline_ns, Trouble*) const override {
    if (behaviour_->on_lookup) behaviour_->on_lookup(tables[0], deadline_ns);
    tables[0].hits = 0;
    for (size_t i = 0; i < tables[0].count; ++i) {
      tables[0].found[i] = tables[0].feasigns[i] <= 1'000'000;
      tables[0].hits += tables[0].found[i];
      tables[0].rows[i] = tables[0].found[i] ? static_cast<float>(tables[0].feasigns[i]) + ToyPart(version_) : 0.0f;
    }
  }
  static float ToyPart(uint64_t version) { return static_cast<float>(version) / 1024; }

 private:
  const uint64_t version_;
  const Behaviour* const behaviour_;
};

class ToyGraph final : public DenseGraph {
 public:
  explicit ToyGraph(const Behaviour* behaviour) : behaviour_(behaviour) {}
  void Run(std::span<const Input> inputs, size_t n, size_t, float* out) const override {
    if (behaviour_->on_run) behaviour_->on_run(n);
    const auto* pooled = static_cast<const float*>(inputs[0].data);
    for (size_t i = 0; i < n; ++i) out[i] = pooled[i];
  }

 private:
  const Behaviour* const behaviour_;
};

inline std::shared_ptr<const ServedVersion> ToyVersion(uint64_t version, const Behaviour* behaviour) {
  return std::make_shared<ServedVersion>("toy", version, ToyPlan(), std::make_shared<ToyRows>(version, behaviour),
                                         std::make_unique<ToyGraph>(behaviour), behaviour->policy);
}

// Feasigns that make the codec throw.
inline constexpr uint64_t kBadData = 900'001, kBadMemory = 900'002, kBadSurprise = 900'003, kBadFormat = 900'004;

class ToyParsed final : public Parsed {
 public:
  std::string field;
  std::vector<uint64_t> values;
  bool Field(std::string_view name, std::string* value) const override {
    if (name != "field" || field.empty()) return false;
    *value = field;
    return true;
  }
  void Fill(Samples* samples, const Limits&) const override {
    samples->BeginRequest();
    for (const uint64_t value : values) {
      if (value == kBadData) throw Error(Code::kData, "bad value");
      if (value == kBadMemory) throw std::bad_alloc();
      if (value == kBadSurprise) throw std::runtime_error("surprise");
      samples->BeginSample();
      samples->AddFeasign(0, value);
    }
    samples->EndRequest();
  }
};

class ToyCodec final : public Codec {
 public:
  const char* name() const override { return "toy"; }
  std::unique_ptr<Parsed> Read(const Request& request, const Limits&) const override {
    auto parsed = std::make_unique<ToyParsed>();
    std::vector<std::string> parts(1);
    for (const char c : request.body) {
      if (c == ';') {
        parts.emplace_back();
      } else {
        parts.back() += c;
      }
    }
    if (parts.size() != 4) throw Error(Code::kData, "not four parts");
    parsed->model = parts[0];
    parsed->field = parts[1];
    parsed->timeout_ms = parts[2].empty() ? 0 : static_cast<uint32_t>(std::stoul(parts[2]));
    for (const char* p = parts[3].c_str(); *p != '\0';) {
      char* end;
      parsed->values.push_back(std::strtoull(p, &end, 10));
      p = *end == ',' ? end + 1 : end;
    }
    return parsed;
  }
  // "version variant degraded found asked: score score"
  std::string Format(const Request&, const Parsed* parsed, const Reply& reply) const override {
    if (static_cast<const ToyParsed*>(parsed)->values == std::vector{kBadFormat}) throw std::bad_alloc();
    std::string text = std::to_string(reply.version) + " " + *reply.variant + " " +
                       std::to_string(reply.coverage->is_degraded()) + " " + std::to_string(reply.coverage->found) +
                       " " + std::to_string(reply.coverage->asked) + ":";
    for (size_t i = 0; i < reply.count; ++i) text += " " + std::to_string(reply.scores[i]);
    return text;
  }
  std::string FormatError(const Request& request, const Parsed*, const Error& error) const override {
    if (request.id == "speechless") throw std::runtime_error("cannot say it");
    const bool is_retry = dynamic_cast<const RetryLater*>(&error) != nullptr;
    return "error " + std::to_string(static_cast<int>(error.code())) + (is_retry ? " retry " : " ") + error.what();
  }
};

inline const ToyCodec kToyCodec;

inline std::string ToyBody(const std::vector<uint64_t>& values, const std::string& field = "", int timeout_ms = 0) {
  std::string body = "toy;" + field + ";" + (timeout_ms > 0 ? std::to_string(timeout_ms) : "") + ";";
  for (size_t i = 0; i < values.size(); ++i) body += (i > 0 ? "," : "") + std::to_string(values[i]);
  return body;
}

// Collects answers by number; reports duplicates.
class Inbox {
 public:
  explicit Inbox(size_t count) : answers_(count), times_(count) {}
  std::unique_ptr<Request> Make(size_t number, std::string body) {
    auto request = std::make_unique<Request>();
    request->codec = &kToyCodec;
    request->body = std::move(body);
    request->answer = [this, number](std::string bytes, bool close) {
      const std::lock_guard lock(mutex_);
      answers_[number] = close ? bytes + " closed" : bytes;
      if (++times_[number] > 1) is_doubled_ = true;
      ++arrived_;
      came_.notify_all();
    };
    return request;
  }
  // False: they do not arrive.
  bool WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, std::chrono::seconds(60), [&] { return arrived_ >= count; }) && !is_doubled_;
  }
  std::string answer(size_t number) {
    const std::lock_guard lock(mutex_);
    return answers_[number];
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> answers_;
  std::vector<int> times_;
  size_t arrived_ = 0;
  bool is_doubled_ = false;
};

// Blocks callers until it is opened.
class Gate {
 public:
  void Pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
  }
  void WaitForSomebody() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0; });
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool is_open_ = false;
};

inline std::shared_ptr<const Models> ToyModels(std::vector<Variant> variants, const std::string& sticky = "") {
  Model model;
  model.name = "toy";
  model.variants = std::move(variants);
  model.sticky_field = sticky;
  model.sticky_seed = 5;
  return std::make_shared<const Models>(std::vector<Model>{std::move(model)});
}

inline std::string ToyAnswer(uint64_t version, const std::string& variant, const std::vector<uint64_t>& values) {
  std::string text = std::to_string(version) + " " + variant + " 0 " + std::to_string(values.size()) + " " +
                     std::to_string(values.size()) + ":";
  for (const uint64_t value : values) {
    text += " " + std::to_string(static_cast<float>(value) + ToyRows::ToyPart(version));
  }
  return text;
}

}  // namespace elasticctr::serve

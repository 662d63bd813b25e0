#include "serve/engine/batch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "net/socket.h"
#include "serve/engine/try.h"
#include "serve/http/status.h"
#include "util/gunzip.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr::serve {
namespace {

// Whether the error of a batch would also occur for each of its requests alone.
bool IsOfAll(const Error& error) {
  return error.code() != Code::kData && error.code() != Code::kInternal &&
         dynamic_cast<const OutOfMemory*>(&error) == nullptr;
}

void Add(std::atomic<uint64_t>& counter, uint64_t n) { counter.fetch_add(n, std::memory_order_relaxed); }

void Add(std::atomic<double>& sum, double value) {
  double seen = sum.load(std::memory_order_relaxed);
  while (!sum.compare_exchange_weak(seen, seen + value, std::memory_order_relaxed)) {
  }
}

std::string HexOf(uint64_t number) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 0; i < 16; ++i) text[i] = kDigits[number >> (60 - 4 * i) & 15];
  return text;
}

bool NamesPaddle(const Codec& codec) {
  return std::strcmp(codec.name(), "paddle") == 0 || std::strcmp(codec.name(), "brpc") == 0;
}

// REQUIRES: one of the scores is not finite.
[[noreturn]] void RefuseScores(const float* scores, size_t labels) {
  size_t i = 0;
  while (std::isfinite(scores[i])) ++i;
  throw Error(Code::kData, "sample " + std::to_string(i / labels) +
                               ": its values are so large that the model gives no finite score");
}

[[noreturn]] void RefuseCoverage(const Coverage& coverage, const std::string& model) {
  throw Error(Code::kUnavailable, "found " + std::to_string(coverage.found) + " of " + std::to_string(coverage.asked) +
                                      " rows, fewer than the policy of model '" + model + "' allows");
}

// Replaces the body by its decompressed contents, within the limits of time and memory.
void Decompress(Request* request, uint64_t deadline_ns, size_t limit) {
  const size_t compressed = request->body.size();
  std::string plain;
  const auto on_step = [&](size_t made) {
    if (net::NowNs() > deadline_ns) {
      throw Error(Code::kDeadlineExceeded, "the request's time was up while its body was decompressed");
    }
    request->charge.Set(compressed + made);
    if (!request->charge.account().HasRoomFor(0)) {
      throw RetryLater("the server has no memory left for requests; try again", 1000);
    }
  };
  if (!Gunzip(request->body, limit, on_step, &plain)) {
    throw TooLarge("the body is over " + std::to_string(limit) + " bytes when decompressed");
  }
  request->body = std::move(plain);
  request->is_gzip = false;
  request->charge.Set(request->body.size());
}

}  // namespace

struct Batch::Item {
  Job job;
  uint64_t taken_ns = 0;
  std::unique_ptr<Parsed> parsed;  // points into the request
  const Model* model = nullptr;
  const Variant* variant = nullptr;
  Request& request() { return *job.request; }
};

struct Batch::Group {
  const ServedVersion* version = nullptr;
  int time_class = 0;
  uint64_t plan = 0;  // its number
  Samples samples;
  std::vector<std::unique_ptr<Item>> items;  // one per request of samples
};

Batch::Batch(const BatchContext& around, uint64_t seed) : around_(around), random_(seed) {}
Batch::~Batch() = default;

void Batch::Add(Job job) {
  std::unique_ptr<Item> item;
  const bool is_made = Try([&] { item = std::make_unique<Item>(); },
                           [&](const Error& e) {
                             if (!job.request->is_shadow) AnswerError(*job.request, nullptr, e);
                           });
  if (!is_made) return;
  item->job = std::move(job);
  item->taken_ns = net::NowNs();
  around_.stats->queue.Add(item->taken_ns - item->job.queued_ns);
  if (IsLate(item.get()) || !Read(item.get()) || IsLate(item.get())) return;
  if (item->model == nullptr) return;  // a shadow of a variant that no longer exists
  Fill(std::move(item));
}

// Answers a request that has timed out.
bool Batch::IsLate(Item* item) {
  if (item->taken_ns <= item->job.deadline_ns) return false;
  serve::Add(around_.stats->refused_late, 1);
  Fail(item, Error(Code::kDeadlineExceeded, "the request's time was up before its turn came"), nullptr, 0);
  return true;
}

// Reads the body and finds the variant to score it.
bool Batch::Read(Item* item) {
  Request& request = item->request();
  return Try(
      [&] {
        if (request.is_gzip) Decompress(&request, item->job.deadline_ns, around_.options->limits.body_bytes);
        Limits limits = around_.options->limits;
        if (models_->most_names() != 0) limits.names = std::min(limits.names, models_->most_names());
        item->parsed = request.codec->Read(request, limits);
        Parsed& parsed = *item->parsed;
        if (request.id.empty()) request.id = parsed.id.empty() ? HexOf(Mix64(++random_)) : parsed.id;
        if (parsed.timeout_ms > 0) {
          const uint64_t asked = request.received_ns + uint64_t{parsed.timeout_ms} * 1'000'000;
          item->job.deadline_ns = request.is_shadow ? item->job.deadline_ns : std::min(item->job.deadline_ns, asked);
        }
        Route(item);
      },
      [&](const Error& e) {
        const bool is_late = e.code() == Code::kDeadlineExceeded;
        serve::Add(is_late ? around_.stats->refused_late : around_.stats->refused_bad, 1);
        Fail(item, e, nullptr, 0);
      });
}

void Batch::Route(Item* item) {
  const Request& request = item->request();
  if (request.is_shadow) {
    for (const Model& model : models_->all()) {
      if (model.name != item->job.shadow_model) continue;
      for (const Variant& variant : model.variants) {
        if (!variant.is_shadow || variant.name != item->job.shadow_variant) continue;
        item->model = &model;
        item->variant = &variant;
        return;
      }
    }
    serve::Add(around_.stats->shadow_dropped, 1);
    return;
  }
  const std::string& name = request.model.empty() ? item->parsed->model : request.model;
  const Model* by_default = name.empty() && NamesPaddle(*request.codec) ? models_->FindPaddleDefault() : nullptr;
  item->model = by_default != nullptr ? by_default : &models_->Find(name);
  const std::string& version = request.version.empty() ? item->parsed->version : request.version;
  if (!version.empty()) {
    for (const Variant& variant : item->model->variants) {
      if (std::to_string(variant.version->version()) == version) {
        item->variant = &variant;
        return;
      }
    }
    if (item->model->variants.empty()) throw Models::NoVersion(*item->model);
    throw Error(Code::kNotFound, "model '" + item->model->name + "' does not serve version " + version.substr(0, 32));
  }
  std::string sticky;
  const bool is_sticky = !item->model->sticky_field.empty() && item->parsed->Field(item->model->sticky_field, &sticky);
  item->variant = &Models::Pick(*item->model, is_sticky ? &sticky : nullptr, Random());
}

Batch::Group* Batch::GroupFor(const Item& item) {
  const ServedVersion* version = item.variant->version.get();
  int time_class = 0;
  if (version->is_remote()) {
    const uint64_t left = item.job.deadline_ns > item.taken_ns ? item.job.deadline_ns - item.taken_ns : 0;
    time_class = std::bit_width(left);
  }
  for (size_t i = 0; i < used_; ++i) {
    if (groups_[i]->version == version && groups_[i]->time_class == time_class) return groups_[i].get();
  }
  // Preferably a group that has used the plan before: it keeps parsers of lines.
  const uint64_t plan = version->plan().number;
  for (size_t i = used_; i < groups_.size(); ++i) {
    if (groups_[i]->plan == plan) std::swap(groups_[i], groups_[used_]);
  }
  if (used_ == groups_.size()) groups_.push_back(std::make_unique<Group>());
  Group* group = groups_[used_++].get();
  group->version = version;
  group->time_class = time_class;
  group->plan = plan;
  group->samples.Reset(&version->plan());
  return group;
}

void Batch::Fill(std::unique_ptr<Item> item) {
  Group* group = nullptr;
  Try(
      [&] {
        group = GroupFor(*item);
        group->items.reserve(group->items.size() + 1);
        group->samples.BeginRequest();  // Fill may throw before it calls BeginRequest
        item->parsed->Fill(&group->samples, around_.options->limits);
        samples_ += group->samples.request(group->items.size()).count;
        group->items.push_back(std::move(item));
      },
      [&](const Error& e) {
        if (group != nullptr) group->samples.DropRequest();
        serve::Add(around_.stats->refused_bad, 1);
        Fail(item.get(), e, nullptr, 0);
      });
}

void Batch::Finish() {
  for (size_t i = 0; i < used_; ++i) {
    Group* group = groups_[i].get();
    if (!group->items.empty()) Score(group);
    group->items.clear();
    group->version = nullptr;
  }
  used_ = 0;
  samples_ = 0;
  models_.reset();
}

void Batch::Score(Group* group) {
  EngineStats& stats = *around_.stats;
  serve::Add(stats.batches, 1);
  serve::Add(stats.batch_requests, group->items.size());
  serve::Add(stats.batch_samples, group->samples.size());
  uint64_t deadline_ns = ~uint64_t{0};
  for (const auto& item : group->items) deadline_ns = std::min(deadline_ns, item->job.deadline_ns);
  // A tenth is reserved for the work after the lookup.
  const uint64_t now = net::NowNs();
  if (deadline_ns > now) deadline_ns -= (deadline_ns - now) / 10;
  bool is_of_all = true;
  const bool is_scored = Try([&] { group->version->Score(group->samples, &workspace_, deadline_ns, &result_); },
                             [&](const Error& e) {
                               is_of_all = group->items.size() == 1 || IsOfAll(e);
                               if (is_of_all) FailAll(group, e);
                             });
  if (!is_scored) {
    if (!is_of_all) ScoreAlone(group);
    return;
  }
  stats.lookup.Add(result_.lookup_ns);
  stats.dense.Add(result_.dense_ns);
  serve::Add(stats.split_batches, result_.is_split);
  for (size_t i = 0; i < group->items.size(); ++i) {
    Answer(group, group->items[i].get(), i);
    if (!group->items[i]->request().is_shadow) QueueShadows(std::move(group->items[i]));
  }
}

// Scores each request alone, so that only the faulty one fails.
void Batch::ScoreAlone(Group* group) {
  std::vector<std::unique_ptr<Item>> items = std::move(group->items);
  for (auto& item : items) {
    group->items.clear();
    group->samples.Reset(&group->version->plan());
    const bool is_filled = Try(
        [&] {
          group->samples.BeginRequest();
          item->parsed->Fill(&group->samples, around_.options->limits);
          group->items.reserve(1);
        },
        [&](const Error& e) { Fail(item.get(), e, nullptr, 0); });
    if (!is_filled) continue;
    group->items.push_back(std::move(item));
    Score(group);
  }
}

void Batch::Answer(Group* group, Item* item, size_t request) {
  const ServedVersion& version = *group->version;
  const Samples::Range range = group->samples.request(request);
  const size_t labels = version.plan().labels.size();
  const float* scores = result_.scores.data() + range.first * labels;
  const Coverage& coverage = result_.coverage[request];
  double sum = 0;
  for (size_t i = 0; i < range.count * labels; ++i) sum += static_cast<double>(scores[i]);
  const Reply reply{
      &item->model->name, version.version(), &item->variant->name, &version.plan().labels, range.count, scores,
      &coverage};
  Request& of = item->request();
  std::string bytes;
  const bool is_good = Try(
      [&] {
        if (!std::isfinite(sum)) RefuseScores(scores, labels);
        if (coverage.is_below && version.policy().fails_on_missing && version.policy().min_coverage > 0)
          RefuseCoverage(coverage, version.model());
        if (!of.is_shadow) bytes = of.codec->Format(of, item->parsed.get(), reply);
      },
      [&](const Error& e) { Fail(item, e, &group->samples, request); });
  if (!is_good) return;
  VariantStats& stats = *item->variant->stats;
  serve::Add(stats.requests, 1);
  serve::Add(stats.samples, range.count);
  if (coverage.is_degraded()) serve::Add(stats.degraded, 1);
  serve::Add(stats.asked, coverage.asked);
  serve::Add(stats.found, coverage.found);
  serve::Add(stats.score_sum, sum);
  stats.latency.Add(net::NowNs() - of.received_ns);
  if (!of.is_shadow) {
    Try([&] { of.answer(std::move(bytes), !of.keep_alive); }, [](const Error&) {});
  }
  Tell(*item, &reply, nullptr, &group->samples, request);
}

void Batch::FailAll(Group* group, const Error& error) {
  for (size_t i = 0; i < group->items.size(); ++i) Fail(group->items[i].get(), error, &group->samples, i);
}

void Batch::Fail(Item* item, const Error& error, const Samples* samples, size_t request) {
  if (item->variant != nullptr) serve::Add(item->variant->stats->errors[static_cast<size_t>(error.code())], 1);
  Request& of = item->request();
  if (!of.is_shadow) AnswerError(of, item->parsed.get(), error);
  Tell(*item, nullptr, &error, samples, request);
}

void Batch::Tell(const Item& item, const Reply* reply, const Error* error, const Samples* samples, size_t request) {
  if (around_.observers.empty()) return;
  const Request& of = *item.job.request;
  Observe(around_, {&of, item.parsed.get(), reply, error, samples, request, item.taken_ns - item.job.queued_ns,
                    net::NowNs() - of.received_ns});
}

void Batch::QueueShadows(std::unique_ptr<Item> item) {
  if (!item->request().version.empty() || !item->parsed->version.empty()) return;
  std::vector<const Variant*> drawn;
  for (const Variant& variant : item->model->variants) {
    if (variant.is_shadow && Random() < variant.weight) drawn.push_back(&variant);
  }
  if (drawn.empty()) return;
  Try(
      [&] {
        item->parsed.reset();
        Request& request = item->request();
        request.answer = nullptr;
        request.is_shadow = true;
        for (size_t i = 0; i < drawn.size(); ++i) {
          Job job;
          job.request = i + 1 < drawn.size() ? std::make_unique<Request>(request) : std::move(item->job.request);
          job.shadow_model = item->model->name;
          job.shadow_variant = drawn[i]->name;
          around_.queue_shadow(std::move(job));
        }
      },
      [&](const Error&) { serve::Add(around_.stats->shadow_dropped, 1); });
}

double Batch::Random() {
  random_ += 0x9E3779B97F4A7C15ULL;
  return static_cast<double>(Mix64(random_) >> 11) * 0x1p-53;
}

}  // namespace elasticctr::serve

// One worker's micro-batch: reads requests, routes each to a variant, scores requests of one version together, answers.
// An error in one request fails only that request.
//
// Requests of one version share a lookup and a run of the graph. Rows from a Cube must arrive before the first of these
// requests times out, so only requests with similar remaining time are combined: none gives up more than half of its
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/codec/samples.h"
#include "serve/engine/engine.h"
#include "serve/engine/job.h"
#include "serve/engine/models.h"
#include "serve/engine/stats.h"
#include "serve/version/version.h"

namespace elasticctr::serve {

// Answers a request with an error, even if the codec or the session throws.
void AnswerError(const Request& request, const Parsed* parsed, const Error& error);

struct BatchContext;
// Reports an answered request to observers. An observer's failure does not affect the request.
void Observe(const BatchContext& around, const Finished& finished);

// Shared by all workers. Outlives them.
struct BatchContext {
  const EngineOptions* options;
  EngineStats* stats;
  struct Observer {
    std::function<void(const Finished&)> call;
    bool shadows;
  };
  std::vector<Observer> observers;
  std::function<void(Job)> queue_shadow;
};

class Batch {
 public:
  Batch(const BatchContext& around, uint64_t seed);
  ~Batch();

  // Sets the models for the next requests.
  void Begin(std::shared_ptr<const Models> models) { models_ = std::move(models); }
  // Reads and routes a request; answers it at once on an error.
  void Add(Job job);
  size_t samples() const { return samples_; }
  // Scores and answers all added requests, then discards them.
  void Finish();

 private:
  struct Item;
  struct Group;

  bool IsLate(Item* item);
  bool Read(Item* item);
  void Route(Item* item);
  Group* GroupFor(const Item& item);
  void Fill(std::unique_ptr<Item> item);
  void Score(Group* group);
  void ScoreAlone(Group* group);
  void Answer(Group* group, Item* item, size_t request);
  void Fail(Item* item, const Error& error, const Samples* samples, size_t request);
  void FailAll(Group* group, const Error& error);
  void Tell(const Item& item, const Reply* reply, const Error* error, const Samples* samples, size_t request);
  void QueueShadows(std::unique_ptr<Item> item);
  double Random();

  const BatchContext& around_;
  std::shared_ptr<const Models> models_;
  std::vector<std::unique_ptr<Group>> groups_;  // the first used_ belong to this batch
  size_t used_ = 0;
  size_t samples_ = 0;
  Workspace workspace_;
  ServedVersion::Result result_;
  uint64_t random_;
};

}  // namespace elasticctr::serve

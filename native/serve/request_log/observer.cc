#include "serve/request_log/observer.h"

#include <chrono>

namespace elasticctr::serve {
namespace {

using Bag = Samples::Bag;

LoggedSlots NamesOf(const Plan& plan) {
  LoggedSlots slots;
  for (const SparseSpec& slot : plan.spec.sparse) slots.sparse.push_back(slot.name);
  for (const DenseSpec& slot : plan.spec.dense) slots.dense.push_back({slot.name, slot.dim});
  return slots;
}

// The bag of a slot that all samples of a request share, except those that replace it. A request's shared values come
// first among its values; a bag that several samples have is always the shared one.
Bag SharedBag(const Samples& samples, Samples::Range range, uint32_t first, uint32_t slot) {
  Bag found{0, 0};
  size_t users = 0;
  for (size_t i = range.first; i < range.first + range.count; ++i) {
    const Bag bag = samples.bags(i)[slot];
    if (bag.first != first || bag.count == 0) continue;
    found = bag;
    ++users;
  }
  return users > 1 ? found : Bag{0, 0};
}

void AddBag(const Samples& samples, uint32_t slot, Bag bag, LoggedRequest* out) {
  const uint64_t* values = samples.values(slot) + bag.first;
  out->bags.push_back({slot, bag.count});
  out->values.insert(out->values.end(), values, values + bag.count);
  ++out->row_bags.back();
}

void AddSamples(const Samples& samples, size_t request, LoggedRequest* out) {
  const Samples::Range range = samples.request(request);
  const auto slots = static_cast<uint32_t>(samples.plan().spec.sparse.size());
  std::vector<Bag> shared(slots);
  out->row_bags.reserve(range.count + 1);
  out->row_bags.push_back(0);
  for (uint32_t slot = 0; slot < slots; ++slot) {
    shared[slot] = SharedBag(samples, range, samples.first_values(request)[slot], slot);
    if (shared[slot].count > 0) AddBag(samples, slot, shared[slot], out);
  }
  for (size_t i = range.first; i < range.first + range.count; ++i) {
    out->row_bags.push_back(0);
    const Bag* bags = samples.bags(i);
    for (uint32_t slot = 0; slot < slots; ++slot) {
      const bool is_shared =
          bags[slot].count == shared[slot].count && (bags[slot].count == 0 || bags[slot].first == shared[slot].first);
      // An empty bag is written if it replaces a shared one.
      if (!is_shared) AddBag(samples, slot, bags[slot], out);
    }
  }
  const size_t dense_dim = samples.plan().spec.dense_dim();
  if (dense_dim > 0) {
    out->dense.assign(samples.dense(range.first), samples.dense(range.first) + range.count * dense_dim);
  }
}

}  // namespace

void LogFinished(const Finished& finished, RequestLog* log) {
  if (finished.reply == nullptr || finished.samples == nullptr) return;
  const Request& request = *finished.request;
  const std::string& id = finished.parsed != nullptr && !finished.parsed->id.empty() ? finished.parsed->id : request.id;
  if (!log->Takes(id)) return;
  const Reply& reply = *finished.reply;
  LoggedRequest out;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  out.time = std::chrono::duration<double>(now).count() - static_cast<double>(finished.total_ns) / 1e9;
  out.id = id;
  out.model = *reply.model;
  out.version = reply.version;
  out.variant = *reply.variant;
  out.protocol = request.codec->name();
  out.content_type = request.content_type;
  out.binary_header = request.binary_header;
  out.body_bytes = request.body.size();
  if (request.body.size() <= log->options().body_bytes) out.body = request.body;
  out.slots = log->SlotNames(out.model, out.version, [&] { return NamesOf(finished.samples->plan()); });
  AddSamples(*finished.samples, finished.request_in_samples, &out);
  out.labels = static_cast<uint32_t>(reply.labels->size());
  out.scores.assign(reply.scores, reply.scores + reply.count * reply.labels->size());
  out.asked = reply.coverage->asked;
  out.found = reply.coverage->found;
  out.dead_shards = reply.coverage->dead_shards;
  out.is_late = reply.coverage->late;
  out.is_degraded = reply.coverage->is_degraded();
  log->Add(std::move(out));
}

}  // namespace elasticctr::serve

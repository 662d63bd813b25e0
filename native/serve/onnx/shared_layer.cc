#include "serve/onnx/shared_layer.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <random>

#include "serve/onnx/column_products.h"
#include "serve/onnx/runtime.h"
#include "util/status.h"
#include "util/target.h"

namespace elasticctr::serve {
namespace {

// A request's shared columns are multiplied row by row, its samples' other columns in blocks. With fewer samples per
// request than this (the mean of a batch), splitting gains nothing.
constexpr size_t kMinSamples = 8;
// The least share of shared columns, as 1 / kMinShare.
constexpr size_t kMinShare = 8;
constexpr float kCheckTolerance = 1e-5f;

uint64_t NextNumber() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

template <typename T>
T* Room(std::vector<T>* buffer, size_t count) {
  if (buffer->size() < count) buffer->resize(std::max(count, 2 * buffer->size()));
  return buffer->data();
}

DenseGraph::Input Matrix(const std::string& name, const float* data, size_t rows, size_t width,
                         bool is_of_all = false) {
  return {name.c_str(), data, false, 2, {static_cast<int64_t>(rows), static_cast<int64_t>(width)}, is_of_all};
}

// Whether all samples of a request have the slot's values at the same place, or none has any.
bool IsShared(const Samples& samples, Samples::Range request, uint32_t slot) {
  if (request.count < 2) return true;
  const Samples::Bag one = samples.bags(request.first)[slot];
  for (size_t i = request.first + 1; i < request.first + request.count; ++i) {
    const Samples::Bag other = samples.bags(i)[slot];
    if (other.count != one.count || (other.first != one.first && one.count > 0)) return false;
  }
  return true;
}

// Sets the bits of `differs` in which the rows of a request differ.
ELASTICCTR_CLONES void AddDifferences(const float* rows, size_t count, size_t width, uint32_t* differs) {
  for (size_t i = 1; i < count; ++i) {
    const float* row = rows + i * width;
    for (size_t c = 0; c < width; ++c) {
      differs[c] |= std::bit_cast<uint32_t>(row[c]) ^ std::bit_cast<uint32_t>(rows[c]);
    }
  }
}

}  // namespace

SharedLayer::SharedLayer(GraphSplit split, std::unique_ptr<DenseGraph> graph, const Plan& plan)
    : split_(std::move(split)),
      graph_(std::move(graph)),
      number_(NextNumber()),
      pooled_width_(plan.pooled_width),
      dense_width_(plan.dense_width),
      column_count_(plan.pooled_width + plan.dense_width) {
  for (const ColumnSum& sum : split_.sums) {
    std::vector<uint8_t>& uses = uses_.emplace_back(column_count_);
    for (uint32_t c = 0; c < column_count_; ++c) {
      const float* row = sum.weights.data() + size_t{c} * sum.width;
      uses[c] = std::any_of(row, row + sum.width, [](float weight) { return weight != 0; });
    }
    has_product_ |= !sum.weights_input.empty();
  }
}

bool SharedLayer::Reads(std::string_view input) const {
  return std::find(split_.inputs.begin(), split_.inputs.end(), input) != split_.inputs.end();
}

bool SharedLayer::Choose(const Samples& samples, std::span<const PooledSlot> slots, const float* dense,
                         Scratch* scratch) const {
  if (samples.size() < kMinSamples * samples.requests()) return false;
  scratch->is_shared.assign(column_count_, 1);
  uint8_t* is_shared = scratch->is_shared.data();
  scratch->shared_slots.clear();
  scratch->own_slots.clear();
  for (uint32_t s = 0; s < slots.size(); ++s) {
    bool is_kept = true;
    for (size_t r = 0; is_kept && r < samples.requests(); ++r) {
      is_kept = IsShared(samples, samples.request(r), slots[s].slot);
    }
    (is_kept ? scratch->shared_slots : scratch->own_slots).push_back(s);
    if (is_kept) continue;
    for (const Piece& piece : slots[s].pieces) std::fill_n(is_shared + piece.column, piece.dim, 0);
  }
  scratch->differs.assign(dense_width_, 0);
  for (size_t r = 0; r < samples.requests(); ++r) {
    const auto [first, count] = samples.request(r);
    AddDifferences(dense + first * dense_width_, count, dense_width_, scratch->differs.data());
  }
  for (uint32_t c = 0; c < dense_width_; ++c) is_shared[pooled_width_ + c] = scratch->differs[c] == 0;
  const auto shared = static_cast<size_t>(std::count(is_shared, is_shared + column_count_, 1));
  if (shared * kMinShare < column_count_) return false;
  Choice& choice = scratch->choice;
  if (choice.layer != number_ || choice.is_shared != scratch->is_shared) Prepare(scratch->is_shared, &choice);
  return choice.width > 0 || !has_product_;
}

std::vector<SharedLayer::Choice::Run> SharedLayer::RunsOf(const std::vector<uint8_t>& is_in) const {
  std::vector<Choice::Run> runs;
  for (uint32_t c = 0; c < column_count_; ++c) {
    if (is_in[c] == 0) continue;
    // A row's columns are in two places.
    const bool goes_on = !runs.empty() && runs.back().column + runs.back().count == c && c != pooled_width_;
    if (goes_on) {
      ++runs.back().count;
    } else {
      runs.push_back({c, 1});
    }
  }
  return runs;
}

void SharedLayer::Prepare(const std::vector<uint8_t>& is_shared, Choice* choice) const {
  choice->layer = number_;
  choice->is_shared = is_shared;
  choice->sums.assign(split_.sums.size(), {});
  std::vector<uint8_t> is_in(column_count_);
  for (size_t s = 0; s < split_.sums.size(); ++s) {
    for (uint32_t c = 0; !split_.sums[s].weights_input.empty() && c < column_count_; ++c) {
      is_in[c] |= static_cast<uint8_t>(uses_[s][c] != 0 && is_shared[c] == 0);
    }
  }
  choice->runs = RunsOf(is_in);
  choice->width = static_cast<uint32_t>(std::count(is_in.begin(), is_in.end(), 1));
  for (size_t s = 0; s < split_.sums.size(); ++s) {
    const ColumnSum& sum = split_.sums[s];
    Choice::Sum& of = choice->sums[s];
    std::vector<uint8_t> is_own(column_count_);
    for (uint32_t c = 0; c < column_count_; ++c) {
      if (uses_[s][c] == 0) continue;
      if (is_shared[c] != 0) of.shared.push_back(c);
      is_own[c] = is_shared[c] == 0;
    }
    if (sum.weights_input.empty()) of.runs = RunsOf(is_own);
    for (const Choice::Run& run : sum.weights_input.empty() ? of.runs : choice->runs) {
      const auto from = sum.weights.begin() + static_cast<ptrdiff_t>(size_t{run.column} * sum.width);
      of.weights.insert(of.weights.end(), from, from + static_cast<ptrdiff_t>(size_t{run.count} * sum.width));
    }
  }
}

void SharedLayer::Begin(size_t requests, size_t samples, Scratch* scratch) const {
  const size_t count = split_.sums.size();
  scratch->repeats_starts = requests > 1;
  if (scratch->starts.size() < count) scratch->starts.resize(count), scratch->outputs.resize(count);
  Room(&scratch->requests, requests * column_count_);
  Room(&scratch->row, pooled_width_);
  Room(&scratch->columns, samples * scratch->choice.width);
  for (size_t s = 0; s < count; ++s) {
    const ColumnSum& sum = split_.sums[s];
    Room(&scratch->starts[s], requests * sum.width);
    if (scratch->repeats_starts || sum.weights_input.empty()) Room(&scratch->outputs[s], samples * sum.width);
  }
}

void SharedLayer::TakeRequest(size_t request, Row row, Scratch* scratch) const {
  float* to = scratch->requests.data() + request * column_count_;
  if (row.pooled != to) std::copy_n(row.pooled, pooled_width_, to);
  std::copy_n(row.dense, dense_width_, to + pooled_width_);
}

void SharedLayer::AddShared(size_t requests, Scratch* scratch) const {
  for (size_t s = 0; s < split_.sums.size(); ++s) {
    const ColumnSum& sum = split_.sums[s];
    float* starts = scratch->starts[s].data();
    for (size_t r = 0; r < requests; ++r) std::copy(sum.start.begin(), sum.start.end(), starts + r * sum.width);
    AddColumns({scratch->requests.data(), requests, column_count_}, scratch->choice.sums[s].shared, sum.weights.data(),
               sum.width, sum.is_of_squares, starts);
  }
}

void SharedLayer::TakeSample(size_t request, size_t sample, Row row, Scratch* scratch) const {
  const Choice& choice = scratch->choice;
  float* to = scratch->columns.data() + sample * choice.width;
  for (const Choice::Run& run : choice.runs) to = std::copy_n(At(row, run.column), run.count, to);
  for (size_t s = 0; s < split_.sums.size(); ++s) {
    const ColumnSum& sum = split_.sums[s];
    if (!scratch->repeats_starts && !sum.weights_input.empty()) continue;
    float* out = scratch->outputs[s].data() + sample * sum.width;
    std::copy_n(scratch->starts[s].data() + request * sum.width, sum.width, out);
    const float* weights = choice.sums[s].weights.data();
    for (const Choice::Run& run : choice.sums[s].runs) {
      AddRun(At(row, run.column), run.count, weights, sum.width, sum.is_of_squares, out);
      weights += size_t{run.count} * sum.width;
    }
  }
}

void SharedLayer::Run(size_t samples, std::span<const DenseGraph::Input> others, size_t labels, float* scores,
                      Scratch* scratch) const {
  static const std::string kColumns = GraphSplit::kColumnsInput;
  const Choice& choice = scratch->choice;
  scratch->inputs.assign(others.begin(), others.end());
  if (has_product_) {
    scratch->inputs.push_back(Matrix(kColumns, scratch->columns.data(), samples, choice.width));
  }
  for (size_t s = 0; s < split_.sums.size(); ++s) {
    const ColumnSum& sum = split_.sums[s];
    if (sum.weights_input.empty()) {
      scratch->inputs.push_back(Matrix(sum.tensor, scratch->outputs[s].data(), samples, sum.width));
      continue;
    }
    scratch->inputs.push_back(Matrix(sum.weights_input, choice.sums[s].weights.data(), choice.width, sum.width, true));
    scratch->inputs.push_back(scratch->repeats_starts
                                  ? Matrix(sum.start_input, scratch->outputs[s].data(), samples, sum.width)
                                  : Matrix(sum.start_input, scratch->starts[s].data(), 1, sum.width, true));
  }
  graph_->Run(scratch->inputs, samples, labels, scores);
}

void SharedLayer::Fill(const Samples& samples, std::span<const PooledSlot> slots, const float* const* rows,
                       const float* dense, Scratch* scratch) const {
  Begin(samples.requests(), samples.size(), scratch);
  for (size_t r = 0; r < samples.requests(); ++r) {
    const auto [first, count] = samples.request(r);
    if (count == 0) continue;
    float* row = scratch->requests.data() + r * column_count_;
    std::fill_n(row, pooled_width_, 0.0f);
    PoolSample(samples, first, slots, scratch->shared_slots, rows, row);
    TakeRequest(r, {row, dense + first * dense_width_}, scratch);
  }
  AddShared(samples.requests(), scratch);
  for (size_t r = 0; r < samples.requests(); ++r) {
    const auto [first, count] = samples.request(r);
    for (size_t i = first; i < first + count; ++i) {
      PoolSample(samples, i, slots, scratch->own_slots, rows, scratch->row.data());
      TakeSample(r, i, {scratch->row.data(), dense + i * dense_width_}, scratch);
    }
  }
}

void SharedLayer::CheckAgainst(const DenseGraph& whole, const Plan& plan) const {
  constexpr size_t kSamples = 5, kFirst = 3;  // of two requests: 3 samples, 2 samples
  std::mt19937 random(1);
  const auto fill = [&random](size_t count) {
    std::vector<float> made(count);
    for (float& value : made) value = static_cast<float>(random() % 2001) / 2000 - 0.5f;
    return made;
  };
  std::vector<float> pooled = fill(kSamples * pooled_width_), dense = fill(kSamples * dense_width_);
  std::vector<uint8_t> is_shared(column_count_);
  const auto share = [&](std::vector<float>* rows, size_t width, uint8_t* shared) {
    for (size_t c = 0; c < width; c += 2) {
      shared[c] = 1;
      for (size_t i = 0; i < kSamples; ++i) (*rows)[i * width + c] = (*rows)[(i < kFirst ? 0 : kFirst) * width + c];
    }
  };
  share(&pooled, pooled_width_, is_shared.data());
  share(&dense, dense_width_, is_shared.data() + pooled_width_);
  std::vector<DenseGraph::Input> inputs, others;
  const auto add = [&](const DenseGraph::Input& input) {
    inputs.push_back(input);
    if (Reads(input.name)) others.push_back(input);
  };
  if (pooled_width_ > 0) add({"pooled", pooled.data(), false, 2, {kSamples, pooled_width_}});
  if (dense_width_ > 0) add({"dense", dense.data(), false, 2, {kSamples, dense_width_}});
  std::vector<std::vector<float>> sequences;
  std::vector<std::vector<int64_t>> lengths;
  for (const SparsePlan& slot : plan.sparse) {
    if (slot.table == SparsePlan::kUnused || slot.pooling != Pooling::kNone) continue;
    sequences.push_back(fill(kSamples * slot.max_values * slot.dim));
    lengths.emplace_back(kSamples, slot.max_values);
    add({slot.input.c_str(), sequences.back().data(), false, 3, {kSamples, slot.max_values, slot.dim}});
    add({slot.lengths.c_str(), lengths.back().data(), true, 1, {kSamples}});
  }
  const size_t labels = plan.labels.size();
  std::vector<float> expected(kSamples * labels), got(kSamples * labels);
  whole.Run(inputs, kSamples, labels, expected.data());

  Scratch scratch;
  Prepare(is_shared, &scratch.choice);
  Begin(2, kSamples, &scratch);
  const auto row = [&](size_t i) { return Row{pooled.data() + i * pooled_width_, dense.data() + i * dense_width_}; };
  TakeRequest(0, row(0), &scratch);
  TakeRequest(1, row(kFirst), &scratch);
  AddShared(2, &scratch);
  for (size_t i = 0; i < kSamples; ++i) TakeSample(i < kFirst ? 0 : 1, i, row(i), &scratch);
  Run(kSamples, others, labels, got.data(), &scratch);
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(got[i] - expected[i]) <= kCheckTolerance)) {
      throw Error(Code::kFailedPrecondition, "the cut graph does not score as the whole one");
    }
  }
}

SharedLayerResult OpenSharedLayer(const std::string& library, std::string_view onnx, const Plan& plan,
                                  const DenseGraph& whole, const std::string& where) {
  try {
    GraphSplit split = SplitGraph(onnx, plan.pooled_width, plan.dense_width);
    std::unique_ptr<DenseGraph> graph = OpenOnnx(library, split.onnx, where);
    auto layer = std::make_unique<SharedLayer>(std::move(split), std::move(graph), plan);
    layer->CheckAgainst(whole, plan);
    return {std::move(layer), ""};
  } catch (const Error& e) {
    return {nullptr, e.what()};
  }
}

}  // namespace elasticctr::serve

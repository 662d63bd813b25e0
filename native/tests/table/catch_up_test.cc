// Adam with catch_up, compared with Adam of all rows in double precision: every reader sees a row as of the last step.

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "table/optimizer/optimizer.h"
#include "tests/check.h"
#include "tests/table/fixture.h"
#include "util/status.h"

namespace elasticctr {
namespace {

constexpr size_t kRows = 40;
constexpr uint64_t kSteps = 60;

TableSettings CatchUpSettings(uint32_t dim, float l1, float l2, uint32_t catch_up = 100) {
  TableSettings settings = MakeSettings(OptimizerKind::kAdam, dim);
  settings.segments.erase(settings.segments.begin());
  OptimizerSettings& optimizer = settings.segments[0].optimizer;
  optimizer.l1 = l1;
  optimizer.l2 = l2;
  optimizer.weight_bound = 0.25f;
  optimizer.catch_up = catch_up;
  return settings;
}

std::vector<uint64_t> Feasigns() {
  std::vector<uint64_t> feasigns;
  for (uint64_t i = 0; i < kRows; ++i) feasigns.push_back(i * 0x9E3779B97F4A7C15ull);
  return feasigns;
}

// Row i is touched by every (i + 1)-th step: row 0 by all steps, the last row by one.
bool IsTouched(size_t row, uint64_t step) { return step % (row + 1) == 0; }
float GradientOf(size_t row, uint64_t step, size_t k) { return std::sin(static_cast<float>(row * 31 + step * 7 + k)); }
float ScaleOf(uint64_t step) { return step < 20 ? 1.0f : 0.3f; }

// Every row on every step.
struct DenseAdam {
  DenseAdam(const OptimizerSettings& settings, const std::vector<float>& weights)
      : settings(settings), w(weights.begin(), weights.end()), m(w.size()), v(w.size()) {}

  void Step(uint64_t step) {
    const size_t dim = w.size() / kRows;
    const double b1 = settings.beta1, b2 = settings.beta2;
    const double rate = static_cast<double>(settings.learning_rate) * ScaleOf(step);
    for (size_t i = 0; i < w.size(); ++i) {
      const double own = IsTouched(i / dim, step) ? GradientOf(i / dim, step, i % dim) : 0.0;
      const double g = own + settings.l2 * w[i];
      m[i] = b1 * m[i] + (1 - b1) * g;
      v[i] = b2 * v[i] + (1 - b2) * g * g;
      const double mean = m[i] / (1 - std::pow(b1, step)), square = v[i] / (1 - std::pow(b2, step));
      w[i] -= rate * mean / (std::sqrt(square) + settings.epsilon);
      w[i] = std::copysign(std::max(std::fabs(w[i]) - rate * settings.l1, 0.0), w[i]);
      w[i] = std::clamp<double>(w[i], -settings.weight_bound, settings.weight_bound);
    }
  }

  OptimizerSettings settings;
  std::vector<double> w, m, v;
};

void Push(Table* table, uint64_t step, const std::function<bool(size_t)>& is_touched) {
  const size_t dim = table->layout().weights_dim();
  std::vector<uint64_t> touched;
  std::vector<float> gradients;
  for (size_t row = 0; row < kRows; ++row) {
    if (!is_touched(row)) continue;
    touched.push_back(Feasigns()[row]);
    for (size_t k = 0; k < dim; ++k) gradients.push_back(GradientOf(row, step, k));
  }
  RowGradients push;
  push.feasigns = touched;
  push.rate_scale = ScaleOf(step);
  push.fill = [&](size_t first, size_t count, float* out) {
    std::copy_n(gradients.data() + first * dim, count * dim, out);
  };
  table->PushRows(push);
}

void Push(Table* table, uint64_t step) {
  Push(table, step, [step](size_t row) { return IsTouched(row, step); });
}

std::vector<float> Weights(const Table& table) {
  std::vector<float> weights(kRows * table.layout().weights_dim());
  table.Get(Feasigns(), weights.data(), nullptr, nullptr);
  return weights;
}

double Apart(const std::vector<float>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0.0 : 1e9;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
  return most;
}

std::string Scratch(const std::string& name) {
  return (std::filesystem::temp_directory_path() / (name + "-" + std::to_string(::getpid()))).string();
}

void TestEveryReader(uint32_t dim, float l1, float l2) {
  const TableSettings settings = CatchUpSettings(dim, l1, l2);
  const std::vector<uint64_t> feasigns = Feasigns();
  Table table(settings);
  table.InsertRows(feasigns, nullptr, nullptr);
  const std::vector<float> before = Weights(table);
  DenseAdam dense(settings.segments[0].optimizer, before);
  const Layout layout({{0, 0, PoolingKind::kSum, {0}, 0}}, {dim});
  for (uint64_t step = 1; step <= kSteps; ++step) {
    Push(&table, step);
    dense.Step(step);
    CHECK(Apart(Weights(table), dense.w) < 1e-6);
    std::vector<float> pulled(kRows * dim);
    std::vector<uint32_t> missing;
    table.PullRows(feasigns, pulled.data(), &missing);
    CHECK(Apart(pulled, dense.w) < 1e-6 && missing.empty());
    if (step % 17 != 0) continue;
    std::vector<int32_t> offsets;
    for (size_t i = 0; i <= kRows; ++i) offsets.push_back(static_cast<int32_t>(i));
    const uint32_t slot = 0;
    Lookup lookup(feasigns, offsets, kRows, {&slot, 1});
    table.Find(&lookup, step % 2 == 0);
    std::vector<float> flat(kRows * dim);
    table.Pull(lookup, layout, {MakeTarget(&flat, kRows)});
    CHECK(Apart(flat, dense.w) < 1e-6);
  }
  std::vector<uint64_t> exported;
  const std::vector<float> all = AllWeights(table, &exported);
  for (size_t i = 0; i < kRows; ++i) {
    const size_t at = std::find(feasigns.begin(), feasigns.end(), exported[i]) - feasigns.begin();
    for (size_t k = 0; k < dim; ++k) CHECK(std::fabs(all[i * dim + k] - dense.w[at * dim + k]) < 1e-6);
  }
  // A row that no step touched has moved when something pulls it.
  const size_t last = (kRows - 1) * dim;
  Table untouched(settings);
  untouched.InsertRows(feasigns, nullptr, nullptr);
  for (uint64_t step = 1; step <= 9; ++step) Push(&untouched, step, [](size_t) { return false; });
  CHECK((Weights(untouched)[last] != before[last]) == (l1 > 0.0f || l2 > 0.0f));
}

// A saved table continues like the one in memory, bit for bit, although its rows were behind.
void TestResume() {
  const TableSettings settings = CatchUpSettings(9, 0.01f, 0.05f);
  Table whole(settings), resumed(settings), parts(settings);
  whole.InsertRows(Feasigns(), nullptr, nullptr);
  for (uint64_t step = 1; step <= 25; ++step) Push(&whole, step);
  const std::string path = Scratch("catch_up");
  whole.Save(path, "");
  CHECK(whole.GetStats().steps == 25);
  resumed.Load(path);
  parts.LoadPart(path, 0, 1000);
  parts.LoadPart(path, 1000, 4096);
  CHECK(Weights(resumed) == Weights(whole) && Weights(parts) == Weights(whole));
  for (uint64_t step = 26; step <= kSteps; ++step) {
    for (Table* table : {&whole, &resumed, &parts}) Push(table, step);
  }
  CHECK(Weights(resumed) == Weights(whole) && Weights(parts) == Weights(whole));
  std::filesystem::remove(path);
}

// Parts saved at different steps: no row makes up for the difference.
void TestPartsOfDifferentSteps() {
  const TableSettings settings = CatchUpSettings(9, 0.0f, 0.05f);
  Table early(settings), late(settings), both(settings);
  const std::string paths[2] = {Scratch("early"), Scratch("late")};
  const std::vector<uint64_t> feasigns = Feasigns();
  early.InsertRows({feasigns.data(), 20}, nullptr, nullptr);
  late.InsertRows({feasigns.data() + 20, 20}, nullptr, nullptr);
  for (uint64_t step = 1; step <= 30; ++step) {
    if (step <= 10) Push(&early, step);
    Push(&late, step);
  }
  early.Save(paths[0], "");
  late.Save(paths[1], "");
  both.LoadPart(paths[0], 0, 4096);
  both.LoadPart(paths[1], 0, 4096);
  CHECK(both.GetStats().steps == 30);
  const std::vector<float> of_early = Weights(early), of_late = Weights(late), of_both = Weights(both);
  for (size_t i = 0; i < of_both.size(); ++i) CHECK(of_both[i] == (i < 20 * 9 ? of_early : of_late)[i]);
  for (const auto& path : paths) std::filesystem::remove(path);
}

// Beyond the bound weights stay and moments keep shrinking.
void TestBound() {
  const std::vector<uint64_t> feasigns = Feasigns();
  const auto all = [](size_t) { return true; };
  const auto none = [](size_t) { return false; };
  for (const float l2 : {0.05f, 0.0f}) {
    TableSettings few = CatchUpSettings(9, 0.0f, l2, 8), many = CatchUpSettings(9, 0.0f, l2, 60000);
    // With quickly decaying moments all steps have the same rate.
    for (TableSettings* settings : {&few, &many}) settings->segments[0].optimizer.beta2 = 0.5f;
    Table bounded(few), free(many);
    std::vector<float> at_bound;
    for (Table* table : {&bounded, &free}) {
      table->InsertRows(feasigns, nullptr, nullptr);
      for (uint64_t step = 1; step <= 200; ++step) Push(table, step, none);
      Push(table, 201, all);
    }
    for (uint64_t step = 202; step <= 1500; ++step) {
      for (Table* table : {&bounded, &free}) Push(table, step, none);
      if (step == 209) at_bound = Weights(bounded);
    }
    CHECK(Weights(bounded) == at_bound && Weights(free) != at_bound);
    for (const float w : Weights(free)) CHECK(std::isfinite(w) && (l2 == 0.0f || std::fabs(w) < 0.01f));
    // Touched again, both have the moments of steps without a gradient.
    Push(&bounded, 1501, all);
    std::vector<float> after = Weights(bounded);
    for (size_t i = 0; i < after.size(); ++i) {
      const float g = GradientOf(i / 9, 1501, i % 9) + l2 * at_bound[i];
      const float expected = at_bound[i] - 0.01f * ScaleOf(1501) * 0.1f * g / (std::sqrt(0.5f * g * g) + 1e-8f);
      CHECK(std::fabs(after[i] - std::clamp(expected, -0.25f, 0.25f)) < 1e-6f);
    }
  }
}

void TestRefused() {
  const auto is_refused = [](TableSettings settings) {
    try {
      Table table(settings);
    } catch (const Error& e) {
      return e.code() == Code::kConfig;
    }
    return false;
  };
  TableSettings settings = CatchUpSettings(9, 0.0f, 0.0f);
  settings.segments[0].optimizer.kind = OptimizerKind::kAdagrad;
  CHECK(is_refused(settings));
  settings.segments[0].optimizer.kind = OptimizerKind::kAdam;
  settings.segments[0].optimizer.epsilon = 0.0f;
  CHECK(is_refused(settings));
  CHECK(is_refused(CatchUpSettings(9, 0.0f, 0.0f, 65537)));
}

}  // namespace
}  // namespace elasticctr

int main() {
  using namespace elasticctr;
  for (const uint32_t dim : {1u, 9u, 16u, 37u}) {
    TestEveryReader(dim, 0.0f, 0.0f);
    TestEveryReader(dim, 0.0f, 0.1f);
    TestEveryReader(dim, 0.02f, 0.1f);
  }
  TestResume();
  TestPartsOfDifferentSteps();
  TestBound();
  TestRefused();
}

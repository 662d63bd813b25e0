#include "serve/onnx/runtime.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "serve/onnx/api.h"
#include "util/status.h"

namespace elasticctr::serve {
namespace {

constexpr size_t kMaxInputs = 64;
// The approximate number of samples per run: the output of layers of some hundred floats stays in the cache.
constexpr size_t kPart = 256;

// A loaded library. Never unloaded: sessions of several versions use it, and it has thread-local state.
struct Library {
  ort::Api api;
  ort::Env* env = nullptr;
  ort::MemoryInfo* memory = nullptr;

  // Throws the message of a failed call.
  void Check(ort::Status* status, Code code, const std::string& what) const {
    if (status == nullptr) return;
    const std::string message = api.GetErrorMessage(status);
    api.ReleaseStatus(status);
    throw Error(code, what + ": " + message);
  }
};

std::unique_ptr<Library> Load(const std::string& path) {
  const std::string advice = "; install it with: pip install onnxruntime";
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    throw Error(Code::kConfig,
                "ONNX Runtime cannot be loaded: " + std::string(why != nullptr ? why : path.c_str()) + advice);
  }
  const auto get_base = reinterpret_cast<const ort::ApiBase* (*)()>(dlsym(handle, "OrtGetApiBase"));
  if (get_base == nullptr) throw Error(Code::kConfig, path + " is not ONNX Runtime" + advice);
  void* const* table = get_base()->GetApi(ort::kApiVersion);
  if (table == nullptr) {
    throw Error(Code::kConfig, path + ": ONNX Runtime " + get_base()->GetVersionString() + " is too old" + advice);
  }
  auto library = std::make_unique<Library>(Library{ort::Api(table)});
  library->Check(library->api.CreateEnv(ort::kLogFatal, "elasticctr", &library->env), Code::kConfig, path);
  library->Check(library->api.CreateCpuMemoryInfo(ort::kArenaAllocator, ort::kDefaultMemory, &library->memory),
                 Code::kConfig, path);
  return library;
}

const Library& LibraryOf(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Library>>* loaded = new std::map<std::string, std::unique_ptr<Library>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Library>& library = (*loaded)[path];
  if (library == nullptr) library = Load(path);
  return *library;
}

// Releases an object at the end of a scope, or when an exception is thrown.
template <typename T, typename Release>
class Held {
 public:
  explicit Held(const Release& release) : release_(release) {}
  ~Held() {
    if (value != nullptr) release_(value);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  T* value = nullptr;

 private:
  const Release& release_;
};

class OnnxGraph final : public DenseGraph {
 public:
  OnnxGraph(const Library& library, std::string_view onnx, const std::string& where)
      : library_(library), where_(where) {
    const ort::Api& api = library.api;
    const auto check = [&](ort::Status* status) { library.Check(status, Code::kCorruption, where); };
    Held<ort::SessionOptions, decltype(api.ReleaseSessionOptions)> options(api.ReleaseSessionOptions);
    check(api.CreateSessionOptions(&options.value));
    check(api.SetIntraOpNumThreads(options.value, 1));
    check(api.SetInterOpNumThreads(options.value, 1));
    check(api.SetSessionExecutionMode(options.value, ort::kSequential));
    check(api.SetSessionGraphOptimizationLevel(options.value, ort::kOptimizeAll));
    check(api.SetSessionLogSeverityLevel(options.value, ort::kLogFatal));
    check(api.EnableCpuMemArena(options.value));
    // Otherwise a pattern is kept for every batch size ever used.
    check(api.DisableMemPattern(options.value));
    check(api.AddSessionConfigEntry(options.value, "session.intra_op.allow_spinning", "0"));
    check(api.AddSessionConfigEntry(options.value, "session.inter_op.allow_spinning", "0"));
    check(api.CreateSessionFromArray(library.env, onnx.data(), onnx.size(), options.value, &session_));
    try {
      FindScores();
    } catch (...) {
      api.ReleaseSession(session_);
      throw;
    }
  }

  ~OnnxGraph() override { library_.api.ReleaseSession(session_); }

  void Run(std::span<const Input> inputs, size_t n, size_t labels, float* out) const override {
    if (inputs.size() > kMaxInputs) throw Error(Code::kInternal, where_ + ": too many inputs");
    const size_t parts = std::max<size_t>(1, (n + kPart / 2) / kPart);
    for (size_t part = 0; part < parts; ++part) {
      const size_t first = n * part / parts;
      RunPart(inputs, first, n * (part + 1) / parts - first, labels, out + first * labels);
    }
  }

 private:
  class Values {
   public:
    explicit Values(const ort::Api& api) : api_(api) {}
    ~Values() {
      for (size_t i = 0; i < count_; ++i) api_.ReleaseValue(values_[i]);
    }
    void Add(const OnnxGraph& graph, void* data, size_t bytes, const int64_t* shape, size_t rank, int element) {
      graph.Check(api_.CreateTensorWithDataAsOrtValue(graph.library_.memory, data, bytes, shape, rank, element,
                                                      &values_[count_]));
      ++count_;
    }
    ort::Value** data() { return values_.data(); }

   private:
    const ort::Api& api_;
    size_t count_ = 0;
    std::array<ort::Value*, kMaxInputs + 1> values_;
  };

  void RunPart(std::span<const Input> inputs, size_t first, size_t n, size_t labels, float* out) const {
    Values values(library_.api);
    std::array<const char*, kMaxInputs> names;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Input& input = inputs[i];
      names[i] = input.name;
      std::array<int64_t, std::size(Input{}.shape)> shape = std::to_array(input.shape);
      if (!input.is_of_all) shape[0] = static_cast<int64_t>(n);
      size_t row = input.is_int64 ? sizeof(int64_t) : sizeof(float);
      for (size_t k = 1; k < input.rank; ++k) row *= static_cast<size_t>(shape[k]);
      const char* data = static_cast<const char*>(input.data) + (input.is_of_all ? 0 : first * row);
      values.Add(*this, const_cast<char*>(data), static_cast<size_t>(shape[0]) * row, shape.data(), input.rank,
                 input.is_int64 ? ort::kInt64 : ort::kFloat);
    }
    const int64_t shape[] = {static_cast<int64_t>(n), static_cast<int64_t>(labels)};
    values.Add(*this, out, n * labels * sizeof(float), shape, scores_rank_, ort::kFloat);
    const char* scores = "scores";
    Check(library_.api.Run(session_, nullptr, names.data(), values.data(), inputs.size(), &scores, 1,
                           values.data() + inputs.size()));
  }

  void Check(ort::Status* status) const {
    if (status != nullptr) [[unlikely]]
      library_.Check(status, Code::kInternal, where_);
  }

  // The rank of the output `scores`: [n], or [n, labels].
  void FindScores() {
    const ort::Api& api = library_.api;
    const auto check = [&](ort::Status* status) { library_.Check(status, Code::kCorruption, where_); };
    ort::Allocator* allocator;
    check(api.GetAllocatorWithDefaultOptions(&allocator));
    size_t count;
    check(api.SessionGetOutputCount(session_, &count));
    for (size_t i = 0; i < count; ++i) {
      char* name;
      check(api.SessionGetOutputName(session_, i, allocator, &name));
      const bool is_it = std::string_view(name) == "scores";
      check(api.AllocatorFree(allocator, name));
      if (!is_it) continue;
      Held<ort::TypeInfo, decltype(api.ReleaseTypeInfo)> type(api.ReleaseTypeInfo);
      check(api.SessionGetOutputTypeInfo(session_, i, &type.value));
      const ort::TensorInfo* tensor = nullptr;
      check(api.CastTypeInfoToTensorInfo(type.value, &tensor));
      if (tensor == nullptr) break;
      int element;
      check(api.GetTensorElementType(tensor, &element));
      check(api.GetDimensionsCount(tensor, &scores_rank_));
      if (element == ort::kFloat && (scores_rank_ == 1 || scores_rank_ == 2)) return;
      break;
    }
    throw Error(Code::kCorruption, where_ + ": the graph has no output 'scores' of floats, one or one per label");
  }

  const Library& library_;
  const std::string where_;
  ort::Session* session_ = nullptr;
  size_t scores_rank_ = 1;
};

}  // namespace

std::unique_ptr<DenseGraph> OpenOnnx(const std::string& library, std::string_view onnx, const std::string& where) {
  return std::make_unique<OnnxGraph>(LibraryOf(library), onnx, where);
}

}  // namespace elasticctr::serve

// The few functions of ONNX Runtime's C interface that we call, by their index in its table (struct OrtApi of
// onnxruntime_c_api.h). The table only grows at its end: an index is never reused for another function. All of these
// exist since version 5 of the interface.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elasticctr::serve::ort {

struct Status;
struct Env;
struct Session;
struct SessionOptions;
struct RunOptions;
struct MemoryInfo;
struct Value;
struct TypeInfo;
struct TensorInfo;
struct Allocator;

inline constexpr uint32_t kApiVersion = 16;

enum Element : int { kFloat = 1, kInt64 = 7 };
enum { kLogFatal = 4, kSequential = 0, kOptimizeAll = 99, kArenaAllocator = 1, kDefaultMemory = 0 };

// The result of OrtGetApiBase.
struct ApiBase {
  void* const* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

// The function at index `kPlace` of the table.
template <size_t kPlace, typename Signature>
struct Entry;
template <size_t kPlace, typename R, typename... Args>
struct Entry<kPlace, R(Args...)> {
  R (*call)(Args...) noexcept = nullptr;
  void Bind(void* const* table) { call = reinterpret_cast<R (*)(Args...) noexcept>(table[kPlace]); }
  R operator()(Args... args) const { return call(args...); }
};

struct Api {
  Entry<2, const char*(const Status*)> GetErrorMessage;
  Entry<3, Status*(int level, const char* name, Env**)> CreateEnv;
  Entry<8, Status*(const Env*, const void* data, size_t, const SessionOptions*, Session**)> CreateSessionFromArray;
  Entry<9, Status*(Session*, const RunOptions*, const char* const* names, const Value* const* inputs, size_t,
                   const char* const* output_names, size_t, Value** outputs)>
      Run;
  Entry<10, Status*(SessionOptions**)> CreateSessionOptions;
  Entry<13, Status*(SessionOptions*, int mode)> SetSessionExecutionMode;
  Entry<17, Status*(SessionOptions*)> DisableMemPattern;
  Entry<18, Status*(SessionOptions*)> EnableCpuMemArena;
  Entry<22, Status*(SessionOptions*, int level)> SetSessionLogSeverityLevel;
  Entry<23, Status*(SessionOptions*, int level)> SetSessionGraphOptimizationLevel;
  Entry<24, Status*(SessionOptions*, int threads)> SetIntraOpNumThreads;
  Entry<25, Status*(SessionOptions*, int threads)> SetInterOpNumThreads;
  Entry<31, Status*(const Session*, size_t*)> SessionGetOutputCount;
  Entry<34, Status*(const Session*, size_t, TypeInfo**)> SessionGetOutputTypeInfo;
  Entry<37, Status*(const Session*, size_t, Allocator*, char**)> SessionGetOutputName;
  Entry<49,
        Status*(const MemoryInfo*, void* data, size_t bytes, const int64_t* shape, size_t rank, int element, Value**)>
      CreateTensorWithDataAsOrtValue;
  Entry<55, Status*(const TypeInfo*, const TensorInfo**)> CastTypeInfoToTensorInfo;
  Entry<60, Status*(const TensorInfo*, int*)> GetTensorElementType;
  Entry<61, Status*(const TensorInfo*, size_t*)> GetDimensionsCount;
  Entry<69, Status*(int allocator, int memory, MemoryInfo**)> CreateCpuMemoryInfo;
  Entry<76, Status*(Allocator*, void*)> AllocatorFree;
  Entry<78, Status*(Allocator**)> GetAllocatorWithDefaultOptions;
  Entry<93, void(Status*)> ReleaseStatus;
  Entry<95, void(Session*)> ReleaseSession;
  Entry<96, void(Value*)> ReleaseValue;
  Entry<98, void(TypeInfo*)> ReleaseTypeInfo;
  Entry<100, void(SessionOptions*)> ReleaseSessionOptions;
  Entry<130, Status*(SessionOptions*, const char* key, const char* value)> AddSessionConfigEntry;

  explicit Api(void* const* table) {
    const auto bind = [table](auto&... entries) { (entries.Bind(table), ...); };
    bind(GetErrorMessage, CreateEnv, CreateSessionFromArray, Run, CreateSessionOptions, SetSessionExecutionMode,
         DisableMemPattern, EnableCpuMemArena, SetSessionLogSeverityLevel, SetSessionGraphOptimizationLevel,
         SetIntraOpNumThreads, SetInterOpNumThreads, SessionGetOutputCount, SessionGetOutputTypeInfo,
         SessionGetOutputName, CreateTensorWithDataAsOrtValue, CastTypeInfoToTensorInfo, GetTensorElementType,
         GetDimensionsCount, CreateCpuMemoryInfo, AllocatorFree, GetAllocatorWithDefaultOptions, ReleaseStatus,
         ReleaseSession, ReleaseValue, ReleaseTypeInfo, ReleaseSessionOptions, AddSessionConfigEntry);
  }
};

}  // namespace elasticctr::serve::ort

// Changes which versions are served: loading in the background, activation, retirement, and the files that preserve
// this across a restart.
//
// Threads: one thread loads, another runs short jobs (activate, retire, the checks before a load); neither ever blocks
// an event loop. All public functions may be called from any thread; Activate, Retire and LoadNow block: call them in a
// job.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cube/server/directory.h"
#include "cube/server/store.h"
#include "util/status.h"

namespace elasticctr::cube {

enum class LoadState : uint8_t { kLoading, kReady, kFailed };

// A version that is being loaded or could not be loaded.
struct LoadRecord {
  LoadState state = LoadState::kLoading;
  std::string error;
  Code code = Code::kInternal;
};

struct ModelTimes {
  uint64_t activated_ns = 0;
  std::map<uint64_t, uint64_t> loaded_ns;  // version -> time
  std::map<uint64_t, uint64_t> parents;    // version -> parent; kept for retired versions that others are based on
  double load_seconds = 0;                 // of the last load
  uint64_t loads = 0;
  uint64_t failures = 0;
};

struct ControlState {
  std::map<std::string, std::map<uint64_t, LoadRecord>> records;
  std::map<std::string, ModelTimes> times;
  std::map<std::string, std::string> broken;  // models whose LIVE version could not be loaded, and why
  bool has_started = false;
};

class Control {
 public:
  // `on_change` is called after the catalog changed.
  Control(Directory directory, Store* store, bool activates_newest, std::function<void()> on_change);
  ~Control();

  // Starts the threads; they first load and activate the versions named by the LIVE files.
  void Start(std::function<void()> on_started);
  void Stop();
  // False: the LIVE files' versions are not all processed yet.
  bool WaitStarted(double timeout_s);

  // Runs `job` on the job thread or, if it loads, behind the queued loads. False: the queue is full.
  bool Post(std::function<void()> job, bool is_load);

  // Queues the load of a version. Throws as Directory::Read does; a version that failed before is tried again.
  LoadState RequestLoad(const std::string& model, uint64_t version);
  // Loads a version and the versions it is based on. Throws.
  void LoadNow(const std::string& model, uint64_t version);
  // Throws NotFound if the version is not resident, Unavailable if LIVE cannot be written.
  Live Activate(const std::string& model, uint64_t version);
  // Throws NotFound, FailedPrecondition if it is active.
  void Retire(const std::string& model, uint64_t version);

  bool is_ready() const;
  ControlState state() const;
  const Store& store() const { return *store_; }

 private:
  void Run(std::deque<std::function<void()>>* queue, std::condition_variable* wake);
  void LoadAtStart();
  void LoadModelAtStart(const std::string& model);
  void Record(const std::string& model, uint64_t version, LoadRecord record);
  bool HasVersion(const std::string& model, uint64_t version) const;
  // Resident with this identity (empty: any), and its mapped files are intact.
  bool IsResident(const std::string& model, uint64_t version, const std::string& identity) const;
  // Whether the version in memory is the one the directory has under this number. Throws as Directory::Read does.
  bool IsLoaded(const std::string& model, uint64_t version) const;
  Live ActivateInStore(const std::string& model, uint64_t version, bool writes_live);
  // Drops records of versions that no resident one is based on. REQUIRES: mutex_ is held.
  void ForgetOld(const Catalog& catalog, const std::string& model);

  const Directory directory_;
  Store* const store_;
  const bool activates_newest_;
  const std::function<void()> on_change_;
  std::function<void()> on_started_;

  mutable std::mutex mutex_;
  std::condition_variable wake_loader_, wake_jobs_, started_;
  bool stopping_ = false;
  std::deque<std::function<void()>> loads_, jobs_;
  ControlState state_;

  std::mutex load_mutex_;      // one load at a time
  std::mutex activate_mutex_;  // LIVE and the store change together
  std::thread loader_, worker_;
};

}  // namespace elasticctr::cube

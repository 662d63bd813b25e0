// What changes which versions are served: loading in the background, activation, retirement, and the files that make
// them survive a restart.
//
// Threads: one loads, one runs short jobs (activate, retire, the checks before a load); neither ever holds up an event
// loop. All public functions may be called from any thread; Activate, Retire and LoadNow block: call them in a job.
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

// One version that is not simply resident: being loaded, or not loadable.
struct LoadRecord {
  LoadState state = LoadState::kLoading;
  std::string error;
  Code code = Code::kInternal;
};

struct ModelTimes {
  uint64_t activated_ns = 0;
  std::map<uint64_t, uint64_t> loaded_ns;  // version -> when
  std::map<uint64_t, uint64_t> parents;    // version -> what it stands on; kept for retired ones that others stand on
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
  // `on_change` is called after the catalog moved.
  Control(Directory directory, Store* store, bool activates_newest, std::function<void()> on_change);
  ~Control();

  // Starts the threads; the first thing they do is to load and activate what the LIVE files name.
  void Start(std::function<void()> on_started);
  void Stop();
  // False: it is not through yet.
  bool WaitStarted(double timeout_s);

  // Runs `job` on the job thread, or behind the loads that wait if it loads itself. False: too many wait already.
  bool Post(std::function<void()> job, bool is_load);

  // Asks for a version to be loaded. Throws as Directory::Read does; a version that failed before is tried again.
  LoadState RequestLoad(const std::string& model, uint64_t version);
  // Loads a version and what it stands on. Throws.
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
  // With this identity (empty: with any), and its mapped files are whole.
  bool IsResident(const std::string& model, uint64_t version, const std::string& identity) const;
  // Whether what the directory has under this number is what is in memory. Throws as Directory::Read does.
  bool IsLoaded(const std::string& model, uint64_t version) const;
  Live ActivateInStore(const std::string& model, uint64_t version, bool writes_live);
  // Drops what is known of versions that no resident one stands on. REQUIRES: mutex_ is held.
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
  std::mutex activate_mutex_;  // LIVE and the store move together
  std::thread loader_, worker_;
};

}  // namespace elasticctr::cube

// Workspaces between uses. A training loop takes one per step and returns it, so its memory is allocated once. Two
// forward passes before a backward pass hold two workspaces.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "dense/tower/tower.h"

namespace elasticctr::dense {

// Thread-safe.
class WorkspacePool {
 public:
  std::unique_ptr<Workspace> Take() {
    std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Workspace>();
    auto workspace = std::move(idle_.back());
    idle_.pop_back();
    return workspace;
  }

  void GiveBack(std::unique_ptr<Workspace> workspace) {
    std::lock_guard lock(mutex_);
    if (idle_.size() < kMostIdle) idle_.push_back(std::move(workspace));
  }

 private:
  static constexpr size_t kMostIdle = 2;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace elasticctr::dense

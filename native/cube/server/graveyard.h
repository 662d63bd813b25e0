// Frees objects that readers may still hold, in a thread of its own: unmapping gigabytes takes milliseconds, too long
// for the last reader, an event loop.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace elasticctr::cube {

class Graveyard {
 public:
  Graveyard() = default;
  ~Graveyard();  // frees everything that has no other owner
  Graveyard(const Graveyard&) = delete;
  Graveyard& operator=(const Graveyard&) = delete;

  // The object is freed within some milliseconds after its last other owner releases it.
  void Bury(std::shared_ptr<const void> dead);

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::shared_ptr<const void>> dead_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace elasticctr::cube

// Runs work whose failure must end a request or a batch, but never the worker.
#pragma once

#include <exception>
#include <new>

#include "util/status.h"

namespace elasticctr::serve {

class OutOfMemory final : public Error {
 public:
  OutOfMemory() : Error(Code::kUnavailable, "out of memory; send less at a time") {}
};

// Calls `then` with whatever `work` throws, as one of our errors. True: nothing was thrown.
template <typename Work, typename Then>
bool Try(Work&& work, Then&& then) {
  try {
    work();
    return true;
  } catch (const Error& e) {
    then(e);
  } catch (const std::bad_alloc&) {
    then(OutOfMemory());
  } catch (const std::exception& e) {
    then(Error(Code::kInternal, e.what()));
  } catch (...) {
    then(Error(Code::kInternal, "unknown failure"));
  }
  return false;
}

}  // namespace elasticctr::serve

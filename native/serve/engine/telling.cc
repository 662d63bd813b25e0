// Reports to the client and the observers how a request ended.
#include <string>
#include <utility>

#include "serve/engine/batch.h"
#include "serve/engine/try.h"

namespace elasticctr::serve {

void AnswerError(const Request& request, const Parsed* parsed, const Error& error) {
  std::string bytes;
  const bool is_formatted =
      Try([&] { bytes = request.codec->FormatError(request, parsed, error); }, [](const Error&) {});
  Try([&] { request.answer(std::move(bytes), !is_formatted || !request.keep_alive); }, [](const Error&) {});
}

void Observe(const BatchContext& around, const Finished& finished) {
  for (const BatchContext::Observer& observer : around.observers) {
    if (finished.request->is_shadow && !observer.shadows) continue;
    Try([&] { observer.call(finished); }, [](const Error&) {});
  }
}

}  // namespace elasticctr::serve

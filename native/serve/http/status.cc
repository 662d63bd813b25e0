#include "serve/http/status.h"

#include "net/http/http.h"
#include "util/json_text.h"
#include "util/status_table.h"

namespace elasticctr::serve {

std::string HttpErrorAnswer(const Error& error, bool keep_alive, bool head_only) {
  std::string body = "{\"error\":{\"code\":";
  AppendJsonString(&body, NameOf(error.code()));
  body.append(",\"message\":");
  AppendJsonString(&body, error.what());
  body.append("}}");
  return net::HttpAnswer(HttpStatusOf(error), "application/json", body, keep_alive, HttpHeadersOf(error), head_only);
}

}  // namespace elasticctr::serve

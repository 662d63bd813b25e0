// The dense graph of a version in ONNX Runtime, called through the C interface of its shared library, which is loaded
// when the first graph is opened and stays loaded. The graph runs in the calling thread and starts no threads; it takes
// some hundred samples at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "serve/version/version.h"

namespace elasticctr::serve {

// `library`: the path of libonnxruntime.so; `where` names the graph in errors. Throws ConfigError (no usable library),
// Corruption (no usable graph: damaged, or without an output `scores` of floats).
std::unique_ptr<DenseGraph> OpenOnnx(const std::string& library, std::string_view onnx, const std::string& where);

}  // namespace elasticctr::serve

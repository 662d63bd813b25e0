#include <nanobind/nanobind.h>

#include <new>

#include "bindings/bindings.h"
#include "ps/shard/cursor_error.h"
#include "ps/shard/era_error.h"
#include "util/status.h"
#include "util/status_table.h"

namespace nb = nanobind;

namespace elasticctr {
namespace {

// The one place where native errors become Python ones.
void TranslateError(const std::exception_ptr& p, void*) {
  try {
    std::rethrow_exception(p);
  } catch (const RetryLater& e) {
    nb::object type = nb::module_::import_("elasticctr.errors").attr("Unavailable");
    PyErr_SetObject(type.ptr(), type(e.what(), e.after_ms() / 1000.0).ptr());
  } catch (const ps::CursorError& e) {
    nb::object type = nb::module_::import_("elasticctr.ps.errors").attr("CursorError");
    PyErr_SetObject(type.ptr(), type(e.what(), e.chunk(), e.shard(), e.cursor()).ptr());
  } catch (const ps::EraError& e) {
    nb::object type = nb::module_::import_("elasticctr.ps.errors").attr("EraError");
    PyErr_SetObject(type.ptr(), type(e.what(), e.era()).ptr());
  } catch (const Error& e) {
    nb::object type = nb::module_::import_("elasticctr.errors").attr(NameOf(e.code()));
    PyErr_SetString(type.ptr(), e.what());
  }
}

}  // namespace
}  // namespace elasticctr

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);
  nb::register_exception_translator(elasticctr::TranslateError);
  elasticctr::BindUtil(m);
  elasticctr::BindSample(m);
  elasticctr::BindColumnBags(m);
  elasticctr::BindDerive(m);
  elasticctr::BindWriter(m);
  elasticctr::BindTable(m);
  elasticctr::BindRemote(m);
  elasticctr::BindPsClient(m);
  elasticctr::BindDense(m);
  elasticctr::BindFieldLayers(m);
  elasticctr::BindMetric(m);
  elasticctr::BindMetricSegments(m);
  elasticctr::BindCubeFiles(m);
  elasticctr::BindCube(m);
  elasticctr::BindCubeClient(m);
  elasticctr::BindCubeServer(m);
  elasticctr::BindPsServer(m);
  elasticctr::BindServeEngine(m);
  elasticctr::BindServeRequestLog(m);
  elasticctr::BindServeServer(m);
}

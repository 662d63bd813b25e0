// The functions that module.cc calls: one per file of this folder. A binding converts arguments, releases the GIL,
// calls, and converts the result; it holds no logic.
#pragma once

#include <nanobind/nanobind.h>

namespace elasticctr {

void BindUtil(nanobind::module_& m);
void BindSample(nanobind::module_& m);
void BindColumnBags(nanobind::module_& m);
void BindDerive(nanobind::module_& m);
void BindWriter(nanobind::module_& m);
void BindTable(nanobind::module_& m);
void BindTableSettings(nanobind::module_& m);
void BindRemote(nanobind::module_& m);
void BindPsClient(nanobind::module_& m);
void BindDense(nanobind::module_& m);
void BindFieldLayers(nanobind::module_& m);
void BindMetric(nanobind::module_& m);
void BindMetricSegments(nanobind::module_& m);
void BindCubeFiles(nanobind::module_& m);
void BindCube(nanobind::module_& m);
void BindCubeClient(nanobind::module_& m);
void BindCubeServer(nanobind::module_& m);
void BindPsServer(nanobind::module_& m);
void BindServeEngine(nanobind::module_& m);
void BindServeRequestLog(nanobind::module_& m);
void BindServeServer(nanobind::module_& m);

}  // namespace elasticctr

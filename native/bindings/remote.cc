#include "table/remote.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

// Holds the sums' feasigns, so that the lookup need not stay alive.
struct BoundSums {
  std::vector<uint64_t> feasigns;
  size_t width = 0;
  SummedGradients sums;
};

template <typename T>
Numpy<T> View(nb::handle self, T* data, std::initializer_list<size_t> shape) {
  return Numpy<T>(data, shape, self);
}

size_t WidthOf(const Layout& layout) {
  size_t width = 0;
  for (const uint32_t dim : layout.dims()) width += dim;
  return width;
}

}  // namespace

void BindRemote(nb::module_& m) {
  m.def(
      "pool_rows",
      [](const Lookup& lookup, const Layout& layout, const nb::ndarray<const float, nb::ndim<2>, nb::c_contig>& rows,
         const std::vector<Floats>& targets) {
        const auto converted = ToTargets(targets);
        if (rows.shape(0) != lookup.distinct()) {
          throw Error(Code::kFailedPrecondition, std::to_string(rows.shape(0)) + " rows for a lookup of " +
                                                     std::to_string(lookup.distinct()) + " feasigns");
        }
        nb::gil_scoped_release release;
        PoolRows(lookup, layout, rows.data(), rows.shape(1), converted);
      },
      "lookup"_a, "layout"_a, "rows"_a, "targets"_a);
  nb::class_<BoundSums>(m, "SummedGradients")
      .def_prop_ro("feasigns",
                   [](nb::handle_t<BoundSums> self) {
                     auto& one = nb::cast<BoundSums&>(self);
                     return View(self, one.feasigns.data(), {one.feasigns.size()});
                   })
      .def_prop_ro("gradients",
                   [](nb::handle_t<BoundSums> self) {
                     auto& one = nb::cast<BoundSums&>(self);
                     return View(self, one.sums.gradients.data(), {one.feasigns.size(), one.width});
                   })
      .def_prop_ro("shows",
                   [](nb::handle_t<BoundSums> self) {
                     auto& one = nb::cast<BoundSums&>(self);
                     return View(self, one.sums.shows.data(), {one.feasigns.size()});
                   })
      .def_prop_ro("clicks",
                   [](nb::handle_t<BoundSums> self) {
                     auto& one = nb::cast<BoundSums&>(self);
                     return View(self, one.sums.clicks.data(), {one.feasigns.size()});
                   })
      .def_prop_ro("masks",
                   [](nb::handle_t<BoundSums> self) -> std::optional<Numpy<uint64_t>> {
                     auto& one = nb::cast<BoundSums&>(self);
                     if (!one.sums.has_masks) return std::nullopt;
                     return View(self, one.sums.masks.data(), {one.feasigns.size()});
                   })
      .def_prop_ro("is_finite", [](const BoundSums& self) { return self.sums.is_finite; });
  m.def(
      "sum_gradients",
      [](const Lookup& lookup, const Layout& layout, const std::vector<Floats>& gradients,
         const std::optional<Column>& clicks, const std::optional<Column>& shows) {
        const auto converted = ToTargets(gradients);
        const PushSamples samples = ToSamples(clicks, shows, lookup.samples());
        auto result = std::make_unique<BoundSums>();
        nb::gil_scoped_release release;
        result->feasigns.assign(lookup.feasigns(), lookup.feasigns() + lookup.distinct());
        result->width = WidthOf(layout);
        SumGradients(lookup, layout, result->width, converted, samples, &result->sums);
        return result.release();
      },
      "lookup"_a, "layout"_a, "gradients"_a, "clicks"_a.none() = nb::none(), "shows"_a.none() = nb::none(),
      nb::rv_policy::take_ownership);
}

}  // namespace elasticctr

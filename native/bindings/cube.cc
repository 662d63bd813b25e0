#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/cube_arrays.h"
#include "cube/index/sharded.h"
#include "cube/server/store.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

using namespace cube;

// The table in a version, or the active one: the version that answers, and its view.
std::pair<uint64_t, const TableView*> FindTable(const Catalog& catalog, const std::string& table, uint64_t version) {
  const Catalog::Found found = catalog.Find(catalog.TableHash(table), version);
  if (!found.table_known) throw Error(Code::kNotFound, "table " + table + " is not loaded");
  if (found.version == 0) {
    throw Error(Code::kFailedPrecondition, "no version of " + table + " is active; activate one");
  }
  if (found.view == nullptr) {
    throw Error(Code::kNotFound, "table " + table + " has no version " + std::to_string(found.version) + " here");
  }
  return {found.version, found.view};
}

nb::tuple LookupIn(const Store& store, const std::string& table, Feasigns feasigns, uint64_t version) {
  const auto catalog = store.current();
  const auto [answering, view] = FindTable(*catalog, table, version);
  const auto [rows, mask] = Ask(view->info(), feasigns, [&](uint8_t* to, uint8_t* bits, size_t* hits) {
    return view->Lookup(feasigns.data(), feasigns.size(), to, bits, hits);
  });
  return nb::make_tuple(rows, mask, answering);
}

nb::tuple LookupInShards(const std::vector<const Store*>& stores, const std::string& table, Feasigns feasigns,
                         uint64_t version) {
  std::vector<std::shared_ptr<const Catalog>> catalogs;
  std::vector<const TableView*> views;
  for (const Store* store : stores) {
    catalogs.push_back(store->current());
    views.push_back(FindTable(*catalogs.back(), table, version).second);
  }
  if (views.empty()) throw Error(Code::kConfig, "a lookup in no shards");
  const auto [rows, mask] = Ask(views[0]->info(), feasigns, [&](uint8_t* to, uint8_t* bits, size_t*) {
    LookupShards(views, feasigns.data(), feasigns.size(), to, bits);
    return LookupResult::kOk;
  });
  return nb::make_tuple(rows, mask);
}

nb::list DescribeModels(const Store& store) {
  nb::list models;
  const auto catalog = store.current();
  for (const ModelEntry& entry : catalog->models()) {
    nb::list versions;
    for (const auto& version : entry.versions) {
      nb::dict tables;
      for (size_t i = 0; i < version->tables.size(); ++i) {
        tables[version->tables[i].c_str()] = nb::cast(version->views[i]->info(), nb::rv_policy::copy);
      }
      versions.append(nb::make_tuple(version->version, version->parent, version->resident_bytes, tables));
    }
    models.append(nb::make_tuple(entry.name, entry.active, entry.previous, versions));
  }
  return models;
}

void BindStore(nb::module_& m) {
  nb::class_<Store>(m, "CubeStore")
      .def_static(
          "make",
          [](const std::string& residence, bool check_all) {
            return Store::Make(ResidenceOf(residence), check_all ? Check::kAll : Check::kHeader);
          },
          "residence"_a, "check_all"_a)
      .def(
          "load",
          [](Store& self, std::string model, uint64_t version, uint64_t parent,
             const std::vector<std::pair<std::string, std::string>>& files, uint32_t shard, uint32_t shards) {
            VersionFiles given{std::move(model), version, parent, {}, shard, shards, {}, {}};
            for (const auto& [table, path] : files) given.files.push_back({table, path});
            nb::gil_scoped_release release;
            self.Load(given);
          },
          "model"_a, "version"_a, "parent"_a, "files"_a, "shard"_a = 0, "shards"_a = 0)
      .def("activate", &Store::Activate, "model"_a, "version"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("retire", &Store::Retire, "model"_a, "version"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("generation", &Store::generation)
      .def_prop_ro("resident_bytes", [](const Store& self) { return self.current()->resident_bytes(); })
      .def("models", &DescribeModels,
           nb::sig("def models(self) -> list[tuple[str, int, int, list[tuple[int, int, int, dict[str, CubeInfo]]]]]"))
      .def("lookup", &LookupIn, "table"_a, "feasigns"_a, "version"_a = 0);
}

}  // namespace

void BindCube(nb::module_& m) {
  BindStore(m);
  m.def("lookup_cube_shards", &LookupInShards, "stores"_a, "table"_a, "feasigns"_a, "version"_a);
}

}  // namespace elasticctr

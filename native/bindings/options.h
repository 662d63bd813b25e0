// Options of servers and clients: a C++ struct becomes a Python class whose attributes are its members; constructors
// take the options by name. A new option needs a member, one BindMember and a key of the settings class.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "net/loop/server.h"
#include "util/status.h"

namespace elasticctr {

// The stub signature of a constructor that takes options by name.
inline const nanobind::sig kByName("def __init__(self, **options: Any) -> None");

// An attribute of `type`: a member, or a member of a member. BindMember<&Outer::inner, &Inner::limit>(type, "limit").
template <auto... Path, typename Type>
void BindMember(nanobind::class_<Type>& type, const char* name) {
  using Member = std::remove_cvref_t<decltype((std::declval<Type&>().*....*Path))>;
  type.def_prop_rw(
      name, [](const Type& self) -> Member { return (self.*....*Path); },
      [](Type& self, Member value) { (self.*....*Path) = std::move(value); });
}

template <typename Value>
using Choices = std::vector<std::pair<const char*, Value>>;

// Sets the member of that name from Python. Throws ConfigError for an unknown name.
template <auto Member, typename Value, typename Type>
void BindChoice(nanobind::class_<Type>& type, const char* name, const Choices<Value>& choices) {
  type.def_prop_rw(
      name,
      [choices](const Type& self) {
        const auto is_it = [&](const auto& choice) { return choice.second == self.*Member; };
        return std::string(std::find_if(choices.begin(), choices.end(), is_it)->first);
      },
      [choices, name](Type& self, const std::string& given) {
        std::string names;
        for (const auto& [choice, value] : choices) {
          if (given == choice) {
            self.*Member = value;
            return;
          }
          names += std::string(names.empty() ? "" : ", ") + choice;
        }
        throw Error(Code::kConfig, std::string(name) + " '" + given + "' is none of " + names);
      });
}

// The defaults with every named attribute set. Throws AttributeError for an unknown name.
template <typename Options>
Options OptionsFrom(const nanobind::kwargs& named) {
  nanobind::object options = nanobind::cast(Options());
  for (auto [name, value] : named) nanobind::setattr(options, name, value);
  return nanobind::cast<Options>(options);
}

// Options nested in others.
template <typename Options>
nanobind::class_<Options> BindOptions(nanobind::module_& m, const char* name) {
  nanobind::class_<Options> type(m, name);
  type.def(
      "__init__", [](Options* self, const nanobind::kwargs& named) { new (self) Options(OptionsFrom<Options>(named)); },
      kByName);
  return type;
}

// Common to all servers: sockets, certificate, start and stop.
template <auto Net, typename Options>
void BindNetOptions(nanobind::class_<Options>& type) {
  using net::LoopLimits;
  using net::ServerOptions;
  using net::TlsOptions;
  BindMember<Net, &ServerOptions::host>(type, "host");
  BindMember<Net, &ServerOptions::ports>(type, "ports");
  BindMember<Net, &ServerOptions::unix_path>(type, "unix_path");
  BindMember<Net, &ServerOptions::max_connections>(type, "max_connections");
  BindMember<Net, &ServerOptions::max_connections_per_address>(type, "max_connections_per_address");
  BindMember<Net, &ServerOptions::max_buffered_bytes>(type, "max_buffered_bytes");
  BindMember<Net, &ServerOptions::limits, &LoopLimits::request_timeout_s>(type, "request_timeout_s");
  BindMember<Net, &ServerOptions::limits, &LoopLimits::busy_poll_us>(type, "busy_poll_us");
  BindMember<Net, &ServerOptions::tls, &TlsOptions::certificate>(type, "tls_cert");
  BindMember<Net, &ServerOptions::tls, &TlsOptions::key>(type, "tls_key");
  BindMember<Net, &ServerOptions::tls, &TlsOptions::client_ca>(type, "tls_client_ca");
}

template <typename Options, typename Service>
nanobind::class_<Service>& BindServer(nanobind::class_<Service>& type) {
  using nanobind::literals::operator""_a;
  using Release = nanobind::call_guard<nanobind::gil_scoped_release>;
  return type
      .def(
          "__init__",
          [](Service* self, const nanobind::kwargs& named) { new (self) Service(OptionsFrom<Options>(named)); },
          kByName)
      .def("start", &Service::Start, Release())
      .def("stop", &Service::Stop, "drain_s"_a, Release())
      .def(
          "set_tls",
          [](Service& self, const std::string& cert, const std::string& key, const std::string& client_ca) {
            self.SetTls({cert, key, client_ca});
          },
          "cert"_a, "key"_a, "client_ca"_a, Release(), "For connections made from now on.");
}

}  // namespace elasticctr

// The one place where Boost.JSON is compiled; everyone else includes <boost/json.hpp>.
#include <boost/json/src.hpp>

// The only place where Boost.JSON is compiled; other files include <boost/json.hpp>.
#include <boost/json/src.hpp>

// Boost.JSON, compiled once: tests compare our own reader and writers with it. The core itself does not use it.
#include <boost/json/src.hpp>

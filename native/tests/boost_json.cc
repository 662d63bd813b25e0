// Boost.JSON, compiled once: what tests compare our own reader and writers with. The core itself does not use it.
#include <boost/json/src.hpp>

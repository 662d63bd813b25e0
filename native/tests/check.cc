#include "tests/check.h"

#include <cstdio>
#include <cstdlib>

void FailCheck(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, condition);
  std::exit(1);
}

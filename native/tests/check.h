// The whole test framework: CHECK prints where and what failed, and exits with status 1.
#pragma once

[[noreturn]] void FailCheck(const char* file, int line, const char* condition);

#define CHECK(condition)                                         \
  do {                                                           \
    if (!(condition)) FailCheck(__FILE__, __LINE__, #condition); \
  } while (false)

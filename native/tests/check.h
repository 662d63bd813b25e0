// The whole test framework: CHECK says where and what, and ends the program with status 1.
#pragma once

[[noreturn]] void FailCheck(const char* file, int line, const char* condition);

#define CHECK(condition)                                         \
  do {                                                           \
    if (!(condition)) FailCheck(__FILE__, __LINE__, #condition); \
  } while (false)

// Small JSON objects by key: members, members of another kind, and texts that are not objects.
#include "util/json_object.h"

#include <string>

#include "tests/check.h"
#include "util/json_text.h"

using elasticctr::JsonObject;

namespace {

void TestMembers() {
  const std::string text = R"({"n": 7, "f": 7.0, "e": 2e3, "big": 18446744073709551615, "minus": -1, "half": 0.5,
      "over": 18446744073709551616, "far": 1e30, "s": "a\u00e9\n", "none": null, "yes": true, "n\u0031": 1})";
  const auto object = JsonObject::Parse(text);
  CHECK(object && object->Has("n") && !object->Has("x") && object->Has("n1"));
  CHECK(object->Uint64("n") == 7 && object->Uint64("f") == 7 && object->Uint64("e") == 2000);
  CHECK(object->Uint64("big") == ~uint64_t{0});
  for (const char* key : {"minus", "half", "over", "far", "s", "none", "yes", "x"}) CHECK(!object->Uint64(key));
  CHECK(object->Text("s") == "a\xC3\xA9\n" && !object->Text("n") && !object->Text("none") && !object->Text("x"));
  CHECK(object->IsNull("none") && !object->IsNull("n") && !object->IsNull("x"));
  CHECK(object->IsNumber("minus") && object->IsNumber("half") && !object->IsNumber("s") && !object->IsNumber("x"));
}

void TestLastOfAKeyCounts() {
  const auto object = JsonObject::Parse(R"({"a": 1, "a": "text"})");
  CHECK(object && !object->Uint64("a") && object->Text("a") == "text");
}

void TestObjects() {
  const auto object = JsonObject::Parse(R"({"list": [{"a": 1}, {"a": [{"b": 2}]}], "empty": [], "mixed": [{}, 1]})");
  const auto list = object->Objects("list");
  CHECK(list && list->size() == 2 && (*list)[0].Uint64("a") == 1);
  const auto inner = (*list)[1].Objects("a");
  CHECK(inner && inner->size() == 1 && (*inner)[0].Uint64("b") == 2);
  CHECK(object->Objects("empty")->empty());
  CHECK(!object->Objects("mixed") && !object->Objects("x") && !(*list)[0].Objects("a"));
}

void TestWhatIsNoObject() {
  for (const char* text : {"", "[]", "7", "{", "{}}", "{\"a\"}", "{\"a\": }", "{\"a\": 01}", "{\"a\": 1,}",
                           "{\"a\": \"\xFF\"}", "// {}"}) {
    CHECK(!JsonObject::Parse(text));
  }
  CHECK(JsonObject::Parse(" {} "));
  CHECK(!JsonObject::Parse("{\"a\": " + std::string(100'000, '[')));
}

void TestNumbersAsText() {
  std::string out;
  for (const double value : {0.0, 0.25, 1e-9, 1.5e300}) {
    elasticctr::AppendDouble(&out, value);
    out += ' ';
  }
  CHECK(out == "0 0.25 1e-09 1.5e+300 ");
}

}  // namespace

int main() {
  TestMembers();
  TestLastOfAKeyCounts();
  TestObjects();
  TestWhatIsNoObject();
  TestNumbersAsText();
  return 0;
}

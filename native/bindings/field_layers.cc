#include <nanobind/nanobind.h>

#include "bindings/addresses.h"
#include "bindings/bindings.h"
#include "dense/fields/field_attention.h"
#include "dense/fields/product_mix.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {

void BindFieldLayers(nb::module_& m) {
  nb::class_<dense::FieldAttention>(m, "FieldAttention",
                                    "relu(softmax(scale Q Kᵀ) V + R) of a sample's fields, head by head. Tensors are "
                                    "given as addresses of float32s: projected [batch, fields, 4 * heads * head_dim] "
                                    "holds Q, K, V and R, results are [batch, fields, heads * head_dim].")
      .def(
          "__init__",
          [](dense::FieldAttention* self, size_t fields, size_t heads, size_t head_dim, float scale) {
            new (self) dense::FieldAttention{fields, heads, head_dim, scale};
          },
          "fields"_a, "heads"_a, "head_dim"_a, "scale"_a)
      .def(
          "forward",
          [](const dense::FieldAttention& self, Address projected, size_t batch, Address result) {
            self.Forward(At(projected), batch, At(result));
          },
          "projected"_a, "batch"_a, "result"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "backward",
          [](const dense::FieldAttention& self, Address projected, Address result, Address gradient, size_t batch,
             Address to_projected) { self.Backward(At(projected), At(result), At(gradient), batch, At(to_projected)); },
          "projected"_a, "result"_a, "gradient"_a, "batch"_a, "to_projected"_a,
          nb::call_guard<nb::gil_scoped_release>());
  nb::class_<dense::ProductMix>(m, "ProductMix",
                                "z[h, n] = Σ_ij w[h, i * right + j] a[i, n] b[j, n]. Tensors are given as addresses of "
                                "float32s: a [left, columns], b [right, columns], w [out, left * right].")
      .def(
          "__init__",
          [](dense::ProductMix* self, size_t left, size_t right, size_t out) {
            new (self) dense::ProductMix{left, right, out};
          },
          "left"_a, "right"_a, "out"_a)
      .def(
          "forward",
          [](const dense::ProductMix& self, Address a, Address b, Address w, size_t columns, Address z) {
            self.Forward(At(a), At(b), At(w), columns, At(z));
          },
          "a"_a, "b"_a, "w"_a, "columns"_a, "z"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "backward",
          [](const dense::ProductMix& self, Address a, Address b, Address w, Address gradient, size_t columns,
             Address to_a, Address to_b,
             Address to_w) { self.Backward(At(a), At(b), At(w), At(gradient), columns, At(to_a), At(to_b), At(to_w)); },
          "a"_a, "b"_a, "w"_a, "gradient"_a, "columns"_a, "to_a"_a, "to_b"_a, "to_w"_a,
          nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace elasticctr

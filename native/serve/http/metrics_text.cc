#include "serve/http/metrics_text.h"

#include <charconv>
#include <functional>

#include "net/socket.h"
#include "util/status_table.h"

namespace elasticctr::serve {
namespace {

class Page {
 public:
  void Family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_.append("# HELP ").append(name).append(" ").append(help);
    text_.append("\n# TYPE ").append(name).append(" ").append(type).append("\n");
  }
  void Sample(double value, std::string_view labels = {}, std::string_view suffix = {}) {
    text_.append(name_).append(suffix);
    if (!labels.empty()) text_.append("{").append(labels).append("}");
    char number[32];
    auto end = std::to_chars(number, number + sizeof number, value).ptr;
    text_.append(" ").append(number, end).append("\n");
  }
  void Counter(std::string_view name, uint64_t value, std::string_view help) {
    Family(name, "counter", help);
    Sample(static_cast<double>(value));
  }
  void Gauge(std::string_view name, double value, std::string_view help) {
    Family(name, "gauge", help);
    Sample(value);
  }
  void Histogram(const LatencyHistogram& histogram, const std::string& labels) {
    const std::string comma = labels.empty() ? "" : ",";
    uint64_t running = 0;
    for (size_t i = 0; i < LatencyHistogram::kBuckets; ++i) {
      running += histogram.count(i);
      bool is_last = i + 1 == LatencyHistogram::kBuckets;
      char bound[32] = "+Inf";
      char* end = bound + 4;
      if (!is_last) {
        end = std::to_chars(bound, bound + sizeof bound, static_cast<double>(LatencyHistogram::bound_ns(i)) / 1e9).ptr;
      }
      Sample(static_cast<double>(running), labels + comma + "le=\"" + std::string(bound, end) + "\"", "_bucket");
    }
    Sample(static_cast<double>(histogram.sum_ns()) / 1e9, labels, "_sum");
    Sample(static_cast<double>(running), labels, "_count");
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
  std::string name_;
};

std::string Escape(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '"' || c == '\\') escaped.push_back('\\');
    escaped.push_back(c == '\n' ? ' ' : c);
  }
  return escaped;
}

using Each = std::function<void(const std::string& labels, const Variant& variant)>;

void ForEachVariant(const Models& models, const Each& each) {
  for (const Model& model : models.all()) {
    for (const Variant& variant : model.variants) {
      if (variant.stats == nullptr) continue;
      std::string labels = "model=\"" + Escape(model.name) + "\",variant=\"" + Escape(variant.name) + "\",version=\"" +
                           std::to_string(variant.version->version()) + "\"";
      each(labels, variant);
    }
  }
}

void WriteVariants(Page* page, const Models& models) {
  page->Family("serve_requests_total", "counter", "Predictions by code; OK or the error's.");
  ForEachVariant(models, [&](const std::string& labels, const Variant& variant) {
    const VariantStats& stats = *variant.stats;
    for (size_t code = 0; code < stats.errors.size(); ++code) {
      uint64_t count = stats.errors[code].load(std::memory_order_relaxed);
      if (count == 0) continue;
      page->Sample(static_cast<double>(count), labels + ",code=\"" + NameOf(static_cast<Code>(code)) + "\"");
    }
    page->Sample(static_cast<double>(stats.requests.load(std::memory_order_relaxed)), labels + ",code=\"OK\"");
  });
  auto counter = [&](const char* name, const char* help, auto member) {
    page->Family(name, "counter", help);
    ForEachVariant(models, [&](const std::string& labels, const Variant& variant) {
      page->Sample(static_cast<double>((variant.stats.get()->*member).load(std::memory_order_relaxed)), labels);
    });
  };
  counter("serve_samples_total", "Samples scored.", &VariantStats::samples);
  counter("serve_rows_asked_total", "Rows asked for.", &VariantStats::asked);
  counter("serve_rows_found_total", "Rows found; divided by those asked for: coverage.", &VariantStats::found);
  counter("serve_degraded_total", "Answers given without rows that should have been there.", &VariantStats::degraded);
  counter("serve_score_sum", "Sum of all scores; divided by samples and labels: the mean prediction.",
          &VariantStats::score_sum);
  page->Family("serve_request_seconds", "histogram", "From a request's last byte to its answer.");
  ForEachVariant(models, [&](const std::string& labels, const Variant& variant) {
    page->Histogram(variant.stats->latency, labels);
  });
  page->Family("serve_variant_weight", "gauge", "Share of the requests, among the variants that answer.");
  ForEachVariant(models, [&](const std::string& labels, const Variant& variant) {
    page->Sample(variant.weight, labels + ",shadow=\"" + (variant.is_shadow ? "true" : "false") + "\"");
  });
}

void WriteProtocols(Page* page, const ProtocolStats& protocols) {
  page->Family("serve_protocol_requests_total", "counter", "Predictions asked for by each protocol, by code.");
  for (size_t i = 0; const Codec* codec = CodecAt(i); ++i) {
    for (size_t code = 0; code < ProtocolStats::kCodes; ++code) {
      const uint64_t count = protocols.count(i, code);
      if (count == 0 && code != 0) continue;
      const std::string name = code == 0 ? "OK" : NameOf(static_cast<Code>(code));
      page->Sample(static_cast<double>(count), std::string("protocol=\"") + codec->name() + "\",code=\"" + name + "\"");
    }
  }
}

void WriteEngine(Page* page, const Engine& engine) {
  const EngineStats& stats = engine.stats();
  auto load = [](const std::atomic<uint64_t>& value) { return value.load(std::memory_order_relaxed); };
  page->Family("serve_refused_total", "counter", "Requests refused before they were scored.");
  page->Sample(static_cast<double>(load(stats.refused_full)), "reason=\"queue full\"");
  page->Sample(static_cast<double>(load(stats.refused_late)), "reason=\"late\"");
  page->Sample(static_cast<double>(load(stats.refused_bad)), "reason=\"bad request\"");
  page->Counter("serve_shadow_dropped_total", load(stats.shadow_dropped), "Shadow requests left out under load.");
  page->Gauge("serve_queue_requests", static_cast<double>(engine.queued()), "Requests that wait for a worker.");
  page->Counter("serve_batches_total", load(stats.batches), "Micro-batches scored.");
  page->Counter("serve_batch_requests_total", load(stats.batch_requests), "Requests in them.");
  page->Counter("serve_batch_samples_total", load(stats.batch_samples), "Samples in them.");
  page->Counter("serve_split_batches_total", load(stats.split_batches),
                "Those in which what candidates share went through the first layer once per request.");
  page->Family("serve_queue_seconds", "histogram", "How long requests waited for a worker.");
  page->Histogram(stats.queue, "");
  page->Family("serve_lookup_seconds", "histogram", "Looking up the rows of a micro-batch (Cube time).");
  page->Histogram(stats.lookup, "");
  page->Family("serve_dense_seconds", "histogram", "Running the dense graph on a micro-batch.");
  page->Histogram(stats.dense, "");
}

}  // namespace

std::string MetricsText(const MetricsSources& sources) {
  Page page;
  auto load = [](const std::atomic<uint64_t>& value) { return value.load(std::memory_order_relaxed); };
  page.Gauge("serve_ready", sources.is_ready ? 1 : 0, "1 if GET /readyz says so.");
  if (auto models = sources.engine.models()) WriteVariants(&page, *models);
  WriteProtocols(&page, sources.protocols);
  WriteEngine(&page, sources.engine);
  page.Gauge("serve_connections", static_cast<double>(sources.server.connections()), "Open connections.");
  page.Gauge("serve_buffered_bytes", static_cast<double>(sources.server.budget().used()),
             "Half requests, requests being answered, answers not read yet.");
  const net::LoopStats& loops = sources.server.stats();
  page.Counter("serve_connections_accepted_total", load(loops.accepted), "Connections taken.");
  page.Family("serve_connections_refused_total", "counter", "Connections closed by us, by reason.");
  page.Sample(static_cast<double>(load(loops.refused)), "reason=\"too many\"");
  page.Sample(static_cast<double>(load(loops.timed_out)), "reason=\"too slow\"");
  page.Sample(static_cast<double>(load(loops.foreign)), "reason=\"unknown protocol\"");
  page.Counter("serve_unauthorized_total", load(sources.sessions.unauthorized), "Requests without the right token.");
  page.Counter("serve_malformed_total", load(sources.sessions.malformed),
               "Requests that are none or too large; they cost their sender the connection.");
  page.Counter("serve_overloaded_total", load(sources.sessions.overloaded), "Bodies there was no memory for.");
  page.Gauge("serve_control_requests", static_cast<double>(sources.control.waiting()),
             "Requests that are not predictions, waiting for Python.");
  page.Counter("serve_control_refused_total", load(sources.sessions.control_full), "Those refused, too many waiting.");
  page.Counter("serve_control_expired_total", sources.control.expired(), "Those answered with 504.");
  page.Gauge("serve_uptime_seconds", static_cast<double>(net::NowNs() - sources.started_ns) / 1e9, "Since the start.");
  return page.Take();
}

}  // namespace elasticctr::serve

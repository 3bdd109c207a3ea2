// What a run tells: metrics.jsonl (one object a line, flushed line by line) and a progress line.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "ir/support/result.h"
#include "ir/text/json.h"

namespace stepc {

class MetricsLog {
 public:
  // Opens `path` for appending. Lines of a step after `last_step`, and a last line that was cut off, are
  // dropped first: a resumed run writes them again. last_step -1: start anew.
  static Result<MetricsLog> open(const std::string& path, int64_t last_step);
  Status write(const JsonValue& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  MetricsLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// "1h 02m", "3m 20s", "12s".
std::string duration_text(double seconds);

}  // namespace stepc

// A GPU kernel whose PTX a test breaks in one place, chosen by the kernel-IR op that the line came from; and its
// run on the emulator, whose report must name the fault and an op.
#pragma once

#include <string>
#include <vector>

#include "tests/hopper/run_hopper.h"

namespace stepc::test {

class PlantedKernel {
 public:
  explicit PlantedKernel(kernel::Kernel kernel);

  // Edits every PTX line that contains `text` and comes from an op whose text contains `op`; there must be one.
  // remove: takes the whole line away. replace: `from` becomes `to`.
  PlantedKernel& remove(const std::string& op, const std::string& text);
  PlantedKernel& replace(const std::string& op, const std::string& from, const std::string& to);
  // Only the lines of that op: the last such op if `last`, else the first.
  PlantedKernel& replace_one(const std::string& op, bool last, const std::string& from, const std::string& to);
  // Takes the lines with `text` away that come from the op before the first that contains `op`.
  PlantedKernel& remove_before(const std::string& op, const std::string& text);
  // Whatever op the line came from.
  PlantedKernel& replace_anywhere(const std::string& from, const std::string& to);
  // The swizzle that the host gives a tensor map, by number.
  PlantedKernel& set_map_swizzle(size_t map, int64_t bytes) {
    code_.launch.maps[map].swizzle_bytes = bytes;
    return *this;
  }

  // "" if all went well, else the report.
  std::string run(uint64_t seed) const;
  // The text of the op that a report places the fault at: the first of those that it names.
  std::string op_at(const std::string& report) const;
  std::vector<std::string> ops_in(const std::string& report) const;

 private:
  struct Line {
    std::string text;
    int op = 0;  // line of the kernel's text
  };
  int edit(const std::function<bool(int op)>& wanted, const std::string& from,
           const std::function<void(Line&)>& change);

  kernel::Kernel kernel_;
  std::vector<std::string> ops_;  // the kernel's text, by line
  std::vector<Line> lines_;
  KernelCode code_;
};

// Under ten seeds each: the report names `fault`, at an op that contains `op`, and says `text`.
void check_planted(const PlantedKernel& kernel, const std::string& fault, const std::string& op,
                   const std::string& text = "");
// For faults that several warps meet, whichever comes first: one of the ops that the report names contains `op`.
void check_planted_among(const PlantedKernel& kernel, const std::string& fault, const std::string& op,
                         const std::string& text = "");
void check_whole(const PlantedKernel& kernel);

}  // namespace stepc::test

// The portable templates' and the host's products with counts of filled rows.
#include "tests/support/expert_block.h"

#include "tests/portable/portable.h"

namespace stepc {
namespace {

TEST_CASE("experts of a mixture with lopsided counts, portable: the same bits as with all rows") {
  test::check_expert_block({136, 72, 40, {1, 63, 64, 0, 65, 136, 500}}, test::portable({"sm_80"}),
                           test::on_gpu({"sm_80"}), 128);
}

// Few tiles of much depth: k is counted in parts.
TEST_CASE("a count beside splits of k") {
  for (const double count : {0.0, 1.0, 700.0, 2000.0})
    test::check_expert_block({1600, 16, 8, {count}}, test::portable({"sm_80"}), test::on_gpu({"sm_80"}), 128);
}

TEST_CASE("experts with counts on the host: the same bits as with all rows") {
  for (const HostTarget& target : {detect_host_target(), baseline_host_target()})
    test::check_expert_block({50, 24, 20, {1, 0, 23, 50, 70}}, test::for_host(target), test::compiled(target), 0);
}

}  // namespace
}  // namespace stepc

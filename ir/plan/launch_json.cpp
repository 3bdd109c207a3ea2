#include "ir/plan/launch_json.h"

#include <algorithm>

namespace stepc {
namespace {

constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxCluster = 16;
constexpr size_t kMaxMapRank = 5;
constexpr int64_t kMaxBox = 256;

JsonValue map_json(const kernel::TensorMapSpec& map) {
  JsonValue json;
  json.add("buffer", map.buffer);
  json.add("dtype", dtype_name(map.dtype));
  json.add("shape", JsonValue::list(map.shape));
  json.add("strides", JsonValue::list(map.strides));
  json.add("box", JsonValue::list(map.box));
  json.add("swizzle_bytes", map.swizzle_bytes);
  return json;
}

Result<kernel::TensorMapSpec> read_map(const JsonCursor& at) {
  STEPC_TRY(at.expect_keys({"buffer", "dtype", "shape", "strides", "box", "swizzle_bytes"}));
  kernel::TensorMapSpec map;
  const auto integers = [&](std::string_view key, int64_t low) -> Result<std::vector<int64_t>> {
    STEPC_ASSIGN(const JsonCursor member, at.member(key));
    return member.integers(low);
  };
  STEPC_ASSIGN(const int64_t buffer, at.integer("buffer", 0, INT32_MAX));
  map.buffer = static_cast<int>(buffer);
  STEPC_ASSIGN(const std::string dtype, at.string("dtype"));
  const auto known = dtype_from_name(dtype);
  if (!known) return at.error(fmt::format("\"{}\" is no dtype", dtype));
  map.dtype = *known;
  STEPC_ASSIGN(map.shape, integers("shape", 1));
  STEPC_ASSIGN(map.strides, integers("strides", 1));
  STEPC_ASSIGN(map.box, integers("box", 1));
  STEPC_ASSIGN(map.swizzle_bytes, at.integer("swizzle_bytes", 0, 128));
  return map;
}

Status verify_map(const kernel::TensorMapSpec& map, int buffers) {
  if (map.buffer < 0 || map.buffer >= buffers)
    return user_error("a tensor map of buffer {} of {}", map.buffer, buffers);
  const size_t rank = map.shape.size();
  if (rank < 1 || rank > kMaxMapRank || map.strides.size() != rank || map.box.size() != rank)
    return user_error("a tensor map of {} extents, {} strides and a box of {}, expected as many of each, 1 to {}", rank,
                      map.strides.size(), map.box.size(), kMaxMapRank);
  if (map.strides.back() != 1)
    return user_error("a tensor map whose last stride is {}, expected 1", map.strides.back());
  if (std::any_of(map.box.begin(), map.box.end(), [](int64_t extent) { return extent < 1 || extent > kMaxBox; }))
    return user_error("a tensor map with box {}, expected extents from 1 to {}", shape_text(map.box), kMaxBox);
  const int64_t swizzle = map.swizzle_bytes;
  if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
    return user_error("a tensor map with swizzle {}, expected 0, 32, 64 or 128", swizzle);
  return {};
}

}  // namespace

JsonValue gpu_launch_json(const kernel::GpuLaunch& launch) {
  JsonValue json;
  json.add("threads", launch.threads);
  json.add("cluster", launch.cluster);
  JsonValue::Array maps;
  for (const kernel::TensorMapSpec& map : launch.maps) maps.push_back(map_json(map));
  json.add("maps", std::move(maps));
  return json;
}

Result<kernel::GpuLaunch> read_gpu_launch(const JsonCursor& cursor) {
  STEPC_TRY(cursor.expect_keys({"threads", "cluster", "maps"}));
  kernel::GpuLaunch launch;
  STEPC_ASSIGN(launch.threads, cursor.integer("threads", 1));
  STEPC_ASSIGN(launch.cluster, cursor.integer("cluster", 1));
  STEPC_ASSIGN(const JsonCursor maps_at, cursor.member("maps"));
  STEPC_ASSIGN(const auto maps, maps_at.items());
  for (const JsonCursor& at : maps) {
    STEPC_ASSIGN(kernel::TensorMapSpec map, read_map(at));
    launch.maps.push_back(std::move(map));
  }
  return launch;
}

Status verify_gpu_launch(const kernel::GpuLaunch& launch, int buffers) {
  if (launch.threads == 0) return {};
  if (launch.threads < 0 || launch.threads > kMaxThreads || launch.threads % 32 != 0)
    return user_error("{} threads, expected a multiple of 32 to {}", launch.threads, kMaxThreads);
  if (launch.cluster < 1 || launch.cluster > kMaxCluster)
    return user_error("clusters of {}, expected 1 to {}", launch.cluster, kMaxCluster);
  for (const kernel::TensorMapSpec& map : launch.maps) STEPC_TRY(verify_map(map, buffers));
  return {};
}

}  // namespace stepc

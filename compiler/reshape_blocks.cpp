#include "compiler/reshape_blocks.h"

namespace stepc {

std::vector<ReshapeBlock> reshape_blocks(const Shape& from, const Shape& to) {
  std::vector<ReshapeBlock> blocks;
  size_t i = 0;
  size_t j = 0;
  while (i < from.size() || j < to.size()) {
    ReshapeBlock block{i, 0, j, 0};
    int64_t from_size = i < from.size() ? from[i++] : 1;
    int64_t to_size = j < to.size() ? to[j++] : 1;
    while (from_size != to_size) {
      if (from_size < to_size)
        from_size *= from[i++];
      else
        to_size *= to[j++];
    }
    block.from_end = i;
    block.to_end = j;
    blocks.push_back(block);
  }
  return blocks;
}

}  // namespace stepc

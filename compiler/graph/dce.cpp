#include "compiler/graph/dce.h"

#include <algorithm>

#include "compiler/graph/rewrite.h"

namespace stepc {
namespace {

bool is_root(Op op) { return op == Op::output || op == Op::assign || op == Op::input; }

// Which nodes are needed: in reverse order, so that a node's readers are decided before it is.
std::vector<bool> live_nodes(const Program& program) {
  std::vector<bool> live(program.nodes.size(), false);
  for (size_t i = program.nodes.size(); i-- > 0;) {
    if (is_root(program.nodes[i].op)) live[i] = true;
    if (!live[i]) continue;
    for (ValueId operand : program.nodes[i].operands) live[index_of(program.value(operand).producer)] = true;
  }
  return live;
}

}  // namespace

void dce(Program& program) {
  const std::vector<bool> live = live_nodes(program);
  Rewriter rewriter(program);
  for (size_t i = 0; i < program.nodes.size(); ++i)
    if (live[i]) rewriter.keep(rewriter.mapped(program.nodes[i]));
  program = rewriter.finish();
}

}  // namespace stepc

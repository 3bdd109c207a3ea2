#include "compiler/graph/cse.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "compiler/graph/rewrite.h"

namespace stepc {
namespace {

void append(std::string& key, uint64_t word) { key.append(reinterpret_cast<const char*>(&word), sizeof word); }

void append(std::string& key, const std::vector<int64_t>& words) {
  append(key, words.size());
  for (int64_t word : words) append(key, static_cast<uint64_t>(word));
}

// Reals go by their bits: 0 and -0 are equal as numbers but not as attributes.
struct AppendAttr {
  std::string& key;
  void operator()(bool flag) const { append(key, flag); }
  void operator()(int64_t integer) const { append(key, static_cast<uint64_t>(integer)); }
  void operator()(double real) const { append(key, std::bit_cast<uint64_t>(real)); }
  void operator()(const std::vector<int64_t>& integers) const { append(key, integers); }
  void operator()(const std::string& text) const {
    append(key, text.size());
    key += text;
  }
};

// Equal for nodes that compute the same, and only for them.
std::string node_key(const Node& node, const Program& types_of) {
  std::string key;
  append(key, static_cast<uint64_t>(node.op));
  append(key, node.operands.size());
  for (ValueId operand : node.operands) append(key, index_of(operand));
  for (const Attrs::Entry& entry : node.attrs.entries()) {
    append(key, static_cast<uint64_t>(entry.first));
    append(key, entry.second.index());
    std::visit(AppendAttr{key}, entry.second);
  }
  for (ValueId result : node.results) {
    append(key, static_cast<uint64_t>(types_of.type(result).dtype));
    append(key, types_of.type(result).shape);
  }
  return key;
}

}  // namespace

void cse(Program& program) {
  Rewriter rewriter(program);
  std::unordered_map<std::string, size_t> first_of;  // key -> index in the new program
  for (const Node& old : program.nodes) {
    const Node node = rewriter.mapped(old);
    const bool stays = old.op == Op::input || op_info(old.op).family == OpFamily::effect;
    const auto [first, is_new] = first_of.emplace(node_key(node, program), rewriter.program().nodes.size());
    if (stays || is_new) {
      rewriter.keep(node);
      continue;
    }
    Node& kept = rewriter.program().nodes[first->second];
    kept.phase = std::min(kept.phase, node.phase);
    for (size_t i = 0; i < node.results.size(); ++i) rewriter.replace(node.results[i], kept.results[i]);
  }
  program = rewriter.finish();
}

}  // namespace stepc

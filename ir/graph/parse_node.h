// The part of the parser that reads types and single operations into a program.
#pragma once

#include <string>
#include <unordered_map>

#include "ir/graph/graph.h"
#include "ir/text/lexer.h"

namespace stepc {

Result<TensorType> parse_type(TokenReader& reader);

// Reads one program's operations. Attributes may come in any order; types and attributes are checked
// against the op table by the verifier afterwards, which has each node's position.
class NodeParser {
 public:
  NodeParser(TokenReader& reader, Program& program) : reader_(reader), program_(program) {}

  // One operation, appended to the program.
  Result<NodeId> parse();

 private:
  Result<std::vector<Value>> parse_results(NodeId id);
  Status parse_operands(Node& node);
  Status parse_attrs(Node& node);
  Status parse_attr_value(Op op, AttrKey key, AttrValue& value);
  Result<Op> parse_op();

  TokenReader& reader_;
  Program& program_;
  std::unordered_map<std::string, ValueId> values_;
};

}  // namespace stepc

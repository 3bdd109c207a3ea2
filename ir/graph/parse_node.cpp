#include "ir/graph/parse_node.h"

#include <algorithm>

#include "ir/graph/print.h"
#include "ir/support/checked.h"
#include "ir/text/names.h"

namespace stepc {
namespace {

constexpr int kDtypeCount = static_cast<int>(Dtype::pred) + 1;
constexpr int kPhaseCount = static_cast<int>(Phase::optimizer) + 1;

Result<Dtype> parse_dtype(TokenReader& reader) {
  const Location where = reader.here();
  STEPC_ASSIGN(const Token token, reader.expect_kind(Token::Kind::word, "a dtype"));
  if (const auto dtype = dtype_from_name(token.text)) return *dtype;
  std::vector<std::string_view> names;
  for (int i = 0; i < kDtypeCount; ++i) names.push_back(dtype_name(static_cast<Dtype>(i)));
  return user_error_at(where, "unknown dtype '{}'{}", token.text, did_you_mean(token.text, names));
}

Result<std::vector<int64_t>> parse_integers(TokenReader& reader) {
  std::vector<int64_t> values;
  STEPC_TRY(reader.expect("[", "'='"));
  if (reader.accept("]")) return values;
  do {
    STEPC_ASSIGN(const int64_t value, reader.integer("an integer"));
    values.push_back(value);
  } while (reader.accept(","));
  STEPC_TRY(reader.expect("]", "a list of integers"));
  return values;
}

// The attributes in the order of the op's row, so that their order in the text does not matter.
Attrs in_table_order(Op op, const Attrs& attrs) {
  Attrs ordered;
  for (AttrKey key : op_info(op).attrs)
    if (const AttrValue* value = attrs.find(key)) ordered.set(key, *value);
  return ordered;
}

Result<AttrKey> parse_attr_key(TokenReader& reader, Op op, const Attrs& seen) {
  const Location where = reader.here();
  STEPC_ASSIGN(const Token token, reader.expect_kind(Token::Kind::word, "an attribute's name"));
  const OpInfo& info = op_info(op);
  const auto key = attr_from_name(token.text);
  if (!key || std::find(info.attrs.begin(), info.attrs.end(), *key) == info.attrs.end()) {
    std::vector<std::string_view> names;
    for (AttrKey known : info.attrs) names.push_back(attr_name(known));
    return user_error_at(where, "{} has no attribute '{}'{}", info.name, token.text, did_you_mean(token.text, names));
  }
  if (seen.find(*key)) return user_error_at(where, "attribute '{}' is given twice", token.text);
  return *key;
}

Result<Phase> parse_phase(TokenReader& reader) {
  const Location where = reader.here();
  STEPC_ASSIGN(const Token token, reader.expect_kind(Token::Kind::word, "a phase after '!'"));
  if (const auto phase = phase_from_name(token.text)) return *phase;
  std::vector<std::string_view> names;
  for (int i = 0; i < kPhaseCount; ++i) names.push_back(phase_name(static_cast<Phase>(i)));
  return user_error_at(where, "unknown phase '{}'{}", token.text, did_you_mean(token.text, names));
}

template <class T>
Status store(Result<T> parsed, AttrValue& to) {
  if (!parsed) return tl::unexpected(std::move(parsed).error());
  to = *std::move(parsed);
  return {};
}

}  // namespace

Result<TensorType> parse_type(TokenReader& reader) {
  const Location where = reader.here();
  STEPC_ASSIGN(const Dtype dtype, parse_dtype(reader));
  STEPC_TRY(reader.expect("[", "a dtype"));
  TensorType type{dtype, {}};
  if (!reader.at("]")) {
    do {
      const Location extent_where = reader.here();
      STEPC_ASSIGN(const int64_t extent, reader.integer("an extent"));
      if (extent < 0) return user_error_at(extent_where, "expected an extent of at least 0, found {}", extent);
      type.shape.push_back(extent);
    } while (reader.accept(","));
  }
  STEPC_TRY(reader.expect("]", "a shape"));
  const auto count = checked_numel(type.shape);
  if (!count || !checked_mul(*count, dtype_bytes(dtype)))
    return user_error_at(where, "the bytes of {} do not fit 64 bits", type_text(type));
  return type;
}

Result<NodeId> NodeParser::parse() {
  const auto id = static_cast<NodeId>(program_.nodes.size());
  Node node;
  const bool has_results = reader_.peek().kind == Token::Kind::value;
  std::vector<Value> results;
  if (has_results) {
    STEPC_ASSIGN(results, parse_results(id));
    STEPC_TRY(reader_.expect("=", "a result's type"));
  }
  node.where = reader_.here();
  STEPC_ASSIGN(node.op, parse_op());
  STEPC_TRY(parse_operands(node));
  STEPC_TRY(parse_attrs(node));
  if (reader_.accept("!")) {
    STEPC_ASSIGN(node.phase, parse_phase(reader_));
  }
  for (Value& result : results) {
    node.results.push_back(static_cast<ValueId>(program_.values.size()));
    values_.emplace(result.name, node.results.back());
    program_.values.push_back(std::move(result));
  }
  program_.nodes.push_back(std::move(node));
  return id;
}

Result<std::vector<Value>> NodeParser::parse_results(NodeId id) {
  std::vector<Value> results;
  do {
    const Location where = reader_.here();
    STEPC_ASSIGN(const Token token, reader_.expect_kind(Token::Kind::value, "a value"));
    std::string name(token.text);
    const auto same = [&](const Value& other) { return other.name == name; };
    if (values_.count(name) != 0 || std::any_of(results.begin(), results.end(), same))
      return user_error_at(where, "%{} is defined twice", name);
    STEPC_TRY(reader_.expect(":", "a result"));
    STEPC_ASSIGN(TensorType type, parse_type(reader_));
    results.push_back({std::move(name), std::move(type), id});
  } while (reader_.accept(","));
  return results;
}

Result<Op> NodeParser::parse_op() {
  const Location where = reader_.here();
  STEPC_ASSIGN(const Token token, reader_.expect_kind(Token::Kind::word, "an operation"));
  if (const auto op = op_from_name(token.text)) return *op;
  std::vector<std::string_view> names;
  for (int i = 0; i < kOpCount; ++i) names.push_back(op_info(static_cast<Op>(i)).name);
  return user_error_at(where, "unknown operation '{}'{}", token.text, did_you_mean(token.text, names));
}

Status NodeParser::parse_operands(Node& node) {
  if (!reader_.accept("(") || reader_.accept(")")) return {};
  do {
    const Location where = reader_.here();
    STEPC_ASSIGN(const Token token, reader_.expect_kind(Token::Kind::value, "an operand"));
    const auto found = values_.find(std::string(token.text));
    if (found == values_.end()) {
      std::vector<std::string_view> names;
      for (const Value& value : program_.values) names.push_back(value.name);
      return user_error_at(where, "%{} is not defined before its use{}", token.text, did_you_mean(token.text, names));
    }
    node.operands.push_back(found->second);
  } while (reader_.accept(","));
  return reader_.expect(")", "an operand");
}

Status NodeParser::parse_attrs(Node& node) {
  Attrs attrs;
  if (reader_.accept("{")) {
    do {
      STEPC_ASSIGN(const AttrKey key, parse_attr_key(reader_, node.op, attrs));
      STEPC_TRY(reader_.expect("=", "an attribute's name"));
      AttrValue value;
      STEPC_TRY(parse_attr_value(node.op, key, value));
      attrs.set(key, std::move(value));
    } while (reader_.accept(","));
    STEPC_TRY(reader_.expect("}", "an attribute"));
  }
  node.attrs = in_table_order(node.op, attrs);
  return {};
}

Status NodeParser::parse_attr_value(Op op, AttrKey key, AttrValue& value) {
  switch (attr_kind(key)) {
    case AttrKind::flag:
      value = reader_.at("true");
      if (reader_.accept("true") || reader_.accept("false")) return {};
      return reader_.expected("true or false");
    case AttrKind::integer: return store(reader_.integer("an integer"), value);
    case AttrKind::real: return store(reader_.real("a number"), value);
    case AttrKind::integers: return store(parse_integers(reader_), value);
    case AttrKind::text: break;
  }
  if (op != Op::param && op != Op::state && op != Op::assign) return store(reader_.string("a name in quotes"), value);
  STEPC_ASSIGN(const Token token, reader_.expect_kind(Token::Kind::symbol, "the @name of a param or state"));
  value = std::string(token.text);
  return {};
}

}  // namespace stepc

// The state of the kernel parser. Not for use outside parse*.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ir/kernel/kernel.h"
#include "ir/kernel/parse_names.h"
#include "ir/text/lexer.h"

namespace stepc::kernel {

struct ParseState {
  ParseState(std::string_view text, std::string file_name)
      : reader(text, std::move(file_name)), indices(reader, names, kernel.exprs) {}

  // parse.cpp
  Status whole();
  Status declarations();
  Status buffer(Space space);
  Status map_rest(Buffer& map);
  Result<BufferId> buffer_named(std::string_view what);
  Status scalar();
  Status role();
  Result<std::vector<int64_t>> integers(std::string_view what);
  Result<Shape> shape(std::string_view what);
  Result<std::pair<Dtype, Shape>> type();
  Result<int64_t> optional_integer(std::string_view word, int64_t missing, int64_t highest);
  Status define(const Token& name, NamedThing thing);

  // parse_ops.cpp
  // A fragment whose name comes into sight when its op is complete.
  struct Pending {
    Token name;
    FragId id;
  };
  // Up to and with the closing brace; `first` are names that the body starts with.
  Status body(Body& into, const std::vector<std::pair<Token, NamedThing>>& first);
  Result<OpId> statement();
  Result<OpId> loop(const Location& where);
  Result<OpId> branch(const Location& where);
  Result<OpId> once(const Location& where);
  Result<OpId> index_op(const Token& name, const Location& where);
  Result<OpId> plain_op(const std::vector<Pending>& results, Location where);
  Status operands(KOp& op);
  Status operand(KOp& op, OperandKind kind);
  Status attrs(KOp& op);
  Result<AttrValue> attr_value(AttrKind kind);
  Result<Ref> ref();
  Result<FragId> frag();
  Result<Pending> typed_frag();
  Result<std::vector<Pending>> arrow_results();
  Status finish_results(KOp& op, const std::vector<Pending>& results);
  OpId add(KOp op);

  Kernel kernel;
  TokenReader reader;
  Names names;
  IndexParser indices;
};

}  // namespace stepc::kernel

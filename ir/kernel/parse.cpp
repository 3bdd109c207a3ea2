// The kernel parser: declarations and roles here, ops and bodies in parse_ops.cpp.
#include "ir/kernel/parse.h"

#include "ir/kernel/parse_state.h"
#include "ir/kernel/verify.h"
#include "ir/text/names.h"

namespace stepc::kernel {
namespace {

constexpr size_t kMaxRank = 8;

std::optional<Target> target_from_name(std::string_view name) {
  for (Target target : {Target::host, Target::cuda, Target::sm90})
    if (target_name(target) == name) return target;
  return std::nullopt;
}

}  // namespace

// ---- pieces --------------------------------------------------------------------------------------------------

Result<std::vector<int64_t>> ParseState::integers(std::string_view what) {
  STEPC_TRY(reader.expect("[", what));
  std::vector<int64_t> list;
  if (reader.accept("]")) return list;
  do {
    STEPC_ASSIGN(const int64_t value, reader.integer("an integer"));
    list.push_back(value);
  } while (reader.accept(","));
  STEPC_TRY(reader.expect("]", "integers"));
  return list;
}

Result<Shape> ParseState::shape(std::string_view what) {
  const Location where = reader.here();
  STEPC_ASSIGN(Shape extents, integers(what));
  if (extents.size() > kMaxRank)
    return user_error_at(where, "expected at most {} dimensions, found {}", kMaxRank, extents.size());
  if (!checked_numel(extents))
    return user_error_at(where, "expected a shape of at most 2^63 - 1 elements, found {}", shape_text(extents));
  return extents;
}

Result<std::pair<Dtype, Shape>> ParseState::type() {
  const auto dtype = dtype_from_name(reader.peek().text);
  if (reader.peek().kind != Token::Kind::word || !dtype) return reader.expected("a dtype (f32, bf16, i32 or pred)");
  reader.take();
  STEPC_ASSIGN(Shape extents, shape(dtype_name(*dtype)));
  return std::pair(*dtype, std::move(extents));
}

Status ParseState::define(const Token& name, NamedThing thing) {
  if (names.define(name.text, thing)) return {};
  return user_error_at(reader.location(name), "%{} is already {}", name.text,
                       described(name.text, *names.find(name.text)));
}

Result<int64_t> ParseState::optional_integer(std::string_view word, int64_t missing, int64_t highest) {
  if (!reader.accept(word)) return missing;
  const Location where = reader.here();
  STEPC_ASSIGN(const int64_t value, reader.integer(fmt::format("an integer after {}", word)));
  if (value < 0 || value > highest)
    return user_error_at(where, "expected {} of 0 to {}, found {}", word, highest, value);
  return value;
}

// ---- declarations ----------------------------------------------------------------------------------------------

Status ParseState::buffer(Space space) {
  Buffer declared;
  declared.space = space;
  STEPC_ASSIGN(const Token name,
               reader.expect_kind(Token::Kind::value, fmt::format("the %name of a {}", space_name(space))));
  declared.name = name.text;
  STEPC_TRY(reader.expect(":", "a name"));
  if (space == Space::map) {
    STEPC_TRY(map_rest(declared));
  } else if (space == Space::barrier) {
    STEPC_ASSIGN(const int64_t count, reader.integer("a number of barriers"));
    STEPC_TRY(reader.expect("arrivals", "the number of barriers"));
    STEPC_ASSIGN(declared.arrivals, reader.integer("a number of arrivals"));
    declared.dtype = Dtype::i32;
    declared.shape = {count};
  } else {
    STEPC_ASSIGN(const auto declared_type, type());
    declared.dtype = declared_type.first;
    declared.shape = declared_type.second;
  }
  if (space == Space::global && reader.accept("strides")) {
    STEPC_ASSIGN(declared.strides, integers("strides"));
  }
  declared.overwritten = space == Space::global && reader.accept("overwritten");
  if (space == Space::shared || space == Space::map) {
    STEPC_ASSIGN(declared.swizzle_bytes, optional_integer("swizzle", 0, 128));
  }
  if (space == Space::shared && reader.accept("over")) {
    STEPC_ASSIGN(declared.over, buffer_named("the %name of a shared tile"));
  }
  STEPC_TRY(define(name, static_cast<BufferId>(kernel.buffers.size())));
  kernel.buffers.push_back(std::move(declared));
  return {};
}

Result<BufferId> ParseState::buffer_named(std::string_view what) {
  STEPC_ASSIGN(const Token of, reader.expect_kind(Token::Kind::value, what));
  const auto thing = names.find(of.text);
  if (!thing || !std::holds_alternative<BufferId>(*thing))
    return user_error_at(reader.location(of), "unknown buffer %{}{}", of.text, names.suggestion(of.text));
  return std::get<BufferId>(*thing);
}

Status ParseState::map_rest(Buffer& map) {
  STEPC_ASSIGN(map.map_of, buffer_named("the %name of a global tensor"));
  map.dtype = kernel.buffer(map.map_of).dtype;
  map.shape = kernel.buffer(map.map_of).shape;
  STEPC_TRY(reader.expect("box", "the tensor of a map"));
  STEPC_ASSIGN(map.box, shape("box"));
  return {};
}

Status ParseState::scalar() {
  STEPC_ASSIGN(const Token name, reader.expect_kind(Token::Kind::value, "the %name of a scalar"));
  Variable variable{std::string(name.text), {0, INT64_MAX}, 1};
  if (reader.accept("{")) {
    do {
      const Location where = reader.here();
      STEPC_ASSIGN(const Token key, reader.expect_kind(Token::Kind::word, "low, high or multiple_of"));
      STEPC_TRY(reader.expect("=", key.text));
      STEPC_ASSIGN(const int64_t value, reader.integer("an integer"));
      if (key.text == "low")
        variable.range.low = value;
      else if (key.text == "high")
        variable.range.high = value;
      else if (key.text == "multiple_of")
        variable.multiple_of = value;
      else
        return user_error_at(where, "expected low, high or multiple_of, found '{}'", key.text);
    } while (reader.accept(","));
    STEPC_TRY(reader.expect("}", "the attributes of a scalar"));
  }
  if (variable.multiple_of < 1 || variable.range.low > variable.range.high)
    return user_error_at(reader.location(name), "%{} has no values", name.text);
  const auto id = static_cast<VarId>(kernel.variables.size());
  STEPC_TRY(define(name, id));
  kernel.variables.push_back(std::move(variable));
  kernel.scalars.push_back(id);
  return {};
}

Status ParseState::declarations() {
  while (true) {
    if (reader.accept("global"))
      STEPC_TRY(buffer(Space::global));
    else if (reader.accept("map"))
      STEPC_TRY(buffer(Space::map));
    else if (reader.accept("shared"))
      STEPC_TRY(buffer(Space::shared));
    else if (reader.accept("barrier"))
      STEPC_TRY(buffer(Space::barrier));
    else if (reader.accept("scalar"))
      STEPC_TRY(scalar());
    else
      break;
  }
  if (!reader.accept("grid")) return reader.expected("a declaration or 'grid'");
  STEPC_ASSIGN(kernel.grid, indices.parse());
  STEPC_ASSIGN(kernel.cluster, optional_integer("cluster", 1, 8));
  return {};
}

// ---- roles -------------------------------------------------------------------------------------------------------

Status ParseState::role() {
  STEPC_TRY(reader.expect("role", "the grid or a role"));
  STEPC_ASSIGN(const Token name, reader.expect_kind(Token::Kind::symbol, "the @name of a role"));
  Role declared;
  declared.name = name.text;
  const bool has_copies = reader.at("copies");
  STEPC_ASSIGN(const int64_t copies, optional_integer("copies", 1, 16));
  STEPC_ASSIGN(const int64_t warps, optional_integer("warps", 0, 32));
  STEPC_ASSIGN(const int64_t registers, optional_integer("registers", 0, 255));
  declared.copies = static_cast<int>(copies);
  declared.warps = static_cast<int>(warps);
  declared.registers = static_cast<int>(registers);
  if (has_copies) {
    declared.copy = static_cast<VarId>(kernel.variables.size());
    kernel.variables.push_back({"copy", {0, std::max<int64_t>(copies - 1, 0)}, 1});
  }
  indices.set_copy(declared.copy);
  STEPC_TRY(reader.expect("{", "the head of a role"));
  STEPC_TRY(body(declared.body, {}));
  kernel.roles.push_back(std::move(declared));
  return {};
}

Status ParseState::whole() {
  STEPC_TRY(reader.expect("kernel", "comments"));
  STEPC_ASSIGN(const Token name, reader.expect_kind(Token::Kind::symbol, "the @name of a kernel"));
  kernel.name = name.text;
  const auto target = target_from_name(reader.peek().text);
  if (reader.peek().kind != Token::Kind::word || !target) return reader.expected("a target (host, cuda or sm90)");
  reader.take();
  kernel.target = *target;
  STEPC_TRY(declarations());
  do STEPC_TRY(role());
  while (!reader.at_end());
  return {};
}

Result<Kernel> parse_kernel(std::string_view text, std::string file_name) {
  ParseState state(text, std::move(file_name));
  STEPC_TRY(state.whole());
  STEPC_TRY(verify(state.kernel));
  return std::move(state.kernel);
}

}  // namespace stepc::kernel

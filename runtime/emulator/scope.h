// Names inside a kernel's body: registers, labels, branch tables. `{ }` opens a scope; inner names hide outer ones.
// A register takes a row when it is first used, so declared ranges such as %r<4000> cost nothing.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/emulator/form.h"
#include "runtime/emulator/instruction.h"

namespace stepc::emulator {

struct Register {
  bool predicate = false;
  bool wide = false;
  int32_t index = -1;  // row or predicate
};

class Names : public RowSource {
 public:
  explicit Names(Kernel& kernel) : kernel_(kernel) { scopes_.push_back({}); }

  void open();
  bool close();  // false: none is open but the body
  int current() const { return current_; }

  // False: a type that registers cannot have.
  bool declare_register(std::string_view name, Type type, std::optional<uint64_t> range);
  std::optional<Register> find_register(std::string_view name);

  bool declare_label(std::string_view name, uint32_t pc);  // false: exists in this scope
  void declare_table(std::string_view name, std::vector<std::string_view> labels);
  std::optional<uint32_t> find_label(std::string_view name, int scope) const;
  const std::vector<std::string_view>* find_table(std::string_view name, int scope) const;

  Row constant(uint64_t value, bool wide) override;
  std::optional<Row> special(std::string_view name);

 private:
  struct Range {
    std::string_view prefix;
    Type type;
    uint64_t count;
  };
  struct Scope {
    int parent = -1;
    std::map<std::string_view, Register> registers;
    std::vector<Range> ranges;
    std::map<std::string_view, uint32_t> labels;
    std::map<std::string_view, std::vector<std::string_view>> tables;
  };

  Register make_register(Type type);
  Row take_row(bool wide);

  Kernel& kernel_;
  std::vector<Scope> scopes_;
  int current_ = 0;
  std::map<std::pair<uint64_t, bool>, Row> constants_;
  std::map<std::string_view, Row> specials_;
};

}  // namespace stepc::emulator

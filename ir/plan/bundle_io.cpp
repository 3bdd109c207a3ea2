#include "ir/plan/bundle_io.h"

#include "ir/plan/launch_json.h"
#include "ir/plan/plan_json.h"
#include "ir/plan/verify.h"
#include "ir/support/file.h"
#include "ir/support/hash.h"
#include "ir/text/json.h"
#include "ir/text/names.h"

namespace stepc {
namespace {

// What kind of file holds the kernel's code, which is its suffix.
std::string_view code_form(const BundleKernel& kernel) {
  if (kernel.launch.threads == 0) return "o";
  return kernel.object.starts_with("\177ELF") ? "cubin" : "ptx";
}

JsonValue kernel_json(const BundleKernel& kernel) {
  JsonValue json;
  json.add("name", kernel.name);
  json.add("key", kernel.key);
  json.add("form", code_form(kernel));
  json.add("object_hash", content_hash(kernel.object));
  json.add("problem", kernel.problem);
  json.add("config", kernel.config);
  json.add("buffers", kernel.buffers);
  json.add("scalars", kernel.scalars);
  json.add("shared_bytes", kernel.shared_bytes);
  if (kernel.launch.threads > 0) json.add("gpu", gpu_launch_json(kernel.launch));
  return json;
}

JsonValue layout_json(const ModuleLayout& layout) {
  JsonValue::Array tensors;
  for (const PersistentPlacement& tensor : layout.tensors) {
    JsonValue json;
    json.add("name", tensor.name);
    json.add("arena", plan_arena_name(tensor.arena));
    json.add("dtype", dtype_name(tensor.type.dtype));
    json.add("shape", JsonValue::list(tensor.type.shape));
    json.add("offset_bytes", tensor.offset_bytes);
    tensors.push_back(std::move(json));
  }
  JsonValue json;
  json.add("arena_bytes", JsonValue::list(std::vector<int64_t>(layout.arena_bytes.begin(), layout.arena_bytes.end())));
  json.add("tensors", std::move(tensors));
  return json;
}

Result<ModuleLayout> read_layout(const JsonCursor& cursor) {
  STEPC_TRY(cursor.expect_keys({"arena_bytes", "tensors"}));
  ModuleLayout layout;
  STEPC_ASSIGN(const JsonCursor sizes_at, cursor.member("arena_bytes"));
  STEPC_ASSIGN(const std::vector<int64_t> sizes, sizes_at.integers(0));
  if (sizes.size() != kPersistentArenas) return sizes_at.mismatch("3 sizes");
  std::copy(sizes.begin(), sizes.end(), layout.arena_bytes.begin());
  STEPC_ASSIGN(const JsonCursor tensors_at, cursor.member("tensors"));
  STEPC_ASSIGN(const auto tensors, tensors_at.items());
  for (const JsonCursor& at : tensors) {
    STEPC_TRY(at.expect_keys({"name", "arena", "dtype", "shape", "offset_bytes"}));
    PersistentPlacement tensor;
    STEPC_ASSIGN(tensor.name, at.string("name"));
    STEPC_ASSIGN(tensor.arena, read_arena(at));
    STEPC_ASSIGN(tensor.type, read_type(at));
    STEPC_ASSIGN(tensor.bytes, checked_bytes(tensor.type));
    STEPC_ASSIGN(tensor.offset_bytes, at.integer("offset_bytes", 0));
    layout.tensors.push_back(std::move(tensor));
  }
  return layout;
}

// Reads the kernel's files and compares their hashes.
Result<BundleKernel> read_kernel(const JsonCursor& at, const std::string& folder) {
  std::vector<std::string_view> keys = {"name",   "key",     "form",    "object_hash", "problem",
                                        "config", "buffers", "scalars", "shared_bytes"};
  if (at.has("gpu")) keys.push_back("gpu");
  STEPC_TRY(at.expect_keys(keys));
  BundleKernel kernel;
  STEPC_ASSIGN(kernel.name, at.string("name"));
  if (!is_name(kernel.name)) return at.error(fmt::format("\"{}\" is no name of a kernel", kernel.name));
  STEPC_ASSIGN(kernel.key, at.string("key"));
  STEPC_ASSIGN(kernel.problem, at.string("problem"));
  STEPC_ASSIGN(kernel.config, at.string("config"));
  STEPC_ASSIGN(const int64_t buffers, at.integer("buffers", 0, INT32_MAX));
  STEPC_ASSIGN(const int64_t scalars, at.integer("scalars", 0, INT32_MAX));
  kernel.buffers = static_cast<int>(buffers), kernel.scalars = static_cast<int>(scalars);
  STEPC_ASSIGN(kernel.shared_bytes, at.integer("shared_bytes", 0));
  if (at.has("gpu")) {
    STEPC_ASSIGN(const JsonCursor gpu_at, at.member("gpu"));
    STEPC_ASSIGN(kernel.launch, read_gpu_launch(gpu_at));
  }
  STEPC_ASSIGN(const std::string form, at.string("form"));
  if (form != "o" && form != "ptx" && form != "cubin")
    return at.error(fmt::format("code of form \"{}\", expected o, ptx or cubin", form));
  STEPC_ASSIGN(const std::string object_hash, at.string("object_hash"));
  const std::string base = fmt::format("{}/kernels/{}", folder, kernel.name);
  STEPC_ASSIGN(kernel.text, read_file(base + ".kir"));
  if (content_hash(kernel.text) != kernel.key)
    return user_error("{}.kir: its content does not match the key in plan.json", base);
  STEPC_ASSIGN(kernel.object, read_file(fmt::format("{}.{}", base, form)));
  if (content_hash(kernel.object) != object_hash)
    return user_error("{}.{}: its content does not match the hash in plan.json", base, form);
  return kernel;
}

Result<std::vector<BundleChoice>> read_choices(const JsonCursor& cursor) {
  std::vector<BundleChoice> choices;
  STEPC_ASSIGN(const auto members, cursor.members());
  for (const auto& [subject, at] : members) {
    STEPC_ASSIGN(std::string choice, at.string());
    choices.push_back({subject, std::move(choice)});
  }
  return choices;
}

Status check_version(const JsonCursor& top) {
  STEPC_ASSIGN(const int64_t version, top.integer("stepc_bundle"));
  if (version == kBundleVersion) return {};
  return top.error(
      fmt::format("bundle version {} is unknown; this stepc reads version {}: compile again", version, kBundleVersion));
}

Result<Bundle> read_bundle(const JsonCursor& top, const std::string& folder) {
  STEPC_TRY(check_version(top));
  STEPC_TRY(top.expect_keys({"stepc_bundle", "target", "module", "persistents", "kernels", "plans", "choices"}));
  Bundle bundle;
  STEPC_ASSIGN(bundle.target, top.string("target"));
  STEPC_ASSIGN(bundle.module_name, top.string("module"));
  STEPC_ASSIGN(const JsonCursor layout_at, top.member("persistents"));
  STEPC_ASSIGN(bundle.persistents, read_layout(layout_at));
  STEPC_ASSIGN(const JsonCursor kernels_at, top.member("kernels"));
  STEPC_ASSIGN(const auto kernels, kernels_at.items());
  for (const JsonCursor& at : kernels) {
    STEPC_ASSIGN(BundleKernel kernel, read_kernel(at, folder));
    bundle.kernels.push_back(std::move(kernel));
  }
  STEPC_ASSIGN(const JsonCursor plans_at, top.member("plans"));
  STEPC_ASSIGN(const auto plans, plans_at.items());
  for (const JsonCursor& at : plans) {
    STEPC_ASSIGN(Plan plan, read_plan(at));
    bundle.plans.push_back(std::move(plan));
  }
  STEPC_ASSIGN(const JsonCursor choices_at, top.member("choices"));
  STEPC_ASSIGN(bundle.choices, read_choices(choices_at));
  return bundle;
}

}  // namespace

std::string bundle_text(const Bundle& bundle) {
  JsonValue json;
  json.add("stepc_bundle", kBundleVersion);
  json.add("target", bundle.target);
  json.add("module", bundle.module_name);
  json.add("persistents", layout_json(bundle.persistents));
  JsonValue::Array kernels, plans;
  for (const BundleKernel& kernel : bundle.kernels) kernels.push_back(kernel_json(kernel));
  for (const Plan& plan : bundle.plans) plans.push_back(plan_json(plan));
  json.add("kernels", std::move(kernels));
  json.add("plans", std::move(plans));
  JsonValue choices{JsonValue::Object{}};
  for (const BundleChoice& choice : bundle.choices) choices.add(choice.subject, choice.choice);
  json.add("choices", std::move(choices));
  return json_text(json) + "\n";
}

std::string plan_text(const Plan& plan) { return json_text(plan_json(plan)) + "\n"; }

Result<Plan> parse_plan(std::string_view text, const std::string& file) {
  STEPC_ASSIGN(const JsonValue json, parse_json(text, file));
  STEPC_ASSIGN(Plan plan, read_plan(JsonCursor(json, file)));
  STEPC_TRY(verify_plan(plan));
  return plan;
}

Status save_bundle(const Bundle& bundle, const std::string& folder) {
  STEPC_TRY(make_folder(folder + "/kernels"));
  for (const BundleKernel& kernel : bundle.kernels) {
    const std::string base = fmt::format("{}/kernels/{}", folder, kernel.name);
    STEPC_TRY(write_file_atomic(base + ".kir", kernel.text, Durability::unsynced));
    STEPC_TRY(write_file_atomic(fmt::format("{}.{}", base, code_form(kernel)), kernel.object, Durability::unsynced));
  }
  return write_file_atomic(folder + "/plan.json", bundle_text(bundle), Durability::unsynced);
}

Result<Bundle> load_bundle(const std::string& folder) {
  const std::string file = folder + "/plan.json";
  STEPC_ASSIGN(const std::string text, read_file(file));
  STEPC_ASSIGN(const JsonValue json, parse_json(text, file));
  STEPC_ASSIGN(Bundle bundle, read_bundle(JsonCursor(json, file), folder));
  if (auto status = verify_bundle(bundle); !status) return user_error_at({file, 0, 0}, "{}", status.error().message);
  return bundle;
}

}  // namespace stepc

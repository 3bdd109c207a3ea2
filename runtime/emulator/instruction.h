// PTX after decoding: what the warps execute. An instruction knows its handler or, where it concerns control flow
// or the asynchronous units, its opcode; its operands are places in a warp's register file, resolved when the
// module is loaded. Nothing here is text except what reports print.
//
// A warp's registers are *rows*: 32 lanes of 4 or 8 bytes, side by side. Immediates and special registers (%tid.x,
// %laneid) are rows as well, filled when the warp starts, so a source operand is always a row. Predicates are one
// 32-bit mask for the warp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/support/result.h"

namespace stepc::emulator {

class Warp;
struct Instruction;

// Bit l stands for lane l of a warp.
using Mask = uint32_t;
inline constexpr Mask kAllLanes = 0xffffffffu;
inline constexpr int kLanes = 32;

// A row of a warp's register file: offset in 4-byte units, divided by 32. 64-bit rows take two places.
using Row = int32_t;
inline constexpr Row kNoRow = -1;
// An index of a predicate mask.
using Predicate = int32_t;
inline constexpr Predicate kNoPredicate = -1;

// [register + offset] or [symbol + offset]; symbols are rows with their address.
struct Address {
  Row base = kNoRow;
  bool wide = false;  // the row is 64-bit
  int64_t offset = 0;
};

enum class Space : uint8_t { generic, global, shared, shared_cluster, param };

// What the warp's loop or the asynchronous units do themselves. Everything else is `ordinary`: its handler does it.
enum class Opcode : uint8_t {
  ordinary,
  // control flow and scheduling
  branch,
  ret,  // also exit
  trap,
  barrier_sync,  // bar.sync, barrier.sync: a = id, b = thread count or none
  barrier_arrive,
  cluster_arrive,
  cluster_wait,
  nanosleep,
  setmaxnreg,  // offset: registers a thread; flags: 1 to take, 0 to give back
  // the asynchronous units (operands in Instruction::async)
  mbarrier_init,       // barrier, count
  mbarrier_inval,      // barrier
  mbarrier_arrive,     // barrier, count or none, bytes where .expect_tx, state or none
  mbarrier_expect_tx,  // barrier, bytes
  mbarrier_test_wait,  // barrier, parity or state, done
  mbarrier_try_wait,
  cp_async_mbarrier_arrive,  // barrier, noinc
  bulk_tensor_load,          // shared <- map + coordinates, barrier, multicast
  bulk_tensor_store,         // map + coordinates <- shared
  bulk_tensor_reduce,        // map + coordinates += shared
  bulk_load,                 // shared <- global, bytes, barrier, multicast
  bulk_store,                // global <- shared, bytes
  bulk_reduce,               // global += shared, bytes, element
  bulk_commit,
  bulk_wait,      // groups, read
  bulk_prefetch,  // of a tensor, a tensor map or bytes: nothing to do
  wgmma_mma,
  wgmma_fence,
  wgmma_commit,
  wgmma_wait,         // groups
  fence_proxy_async,  // space: generic = all, shared, shared_cluster, global
  fence_mbarrier_init,
};

enum class Type : uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  bf16,
  bf16x2,
  tf32,
  f32,
  f64,
};

// Operands of an instruction for the asynchronous units; only those its opcode names above are set.
struct AsyncOperands {
  Address shared;                // the shared-memory side of a copy
  Address global;                // the global side of a bulk copy, or the tensor map
  Address barrier;               // an mbarrier
  bool remote = false;           // the barrier was named in .shared::cluster, not .shared::cta
  std::vector<Row> coordinates;  // of a tensor copy, innermost first (32-bit rows)
  Row bytes = kNoRow;            // 32-bit
  Row count = kNoRow;            // arrivals, 32-bit
  bool expect_tx = false;
  Row state = kNoRow;   // 64-bit row that an arrive sets or a wait reads
  Row parity = kNoRow;  // 32-bit row; a wait by parity
  Predicate done = kNoPredicate;
  Row multicast = kNoRow;  // 16-bit mask of CTAs in a 32-bit row
  bool noinc = false;
  int groups = 0;                // of a wait_group
  bool read = false;             // wait_group.read
  Type element = Type::none;     // of a reduction
  Space space = Space::generic;  // of a proxy fence

  // wgmma.mma_async: d[64 x n] = a * b + d
  int n = 0;
  Type input = Type::none;        // bf16
  std::vector<Row> accumulators;  // n / 2 rows
  std::vector<Row> a_registers;   // four rows of bf16x2, or empty: a_descriptor
  Row a_descriptor = kNoRow;      // 64-bit
  Row b_descriptor = kNoRow;
  Predicate scale_d = kNoPredicate;  // false: d = a * b. kNoPredicate: scale_d_value
  bool scale_d_value = true;
  int scale_a = 1;
  int scale_b = 1;
  bool a_transposed = false;  // "mn"-major
  bool b_transposed = false;
};

using Handler = void (*)(Warp&, const Instruction&, Mask);

struct Instruction {
  Handler run = nullptr;  // of an ordinary instruction
  Opcode opcode = Opcode::ordinary;
  Type type = Type::none;
  uint8_t flags = 0;  // of the handler's own making
  bool guard_not = false;
  // Executes only with all lanes of its member mask at this place: bar, shfl, wgmma, ldmatrix, ... `members` is the
  // row of that mask; kNoRow with `converged` means every lane that has not exited.
  bool converged = false;
  bool moves = false;  // of values as they are: the assembler may give a register another name instead
  Predicate guard = kNoPredicate;
  // Rows; predicates where the handler says so.
  int32_t d = -1, d2 = -1;
  int32_t a = -1, b = -1, c = -1, e = -1;
  Row members = kNoRow;
  int64_t offset = 0;         // of an address in `a`; a branch's target; an immediate of the handler's
  std::vector<int32_t> list;  // vector operands, or what else the handler wants
  std::vector<Row> reads;     // every row that it reads or writes, for wgmma's rules
  std::vector<Row> writes;
  std::unique_ptr<AsyncOperands> async;

  uint32_t line = 0;     // in the PTX text
  uint16_t ir_file = 0;  // from .loc: index into Module::files; 0: none
  uint32_t ir_line = 0;
};

// A row filled when a warp starts.
enum class Special : uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  smid,
  nsmid,
  gridid,
  clusterid_x,
  clusterid_y,
  clusterid_z,
  nclusterid_x,
  nclusterid_y,
  nclusterid_z,
  cluster_ctaid_x,
  cluster_ctaid_y,
  cluster_ctaid_z,
  cluster_nctaid_x,
  cluster_nctaid_y,
  cluster_nctaid_z,
  cluster_ctarank,
  cluster_nctarank,
  is_explicit_cluster,
  lanemask_eq,
  lanemask_le,
  lanemask_lt,
  lanemask_ge,
  lanemask_gt,
  dynamic_smem_size,
  total_smem_size
};

struct Parameter {
  std::string name;
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

struct Module;

struct Kernel {
  std::string name;
  const Module* module = nullptr;
  std::vector<Instruction> code;
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes = 0;

  Row rows = 0;  // of a warp, in all
  Predicate predicates = 0;
  struct Constant {
    Row row;
    bool wide;
    uint64_t value;
  };
  struct SpecialRow {
    Row row;
    bool wide;
    Special special;
  };
  std::vector<Constant> constants;
  std::vector<SpecialRow> specials;

  uint32_t static_shared_bytes = 0;          // from the start of the shared window; the dynamic part follows
  uint32_t dynamic_shared_align = 1;         // of `.extern .shared`
  uint32_t max_threads = 0;                  // .maxntid; 0: not stated
  uint32_t required_threads[3] = {0, 0, 0};  // .reqntid
  uint32_t required_cluster = 0;             // .reqnctapercluster
  int max_registers = 0;                     // .maxnreg
  bool uses_wgmma = false;
  bool bulk_loads = false;         // by TMA or cp.async.bulk, to shared memory
  bool noncoherent_loads = false;  // ld.global.nc
  bool global_atomics = false;     // CTAs must then run one after another to give the same bits twice
};

// Of a module, in global memory: 0 when the module is loaded.
struct GlobalVariable {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

struct Module {
  std::string version;  // of PTX
  std::string target;
  std::vector<std::string> lines;  // of the PTX text, from line 1 at [0]
  std::vector<std::string> files;  // by the number that .loc uses; [0] is ""
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
  std::vector<GlobalVariable> variables;
};

// Decodes a module's text. An instruction, directive or operand that the emulator does not know is an error that
// names it and its line. `name` stands for the text in errors.
Result<std::unique_ptr<Module>> decode_module(const std::string& text, const std::string& name = "module.ptx");

}  // namespace stepc::emulator

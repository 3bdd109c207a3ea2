// The shadow state of a CTA's shared memory: for every byte, who wrote it last and through which proxy, whether a
// copy is landing on it or an asynchronous operation still reads it, and who has read it since. Each access is
// checked against it; the first conflict becomes a fault. It never reports an ordered program, but it may miss a
// conflict: lanes of one warp count as ordered, and of a 4-byte word only the last writer is known.
#pragma once

#include <memory>
#include <vector>

#include "runtime/emulator/units/cluster_state.h"
#include "runtime/emulator/units/tensor_map.h"

namespace stepc::emulator {

class Shadow {
 public:
  Shadow(Cta& cta, ClusterState& cluster);

  // Ordinary accesses, before the bytes are read or written. Addresses as programs see them.
  void read(const Party& by, uint32_t address, uint32_t bytes, bool atomic = false);
  void write(const Party& by, uint32_t address, uint32_t bytes, bool atomic = false);

  // A load of `by` from these 16 bytes is under way (open_loads.h), and is over: until then a copy must not land on
  // them, whatever barrier lies between.
  void begin_load(Agent by, uint32_t address);
  void end_load(Agent by, uint32_t address);

  // An asynchronous operation of `by` reads from here on, until end_async_read by the same warp. `swizzle`: how it
  // takes the bytes to lie. Multiples of 16 bytes, as all below.
  void begin_async_read(const Party& by, uint32_t address, uint32_t bytes, Swizzle swizzle, bool plain);
  void end_async_read(const Party& by, uint32_t address, uint32_t bytes);

  // A copy that `by` starts will write the bytes; they have landed with land(), and may be read by who has seen
  // `barrier` complete its phase `epoch`. `plain`: no tensor copy, the swizzle is not known.
  void begin_landing(const Party& by, uint32_t address, uint32_t bytes);
  void land(const Party& by, Agent barrier, Epoch epoch, uint32_t address, uint32_t bytes, Swizzle swizzle, bool plain);

  // A cp.async of 16 bytes, which writes as its thread does: under way until that thread has waited for it.
  void begin_copy(const Party& by, uint32_t address);
  void complete_copy(const Party& by, uint32_t address);

  // Eight bytes that only mbarrier instructions may touch.
  void set_barrier(uint32_t address, bool on);

 private:
  enum class State : uint8_t { unwritten, words, copied };

  struct Granule {  // 16 bytes of shared memory
    State state = State::unwritten;
    uint8_t swizzle = kUnknown;  // how the copy that wrote it laid it out
    uint8_t landing = 0;
    uint8_t barriers = 0;  // which halves are mbarriers
    uint16_t reading = 0;  // pending asynchronous reads
    Agent barrier = kNoAgent;
    Epoch epoch = 0;
    Party copier;  // of the copy that landed, or lands
    Party reader;  // of the latest asynchronous read
  };
  struct Word {  // 4 bytes, in granules of state `words`
    Epoch epoch = 0;
    uint32_t fences = 0;
    uint32_t instruction = 0;
    uint16_t thread = 0;  // of the cluster
    uint8_t written = 0;  // bytes of the last writer
    uint8_t known = 0;    // bytes ever written
    bool atomic = false;
  };
  // 1024 bytes of words, made when ordinary accesses first come there.
  struct Page {
    Word words[256];
    std::vector<Epoch> reads;  // [word][warp]: the epoch of its last read
  };

  static constexpr uint8_t kUnknown = 0xff;

  Granule& granule(uint32_t address) { return granules_[(address - kSharedBase) / 16]; }
  Page& page(uint32_t address);
  Epoch* word_reads(uint32_t address);
  Word& word(uint32_t address);
  static uint8_t byte_mask(uint32_t word_address, uint32_t address, uint32_t bytes);

  void check_read(const Party& by, uint32_t address, uint32_t bytes, bool async, bool atomic);
  void check_words(const Party& by, uint32_t address, uint32_t bytes, bool async, bool atomic);
  void check_overwrite(const Party& by, uint32_t address, uint32_t bytes, bool async, bool atomic);
  void check_readers(const Party& by, uint32_t address, uint32_t bytes);
  void report_reader(const Party& by, uint32_t address, uint32_t bytes, const Epoch* reads, const Epoch* known);
  void check_loads(const Party& by, uint32_t address);
  void record_granule_read(Agent by, uint32_t address, uint32_t instruction);
  void take_words(uint32_t address);

  void fault(FaultKind kind, const Party& by, std::string text, const Party& other, std::string other_text);
  void fault(FaultKind kind, const Party& by, std::string text);

  Cta& cta_;
  ClusterState& cluster_;
  size_t warps_;
  std::vector<Granule> granules_;
  std::vector<Epoch> reads_;                 // [granule][warp]
  std::vector<uint32_t> read_instructions_;  // [granule][warp]
  // [granule][warp]: the epoch at which its last load was over, or kOpen + the loads under way. Empty before the first.
  static constexpr Epoch kOpen = 0x80000000;
  std::vector<Epoch> loads_;
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace stepc::emulator
